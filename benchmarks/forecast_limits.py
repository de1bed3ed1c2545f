"""Where forecasts lose: the quickstart's setting, made worse in one way after the other.

    python benchmarks/forecast_limits.py [--seeds 3] [--parallel 0] [--only "few rounds"]

Prints the final accuracy of each method, and relative to full participation in the same setting.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS: dict[str, list[str]] = {
    "the quickstart": [],
    "few rounds": ["rounds=12"],
    "every client drawn about once": ["population.jobs=4"],
    "half of the jobs drop out": ["dropout.rate=0.5"],
    "half of the time away": ["absence.kind=cycle", "absence.present=0.5", "absence.period=10"],
    "clients come and go": [
        "population.start=60",
        *("arrivals.mean_wait=0.5", "departures.mean_wait=1.0"),
    ],
    "norms that do not follow losses": ["task.clip=0.2", "task.learning_rate=0.3"],
    "clipped and noised updates": ["task.privacy.clip=1.0", "task.privacy.noise=0.005"],
}
METHODS = (
    '["full", "random", "mmfl-lvr", "mmfl-forecast", {name = "mmfl-forecast", stale = false, label = "%s"}]'
)
LABELS = ["full", "random", "mmfl-lvr", "mmfl-forecast", "mmfl-forecast, no stale updates"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=0)
    parser.add_argument("--only", action="append", choices=SETTINGS)
    arguments = parser.parse_args()
    print(f"| setting | {' | '.join(LABELS)} |")
    print("|---" * (len(LABELS) + 1) + "|")
    for name in arguments.only or SETTINGS:
        found = compared(SETTINGS[name], arguments)
        cells = [f"{found[label]:.1%} ({found[label] / found['full']:.3f})" for label in LABELS]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def compared(overrides: list[str], arguments: argparse.Namespace) -> dict[str, float]:
    """Final accuracy of each method, mean over seeds."""
    sets = ["compare.methods=" + METHODS % LABELS[-1], *overrides]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--seeds", f"0-{arguments.seeds - 1}", "--parallel", str(arguments.parallel), "--json"]
        options += [part for override in sets for part in ("--set", override)]
        command = [sys.executable, "-m", "fedmux", "compare", "examples/quickstart.toml", *options]
        ended = subprocess.run(
            [*command, "--device", "cpu", "-o", str(Path(folder) / "runs")],
            stdout=subprocess.PIPE,
            check=True,
        )
    return {row["label"]: row["accuracy"] for row in json.loads(ended.stdout)}


if __name__ == "__main__":
    main()
