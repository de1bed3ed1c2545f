"""Auctions without training: every mechanism over budgets, on bids drawn from the paper's distributions."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmux.randomness import Stream, generator
from fedmux.recruitment.report import hold
from fedmux.reproduce.outcome import Outcome, Value, judged
from fedmux.reproduce.preset import Auction, Preset
from fedmux.reproduce.results import Results
from fedmux.runs.statistics import mean

MEASURES = {"take-up-minimum": "minimum", "take-up-difference": "difference"}
QUICK_SEEDS = 5
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class AuctionResults(Results):
    """The results of a preset that trains nothing."""

    rows: tuple[dict[str, Any], ...] = ()

    @classmethod
    def hold(cls, preset: Preset, root: Path, seeds: int | None, quick: bool) -> "AuctionResults":
        """Hold the auctions and write the outcome to the preset's folder."""
        assert preset.auction is not None
        rows = auctions(preset.auction, seeds or (QUICK_SEEDS if quick else preset.seeds))
        changes = [f"{QUICK_SEEDS} seeds for {preset.seeds}"] if quick and not seeds else []
        folder = root / (preset.name + "-quick" * quick)
        return replace(cls.write(folder, auctioned(preset, rows), (), changes, ()), rows=tuple(rows))

    def draw(self) -> None:
        from fedmux.report.charts import save, take_up

        super().draw()
        save(take_up(means(list(self.rows))), self.folder / "take-up.png")


def auctions(auction: Auction, seeds: int) -> Rows:
    """A row for each seed, mechanism and budget. A posted price is the same whatever the budget."""
    rows = []
    for seed in range(seeds):
        sources = [generator(seed, Stream.BIDS, task=task) for task in range(len(auction.bids))]
        bids = np.stack([law.draw(auction.users, rng) for law, rng in zip(auction.bids, sources)], axis=1)
        for name, mechanism, price in auction.held:
            for budget in auction.budgets:
                taken = hold(bids, budget if price is None else price, mechanism, seed).take_up
                least, most = float(taken.min()), float(taken.max())
                rows.append(
                    {
                        "mechanism": name,
                        "budget": budget,
                        "seed": seed,
                        "minimum": least,
                        "difference": most - least,
                    }
                )
    return rows


def means(rows: Rows) -> Rows:
    """Over seeds."""
    by_place: dict[tuple[str, float], Rows] = {}
    for row in rows:
        by_place.setdefault((row["mechanism"], row["budget"]), []).append(row)
    return [
        {"mechanism": name, "budget": budget}
        | {key: mean(row[key] for row in found) for key in MEASURES.values()}
        for (name, budget), found in by_place.items()
    ]


def auctioned(preset: Preset, rows: Rows) -> Outcome:
    """The mechanisms at those budgets for which the preset has figures."""
    shown = {row for figures in preset.figures.values() for row in figures}
    budgets = {name.rpartition(" ")[2] for name in shown}
    values: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        if f"{row['budget']:g}" in budgets:
            found = values.setdefault(f"{row['mechanism']}, budget {row['budget']:g}", {})
            for measure, key in MEASURES.items():
                found.setdefault(measure, {})[row["seed"]] = row[key]
    ordered = sorted(values, key=lambda name: float(name.rpartition(" ")[2]))
    return judged(
        preset,
        {
            name: {
                measure: Value(found, preset.figures.get(measure, {}).get(name))
                for measure, found in values[name].items()
            }
            for name in ordered
        },
    )
