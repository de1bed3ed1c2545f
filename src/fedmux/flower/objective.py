"""What a task's training lowers, and by what its models are scored: as the experiment says, at every client.

A `FlowerTask` may say the same again; where it says something else, nobody trains. A function of the user's
own is code of the app: a client uses it because its own FlowerTask names it, never because a server does.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from fedmux.errors import FedmuxError
from fedmux.experiment import TaskSettings
from fedmux.runs.scale import Scale, default_metric, scale_of
from fedmux.tasks import Loss, Metric, build_loss, build_metric


@dataclass(frozen=True)
class Objective:
    """A task's loss and metric, as values that can be written as JSON."""

    loss: str = "cross-entropy"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    metric: Any = None  # a name, or a table with a name; None: the loss has a metric of its own

    @classmethod
    def of(cls, settings: TaskSettings) -> "Objective":
        return cls(**settings.model_dump(mode="json", include={"loss", "loss_options", "metric"}))

    @property
    def scored_by(self) -> Any:
        """The metric, also where the loss brings it."""
        return self.metric or default_metric(self.loss)

    @property
    def scale(self) -> Scale:
        return scale_of(self.metric, self.loss)

    def functions(self) -> tuple[Loss, Metric]:
        return build_loss(self.loss, dict(self.loss_options)), build_metric(_name(self.scored_by))

    def agree(self, own: Mapping[str, Any]) -> None:
        """FedmuxError if the app says something else, or does not name code of its own that is asked for."""
        names = {"loss": self.loss, "metric": _name(self.scored_by)}
        asked = {"loss": self.loss, "loss_options": self.loss_options, "metric": self.scored_by}
        if isinstance(own["metric"], str):  # a name says nothing about the rest of a table
            asked["metric"] = names["metric"]
        for key, value in asked.items():
            if own[key] is not None and _plain(own[key]) != _plain(value):
                raise disagreement(key, own[key], value)
        for key, name in names.items():
            if ":" in name and own[key] is None:
                raise FedmuxError(
                    f'{key} = "{name}" is code of the app, which a client runs only if its '
                    f'FlowerTask names it: add {key}="{name}" there'
                )

    # As part of a message

    def put(self, content: RecordDict, task: str) -> None:
        texts = {key: json.dumps(value) for key, value in asdict(self).items()}
        content[f"objective.{task}"] = ConfigRecord(texts)  # type: ignore[arg-type]

    @classmethod
    def read(cls, content: RecordDict, task: str) -> "Objective":
        record: dict[str, Any] = dict(content.config_records.get(f"objective.{task}") or {})
        if record.keys() != {"loss", "loss_options", "metric"}:
            raise FedmuxError(
                "the server does not say which loss to train with, or in a way of another version of fedmux; "
                "install the version that it has"
            )
        return cls(**{key: json.loads(text) for key, text in record.items()})


def disagreement(key: str, own: Any, asked: Any) -> FedmuxError:
    return FedmuxError(
        f"the app's FlowerTask has {key} = {_shown(own)}, the experiment {key} = {_shown(asked)}; make them "
        f"equal, or leave {key} out of FlowerTask"
    )


def _name(metric: Any) -> str:
    return str(metric.get("name", "") if isinstance(metric, Mapping) else metric)


def _plain(value: Any) -> Any:
    """As it arrives where it was sent as JSON."""
    return json.loads(json.dumps(value, default=repr))


def _shown(value: Any) -> str:
    """As in the experiment file."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_shown(part)}" for key, part in value.items()) + "}"
    return json.dumps(value, default=repr)
