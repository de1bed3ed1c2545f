"""Writes papers.md from papers/results: `python docs/papers.py`; with --check it only says if that is due.

`python docs/papers.py --keep reproduced/NAME ...` first takes over what `fedmux reproduce NAME` left there:
figures, curves and pictures, no weights.
"""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from gallery import packed

from fedmux.reproduce.kept import accuracies
from fedmux.reproduce.preset import Preset, all_presets, find

HERE = Path(__file__).parent
TARGET, RESULTS = HERE / "papers.md", HERE.parent / "papers" / "results"
KEPT = ("summary.json", "curves.csv.gz", "table.md")

INTRODUCTION = """<!-- Written by docs/papers.py from papers/results and the presets: change those. -->
# The papers, rerun

Every experiment of the [papers](../README.md#papers) is a preset: `fedmux reproduce NAME` trains it, prints
the paper's figures beside ours and draws the pictures. This page shows what came out, agreeing or not.

```sh
fedmux reproduce list                                  # their names
fedmux reproduce all --device cuda                     # one after the other
fedmux reproduce table1-3tasks --device cuda           # as in the paper; Ctrl-C and the same command go on
fedmux reproduce table1-3tasks --show                  # the table and pictures of what is done so far
fedmux reproduce table1-3tasks --quick                 # minutes on two cores, to see that it works
fedmux reproduce group-fig3 --seeds 1 --set rounds=30  # fewer seeds, keys changed
fedmux reproduce fair-exp1 --print                     # as an experiment file, for `run` and `compare`
fedmux reproduce fig5 --add-to papers/results/fig5 --seeds 8   # three seeds more than there are
```

How to read the tables: final accuracy is the mean over the last ten rounds; ± is one standard deviation over
seeds (the papers do not say over what theirs is). A claim **holds** if the 95 % confidence interval of the
difference, paired by seed, lies on its side, **does not hold** if it lies on the other, and is **not clear**
otherwise; it is **not known** if nothing was run for it. Claims are the papers', but for those "after as many
uploads" and those of the ablations, which are ours; where a paper gives words and no number, the margin is
ours too (the presets have it). **Another setting**: more was changed than how many held-out points a task is
evaluated on. `papers/results/NAME` has the final accuracy of each run and task
(`summary.json`), and accuracy, loss and costs of every round (`curves.csv.gz`); `--add-to` goes on from
these, on any machine. Learning rates and batch sizes that a paper leaves open are the same for all methods:
chosen on `random` alone where a preset says so, otherwise those that all presets start from. So far they
were chosen on the part of the held-out points that is reported, the one that the tables show; later sweeps
look at the other, with `--set evaluation.report=validation`. Minutes are those on the clock while any of
the runs was at work, of which several went at a time. A + after a commit: with changes on top of it.

What is ours in all these runs and not in the papers: the methods that draw by scores (GVR, LVR and their
relatives) add `floor = 0.001` of the mean score to every score and draw with `mixing = 0.05` of Random's
probabilities, FairVR adds the same floor and mixes nothing ([methods.md](methods.md) says why); and
`resnet18` normalises by GroupNorm, as BatchNorm's running statistics mean little once models of unlike
clients are averaged.
"""


def kept() -> dict[str, dict[str, Any]]:
    """The summaries that are there, in the order of the presets."""
    found = {preset.name: RESULTS / preset.name / "summary.json" for preset in all_presets()}
    return {name: json.loads(path.read_text()) for name, path in found.items() if path.exists()}


def departs(summary: dict[str, Any]) -> bool:
    """Whether other training was done than the preset's; on how many points it was judged does not count."""
    return any(not override.startswith("evaluation.samples=") for override in summary["overrides"])


def page() -> str:
    results = kept()
    rest = [p for p in all_presets() if p.name not in results or departs(results[p.name])]
    parts = [INTRODUCTION, overview(results), claims(results)]
    parts += [section(preset, results[preset.name]) for preset in all_presets() if preset.name in results]
    if rest:
        parts.append(not_whole(rest))
    return "\n".join(parts)


def overview(results: dict[str, dict[str, Any]]) -> str:
    lines = [
        "## What was run\n",
        "| preset | paper | runs | setting | on | minutes |",
        "|---|---|--:|---|---|--:|",
    ]
    for preset in all_presets():
        if (summary := results.get(preset.name)) is None:
            lines.append(f"| {preset.name} | {preset.paper} | 0 | not run | | |")
            continue
        made = [where for where in summary["made"].values() if where]
        done = len({(row.get("variant"), row["method"], row["seed"]) for row in summary["rows"]})
        missing = len(summary["missing"])
        runs = f"{done} of {done + missing}" if missing else str(done or "")
        smaller = ", ".join(f"`{override}`" for override in summary["overrides"])
        minutes = f"{sum(where['clock'] for where in made) / 60:.0f}" if made else ""
        cells = [f"[{preset.name}](#{preset.name})", preset.paper, runs, smaller or "the preset's"]
        lines.append(f"| {' | '.join(cells)} | {', '.join(summary['made'])} | {minutes} |")
    return "\n".join(lines) + "\n"


