"""Hand-made histories for tests of charts: small ones, and one as large as they come."""

from pathlib import Path
from typing import Any

import numpy as np

from fedmux.runs.history import History
from fedmux.runs.layout import ALLOCATION
from fedmux.runs.rounds import Failure, OverTasks, Round
from fedmux.runs.state import FINISHED

QUANTILES = ("minimum", "p10", "p25", "median", "p75", "p90", "maximum")


def line(round: int, /, tasks: dict[str, Any] | None = None, **figures: Any) -> Round:
    """A round as a log has it."""
    found = Round.read({"round": round, "tasks": tasks or {}, **figures})
    assert found is not None
    return found


def entry(round: int, **tasks: dict[str, Any]) -> Round:
    """A round's figures; the mean over tasks follows from those given."""
    found = line(round, tasks)
    if scores := [values["accuracy"] for values in tasks.values() if "accuracy" in values]:
        found.progress = OverTasks(float(np.mean(scores)), min(scores), float(np.var(scores)))
    return found


def history(metrics: list[Round], **changes: Any) -> History:
    """A finished run of two tasks unless told otherwise; jobs as (round, client, task, count)."""
    jobs, population = changes.pop("jobs", []), changes.pop("population", {})
    method = changes.get("method", "random")
    values: dict[str, Any] = {
        "path": Path(changes.get("name", "run")),
        "name": "small",
        "label": method,
        "tasks": ["a", "b"],
        "rounds": metrics[-1].round if metrics else 0,
        "state": FINISHED,
        "metrics": metrics,
        "summary": {},
    }
    made = History(**{**values, "method": method, **changes})
    made.population = population  # type: ignore[misc]
    records = np.zeros(len(jobs), ALLOCATION)
    for row, job in enumerate(jobs):
        records["round"][row], records["client"][row], records["task"][row], records["count"][row] = job
    made.allocation = records  # type: ignore[misc]
    return made


def people(clients: int, tasks: int = 2, **more: np.ndarray) -> dict[str, np.ndarray]:
    """A population in which everybody has everything."""
    return {
        "capacity": np.ones(clients, np.int64),
        "sizes": np.full((clients, tasks), 10),
        "eligible": np.ones((clients, tasks), bool),
        **more,
    }


def enormous(
    method: str = "full", *, rounds: int = 10_000, clients: int = 100_000, tasks: int = 5, seed: int = 0
) -> History:
    """Every figure that a round can have, for every chart there is."""
    rng = np.random.default_rng(seed)
    names = [f"a-task-with-quite-a-long-name-{s}" for s in range(tasks)]
    spread = dict(zip(QUANTILES, np.linspace(0.01234567, 0.98765432, len(QUANTILES)).tolist()))
    metrics = []
    for round in range(rounds + 1):
        noise = rng.random(tasks).tolist()
        one = {
            name: {
                "accuracy": x,
                "loss": 3 * x + 0.1,
                "step_size": 2 * x,
                "jobs": int(100 * x),
                "uploads": int(90 * x) + 1,
                "gradient_steps": int(900 * x) + 1,
                "clients": {key: value * x for key, value in spread.items()},
            }
            for name, x in zip(names, noise)
        }
        made = entry(round, **one)
        made.probability = {name: {k: v * x for k, v in spread.items()} for name, x in zip(names, noise)}
        made.saturated, made.clients, made.dropped = int(50 * noise[0]), clients - round, int(20 * noise[0])
        made.events = {"joined": [1, 2, 3], "left": [4], "tasks_joined": names[:1] * (round % 500 == 7)}
        made.failures = [Failure("7", "a", "train", ("late", "lost", "raised")[round % 3], "no answer")]
        made.allocation = {"forecast_error": {"norm": noise, "cosine": noise}}
        made.phases = dict(zip(("signals", "plan", "train", "evaluate"), noise))
        metrics.append(made)
    for round in (1, rounds // 2, rounds):
        groups = rng.integers(-1, 6, clients)
        plane = (rng.normal(size=(clients, 2)) + groups[:, None]).tolist()
        metrics[round].allocation |= {"groups": groups.tolist(), "plane": plane}
        metrics[round].allocation["rand_index"] = dict.fromkeys(names, 0.5)
    labels = {f"labels.{name}": rng.integers(0, 30, (clients, 20)) for name in names}
    cluster = np.repeat(rng.integers(0, 6, (clients, 1)), tasks, axis=1)
    big = history(
        metrics,
        method=method,
        seed=seed,
        tasks=names,
        population=people(
            clients, tasks, cluster=cluster, award_payment=rng.random((clients, tasks)), **labels
        ),
        summary={"recruitment": {"take_up": dict.fromkeys(names, 12.5), "paid": 3.0, "budget": 4.0}},
    )
    jobs = np.zeros(20 * rounds, ALLOCATION)
    jobs["round"] = np.repeat(np.arange(1, rounds + 1), 20)
    jobs["client"] = (clients * rng.random(len(jobs)) ** 3).astype(int)
    jobs["task"], jobs["count"] = rng.integers(0, tasks, len(jobs)), 1
    big.allocation = jobs  # type: ignore[misc]
    return big
