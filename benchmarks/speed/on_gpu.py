"""The engines that run on a GPU, all in one process: the same work, one after the other.

    python benchmarks/speed/on_gpu.py [--models cnn] [--clients 12 120 1000] [--seconds 2]

On a GPU a process takes longer to start than to do the work, so here, unlike in compare.py, one does all. A
loop over clients takes the same time for each of them, so it gets as many as fit the time and says so.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from compare import finish
from eager_loop import EagerLoop
from fedmux_engine import Fedmux, in_order
from gemm import by_precision
from harness import Engine as Timed
from machine import describe, slug
from module_copy import ModuleCopy
from work import MODELS, TOLERANCE, Work, check

from fedmux.fleet import local, stacked
from fedmux.fleet.engine import Engine

STEPS, BATCH = 5, 16
ROUGH = 0.03  # tolerance of the check in lower precision
DEVICE = torch.device("cuda", 0)
Build = Callable[[Work], Timed]
LOOPS: dict[str, Build] = {
    "module-copy": lambda work: ModuleCopy(work, "cuda"),
    "eager-loop": lambda work: EagerLoop(work, "cuda"),
}
STACKS: dict[str, Build] = {
    "fedmux": lambda work: Fedmux(work, Engine(DEVICE, "fp32")),
    "fedmux-tf32": lambda work: Fedmux(work, Engine(DEVICE, "tf32")),
    "fedmux-bf16": lambda work: Fedmux(work, Engine(DEVICE, "bf16")),
}


def timed(engine: Timed, seconds: float) -> tuple[list[float], float]:
    """Rounds that fill the time, after one that warms up; and the check of the first one."""
    before = engine.weights()
    engine.round()
    first = check(before, engine.weights())
    rounds: list[float] = []
    while sum(rounds) < seconds and len(rounds) < 10:
        torch.cuda.synchronize()
        clock = time.perf_counter()
        engine.round()
        torch.cuda.synchronize()
        rounds.append(time.perf_counter() - clock)
    return rounds, first


def row(name: str, build: Build, model: str, requested: int, clients: int, seconds: float) -> dict[str, Any]:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    engine = build(Work(model, clients, STEPS, BATCH))
    rounds, first = timed(engine, seconds)
    return {
        "engine": name,
        "model": model,
        "clients": clients,
        "requested": requested,
        "reduced": clients < requested,
        "steps": STEPS,
        "batch": BATCH,
        "seconds": rounds,
        "precision": name.partition("-")[2] if name.startswith("fedmux-") else "fp32",
        "cpu_seconds": [],
        "check": first,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() - before,
    }


def cell(model: str, clients: int, seconds: float) -> list[dict[str, Any]]:
    """All engines on one model and number of clients; the loops on fewer, if those take too long."""
    rows = []
    for name, build in LOOPS.items():
        each = median(row(name, build, model, 1, 1, seconds / 4)["seconds"])
        rows.append(row(name, build, model, clients, min(clients, max(1, int(seconds / each))), seconds))
    rows += [row(name, build, model, clients, clients, seconds) for name, build in STACKS.items()]
    expected = next(done["check"] for done in rows if done["engine"] == "fedmux")
    for done in rows:
        tolerance = TOLERANCE if done["precision"] == "fp32" else ROUGH
        if done["clients"] == clients and abs(done["check"] / expected - 1) > tolerance:
            print(f"{done['engine']} did other work: its update has norm {done['check']}, not {expected}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--clients", nargs="+", type=int, default=[12, 120, 1000])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each engine in each cell")
    parser.add_argument("--output", type=Path, help="instead of benchmarks/results/DATE-DEVICE.json")
    given = parser.parse_args()
    local.orders = stacked.orders = in_order
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # float32 for everyone who does not ask for less
    date = datetime.now(UTC).date().isoformat()
    path = given.output or Path(__file__).parent.parent / "results" / f"{date}-{slug('cuda')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    peaks = by_precision()
    results: dict[str, Any] = {
        "hardware": describe("cuda"),
        "date": date,
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "gemm_gflops": peaks["fp32"],
        "gemm_gflops_by_precision": peaks,
        "skipped": [],
        "rows": [],
    }
    for model in given.models:
        for clients in given.clients:
            for done in finish(cell(model, clients, given.seconds), peaks["fp32"]):
                done["share_of_gemm"] = done["gflops"] / peaks[done["precision"]]
                results["rows"].append(done)
                print(
                    f"{model}, {done['clients']} of {clients} clients, {done['engine']}: "
                    f"{done['client_steps_per_second']:,.0f} client-steps/s, "
                    f"{done['ratio_to_eager_loop']:.1f} x the eager loop, "
                    f"{done['peak_memory_bytes'] / 2**30:.1f} GiB",
                    flush=True,
                )
            path.write_text(json.dumps(results, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
