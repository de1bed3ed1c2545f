"""What tests share: one thread, no cache of the user's, and small things to train on."""

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
from torch import Tensor, nn

from fedmux.allocation.plan import Budget, RoundState, Signals
from fedmux.errors import Interrupted
from fedmux.population import Population
from fedmux.tasks import build_loss, build_metric
from fedmux.tasks.task import LocalSgd, Task
from fedmux.training.round import Synchronous
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
    """A round in which every signal has been reported."""
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


def files(folder: Path) -> dict[str, bytes]:
    """All that a run's outcome consists of, times left out."""
    import json

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
