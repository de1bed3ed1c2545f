"""Writes gallery.md and its pictures from runs on the embedded data: `python docs/gallery.py`, some minutes.

Runs are kept in a folder of their own (default: a temporary one), so a second call with the same folder only
draws: `python docs/gallery.py runs/gallery`.
"""

import struct
import sys
import tempfile
import textwrap
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import fedmux
from fedmux.comparison.design import Design
from fedmux.comparison.scheduling import Schedule
from fedmux.data.png import SIGNATURE, decode_png
from fedmux.recruitment.report import budgets_compared
from fedmux.report.charts import CHARTS, Chart, save, take_up
from fedmux.runs.history import History, find

HERE = Path(__file__).parent
TARGET, PICTURES = HERE / "gallery.md", HERE / "images" / "gallery"
PPI = 100

INTRODUCTION = """<!-- Written by docs/gallery.py: change that, or the captions in report/charts/kinds.py. -->
# Gallery

Every chart that fedmux draws of runs, from runs on the embedded sample of Fashion-MNIST and on the digits.
In a report's page they are interactive: the mouse shows values, a click on a legend entry picks it.
`python docs/gallery.py` trains the runs and draws the pictures.
"""
AUCTION = """Users recruited for the worst task, and how far the best and the worst are apart, by mechanism
and budget. `fedmux auction BIDS --budget B --compare` draws it."""


def task(name: str, data: str, rate: float, partition: dict[str, Any]) -> dict[str, Any]:
    settings = {"name": name, "data": data, "model": "mlp", "learning_rate": rate, "local_epochs": 2}
    return {**settings, "partition": partition}


SIZES = {"low": [9, 15], "high": [90, 150], "high_share": 0.1}
SKEWED = {"kind": "label-share", "share": 0.3, "sizes": SIZES, "disjoint": False}
CLUSTERS = {"kind": "clusters", "clusters": 4, "consistent": True, "sizes": [15, 25], "disjoint": False}
PROCESSORS = {"all": 0.25, "half": 0.5, "one": 0.25}

COMPARED: dict[str, Any] = {
    "name": "gallery",
    "rounds": 40,
    "method": "mmfl-lvr",
    "population": {"clients": 60, "jobs": 12, "processors": PROCESSORS, "availability": 0.9},
    "task": [
        task("clothes", "fashion-mnist-sample", 0.03, SKEWED),
        task("digits", "digits", 0.05, SKEWED),
        task("slow-digits", "digits", 0.01, SKEWED),
    ],
}
METHODS = ["full", "mmfl-gvr*", "mmfl-lvr", "fedfairmmfl", "random"]

GROUPS: dict[str, Any] = {
    "name": "groups",
    "rounds": 24,
    "method": "mmfl-group",
    "population": {"clients": 60, "rate": 0.2},
    "task": [
        task("clothes", "fashion-mnist-sample", 0.05, CLUSTERS),
        task("digits", "digits", 0.1, CLUSTERS),
        task("more-digits", "digits", 0.1, CLUSTERS),
    ],
}

CHANGING: dict[str, Any] = {
    **COMPARED,
    "name": "changing",
    "rounds": 60,
    "population": {**COMPARED["population"], "start": 30},
    "arrivals": {"mean_wait": 8.0, "clients": 4},
    "departures": {"mean_wait": 15.0, "clients": 3},
    "event": [{"round": 20, "join_tasks": ["slow-digits"]}, {"round": 45, "leave_tasks": ["digits"]}],
    "dropout": {"rate": [0.0, 0.4]},
}

RECRUITED: dict[str, Any] = {
    **COMPARED,
    "name": "recruited",
    "rounds": 5,
    "method": "fedfairmmfl",
    "recruitment": {
        "mechanism": "max-min-fair",
        "budget": 15,
        "bids": [
            {"kind": "normal", "mean": 0.2, "std": 0.2},
            {"kind": "linear"},
            {"kind": "normal", "mean": 0.5, "std": 0.2},
        ],
    },
}

FORECAST: dict[str, Any] = {**COMPARED, "name": "forecast", "method": "mmfl-forecast"}

SPECIAL = {
    "groups": "groups",
    "forecast-error": "forecast",
    "dynamics": "changing",
    "recruitment": "recruited",
}  # kinds with runs of their own


def train(folder: Path) -> dict[str, list[History]]:
    """Whatever is not there yet; the histories by name."""
    design = Design.make(COMPARED, "gallery", methods=METHODS, seeds=[0, 1, 2])
    if failures := Schedule(design.create(folder / "compared")).run(0, lambda working: None):
        raise SystemExit("\n".join(failures))
    for table in (GROUPS, FORECAST, CHANGING, RECRUITED):
        if not (folder / table["name"] / "summary.json").exists():
            fedmux.run(fedmux.Experiment.model_validate(table), folder / table["name"])
    return {name: find([folder / name]) for name in ("compared", *SPECIAL.values())}


def draw(runs: dict[str, list[History]]) -> str:
    """The pictures, and the page that shows them."""
    one = [history for history in runs["compared"] if (history.label, history.seed) == ("mmfl-lvr", 0)]
    parts = [INTRODUCTION]
    for kind in CHARTS:
        histories = (
            runs["compared"] if kind.several else runs[SPECIAL[kind.key]] if kind.key in SPECIAL else one
        )
        chart = kind.draw(histories)
        if chart is None:
            raise SystemExit(f"{kind.key}: the runs of the gallery have no data for it")
        picture(chart, PICTURES / f"{kind.key}.png")
        parts.append(section(kind.key, kind.title, kind.caption))
    bids = np.random.default_rng(0).beta([1, 2], [4, 1], (100, 2))  # one task has cheaper users
    picture(take_up(budgets_compared(bids, 30.0, 0)), PICTURES / "take-up.png")
    parts.append(section("take-up", "Auctions compared", AUCTION))
    return "\n".join(parts)


def section(key: str, title: str, caption: str) -> str:
    text = "\n".join(textwrap.wrap(caption, 110))
    return f"## {title}\n\n{text}\n\n![{title}](images/gallery/{key}.png)\n"


def picture(chart: Chart, path: Path) -> None:
    save(chart, path, ppi=PPI)
    path.write_bytes(packed(path))


def packed(path: Path) -> bytes:
    """A PNG without transparency and packed as small as it gets: a third of what the renderer writes."""
    pixels = decode_png(path.read_bytes(), path.name)[:, :, :3]
    height, width, _ = pixels.shape
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # each row begins with its filter, none
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return SIGNATURE + b"".join(chunks)


def main(folder: Path) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(draw(train(folder)), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
