"""Renders results files as a page of Markdown tables: docs/benchmark-results.md, by `make docs`.

Run as `python benchmarks/speed/table.py benchmarks/results/*.json`.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

COLUMNS = {
    "s a round": ("seconds_a_round", "{:,.3f}"),
    "client-steps/s": ("client_steps_per_second", "{:,.4g}"),
    "x eager loop": ("ratio_to_eager_loop", "{:.2f}"),
    "x by CPU time": ("cpu_ratio_to_eager_loop", "{:.2f}"),
    "x fedmux": ("ratio_to_fedmux", "{:.2f}"),
    "of GEMM peak": ("share_of_gemm", "{:.0%}"),
    "MiB": ("peak_memory_mib", "{:,.0f}"),
}


def render(results: dict[str, Any]) -> str:
    rows = [
        row
        | {
            "seconds_a_round": median(row["seconds"]),
            "peak_memory_mib": row["peak_memory_bytes"] / 2**20,
        }
        for row in results["rows"]
    ]
    shown = {
        name: (key, form)
        for name, (key, form) in COLUMNS.items()
        if any(row[key] is not None for row in rows)
    }
    hardware = results["hardware"]
    where = hardware.get("gpu") or f"{hardware['cores']} cores of {hardware['processor']}"
    packages = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines = [
        f"{results['date']}, {where}; {packages}; GEMM peak {results['gemm_gflops']:,.0f} GFLOP/s (float32).",
        "",
        f"| model | clients | engine | {' | '.join(shown)} |",
        "|---|--:|---|" + "--:|" * len(shown),
    ]
    for row in rows:
        clients = f"{row['clients']} (of {row['requested']})" if row["reduced"] else str(row["clients"])
        cells = [form.format(row[key]) if row[key] is not None else "-" for key, form in shown.values()]
        lines.append(f"| {' | '.join([row['model'], clients, row['engine'], *cells])} |")
    if results["skipped"]:
        lines += ["", "Left out:", ""]
        lines += [f"- {each['engine']}, {each['model']}: {each['reason']}" for each in results["skipped"]]
    return "\n".join(lines)


INTRODUCTION = """<!-- Written by `make docs` from benchmarks/results. -->
# Benchmark results

Rounds of federated averaging: every client takes 5 steps of plain SGD on batches of 16, then the updates are
averaged. [benchmarks/speed](../benchmarks/speed/README.md) says what each engine is and how to run it;
[speed.md](speed.md) what the figures mean. A number of clients "(of 1000)" is what fitted the time.
`x eager loop` and `x fedmux` are ratios of client-steps a second in the same cell; `x by CPU time` is the
first of them by CPU seconds, which other users of the machine do not change. The share of the GEMM peak is by
counted operations, against a large matrix product in the same precision."""


def page(paths: list[Path]) -> str:
    parts = [INTRODUCTION]
    for path in paths:
        parts += [f"## {path.stem}", render(json.loads(path.read_text()))]
    return "\n\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+")
    print(page(sorted(parser.parse_args().results)))
