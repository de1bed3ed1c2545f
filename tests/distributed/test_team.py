"""One run trained by several processes: the same result, and an orderly end whatever happens to them."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from commands import Ended, Started, fedmux, small_experiment, start, wait_until
from conftest import ONE_TASK, differences
from fedmux.distributed.team import Team, TeamLost
from fedmux.distributed.workers import joined
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.experiment.overrides import put
from fedmux.fleet.division import longest_first, owned, owners
from fedmux.methods import registry
from fedmux.runs.reading import Run
from fedmux.runs.writing import RunFolder
from fedmux.tasks.task import LocalSgd
from fedmux.training import running as session
from refusals import refuses

SHORT = small_experiment(rounds=4, checkpoint_every=2)
# Long enough for a signal from outside to arrive in time; a method with state for each client and a signal
# that compares with it.
LONG = small_experiment(rounds=40, checkpoint_every=2).replace('"random"', '"mmfl-gvr*"')


# --- what a team computes -----------------------------------------------------------------------------------


class Normed(nn.Module):
    """With buffers, that are averaged too."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.LazyLinear(8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs)
        )
        self.layers(torch.zeros(2, 64))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


CHANGES = [
    "population.start=9",
    'event=[{round=2, join=3, leave=[1, 7]}, {round=4, join=[1], join_tasks=["digits"]}]',
    'dropout={rate=[0.0, 0.5], correction="estimated"}',
    "population.processors={all=0.5, one=0.5}",
    "population.rate=0.6",
    "rounds=6",
]
SEVERAL = {
    **{name: [f"method={name}"] for name in registry()},
    "changes-lvr": ["method=mmfl-lvr", *CHANGES],
    "changes-gvr*": ["method=mmfl-gvr*", *CHANGES],
    "changes-optimal-stale": ["method=mmfl-optimal-stale", *CHANGES],
    "changes-scaffold": ["method=scaffold", *CHANGES],
    "changes-low-rank": ['method={name="mmfl-optimal-stale", rank=3}', *CHANGES],
    "changes-mifa": ['method={name="mifa", storage="disk"}', *CHANGES],
    "changes-group": ["method=mmfl-group", *CHANGES],
    "changes-forecast": ["method=mmfl-forecast", *CHANGES],
    "changes-forecast-reports": [
        'method={name="mmfl-forecast", report_share=0.5, balance="step"}',
        *CHANGES,
    ],
    "changes-ucb": ["method=multi-ucb", *CHANGES],
    "bfloat16": ['method={name="fedvarp", precision="bfloat16"}'],
    "buffers": ["method=fedfairmmfl", "task.digits.model=test_team:Normed", "task.digits.batch_size=8"],
    "target": ["method=q-ffl", "stop.accuracy=0.12", "rounds=8"],
}


def described(name: str) -> Experiment:
    table = tomllib.loads(SHORT)
    for override in SEVERAL[name]:
        put(table, override)
    if name in ONE_TASK:
        del table["task"][1]
    return validated(Experiment, table, name)


def follow_several(team: Team) -> None:
    """What a process other than the first does in the test below."""
    for name in SEVERAL:
        session.follow(described(name), team)
    exchanges(team)


def exchanges(team: Team) -> None:
    """Everything that a team is for, each process with another part."""
    rank = team.rank
    sums = torch.full((3,), float(rank)), np.array([[rank, 1]]), torch.zeros(0)
    team.sum(*sums)
    assert sums[0].tolist() == [3.0] * 3
    assert sums[1].tolist() == [[3, 3]]
    assert [team.any(rank == 2), team.any(False)] == [True, False]
    rows = torch.full((rank, 2), rank, dtype=torch.bfloat16)
    gathered = [[1, 1], [2, 2], [2, 2]] if rank == 0 else rows.tolist()
    assert team.gather(rows).tolist() == gathered
    sent = {
        "half": torch.tensor([[1.5], [2.5]], dtype=torch.bfloat16),
        "number": torch.tensor(7, dtype=torch.int64),
        "turned": torch.arange(6.0, dtype=torch.float64).view(2, 3).T,
        "none": torch.zeros(0, 4),
    }
    table = {"words": ["Grüße", None], "number": 0.1}
    had, read = team.share(sent if rank == 0 else {}, table if rank == 0 else {})
    assert read == table
    assert all(torch.equal(had[name], sent[name]) and had[name].dtype == sent[name].dtype for name in sent)
    team.agree("something", np.arange(3), np.ones(2))
    with pytest.raises(TeamLost, match=r"processes \[2\] got a different assignment than process 0"):
        team.agree("assignment", np.arange(3) + (rank == 2))


