"""Where methods must coincide, how they rank where theory ranks them, and what each of them costs."""

import numpy as np
import pytest

import fedmux
from conftest import experiment_of, files, table
from fedmux.experiment import Experiment
from fedmux.fleet import simulated
from fedmux.methods import find
from fedmux.population import Population
from fedmux.training.assembly import assemble
from quadratics import Quadratics


def run(folder, **changes) -> fedmux.Run:
    return fedmux.run(experiment_of(**changes), folder)


def parameters(run: fedmux.Run, task: str = "a") -> np.ndarray:
    return np.concatenate([value.numpy().ravel() for value in run.model(task).values()])


@pytest.mark.parametrize(
    "method",
    [
        {"name": "mmfl-gvr", "mixing": 0.0, "floor": 0.0},
        {"name": "mmfl-lvr", "mixing": 0.0, "floor": 0.0},
        {"name": "optimal-client-sampling", "mixing": 0.0, "floor": 0.0},
        {"name": "mmfl-gvr"},
        {"name": "random"},
        {"name": "full"},
        {"name": "fedvarp"},
        {"name": "fedprox", "mu": 0.0},
        {"name": "sequential"},
    ],
    ids=lambda method: "-".join(map(str, method.values())),
)
def test_one_task_one_processor_and_everybody_is_fedavg(method, tmp_path):
    alone = {
        "rounds": 3,
        "task": table()["task"][:1],
        "population": {"clients": 12, "rate": 1.0, "processors": 1, "availability": 1.0},
    }
    fedavg = run(tmp_path / "fedavg", method="fedavg", **alone)
    assert all(entry["tasks"]["a"]["jobs"] == 12 for entry in fedavg.metrics[1:])
    other = run(tmp_path / "other", method=method, **alone)
    assert parameters(other) == pytest.approx(parameters(fedavg), abs=1e-6)
    shorter = run(tmp_path / "shorter", method="fedavg", **{**alone, "rounds": 2})
    assert np.abs(parameters(shorter) - parameters(fedavg)).max() > 1e-3  # a round is felt


@pytest.mark.parametrize("method", ["mmfl-gvr", "mmfl-stale", "mmfl-optimal-stale"])
def test_keeping_updates_or_computing_them_twice_makes_no_difference(method, tmp_path, monkeypatch):
    run(tmp_path / "kept", method=method)
    monkeypatch.setattr(simulated, "KEEP_BYTES", 0)
    run(tmp_path / "twice", method=method)
    assert files(tmp_path / "kept") == files(tmp_path / "twice")


class Counts:
    """What a round of an experiment must cost, from its population and its log alone."""

    def __init__(self, experiment: Experiment, log: np.ndarray) -> None:
        setting = assemble(experiment)
        self.people, self.log = setting.population, log
        self.size = [64 * 8 + 8 + 8 * 10 + 10] * 2  # an 8 x 8 picture, 8 hidden units, 10 classes
        assert [task.layout.size for task in setting.tasks] == self.size

    def batches(self, pairs: np.ndarray, task: int) -> int:
        return int(sum(-(-int(n) // 32) for n in self.people.sizes[pairs[:, task], task]))

    def drawn(self, number: int) -> np.ndarray:
        rows = self.log[self.log["round"] == number]
        pairs = np.zeros(self.people.available.shape, bool)
        pairs[rows["client"], rows["task"]] = True
        return pairs


@pytest.mark.parametrize(
    "method", ["mmfl-gvr", "mmfl-lvr", "random", "full", "mmfl-stale", "mmfl-optimal-stale"]
)
def test_costs_are_what_a_count_by_hand_gives(method, tmp_path):
    changes = table(method=method, rounds=3)
    for task in changes["task"]:
        task["local_epochs"] = 2
        task["partition"]["sizes"] = [5, 70]  # one to three batches
    experiment = experiment_of(**changes)
    finished = fedmux.run(experiment, tmp_path / "run")
    by_hand = Counts(experiment, finished.allocation)
    everybody = by_hand.people.available
    seen = np.zeros(everybody.shape, bool)
    for entry in finished.metrics[1:]:
        drawn = by_hand.drawn(entry["round"])
        seen |= drawn
        for task, name in enumerate("ab"):
            uploads = int(drawn[:, task].sum())
            scalars = {"mmfl-optimal-stale": 2, "random": 0, "full": 0}.get(method, 1)
            reports = scalars * int(everybody[:, task].sum())
            trained = everybody if method in ("mmfl-gvr", "mmfl-stale", "mmfl-optimal-stale") else drawn
            kept = 4 * int(seen[:, task].sum()) + 8 if "stale" in method else 0
            wanted = {
                "jobs": int(
                    finished.allocation["count"][
                        (finished.allocation["round"] == entry["round"])
                        & (finished.allocation["task"] == task)
                    ].sum()
                ),
                "uploads": uploads,
                "reports": reports,
                "upload_bytes": 4 * uploads * by_hand.size[task] + 4 * reports,
                "gradient_steps": 2 * by_hand.batches(trained, task),
                "forward_passes": by_hand.batches(everybody, task) if method == "mmfl-lvr" else 0,
                "server_bytes": kept * by_hand.size[task],
            }
            assert {key: entry["tasks"][name][key] for key in wanted} == wanted
            if method == "full":
                assert uploads == everybody[:, task].sum()
    totals = finished.summary["totals"]
    for cost in ("uploads", "reports", "upload_bytes", "gradient_steps", "forward_passes"):
        assert totals[cost] == sum(e["tasks"][name][cost] for e in finished.metrics[1:] for name in "ab")


def toy(seed: int) -> Quadratics:
    """60 clients of very unequal data, 3 models, points far apart."""
    rng = np.random.default_rng(seed)
    shape = (60, 3, 5)
    sizes = np.maximum(1, rng.lognormal(3.0, 1.2, shape[:2]).astype(int))
    eligible = rng.random(shape[:2]) < 0.9
    eligible[:3] = True
    people = Population(rng.integers(1, 4, 60), sizes, eligible)
    return Quadratics(
        people, rng.uniform(0.5, 1.5, shape), rng.normal(0, 3, shape), rate=0.05, steps=3, noise=0.3
    )


def test_less_variance_means_less_error_in_the_order_that_theory_gives():
    names = (
        "full",
        "mmfl-stale",
        "mmfl-gvr*",
        "mifa",
        "fedvarp",
        "scaffold",
        "mmfl-gvr",
        "mmfl-lvr",
        "random",
    )
    error = {}
    for name in names:
        method = find(name)()
        history = toy(0).errors(method.allocator(), method.aggregator(), rounds=450, jobs=9.0)
        error[name] = float(history[-150:].mean())
    remembering = [error[name] for name in names[1:6]]
    assert 2 * error["full"] < min(remembering), error
    assert 4 * max(remembering) < min(error["mmfl-gvr"], error["mmfl-lvr"]), error
    assert 1.5 * max(error["mmfl-gvr"], error["mmfl-lvr"]) < error["random"], error
    assert max(error["mmfl-stale"], error["mmfl-gvr*"]) < error["fedvarp"], error
