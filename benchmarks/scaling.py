"""How the cost of a round grows with the fleet and with the number of models, jobs a round being the same.

    python benchmarks/scaling.py [--device cpu]

A small perceptron on made-up points, 20 a client, 40 jobs a round. `random` needs nothing from the others;
`mmfl-lvr` asks every client for its loss, which grows with the clients by its nature. Each row is a process
of its own, so that its peak memory is its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

POINTS, ROUNDS = 20, 8
GRID = [(100, 3), (1_000, 3), (10_000, 3), (300, 1), (300, 2), (300, 5), (300, 10)]


def measure(clients: int, tasks: int, method: str, device: str) -> dict[str, object]:
    import numpy as np
    import torch

    import fedmux
    from fedmux.experiment import TaskSettings

    rng = np.random.default_rng(0)
    x = rng.standard_normal((clients * POINTS + 200, 16)).astype(np.float32)
    y = (x[:, :10].argmax(1)).astype(np.int64)
    data = x[:-200], y[:-200], x[-200:], y[-200:]
    described = fedmux.Experiment(
        name="scaling",
        rounds=ROUNDS,
        method=method,
        population={"clients": clients, "jobs": 40},
        tasks=[
            TaskSettings(name=f"task-{s}", data=data, model="mlp", learning_rate=0.05) for s in range(tasks)
        ],
        evaluation={"clients": False},
        execution={"device": device},
    )
    with tempfile.TemporaryDirectory() as folder:
        clock = [entry.seconds for entry in fedmux.run(described, Path(folder) / "run").metrics]
    gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() and device != "cpu" else None
    return {
        "clients": clients,
        "tasks": tasks,
        "method": method,
        "seconds_a_round": round(median(np.diff(clock[2:])), 5),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "gpu_memory_mib": None if gpu is None else gpu >> 20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one", nargs=3, metavar=("CLIENTS", "TASKS", "METHOD"), help="one row, here")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(int(given.one[0]), int(given.one[1]), given.one[2], given.device)))
        return
    for clients, tasks in GRID:
        for method in ("random", "mmfl-lvr"):
            row = ["--one", str(clients), str(tasks), method, "--device", given.device]
            subprocess.run([sys.executable, __file__, *row], check=True)


if __name__ == "__main__":
    main()
