"""Results without their runs: they say all that their tables say, and runs can be added to them."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import fedmux
from fedmux.errors import FedmuxError
from fedmux.reproduce import files
from fedmux.reproduce.kept import Kept
from fedmux.reproduce.planning import Choice
from fedmux.reproduce.preset import find, names
from fedmux.reproduce.reproduction import Reproduction
from fedmux.reproduce.tables import markdown
from fedmux.runs.compared import label_of
from small_presets import overrides, setting

RESULTS = Path(__file__).parents[2] / "papers" / "results"
PUBLISHED = [
    name for name in names() if (RESULTS / name / "summary.json").exists() and not find(name).auction
]


def shown(name: str, root: Path, choice: Choice) -> tuple[Reproduction, dict[str, Any]]:
    work = Reproduction.prepare(find(name), root, choice, train=False)
    also = {"quick": work.changes, "overrides": work.overrides}
    return work, files.summary(work.outcome(), work.parts, also, work.kept and work.kept.summary)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_tables_follow_from_what_is_published(name, tmp_path):
    folder = RESULTS / name
    kept = Kept.read(folder, find(name))
    methods = [label_of(method) for method in find(name).table()["compare"]["methods"]]
    rows = kept.summary["table"]
    told_of = [one for one in methods if any(row == one or row.startswith(f"{one}, ") for row in rows)]
    work, told = shown(name, tmp_path, Choice(seeds=kept.seeds, methods=told_of, add_to=folder))
    assert json.loads(json.dumps(told)) == kept.summary
    assert markdown(work.outcome()) == (folder / "table.md").read_text()
    if (folder / "curves.csv.gz").exists():
        lines = [
            gzip.decompress(data)
            for data in (files.curves(work.parts), (folder / "curves.csv.gz").read_bytes())
        ]
        assert lines[0] == lines[1]
    assert not list(tmp_path.rglob("runs/*"))
    counted = sum(where["runs"] for where in told["made"].values()) + sum(told.get("beside", {}).values())
    assert counted == len(kept.runs)


@pytest.mark.parametrize(
    ("name", "part"), [("fig2", "mifa"), ("fair-exp1", "fedfairmmfl"), ("fair-fig4", "q-ffl")]
)
def test_kept_runs_and_others_make_the_table_of_all(name, part, trained, tmp_path):
    root, _ = trained(name)
    small = overrides(name)
    _, whole = shown(name, root, Choice(quick=True, overrides=small))
    work, some = shown(name, root, Choice(quick=True, overrides=small, methods=[part]))
    assert len(some["rows"]) < len(whole["rows"])
    files.write(tmp_path / "kept", work.outcome(), work.parts, {"quick": work.changes, "overrides": small})

    _, both = shown(name, root, Choice(quick=True, add_to=tmp_path / "kept"))
    for key in ("rows", "table", "claims", "complete", "overrides"):
        assert both[key] == whole[key], key
    (machine,) = whole["made"]
    for key in ("runs", "commits", "from", "to", "torch"):
        assert both["made"][machine][key] == whole["made"][machine][key], key
    assert both["made"][machine]["seconds"] == pytest.approx(whole["made"][machine]["seconds"], abs=0.2)


def test_only_runs_that_are_not_kept_are_trained_and_pictures_stay(trained, command, tmp_path):
    root, _ = trained("fig4-3tasks")
    small = overrides("fig4-3tasks")
    _, whole = shown("fig4-3tasks", root, Choice(quick=True, overrides=small))
    work, _ = shown("fig4-3tasks", root, Choice(quick=True, overrides=small, methods=["mmfl-lvr"]))
    kept = tmp_path / "kept"
    files.write(kept, work.outcome(), work.parts, {"quick": work.changes, "overrides": small})
    picture = RESULTS / "auction-exp5/take-up.png"
    shutil.copy(picture, kept / "allocation.png")
    before = {path: path.read_bytes() for path in kept.iterdir()}

    typed = ("reproduce", "fig4-3tasks", "--quick", "--add-to", kept, "-o", tmp_path / "r")
    code, out, err = command(*typed)
    assert code == 0, err
    assert "claims" in out
    runs = tmp_path / "r/table1-3tasks-quick/runs"
    assert [path.name for path in runs.iterdir() if path.is_dir()] == ["mmfl-gvr-seed-0"]
    folder = tmp_path / "r/fig4-3tasks-quick"
    told = json.loads((folder / "summary.json").read_text())
    assert (told["complete"], told["overrides"]) == (True, small)
    assert told["table"]["mmfl-lvr"] == json.loads(json.dumps(whole["table"]["mmfl-lvr"]))
    for key, value in told["table"]["mmfl-gvr"].items():  # trained by two workers, not by one
        assert value["mean"] == pytest.approx(whole["table"]["mmfl-gvr"][key]["mean"], rel=1e-4)
    assert (folder / "allocation.png").read_bytes() == picture.read_bytes()
    assert {"figures.png", "step-size.png", "report.html"} <= {path.name for path in folder.iterdir()}
    assert {path: path.read_bytes() for path in kept.iterdir()} == before

    code, _, _ = command(*typed)  # nothing is left to train
    assert code == 0
    assert json.loads((folder / "summary.json").read_text()) == told
    code, alone, _ = command(*typed[:-1], tmp_path / "other", "--show")
    assert (code, "mmfl-lvr" in alone) == (0, True)

    assert command("resume", runs.parent, "--quiet")[0] == 0  # what is kept is not for it to do
    code, _, err = command(*typed[:3], *setting(small), "-o", tmp_path / "r")
    assert (code, "results of mmfl-lvr, seed 0, whose run is not here" in err) == (2, True)
    assert json.loads((folder / "summary.json").read_text()) == told


def test_what_a_missing_run_had_said_is_not_forgotten(tmp_path):
    folder = RESULTS / "fig5"
    kept = json.loads((folder / "summary.json").read_text())
    kept["rows"] = [row for row in kept["rows"] if (row["method"], row["seed"]) != ("random", 4)]
    for value in kept["table"]["random"].values():
        value["seeds"].pop("4", None)
    kept["missing"] = {"random-seed-4": "the update of client 7 is not finite"}
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/summary.json").write_text(json.dumps(kept))
    shutil.copy(folder / "curves.csv.gz", tmp_path / "kept")
    work, told = shown("fig5", tmp_path / "r", Choice(add_to=tmp_path / "kept"))
    assert told["missing"] == kept["missing"]
    assert [cell.name for part in work.parts for cell in part.comparison.asked] == ["random-seed-4"]
    assert len(told["table"]["mmfl-fairvr"]["minimum"]["seeds"]) == 5
    assert set(told["table"]["mmfl-fairvr"]["relative-minimum"]["seeds"]) == {0, 1, 2, 3}


def test_runs_that_another_preset_keeps_are_found_beside_if_they_were_made_alike(tmp_path):
    for name in ("table1-3tasks", "ablations"):
        shutil.copytree(RESULTS / name, tmp_path / name, ignore=shutil.ignore_patterns("*.png"))
    path = tmp_path / "ablations/summary.json"
    kept, source = (
        json.loads((RESULTS / n / "summary.json").read_text()) for n in ("ablations", "table1-3tasks")
    )
    kept["rows"] = [row for row in kept["rows"] if row["method"] != "mmfl-gvr"]
    kept["table"].pop("mmfl-gvr", None)
    path.write_text(json.dumps(kept))
    choice = Choice(add_to=tmp_path / "ablations")
    work, told = shown("ablations", tmp_path / "r", choice)
    found, wanted = (table["mmfl-gvr"]["average"]["seeds"] for table in (told["table"], source["table"]))
    found = json.loads(json.dumps(found))
    assert found == {seed: wanted[seed] for seed in "01234"}  # of this preset's five seeds
    assert "mmfl-gvr" not in {cell.label for part in work.parts for cell in part.comparison.asked}

    path.write_text(json.dumps({**kept, "overrides": ["evaluation.samples=900"]}))
    work, told = shown("ablations", tmp_path / "other", choice)
    assert told["table"]["mmfl-gvr"]["average"]["seeds"] == {}
    assert len([name for name in told["missing"] if name.startswith("mmfl-gvr")]) == 5


def test_a_measure_that_was_not_kept_is_read_off_the_curves_if_they_suffice(tmp_path):
    for name in ("table1-3tasks", "fig4-3tasks"):
        shutil.copytree(RESULTS / name, tmp_path / name, ignore=shutil.ignore_patterns("*.png"))
    path = tmp_path / "fig4-3tasks/summary.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "rows": [row for row in kept["rows"] if row["seed"] < 4]}))
    work, told = shown("fig4-3tasks", tmp_path / "r", Choice(add_to=tmp_path / "fig4-3tasks"))
    assert [cell for part in work.parts for cell in part.comparison.asked] == []
    assert told["beside"] == {"table1-3tasks": 2}
    for row, values in kept["table"].items():  # of the fourth seed from the curves of Table I
        for key, value in values.items():
            assert told["table"][row][key]["seeds"] == pytest.approx(
                {int(seed): one for seed, one in value["seeds"].items()}, rel=1e-4
            )

    kept = json.loads((tmp_path / "table1-3tasks/summary.json").read_text())
    for values in kept["table"].values():
        del values["uploads"], values["memory"], values["uploads@0.7"]
    (tmp_path / "table1-3tasks/summary.json").write_text(json.dumps(kept))
    _, told = shown("table1-3tasks", tmp_path / "r2", Choice(add_to=tmp_path / "table1-3tasks"))
    published = json.loads((RESULTS / "table1-3tasks/summary.json").read_text())["table"]
    for row, values in told["table"].items():
        assert values["uploads"]["mean"] == pytest.approx(published[row]["uploads"]["mean"])
        assert values["memory"]["seeds"] == {}  # rather than 0: curves do not tell
        assert values["uploads@0.7"]["seeds"] == {}  # nor when it was just reached: they are rounded


def test_only_what_is_asked_for_is_added(tmp_path):
    asked = {}
    for name, choice in {
        "methods": Choice(methods=["random"], seeds=7),
        "seeds": Choice(seeds=6),
        "all there": Choice(methods=["random"]),
    }.items():
        work, told = shown("fig5", tmp_path / name, replace(choice, add_to=RESULTS / "fig5"))
        asked[name] = [cell.name for part in work.parts for cell in part.comparison.asked]
        assert {len(values["average"]["seeds"]) for values in told["table"].values()} == {5}
    assert asked["methods"] == ["random-seed-5", "random-seed-6"]
    assert asked["seeds"] == [f"{one}-seed-5" for one in ("mmfl-fairvr", "fedfairmmfl", "random")]
    assert asked["all there"] == []
    with pytest.raises(FedmuxError, match=r"data get shakespeare$"):  # and not: or try --quick
        Reproduction.prepare(find("fig5"), tmp_path / "r", Choice(seeds=6, add_to=RESULTS / "fig5"))


def test_results_can_be_looked_at_before_they_are_added_to(command, tmp_path):
    typed = ("reproduce", "poster", "--add-to", RESULTS / "poster", "-o", tmp_path, "--seeds", 3, "--json")
    first = command(*typed, "--show")
    assert (first[0], json.loads(first[1])["complete"]) == (0, True)
    assert command(*typed, "--show") == first
    assert command(*typed)[:2] == first[:2]  # nothing is to be trained, so no data is missed
    refused = command("reproduce", "poster", "--show", "-o", tmp_path)
    assert refused[0] == 2
    assert "whose run is not here; go on from them with --add-to" in refused[2]
    again = ("reproduce", "poster", "--add-to", tmp_path / "poster", "-o", tmp_path, "--seeds", 3, "--json")
    assert command(*again, "--show")[:2] == first[:2]


def test_a_task_that_never_joined_has_no_accuracy_and_is_no_damage(command, tmp_path):
    few = ("rounds=2", "task.local_epochs=1", "evaluation.samples=60", "population.clients=10")
    typed = ("reproduce", "group-new-tasks", "--quick", "--methods", "random")
    assert command(*typed, *setting(list(few)), "--quiet", "-o", tmp_path / "a")[0] == 0
    kept = tmp_path / "a/group-new-tasks-quick"
    code, out, err = command(*typed, "--add-to", kept, "--show", "--json", "-o", tmp_path / "b")
    assert code == 0, err
    told = json.loads((kept / "summary.json").read_text())
    assert None in [row["final_accuracy"] for row in told["rows"]]
    shown = json.loads(out)
    assert (shown["rows"], shown["table"]) == (told["rows"], told["table"])


def test_runs_that_stopped_early_because_they_were_told_to_can_be_added_to(command, tmp_path):
    few = [*overrides("poster"), "rounds=3", "stop.accuracy=0.01"]
    typed = ("reproduce", "poster", "--quick", "--methods", "random")
    assert command(*typed, *setting(few), "--quiet", "-o", tmp_path / "a")[0] == 0
    kept = Kept.read(tmp_path / "a/poster-quick", find("poster"))
    assert [run.rounds for run in kept.runs.values()] == [1]
    code, _, err = command(*typed, "--add-to", kept.folder, "--show", "--json", "-o", tmp_path / "b")
    assert code == 0, err


def test_curves_of_another_experiment_are_not_taken_for_one_s_own(command, tmp_path):
    for name in ("table1-3tasks", "fig2"):
        shutil.copytree(RESULTS / name, tmp_path / name, ignore=shutil.ignore_patterns("*.png"))
    path = tmp_path / "fig2/summary.json"
    told = json.loads(path.read_text())
    told["rows"][0]["final_accuracy"] += 0.001
    path.write_text(json.dumps(told))
    code, _, err = command("reproduce", "fig2", "--add-to", path.parent, "--show", "-o", tmp_path / "r")
    assert code == 2
    assert f"fig2: lacks curves.csv.gz, and {tmp_path / 'table1-3tasks'} has other runs" in err


FIG5 = str(RESULTS / "fig5")


def damage(folder: Path) -> None:
    """Folders with results that are not as they were."""
    summary = (RESULTS / "fig5/summary.json").read_text()
    curves = (RESULTS / "fig5/curves.csv.gz").read_bytes()
    lines = gzip.decompress(curves).decode().splitlines(keepends=True)
    flipped = bytearray(curves)
    flipped[5000:5100] = bytes(100)
    for name, text, data in (
        ("empty", '{"preset": "fig5"}', curves),
        ("list", "[]", curves),
        ("none", "", curves),
        ("cut", summary, curves[:-2000]),
        ("flipped", summary, bytes(flipped)),
        ("without", summary, None),
        ("fewer", summary, gzip.compress(lines[0].encode())),
        ("older", summary.replace('"random"', '"old"'), curves),
        ("shorter", summary, gzip.compress("".join(_first_rounds(lines, "0", "1")).encode())),
        ("begun", summary, gzip.compress("".join(_first_rounds(lines, "0")).encode())),
        ("renamed", summary.replace('"cifar10"', '"cifar"'), curves),
        ("undated", summary.replace('"from"', '"since"'), curves),
        ("uncounted", summary.replace('"rows"', '"beside": 5, "rows"'), curves),
    ):
        (folder / name).mkdir()
        (folder / name / "summary.json").write_text(text)
        if data is not None:
            (folder / name / "curves.csv.gz").write_bytes(data)


def _first_rounds(lines: list[str], *rounds: str) -> list[str]:
    return [line for line in lines if line.split(",")[3] in ("round", *rounds)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fig5", "--add-to", "nowhere"], ["nowhere/summary.json: cannot be read", "papers/results/NAME"]),
        (["fig2", "--add-to", FIG5], ["holds results of fig5, not of fig2"]),
        (["fair-exp1", "--add-to", str(RESULTS / "fig2")], ["holds results of fig2, not of fair-exp1"]),
        (["fig5", "--quick", "--add-to", FIG5], ["was made without --quick"]),
        (["fig5", "--add-to", FIG5, "--set", "rounds=3"], ["was made with --set", "evaluation.samples=3000"]),
        (["fig5", "--add-to", FIG5, "--print"], ["--print cannot be combined with --add-to"]),
        (["fig5", "--add-to", "empty"], ["empty/summary.json: is damaged (quick: Field required)"]),
        (["fig5", "--add-to", "list"], ["list/summary.json: is damaged"]),
        (["fig5", "--add-to", "none"], ["none: its summary.json or curves.csv.gz is damaged"]),
        (["fig5", "--add-to", "cut"], ["cut: its summary.json or curves.csv.gz is damaged"]),
        (["fig5", "--add-to", "flipped"], ["flipped: its summary.json or curves.csv.gz is damaged"]),
        (["fig5", "--add-to", "without"], ["curves.csv.gz: cannot be read"]),
        (["fig5", "--add-to", "fewer"], ["fewer/curves.csv.gz: lacks mmfl-fairvr, seed 0"]),
        (["fig5", "--add-to", "older"], ['older: has "old", which fig5 does not compare']),
        (["fig5", "--add-to", "shorter"], ["shorter: mmfl-fairvr, seed 0, has 1 rounds, not 150: another"]),
        (["fig5", "--add-to", "begun"], ["begun: mmfl-fairvr, seed 0, has 0 rounds, not 150: another"]),
        (["fig5", "--add-to", "renamed"], ["has the tasks fashion-a, fashion-b, cifar, emnist, shakespeare"]),
        (["fig5", "--add-to", "undated"], ["undated/summary.json: is damaged (made.NVIDIA H200.from: Field"]),
        (["fig5", "--add-to", "uncounted"], ["uncounted/summary.json: is damaged (beside: Input should be"]),
        (["all", "--add-to", FIG5], ["all: goes with"]),
        (["auction-exp5", "--add-to", FIG5], ["auction-exp5 trains nothing"]),
    ],
)
def test_results_that_cannot_be_added_to_are_refused_in_one_line(arguments, says, tmp_path):
    damage(tmp_path)
    refusal = fedmux("reproduce", *arguments, "-o", "r", cwd=tmp_path).refusal()
    for part in says:
        assert part in refusal
    assert not (tmp_path / "r").exists()
