"""`fedmux reproduce`: every preset in its smallest version, a run that is stopped and goes on, bad input."""

import csv
import gzip
import io
import json
import shutil
import signal
import tomllib
from pathlib import Path

import numpy as np
import pytest

from commands import fedmux, start, wait_until
from fedmux.data.png import decode_png
from fedmux.randomness import Stream, generator
from fedmux.recruitment import gmm_fair
from fedmux.reproduce import files
from fedmux.reproduce.planning import Choice
from fedmux.reproduce.preset import find, names
from fedmux.reproduce.quick import smaller
from fedmux.reproduce.reproduction import Reproduction
from fedmux.runs.history import History
from fedmux.toml import read_toml
from small_presets import overrides, setting

TRAINED = [name for name in names() if find(name).auction is None]


def assert_is_a_picture(path: Path) -> None:
    pixels = decode_png(path.read_bytes(), str(path))
    assert min(pixels.shape[:2]) > 100
    assert len(np.unique(pixels[..., :3].reshape(-1, 3), axis=0)) > 20


def first_column(table: str) -> list[str]:
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]


def final_accuracies(work: Reproduction) -> dict[tuple, float]:
    """By variant, method, seed and task, from the runs' own folders."""
    found = {}
    for part in work.parts:
        for cell in part.comparison.asked:
            summary = json.loads((part.comparison.folder(cell) / "summary.json").read_text())
            for task, values in summary["tasks"].items():
                found[part.variant, cell.label, cell.seed, task] = values["accuracy"]
    return found


def curves_of(folder: Path) -> list[dict[str, str]]:
    text = gzip.decompress((folder / "curves.csv.gz").read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text), strict=True))


@pytest.mark.parametrize("name", TRAINED)
def test_the_smallest_version_of_every_preset_runs_from_end_to_end(name, trained, command):
    root, work = trained(name)
    before = {
        path: path.stat().st_mtime_ns
        for part in work.parts
        for path in part.comparison.path.rglob("runs/*/metrics.jsonl")
    }
    code, out, err = command("reproduce", name, "--quick", *setting(overrides(name)), "-o", root)
    assert code == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before  # nothing is trained again
    preset, folder = find(name), root / f"{name}-quick"
    changes = smaller(preset.table())[1]
    assert f"--quick, so the figures mean nothing: {'; '.join(changes)}\n" in out
    assert preset.title in out
    assert err.startswith(f"{name}: {preset.title} ({preset.paper})\n")
    assert str(folder) in out.replace("\n", "")

    summary = json.loads((folder / "summary.json").read_text(), parse_constant=pytest.fail)
    assert (summary["preset"], summary["complete"], summary["missing"]) == (name, True, {})
    assert (summary["quick"], summary["overrides"]) == (changes, overrides(name))
    wanted = final_accuracies(work)
    assert {
        (row.get("variant"), row["method"], row["seed"], row["task"]): row["final_accuracy"]
        for row in summary["rows"]
    } == wanted
    assert len(summary["rows"]) == len(wanted)
    assert None not in wanted.values()
    rows = list(dict.fromkeys(part.row(cell.label) for part in work.parts for cell in part.comparison.asked))
    assert list(summary["table"]) == rows
    assert [claim["verdict"] for claim in summary["claims"]] == [
        "not known" if claim.measure.startswith("after@") else "not clear"  # so many uploads there are not
        for claim in preset.claims
        for _ in claim.over
    ]
    assert sum(place["runs"] for place in summary["made"].values()) == sum(
        len(part.comparison.asked) for part in work.parts
    )

    tables = (folder / "table.md").read_text().split("\n\n")
    assert first_column(tables[0]) == rows
    assert len(tables) == 1 + bool(preset.costs) + bool(preset.claims)
    lines = curves_of(folder)
    assert len(lines) == sum(
        len(entry.tasks)
        for part in work.parts
        for cell in part.comparison.asked
        for entry in History.read(part.comparison.folder(cell)).metrics
    )
    drawn = {path.name for path in folder.glob("*.png")}
    for picture in preset.charts:
        assert any(made.startswith(picture.chart) for made in drawn), picture.chart
    values = [summary["table"][row][key]["mean"] for row in rows for key in preset.measures[:3]]
    assert ("figures.png" in drawn) == any(value is not None for value in values)
    for made in drawn:
        assert_is_a_picture(folder / made)
    page = (folder / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert preset.title in page


def test_curves_have_a_line_for_each_run_round_and_task_and_are_the_same_each_time(trained):
    _, work = trained("ablations")
    packed = files.curves(work.parts)
    assert packed == files.curves(work.parts)
    lines = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode()), strict=True))
    (part,) = work.parts
    wanted = {}
    for cell in part.comparison.asked:
        for line in (part.comparison.folder(cell) / "metrics.jsonl").read_text().splitlines():
            entry = json.loads(line)
            for task, figures in entry["tasks"].items():
                wanted["", cell.label, str(cell.seed), str(entry["round"]), task] = figures
    assert [tuple(line.values())[:5] for line in lines] == list(wanted)
    assert "mmfl-lvr: loss over n" in {line["method"] for line in lines}
    for line, figures in zip(lines, wanted.values()):
        assert float(line["accuracy"]) == pytest.approx(figures["accuracy"], rel=1e-4)
        for column in ("jobs", "uploads", "gradient_steps", "forward_passes"):
            assert line[column] == str(figures.get(column, ""))


