"""Whatever has happened to a file of a run folder: one line names it, and the rest can still be read."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import fedmux
from commands import Ended
from commands import fedmux as command
from conftest import experiment_of, interrupted_after, table
from fedmux.comparison.design import Design
from fedmux.errors import FedmuxError
from fedmux.report.page import report
from fedmux.runs.history import DAMAGED, History, find
from fedmux.toml import read_toml

GARBAGE = bytes(range(256)) * 7


def edited_json(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        value = json.loads(content)
        return json.dumps(change(value) or value).encode()

    return edit


def edited_toml(**changes: Any) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        import tomllib

        return tomli_w.dumps({**tomllib.loads(content.decode()), **changes}).encode()

    return edit


def edited_line(number: int, change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        lines[number] = edited_json(change)(lines[number]) + b"\n"
        return b"".join(lines)

    return edit


def put(value: Any, *keys: str) -> Callable[[dict[str, Any]], None]:
    def change(table: dict[str, Any]) -> None:
        for key in keys[:-1]:
            table = table[key]
        table[keys[-1]] = value

    return change


def whole_records(content: bytes) -> bytes:
    return content[: len(content) // 40 * 20]


WAYS: dict[str, Callable[[bytes], bytes] | None] = {
    "missing": None,
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "garbage": lambda content: GARBAGE,
}
JSON_WAYS: dict[str, Callable[[bytes], bytes] | None] = {
    **WAYS,
    "a list": lambda content: b"[1]",
    "a number": lambda content: b"7",
}
NAN = float("nan")
DAMAGES: dict[str, dict[str, Callable[[bytes], bytes] | None]] = {
    "experiment.toml": {
        **WAYS,
        "text for rounds": edited_toml(rounds="many"),
        "no tasks": edited_toml(task=[]),
        "text for tasks": edited_toml(task="a"),
        "number for method": edited_toml(method=3),
    },
    "environment.json": JSON_WAYS,
    "population.npz": WAYS,
    "metrics.jsonl": {
        **WAYS,
        "garbage between": lambda content: content.replace(b"\n", b"\n" + GARBAGE[11:99] + b"\n", 1),
        "a number between": lambda content: content.replace(b"\n", b"\n7\n", 1),
        "text for accuracy": edited_line(1, put("high", "tasks", "a", "accuracy")),
        "NaN": edited_line(1, put(NAN, "tasks", "a", "loss")),
        "list of tasks": edited_line(2, put([], "tasks")),
        "text for the mean": edited_line(2, put("x", "accuracy", "mean")),
    },
    "allocation.bin": {
        **{way: change for way, change in WAYS.items() if way != "half"},
        "half of the records": whole_records,
        "garbage at the end": lambda content: content + GARBAGE[:400],
    },
    "state.json": JSON_WAYS,
}
SUMMARIES = {
    **{way: change for way, change in JSON_WAYS.items() if way != "missing"},
    "text for accuracy": edited_json(put("high", "accuracy")),
    "text for the mean": edited_json(put("high", "accuracy", "mean")),
    "NaN": edited_json(put(NAN, "accuracy", "mean")),
    "text for a task": edited_json(put("good", "tasks", "a")),
    "list of tasks": edited_json(put([], "tasks")),
    "text for a task's accuracy": edited_json(put("high", "tasks", "a", "accuracy")),
    "text for totals": edited_json(put("many", "totals")),
    "text for rounds": edited_json(put("all", "rounds")),
    "nothing but a name": edited_json(lambda summary: {"name": "x"}),
    "odd divergence": edited_json(put({"a": 3}, "diverged")),
}
OF_FINISHED = {**DAMAGES, "summary.json": SUMMARIES, "models/a.safetensors": WAYS}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and one that was interrupted."""
    folder = tmp_path_factory.mktemp("damage")
    fedmux.run(experiment_of(), folder / "finished")
    with interrupted_after(3):
        fedmux.run(experiment_of(), folder / "unfinished")
    return folder


