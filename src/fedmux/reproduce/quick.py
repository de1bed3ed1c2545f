"""`--quick`: a preset's experiment at reduced size, to check that it works; its figures mean nothing."""

import copy
from typing import Any

from fedmux.data.sets.fashion_mnist_sample import SAMPLE
from fedmux.data.sources import available

ROUNDS, EPOCHS, POINTS, SAMPLES = 12, 2, 30, 300
STAND_INS = {"cifar10": SAMPLE, "fashion-mnist": SAMPLE, "mnist": "digits", "emnist": "digits"}
SMALL: dict[str, dict[str, Any]] = {
    "cnn": {"model": "cnn-small"},
    "resnet18": {"model": "cnn-small"},
    "char-lstm": {"model_options": {"embedding": 8, "hidden": 32, "layers": 1}},
}


def missing(table: dict[str, Any]) -> list[str]:
    """Data of an experiment that is not on this machine."""
    absent = {row.name for row in available() if row.where in ("missing", "damaged")}
    return sorted(absent.intersection(str(task["data"]) for task in table["task"]))


def smaller(table: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The experiment with fewer rounds, smaller models and less data, and what was changed."""
    table, absent = copy.deepcopy(table), missing(table)
    rounds = table["rounds"]
    table["rounds"] = min(rounds, ROUNDS)
    changes = [
        f"{table['rounds']} rounds for {rounds}",
        f"{EPOCHS} local epochs",
        f"at most {POINTS} points a client, which clients may share",
        f"{SAMPLES} held-out points",
    ]
    for task in table["task"]:
        was = task["model"], task["data"]
        task["local_epochs"] = EPOCHS
        if task["data"] in absent:
            task["data"] = STAND_INS.get(task["data"], "digits")
            changes.append(f"{task['data']} for {was[1]}")
            if task["model"] == "char-lstm":
                task |= {"model": "cnn-small", "learning_rate": 0.05}
                task["partition"] = {"kind": "label-share", "share": 0.3, "sizes": [9, 15]}
        task |= SMALL.get(task["model"], {})
        changes.append(f"{task['model']} for {was[0]}" if task["model"] != was[0] else "")
        changes.append("a small LSTM" if task["model"] == "char-lstm" else "")
        task["partition"] = _capped(task["partition"])
    if "event" in table or "arrivals" in table:
        changes.append("who comes when, in the same proportion")
    for event in table.get("event", []):
        event["round"] = max(2, event["round"] * table["rounds"] // rounds)
    if "arrivals" in table:
        table["arrivals"] = {
            **table["arrivals"],
            "mean_wait": table["arrivals"]["mean_wait"] * table["rounds"] / rounds,
        }
    table["evaluation"] = {**table.get("evaluation", {}), "samples": SAMPLES}
    return table, [line for line in dict.fromkeys(changes) if line]


def _capped(partition: dict[str, Any]) -> dict[str, Any]:
    if partition["kind"] == "natural":
        return {**partition, "cap": min(partition.get("cap", POINTS), POINTS)}
    return {**partition, "sizes": _at_most(partition["sizes"]), "disjoint": False}


def _at_most(sizes: Any) -> Any:
    if isinstance(sizes, dict):
        return {key: _at_most(value) if key != "high_share" else value for key, value in sizes.items()}
    return [min(size, POINTS) for size in sizes]
