"""docs/papers.py: what it takes over from a reproduction, and the commands that its page names."""

import json
import shutil
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedmux.data.png import decode_png
from fedmux.methods.fairness import FairVr
from fedmux.methods.variance_reduced import BestStale, Gvr, GvrStale, Lvr
from fedmux.reproduce.preset import all_presets, find, names
from fedmux.tasks.resnet import ResNet18

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "papers/results/auction-exp5/take-up.png"


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, with results and a page of its own."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import papers as script

    monkeypatch.setattr(script, "TARGET", tmp_path / "papers.md")
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
    shutil.copytree(PICTURE.parent, tmp_path / "results" / PICTURE.parent.name)
    estimates = {"about": "On a GPU.", **dict.fromkeys(names(), "an hour")}
    (tmp_path / "results/estimates.json").write_text(json.dumps(estimates))
    return script


def summary(preset: str, methods: list[str], seeds: int, **changes: Any) -> dict[str, Any]:
    made = {"task": "a", "final_accuracy": 0.5}
    rows = [{"method": method, "seed": seed, **made} for method in methods for seed in range(seeds)]
    table = {method: {"minimum": {"seeds": dict.fromkeys(range(seeds), 0.5)}} for method in methods}
    told = {"preset": preset, "rows": rows, "table": table, "missing": {}, "overrides": [], "made": {}}
    return {**told, "quick": [], **changes}


