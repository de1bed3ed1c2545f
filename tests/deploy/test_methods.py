"""Methods whose rounds have several phases and whose state goes from one to the next: as in the simulator."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import app, config, equal_weights, experiment, run_log

import fedmux
from fedmux.flower.federation import Federation

CLIENTS = 4


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    nodes = [f"partition-id={number}" for number in range(CLIENTS)]
    federation = Federation(tmp_path_factory.mktemp("methods") / "federation", nodes, secure=False)
    with federation:
        yield federation
    assert not federation.leftovers()


OWN = '''
import torch

import fedmux
from fedmux.allocation.full import FullAllocator


class Anchored(fedmux.LocalRule):
    """Another anchor for each client."""

    def __init__(self, mu):
        self.mu, self.first = mu, None

    def corrections(self, task, clients):
        return self.first[task] * torch.from_numpy(clients)[:, None] / 4

    def gradient(self, gradient, weights, start, correction):
        return gradient + self.mu * (weights - correction)

    def arguments(self):
        return {"mu": self.mu}


class Anchors(fedmux.Unbiased):
    def __init__(self):
        self.local_rule = Anchored(0.25)

    def prepare(self, state, models):
        if self.local_rule.first is None:
            self.local_rule.first = [model.parameters.clone() for model in models]


class Own(fedmux.Method):
    def allocator(self):
        return FullAllocator()

    def aggregator(self):
        return Anchors()
'''


@pytest.mark.parametrize("method", ["mmfl-gvr*", "mmfl-group", "mmfl-forecast", "scaffold", "own_rule:Own"])
def test_three_rounds_over_nodes_come_to_the_simulators_weights(
    method: str, federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = app(tmp_path / "app")
    (own / "own_rule.py").write_text(OWN)
    monkeypatch.syspath_prepend(own)
    file = experiment(tmp_path / "experiment.toml", clients=CLIENTS, rounds=3, method=method, tasks=2)
    simulated = fedmux.run(fedmux.Experiment.read(file), tmp_path / "simulated")
    output = tmp_path / "run"
    federation.run(own, config(file, output, CLIENTS)).wait(400)
    federation.stop("run")
    run = fedmux.Run(output)
    assert run.finished, run_log(federation)
    for column in ("round", "client", "task"):
        assert run.allocation[column].tolist() == simulated.allocation[column].tolist() != []
    equal_weights(output, simulated.path)
