"""The verb that reruns the papers' experiments."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmux.cli.options import Device, Json, Overrides, Quiet, alone, notice, run_comparison
from fedmux.errors import FedmuxError

FOLDER = Path("reproduced")


def reproduce(
    name: Annotated[str, typer.Argument(help="A preset, `list` or `all`.", metavar="NAME")],
    seeds: Annotated[int | None, typer.Option(min=1, help="How many; default the paper's.")] = None,
    methods: Annotated[str, typer.Option(help="Only these of its methods, separated by commas.")] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Minutes on two cores: fewer rounds, small models, less data.")
    ] = False,
    parallel: Annotated[int, typer.Option(min=0, help="Runs at a time; 0: one a core, several a GPU.")] = 0,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder that keeps all reproductions.")
    ] = FOLDER,
    device: Device = None,
    overrides: Overrides = None,
    add_to: Annotated[
        Path | None,
        typer.Option(help="Results to add to, such as papers/results/NAME: only runs they lack are trained."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only what is done; train nothing.")] = False,
    as_file: Annotated[
        bool, typer.Option("--print", help="Print it as an experiment file; run nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Rerun an experiment of the papers: a table with their figures and ours, and pictures.

    `list` names the experiments, `all` reruns one after the other.
    """
    if name == "list":
        _list(as_json)
        return
    alone()
    from fedmux.reproduce.preset import find, names

    if name == "all":
        if methods or overrides or add_to or show or as_file or as_json:
            raise FedmuxError("all: goes with --seeds, --quick, --parallel, --device, -o and -q")
        problems = []
        for one in names():
            try:
                reproduce(one, seeds, "", quick, parallel, output, device, quiet=quiet)
            except FedmuxError as problem:  # the others are not to blame
                problems.append(str(problem))
        if problems:
            raise FedmuxError("\n".join(problems))
        return
    preset = find(name)
    if preset.auction is not None:
        if overrides or add_to or show or as_file or methods:
            raise FedmuxError(f"{name} trains nothing: of the options --seeds, --quick and -o have a meaning")
        _auctions(preset, seeds, quick, output, quiet, as_json)
        return
    from fedmux.reproduce.reproduction import Choice, Reproduction

    labels = [label.strip() for label in methods.split(",") if label.strip()]
    choice = Choice(seeds, quick, labels, overrides or [], device, add_to)
    if as_file:
        if add_to:
            raise FedmuxError("--print shows a preset, nothing that is added to: leave --add-to out")
        _print(preset, choice)
        return
    work = Reproduction.prepare(preset, output, choice, train=not show)
    if not quiet and not as_json:
        notice(_heading(preset))
    failures: list[str] = []
    for part in [] if show else [part for part in work.parts if part.comparison.asked]:
        if part.variant and not quiet and not as_json:
            notice(f"{preset.name}: {part.variant}")
        hint = f"`fedmux reproduce {name}` with the same options continues"
        failures += run_comparison(part.comparison, parallel, quiet or as_json, hint)
    also = {"quick": work.changes, "overrides": work.overrides}
    if missing := [run for part in work.parts for run in part.missing()]:
        notice(f"not there: {', '.join(missing[:5])}{f' and {len(missing) - 5} more' * (len(missing) > 5)}")
    _finish(work.outcome(), work.parts, work.folder, also, quiet, as_json, work.kept)
    for part in work.parts:
        for line in part.comparison.divergences(but=failures):
            notice(f"warning: {line}")
    if failures:
        raise FedmuxError("\n".join(failures))


def _print(preset: Any, choice: Any) -> None:
    """The experiment as a file; of variants the first, the others as remarks."""
    import tomli_w

    from fedmux.reproduce.reproduction import designs

    (_, design), *_ = designs(preset, choice)[0]
    for variant in preset.source.variants[1:]:
        changed = variant.set or [f"the first {variant.tasks} tasks"]
        typer.echo(f"# variant {variant.name}: {', '.join(changed)}")
    compare = {"methods": design.methods, "seeds": design.seeds, "baseline": design.baseline}
    typer.echo(tomli_w.dumps({**design.table, "compare": compare}), nl=False)


def _list(as_json: bool) -> None:
    from fedmux.reproduce.preset import all_presets

    rows: list[dict[str, Any]] = []
    for preset in all_presets():
        row: dict[str, Any] = {"name": preset.name, "what": preset.title, "paper": preset.paper}
        row |= {"seeds": preset.seeds, "runs": 0, "rounds": 0, "data": "-"}
        if preset.auction is None:
            experiment = preset.described()
            row |= {"runs": preset.cells, "rounds": experiment.rounds}
            row["data"] = ", ".join(dict.fromkeys(task.data for task in experiment.tasks))
        rows.append(row)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    from fedmux.console.tables import output, simple_table

    output.print(simple_table(tuple(rows[0]), [row.values() for row in rows]))
    typer.echo(
        "fedmux reproduce NAME --quick shows that one works, in minutes; without it, with the paper's setting"
    )


def _heading(preset: Any) -> str:
    return f"{preset.name}: {preset.title} ({preset.paper})"


def _auctions(preset: Any, seeds: int | None, quick: bool, root: Path, quiet: bool, as_json: bool) -> None:
    from fedmux.reproduce.auctions import auctioned, auctions, means

    rows = auctions(preset.auction, seeds or (5 if quick else preset.seeds))
    folder = root / (preset.name + ("-quick" if quick else ""))
    changes = [f"5 seeds for {preset.seeds}"] if quick and not seeds else []
    _finish(auctioned(preset, rows), [], folder, {"quick": changes, "overrides": []}, quiet, as_json)
    if not quiet and not as_json:
        from fedmux.report.charts import save, take_up

        save(take_up(means(rows)), folder / "take-up.png")


def _finish(
    outcome: Any,
    parts: list[Any],
    folder: Path,
    also: dict[str, Any],
    quiet: bool,
    as_json: bool,
    kept: Any = None,
) -> None:
    """Files in the folder; then the tables, or the summary as JSON."""
    from fedmux.reproduce import files

    told = files.write(folder, outcome, parts, also, kept and kept.summary)
    if as_json:
        typer.echo((folder / "summary.json").read_text())
        return
    if quiet:
        return
    from fedmux.console.tables import output, simple_table
    from fedmux.report.page import write
    from fedmux.reproduce.pictures import write_pictures
    from fedmux.runs.history import find

    for measures, heading in (
        (outcome.preset.measures, _heading(outcome.preset)),
        (outcome.preset.costs, None),
    ):
        if measures:
            lines = files.lines(outcome, measures)
            output.print(simple_table(files.heads(outcome, measures), lines, heading))
    if outcome.verdicts:
        output.print(simple_table(files.JUDGED, [files.judgement(one) for one in outcome.verdicts], "claims"))
    if also["quick"]:
        typer.echo(f"--quick, so the figures mean nothing: {'; '.join(also['quick'])}")
    if kept:
        kept.copy_pictures(folder)
    write_pictures(folder, outcome, parts)
    done = [part.comparison.folder(cell) for part in parts for cell in part.comparison.asked]
    if runs := find([folder for folder in done if folder.exists()]):
        write(runs, folder / "report.html", outcome.preset.title)
    for machine, made in told["made"].items():
        if made:
            typer.echo(f"time:       {made['clock'] / 60:.1f} minutes for {made['runs']} runs on {machine}")
    typer.echo(f"folder:     {folder}")
