"""Charts: their rows by value, every one drawn from real runs, and none too large for a page."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pytest
from histories import enormous, entry, history, line, people

import fedmux
from conftest import table
from fedmux.data.png import decode_png
from fedmux.errors import FedmuxError
from fedmux.report.charts import (
    CHARTS,
    auctions,
    curves,
    data,
    finals,
    fleet,
    forecasts,
    groups,
    lines,
    method_accuracy,
    save,
    spec,
    spreads,
    style,
    task_accuracy,
    theme,
    thin,
)
from fedmux.report.charts import allocation as jobs
from fedmux.runs.history import History, find
from fedmux.runs.rounds import Round

KINDS = {kind.key: kind for kind in CHARTS}
LIMIT = 300_000  # bytes of one chart in a page
CLUSTERS = {"kind": "clusters", "clusters": 3, "consistent": True, "sizes": 10, "disjoint": False}
LATER = {**table()["population"], "start": 6}
RUNS: dict[str, dict[str, Any]] = {
    "full": {"method": "full"},
    "mmfl-lvr": {"method": "mmfl-lvr"},
    "mmfl-forecast": {"method": "mmfl-forecast"},
    "mmfl-group": {
        "method": "mmfl-group",
        "population": {"clients": 12, "rate": 0.5},
        "task": [{**task, "partition": CLUSTERS} for task in table()["task"]],
    },
    "recruited": {"recruitment": {"mechanism": "max-min-fair", "budget": 4, "bids": [{"kind": "linear"}]}},
    "changing": {
        "population": LATER,
        "rounds": 6,
        "event": [{"round": 2, "join": 3}, {"round": 3, "leave": 2}, {"round": 4, "leave_tasks": ["b"]}],
        "dropout": {"rate": 0.5},
    },
}
SUITABLE = {
    "groups": "mmfl-group",
    "forecast-error": "mmfl-forecast",
    "recruitment": "recruited",
    "dynamics": "changing",
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, History]:
    """Runs in which there is something of everything."""
    folder = tmp_path_factory.mktemp("runs")
    for name, changes in RUNS.items():
        fedmux.run(fedmux.Experiment.model_validate(table(**changes)), folder / name)
    return {history.path.name: history for history in find([folder])}


@pytest.fixture(scope="module")
def large() -> History:
    return enormous()


def chosen(key: str, real: dict[str, History]) -> list[History]:
    if KINDS[key].several:
        return [real["full"], real["mmfl-lvr"]]
    return [real[SUITABLE.get(key, "mmfl-lvr")]]


def size(chart: Any) -> int:
    return len(json.dumps(spec(chart), allow_nan=False, separators=(",", ":")))


def two(**values: list[float]) -> list[Round]:
    """Rounds of two tasks with these accuracies."""
    return [entry(r, a={"accuracy": a}, b={"accuracy": b}) for r, (a, b) in enumerate(zip(*values.values()))]


# All of them


@pytest.mark.parametrize("key", KINDS)
def test_every_chart_is_drawn_from_a_real_run(key: str, real: dict[str, History], tmp_path: Path) -> None:
    chart = KINDS[key].draw(chosen(key, real))
    assert chart is not None
    save(chart, tmp_path / "chart.png", ppi=72)
    picture = decode_png((tmp_path / "chart.png").read_bytes(), key)
    assert min(picture.shape[:2]) > 100
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 20
    made = spec(chart)
    alt.Chart.from_dict(made)  # validates against Vega-Lite's schema
    assert made["config"]["background"] == "transparent"


@pytest.mark.parametrize("key", KINDS)
def test_every_chart_of_one_run_with_one_task_is_drawn_or_left_out(key: str, tmp_path: Path) -> None:
    small = enormous(rounds=3, clients=4, tasks=1)
    chart = KINDS[key].draw([small])
    assert (chart is None) == (key in ("methods", "final-accuracy"))
    if chart is not None:
        save(chart, tmp_path / "chart.svg", dark=True)
        assert (tmp_path / "chart.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("key", KINDS)
def test_a_chart_without_data_is_left_out(key: str) -> None:
    assert KINDS[key].draw([]) is None
    assert KINDS[key].draw([history([])]) is None
    assert KINDS[key].draw([history([line(0)])]) is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("key", KINDS)
def test_a_chart_of_many_rounds_and_clients_fits_into_a_page(key: str, large: History) -> None:
    chart = KINDS[key].draw([large])
    assert chart is None or size(chart) < LIMIT


@pytest.mark.parametrize("key", [kind.key for kind in CHARTS if kind.several])
def test_a_chart_of_a_hundred_runs_fits_into_a_page(key: str) -> None:
    one = enormous(rounds=400, clients=10, tasks=15)
    runs = [
        history(one.metrics, name=f"run-{m}-{seed}", method=f"method number {m}", tasks=one.tasks, seed=seed)
        for m in range(25)
        for seed in range(4)
    ]
    chart = KINDS[key].draw(runs)
    assert chart is not None
    assert size(chart) < LIMIT


def test_keys_are_names_of_files_and_captions_are_sentences() -> None:
    assert len(KINDS) == len(CHARTS)
    for kind in CHARTS:
        assert kind.key.replace("-", "").isalpha()
        assert kind.caption.endswith(".")
        assert len(kind.title) < 40


def test_names_from_a_damaged_folder_stay_names(tmp_path: Path) -> None:
    evil = "'] + alert(1) + ['</script>\"\\"
    rounds = [entry(r, **{evil: {"accuracy": 0.5, "jobs": 2}}) for r in range(3)]
    run = history(rounds, tasks=[evil], jobs=[(1, 0, 0, 1)], population=people(2, 1))
    for key in ("allocation", "job-shares", "task-accuracy", "fairness"):
        chart = KINDS[key].draw([run])
        assert chart is not None
        save(chart, tmp_path / f"{key}.png")


# How they look


def test_colours_are_told_apart_by_all_eyes_on_white_and_dark_ground() -> None:
    # Simulated with the matrices of Machado, Oliveira & Fernandes (2009); distances in CIELAB.
    eyes = {
        "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    }
    linear = np.stack([_linear(colour) for colour in style.COLOURS])
    for matrix in eyes.values():
        seen = _lab(np.clip(linear @ np.array(matrix).T, 0, 1))
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15
    for ground in ("#FFFFFF", style.DARK):
        for colour in (*style.COLOURS, style.GREY):
            dark, light = sorted(_linear(c) @ [0.2126, 0.7152, 0.0722] for c in (ground, colour))
            assert (light + 0.05) / (dark + 0.05) > 2.2, (colour, ground)


def _linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = rgb @ to_xyz.T / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


def test_themes_differ_in_colours_only() -> None:
    light, dark = theme(False), theme(True)
    assert light["axis"].keys() == dark["axis"].keys()
    assert light["axis"]["labelColor"] != dark["axis"]["labelColor"]
    assert light["background"] == dark["background"] == "transparent"


def test_pictures_have_a_ground_and_only_two_formats(tmp_path: Path) -> None:
    chart = task_accuracy(two(a=[0.1, 0.2], b=[0.3, 0.4]), "run")
    for dark, corner in ((False, 0xFF), (True, 0x11)):
        save(chart, tmp_path / "chart.PNG", dark=dark)
        assert decode_png((tmp_path / "chart.PNG").read_bytes(), "chart")[0, 0, :3].tolist() == [corner] * 3
    with pytest.raises(FedmuxError, match=r"written as PNG or SVG; name it chart\.png"):
        save(chart, tmp_path / "chart.pdf")
    with pytest.raises(FedmuxError, match="there is no folder"):
        save(chart, tmp_path / "no" / "chart.png")


def test_charts_of_nothing_are_empty_frames(tmp_path: Path) -> None:
    save(task_accuracy([], "nothing"), tmp_path / "a.png")
    save(method_accuracy({"x": [[]]}, "nothing"), tmp_path / "b.png")


# Thinning


def test_rounds_are_thinned_to_means_of_bins() -> None:
    points = [(round, float(round)) for round in range(7)]
    assert thin.thin(points, 1) == {round: float(round) for round in range(7)}
    assert thin.thin(points, 3) == {1: 1.0, 4: 4.0, 7: 6.0}
    assert thin.bin_width(299, 1) == 1
    assert thin.bin_width(300, 1) == 2
    assert thin.bin_width(10_000, 1) == 34
    assert thin.bin_width(10_000, 10_000) == 1667


def test_parts_are_nearly_equal_and_keep_the_order() -> None:
    assert thin.parts(3, 5).tolist() == [0, 1, 2]
    assert thin.parts(7, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert thin.parts(0, 3).tolist() == []
    assert thin.part_means(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1])).tolist() == [2.0, 5.0]


# Curves


def test_accuracy_of_tasks_is_a_mean_with_a_range_over_seeds() -> None:
    runs = [two(a=[0.1, 0.2], b=[0.3, 0.4]), two(a=[0.3, 0.6], b=[0.3, 0.2])]
    rows = curves.task_rows({"m": runs}, ["a", "b"], "accuracy", 1)
    assert rows == [
        {"task": "a", "label": "m", "round": 0, "value": 0.2, "low": 0.1, "high": 0.3},
        {"task": "a", "label": "m", "round": 1, "value": 0.4, "low": 0.2, "high": 0.6},
        {"task": "b", "label": "m", "round": 0, "value": 0.3, "low": 0.3, "high": 0.3},
        {"task": "b", "label": "m", "round": 1, "value": 0.3, "low": 0.2, "high": 0.4},
    ]


def test_figures_over_tasks_are_those_of_the_rounds() -> None:
    groups_ = {"m": [two(a=[0.1, 0.2], b=[0.3, 0.6])]}
    for key, values in (("mean", [0.2, 0.4]), ("minimum", [0.1, 0.2]), ("variance", [0.01, 0.04])):
        rows = curves.overall_rows(groups_, key, 1)
        assert [row["value"] for row in rows] == pytest.approx(values)
        assert all("low" not in row for row in rows)


def test_rounds_without_evaluation_are_left_out() -> None:
    metrics = [entry(0, a={"accuracy": 0.1}), entry(1, a={"jobs": 3}), entry(2, a={"accuracy": 0.3})]
    rows = curves.task_rows({"m": [metrics]}, ["a"], "accuracy", 1)
    assert [row["round"] for row in rows] == [0, 2]


def test_costs_are_summed_over_tasks_and_rounds() -> None:
    metrics = [
        entry(0, a={"accuracy": 0.1}, b={"accuracy": 0.1}),
        entry(1, a={"uploads": 3}, b={"uploads": 1}),
        entry(2, a={"uploads": 2, "accuracy": 0.5}, b={"uploads": 4, "accuracy": 0.7}),
    ]
    assert curves.cost_rows({"m": [metrics]}, "uploads", 1) == [
        {"label": "m", "round": 0, "cost": 0.0, "value": 0.1},
        {"label": "m", "round": 2, "cost": 10.0, "value": 0.6},
    ]


def test_runs_are_grouped_by_label_and_told_apart_where_seeds_repeat() -> None:
    runs = [
        history([], method="a", seed=0, path=Path("x")),
        history([], method="a", seed=1, path=Path("y")),
        history([], method="b", seed=0, path=Path("x")),
        history([], method="b", seed=0, path=Path("y")),
        history([], method="c", seed=0, name="one", path=Path("x")),
        history([], method="c", seed=0, name="two", path=Path("y")),
    ]
    found = {label: len(group) for label, group in curves.by_label(runs).items()}
    assert found == {"a": 2, "b (small) (x)": 1, "b (small) (y)": 1, "c (one)": 1, "c (two)": 1}


def test_a_metric_that_is_no_share_is_not_shown_in_per_cent() -> None:
    assert lines.value_format([{"value": 0.3}], lines.ACCURACY) == style.PERCENT
    assert lines.value_format([{"value": -3.0}], lines.ACCURACY) == style.PLAIN
    assert lines.value_format([{"value": 0.3}], lines.LOSS) == style.PLAIN


def test_final_accuracy_is_set_against_full_participation_seed_by_seed() -> None:
    def run(method: str, seed: int, score: float, label: str = "") -> History:
        summary = {"accuracy": {"mean": score}}
        return history([], method=method, seed=seed, summary=summary, label=label or method)

    runs = [run("full", 0, 0.8), run("full", 1, 0.5), run("random", 0, 0.4), run("random", 1, 0.5)]
    rows, relative = finals.final_rows(curves.by_label(runs))
    assert relative
    assert [row["label"] for row in rows] == ["full", "random"]
    assert (rows[1]["value"], rows[1]["low"], rows[1]["high"], rows[1]["mean"]) == (0.75, 0.5, 1.0, 0.45)

    rows, relative = finals.final_rows(curves.by_label([run("random", 0, 0.4), run("mmfl-lvr", 0, 0.6)]))
    assert not relative
    assert [(row["label"], row["value"]) for row in rows] == [("mmfl-lvr", 0.6), ("random", 0.4)]

    varied = [
        run(m, 0, s, f"{m} rate={r}") for m, r, s in (("full", 1, 0.8), ("full", 2, 0.4), ("x", 2, 0.2))
    ]
    rows, relative = finals.final_rows(curves.by_label(varied))
    assert relative
    assert {row["label"]: row["value"] for row in rows}["x rate=2"] == 0.5


def test_final_accuracy_of_an_unfinished_run_is_the_mean_of_its_last_rounds() -> None:
    metrics = [entry(round, a={"accuracy": round / 100}) for round in range(21)]
    assert finals.final_mean(history(metrics, summary=None)) == pytest.approx(0.155)
    assert finals.final_mean(history(metrics[:1], summary=None)) == 0.0
    assert finals.final_mean(history([], summary=None)) is None


# Allocation


def test_the_map_has_clients_with_most_jobs_first_and_several_tasks_in_one_colour() -> None:
    run = history(
        [entry(2, a={}, b={})],
        jobs=[(1, 2, 0, 1), (1, 0, 1, 1), (2, 0, 1, 2), (2, 2, 0, 1), (2, 2, 1, 1)],
        population=people(3),
    )
    rows, rounds, clients = jobs.allocation_rows(run)
    assert (rounds, clients) == (1, 1)
    assert rows == [
        {"row": 0, "client": "0", "task": [1, 1], "jobs": [1, 2]},
        {"row": 1, "client": "2", "task": [0, 2], "jobs": [1, 2]},
        {"row": 2, "client": "1", "task": [-1, -1], "jobs": [0, 0]},
    ]


def test_cells_of_several_clients_have_the_task_with_most_jobs() -> None:
    every = [(1, client, int(client % 3 == 0), 1) for client in range(240)]
    run = history([entry(1, a={}, b={})], jobs=every, population=people(240))
    rows, rounds, clients = jobs.allocation_rows(run)
    assert (rounds, clients, len(rows)) == (1, 2, 120)
    assert [row["task"] for row in rows[:3]] == [[2], [2], [0]]  # clients 0 and 1, 2 and 3, 4 and 5
    assert {tuple(row["jobs"]) for row in rows} == {(2,)}


def test_shares_of_jobs_add_up_to_one_and_leave_out_round_0() -> None:
    metrics = [entry(0, a={}, b={}), entry(1, a={"jobs": 1}, b={"jobs": 3}), entry(2, a={"jobs": 0}, b={})]
    rows = jobs.share_rows(history(metrics), 1)
    assert rows == [
        {"round": 1, "task": "a", "share": 0.25, "jobs": 1.0},
        {"round": 1, "task": "b", "share": 0.75, "jobs": 3.0},
    ]


def test_gini_is_0_if_all_have_alike_and_near_1_if_one_has_all() -> None:
    assert jobs.gini(np.full(5, 3)) == pytest.approx(0)
    assert jobs.gini(np.array([0, 0, 0, 7])) == pytest.approx(0.75)
    assert jobs.gini(np.array([1, 3])) == pytest.approx(0.25)
    assert jobs.gini(np.zeros(3)) == 0


def test_lorenz_curves_count_only_clients_that_could_train() -> None:
    population = people(3)
    population["eligible"][2, 0] = False
    run = history(
        [entry(1, a={}, b={})], jobs=[(1, 0, 0, 1), (1, 1, 0, 3), (1, 2, 1, 1)], population=population
    )
    by_curve: dict[str, list[Any]] = {}
    for row in jobs.lorenz_rows(run):
        by_curve.setdefault(row["curve"], []).append((row["clients"], row["jobs"]))
    assert by_curve == {
        "all tasks (0.27)": [(0.0, 0.0), (0.3333, 0.2), (0.6667, 0.4), (1.0, 1.0)],
        "a (0.25)": [(0.0, 0.0), (0.5, 0.25), (1.0, 1.0)],
        "b (0.67)": [(0.0, 0.0), (0.3333, 0.0), (0.6667, 0.0), (1.0, 1.0)],
    }


def test_jobs_of_a_real_run_add_up(real: dict[str, History]) -> None:
    run = real["mmfl-lvr"]
    total = sum(figures.jobs for entry in run.metrics[1:] for figures in entry.tasks.values())
    assert jobs.job_counts(run).sum() == total
    assert sum(sum(row["jobs"]) for row in jobs.allocation_rows(run)[0]) == total
    by_round: dict[int, float] = {}
    for row in jobs.share_rows(run, 1):
        by_round[row["round"]] = by_round.get(row["round"], 0) + row["share"]
    assert list(by_round) == [1, 2, 3, 4]
    assert list(by_round.values()) == pytest.approx([1, 1, 1, 1], abs=1e-3)


# Distributions over clients


def test_quantiles_of_probabilities_are_those_recorded(real: dict[str, History]) -> None:
    run = real["mmfl-lvr"]
    rows = spreads.quantile_rows(run, ["a"], lambda entry, task: entry.probability.get(task), 1)
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    recorded = run.metrics[1].probability["a"]
    for key in spreads.QUANTILES:
        assert rows[0][key] == pytest.approx(recorded[key], rel=1e-3)
    assert [row["value"] for row in spreads.saturated_rows(run.metrics, 1)] == [
        entry.saturated for entry in run.metrics[1:]
    ]


def test_quantiles_of_clients_accuracies_are_means_of_bins() -> None:
    tables = [dict.fromkeys(spreads.QUANTILES, value) for value in (0.1, 0.3, 0.5)]
    metrics = [entry(r, a={"clients": values}) for r, values in enumerate(tables)]
    rows = spreads.quantile_rows(history(metrics), ["a"], lambda entry, task: entry.of(task).clients, 2)
    assert [(row["round"], row["median"]) for row in rows] == [(0, 0.2), (2, 0.5)]


# Groups


def test_the_plane_has_a_point_for_every_client_with_a_place(real: dict[str, History]) -> None:
    run = real["mmfl-group"]
    steps = groups.grouped(run)
    assert steps[0].round == 1
    clusters, task = groups.true_clusters(run)
    assert task is None  # the same for all tasks
    rows = groups.plane_rows(steps[0], clusters)
    assert {row["client"] for row in rows} <= set(range(12))
    assert {row["cluster"] for row in rows} == {"0", "1", "2"}
    for row in rows:
        assert row["group"] == str(steps[0].allocation["groups"][row["client"]])


def test_clients_without_a_place_group_or_cluster_are_told() -> None:
    step = line(1, allocation={"groups": [0, -1, 1], "plane": [[1, 2], [3.0, 4.0], None]})
    assert groups.plane_rows(step, np.array([2, -1, 0])) == [
        {"client": 0, "x": 1.0, "y": 2.0, "group": "0", "cluster": "2"},
        {"client": 1, "x": 3.0, "y": 4.0, "group": "none", "cluster": "none"},
    ]


def test_clusters_that_differ_between_tasks_are_those_of_the_best_matched() -> None:
    notes = {"groups": [0, 1], "plane": [[0, 0], [1, 1]], "rand_index": {"a": 0.1, "b": 0.9}}
    run = history(
        [line(1, allocation=notes)],
        population=people(2, cluster=np.array([[0, 1], [0, 0]])),
    )
    clusters, task = groups.true_clusters(run)
    assert task == "b"
    assert clusters is not None
    assert clusters.tolist() == [1, 0]


# The fleet


def test_joining_leaving_and_failing_are_counted_by_round() -> None:
    events = {"joined": [4, 5], "left": [1], "tasks_joined": ["b"]}
    metrics = [
        line(1, clients=3),
        line(2, clients=4, events=events, dropped=2),
        line(3, clients=4, failures=[{"kind": "late"}, {"kind": "lost"}]),
    ]
    run = history(metrics)
    assert [row["clients"] for row in fleet.client_rows(run, 1)] == [3, 4, 4]
    assert fleet.event_rows(run, 1) == [
        {"round": 2, "what": "joined", "number": 2},
        {"round": 2, "what": "left", "number": 1},
    ]
    assert fleet.task_event_rows(run) == [{"round": 2, "text": "b starts"}]
    assert fleet.loss_rows(run, 1) == [
        {"round": 2, "kind": "dropped", "number": 2.0},
        {"round": 3, "kind": "late", "number": 1.0},
        {"round": 3, "kind": "lost", "number": 1.0},
    ]
    assert fleet.loss_rows(run, 4)[0] == {"round": 1, "kind": "dropped", "number": 0.6667}


def test_a_real_run_that_changes_shows_it(real: dict[str, History]) -> None:
    run = real["changing"]
    assert fleet.event_rows(run, 1) == [
        {"round": 2, "what": "joined", "number": 3},
        {"round": 3, "what": "left", "number": 2},
    ]
    assert fleet.task_event_rows(run) == [{"round": 4, "text": "b ends"}]
    assert run.summary is not None
    assert sum(row["number"] for row in fleet.loss_rows(run, 1)) == run.summary["dropped"]


def test_names_of_tasks_are_written_only_where_there_is_room() -> None:
    rows = [{"round": r, "text": "task starts"} for r in (1, 2, 3, 4, 95, 99)]
    placed = fleet.placed(rows, 100.0)
    assert [row["line"] for row in placed] == [0, 1, 2, -1, 0, 1]
    assert [row["side"] for row in placed] == ["left"] * 4 + ["right"] * 2


def test_seconds_are_means_by_phase_in_the_order_of_a_round(real: dict[str, History]) -> None:
    run = real["mmfl-lvr"]
    names = fleet.phase_names(run)
    assert names[:2] == ["meet", "signals"]
    rows = fleet.phase_rows(run, 1)
    assert len(rows) == 4 * len(names)
    assert rows[0]["seconds"] == pytest.approx(run.metrics[1].phases["meet"], rel=1e-3)
    halves = history([line(r, phases={"own": float(r)}) for r in (1, 2, 3)])
    assert fleet.phase_rows(halves, 2) == [
        {"round": 1, "phase": "own", "seconds": 1.5},
        {"round": 3, "phase": "own", "seconds": 3.0},
    ]


# Auctions and data


def test_take_up_and_payments_are_those_of_the_auction(real: dict[str, History]) -> None:
    run = real["recruited"]
    rows = auctions.recruitment_rows(run)
    assert run.summary is not None
    told = run.summary["recruitment"]
    assert {row["task"]: row["users"] for row in rows} == pytest.approx(told["take_up"], rel=1e-3)
    assert sum(row["paid"] for row in rows) == pytest.approx(told["paid"], rel=1e-3)
    spent = {**told, "paid": 4.0, "budget": 4.0, "leftover": -7e-15}
    chart = auctions.recruitment(replace(run, summary={**run.summary, "recruitment": spent}))
    assert chart is not None
    assert "paid 4, budget 4, leftover 0" in json.dumps(chart.to_dict())


def test_labels_are_shares_of_clients_sorted_by_their_main_label() -> None:
    rows, each = data.label_rows(np.array([[0, 4], [0, 0], [3, 1], [2, 0]]), 10)
    assert each == 1
    assert rows == [
        {"label": 0, "share": [1, 0.75, 0], "points": [2, 3, 0]},
        {"label": 1, "share": [0, 0.25, 1], "points": [0, 1, 4]},
    ]
    rows, each = data.label_rows(np.array([[1, 0], [1, 0], [0, 1], [0, 3]]), 2)
    assert each == 2
    assert [row["points"] for row in rows] == [[1, 0], [0, 2]]


def test_labels_of_a_real_run_are_its_data(real: dict[str, History]) -> None:
    run = real["full"]
    assert np.array_equal(run.population["labels.a"].sum(1), run.population["sizes"][:, 0])


def test_without_labels_the_points_of_clients_are_shown() -> None:
    assert data.size_rows(np.array([3, 0, 9])) == [{"rank": 0.0, "points": 9.0}, {"rank": 1.0, "points": 3.0}]
    chart = KINDS["data"].draw([history([], population=people(4))])
    assert chart is not None
    assert "points of a client" in json.dumps(spec(chart))


def test_errors_of_norms_are_factors_and_what_no_forecast_has_is_left_out() -> None:
    errors: list[Any] = [
        {"norm": [math.log(2), None], "cosine": [0.25, 0.5]},
        {"norm": [math.log(4), 0.0]},
        {"norm": [math.nan, -1.0], "cosine": 3},
        "nonsense",
    ]
    metrics = [
        line(0),
        *(line(round + 1, allocation={"forecast_error": e}) for round, e in enumerate(errors)),
    ]
    run = history(metrics)
    assert forecasts.error_rows(run, "norm", ["a", "b"], 1) == [
        {"round": 1, "task": "a", "value": 2.0},
        {"round": 2, "task": "a", "value": 4.0},
        {"round": 2, "task": "b", "value": 1.0},
    ]
    assert [row["value"] for row in forecasts.error_rows(run, "cosine", ["a", "b"], 1)] == [0.25, 0.5]
    assert forecasts.error_rows(run, "norm", ["a"], 5) == [{"round": 2, "task": "a", "value": 2.828}]
    assert KINDS["forecast-error"].draw([run]) is not None
    assert KINDS["forecast-error"].draw([history([line(0), line(1, allocation={"targets": {}})])]) is None
