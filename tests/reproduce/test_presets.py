"""The presets: files that make sense, the papers' settings and figures, and the small versions."""

import copy
import json
import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from commands import fedmux
from fedmux.comparison.design import Design
from fedmux.data.sets import known
from fedmux.data.sets.fashion_mnist import DEBIAN
from fedmux.data.sets.fashion_mnist_sample import SAMPLE
from fedmux.dynamics import Presence
from fedmux.experiment import Experiment
from fedmux.experiment.overrides import put
from fedmux.population import draw_availability, draw_capacity
from fedmux.recruitment import MECHANISMS
from fedmux.report.charts import CHARTS
from fedmux.reproduce.measures import parse, title
from fedmux.reproduce.planning import Choice, designs
from fedmux.reproduce.preset import Auction, Claim, Preset, find, names
from fedmux.reproduce.quick import EPOCHS, POINTS, ROUNDS, SAMPLES, missing, smaller

TRAINED = [name for name in names() if find(name).auction is None]
FAIR = [name for name in TRAINED if name.startswith("fair")]
GROUPS = [name for name in TRAINED if name.startswith("group")]


def tables(preset: Preset) -> dict[str | None, dict]:
    """The experiment of each variant, put together here from the file alone."""
    found = {}
    for variant in preset.source.variants or [None]:
        table = copy.deepcopy(preset.table())
        if variant is not None:
            table["task"] = table["task"][: variant.tasks]
            for change in variant.set:
                put(table, change)
        found[variant.name if variant else None] = table
    return found


def rows_of(preset: Preset) -> set[str]:
    if preset.auction is not None:
        held = [name for name, _, _ in preset.auction.held]
        return {f"{name}, budget {budget:g}" for name in held for budget in preset.auction.budgets}
    return {
        cell.label if variant is None else f"{cell.label}, {variant}"
        for variant, table in tables(preset).items()
        for cell in Design.make(table, preset.name, seeds=[0]).cells
    }


def experiment(name: str) -> Experiment:
    return Experiment.model_validate(find(name).table())


# Files


def test_every_file_is_in_the_order_and_the_other_way_round():
    there = {path.name for path in (files("fedmux.reproduce") / "presets").iterdir()}
    assert there == {"ORDER", *(f"{name}.toml" for name in names())}
    assert len(set(names())) == len(names())


@pytest.mark.parametrize("name", names())
def test_a_preset_names_only_what_there_is(name):
    preset = find(name)
    assert (preset.name, preset.paper[:2]) == (name, "[P")
    assert preset.title
    rows = rows_of(preset)
    for key in preset.read:
        measure, _ = parse(key)
        assert measure.title
        assert title(key)
    for key, figures in preset.figures.items():
        assert key in preset.read
        assert set(figures) <= rows
    for claim in preset.claims:
        assert claim.measure in preset.read
        assert {claim.of, *claim.over} <= rows
        assert claim.of not in claim.over
    assert {picture.chart for picture in preset.charts} <= {kind.key for kind in CHARTS}
    assert len({claim.says for claim in preset.claims}) == len(preset.claims)


@pytest.mark.parametrize("name", TRAINED)
def test_the_experiment_of_a_preset_is_sound_for_every_variant_method_and_seed(name):
    preset = find(name)
    variants = tables(preset)
    for table in variants.values():
        design = Design.make(table, name, seeds=range(preset.seeds))
        cells = design.cells
        assert list(design.experiments()) == [cell.name for cell in cells]
        assert len(cells) == len(design.methods) * preset.seeds
        assert len({cell.name for cell in cells}) == len(cells)
        assert set(design.references().values()) == {design.baseline}
    tasks = {task["name"] for table in variants.values() for task in table["task"]}
    data = {task["data"] for table in variants.values() for task in table["task"]}
    for key in preset.read:
        what, _, argument = key.partition("@")
        if what in ("task", "share") or ":" in argument:
            assert argument.rpartition(":")[2] in tasks
    assert {picture.task for picture in preset.charts} <= {None, *tasks}
    assert data <= set(known())
    places = [name.replace(" ", "-") for name in variants if name]
    assert len(set(places)) == len(places)