def test_a_client_trains_at_most_one_job_a_round_where_clients_are_drawn(trained):
    _, work = trained("ablations")
    most = {}
    for label, group in work.parts[0].runs.items():
        jobs = group[0].allocation
        counts = {}
        for job in jobs:
            who = int(job["round"]), int(job["client"])
            counts[who] = counts.get(who, 0) + int(job["count"])
        most[label] = max(counts.values())
    assert most["random: one job"] == most["fedvarp: one job"] == 1
    assert most["full"] > 1


def test_a_preset_is_run_in_processes_is_stopped_and_goes_on_with_the_same_command(tmp_path):
    changes = setting(["task.data=digits", "evaluation.samples=60", "output.checkpoint_every=2", "rounds=40"])
    typed = ("reproduce", "group-fig3", "--quick", *changes, "-o", "r")
    process = start(*typed, cwd=tmp_path)
    run = tmp_path / "r/group-inconsistent-quick/runs/mmfl-group-seed-0"
    metrics = run / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 2)
    process.send(signal.SIGINT)
    ended = process.wait()
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.splitlines()[-1] == (
        "fedmux: stopped; `fedmux reproduce group-fig3` with the same options continues"
    )
    assert not (run / "summary.json").exists()
    assert not (tmp_path / "r/group-fig3-quick").exists()
    done = metrics.read_bytes()
    begun = (run / "environment.json").read_bytes()

    ended = fedmux(*typed, cwd=tmp_path).done()
    assert metrics.read_bytes().startswith(done[: done.index(b"\n")])
    assert (run / "environment.json").read_bytes() == begun  # it went on, it did not begin again
    summary = json.loads((tmp_path / "r/group-fig3-quick/summary.json").read_text())
    assert summary["complete"]
    assert [(row["method"], row["seed"]) for row in summary["rows"]] == [("mmfl-group", 0)] * 5
    assert_is_a_picture(tmp_path / "r/group-fig3-quick/groups-mmfl-group.png")
    assert "folder:     r/group-fig3-quick" in ended.out
    history = History.read(run)
    assert (history.state, history.last_round) == ("finished", 40)


def test_what_is_done_so_far_can_be_shown(tmp_path):
    shown = fedmux("reproduce", "fig2", "--quick", "--show", "-o", "r", cwd=tmp_path).refusal()
    assert "r/table1-3tasks-quick: there is nothing yet" in shown
    assert list(tmp_path.iterdir()) == []
    work = Reproduction.prepare(find("group-fig3"), tmp_path / "r", Choice(quick=True))
    told = json.loads(
        fedmux("reproduce", "group-fig3", "--quick", "--show", "--json", "-o", "r", cwd=tmp_path).done().out
    )
    assert (told["complete"], told["missing"], told["rows"]) == (False, {"mmfl-group-seed-0": ""}, [])
    assert told["table"]["mmfl-group"]["rand-index@5"] == {"mean": None, "std": None, "seeds": {}}
    assert not work.parts[0].comparison.finished(work.parts[0].comparison.asked[0])