def reproduced(folder: Path, table: str, *pictures: str) -> Path:
    """What `fedmux reproduce` leaves behind."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary(folder.name, ["fedfairmmfl"], 1)))
    (folder / "table.md").write_text(f"| {table} |\n|---|\n")
    (folder / "curves.csv.gz").write_bytes(table.encode())
    (folder / "report.html").touch()
    for name in pictures:
        shutil.copy(PICTURE, folder / name)
    return folder


def test_results_without_pictures_leave_the_kept_ones_alone_and_others_replace_them(papers, tmp_path):
    source, kept = tmp_path / "reproduced/fair-exp1", tmp_path / "results/fair-exp1"
    page = tmp_path / "papers.md"
    papers.main(["--keep", str(reproduced(source, "first", "figures.png", "over-tasks.png"))])
    first = {"summary.json", "table.md", "curves.csv.gz", "figures.png", "over-tasks.png"}
    assert {path.name for path in kept.iterdir()} == first
    assert (decode_png((kept / "figures.png").read_bytes(), "kept") == pixels()[..., :3]).all()

    papers.main(["--keep", str(reproduced(source, "second"))])
    assert {path.name for path in kept.iterdir()} == first
    assert (kept / "curves.csv.gz").read_bytes() == b"second"
    assert "| second |" in page.read_text() and "fair-exp1/over-tasks.png" in page.read_text()

    (kept / "discussion.md").write_text("What it means.")
    papers.main(["--keep", str(reproduced(source, "third", "job-shares.png"))])
    assert {path.name for path in kept.glob("*.png")} == {"job-shares.png"}
    assert "over-tasks.png" not in page.read_text() and "What it means." in page.read_text()


def pixels() -> Any:
    return decode_png(PICTURE.read_bytes(), "picture")


def test_curves_of_runs_that_another_preset_keeps_are_not_kept_twice(papers, tmp_path):
    source = reproduced(tmp_path / "results/table1-3tasks", "first")
    fig3 = reproduced(tmp_path / "reproduced/fig3", "first")
    papers.keep(fig3)
    assert {path.name for path in (tmp_path / "results/fig3").iterdir()} == {"summary.json", "table.md"}

    told = summary("table1-3tasks", ["fedfairmmfl"], 1)
    told["rows"][0]["final_accuracy"] = 0.6  # the same cell of another experiment
    for other in (told, summary("table1-3tasks", ["random"], 1)):
        (source / "summary.json").write_text(json.dumps(other))
        (tmp_path / "results/fig3/curves.csv.gz").unlink(missing_ok=True)
        papers.keep(fig3)
        assert (tmp_path / "results/fig3/curves.csv.gz").read_bytes() == b"first"


def test_a_folder_without_a_summary_is_refused(papers, tmp_path):
    with pytest.raises(SystemExit, match=r"has no summary\.json; `fedmux reproduce fig3` writes it"):
        papers.main(["--keep", str(tmp_path / "reproduced/fig3")])
    assert not (tmp_path / "results/fig3").exists()


def test_the_page_says_what_is_ours_in_every_run_and_where_rates_were_chosen(papers):
    said = " ".join(papers.INTRODUCTION.split())
    for method in (Gvr(), Lvr(), GvrStale(), BestStale()):
        assert f"`floor = {method.floor:g}`" in said and f"`mixing = {method.mixing:g}`" in said
    assert FairVr().floor == Gvr().floor and not getattr(FairVr(), "mixing", 0)
    for preset in all_presets():  # or the page would be wrong
        text = (files("fedmux.reproduce") / "presets" / f"{preset.name}.toml").read_text()
        assert "floor" not in text and "mixing" not in text
    norms = [module for module in ResNet18(3, 10).modules() if "Norm" in type(module).__name__]
    assert {type(module).__name__ for module in norms} == {"GroupNorm"} and "GroupNorm" in said
    assert "`--set evaluation.report=validation`" in said


def test_the_experiments_of_the_third_paper_stand_in_its_third_section():
    presets = [preset for preset in all_presets() if preset.paper.startswith("[P3]")]
    assert {preset.paper for preset in presets} == {"[P3] section III", "[P3] Fig. 3"}
    for preset in presets:
        kept = json.loads((ROOT / "papers/results" / preset.name / "summary.json").read_text())
        assert kept["paper"] == preset.paper


ALL = ["fedfairmmfl", "random", "round-robin", "q-ffl"]


@pytest.mark.parametrize(
    ("methods", "seeds", "overrides", "options"),
    [
        (ALL, 5, [], ""),
        (ALL, 2, [], " --seeds 2"),
        (ALL[:2], 5, [], " --methods fedfairmmfl,random"),
        (ALL, 5, ["rounds=30", "task.batch_size=10"], " --set rounds=30 --set task.batch_size=10"),
        (ALL[1:], 1, ["rounds=9"], " --seeds 1 --methods random,round-robin,q-ffl --set rounds=9"),
        (ALL, 5, ["population={clients=3, rate=1}"], " --set 'population={clients=3, rate=1}'"),
        ([], 0, [], ""),
    ],
)
def test_the_command_of_a_result_names_what_differs_from_the_preset(
    papers, methods, seeds, overrides, options
):
    told = summary("fair-exp1", methods, seeds, overrides=overrides)
    assert papers.command(find("fair-exp1"), told) == f"fedmux reproduce fair-exp1{options}"


def test_the_command_of_an_auction_names_its_seeds(papers):
    told = summary("auction-exp5", ["gmm-fair, budget 10"], 3, rows=[])
    assert papers.command(find("auction-exp5"), told) == "fedmux reproduce auction-exp5 --seeds 3"


def test_presets_that_were_not_run_whole_are_listed_also_those_that_train_nothing(papers):
    lines = papers.not_whole([find("fig5"), find("auction-exp5")]).splitlines()
    assert "| `fig5` | Fairness over five tasks, [P1] Fig. 5 | 15 | an hour |" in lines
    assert "| `auction-exp5` | Auctions: take-up over budgets, [P2] Exp. 5 | 0 | an hour |" in lines


def test_the_page_says_how_much_of_each_was_run_and_in_which_setting(papers, tmp_path):
    made = {"A GPU": {"runs": 6, "clock": 150, "commits": ["c"], "to": "2026-01-02T03", "torch": "2"}}
    folder = reproduced(tmp_path / "results/fair-exp1", "first")
    told = summary(
        "fair-exp1", ["random"], 2, missing={"random-seed-2": ""}, overrides=["rounds=9"], made=made
    )
    (folder / "summary.json").write_text(json.dumps(told))
    papers.main([])
    rows = (tmp_path / "papers.md").read_text().splitlines()
    assert "| [fair-exp1](#fair-exp1) | [P2] Exp. 1 | 2 of 3 | `rounds=9` | A GPU | 2 |" in rows
    assert "| fair-exp2 | [P2] Exp. 2 | 0 | not run | | |" in rows
    rest = rows[rows.index("## Not run in the papers' setting") :]
    assert {name for name in names() if any(row.startswith(f"| `{name}` |") for row in rest)} == {
        *names()
    } - {"auction-exp5"}  # run as it is; fair-exp1 was run, but smaller
    start = "| [auction-exp5](#auction-exp5) | [P2] Exp. 5 |  | the preset's |"
    assert any(row.startswith(start) for row in rows)


@pytest.mark.parametrize(
    ("overrides", "other"),
    [
        ([], False),
        (["evaluation.samples=9"], False),
        (["evaluation.samples=9", "rounds=9"], True),
        (["evaluation.every=2"], True),
    ],
)
def test_only_what_changes_more_than_the_points_that_judge_is_another_setting(
    papers, tmp_path, overrides, other
):
    folder = reproduced(tmp_path / "results/fair-exp1", "first")
    (folder / "table.md").write_text("| claim | verdict |\n|---|---|\n| it is fair | holds |\n")
    (folder / "summary.json").write_text(json.dumps(summary("fair-exp1", ["random"], 2, overrides=overrides)))
    papers.main([])
    rows = (tmp_path / "papers.md").read_text().splitlines()
    addition = ", another setting" if other else ""
    assert f"| [fair-exp1](#fair-exp1){addition} | it is fair | holds |" in rows
    assert any(row.startswith("| `fair-exp1` |") for row in rows) == other