def damage(file: Path, change: Callable[[bytes], bytes] | None) -> None:
    if change is None:
        file.unlink()
    else:
        file.write_bytes(change(file.read_bytes()))


def cases(damages: dict[str, dict[str, Any]]) -> Any:
    found = [(file, way) for file, ways in damages.items() for way in ways]
    return pytest.mark.parametrize(("file", "way"), found, ids=[f"{file}: {way}" for file, way in found])


def lines_naming(file: str, ended: Ended) -> list[str]:
    assert "Traceback" not in ended.err, ended
    return [line for line in ended.err.splitlines() if file in line]


def refusal(read: Callable[[], Any]) -> str:
    """What reading is refused with, in one line; empty if it is not."""
    try:
        read()
    except FedmuxError as error:
        assert "\n" not in str(error)
        return str(error)
    return ""


READ_BY_RUN: dict[str, tuple[str, ...]] = {
    "experiment.toml": ("table", "allocation"),
    "metrics.jsonl": ("metrics",),
    "allocation.bin": ("allocation",),
    "summary.json": ("summary",),
}
PROPERTIES = ("table", "metrics", "allocation", "summary")
FRAMES = ("metrics", "rounds", "allocation", "clients", "summary", "table")


def read_in_python(run: Path, file: str, finished: bool) -> None:
    """What needs the file is refused with its name; the rest is read."""
    opened = fedmux.Run(run)
    for name in PROPERTIES:
        line = refusal(lambda name=name: getattr(opened, name))
        if name in READ_BY_RUN.get(file, ()) and finished:
            assert file in line, (name, line)
        elif name != "summary" or finished:
            assert not line or file in line, (name, line)
    model = refusal(lambda: opened.model("a"))
    assert (Path(file).name in model) if file.startswith("models") else (not model or not finished), model
    frames = fedmux.load(run)
    told = {name: refusal(lambda name=name: getattr(frames, name)) for name in FRAMES}
    assert all(not line or file in line for line in told.values()), told


@cases(OF_FINISHED)
def test_damage_to_a_finished_run_is_told_by_every_reader(
    runs: Path, tmp_path: Path, file: str, way: str
) -> None:
    run = tmp_path / "runs" / "hurt"
    shutil.copytree(runs / "finished", run)
    shutil.copytree(runs / "finished", tmp_path / "runs" / "other")
    damage(run / file, OF_FINISHED[file][way])
    harmless = file == "state.json"

    listed = command("list", "--json", cwd=tmp_path).done()
    rows = {row["run"]: row for row in json.loads(listed.out)}
    assert (rows["runs/other"]["state"], rows["runs/other"]["damaged"]) == ("finished", [])
    told = [line for line in rows["runs/hurt"]["damaged"] if line.startswith(f"{file}: ")]
    assert len(told) == (0 if harmless else 1), rows["runs/hurt"]
    assert rows["runs/hurt"]["damaged"] == told
    assert "runs/other" in command("list", cwd=tmp_path).done().out

    shown = command("show", "runs/hurt", cwd=tmp_path).done()
    assert len(lines_naming(file, shown)) == (0 if harmless else 1), shown
    assert shown.out
    json.loads(command("show", "runs/hurt", "--json", cwd=tmp_path).done().out)

    hurt, other = sorted(find([tmp_path / "runs"]), key=lambda history: history.path)
    assert (hurt.state, other.state) == ("finished" if harmless else DAMAGED, "finished")
    assert harmless or file in (hurt.problem or "")
    if not harmless:
        read_in_python(run, file, finished=True)

    resumed = command("resume", "runs/hurt", "-q", cwd=tmp_path)
    assert resumed.code in (0, 2), resumed
    assert len(resumed.err.splitlines()) == (0 if resumed.code == 0 else 1), resumed
    assert resumed.code == 0 or file in resumed.err


