"""How well the groups of mmfl-group match the true clusters of clients, over the rounds.

    python benchmarks/group_index.py [--rounds 40] [--seeds 3]

The setting of Gong et al. on the embedded Fashion-MNIST sample: five tasks, 30 clients, five true clusters
with a fifth of the labels each, the same for all tasks (consistent) or drawn for each (inconsistent). Prints
the adjusted Rand index of each C-step against the clusters of the task that it clustered by.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import fedmux


def experiment(structure: str, rounds: int, seed: int) -> fedmux.Experiment:
    partition = {
        "kind": "clusters",
        "clusters": 5,
        "consistent": structure == "consistent",
        "sizes": [30, 40],
    }
    tasks: list[dict[str, Any]] = [
        {
            "name": f"clothes-{number}",
            "data": "fashion-mnist-sample",
            "model": "cnn-small" if number < 3 else "mlp",
            "learning_rate": 0.05,
            "partition": partition,
        }
        for number in range(5)
    ]
    return fedmux.Experiment(
        rounds=rounds,
        seed=seed,
        method={"name": "mmfl-group", "structure": structure},
        population={"clients": 30, "rate": 1 / 6},
        task=tasks,
        evaluation={"every": rounds},
    )


def clustered_index(step: dict[str, Any]) -> float:
    """The index against the clusters of the first task whose losses the C-step used."""
    column = next(s for s, value in enumerate(step["centroids"][0]) if value is not None)
    return list(step["rand_index"].values())[column]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for structure in ("consistent", "inconsistent"):
        for seed in range(arguments.seeds):
            with tempfile.TemporaryDirectory() as folder:
                run = fedmux.run(experiment(structure, arguments.rounds, seed), Path(folder) / "run")
                steps = [entry for entry in run.metrics if "groups" in entry.allocation]
            seen = [(entry.round, clustered_index(entry.allocation)) for entry in steps]
            print(f"{structure}, seed {seed}: " + ", ".join(f"round {n}: {index:.2f}" for n, index in seen))


if __name__ == "__main__":
    main()
