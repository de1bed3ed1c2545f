"""What the engines share: arguments, one core, timing, and the line of JSON that they print."""

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Protocol

import torch
from torch import Tensor
from work import MODELS, Work, check


class Engine(Protocol):
    def round(self) -> None:
        """Train every client once and apply the mean of their updates."""
        ...

    def weights(self) -> Tensor:
        """The global model as one vector on the CPU."""
        ...


def arguments(description: str | None, devices: Sequence[str] = ("cpu", "cuda")) -> argparse.Namespace:
    """The common arguments; from here on this process has a core for each worker, one thread, float32."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--steps", type=int, default=5, help="of a client in a round")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3, help="timed, after one that is not")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="processes, for an engine that has them")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32", help="likewise")
    given = parser.parse_args()
    if given.device not in devices:
        raise SystemExit(f"this engine runs on {', '.join(devices)} only")
    if given.device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-given.workers :])
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # float32 for everyone; torch allows it for convolutions only
    return given


def work_of(given: argparse.Namespace) -> Work:
    return Work(given.model, given.clients, given.steps, given.batch)


def measure(name: str, given: argparse.Namespace, engine: Engine, packages: Sequence[str] = ()) -> None:
    """One round for the check and to warm up, then the timed ones; prints the result."""
    before = engine.weights()
    engine.round()
    first = check(before, engine.weights())
    wait: Callable[[], None] = torch.cuda.synchronize if given.device == "cuda" else lambda: None
    seconds, cpu_seconds = [], []
    for _ in range(given.rounds):
        wait()
        clock, cpu = time.perf_counter(), time.process_time()
        engine.round()
        wait()
        seconds.append(time.perf_counter() - clock)
        cpu_seconds.append(time.process_time() - cpu)
    if given.device == "cuda" or given.workers > 1:
        cpu_seconds = []  # the work is done elsewhere
    report(name, given, seconds, cpu_seconds, first, peak_memory(given.device), packages)


def peak_memory(device: str) -> int:
    """Bytes: of the process, or what was allocated on the GPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def report(
    name: str,
    given: argparse.Namespace,
    seconds: list[float],
    cpu_seconds: list[float],
    first: float,
    peak: int,
    packages: Sequence[str] = (),
) -> None:
    """The result as one line of JSON."""
    result = {
        "engine": name,
        "model": given.model,
        "clients": given.clients,
        "steps": given.steps,
        "batch": given.batch,
        "device": given.device,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "check": first,
        "peak_memory_bytes": peak,
        "threads": given.workers,
        "precision": given.precision,
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("torch", *packages)},
    }
    print(json.dumps(result))
