"""Clients that raise, or send what is no update: the round goes on without them."""

from pathlib import Path

from deployment import app, config, experiment, run_log

import fedmux
from fedmux.flower.federation import Federation

MISBEHAVING = """
from fedmux.flower import client

well_behaved = client._update


def update(task, job, rule):
    given, buffers = well_behaved(task, job, rule)
    if job.client == 0:
        raise LookupError("no such drawer")
    return {1: given * float("nan"), 2: given[:-1], 3: given}[job.client], buffers


client._update = update
app = client.client_app()
"""


def test_clients_that_raise_or_send_nonsense_are_refused_and_the_round_goes_on(tmp_path: Path) -> None:
    file = experiment(tmp_path / "experiment.toml", clients=4, rounds=1, tasks=2)
    misbehaving, output = app(tmp_path / "app", MISBEHAVING), tmp_path / "federated"
    nodes = [f"partition-id={number} num-partitions=4" for number in range(4)]
    with Federation(tmp_path / "federation", nodes, secure=False) as federation:
        federation.run(misbehaving, config(file, output, 4)).wait(420)
    log = run_log(federation)
    run = fedmux.Run(output)
    assert run.finished, log[-3000:]
    assert {name: values["uploads"] for name, values in run.metrics[1]["tasks"].items()} == {
        "one": 1,
        "two": 1,
    }
    failures = run.metrics[1]["failures"]
    assert {(f["client"], f["task"], f["kind"]) for f in failures} == {
        (client, task, kind)
        for client, kind in (("0", "raised"), ("1", "not-finite"), ("2", "shape"))
        for task in ("one", "two")
    }
    assert len(failures) == 6 and {f["phase"] for f in failures} == {"train.multi"}
    assert 'client 0, task "one": train.multi: LookupError: no such drawer' in log
    assert "client 3," not in log and not federation.leftovers()
