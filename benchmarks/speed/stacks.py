"""Stacked clients: small convolutions as products beside grouped ones, and several processes at once.

    python benchmarks/speed/stacks.py                                  # on a GPU: without and with products
    python benchmarks/speed/stacks.py --together 5                     # five processes, with and without MPS
    python benchmarks/speed/stacks.py --profile --cases cnn:120x10     # which kernels take the time
    python benchmarks/speed/stacks.py --device cpu --cases cnn:2x4     # to see that it runs

Kernels are the papers', 3x3. `--most` is how many numbers a convolution may copy for a point to be a product.
"""

import argparse
import multiprocessing
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from fedmux_engine import Fedmux, in_order
from torch import nn
from torch.profiler import ProfilerActivity
from work import MODELS, Work

from fedmux.fleet import convolutions, local, stacked
from fedmux.fleet.engine import Engine
from fedmux.tasks import build

CASES = ["cnn:120x10", "cnn:12x10", "resnet18:28x12", "resnet18:12x32"]
STEPS = 5
SECONDS = 3.0  # that processes work together


@dataclass(frozen=True)
class Papers(Work):
    """With the papers' kernels of 3x3."""

    def module(self) -> nn.Module:
        shape, classes, _ = MODELS[self.model]
        torch.manual_seed(0)
        return build(self.model, input_shape=shape, outputs=classes, options={})


def engine(case: str, given: argparse.Namespace) -> tuple[Fedmux, int]:
    """An engine that has done its first rounds, and the client-steps of a round."""
    local.orders = stacked.orders = in_order
    model, size = case.split(":")
    clients, batch = map(int, size.split("x"))
    device = torch.device("cuda", 0) if given.device == "cuda" else torch.device("cpu")
    made = Fedmux(Papers(model, clients, STEPS, batch), Engine(device, given.precision, "stacked"))
    for _ in range(2):
        made.round()
    return made, clients * STEPS


def wait(given: argparse.Namespace) -> None:
    if given.device == "cuda":
        torch.cuda.synchronize()


def rate(case: str, given: argparse.Namespace) -> float:
    """Client-steps a second, median over rounds."""
    made, steps = engine(case, given)
    rounds: list[float] = []
    while sum(rounds) < given.seconds and len(rounds) < 10:
        wait(given)
        clock = time.perf_counter()
        made.round()
        wait(given)
        rounds.append(time.perf_counter() - clock)
    return steps / median(rounds)


def profiled(case: str, given: argparse.Namespace) -> str:
    """The kernels of a round, those that take longest first."""
    convolutions.MOST = given.most
    made, _ = engine(case, given)
    unit = given.device
    with torch.profiler.profile(activities=[getattr(ProfilerActivity, unit.upper())]) as seen:
        made.round()
        wait(given)
    return seen.key_averages().table(sort_by=f"self_{unit}_time_total", row_limit=30)


def beside_others(case: str, given: argparse.Namespace, ready: Any, told: Any) -> None:
    made, steps = engine(case, given)
    ready.wait()
    rounds, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        made.round()
        wait(given)
        rounds += 1
    told.put(rounds * steps / SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=CASES, help="MODEL:CLIENTSxBATCH")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="tf32")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--most", type=int, default=convolutions.MOST)
    parser.add_argument("--profile", action="store_true", help="a table of kernels instead")
    parser.add_argument("--together", type=int, default=0, help="so many processes at once instead")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here; --device cpu only shows that it runs")
    for case in given.cases:
        if given.together:
            spawn = multiprocessing.get_context("spawn")
            ready, told = spawn.Barrier(given.together), spawn.Queue()
            crew = [
                spawn.Process(target=beside_others, args=(case, given, ready, told))
                for _ in range(given.together)
            ]
            for process in crew:
                process.start()
            total = sum(told.get(timeout=300) for _ in crew)
            for process in crew:
                process.join()
            print(f"{case}: {given.together} processes, together {total:,.0f} client-steps/s", flush=True)
            continue
        if given.profile:
            print(profiled(case, given), flush=True)
            continue
        rates = []
        for convolutions.MOST in (0, given.most):
            rates.append(rate(case, given))
        print(f"{case}: grouped {rates[0]:,.0f}, products {rates[1]:,.0f} client-steps/s", flush=True)


if __name__ == "__main__":
    main()
