"""What tests share: one thread, no cache of the user's, small things to train on, and comparisons of runs."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import settings
from safetensors.torch import load_file
from torch import Tensor, nn

from fedmux.allocation.plan import Budget, RoundState, Signals
from fedmux.errors import FedmuxError, Interrupted
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.methods import registry
from fedmux.population import Population
from fedmux.runs.reading import Run
from fedmux.tasks import build_loss, build_metric
from fedmux.tasks.task import LocalSgd, Task
from fedmux.training.round import Synchronous
from fedmux.training.running import resume
from fedmux.training.running import run as train
from fedmux.training.state import State

pytest_plugins = ["small_presets"]
torch.set_num_threads(1)
settings.register_profile("fedmux", deadline=None)  # a deadline would be a test of the machine's load
settings.load_profile("fedmux")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of CUDA paths are for machines that have CUDA."""
    if not torch.cuda.is_available():
        needing = [item for item in items if item.get_closest_marker("cuda")]
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in set(needing)]


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMUX_DATA", str(tmp_path_factory.getbasetemp() / "fedmux-data"))


def trains_one_task(method: str) -> bool:
    try:
        METHODS[method]().check(2)
    except FedmuxError:
        return True
    return False


METHODS = registry()
ONE_TASK = tuple(name for name in METHODS if trains_one_task(name))


def population(clients: int = 8, tasks: int = 3, seed: int = 0) -> Population:
    """Unequal processors and data, some pairs missing, one client without a processor."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, (clients, tasks))
    eligible = rng.random((clients, tasks)) < 0.8
    eligible[:tasks] |= np.eye(tasks, dtype=bool)[:clients]  # every task has somebody
    capacity = rng.integers(1, tasks + 1, clients)
    if clients > tasks + 1:
        capacity[-1] = 0
    return Population(capacity, sizes, eligible)


def round_state(
    people: Population, round: int = 0, seed: int = 0, jobs: float = 4.0, **changes: Any
) -> RoundState:
    """A round in which every signal has been reported, and whose plan takes the betas as they are."""
    rng = np.random.default_rng(1)
    shape = people.sizes.shape
    losses, norms, betas = (
        np.where(people.available, rng.uniform(0.1, 3.0, shape), np.nan) for _ in range(3)
    )
    signals = {
        "signals": Signals(losses, norms, betas),
        "accuracies": rng.uniform(0.1, 0.9, shape[1]),
        "learning_rates": np.full(shape[1], 0.1),
        "costs": np.ones(shape[1]),
        "betas": np.nan_to_num(betas),
    }
    return RoundState(
        round=round,
        rounds=20,
        seed=seed,
        population=people,
        budget=Budget(jobs=jobs),
        **{**signals, **changes},
    )


def task_of(module: nn.Module, x: Tensor, y: Tensor, sizes: Sequence[int], **changes: Any) -> Task:
    """Of clients with so many points each; evaluated on points that they have."""
    task = Task(
        name="test",
        module=module,
        loss=build_loss("cross-entropy", {}),
        metric=build_metric("accuracy"),
        x=x,
        y=y,
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        validation=(x[:5], y[:5]),
        test=(x[:5], y[:5]),
        local=LocalSgd(batch_size=4, epochs=1),
        learning_rate=lambda round: 0.01,
    )
    return replace(task, **changes)


def table(**changes: Any) -> dict[str, Any]:
    """A small experiment as a table: two tasks on the digits, quick to train."""
    task = {
        "data": "digits",
        "model": "mlp",
        "model_options": {"hidden": [8]},
        "learning_rate": 0.1,
        "local_epochs": 1,
        "partition": {"kind": "label-share", "share": 0.5, "sizes": [5, 20]},
    }
    return {
        "name": "small",
        "rounds": 4,
        "method": "random",
        "population": {
            "clients": 12,
            "jobs": 6,
            "processors": {"all": 0.25, "half": 0.5, "one": 0.25},
            "availability": {"all": 0.75, "all_but_one": 0.25},
        },
        "task": [{"name": "a", **task}, {"name": "b", **task}],
        "output": {"checkpoint_every": 2},
        **changes,
    }


def experiment_of(**changes: Any) -> Experiment:
    """The small experiment; keys of its table that are given replace its own."""
    return validated(Experiment, table(**changes), "test")


@contextmanager
def interrupted_after(rounds: int) -> Iterator[None]:
    """A run that is trained inside is interrupted when so many rounds are done."""
    original = Synchronous.play

    def stops(self: Synchronous, state: State) -> Any:
        if state.round == rounds:
            raise Interrupted("here")
        return original(self, state)

    with mock.patch.object(Synchronous, "play", stops), pytest.raises(Interrupted):
        yield


def resumes_to_the_same_bits(experiment: Experiment, folder: Path, *stops: int) -> Run:
    """Interrupted after so many rounds, and resumed, it ends as the run in one go does, which is returned."""
    whole = train(experiment, folder / "whole", notice=lambda line: None)
    for stop in stops:
        parts = folder / f"parts-{stop}"
        with interrupted_after(stop):
            train(experiment, parts, notice=lambda line: None)
        resume(parts, notice=lambda line: None)
        assert files(parts) == files(whole.path)
    return whole


def files(folder: Path) -> dict[str, bytes]:
    """All that a run's outcome consists of, times left out."""
    kept = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.glob("models/*"))}
    kept["allocation.bin"] = (folder / "allocation.bin").read_bytes()
    for name, lines in (("metrics.jsonl", True), ("summary.json", False)):
        text = (folder / name).read_text()
        entries = [json.loads(part) for part in (text.splitlines() if lines else [text])]
        for entry in entries:
            entry.pop("seconds", None)
            entry.pop("phases", None)
        kept[name] = json.dumps(entries).encode()
    return kept


