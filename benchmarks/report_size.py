"""How long a report of many runs takes, and how large it is.

    python benchmarks/report_size.py [--methods 8] [--seeds 5] [--rounds 150] [--clients 120]

One real run of five tasks, trained here; the others are copies of it under other methods and seeds, with
some noise on their accuracies, since training them all is not what is measured.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import fedmux
from fedmux.report.page import write
from fedmux.runs.history import find

METHODS = ["full", "mmfl-gvr*", "mmfl-gvr", "mmfl-lvr", "mmfl-fairvr", "fedfairmmfl", "random", "round-robin"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--clients", type=int, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs(folder, options.methods, options.seeds, options.rounds, options.clients)
        began = time.perf_counter()
        histories = find([folder])
        write(histories, folder / "report.html", "Many runs")
        seconds, size = time.perf_counter() - began, (folder / "report.html").stat().st_size
        print(
            f"{len(histories)} runs x {options.rounds} rounds x 5 tasks, {options.clients} clients: ", end=""
        )
        print(f"{seconds:.1f} s, {size / 1e6:.1f} MB")


def runs(folder: Path, methods: int, seeds: int, rounds: int, clients: int) -> None:
    """Run folders by method and seed."""
    task = {"data": "digits", "model": "mlp", "learning_rate": 0.1, "local_epochs": 1}
    task |= {"partition": {"kind": "label-share", "share": 0.3, "sizes": [4, 12]}}
    experiment = fedmux.Experiment(
        name="many",
        rounds=rounds,
        method="mmfl-lvr",
        population={"clients": clients, "rate": 0.1},
        task=[{"name": f"task-{letter}", **task} for letter in "abcde"],
    )
    original = fedmux.run(experiment, folder / "original", notice=lambda line: None)
    texts = {path.name: path.read_bytes() for path in original.path.iterdir() if path.is_file()}
    for method in METHODS[:methods]:
        for seed in range(seeds):
            copy = folder / f"{method.strip('*')}{'-stale' * method.endswith('*')}-{seed}"
            copy.mkdir()
            for name, data in texts.items():
                (copy / name).write_bytes(data)
            table = texts["experiment.toml"].decode().replace('name = "mmfl-lvr"', f'name = "{method}"')
            (copy / "experiment.toml").write_text(table.replace("seed = 0", f"seed = {seed}"))
            (copy / "metrics.jsonl").write_text(noisy(texts["metrics.jsonl"].decode(), f"{method}{seed}"))
    for path in sorted(original.path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    original.path.rmdir()


def noisy(metrics: str, seed: str) -> str:
    rng, entries = random.Random(seed), [json.loads(line) for line in metrics.splitlines()]
    for entry in entries:
        for values in [entry["accuracy"], *entry["tasks"].values()]:
            for key in {"accuracy", "mean", "minimum", "loss"} & set(values):
                values[key] *= 1 + 0.05 * rng.gauss(0, 1)
    return "".join(json.dumps(entry) + "\n" for entry in entries)


if __name__ == "__main__":
    main()
