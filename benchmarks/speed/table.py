"""Renders a results file as Markdown tables, one for each model.

Run as `python benchmarks/speed/table.py benchmarks/results/DATE-MACHINE.json`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

COLUMNS = {
    "client-steps/s": ("client_steps_per_second", "{:,.2f}"),
    "to the eager loop": ("ratio_to_eager_loop", "{:.2f}x"),
    "by CPU time": ("cpu_ratio_to_eager_loop", "{:.2f}x"),
    "to fedmux": ("ratio_to_fedmux", "{:.2f}x"),
    "fedmux, by CPU time": ("cpu_ratio_to_fedmux", "{:.2f}x"),
    "of GEMM peak": ("share_of_gemm", "{:.0%}"),
    "memory, MiB": ("peak_memory_mib", "{:,.0f}"),
}


def render(results: dict[str, Any]) -> str:
    hardware = results["hardware"]
    header = f"| {' | '.join(['clients', 'engine', *COLUMNS])} |"
    where = hardware.get("gpu") or f"one core of {hardware['processor']}"
    lines = [f"{results['date']}, {where}; GEMM peak {results['gemm_gflops']:,.0f} GFLOP/s (float32)."]
    for model in dict.fromkeys(row["model"] for row in results["rows"]):
        lines += ["", f"### {model}", "", header, "|" + "---|" * header.count(" |")]
        lines += [line(row) for row in results["rows"] if row["model"] == model]
    if results["skipped"]:
        lines += ["", "Left out:", ""]
        lines += [f"- {each['engine']}, {each['model']}: {each['reason']}" for each in results["skipped"]]
    return "\n".join(lines)


def line(row: dict[str, Any]) -> str:
    clients = f"{row['clients']} (of {row['requested']})" if row["reduced"] else str(row["clients"])
    values = row | {"peak_memory_mib": row["peak_memory_bytes"] / 2**20}
    cells = [form.format(values[key]) if values[key] is not None else "-" for key, form in COLUMNS.values()]
    return f"| {' | '.join([clients, row['engine'], *cells])} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    print(render(json.loads(parser.parse_args().results.read_text())))
