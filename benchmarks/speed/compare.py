"""fedmux beside its peers on a CPU: the same work, each engine in a process of its own, one after the other.

    .venv-bench/bin/python benchmarks/speed/compare.py [--models cnn] [--clients 12] [--limit 60]

Every cell (a model and a number of clients) runs all engines in turn, twice, and takes the median of a round.
Where others use the machine, wall-clock ratios are luck: those by CPU time stand beside them, and the share
of the GEMM peak is by CPU time on both sides.
A one-client probe of the eager loop predicts how long an engine will take; over the limit, the cell has fewer
clients and says so. An engine that is not installed, fails or does other work is left out with a line of
notice. The results go to benchmarks/results/.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from machine import cores, describe, slug
from work import MODELS, TOLERANCE, Work

HERE = Path(__file__).parent
# Scripts with their own options. fedmux comes last, once on one core as the others and once on all.
ENGINES: list[tuple[str, dict[str, object]]] = [
    ("eager_loop", {}),
    ("module_copy", {}),
    ("pfl_engine", {}),
    ("fedjax_engine", {}),
    ("flower_engine", {}),
    ("fedmux_engine", {}),
    ("fedmux_engine", {"workers": cores()}),
]
STEPS, BATCH = 5, 16
ENVIRONMENT = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "OMP_NUM_THREADS": "1"}

Result = dict[str, Any]


class Failed(Exception):
    """An engine gave no result; the message says why in one line."""


def run(script: str, limit: float, **options: object) -> Result:
    """The line of JSON that a script prints."""
    command = [sys.executable, str(HERE / f"{script}.py")]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    try:
        done = subprocess.run(
            command, env=ENVIRONMENT | os.environ, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"no result within {limit:.0f} s") from None
    if done.returncode:
        raise Failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def plan(second_per_client: float, clients: int, limit: float) -> tuple[int, int]:
    """How many clients fit the limit in two rounds, and how many rounds to time: a quarter of the limit."""
    clients = min(clients, max(1, int(limit / (2 * second_per_client))))
    return clients, max(1, min(10, int(limit / 4 / (second_per_client * clients))))


class Comparison:
    def __init__(self, limit: float, repetitions: int) -> None:
        self.limit, self.repetitions = limit, repetitions
        self.skipped: dict[tuple[str, str], str] = {}

    def cells(self, model: str, counts: list[int]) -> Iterator[list[Result]]:
        """The rows of each cell."""
        common = {"model": model, "steps": STEPS, "batch": BATCH}
        probe = run("eager_loop", 600, clients=1, rounds=3, **common)
        seen: set[int] = set()
        for requested in counts:
            clients, rounds = plan(median(probe["seconds"]), requested, self.limit)
            if clients in seen:
                print(f"{model}, {requested} clients: would be reduced to {clients}, which has been run")
                continue
            seen.add(clients)
            results = self._alternate(model, common | {"clients": clients, "rounds": rounds})
            yield [result | {"requested": requested, "reduced": clients < requested} for result in results]

    def _alternate(self, model: str, options: dict[str, object]) -> list[Result]:
        """Each engine's result, the seconds of all its repetitions together."""
        results: dict[str, Result] = {}
        for repetition in range(self.repetitions):
            for script, own in ENGINES:
                engine = " ".join([script, *map(str, own.values())])
                if (engine, model) in self.skipped or (repetition and engine not in results):
                    continue
                try:
                    result = run(script, 60 + 10 * self.limit, **options, **own)
                    self._same_work(result, results)
                except Failed as failure:
                    self.skipped[engine, model] = str(failure)
                    results.pop(engine, None)
                    print(f"{model}, {options['clients']} clients: {engine} left out: {failure}")
                    continue
                if engine in results:
                    for key in ("seconds", "cpu_seconds"):
                        result[key] = results[engine][key] + result[key]
                results[engine] = result
        return list(results.values())

    def _same_work(self, result: Result, results: dict[str, Result]) -> None:
        expected = results.get("eager_loop", result)["check"]
        if not abs(result["check"] - expected) <= TOLERANCE * expected:
            raise Failed(f"other work: its update has norm {result['check']:.6g}, not {expected:.6g}")


def finish(cell: list[Result], gemm_gflops: float) -> list[Result]:
    """Rates, ratios and shares of a cell's rows, the fastest first."""
    for row in cell:
        steps = row["clients"] * row["steps"]
        row["client_steps_per_second"] = steps / median(row["seconds"])
        row["client_steps_per_cpu_second"] = None
        if row["cpu_seconds"]:
            row["client_steps_per_cpu_second"] = steps / median(row["cpu_seconds"])
    engines = {row["engine"]: row for row in cell}
    for row in cell:
        for other in ("eager-loop", "fedmux"):
            for prefix, rate in (("", "client_steps_per_second"), ("cpu_", "client_steps_per_cpu_second")):
                base = engines.get(other, {}).get(rate)
                ratio = row[rate] / base if row[rate] and base else None
                row[f"{prefix}ratio_to_{other.replace('-', '_')}"] = ratio
        best_known = row["client_steps_per_cpu_second"] or row["client_steps_per_second"]
        row["gflops"] = best_known * Work(row["model"], 1, 1, row["batch"]).flops() / 1e9
        row["share_of_gemm"] = row["gflops"] / gemm_gflops / row.get("threads", 1)
    return sorted(cell, key=lambda row: -row["client_steps_per_second"])


def line(row: Result) -> str:
    """What is printed of a row as soon as it is known."""
    text = (
        f"{row['model']}, {row['clients']} clients, {row['engine']}: "
        f"{row['client_steps_per_second']:.2f} client-steps/s, "
        f"{row['ratio_to_eager_loop']:.2f} x the eager loop"
    )
    if row["cpu_seconds"]:
        text += (
            f" ({row['cpu_ratio_to_eager_loop']:.2f} x by CPU time; "
            f"it had {median(row['cpu_seconds']) / median(row['seconds']):.0%} of its core)"
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--clients", nargs="+", type=int, default=[12, 120, 1000])
    parser.add_argument(
        "--limit", type=float, default=60, help="seconds that two rounds of an engine may take"
    )
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--output", type=Path, help="instead of benchmarks/results/DATE-MACHINE.json")
    given = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)

    date = datetime.now(UTC).date().isoformat()
    name = f"{date}-{slug('cpu')}.json"
    path = given.output or HERE.parent / "results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(given.limit, given.repetitions)
    gemm = run("gemm", 600)
    versions: dict[str, str] = {}
    rows: list[Result] = []
    for model in given.models:
        for cell in comparison.cells(model, sorted(given.clients)):
            for row in cell:
                versions |= row.pop("versions")
            for row in finish(cell, gemm["float32"]):
                rows.append(row)
                print(line(row))
            results = {
                "hardware": describe("cpu"),
                "date": date,
                "versions": versions,
                "gemm_gflops": gemm["float32"],
                "limit_seconds": given.limit,
                "skipped": [
                    {"engine": engine, "model": model, "reason": reason}
                    for (engine, model), reason in comparison.skipped.items()
                ],
                "rows": rows,
            }
            path.write_text(json.dumps(results, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
