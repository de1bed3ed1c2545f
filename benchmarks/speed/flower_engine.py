"""Flower: its simulation runtime (Ray) with FedAvg, one client at a time.

    .venv-bench/bin/python benchmarks/speed/flower_engine.py --model cnn --clients 12

Ray listens on the machine's outer interface, so this process first starts itself again in a network namespace
that has loopback only (Linux, `unshare`). The first round, in which the worker starts and makes its data, is
not timed. The memory is the sum over all processes in the namespace.
"""

import os
import re
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from flower_client import client_app
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from harness import arguments, report, work_of
from torch import Tensor
from work import check, flat

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
INSIDE = "BENCHMARK_ON_LOOPBACK_ONLY"


def isolate() -> None:
    """Start again with namespaces of our own; what Ray started ends with us."""
    if INSIDE not in os.environ:
        start = ["sh", "-c", 'ip link set lo up && exec "$0" "$@"', sys.executable, *sys.argv]
        namespaces = ["--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvpe("unshare", ["unshare", *namespaces, *start], os.environ | QUIET | {INSIDE: "yes"})


def peak_memory() -> int:
    """Bytes of all processes in the namespace, each at its peak."""
    kibibytes = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has just ended
            found = re.search(r"VmHWM:\s*(\d+)", status.read_text())
            kibibytes += int(found[1]) if found else 0
    return 1024 * kibibytes


def cpu_seconds() -> float:
    """Of all processes in the namespace so far."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            ticks += sum(map(int, stat.read_text().rsplit(")", 1)[1].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    given = arguments(__doc__, devices=("cpu",))
    work = work_of(given)
    ends: list[tuple[float, float]] = []  # of the start and of each round, by the wall and by the CPU
    models: list[Tensor] = []  # before and after the first round
    memory: list[int] = []  # at the end of the last round
    server = ServerApp()

    def after_round(number: int, arrays: ArrayRecord) -> None:
        if number < 2:
            models.append(flat(list(arrays.to_torch_state_dict().values())))
        ends.append((time.perf_counter(), cpu_seconds()))
        if number == given.rounds + 1:
            memory.append(peak_memory())

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=work.clients,
            min_available_nodes=work.clients,
        )
        initial = ArrayRecord(work.usual_module().state_dict())
        strategy.start(grid, initial, num_rounds=1 + given.rounds, evaluate_fn=after_round)

    run_simulation(
        server,
        client_app(work),
        num_supernodes=work.clients,
        backend_config={"init_args": {"num_cpus": 1}, "client_resources": {"num_cpus": 1}},
    )
    seconds, cpu = ([end - begin for begin, end in pairwise(each)] for each in zip(*ends[1:]))
    report("flower", given, seconds, cpu, check(*models), memory[0], ["flwr", "ray"])


if __name__ == "__main__":
    isolate()
    main()