EQUAL = ("jobs", "uploads", "reports", "upload_bytes", "gradient_steps", "forward_passes", "server_bytes")
CLOSE = ("loss", "step_size", "learning_rate")
ONE_POINT = 1 / 70 + 1e-9  # of the accuracy: rounding can turn a prediction over


def differences(folder: Path, expected: Path) -> list[str]:
    """Where a run's outcome is not that of another, beyond rounding."""
    found = []
    one, other = Run(folder), Run(expected)
    names = sorted(path.name for path in (expected / "models").iterdir())
    assert sorted(path.name for path in (folder / "models").iterdir()) == names
    for name in names:
        a, b = (flat(load_file(path / "models" / name)) for path in (folder, expected))
        apart = float((a - b).norm() / b.norm())
        if not apart < 1e-4:
            found.append(f"models/{name} is {apart:.1e} apart")
    if len(one.allocation) != len(other.allocation):
        return [*found, "another number of jobs"]
    for field in ("round", "client", "task", "count"):
        if (one.allocation[field] != other.allocation[field]).any():
            found.append(f"allocation: {field}")
    for field in ("probability", "weight"):
        if not np.allclose(one.allocation[field], other.allocation[field], rtol=1e-4, atol=1e-5):
            found.append(f"allocation: {field}")
    assert len(one.metrics) == len(other.metrics)
    for a, b in zip(one.metrics, other.metrics):
        for key in ("round", "clients", "events", "dropped"):
            if a.get(key) != b.get(key):
                found.append(f"round {a['round']}: {key}")
        for task, values in b["tasks"].items():
            mine = a["tasks"][task]
            wrong = [key for key in EQUAL if mine.get(key) != values.get(key)]
            wrong += [key for key in CLOSE if key in values and mine[key] != pytest.approx(values[key], 1e-4)]
            if abs(mine.get("accuracy", 0) - values.get("accuracy", 0)) > ONE_POINT:
                wrong.append("accuracy")
            if "clients" in values:
                close = pytest.approx(values["clients"]["mean"], abs=0.02)
                wrong += [] if mine["clients"]["mean"] == close else ["clients"]
            found += [f"round {a['round']}: {task}: {key} {mine[key]} {values[key]}" for key in wrong]
    return found


def flat(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([weights[name].double().reshape(-1) for name in sorted(weights)])