def test_three_processes_come_to_what_one_comes_to(tmp_path: Path) -> None:
    """With every method, in one team, since it is the start that takes long."""
    with joined(described("random").executed({"workers": 3}).execution, follow_several) as team:
        assert (team.rank, team.size) == (0, 3)
        for name in SEVERAL:
            experiment = described(name)
            record = RunFolder.create(tmp_path / "three" / name, experiment.table())
            session._train(experiment, session.assemble(experiment), record, (), print, team)
        exchanges(team)
    wrong = {}
    for name in SEVERAL:
        session.run(described(name), tmp_path / "one" / name)
        if found := differences(tmp_path / "three" / name, tmp_path / "one" / name):
            wrong[name] = found
    assert wrong == {}
    changed = Run(tmp_path / "three" / "changes-gvr*").metrics
    assert sum(entry.get("dropped", 0) for entry in changed) > 3
    assert any("events" in entry for entry in changed)
    assert json.loads((tmp_path / "three" / "target" / "summary.json").read_text())["stopped_at_target"]


# --- how a team ends ----------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "experiment.toml").write_text(LONG)
    return tmp_path


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of an experiment that one process trained, uninterrupted."""

    @cache
    def of(text: str) -> Path:
        folder = tmp_path_factory.mktemp("alone")
        (folder / "experiment.toml").write_text(text)
        fedmux("run", "experiment.toml", "-q", "-o", "run", cwd=folder).done()
        return folder / "run"

    return of


def begin(here: Path, workers: int, *arguments: str, **conditions: Any) -> Started:
    temporary = here / "tmp"
    temporary.mkdir(exist_ok=True)
    return start(
        *("run", "experiment.toml", "-q", "-o", "run", "--workers", workers, *arguments),
        cwd=here,
        own_session=True,
        environment={"TMPDIR": str(temporary)},
        **conditions,
    )


def resume(here: Path, workers: int) -> Started:
    return start("resume", "run", "-q", "--workers", workers, cwd=here, own_session=True)


def lines(here: Path) -> int:
    metrics = here / "run" / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def members(process: Started) -> dict[int, str]:
    """The living processes of a command's session, with their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of_session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(of_session) == process.pid and state != "Z":
                found[int(path.name)] = (path / "cmdline").read_text()
        except OSError:  # it has just ended
            continue
    return found


def workers(process: Started) -> list[int]:
    """In order of their ranks, since they are started so."""
    return sorted(pid for pid, command in members(process).items() if "spawn_main" in command)


def nobody_left(process: Started, here: Path) -> None:
    wait_until(lambda: not members(process))
    assert list((here / "tmp").glob("fedmux-*")) == []


def test_a_killed_worker_is_named_and_a_run_goes_on_with_fewer_and_with_more(here, alone):
    """Three processes until one is killed, two until Ctrl-C, one until Ctrl-C, then three to the end."""
    process = begin(here, 3)
    wait_until(lambda: lines(here) > 5)
    last = workers(process)[-1]
    os.kill(last, signal.SIGKILL)
    refuses(process.wait().refusal(), ("worker 2 of 3", "signal 9"), ("checkpoint", "`fedmux resume run`"))
    nobody_left(process, here)
    for number in (2, 1):
        before = lines(here)
        process = resume(here, number)
        wait_until(lambda before=before: lines(here) > before + 3)
        process.send_all(signal.SIGINT)
        ended = process.wait()
        assert (ended.code, ended.out) == (130, "")
        rounds = lines(here) - 1
        said = f"fedmux: stopped after round {rounds} of 40; `fedmux resume run` continues\n"
        assert ended.err == said
        nobody_left(process, here)
    process = resume(here, 3)
    assert process.wait() == Ended(0, "", "")
    assert differences(here / "run", alone(LONG)) == []
    nobody_left(process, here)


def test_workers_end_when_the_first_process_is_killed(here, alone):
    process = begin(here, 2)
    wait_until(lambda: lines(here) > 3)
    assert len(workers(process)) == 1
    process.send(signal.SIGKILL)
    assert process.wait().code == -signal.SIGKILL
    wait_until(lambda: not members(process))
    assert resume(here, 1).wait() == Ended(0, "", "")
    assert differences(here / "run", alone(LONG)) == []


def test_ctrl_c_while_workers_are_starting_is_told_in_one_line(here):
    process = begin(here, 3)
    wait_until(lambda: len(workers(process)) == 2)
    process.send_all(signal.SIGINT)
    ended = process.wait()
    assert (ended.code, ended.out) == (130, "")
    assert len(ended.err.splitlines()) == 1
    nobody_left(process, here)
    assert not (here / "run").exists()