def test_presets_that_share_runs_point_to_one_that_trains_them():
    borrowing = [preset for preset in map(find, names()) if preset.runs]
    assert {preset.name: preset.runs for preset in borrowing} == {
        "fig2": "table1-3tasks",
        "fig3": "table1-3tasks",
        "fig4-3tasks": "table1-3tasks",
        "fig4-5tasks": "table1-5tasks",
        "fig5": "table1-5tasks",
        "ablations": "table1-3tasks",
        "forecast-3tasks": "table1-3tasks",
        "forecast-5tasks": "table1-5tasks",
        "forecast-parts-3tasks": "table1-3tasks",
        "forecast-parts-5tasks": "table1-5tasks",
        "group-fig3": "group-inconsistent",
    }
    for preset in borrowing:
        assert preset.source.experiment is not None
        own, theirs = (dict(one.table()) for one in (preset, preset.source))
        compared = [table.pop("compare") for table in (own, theirs)]
        assert own == theirs
        shared = {json.dumps(method) for method in compared[0]["methods"]} & {
            json.dumps(method) for method in compared[1]["methods"]
        }
        assert shared  # or there would be nothing to borrow


@pytest.mark.parametrize("name", TRAINED)
def test_a_printed_preset_is_an_experiment_file(name, tmp_path):
    ended = fedmux("reproduce", name, "--print", cwd=tmp_path).done()
    assert ended.err == ""
    assert list(tmp_path.iterdir()) == []
    made = Experiment.model_validate(tomllib.loads(ended.out))
    first = next(iter(tables(find(name)).values()))
    first["compare"]["seeds"] = list(range(find(name).seeds))
    assert made.table() == Experiment.model_validate(first).table()


# What the papers say


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("table1-3tasks", (0.712, 0.868, 0.794, 0.778, 1, 0.893, 0.912, 0.960)),
        ("table1-5tasks", (0.690, 0.835, 0.650, 0.749, 1, 0.842, 0.849, 0.869)),
    ],
)
def test_the_figures_of_table_one_are_the_papers(name, figures):
    methods = ("fedvarp", "mifa", "scaffold", "random", "full", "mmfl-gvr", "mmfl-lvr", "mmfl-gvr*")
    found = find(name).figures["relative"]
    assert {method: figure.value for method, figure in found.items()} == dict(zip(methods, figures))
    assert all(figure.spread for figure in found.values())
    for other in ("fig2", "fig2-processors", "ablations") if name == "table1-3tasks" else ():
        for method, figure in find(other).figures["relative"].items():
            assert figure.value == found[method].value


def test_the_other_reading_of_figure_two_differs_only_in_how_many_jobs_there_are():
    other, table = find("fig2-processors").table(), find("fig2").table()
    jobs = [population["population"].pop(key) for population, key in ((table, "jobs"), (other, "rate"))]
    assert jobs == [12, 0.1]
    assert (table.pop("name"), other.pop("name")) == ("table1-3tasks", "fig2-processors")
    assert other == table
    assert (find("fig2-processors").figures, find("fig2-processors").seeds) == (find("fig2").figures, 5)
    people, rng = experiment("fig2-processors").population, np.random.default_rng(0)
    has = draw_availability(people.availability, people.clients, 3, rng)
    processors = draw_capacity(people.processors, has, rng).sum()
    assert processors * people.rate == pytest.approx(23, abs=1)


@pytest.mark.parametrize("name", ["table1-3tasks", "table1-5tasks", "poster"])
def test_the_setting_of_the_first_paper(name):
    made = experiment(name)
    assert (made.rounds, made.population.clients, made.population.jobs) == (150, 120, 12)
    assert find(name).seeds == 5
    assert {task.local_epochs for task in made.tasks} == {5}
    shares = [task.partition.share for task in made.tasks if task.partition.kind == "label-share"]
    if name == "poster":
        assert shares == [0.3, 0.3, 0.3, 0.4, 0.4]
        assert made.population.processors == 1
        return
    assert set(shares) == {0.3}
    assert made.population.processors == {"all": 0.25, "half": 0.5, "one": 0.25}
    assert made.population.availability == {"all": 0.9, "all_but_one": 0.1}
    tasks = [(task.data, task.model) for task in made.tasks]
    fashion = ("fashion-mnist", "cnn")
    if name == "table1-3tasks":
        assert tasks == [fashion] * 3
    else:
        others = [("cifar10", "resnet18"), ("emnist", "cnn"), ("shakespeare", "char-lstm")]
        assert tasks == [fashion] * 2 + others


