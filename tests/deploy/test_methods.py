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


@pytest.mark.parametrize("method", ["mmfl-gvr*", "mmfl-group"])
def test_three_rounds_over_nodes_come_to_the_simulators_weights(
    method: str, federation: Federation, tmp_path: Path
) -> None:
    file = experiment(tmp_path / "experiment.toml", clients=CLIENTS, rounds=3, method=method, tasks=2)
    simulated = fedmux.run(fedmux.Experiment.read(file), tmp_path / "simulated")
    output = tmp_path / "run"
    federation.run(app(tmp_path / "app"), config(file, output, CLIENTS)).wait(400)
    federation.stop("run")
    run = fedmux.Run(output)
    assert run.finished, run_log(federation)
    for column in ("round", "client", "task"):
        assert run.allocation[column].tolist() == simulated.allocation[column].tolist() != []
    equal_weights(output, simulated.path)