def test_of_the_methods_only_those_named_and_the_baseline_are_run(tmp_path):
    typed = ("reproduce", "fig2", "--quick", "--methods", "mmfl-lvr, random", "-o", "r")
    printed = tomllib.loads(fedmux(*typed, "--print", cwd=tmp_path).done().out)
    assert printed["compare"] == {"methods": ["random", "full", "mmfl-lvr"], "seeds": [0], "baseline": "full"}
    Reproduction.prepare(find("fig2"), tmp_path / "r", Choice(quick=True))
    told = json.loads(fedmux(*typed, "--show", "--json", cwd=tmp_path).done().out)
    assert list(told["missing"]) == ["random-seed-0", "full-seed-0", "mmfl-lvr-seed-0"]
    assert list(told["table"]) == ["random", "full", "mmfl-lvr"]


def test_data_of_ones_own_need_not_be_in_the_catalogue(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.zeros((40, 28, 28, 1), np.uint8), y=np.arange(40) % 10)
    choice = Choice(overrides=[f"task.data={tmp_path / 'mine.npz'}"])
    work = Reproduction.prepare(find("fair-fig4"), tmp_path / "r", choice)
    for part in work.parts:
        for cell in part.comparison.asked:
            written = read_toml(part.comparison.path / "experiments" / f"{cell.name}.toml")
            assert {task["data"] for task in written["task"]} == {str(tmp_path / "mine.npz")}


def test_more_seeds_add_to_the_folder_and_after_a_failure_the_same_command_goes_on(
    trained, command, tmp_path
):
    root, _ = trained("fig4-3tasks")
    shutil.copytree(root / "table1-3tasks-quick", tmp_path / "table1-3tasks-quick")
    runs = tmp_path / "table1-3tasks-quick/runs"
    old = {path: path.stat().st_mtime_ns for path in runs.rglob("metrics.jsonl")}
    typed = ("reproduce", "fig4-3tasks", "--quick", *setting(overrides("fig4-3tasks")), "-o", tmp_path)
    (runs / "mmfl-lvr-seed-1").mkdir()
    (runs / "mmfl-lvr-seed-1/mine.txt").write_text("mine")

    code, _, err = command(*typed, "--seeds", 2, "--quiet")
    assert code == 2
    assert "not there: mmfl-lvr-seed-1" in err
    folder = tmp_path / "fig4-3tasks-quick"
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["complete"], list(summary["missing"])) == (False, ["mmfl-lvr-seed-1"])
    assert err.splitlines()[-1] == f"fedmux: mmfl-lvr-seed-1: {summary['missing']['mmfl-lvr-seed-1']}"
    assert {row: set(values["step-size"]["seeds"]) for row, values in summary["table"].items()} == {
        "mmfl-gvr": {"0", "1"},
        "mmfl-lvr": {"0"},
    }
    assert first_column((folder / "table.md").read_text().split("\n\n")[0]) == ["mmfl-gvr", "mmfl-lvr"]

    shutil.rmtree(runs / "mmfl-lvr-seed-1")
    new = runs / "mmfl-gvr-seed-1/metrics.jsonl"
    old[new] = new.stat().st_mtime_ns
    code, out, _ = command(*typed, "--seeds", 2, "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["complete"], summary["missing"]) == (True, {})
    assert {row["seed"] for row in summary["rows"]} == {0, 1}
    assert {path: path.stat().st_mtime_ns for path in old} == old


def test_what_is_done_is_shown_as_when_it_was_trained_and_nothing_is_trained(trained, command):
    root, _ = trained("fig4-3tasks")
    runs = root / "table1-3tasks-quick/runs"
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("metrics.jsonl")}
    typed = ("reproduce", "fig4-3tasks", "--quick", *setting(overrides("fig4-3tasks")), "-o", root)
    code, out, _ = command(*typed)
    assert (code, "verdict" in out) == (0, True)
    assert command(*typed, "--show")[:2] == (code, out)
    more = json.loads(command(*typed, "--show", "--json", "--seeds", 3)[1])
    assert list(more["missing"]) == [f"mmfl-{one}-seed-{seed}" for one in ("gvr", "lvr") for seed in (1, 2)]
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("metrics.jsonl")} == before


