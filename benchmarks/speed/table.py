"""Renders a results file as a Markdown table.

Run as `python benchmarks/speed/table.py benchmarks/results/DATE-MACHINE.json`.
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    print(render(json.loads(parser.parse_args().results.read_text())))
