"""`fedmux ui` on a run of 10,000 rounds: how long its page, its charts and an update take.

    python benchmarks/ui_long_run.py [--rounds 10000] [--tasks 3] [--clients 120]

A run folder of that length is made up, a real server is started on it and asked over HTTP. An update is the
time from the last byte of a round in metrics.jsonl to the event that tells it.
"""

import argparse
import http.client
import json
import tempfile
import time
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import tomli_w

from fedmux.report.charts import CHARTS
from fedmux.runs.layout import ALLOCATION
from fedmux.ui.app import INTERVAL
from fedmux.ui.server import Server, listen

QUANTILES = ("minimum", "p10", "p25", "median", "p75", "p90", "maximum")


def entry(number: int, rounds: int, tasks: list[str], rng: np.random.Generator) -> dict[str, Any]:
    """A round as a run records it, with the accuracy of clients."""
    told = {}
    for task in tasks:
        accuracy = 0.9 * (1 - np.exp(-5 * number / rounds)) + rng.normal(0, 0.01)
        spread = np.sort(rng.random(len(QUANTILES))).tolist()
        told[task] = {
            **dict.fromkeys(("jobs", "uploads", "reports", "forward_passes"), 4),
            **dict.fromkeys(("upload_bytes", "gradient_steps", "server_bytes"), 836048),
            "step_size": float(rng.gamma(5) / 5),
            "learning_rate": 0.05,
            "accuracy": float(accuracy),
            "loss": float(2 * (1 - accuracy)),
            "clients": {"mean": 0.5, "std": 0.2, **dict(zip(QUANTILES, spread))},
        }
    means = [values["accuracy"] for values in told.values()]
    overall = {
        "mean": float(np.mean(means)),
        "minimum": min(means),
        "variance": float(np.var(means)),
        "cosine": 1.0,
    }
    return {"round": number, "tasks": told, "accuracy": overall, "seconds": 0.4 * number}


def make(folder: Path, rounds: int, tasks: list[str], clients: int) -> None:
    """A run that is one tenth of a percent short of its end."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    table = {"name": "long", "rounds": rounds, "seed": 0, "method": {"name": "random"}}
    table |= {"population": {"clients": clients}, "task": [{"name": task} for task in tasks]}
    (folder / "experiment.toml").write_text(tomli_w.dumps(table))
    (folder / "environment.json").write_text("{}")
    lines = (json.dumps(entry(number, rounds, tasks, rng)) for number in range(rounds - rounds // 1000))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    jobs = np.zeros(12 * rounds, ALLOCATION)
    jobs["round"], jobs["count"] = np.arange(len(jobs)) // 12 + 1, 1
    jobs["client"], jobs["task"] = rng.integers(0, clients, len(jobs)), rng.integers(0, len(tasks), len(jobs))
    jobs["probability"], jobs["weight"] = 0.1, 1.0
    (folder / "allocation.bin").write_bytes(jobs.tobytes())


def ask(port: int, path: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    return connection.getresponse()


def timed(port: int, path: str) -> tuple[float, int]:
    begun = time.perf_counter()
    size = len(ask(port, path).read())
    return time.perf_counter() - begun, size


def events(answer: http.client.HTTPResponse) -> Any:
    return (line for line in answer if line.startswith(b"data: "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10000)
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--clients", type=int, default=120)
    options = parser.parse_args()
    tasks = [f"task-{number}" for number in range(options.tasks)]
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "runs" / "long"
        make(run, options.rounds, tasks, options.clients)
        size = (run / "metrics.jsonl").stat().st_size / 1e6
        print(f"{options.rounds} rounds, metrics.jsonl of {size:.1f} MB; the server looks every {INTERVAL} s")
        server = Server(run.parent, listen(0))
        port = server.listener.getsockname()[1]
        thread = Thread(target=server.run, daemon=True)
        thread.start()
        for what in ("the page, first time", "the page again"):
            print(f"{what:28} {timed(port, '/run/long')[0]:.3f} s")
        for what in ("the list, first time", "the list again"):
            print(f"{what:28} {timed(port, '/')[0]:.3f} s")
        for kind in CHARTS:
            seconds, length = timed(port, f"/chart/{kind.key}?run=long")
            if length:
                print(f"{'chart ' + kind.key:28} {seconds:.3f} s {length / 1000:6.0f} kB")
        told = events(ask(port, "/events/long"))
        next(told)
        rng = np.random.default_rng(1)
        for number in range(options.rounds - options.rounds // 1000, options.rounds)[:5]:
            with (run / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(entry(number, options.rounds, tasks, rng)) + "\n")
            begun = time.perf_counter()
            next(told)
            update = time.perf_counter() - begun
            chart, _ = timed(port, "/chart/task-accuracy?run=long")
            print(f"{'update of the figures':28} {update:.3f} s, of the first chart {chart:.3f} s")
        server.stop()
        thread.join()


if __name__ == "__main__":
    main()