def claims(results: dict[str, dict[str, Any]]) -> str:
    lines = ["## Claims\n", "| preset | claim | between | difference, 95 % | |", "|---|---|---|---|---|"]
    for preset in all_presets():
        if preset.name in results:
            text = (RESULTS / preset.name / "table.md").read_text()
            rows = text.partition("| claim |")[2].splitlines()[2:]
            other = ", another setting" if departs(results[preset.name]) else ""
            lines += [f"| [{preset.name}](#{preset.name}){other} {row}" for row in rows]
        else:
            told = [(claim.says, f"{claim.of} - {', '.join(claim.over)}") for claim in preset.claims]
            lines += [f"| {preset.name} | {says} | {between} | | not run |" for says, between in told]
    return "\n".join(lines) + "\n"


def section(preset: Preset, summary: dict[str, Any]) -> str:
    folder = RESULTS / preset.name
    parts = [
        f"## {preset.name}\n",
        f"{preset.title}. {preset.paper}.{notes(preset)}\n",
    ]
    parts.append(f"`{command(preset, summary)}`: {where(summary)}\n")
    if summary["missing"]:
        said = [f"{name} ({why})" if why else name for name, why in summary["missing"].items()]
        parts.append(f"Missing: {', '.join(said)}.\n")
    if paused := [row for row in summary["rows"] if "diverged" in row]:
        said = [
            f"{row['method']}, seed {row['seed']}: {row['task']} in round {row['diverged']}" for row in paused
        ]
        parts.append(f"Diverged and paused; the table counts the last sound models: {'; '.join(said)}.\n")
    parts.append((folder / "table.md").read_text())
    parts += [
        f"![{preset.title}: {path.stem}](../papers/results/{preset.name}/{path.name})\n"
        for path in sorted(folder.glob("*.png"), key=_place)
    ]
    if (folder / "discussion.md").exists():
        parts.append((folder / "discussion.md").read_text())
    return "\n".join(parts)


def _place(picture: Path) -> tuple[bool, str]:
    """The figures first, then by name; 3 before 10."""
    return picture.stem != "figures", re.sub(r"\d+", lambda found: found[0].zfill(6), picture.stem)


def notes(preset: Preset) -> str:
    said = dict.fromkeys([*preset.notes, *preset.source.notes])
    return "".join(f" {note}" for note in said)


def command(preset: Preset, summary: dict[str, Any]) -> str:
    seeds = {seed for row in summary["table"].values() for value in row.values() for seed in value["seeds"]}
    words = ["fedmux reproduce", preset.name]
    words += [f"--seeds {len(seeds)}"] if seeds and len(seeds) != preset.seeds else []
    trained = list(dict.fromkeys(row["method"] for row in summary["rows"]))
    if trained and len(trained) < len(preset.described().compare.methods):
        words.append(f"--methods {shlex.quote(','.join(trained))}")
    return " ".join(words + [f"--set {shlex.quote(override)}" for override in summary["overrides"]])


def where(summary: dict[str, Any]) -> str:
    told = [f"{runs} runs of {preset}" for preset, runs in summary.get("beside", {}).items()]
    for machine, made in summary["made"].items():
        told.append(machine)
        if made:
            minutes, commits = made["clock"] / 60, ", ".join(made["commits"])
            told[-1] += (
                f", {made['runs']} runs, {minutes:.0f} minutes, {made['to'][:10]}, torch {made['torch']}"
            )
            told[-1] += f", commit {commits}"
    return "; ".join(told)


def not_whole(presets: list[Preset]) -> str:
    times = json.loads((RESULTS / "estimates.json").read_text())
    lines = [
        "## Not run in the papers' setting\n",
        times.pop("about") + "\n",
        "| preset | what | runs | estimated |",
        "|---|---|--:|---|",
    ]
    order = list(times)
    for preset in sorted(presets, key=lambda preset: (*order, preset.name).index(preset.name)):
        what, runs = f"{preset.title}, {preset.paper}", preset.cells if preset.auction is None else 0
        lines.append(f"| `{preset.name}` | {what} | {runs} | {times.get(preset.name, '')} |")
    return "\n".join(lines) + "\n"


def keep(source: Path) -> None:
    """Take over a reproduction's results."""
    if not (source / "summary.json").exists():
        sys.exit(f"{source}: has no summary.json; `fedmux reproduce {source.name}` writes it")
    preset, folder = find(source.name), RESULTS / source.name
    folder.mkdir(parents=True, exist_ok=True)
    pictures = list(source.glob("*.png"))
    for old in folder.glob("*.png") if pictures else ():
        old.unlink()
    others = RESULTS / preset.source.name
    there = bool(preset.runs) and (others / "summary.json").exists()
    known = there and accuracies(source) <= accuracies(others)
    for name in KEPT:
        if known and name == "curves.csv.gz":  # they are there already
            (folder / name).unlink(missing_ok=True)
        elif (source / name).exists():
            shutil.copy(source / name, folder)
    for picture in pictures:
        (folder / picture.name).write_bytes(packed(picture))


def main(arguments: list[str]) -> None:
    if arguments == ["--check"]:
        if TARGET.read_text("utf-8") != page():
            sys.exit("papers.md is not up to date; run `make docs`")
        return
    if arguments[:1] == ["--keep"]:
        for name in arguments[1:]:
            keep(Path(name))
    TARGET.write_text(page(), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