def test_the_settings_of_the_second_paper():
    for name in FAIR:
        assert experiment(name).rounds == 120
    first = experiment("fair-exp1")
    assert (first.population.clients, first.population.rate, len(first.tasks)) == (120, 0.35, 3)
    assert {(task.partition.kind, task.partition.classes) for task in first.tasks} == {("classes", 5)}
    second = tables(find("fair-exp2"))
    assert [len(table["task"]) for table in second.values()] == [3, 4, 5, 6, 10]
    assert {table["population"]["clients"] for table in second.values()} == {20}
    third = tables(find("fair-exp3"))
    assert [table["population"]["clients"] for table in third.values()] == [80, 120, 160]
    assert {table["population"]["rate"] for table in third.values()} == {0.25}
    alphas = [method for method in experiment("fair-exp4").compare.methods if "alpha" in method]
    assert [method["alpha"] for method in alphas] == [1, 2, 3, 4, 5, 8]
    assert [len(table["task"]) for table in tables(find("fair-fig4")).values()] == [3, 4]
    auction = find("auction-exp5").auction
    assert (auction.users, len(auction.bids)) == (100, 2)
    assert (auction.budgets[0], auction.budgets[-1]) == (5, 100)
    assert auction.budgets == sorted(set(auction.budgets))
    assert 29 in auction.budgets
    mechanisms = [table["recruitment"]["mechanism"] for table in tables(find("auction-exp6")).values()]
    assert mechanisms == [*auction.mechanisms, *["posted-price"] * 3]
    assert set(mechanisms) <= set(MECHANISMS)


def test_the_settings_of_the_third_paper():
    for name in GROUPS:
        made = experiment(name)
        assert (made.rounds, len(made.tasks)) == (120, 5)
        assert made.population.rate == pytest.approx(1 / 6)
        assert {(task.partition.kind, task.partition.clusters) for task in made.tasks} == {("clusters", 5)}
        structures = {task.partition.consistent for task in made.tasks}
        assert structures == {name not in ("group-inconsistent", "group-fig3")}
        (group,) = [method for method in made.compare.methods if method["name"] == "mmfl-group"]
        assert group["structure"] == ("consistent" if structures == {True} else "inconsistent")
    clients = {name: experiment(name).population.clients for name in GROUPS}
    assert clients == {
        "group-consistent": 30,
        "group-inconsistent": 30,
        "group-fig3": 30,
        "group-new-clients": 60,
        "group-new-tasks": 60,
    }
    joining = experiment("group-new-clients")
    assert (joining.population.start, joining.arrivals.mean_wait, joining.arrivals.clients) == (24, 10, 3)
    events = experiment("group-new-tasks").events
    assert [(event.round, event.join_tasks) for event in events] == [(30, ["emnist-a"]), (60, ["emnist-b"])]


MNIST, FASHION = ("mnist", "cnn", 0.05, 32), ("fashion-mnist", "cnn", 0.05, 32)
CIFAR, EMNIST = ("cifar10", "resnet18", 0.05, 32), ("emnist", "cnn", 0.1, 32)
SWEPT = ("fashion-mnist", "cnn", 0.02, 10)  # rate and batch: a sweep on `random` alone
SWEPT_FIVE = [
    *[("fashion-mnist", "cnn", 0.01, 10)] * 2,
    ("cifar10", "resnet18", 0.01, 32),
    ("emnist", "cnn", 0.02, 32),
    ("shakespeare", "char-lstm", 1.0, 32),
]
FIVE = [MNIST, CIFAR, FASHION, EMNIST, CIFAR]
GROUPED = [FASHION, *((data, "resnet18", 0.0125, 32) for data in ("cifar10", "mnist")), EMNIST, EMNIST]


def skewed(share: float) -> dict:
    sizes = {"low": [9, 15], "high": [90, 150], "high_share": 0.1}
    return {"kind": "label-share", "share": share, "sizes": sizes}


def shared(kind: str, low: int, high: int, **options: int) -> dict:
    return {"kind": kind, **options, "sizes": [low, high], "disjoint": False}


def clusters(consistent: bool) -> dict:
    return {"kind": "clusters", "clusters": 5, "consistent": consistent, "sizes": [30, 40]}