MINE = '''
import multiprocessing
import numpy as np
import torch
import fedmux
from fedmux.methods.baselines import Random


def second():
    return multiprocessing.parent_process() is not None


class Method(Random):
    """My own."""

    name = "mine"


class Partial(fedmux.Unbiased):
    def begin(self, state, assignment, models):
        super().begin(state, assignment, models)
        self.arrived = np.zeros(len(models))

    def take(self, updates):
        super().take(updates)
        self.arrived[updates.task] += self.assignment.client[updates.rows].sum()

    def step(self, task):
        return super().step(task) / max(1.0, self.arrived[task])


class Forgetful(Method):
    def aggregator(self):
        return Partial()


class Raises(torch.nn.Linear):
    def __init__(self, outputs):
        super().__init__(64, outputs)

    def forward(self, x):
        if self.training and second():
            raise LookupError("no such thing\\nat all")
        return super().forward(x.flatten(1))


class Diverges(Raises):
    def forward(self, x):
        return torch.nn.Linear.forward(self, x.flatten(1)) * (torch.inf if self.training and second() else 1)


def data():
    if second():
        raise OSError("the disk is elsewhere")
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 8, 8)).astype(np.float32), rng.integers(0, 10, 300)
'''


@pytest.mark.parametrize(
    ("change", "place", "cause"),
    [
        ("task.digits.model=mine:Raises", "client ", "LookupError: no such thing"),
        ("task.digits.data=mine:data", 'data "mine:data"', "OSError: the disk is elsewhere"),
    ],
)
def test_what_fails_in_a_worker_is_told_in_one_line(here, change, place, cause):
    (here / "mine.py").write_text(MINE)
    process = begin(here, 2, "--set", "method=mine:Method", "--set", change)
    refuses(process.wait().refusal(), ('task "digits"', place), (cause, "`fedmux resume run`"))
    nobody_left(process, here)


def test_a_sum_that_summed_does_not_name_is_noticed_before_anything_is_trained_on_it(here):
    (here / "mine.py").write_text(MINE)
    ended = begin(here, 2, "--set", "method=mine:Forgetful").wait()
    refuses(
        ended.refusal(), ("processes [1]", "task", "process 0"), ("Partial.summed", "`fedmux resume run`")
    )
    assert lines(here) == 1  # before any training