@cases(DAMAGES)
def test_damage_to_an_unfinished_run_is_told_and_resuming_says_what_it_does(
    runs: Path, tmp_path: Path, file: str, way: str
) -> None:
    run = tmp_path / "runs" / "hurt"
    shutil.copytree(runs / "unfinished", run)
    shutil.copytree(runs / "finished", tmp_path / "runs" / "other")
    damage(run / file, DAMAGES[file][way])

    rows = {row["run"]: row for row in json.loads(command("list", "--json", cwd=tmp_path).done().out)}
    assert (rows["runs/other"]["state"], rows["runs/other"]["damaged"]) == ("finished", [])
    assert rows["runs/hurt"]["state"] == "interrupted"
    shown = command("show", "runs/hurt", cwd=tmp_path).done()
    assert "interrupted" in shown.out
    if file == "state.json":
        assert way == "missing" or file in shown.out
    else:
        assert len(lines_naming(f"hurt/{file}", shown)) == 1, shown
        assert file in (History.read(run).problem or "")
        read_in_python(run, file, finished=False)

    resumed = command("resume", "runs/hurt", "-q", cwd=tmp_path)
    assert resumed.code in (0, 2), resumed
    assert "Traceback" not in resumed.err, resumed
    if resumed.code == 2:
        assert resumed.err.splitlines() == lines_naming(file, resumed) != [], resumed
    else:
        assert fedmux.Run(run).summary["rounds"] == 4
        assert {p.name for p in (run / "models").iterdir()} == {"a.safetensors", "b.safetensors"}


def test_a_damaged_run_of_a_comparison_is_left_out_with_a_line(runs: Path, tmp_path: Path) -> None:
    design = Design.make(table(), "test", methods=["random", "full"], seeds=[0, 1])
    comparison = design.create(tmp_path / "c")
    for cell in comparison.cells:
        shutil.copytree(runs / "finished", comparison.folder(cell))
    (comparison.folder(comparison.cells[0]) / "summary.json").write_text('{"accuracy": "high"}')
    damage(comparison.folder(comparison.cells[1]) / "metrics.jsonl", WAYS["half"])

    shown = command("show", "c", cwd=tmp_path).done()
    assert "full" in shown.out
    assert "random-seed-0: damaged: c/runs/random-seed-0/summary.json: rounds is missing" in shown.out
    rows = json.loads(command("show", "c", "--json", cwd=tmp_path).done().out)
    assert {row["label"]: row["seeds"] for row in rows} == {"random": [1], "full": [0, 1]}
    refusal = command("resume", "c", "-q", cwd=tmp_path).refusal()
    assert refusal.startswith("c/runs/random-seed-0/summary.json: rounds is missing; restore the file")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        frames = fedmux.load(tmp_path / "c")
        assert sorted(set(frames.metrics["run"])) == ["full-seed-0", "full-seed-1", "random-seed-0"]
        assert sorted(frames.summary) == ["full-seed-0", "full-seed-1", "random-seed-1"]
    assert ["metrics.jsonl" in str(warned[0].message), "summary.json" in str(warned[1].message)] == [True] * 2


def test_a_page_about_damaged_runs_names_the_files(runs: Path, tmp_path: Path) -> None:
    for file in ("summary.json", "population.npz", "models/a.safetensors"):
        shutil.copytree(runs / "finished", tmp_path / Path(file).stem)
        damage(tmp_path / Path(file).stem / file, WAYS["garbage"])
    page = report(find([tmp_path]), "hurt")
    for file in ("summary.json: ", "population.npz: ", "models/a.safetensors: "):
        assert f"damaged</span>: {file}" in page


def test_a_model_that_was_never_made_is_told(runs: Path) -> None:
    assert read_toml(runs / "finished" / "experiment.toml")["task"]
    assert 'no task "c"; its tasks are a, b' in refusal(lambda: fedmux.Run(runs / "finished").model("c"))
    assert "interrupted" in refusal(lambda: fedmux.Run(runs / "unfinished").model("a"))
