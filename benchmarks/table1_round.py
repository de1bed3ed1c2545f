"""Seconds a round in the setting of Table I of Zhang et al.: three Fashion-MNIST tasks, 120 clients, 12 jobs.

    python benchmarks/table1_round.py --device cuda --methods mmfl-gvr mmfl-lvr

Everything that a round does is counted: signals, plan, local training, aggregation, and the evaluation on the
held-out points and on every client's own. The first rounds, which capture graphs, stand apart.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

import fedmux
from fedmux.experiment.mistakes import validated

PARTITION = {
    "kind": "label-share",
    "share": 0.3,
    "sizes": {"low": [9, 15], "high": [90, 150], "high_share": 0.1},
}


def experiment(method: str, given: argparse.Namespace) -> fedmux.Experiment:
    tasks = [
        {
            "name": f"fashion-{name}",
            "data": given.data,
            "model": given.model,
            "learning_rate": 0.05,
            "batch_size": 32,
            "local_epochs": 5,
            "partition": PARTITION,
        }
        for name in "abc"
    ]
    table = {
        "name": "table1",
        "rounds": given.rounds,
        "method": method,
        "population": {
            "clients": 120,
            "jobs": 12,
            "processors": {"all": 0.25, "half": 0.5, "one": 0.25},
            "availability": {"all": 0.9, "all_but_one": 0.1},
        },
        "task": tasks,
        "execution": {"device": given.device, "precision": given.precision},
    }
    return validated(fedmux.Experiment, table, "benchmark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--methods", nargs="+", default=["mmfl-gvr", "mmfl-gvr*", "mmfl-lvr", "random"])
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--data", default="fashion-mnist", help="or fashion-mnist-sample, which is embedded")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    for method in given.methods:
        with tempfile.TemporaryDirectory() as folder:
            run = fedmux.run(experiment(method, given), Path(folder) / "run", notice=print)
            clock = [entry.seconds for entry in run.metrics]
            times = np.diff(clock).tolist()
        first, later = times[: len(times) // 4], times[len(times) // 4 :]
        print(
            json.dumps(
                {
                    "method": method,
                    "precision": given.precision,
                    "seconds_a_round": round(median(later), 4),
                    "largest": round(max(later), 4),
                    "first_rounds_mean": round(sum(first) / len(first), 4),
                    "rounds": given.rounds,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