def test_it_is_not_started_by_torchrun(tmp_path):
    ended = fedmux(
        *("reproduce", "fig3", "--quick", "-o", "r"),
        cwd=tmp_path,
        environment={"RANK": "0", "WORLD_SIZE": "2"},
    )
    assert "torchrun" in ended.refusal()
    assert list(tmp_path.iterdir()) == []


def test_presets_are_listed_in_their_order(tmp_path):
    rows = json.loads(fedmux("reproduce", "list", "--json", cwd=tmp_path).done().out)
    assert [row["name"] for row in rows] == names()
    by_name = {row["name"]: row for row in rows}
    assert by_name["fair-exp2"]["runs"] == 5 * 3 * 5
    assert (by_name["auction-exp5"]["runs"], by_name["auction-exp5"]["data"]) == (0, "-")
    assert by_name["table1-5tasks"]["data"] == "fashion-mnist, cifar10, emnist, shakespeare"
    out = fedmux("reproduce", "list", cwd=tmp_path).done().out
    assert all(name in out for name in names())
    assert list(tmp_path.iterdir()) == []


# Auctions


def test_auctions_are_held_with_as_many_seeds_as_asked_for(command, tmp_path):
    code, out, err = command("reproduce", "auction-exp5", "--seeds", 2, "-o", tmp_path)
    assert (code, err) == (0, "")
    folder = tmp_path / "auction-exp5"
    assert {path.name for path in folder.iterdir()} == {
        "summary.json",
        "table.md",
        "figures.png",
        "take-up.png",
    }
    for name in ("figures.png", "take-up.png"):
        assert_is_a_picture(folder / name)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["complete"]
    held = {*find("auction-exp5").auction.mechanisms, "posted-price 0.4", "posted-price 0.6"}
    assert set(summary["table"]) == {f"{name}, budget {b}" for name in held for b in (10, 29, 60)}
    for seed in ("0", "1"):
        laws = find("auction-exp5").auction.bids
        bids = np.stack(
            [law.draw(100, generator(int(seed), Stream.BIDS, task=task)) for task, law in enumerate(laws)], 1
        )
        found = summary["table"]["gmm-fair, budget 29"]
        assert set(found["take-up-minimum"]["seeds"]) == {"0", "1"}
        assert found["take-up-minimum"]["seeds"][seed] == gmm_fair(bids, 29).take_up.min()
    assert summary["table"]["gmm-fair, budget 29"]["take-up-minimum"]["paper"] == {"value": 48.5}
    assert "reference" in (folder / "table.md").read_text().splitlines()[0]
    assert "verdict" in out


def test_quick_auctions_have_fewer_seeds_and_say_so(command, tmp_path):
    code, out, _ = command("reproduce", "auction-exp5", "--quick", "-o", tmp_path)
    assert code == 0
    summary = json.loads((tmp_path / "auction-exp5-quick/summary.json").read_text())
    assert len(summary["table"]["max-min-fair, budget 10"]["take-up-minimum"]["seeds"]) == 5
    assert summary["quick"]
    assert "--quick" in out


