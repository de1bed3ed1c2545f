"""A local rule reaches a client whole, or is refused with the remedy."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor, nn

from conftest import task_of
from fedmux.aggregation import LocalRule
from fedmux.aggregation.proximal import Proximal
from fedmux.aggregation.scaffold import Corrected
from fedmux.errors import FedmuxError
from fedmux.fleet.local import TightLoop
from fedmux.flower.rules import put_rule, read_rule
from fedmux.tasks.task import LocalSgd

SIZE = 15


@dataclass
class Tilted(LocalRule):
    """Uses all that a rule is given."""

    mu: float
    power: int = 1
    only: str = "both"
    absolute: bool = False

    def corrections(self, task: int, clients: np.ndarray) -> Tensor:
        return torch.linspace(-1, 1, SIZE) * (torch.from_numpy(clients)[:, None] + task)

    def gradient(self, gradient: Tensor, weights: Tensor, start: Tensor, correction: Tensor | None) -> Tensor:
        assert correction is not None and self.only == "both"
        return gradient + (self.mu * (weights - start)) ** self.power + correction * (1 + self.absolute)


class Server(LocalRule):
    """Has what no client needs."""

    def __init__(self, table: Tensor | None = None) -> None:
        self.table = table


class Renamed(LocalRule):
    def __init__(self, mu: float) -> None:
        self.strength = mu


class Halved(LocalRule):
    def __init__(self, mu: float) -> None:
        self.mu = mu / 2


class Listed(Renamed):
    def arguments(self) -> dict[str, list[int]]:  # type: ignore[override]
        return {"mu": [1, 2]}


class Foreign:
    pass


@pytest.mark.parametrize(
    "rule",
    [
        Tilted(0.25),
        Tilted(2.0, 2, absolute=True),
        Proximal(1),
        Corrected(lambda task, clients: torch.full((len(clients), SIZE), 0.5 + task)),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_a_rule_trains_at_a_client_as_it_does_in_a_simulation(rule: LocalRule) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(12, 4), torch.randint(3, (12,))
    local, rate = LocalSgd(batch_size=4, epochs=2), lambda round: 0.1
    task = task_of(nn.Linear(4, 3), x, y, np.array([5, 7]), local=local, learning_rate=rate)
    model, content = task.layout.read(), RecordDict()
    put_rule(content, rule, "a", 2, 1)
    received = read_rule(content, "a")
    loop = TightLoop(task, 2, seed=3)
    wanted, _ = loop.update(model, 1, 0, rule)
    update, _ = loop.update(model, 1, 0, received)
    plain, _ = loop.update(model, 1, 0)
    assert torch.equal(update, wanted) and not torch.equal(update, plain)


def test_nothing_is_sent_where_there_is_no_rule() -> None:
    content = RecordDict()
    put_rule(content, None, "a", 0, 0)
    assert not content and read_rule(content, "a") is None


def test_a_rule_that_a_client_could_not_rebuild_is_refused() -> None:
    class Local(LocalRule):
        pass

    for rule, place, remedy in (
        (Server(torch.zeros(1)), "Server.*table is a Tensor", "define arguments"),
        (Tilted(np.float64(1)), "Tilted.*mu is a float64", "define arguments"),
        (Renamed(1.0), "Renamed.*'mu'", "define arguments"),
        (Halved(1.0), "Halved.*a different rule", "define arguments"),
        (Listed(1.0), "Listed.*mu is a list", "define arguments"),
        (Local(), "Local", "top level of a module"),
    ):
        with pytest.raises(FedmuxError, match=f"{place}.*{remedy}"):
            put_rule(RecordDict(), rule, "a", 0, 0)


@pytest.mark.parametrize("name", ["Foreign", "SIZE", "Absent"])
def test_a_client_builds_local_rules_alone(name: str) -> None:
    content = RecordDict({"rule.a": ConfigRecord({"class": f"{__name__}:{name}"})})
    with pytest.raises(FedmuxError, match=f'local rule "{__name__}:{name}": '):
        read_rule(content, "a")


@pytest.mark.parametrize("module", ["stranger", "fedmux.flower.template.client_app", "fedmux.__main__"])
def test_a_client_imports_nothing_because_a_server_names_it(tmp_path, monkeypatch, module: str) -> None:
    """Of fedmux, too, only what is made to be named; its template imports `task`, whatever that is here."""
    for name in ("stranger", "task"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('it was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, module, raising=False)
    content = RecordDict({"rule.a": ConfigRecord({"class": f"{module}:Rule"})})
    with pytest.raises(FedmuxError, match=f'local rule "{module}:Rule": import {module} in the client app'):
        read_rule(content, "a")
    assert module not in sys.modules


def test_a_rule_of_fedmux_is_imported_for_a_client_that_has_not_used_it() -> None:
    script = """
import sys
from flwr.app import ConfigRecord, RecordDict
from fedmux.flower.rules import read_rule
assert "fedmux.aggregation.proximal" not in sys.modules
name = "fedmux.aggregation.proximal:Proximal"
print(read_rule(RecordDict({"rule.a": ConfigRecord({"class": name, "mu": 0.5})}), "a").rule.mu)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("0.5\n", "")


@pytest.mark.parametrize(
    ("record", "remedy"),
    [
        ({"kind": "proximal", "mu": 1.0}, "install the same one"),
        ({"class": f"{__name__}:Halved"}, "same version"),
    ],
)
def test_a_rule_of_another_version_is_refused(record, remedy) -> None:
    content = RecordDict({"rule.a": ConfigRecord(record)})
    with pytest.raises(FedmuxError, match=remedy):
        read_rule(content, "a")
