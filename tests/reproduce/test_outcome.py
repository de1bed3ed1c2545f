"""What runs came to: measures by hand, verdicts against Student's t, tables and charts that are whole."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pytest
from scipy import stats

from conftest import population, round_state, table
from fedmux.comparison.design import Design
from fedmux.errors import FedmuxError
from fedmux.methods.memory import FedVarp
from fedmux.methods.variance_reduced import Lvr
from fedmux.randomness import Stream, generator
from fedmux.recruitment import (
    budget_fair,
    gmm_fair,
    greedy_within_budget,
    max_min_fair,
    posted_price,
    random_within_budget,
)
from fedmux.report.charts import beside, groups, plane, save, spec
from fedmux.reproduce import files
from fedmux.reproduce.ablations import FedVarpOneJob, LossToPowers
from fedmux.reproduce.auctions import auctioned, auctions, means
from fedmux.reproduce.measures import MEASURES, parse, title
from fedmux.reproduce.outcome import Outcome, Part, Value, judged, outcome
from fedmux.reproduce.pictures import chart_rows
from fedmux.reproduce.preset import Auction, Figure, Preset, find
from fedmux.reproduce.tables import heads, judgement, lines, markdown
from fedmux.runs.history import History
from fedmux.runs.rounds import OverTasks, Round, TaskRound
from fedmux.runs.state import FINISHED


def preset(**changes: Any) -> Preset:
    return Preset.model_validate(
        {"name": "made", "title": "Made up", "paper": "[P0]", "experiment": table(), **changes}
    )


def claim(**changes: Any) -> dict[str, Any]:
    return {"says": "ours is better", "measure": "average", "of": "ours", "over": ["theirs"], **changes}


# Verdicts


def verdict(ours: list[float], theirs: list[float], **changes: Any):
    rows = {
        name: {"average": Value(dict(enumerate(values)))}
        for name, values in (("ours", ours), ("theirs", theirs))
    }
    (found,) = judged(preset(claim=[claim(**changes)]), rows).verdicts
    return found


THEIRS = [0.50, 0.52, 0.48, 0.51]
CLEARLY = [0.60, 0.63, 0.57, 0.61]  # 0.09 to 0.11 above
HARDLY = [0.58, 0.49, 0.53, 0.50]  # above and below


@pytest.mark.parametrize(
    ("ours", "theirs", "changes", "says"),
    [
        (CLEARLY, THEIRS, {}, "holds"),
        (THEIRS, CLEARLY, {}, "does not hold"),
        (HARDLY, THEIRS, {}, "not clear"),
        (CLEARLY, THEIRS, {"by": 0.08}, "holds"),
        (CLEARLY, THEIRS, {"by": 0.1}, "not clear"),
        (CLEARLY, THEIRS, {"by": 0.2}, "does not hold"),
        (CLEARLY, THEIRS, {"within": 0.03}, "does not hold"),
        (THEIRS, CLEARLY, {"within": 0.03}, "does not hold"),
        (CLEARLY, THEIRS, {"within": 0.12}, "holds"),
        (HARDLY, THEIRS, {"within": 0.03}, "not clear"),
        (THEIRS, CLEARLY, {"at_most": 0.02}, "holds"),
        (CLEARLY, THEIRS, {"at_most": 0.12}, "holds"),
        (CLEARLY, THEIRS, {"at_most": 0.02}, "does not hold"),
        (HARDLY, THEIRS, {"at_most": 0.02}, "not clear"),
        (CLEARLY[:1], THEIRS[:1], {}, "not clear"),
        (CLEARLY[:1], THEIRS, {}, "not clear"),
        ([], THEIRS, {}, "not known"),
        (CLEARLY, [], {"within": 0.03}, "not known"),
    ],
)
def test_a_claim_is_judged_by_the_confidence_interval_of_the_difference(ours, theirs, changes, says):
    found = verdict(ours, theirs, **changes)
    assert found.verdict == says
    pairs = list(zip(ours, theirs))
    if len(pairs) < 2:
        assert found.half_width is None
        assert found.difference == (pytest.approx(ours[0] - theirs[0]) if pairs else None)
        return
    interval = stats.ttest_rel(*zip(*pairs)).confidence_interval(0.95)
    assert found.difference == pytest.approx((interval.low + interval.high) / 2)
    assert found.half_width == pytest.approx((interval.high - interval.low) / 2)


def test_only_seeds_that_both_have_are_set_against_each_other():
    rows = {
        "ours": {"average": Value({0: 0.5, 2: 0.7, 3: 0.9})},
        "theirs": {"average": Value({0: 0.4, 1: 0.9, 3: 0.6})},
    }
    (found,) = judged(preset(claim=[claim()]), rows).verdicts
    assert found.difference == pytest.approx((0.1 + 0.3) / 2)


def test_a_claim_over_several_rows_is_judged_against_each():
    rows = {name: {"average": Value({0: 0.5, 1: 0.5})} for name in ("ours", "theirs", "others")}
    found = judged(preset(claim=[claim(over=["theirs", "others"])]), rows).verdicts
    assert [(one.against, one.verdict) for one in found] == [("theirs", "holds"), ("others", "holds")]
    assert found[1].table()["over"] == "others"


def test_a_judgement_is_told_in_the_unit_of_its_measure():
    line = judgement(verdict(CLEARLY, THEIRS))
    assert line[:2] == ["ours is better", "ours - theirs"]
    assert line[2].startswith("+10.0 ± ")
    assert line[2].endswith(" points")
    assert judgement(verdict(CLEARLY[:1], THEIRS))[2] == "+10.0 points"
    assert judgement(verdict([], THEIRS))[2:] == ["-", "not known"]


# Measures


def entry(round: int, a: float, b: float, **figures: list[float]) -> Round:
    """Two tasks with these accuracies, and a figure of each for every name."""
    tasks = {
        name: TaskRound(accuracy, accuracy, **{key: values[place] for key, values in figures.items()})
        for place, (name, accuracy) in enumerate((("a", a), ("b", b)))
    }
    return Round(round, tasks, progress=OverTasks((a + b) / 2, min(a, b), ((a - b) / 2) ** 2))


def run(metrics: list[Round], **changes: Any) -> History:
    last = metrics[-1].line()
    summary = {"accuracy": last.get("accuracy"), "tasks": last["tasks"], "server_bytes": 3 * 2**20}
    return History(
        **{
            "path": Path("run"),
            "tasks": ["a", "b"],
            "rounds": last["round"],
            "state": FINISHED,
            "metrics": metrics,
            "summary": {**summary, **changes.pop("summary", {})},
            **changes,
        }
    )


def read(key: str, history: History, base: History | None = None) -> float | None:
    measure, argument = parse(key)
    return measure.read(history, base, argument)


RUN = run(
    [
        entry(0, 0.1, 0.1),
        entry(
            1,
            0.5,
            0.7,
            uploads=[3, 4],
            gradient_steps=[30, 40],
            upload_bytes=[300, 400],
            step_size=[0.5, 1.5],
        ),
        entry(
            2, 0.6, 0.8, uploads=[5, 0], gradient_steps=[50, 0], upload_bytes=[500, 0], step_size=[1.0, 0.0]
        ),
        entry(
            3,
            0.5,
            0.6,
            uploads=[1, 1],
            gradient_steps=[10, 10],
            upload_bytes=[100, 100],
            step_size=[2.0, 2.0],
        ),
    ]
)


def test_measures_are_read_off_a_run():
    assert read("average", RUN) == pytest.approx(0.55)
    assert read("minimum", RUN) == 0.5
    assert read("spread", RUN) == pytest.approx(0.05)
    assert read("task@b", RUN) == 0.6
    assert read("task@c", RUN) is None
    assert read("memory", RUN) == 3 * 2**20
    assert read("uploads", RUN) == pytest.approx((7 + 5 + 2) / 3)
    assert read("steps", RUN) == pytest.approx((70 + 50 + 20) / 3)
    assert read("upload-bytes", RUN) == pytest.approx(1400 / 3)
    assert read("passes", RUN) == 0


def test_a_cost_up_to_an_accuracy_counts_until_it_is_first_reached():
    assert read("uploads@0.6", RUN) == 7
    assert read("uploads@0.7", RUN) == 12  # 0.7 in round 2, though not in the end
    assert read("steps@0.7", RUN) == 120
    assert read("uploads@0.05", RUN) == 0
    assert read("uploads@0.71", RUN) is None


def test_accuracy_after_so_many_uploads_is_that_of_the_rounds_up_to_there():
    assert read("after@7", RUN) == pytest.approx((0.1 + 0.6) / 2)
    assert read("after@8", RUN) == pytest.approx((0.1 + 0.6 + 0.7) / 3)
    assert read("after@15", RUN) is None
    long = run([entry(round, round / 100, round / 100, uploads=[1, 0]) for round in range(31)])
    assert read("after@21", long) == pytest.approx(np.mean(range(11, 21)) / 100)  # the last ten rounds


def test_relative_to_a_baseline_that_there_is():
    base = run([entry(1, 0.4, 0.8)])
    assert read("relative", RUN, base) == pytest.approx(0.55 / 0.6)
    assert read("relative-minimum", RUN, base) == pytest.approx(0.5 / 0.4)
    assert read("relative-minimum", RUN, None) is None


def test_a_run_without_rounds_has_no_figures():
    nothing = replace(RUN, metrics=[], summary={})
    keys = {*MEASURES, "after@5", "rand-index@5", "variance@mean", "uploads@0.5"} - {"after", "rand-index"}
    assert {key: value for key in keys if (value := read(key, nothing)) is not None} == {}


def test_a_variance_is_that_of_the_last_evaluation_up_to_a_round():
    gaps = run([entry(0, 0.1, 0.1), Round(5), entry(9, 0.2, 0.4), entry(12, 0.2, 0.8)])
    assert read("variance@10", gaps) == pytest.approx(0.01)
    assert read("variance@8", gaps) == 0
    assert read("variance@12", gaps) == pytest.approx(0.09)
    assert read("variance@60", gaps) is None  # it ended before
    assert read("variance", gaps) == pytest.approx(0.09)
    assert read("variance@mean", gaps) == pytest.approx((0 + 0.01 + 0.09) / 3)
    assert read("variance@3", run([entry(5, 0.1, 0.2)])) is None


def test_a_step_size_is_summed_over_tasks_and_the_round_before_training_left_out():
    sums = [2.0, 1.0, 4.0]
    assert read("step-size", RUN) == pytest.approx(np.mean(sums))
    assert read("step-size-deviation", RUN) == pytest.approx(np.std(sums))


def test_a_share_is_that_of_the_jobs_of_a_task():
    shared = run([entry(0, 0.1, 0.1), entry(1, 0.1, 0.1, jobs=[3, 1]), entry(2, 0.1, 0.1, jobs=[2, 4])])
    assert read("share@a", shared) == pytest.approx(0.5)
    assert read("share@b", shared) == pytest.approx(0.5)
    assert read("share@c", shared) is None
    assert read("share@a", run([entry(0, 0.1, 0.1)])) is None


def test_a_rand_index_is_that_of_the_grouping_in_force():
    grouped = [
        replace(entry(1, 0.1, 0.1), allocation={"rand_index": {"a": 0.2, "b": 0.3}}),
        entry(5, 0.1, 0.1),
        replace(entry(6, 0.1, 0.1), allocation={"rand_index": {"a": 0.8}}),
        entry(25, 0.1, 0.1),
    ]
    assert read("rand-index@5:b", run(grouped)) == 0.3
    assert read("rand-index@25:a", run(grouped)) == 0.8
    assert read("rand-index@25:b", run(grouped)) == 0.3
    assert read("rand-index@26:a", run(grouped)) is None  # it ended before
    assert read("rand-index@0:a", run(grouped)) is None
    assert read("rand-index@5:c", run(grouped)) is None
    assert read("rand-index@5", run(grouped)) == 0.3  # of the task that it matches best
    assert read("rand-index@0", run(grouped)) is None


def test_take_up_is_that_of_the_recruitment():
    recruited = run([entry(0, 0.1, 0.1)], summary={"recruitment": {"take_up": {"a": 12.5, "b": 30.0}}})
    assert read("take-up-minimum", recruited) == 12.5
    assert read("take-up-difference", recruited) == 17.5
    assert read("take-up-minimum", RUN) is None


def test_a_measure_that_there_is_none_of_is_refused():
    with pytest.raises(FedmuxError, match='no measure "avarage"; known: relative'):
        parse("avarage@3")


@pytest.mark.parametrize(
    ("key", "value", "spread", "text"),
    [
        ("average", 0.5, None, "50.0 %"),
        ("average", 0.51234, 0.0123, "51.2 ± 1.2 %"),
        ("average", 0.0, None, "0 %"),
        ("relative", 0.9127, 0.15, "0.913 ± 0.150"),
        ("uploads", 12.34, None, "12.3"),
        ("steps", 123456.7, None, "123,457"),
        ("upload-bytes", 3.4 * 2**20, 2**20, "3 ± 1 MiB"),
        ("memory", 0.0, 0.0, "0 MiB"),
        ("step-size", -4.0, None, "-4.000"),
    ],
)
def test_a_number_has_as_many_digits_as_it_needs(key, value, spread, text):
    assert MEASURES[key].text(value, spread) == text


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("uploads", "uploads a round"),
        ("uploads@0.7", "uploads to 70 %"),
        ("task@mnist", "mnist"),
        ("rand-index@5:mnist", "Rand index, mnist, round 5"),
        ("variance@10", "variance over tasks at round 10"),
        ("after@1200", "accuracy after 1,200 uploads"),
        ("average", "accuracy"),
    ],
)
def test_a_measure_is_called_by_what_it_measures(key, text):
    assert title(key) == text


# Outcomes


def finished(folder: Path, accuracy: dict[str, dict[int, float]], variant: str | None = None) -> Part:
    """A comparison whose runs ended so, by method and seed; without a value a run is not finished."""
    seeds = sorted({seed for runs in accuracy.values() for seed in runs})
    design = Design.make(table(), "by hand", methods=list(accuracy), seeds=seeds, baseline="full")
    part = Part(variant, design.create(folder), design)
    for cell in part.comparison.asked:
        if cell.seed in accuracy[cell.label]:
            value = accuracy[cell.label][cell.seed]
            place = part.comparison.folder(cell)
            place.mkdir(parents=True)
            summary = {"accuracy": {"mean": value, "minimum": value / 2}}
            (place / "summary.json").write_text(json.dumps(summary))
    return part


def test_relative_accuracy_is_paired_by_seed(tmp_path):
    part = finished(tmp_path, {"full": {0: 0.8, 1: 0.5}, "random": {0: 0.4, 1: 0.4, 2: 0.9}})
    made = preset(measures=["relative", "average"], figures={"relative": {"random": [0.7, 0.1]}})
    rows = outcome(made, [part]).rows
    assert rows["random"]["relative"].by_seed == pytest.approx({0: 0.5, 1: 0.8})
    assert rows["random"]["relative"].mean == pytest.approx(0.65)
    assert rows["random"]["relative"].deviation == pytest.approx(0.3 / np.sqrt(2))
    assert rows["full"]["relative"].by_seed == {0: 1, 1: 1}
    assert rows["random"]["average"].mean == pytest.approx((0.4 + 0.4 + 0.9) / 3)
    assert rows["random"]["relative"].paper == Figure(value=0.7, spread=0.1)
    assert rows["full"]["relative"].paper is None
    assert part.missing() == {"full-seed-2": ""}


def test_time_on_the_clock_counts_runs_beside_each_other_once(tmp_path):
    part = finished(tmp_path, {"full": {0: 0.8, 1: 0.5}, "random": {0: 0.4}})
    began = {
        "full-seed-0": ("10:00:00", 90),
        "full-seed-1": ("10:01:00", 90),
        "random-seed-0": ("11:00:00", 5),
    }
    for name, (start, seconds) in began.items():
        folder = tmp_path / "runs" / name
        told = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps({**told, "seconds": seconds}))
        place = {
            "time": f"2026-01-02T{start}+00:00",
            "packages": {"torch": "2"},
            "gpus": ["A GPU"],
            "commit": "c",
        }
        (folder / "environment.json").write_text(json.dumps(place))
    found = files.summary(outcome(preset(measures=["average"]), [part]), [part], {})
    assert found["made"]["A GPU"]["seconds"] == 185 and found["made"]["A GPU"]["clock"] == 155


def test_a_measure_that_some_runs_lack_says_how_many_have_it(tmp_path):
    part = finished(tmp_path, {"full": {0: 0.8}, "random": {0: 0.4, 1: 0.4}})
    found = outcome(preset(measures=["relative", "average"]), [part])
    columns = heads(found, found.preset.measures)
    full, random = (dict(zip(columns, cells)) for cells in lines(found, found.preset.measures))
    assert random["relative accuracy"] == "0.500 (1 of 2)"
    assert random["accuracy"] == "40.0 ± 0.0 %"
    assert full["accuracy"] == "80.0 % (1 run)"  # the other is missing


def test_a_row_of_a_variant_bears_its_name_and_one_that_is_not_run_is_there(tmp_path):
    parts = [
        finished(tmp_path / "a", {"full": {0: 0.8}, "random": {}}, "few"),
        finished(tmp_path / "b", {"full": {0: 0.6}, "random": {0: 0.3}}, "many"),
    ]
    made = preset(claim=[claim(of="random, few", over=["full, many"])], measures=["average"])
    found = outcome(made, parts)
    assert list(found.rows) == ["full, few", "random, few", "full, many", "random, many"]
    assert found.rows["random, few"]["average"].table() == {"mean": None, "std": None, "seeds": {}}
    assert found.verdicts[0].verdict == "not known"
    assert parts[0].missing() == {"random-seed-0, few": ""}
    assert lines(found, ["average"])[1] == ["random, few", "-"]


def example() -> Outcome:
    made = preset(
        measures=["relative", "average"],
        costs=["uploads"],
        figures={"relative": {"theirs": [0.7, 0.1]}},
        claim=[claim()],
    )
    rows = {
        name: {
            "relative": Value({0: value, 1: value + 0.1}, made.figures["relative"].get(name)),
            "average": Value({0: value / 2}),
            "uploads": Value({}),
        }
        for name, value in (("ours", 0.9), ("theirs", 0.8))
    }
    return judged(made, rows)


def test_the_tables_are_well_formed_markdown():
    parts = markdown(example()).removesuffix("\n").split("\n\n")
    assert len(parts) == 3
    for part in parts:
        head, rule, *rows = part.split("\n")
        columns = head.count("|")
        assert rows
        assert rule == "|" + "---|" * (columns - 1)
        for line in (head, *rows):
            assert line.count("|") == columns
            assert line.startswith("| ")
            assert line.endswith(" |")
    assert heads(example(), ["relative", "average"]) == [
        "method",
        "relative accuracy: paper",
        "ours",
        "accuracy",
    ]
    assert lines(example(), ["relative", "average"]) == [
        ["ours", "", "0.950 ± 0.071", "45.0 %"],
        ["theirs", "0.700 ± 0.100", "0.850 ± 0.071", "40.0 %"],
    ]


TITLES = [("relative", "relative accuracy", False), ("average", "accuracy", True)]


def test_ours_and_the_papers_figures_are_drawn_beside_each_other(tmp_path):
    rows = chart_rows(example())
    assert {(row["row"], row["measure"], row["source"]) for row in rows} == {
        ("ours", "relative", "ours"),
        ("theirs", "relative", "ours"),
        ("theirs", "relative", "paper"),
        ("ours", "average", "ours"),
        ("theirs", "average", "ours"),
    }
    (paper,) = [row for row in rows if row["source"] == "paper"]
    assert (paper["low"], paper["value"], paper["high"]) == pytest.approx((0.6, 0.7, 0.8))
    chart = beside(rows, TITLES, "Made up", "paper")
    made = spec(chart)
    alt.Chart.from_dict(made)  # validates against Vega-Lite's schema
    text = json.dumps(made, allow_nan=False)
    assert '"source": "paper"' in text
    assert '"source": "ours"' in text
    offsets = [float(offset) for offset in re.findall(r'"yOffset": (-?[0-9.]+)', text)]
    assert offsets == [-3, -3, 3, 3, 0, 0]  # so that neither hides the other; alone in the middle
    save(chart, tmp_path / "chart.svg")
    assert ">theirs<" in (tmp_path / "chart.svg").read_text()
    assert beside([], TITLES, "Made up", "paper") is None


def test_rows_are_named_also_where_the_first_measure_has_no_values(tmp_path):
    rows = [row for row in chart_rows(example()) if row["measure"] == "average"]
    save(beside(rows, TITLES, "Made up", "paper"), tmp_path / "chart.svg")
    assert ">theirs<" in (tmp_path / "chart.svg").read_text()


# Groups in the plane


def grouped() -> History:
    def step(round: int, place: float) -> Round:
        notes = {"groups": [0, 1], "plane": [[place, 0], [1, place]], "rand_index": {"a": 0.9, "b": 0.25}}
        return Round(round, {"a": TaskRound(), "b": TaskRound()}, allocation=notes)

    made = run([step(1, 1.0), step(4, 4.0), Round(5), step(8, 8.0)])
    made.population = {"cluster": np.array([[0, 1], [0, 0]]), "sizes": np.ones((2, 2))}
    return made


def test_the_plane_at_given_rounds_is_that_of_the_grouping_in_force():
    rounds = [entry.round for entry in groups.grouped(grouped(), [5, 25])]
    assert rounds == [4, 8]
    assert groups.grouped(grouped(), [0]) == []
    assert plane(grouped(), [0]) is None


@pytest.mark.parametrize(("task", "clusters", "index"), [("b", [1, 0], "0.25"), (None, [0, 0], "0.90")])
def test_the_plane_shows_the_true_clusters_of_the_task_that_is_named(task, clusters, index):
    found, name = groups.true_clusters(grouped(), task)
    assert (found.tolist(), name) == (clusters, task or "a")
    chart = plane(grouped(), [5, 25], task)
    made = spec(chart)
    alt.Chart.from_dict(made)
    text = json.dumps(made)
    assert f'true clusters of \\"{name}\\"' in text
    for round in (4, 8):
        assert f"round {round}, Rand index {index}" in text


# Auctions


def test_the_rows_of_auctions_are_what_the_mechanisms_say():
    auction = Auction.model_validate({**find("auction-exp5").auction.model_dump(), "budgets": [10, 29]})
    rows = auctions(auction, 2)
    assert len(rows) == 2 * 8 * 2
    found = {(row["mechanism"], row["budget"], row["seed"]): row for row in rows}
    for seed in (0, 1):
        laws = auction.bids
        bids = np.column_stack(
            [law.draw(100, generator(seed, Stream.BIDS, task=s)) for s, law in enumerate(laws)]
        )
        for budget in (10, 29):
            for name, award in {
                "max-min-fair": max_min_fair(bids, budget),
                "budget-fair": budget_fair(bids, budget),
                "budget-fair-as-published": budget_fair(bids, budget, payment="as-published"),
                "gmm-fair": gmm_fair(bids, budget),
                "greedy-within-budget": greedy_within_budget(bids, budget),
                "random-within-budget": random_within_budget(
                    bids, budget, generator(seed, Stream.RECRUITMENT)
                ),
                "posted-price 0.4": posted_price(bids, 0.4),
                "posted-price 0.6": posted_price(bids, 0.6),
            }.items():
                row = found[name, budget, seed]
                assert row["minimum"] == pytest.approx(min(award.take_up))
                assert row["difference"] == pytest.approx(max(award.take_up) - min(award.take_up))
    (mean,) = [row for row in means(rows) if (row["mechanism"], row["budget"]) == ("gmm-fair", 29)]
    one, two = (found["gmm-fair", 29, seed]["minimum"] for seed in (0, 1))
    assert mean["minimum"] == pytest.approx((one + two) / 2)


def test_auctions_are_judged_at_the_budgets_that_have_figures():
    made = find("auction-exp5")
    assert made.auction is not None
    found = auctioned(made, auctions(made.auction, 3))
    budgets = [float(row.rpartition(" ")[2]) for row in found.rows]
    assert (sorted(set(budgets)), budgets) == ([10, 29, 60], sorted(budgets))
    assert found.rows["budget-fair, budget 10"]["take-up-minimum"].paper == Figure(value=13.3)
    assert set(found.rows["gmm-fair, budget 60"]["take-up-minimum"].by_seed) == {0, 1, 2}
    assert heads(found, ["take-up-minimum"])[:2] == ["mechanism", "smallest take-up: reference"]
    assert len(found.verdicts) == sum(len(one.over) for one in made.claims)
    assert {row["source"] for row in chart_rows(found)} == {"ours", "reference"}


# Ablations

PEOPLE = population(clients=40, tasks=3)


@pytest.mark.parametrize(("loss", "points"), [(1.0, 0.0), (1.0, -1.0), (0.5, 0.25)])
def test_the_score_of_lvr_takes_loss_and_points_to_powers(loss, points):
    state, there = round_state(PEOPLE), PEOPLE.available
    methods = (LossToPowers(loss=loss, points=points), Lvr())
    changed, plain = (method.allocator().score(state, state.signals)[there] for method in methods)
    weight = (PEOPLE.shares / np.maximum(PEOPLE.capacity, 1)[:, None])[there]
    losses, sizes = state.signals.losses[there], PEOPLE.sizes[there].astype(float)
    assert changed == pytest.approx(weight * losses**loss * sizes**points)
    assert plain == pytest.approx(weight * losses)
    assert LossToPowers.signal == Lvr.signal == "loss"


def test_the_ablation_of_one_job_draws_clients_and_the_method_itself_processors():
    state = round_state(PEOPLE, jobs=12)
    most = {}
    for method in (FedVarpOneJob(), FedVarp()):
        plan = method.allocator().plan(state)
        busiest = []
        for seed in range(30):
            drawn = plan.draw(np.random.default_rng(seed))
            busiest.append(np.bincount(drawn.client, drawn.count).max())
        most[method.name] = max(busiest)
        assert isinstance(method.aggregator(), type(FedVarp().aggregator()))
    assert most["fedvarp-one-job"] == 1
    assert most["fedvarp"] > 1