ROLES = {"kind": "natural", "cap": 64}
CLASSES = shared("classes", 150, 250, classes=5)
TRAINING = {  # the tasks, and how the data of each is divided
    "table1-3tasks": ([SWEPT] * 3, [skewed(0.3)] * 3),
    "fig2-processors": ([SWEPT] * 3, [skewed(0.3)] * 3),
    "table1-5tasks": (SWEPT_FIVE, [skewed(0.3)] * 4 + [ROLES]),
    "poster": ([SWEPT] * 5, [skewed(0.3)] * 3 + [skewed(0.4)] * 2),
    "fair-exp1": ([MNIST, CIFAR, FASHION], [CLASSES] * 3),
    "fair-exp2": (FIVE * 2, [shared("iid", 400, 600)] * 10),
    "fair-exp3": (FIVE, [shared("iid", 200, 300)] * 5),
    "fair-exp4": (FIVE, [shared("iid", 400, 600)] * 5),
    "fair-fig4": ([MNIST, CIFAR, FASHION, EMNIST], [CLASSES] * 4),
    "auction-exp6": ([MNIST, CIFAR], [shared("iid", 150, 250)] * 2),
    "group-consistent": (GROUPED, [clusters(True)] * 5),
    "group-inconsistent": (GROUPED, [clusters(False)] * 5),
    "group-new-clients": (GROUPED, [clusters(True)] * 5),
    "group-new-tasks": (GROUPED, [clusters(True)] * 5),
}


def test_every_preset_that_trains_has_the_data_models_rates_and_partitions_of_its_paper():
    assert set(TRAINING) == {name for name in TRAINED if not find(name).runs}
    for name, (tasks, partitions) in TRAINING.items():
        found = find(name).table()["task"]
        keys = ("data", "model", "learning_rate", "batch_size")
        assert [tuple({"batch_size": 32, **task}[key] for key in keys) for task in found] == tasks, name
        assert [task["partition"] for task in found] == partitions, name
        assert {task.local_epochs for task in experiment(name).tasks} == {5}


def test_as_many_clients_take_part_and_seeds_are_run_as_in_the_papers():
    some = {"poster": (120, None, 12), "fair-exp1": (120, 0.35, None), "fair-exp3": (120, 0.25, None)}
    some |= {"fair-fig4": (120, 0.35, None), "auction-exp6": (100, 1, None)}
    some |= dict.fromkeys(["table1-3tasks", "table1-5tasks"], (120, None, 12))
    some |= {"fig2-processors": (120, 0.1, None)}
    some |= dict.fromkeys(["fair-exp2", "fair-exp4"], (20, 1, None))
    for name, wanted in some.items():
        people = experiment(name).population
        assert (people.clients, people.rate, people.jobs) == wanted, name
    seeds = {name: find(name).seeds for name in names()}
    others = {"fig3": 1, "auction-exp5": 100}
    assert seeds == {name: others.get(name, 5) for name in names()}


def drawn(name: str, participation: str, aggregation: str, **options: object) -> dict:
    return {"name": name, "participation": participation, "aggregation": aggregation, **options}