def test_all_goes_on_after_what_cannot_be_had(command, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmux.reproduce.preset.names", lambda: ["fair-exp1", "auction-exp5"])
    code, out, err = command("reproduce", "all", "--seeds", 1, "-o", tmp_path)
    assert code == 2
    assert err.startswith("fedmux: fair-exp1: data is not on this machine")
    assert len(err.splitlines()) == 1
    assert "max-min-fair, budget 10" in out
    assert [path.name for path in tmp_path.iterdir()] == ["auction-exp5"]


# Bad input


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tabel1-3tasks"], ['no preset "tabel1-3tasks"', 'did you mean "table1-3tasks"?']),
        (["../fig2"], ['no preset "../fig2"', "fedmux reproduce list"]),
        (
            ["fair-exp1"],
            ["data is not on this machine", "fedmux data get cifar10", "fedmux data get mnist", "--quick"],
        ),
        (["fig3", "--quick", "--seeds", 0], ["--seeds"]),
        (["fig3", "--quick", "--seeds", "many"], ["--seeds"]),
        (["fig3", "--quick", "--parallel", -1], ["--parallel"]),
        (["fig3", "--quick", "--set", "rounds"], ['"rounds" should be key=value']),
        (["fig3", "--quick", "--set", "rounds=0"], ["rounds", "greater than or equal to 1"]),
        (["fig3", "--quick", "--set", "task.no-such.model=mlp"], ['no task is named "no-such"']),
        (["fig3", "--quick", "--set", "round=3"], ["round"]),
        (["fig2", "--quick", "--methods", "random,radnom"], ['no method "radnom"', "fedvarp, mifa"]),
        *(
            (["fig3", "--quick", "--set", change], [f'"{change}"', "choose with --methods and --seeds"])
            for change in ('compare={methods=["random"]}', "compare.seeds=[3]", "seed=3", "method=random")
        ),
        *(
            ([name, "--quick", "--set", change], [f"the variants of {name} differ in {key}", "--print"])
            for name, change, key in (
                ("fair-exp3", "population.clients=50", "population.clients"),
                ("fair-exp3", "population={clients=3}", "population.clients"),
                ("auction-exp6", "recruitment.budget=20", "recruitment.budget"),
                ("group-new-clients", "arrivals.mean_wait=5", "arrivals.mean_wait"),
                ("fair-fig4", "task=[]", "task"),
            )
        ),
        (["auction-exp5", "--print"], ["auction-exp5 trains nothing"]),
        (["auction-exp5", "--seeds", 0], ["--seeds"]),
        (["auction-exp5", "--set", "rounds=3"], ["auction-exp5 trains nothing"]),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(arguments, says, tmp_path):
    refusal = fedmux("reproduce", *arguments, "-o", "r", cwd=tmp_path).refusal()
    for part in says:
        assert part in refusal
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(tmp_path):
    Reproduction.prepare(find("fig3"), tmp_path / "r", Choice(quick=True, overrides=["rounds=2"]))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    typed = ("reproduce", "fig2", "--quick", "--set", "rounds=3", "-o", "r")
    assert "r/table1-3tasks-quick: holds another comparison" in fedmux(*typed, cwd=tmp_path).refusal()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/group-inconsistent-quick").mkdir()
    (tmp_path / "notes/group-inconsistent-quick/mine.txt").write_text("mine")
    typed = ("reproduce", "group-fig3", "--quick", "-o", "notes")
    assert "is not empty" in fedmux(*typed, cwd=tmp_path).refusal()
    (tmp_path / "file").write_text("mine")
    assert "cannot be written" in fedmux("reproduce", "fig3", "--quick", "-o", "file", cwd=tmp_path).refusal()
    assert "file" in fedmux("reproduce", "auction-exp5", "--seeds", 1, "-o", "file", cwd=tmp_path).refusal()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(tmp_path.rglob("*"))) == len(before) + 4


def test_a_variant_that_cannot_be_prepared_leaves_the_others_unwritten(tmp_path):
    other = tmp_path / "r/fair-fig4-quick/4-tasks"
    other.mkdir(parents=True)
    (other / "mine.txt").write_text("mine")
    refusal = fedmux("reproduce", "fair-fig4", "--quick", "-o", "r", cwd=tmp_path).refusal()
    assert "4-tasks" in refusal
    assert not (tmp_path / "r/fair-fig4-quick/3-tasks").exists()
