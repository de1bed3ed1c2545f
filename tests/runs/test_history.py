"""Reading runs for charts: what is there is read, and nothing that may lie in a folder raises."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmux
from conftest import table
from fedmux.comparison.design import Design
from fedmux.report.charts import CHARTS, spec
from fedmux.runs.finals import number
from fedmux.runs.history import DAMAGED, History, find
from fedmux.runs.rounds import ROUND_FIGURES, TASK_FIGURES, Round
from fedmux.runs.state import FINISHED, INTERRUPTED


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    fedmux.run(fedmux.Experiment.model_validate(table(seed=3)), folder)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def draws_everything(history: History) -> None:
    for kind in CHARTS:
        chart = kind.draw([history])
        if chart is not None:
            json.dumps(spec(chart), allow_nan=False)


def test_a_finished_run_is_read_whole(finished: Path) -> None:
    history = History.read(finished)
    assert (history.name, history.method, history.label, history.seed) == ("small", "random", "random", 3)
    assert (history.tasks, history.rounds, history.state) == (["a", "b"], 4, FINISHED)
    assert history.problem is None
    assert [entry.round for entry in history.metrics] == [0, 1, 2, 3, 4]
    assert history.summary == fedmux.Run(finished).summary
    assert np.array_equal(history.allocation, fedmux.Run(finished).allocation)
    assert history.clients == 12
    assert history.available.shape == (12, 2)
    assert history.population["sizes"].shape == (12, 2)


def test_a_run_at_work_drops_the_line_it_is_writing(run: Path) -> None:
    (run / "summary.json").unlink()
    whole = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(whole[:-20])
    (run / "allocation.bin").write_bytes((run / "allocation.bin").read_bytes()[:-3])
    history = History.read(run)
    assert (history.state, history.problem, history.summary) == (INTERRUPTED, None, None)
    assert [entry.round for entry in history.metrics] == [0, 1, 2, 3]
    assert len(history.allocation) == len(fedmux.Run(run).allocation)
    draws_everything(history)


JUNK = bytes(range(256)) * 40
NESTED = b"[" * 100_000
ODD_TABLE = b"rounds = 'many'\nmethod = 3\nseed = -1\ntask = 4\npopulation = 5"
HUGE_TABLE = b"rounds = 99\n[population]\nclients = 999999999999\n[[task]]\nname = 'a'"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("experiment.toml", b"rounds = = 3", "experiment.toml: not valid TOML: Invalid value"),
        ("experiment.toml", JUNK, "experiment.toml: cannot be read ("),
        ("experiment.toml", b"a = " + NESTED, "experiment.toml: not valid TOML"),
        ("experiment.toml", None, "experiment.toml: is missing"),
        (
            "experiment.toml",
            b"rounds = 'many'\nmethod = 3\nseed = -1\ntask = 4\npopulation = 5",
            "experiment.toml: rounds is not",
        ),
        (
            "experiment.toml",
            b"rounds = 99\n[population]\nclients = 999999999999\n[[task]]\nname = 'a'",
            "experiment.toml: seed is not",
        ),
        ("summary.json", b"{", "summary.json: cannot be read ("),
        ("summary.json", b"[1]", "summary.json: is not a table"),
        ("summary.json", NESTED, "summary.json: cannot be read ("),
        (
            "summary.json",
            b'{"accuracy": 3, "recruitment": {"take_up": []}}',
            "summary.json: rounds is missing",
        ),
        ("summary.json", None, None),
        ("metrics.jsonl", JUNK, "metrics.jsonl: line 1 is not an entry of a round"),
        ("metrics.jsonl", b'{"round": 0, "tasks": {}}\n7\n', "metrics.jsonl: line 2 is not"),
        ("metrics.jsonl", b'{"round": 0, "tasks": {"a": 3}}\n', "metrics.jsonl: line 1 is not"),
        ("metrics.jsonl", b'{"round": "x", "tasks": {}}\n', "metrics.jsonl: line 1 is not"),
        ("metrics.jsonl", b'{"round": 2, "tasks": {}}\n{"round": 1, "tasks": {}}\n', "metrics.jsonl: line 2"),
        ("metrics.jsonl", NESTED + b"\n", "metrics.jsonl: line 1 is not"),
        ("metrics.jsonl", b"", "metrics.jsonl: is empty"),
        ("metrics.jsonl", None, "metrics.jsonl: is missing"),
        ("population.npz", JUNK, "population.npz: is damaged or cut"),
        ("population.npz", b"PK\x03\x04" + JUNK, "population.npz: is damaged or cut"),
        ("population.npz", None, "population.npz: is missing"),
        ("allocation.bin", JUNK, "allocation.bin: record 1 is not a job"),
        ("allocation.bin", None, "allocation.bin: is missing"),
        ("environment.json", None, "environment.json: is missing"),
    ],
)
def test_damage_is_told_in_one_line_and_what_is_left_can_be_drawn(
    run: Path, name: str, content: bytes | None, problem: str | None
) -> None:
    (run / name).unlink() if content is None else (run / name).write_bytes(content)
    history = History.read(run)
    if problem is None:
        assert history.problem is None
    else:
        assert history.state == DAMAGED
        assert history.problem is not None
        assert history.problem.startswith(problem)
        assert "\n" not in history.problem
    draws_everything(history)


ODD: list[Any] = [None, "x", [], {}, [[1]], {"a": "x"}, -1, True, 1e999, {"a": {"p10": []}}]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_figures_of_the_wrong_kind_are_left_out(finished: Path, odd: Any) -> None:
    history = History.read(finished)
    for position in (1, 2):
        names = set(ROUND_FIGURES) - {"round", "tasks"}
        tasks = {"a": dict.fromkeys(TASK_FIGURES, odd), "b": {}}
        entry = Round.read({**dict.fromkeys(names, odd), "round": position, "tasks": tasks})
        assert entry is not None
        history.metrics[position] = entry
    draws_everything(history)


def test_groups_and_planes_of_the_wrong_kind_are_left_out(finished: Path) -> None:
    history = History.read(finished)
    for position, plane in enumerate(([[1, 2], None, [1], ["x", 2], 5], [None], [])):
        history.metrics[position].allocation = {"groups": [0, "x", None, 1, -1], "plane": plane}
    draws_everything(history)


def test_arrays_of_other_shapes_are_left_out(finished: Path) -> None:
    for wrong in (np.zeros(3), np.zeros((2, 2, 2)), np.full((12, 2), np.nan), np.array(["a"])):
        history = History.read(finished)
        names = ("capacity", "eligible", "cluster", "award_payment", "labels.a")
        history.population = history.population | dict.fromkeys(names, wrong)  # type: ignore[misc]
        draws_everything(history)


def test_what_is_no_run_is_broken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, problem in ((tmp_path, "is not a run folder"), (tmp_path / "no", "no such folder")):
        history = History.read(path)
        assert (history.state, history.problem) == (DAMAGED, problem)
        draws_everything(history)
    assert History.read(tmp_path / "file").state == DAMAGED
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert [history.state for history in find([tmp_path / "loop", "nul\0"])] == [DAMAGED, DAMAGED]
    assert find([tmp_path]) == []


def test_folders_in_the_place_of_files_are_told(run: Path) -> None:
    for name in ("metrics.jsonl", "experiment.toml", "allocation.bin", "population.npz"):
        (run / name).unlink()
        (run / name).mkdir()
    history = History.read(run)
    assert str(history.problem).startswith("experiment.toml: cannot be read (Is a directory); metrics.jsonl")
    draws_everything(history)


def test_a_folder_with_only_signs_of_a_run_is_broken(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"round": 0, "tasks": {"a": {"accuracy": 0.5}}}\n')
    history = History.read(tmp_path)
    assert str(history.problem).startswith("experiment.toml: is missing; ")
    assert history.tasks == ["a"]
    draws_everything(history)


def test_runs_are_found_alone_in_folders_and_in_comparisons(finished: Path, tmp_path: Path) -> None:
    methods = ["round-robin", {"name": "random", "label": "by chance!"}]
    design = Design.make(
        {**table(), "compare": {"methods": methods}}, "test", seeds=[0, 1], vary=["population.jobs=4,6"]
    )
    comparison = design.create(tmp_path / "all" / "compared")
    for cell in comparison.cells:
        shutil.copytree(finished, comparison.folder(cell))
    (comparison.path / "runs" / "x.log").write_text("")
    shutil.copytree(finished, tmp_path / "all" / "alone")
    (tmp_path / "all" / ".hidden").mkdir()
    (tmp_path / "all" / "empty").mkdir()

    labels = [history.label for history in find([tmp_path / "all" / "compared"])]
    assert labels[::2] == labels[1::2]
    assert labels[::2] == [
        "round-robin population.jobs=4",
        "round-robin population.jobs=6",
        "by chance! population.jobs=4",
        "by chance! population.jobs=6",
    ]
    assert len(find([tmp_path / "all"])) == 9
    assert len(find([tmp_path / "all", tmp_path / "all" / "alone"])) == 9  # none twice
    assert [history.path.name for history in find([tmp_path / "all" / "alone"])] == ["alone"]
    assert find([tmp_path / "all" / "empty"]) == []
    assert [history.problem for history in find([tmp_path / "no"])] == ["no such folder"]

    (comparison.path / "comparison.toml").write_bytes(JUNK)
    assert {history.label for history in find([comparison.path])} == {"random"}


def test_numbers_are_finite_and_no_truth_values() -> None:
    nested = {"a": {"b": 3}, "c": float("nan"), "d": True, "e": "1", "f": 10**400, "g": 0.5}
    assert number(nested, "a", "b") == 3.0
    assert number(nested, "g") == 0.5
    assert [number(nested, key) for key in "cdefz"] == [None] * 5
    assert number(nested, "a", "b", "c") is None
    assert number(None, "a") is None