FIRST = drawn("random", "processors", "unbiased")
SECOND = [drawn(name, "clients", "weighted") for name in ("random", "round-robin")]
THIRD = [drawn(name, "clients", "mean") for name in ("random", "round-robin")]
FAIRLY = drawn("fedfairmmfl", "clients", "weighted", alpha=3, measure="auto")  # all are accuracies: by error
Q_FFL = drawn("q-ffl", "clients", "weighted", q=2)
ALPHAS = [{**FAIRLY, "alpha": alpha} for alpha in (1, 2, 3, 4, 5, 8)]
OURS = ["mmfl-optimal-stale", "mmfl-forecast", {"name": "mmfl-forecast", "report_share": 1.0}]
TABLE_ONE = ["fedvarp", "mifa", "scaffold", FIRST, "full", "mmfl-gvr", "mmfl-lvr", "mmfl-gvr*", *OURS]
METHODS = {  # with what matters of their options, and the baseline
    "table1-3tasks": (TABLE_ONE, "full"),
    "table1-5tasks": (TABLE_ONE, "full"),
    "fig2-processors": (TABLE_ONE, "full"),
    "fig5": (
        [
            {"name": "mmfl-fairvr", "alpha": 3, "measure": "loss"},
            drawn("fedfairmmfl", "processors", "unbiased", alpha=3, measure="loss"),
            FIRST,
        ],
        "random",
    ),
    "poster": (["mmfl-gvr", FIRST, drawn("round-robin", "processors", "unbiased")], "random"),
    "fair-exp1": ([FAIRLY, *SECOND, Q_FFL], "random"),
    "fair-exp2": ([FAIRLY, *SECOND], "random"),
    "fair-exp3": ([FAIRLY, *SECOND], "random"),
    "fair-exp4": ([*ALPHAS, *SECOND], "random"),
    "fair-fig4": ([FAIRLY, Q_FFL], "q-ffl"),
    "auction-exp6": ([FAIRLY], "fedfairmmfl"),
    **dict.fromkeys(
        ["group-consistent", "group-new-clients", "group-new-tasks"],
        ([{"name": "mmfl-group", "structure": "consistent"}, *THIRD], "random"),
    ),
    "group-inconsistent": ([{"name": "mmfl-group", "structure": "inconsistent"}, *THIRD], "random"),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_draw_and_average_as_in_their_paper(name):
    design = Design.make(find(name).table(), name, seeds=[0])
    wanted, baseline = METHODS[name]
    assert design.baseline == baseline
    for cell, options in zip(design.cells, wanted, strict=True):
        options = {"name": options} if isinstance(options, str) else options
        method = Experiment.model_validate(design.experiments()[cell.name]).method
        assert {key: getattr(method, key) for key in options} == options, cell.label


BUDGETS = sorted({*range(5, 101, 5), 29} - {30})
COMPARED = [
    *("max-min-fair", "budget-fair", "budget-fair-as-published"),
    *("gmm-fair", "greedy-within-budget", "random-within-budget"),
]
BIDS = [{"kind": "normal", "mean": 0.2, "std": 0.2}, {"kind": "linear"}]
PRICES = {"posted-price": 0.45, "posted-price 0.4": 0.4, "posted-price 0.6": 0.6}  # the paper's, and ours


def test_auctions_have_the_bids_and_the_budget_of_the_second_paper():
    wanted = Auction(users=100, mechanisms=COMPARED, bids=BIDS, budgets=BUDGETS, prices=[0.4, 0.6])
    assert find("auction-exp5").auction == wanted
    for name, table in tables(find("auction-exp6")).items():
        assert table["recruitment"]["bids"] == BIDS
        assert table["recruitment"]["budget"] == PRICES.get(name, 29)


def test_the_figures_of_the_second_paper_and_of_the_reference_for_its_auctions():
    paper = {
        "random": ((0.789, 0.450), (0.748, 0.386)),
        "round-robin": ((0.782, 0.453), (0.758, 0.406)),
        "fedfairmmfl": ((0.783, 0.475), (0.754, 0.452)),
    }
    wanted = {"average": {}, "minimum": {}}
    for method, by_tasks in paper.items():
        for tasks, figures in zip((6, 10), by_tasks):
            for measure, value in zip(wanted, figures):
                wanted[measure][f"{method}, {tasks} tasks"] = value
    assert figures_of("fair-exp2") == wanted
    reference = {  # minimum, difference
        "budget-fair, budget 10": (13.3, 17.5),
        "max-min-fair, budget 10": (18.9, 0.3),
        "gmm-fair, budget 10": (24.3, None),
        "greedy-within-budget, budget 10": (17.3, 25.6),
        "budget-fair, budget 29": (27.4, 27.4),
        "max-min-fair, budget 29": (37.0, 0.2),
        "gmm-fair, budget 29": (48.5, None),
        "greedy-within-budget, budget 29": (35.8, 40.1),
        "greedy-within-budget, budget 60": (58.4, None),
        "max-min-fair, budget 60": (58.2, None),
    }
    for budget in (10, 29, 60):
        reference |= {f"posted-price 0.4, budget {budget}": (16.2, 64.7)}
        reference |= {f"posted-price 0.6, budget {budget}": (36.5, 60.7)}
    assert figures_of("auction-exp5") == {
        "take-up-minimum": {row: least for row, (least, _) in reference.items()},
        "take-up-difference": {row: gap for row, (_, gap) in reference.items() if gap is not None},
    }
    assert find("auction-exp5").theirs == "reference"
    assert figures_of("fig2") == {"relative": {"mmfl-gvr*": 0.96}}


def figures_of(name: str) -> dict[str, dict[str, float]]:
    return {
        measure: {row: figure.value for row, figure in rows.items()}
        for measure, rows in find(name).figures.items()
    }


GROUP, BOTH = "mmfl-group", ["random", "round-robin"]
JOIN, STAY = "clients join", "nobody joins"
FIG_2 = [
    ("relative", "mmfl-gvr*", ["random"], {"by": 0.182}),  # 0.960 - 0.778
    ("relative", "mmfl-lvr", ["mmfl-gvr"], {"by": 0.019}),  # 0.912 - 0.893
]
CLAIMS = {
    "fig2": FIG_2,
    "fig2-processors": FIG_2,
    "fig5": [
        ("minimum", "mmfl-fairvr", ["fedfairmmfl"], {"by": 0.037}),
        ("minimum", "mmfl-fairvr", ["fedfairmmfl", "random"], {}),
        ("relative-minimum", "mmfl-fairvr", ["random"], {"by": 0.338}),
        ("average", "mmfl-fairvr", ["fedfairmmfl", "random"], {"within": 0.03}),
    ],
    "poster": [("relative", "mmfl-gvr", BOTH, {"by": 0.3})],
    "fair-exp4": [
        ("share@emnist", "alpha 1", ["random"], {"within": 0.03}),
        ("share@emnist", "alpha 8", ["alpha 1"], {"by": 0.6}),
    ],
    "fair-fig4": [
        ("minimum", "fedfairmmfl, 3 tasks", ["q-ffl, 3 tasks"], {}),
        ("minimum", "fedfairmmfl, 4 tasks", ["q-ffl, 4 tasks"], {}),
        ("task@emnist", "fedfairmmfl, 4 tasks", ["q-ffl, 4 tasks"], {"by": 0.1}),
    ],
    "group-consistent": [
        ("average", GROUP, BOTH, {}),
        ("average", GROUP, BOTH, {"by": 0.1}),
        ("after@600", GROUP, BOTH, {}),
    ],
    "group-inconsistent": [
        ("average", GROUP, BOTH, {}),
        *(
            (f"task@{task}", GROUP, BOTH, {"by": 0.04})
            for task in ("fashion-mnist", "cifar10", "mnist", "emnist-a", "emnist-b")
        ),
        ("after@600", GROUP, BOTH, {}),
    ],
    "group-new-clients": [
        ("average", f"{GROUP}, {JOIN}", [f"{GROUP}, {STAY}"], {}),
        *(("average", f"{one}, {JOIN}", [f"{one}, {STAY}"], {"at_most": 0.02}) for one in BOTH),
        ("average", f"{GROUP}, {JOIN}", [f"{one}, {JOIN}" for one in BOTH], {}),
    ],
    "group-new-tasks": [("average", GROUP, BOTH, {})],
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_asks_for_as_much_as_the_paper_states(name):
    found = [(claim.measure, claim.of, claim.over, margins(claim)) for claim in find(name).claims]
    assert found == CLAIMS[name]


def margins(claim: Claim) -> dict[str, float]:
    kinds = {"by": claim.by or None, "within": claim.within, "at_most": claim.at_most}
    return {kind: margin for kind, margin in kinds.items() if margin is not None}


@pytest.mark.parametrize("quick", [False, True])
def test_clients_join_in_one_variant_and_nobody_in_the_other_with_all_else_equal(quick):
    preset, there, rest = find("group-new-clients"), {}, []
    for variant, design in designs(preset, Choice(quick=quick))[0]:
        made = Experiment.model_validate(design.table)
        people, arrivals = made.population, made.arrivals
        assert people.start == 24
        for seed in range(preset.seeds):
            who = Presence(people.clients, [], seed, people.start, made.events, arrivals, None, None)
            there.setdefault(variant.name, []).append(int(who.at(made.rounds - 1)[0].sum()))
        rest.append({key: value for key, value in design.table.items() if key != "arrivals"})
    assert set(there["nobody joins"]) == {24}
    assert all(24 < number <= 60 for number in there["clients join"])
    assert np.mean(there["clients join"]) > 42
    assert rest[0] == rest[1]


# --quick


@pytest.mark.parametrize("name", TRAINED)
def test_a_small_version_is_sound_small_and_says_what_it_changed(name):
    table = find(name).table()
    before = copy.deepcopy(table)
    small, told = smaller(table)
    assert table == before
    assert small is not table
    here = {one.name for one in known().values() if one.copy()}
    assert {task["data"] for task in small["task"]} <= here
    assert (small["rounds"], small["evaluation"]["samples"]) == (ROUNDS, SAMPLES)
    assert f"{ROUNDS} rounds for {table['rounds']}" in told
    assert f"{EPOCHS} local epochs" in told
    assert len(told) == len(set(told))
    for was, task in zip(table["task"], small["task"], strict=True):
        assert task["local_epochs"] == EPOCHS
        assert task["model"] == "cnn-small"
        assert f"cnn-small for {was['model']}" in told
        assert (task["data"] == was["data"]) == (f"{task['data']} for {was['data']}" not in told)
        sizes = task["partition"]["sizes"]
        ranges = [sizes["low"], sizes["high"]] if isinstance(sizes, dict) else [sizes]
        assert all(1 <= low <= high <= POINTS for low, high in ranges)
        assert task["partition"]["disjoint"] is False
    for table in tables(find(name).model_copy(update={"experiment": small, "runs": None})).values():
        assert Design.make(table, name, seeds=[0]).experiments()


def test_data_that_is_missing_has_a_stand_in_and_data_that_is_there_stays():
    table = find("table1-5tasks").table()
    absent = missing(table)
    assert {"cifar10", "emnist", "shakespeare"} <= set(absent)
    assert absent == sorted(absent)
    assert ("fashion-mnist" in absent) is not DEBIAN.is_dir()
    small, told = smaller(table)
    fashion = "fashion-mnist" if DEBIAN.is_dir() else SAMPLE
    assert [task["data"] for task in small["task"]] == [fashion, fashion, SAMPLE, "digits", "digits"]
    assert {f"{SAMPLE} for cifar10", "digits for emnist", "digits for shakespeare"} <= set(told)
    assert small["task"][4]["partition"]["kind"] == "label-share"  # the digits have no owners
    table = copy.deepcopy(table)
    put(table, f"task.data={SAMPLE}")
    assert missing(table) == []
    there, told = smaller(table)
    assert {task["data"] for task in there["task"]} == {SAMPLE}
    assert not [line for line in told if line.startswith((SAMPLE, "digits"))]


def test_text_that_is_there_keeps_its_owners_and_has_a_small_lstm(monkeypatch):
    monkeypatch.setattr("fedmux.reproduce.quick.missing", lambda _table: [])
    small, told = smaller(find("table1-5tasks").table())
    text = small["task"][4]
    assert (text["data"], text["model"], text["learning_rate"]) == ("shakespeare", "char-lstm", 1.0)
    assert text["partition"] == {"kind": "natural", "cap": POINTS}
    assert text["model_options"]["hidden"] < 64
    assert "a small LSTM" in told
    Experiment.model_validate(small)


def test_what_happens_in_certain_rounds_happens_as_early_as_there_are_fewer():
    assert [event["round"] for event in smaller(find("group-new-tasks").table())[0]["event"]] == [3, 6]
    arrivals = smaller(find("group-new-clients").table())[0]["arrivals"]
    assert arrivals == {"mean_wait": pytest.approx(10 * ROUNDS / 120), "clients": 3}


def test_few_points_stay_as_they_are_and_many_are_capped():
    sizes = smaller(find("table1-3tasks").table())[0]["task"][0]["partition"]["sizes"]
    assert sizes == {"low": [9, 15], "high": [POINTS, POINTS], "high_share": 0.1}
    assert smaller(find("fair-exp1").table())[0]["task"][0]["partition"] == {
        "kind": "classes",
        "classes": 5,
        "sizes": [POINTS, POINTS],
        "disjoint": False,
    }


def test_an_experiment_of_few_rounds_keeps_them():
    table = copy.deepcopy(find("group-new-clients").table())
    table["rounds"] = 6
    small, _ = smaller(table)
    assert small["rounds"] == 6
    assert small["arrivals"]["mean_wait"] == table["arrivals"]["mean_wait"]


def test_the_presets_are_part_of_the_package():
    packed = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())
    patterns = packed["tool"]["setuptools"]["package-data"]["fedmux"]
    assert "reproduce/presets/*" in patterns
