"""Clients that die, hang and come later, in one federation: what the rounds make of them.

Five clients. In the first round node 1 is killed while it trains, client 2 hangs past the deadline and client
3's process is killed; node 4 joins after it. In the second they come back, in the third all are there.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from deployment import (
    WATCHED,
    app,
    config,
    connected,
    experiment,
    node_log,
    rounds_of,
    run_log,
    start_node,
    wait_for,
)

import fedmux
from fedmux.flower.federation import Federation

DEADLINE = 140.0  # a killed node is given up after 60 s, a killed ClientApp a little later


class Story(NamedTuple):
    run: fedmux.Run
    log: str
    refused: str  # what node 1 said when it was restarted too early
    federation: Federation


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("failing")
    place, output = folder / "marks", folder / "run"
    place.mkdir()
    for name in ("hold-1-0", "hold-2-0", "hold-3-0", "hold-0-1"):
        (place / name).touch()
    watched = app(folder / "app", WATCHED.format(place=str(place)))
    file = experiment(folder / "experiment.toml", clients=5, rounds=3)
    nodes = [f"partition-id={number}" for number in range(5)]
    federation = Federation(folder / "federation", nodes[:4])
    with federation:
        run = federation.run(watched, config(file, output, 4, DEADLINE))
        wait_for((place / "training-3-0").exists, "client 3 trains", run)
        os.kill(int((place / "training-3-0").read_text()), signal.SIGKILL)
        wait_for((place / "training-1-0").exists, "client 1 trains", run)
        federation.stop("node-1", signal.SIGKILL)
        for name in ("hold-1-0", "hold-3-0"):
            (place / name).unlink()
        refused = restart(federation, 1, run)
        wait_for(lambda: rounds_of(output) == 1, "the first round ends", run)
        (place / "hold-2-0").unlink()
        federation.node_configs.append(nodes[4])
        federation.start_node(4)
        wait_for(lambda: connected(federation, 4), "node 4 joins", run)
        (place / "hold-0-1").unlink()
        run.wait(300)
        log = run_log(federation)
        assert (output / "summary.json").exists(), log[-3000:]
    yield Story(fedmux.Run(output), log, refused, federation)


def restart(federation: Federation, number: int, run: "subprocess.Popen[bytes]") -> str:
    """As a supervisor would, until it stays; what it said the first time that it did not."""
    said, next_try = list[str](), 0.0
    start_node(federation, number)

    def stays() -> bool:
        nonlocal next_try
        if federation.processes[f"node-{number}"].poll() is not None and time.monotonic() > next_try:
            said.append(node_log(federation, number))
            federation.stop(f"node-{number}")
            start_node(federation, number)
            next_try = time.monotonic() + 15
        return connected(federation, number)

    wait_for(stays, f"node {number} stays", run)
    return said[0] if said else ""


def clients_of(story: Story, round: int) -> dict[int, float]:
    """Each client that was drawn in a round, with the weight of its update."""
    rows = story.run.allocation[story.run.allocation["round"] == round]
    return dict(zip(rows["client"].tolist(), rows["weight"].tolist()))


def failures(story: Story, round: int) -> dict[str, tuple[str, str, str]]:
    """By client: task, phase and kind."""
    return {
        each["client"]: (each["task"], each["phase"], each["kind"])
        for each in story.run.metrics[round].get("failures", [])
    }


def test_the_round_goes_on_without_those_who_fail(story: Story) -> None:
    assert story.run.metrics[1]["tasks"]["one"]["uploads"] == 1, story.log
    assert {client: weight > 0 for client, weight in clients_of(story, 1).items()} == {
        0: True,
        1: False,
        2: False,
        3: False,
    }
    for client in "123":
        assert f'client {client}, task "one": ' in story.log


def test_a_killed_node_and_a_killed_process_are_recorded_as_lost(story: Story) -> None:
    assert failures(story, 1)["1"] == ("one", "train.multi", "lost")
    assert failures(story, 1)["3"] == ("one", "train.multi", "lost")


def test_a_client_that_hangs_past_the_deadline_is_recorded_as_late(story: Story) -> None:
    assert failures(story, 1)["2"] == ("one", "train.multi", "late")
    assert "0" not in failures(story, 1)
    assert 2 not in clients_of(story, 2)  # it sits out a round
    told = [json.loads(line) for line in (story.run.path / "log.jsonl").read_text().splitlines()]
    kinds = [event["kind"] for event in told if event["event"] == "failure"]
    assert sorted(kinds) == ["late", "lost", "lost"] and {e["event"] for e in told} > {"start", "finished"}


def test_those_who_come_back_are_given_work_with_their_old_numbers(story: Story) -> None:
    assert "Failed to initialize the connection to the SuperLink" in story.refused
    assert all(clients_of(story, 3)[number] > 0 for number in (1, 2, 3)), story.log


def test_a_late_joiner_is_drawn_in_a_later_round(story: Story) -> None:
    assert 4 not in clients_of(story, 1) and 4 not in clients_of(story, 2)
    assert clients_of(story, 3)[4] > 0, story.log


def test_nothing_is_left_behind(story: Story) -> None:
    assert not story.federation.leftovers()
