"""How far losses of sound models rise and come back in the runs of papers/results: the rule for divergence.

    python benchmarks/loss_spikes.py

Reads the curves, trains nothing. Rounds after a task was paused are left out.
"""

from pathlib import Path

import pandas as pd

from fedmux.training.divergence import TOO_LARGE

RESULTS = Path(__file__).parents[1] / "papers" / "results"
KEYS = ["variant", "method", "seed", "task"]


def main() -> None:
    spikes = []
    for path in sorted(RESULTS.glob("*/curves.csv.gz")):
        curves = pd.read_csv(path, keep_default_na=False, na_values=[""]).dropna(subset=["loss"])
        if "diverged" in curves:
            curves = curves[curves["diverged"].isna()]
        for key, curve in curves.groupby(KEYS, dropna=False):
            rise = (curve.sort_values("round")["loss"] / curve["loss"].iloc[0]).reset_index(drop=True)
            last = rise[rise <= TOO_LARGE].index.max()  # a spike at the very end has not come back
            large = rise[:last] > TOO_LARGE
            lasting = large.groupby((~large).cumsum()).sum().max()
            spikes.append((rise[:last].max(), int(lasting), path.parent.name, *map(str, key[1:])))
    high, long = max(spikes), max(spikes, key=lambda spike: spike[1])
    print(f"{len(spikes)} curves of {len({spike[2] for spike in spikes})} presets")
    print(f"highest rise that came back: {high[0]:.0f} times the start ({', '.join(high[2:])})")
    print(f"longest stay above {TOO_LARGE:g} times: {long[1]} rounds in a row ({', '.join(long[2:])})")


if __name__ == "__main__":
    main()