@pytest.mark.parametrize(
    ("arguments", "place", "remedy"),
    [
        (["--workers", "0"], ("[execution] workers", "got 0"), "at least 1"),
        (["--workers", "-2"], ("[execution] workers", "-2"), "at least 1"),
        (["--workers", "many"], ("[execution] workers", "many"), "auto"),
        (["--workers", "1.5"], ("[execution] workers", "1.5"), "whole number"),
        (["--set", "execution.workers=true"], "[execution] workers", "whole number"),
        (["--device", "tpu"], ("[execution] device", "tpu"), "cuda"),
    ],
)
def test_impossible_executions_are_refused(here, arguments, place, remedy):
    line = fedmux("run", "experiment.toml", "-o", "run", *arguments, cwd=here).refusal()
    refuses(line, place, remedy)
    assert not (here / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("number", ["1", "2", "auto"])
def test_a_device_that_is_not_there_is_refused_before_anything_starts(here, number):
    for device in ("cuda", "cuda:1"):
        arguments = ("--workers", number, "--device", device)
        line = fedmux("run", "experiment.toml", "-o", "run", *arguments, cwd=here).refusal()
        refuses(line, f'execution.device = "{device}"', "no CUDA device")
        assert not (here / "run").exists()


# --- processes that torchrun started, on several machines ---------------------------------------------------


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def machines(here: Path, *arguments: str) -> list[Started]:
    """A command on two machines, as torchrun begins it on each; the second has a folder of its own."""
    (here / "second").mkdir(exist_ok=True)
    for path in [*here.glob("*.toml"), *here.glob("*.py")]:
        (here / "second" / path.name).write_bytes(path.read_bytes())
    common = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [
        start(*arguments, cwd=folder, environment={**common, "RANK": str(rank)}, own_session=True)
        for rank, folder in enumerate((here, here / "second"))
    ]


def test_two_machines_come_to_what_one_comes_to(here, alone):
    """Two agents of torchrun; the first process alone writes and prints."""
    text = SHORT.replace('"random"', '"mmfl-gvr*"')
    (here / "experiment.toml").write_text(text)
    (here / "second").mkdir()
    (here / "second" / "experiment.toml").write_text(text)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--master-addr", "127.0.0.1", "--master-port", free_port()]
    agents = [
        subprocess.Popen(
            [*torchrun, "--node-rank", str(rank), "-m", "fedmux", "run", "experiment.toml", "-o", "run"],
            cwd=folder,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, folder in enumerate((here, here / "second"))
    ]
    said = [agent.communicate(timeout=120) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    assert "run folder: run" in said[0][0]
    assert said[1][0] == ""
    assert "round" not in said[1][1]
    assert [path.name for path in (here / "second").iterdir()] == ["experiment.toml"]
    assert differences(here / "run", alone(text)) == []


def test_two_machines_stop_and_resume_together(here, alone):
    processes = machines(here, "run", "experiment.toml", "-o", "run")
    wait_until(lambda: lines(here) > 5)
    processes[1].send(signal.SIGINT)  # whoever is asked, all stop
    first, second = (process.wait() for process in processes)
    assert first.code == 130
    assert "`fedmux resume run` continues" in first.err.splitlines()[-1]
    assert second == Ended(0, "", "")
    processes = machines(here, "resume", "run", "-q")
    second = processes[1].wait()
    if second.code:
        processes[0].send(signal.SIGKILL)  # or it would wait for the other
    assert [second, processes[0].wait()] == [Ended(0, "", "")] * 2
    assert differences(here / "run", alone(LONG)) == []


def test_what_fails_on_another_machine_is_told_by_the_first(here):
    rank = '__import__("os").environ["RANK"] == "1"'
    (here / "mine.py").write_text(MINE.replace("multiprocessing.parent_process() is not None", rank))
    arguments = ("run", "experiment.toml", "-o", "run", "--set", "task.digits.model=mine:Raises")
    first, second = (process.wait() for process in machines(here, *arguments))
    told = first.err.splitlines()[-1]
    assert (first.code, second) == (2, Ended(2, "", ""))
    assert re.match(r'fedmux: task "digits": local training of client \d+ failed: Lookup', told)


def test_updates_that_are_not_finite_are_recorded_wherever_they_were_made(here):
    (here / "mine.py").write_text(MINE)
    begin(here, 2, "--set", "task.digits.model=mine:Diverges").wait().done()
    metrics = [json.loads(line) for line in (here / "run" / "metrics.jsonl").read_text().splitlines()]
    failures = [failure for entry in metrics for failure in entry.get("failures", [])]
    assert failures and {(failure["task"], failure["kind"]) for failure in failures} == {
        ("digits", "not-finite")
    }


# --- who does what ------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6, allow_subnormal=False), max_size=60), st.integers(1, 9))
def test_the_longest_jobs_first_is_nearly_the_best_division(costs, size):
    """Each job at one process. Graham: what ends last began when no one was idle, so it exceeds a fair share
    by at most (1 - 1/m) of the longest job; and the (m + 1) longest jobs bound the best division from below.
    """
    costs = np.array(costs)
    ranks = longest_first(costs, size)
    assert ranks.shape == costs.shape
    assert ((ranks >= 0) & (ranks < size)).all()
    assert (longest_first(costs, size) == ranks).all()
    loads = np.bincount(ranks, costs, minlength=size)
    longest = np.sort(costs)[::-1]
    slack = 1 + 1e-9
    assert loads.max() <= (costs.sum() / size + (1 - 1 / size) * costs.max(initial=0.0)) * slack
    pair = longest[size - 1 : size + 1].sum() if len(costs) > size else 0.0  # two of these share a process
    if len(costs) <= size:
        assert loads.max() == costs.max(initial=0.0)
    elif len(costs) <= 8 and size <= 3:
        assert loads.max() <= (4 / 3 - 1 / (3 * size)) * best_division(costs, size) * slack
    assert loads.max() >= pair / slack


def best_division(costs: np.ndarray, size: int) -> float:
    """The least largest load, by trying everything."""
    ways = np.array(list(itertools.product(range(size), repeat=len(costs))))
    return float(np.max([(ways == rank) @ costs for rank in range(size)], axis=0).min())


@given(st.lists(st.integers(0, 200), min_size=1, max_size=80), st.integers(1, 9), st.integers(1, 4))
def test_clients_are_owned_in_ranges_of_about_equal_work(sizes, size, epochs):
    task = SimpleNamespace(sizes=np.array(sizes), local=LocalSgd(32, epochs, 0.0, 0.0, None))
    ranks = owners(task, size)
    assert ((ranks >= 0) & (ranks < size)).all()
    assert (np.diff(ranks) >= 0).all()
    assert (sum(owned([task], rank, size).astype(int) for rank in range(size)) == 1).all()
    work = task.local.steps(task.sizes).astype(float)
    loads = np.bincount(ranks, work, minlength=size)
    fair = work.sum() / size
    assert (np.abs(loads - fair) <= work.max() + 1e-6).all()
    if work.max() < fair - 1e-6:
        assert (loads > 0).all()
