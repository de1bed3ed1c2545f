"""The verb that reruns the papers' experiments."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmux.cli.finishing import agreed, alone, collected, report_failures, warn, watched
from fedmux.cli.options import Device, Overrides, Parallel, Yes, grouped, listed
from fedmux.cli.speech import Speech, notice
from fedmux.errors import FedmuxError

if TYPE_CHECKING:
    from rich.table import Table

    from fedmux.comparison.scheduling import Progress, Schedule
    from fedmux.reproduce.planning import Choice
    from fedmux.reproduce.preset import Preset
    from fedmux.reproduce.results import Results

FOLDER = Path("reproduced")


@dataclass(frozen=True)
class Wanted:
    """The options that say what to run of a preset, and where."""

    seeds: Annotated[int | None, typer.Option(min=1, max=100_000, help="How many; default the paper's.")] = (
        None
    )
    methods: Annotated[str | None, typer.Option(help="Only these of its methods, separated by commas.")] = (
        None
    )
    quick: Annotated[
        bool, typer.Option("--quick", help="Minutes on two cores: fewer rounds, small models, less data.")
    ] = False
    parallel: Parallel = 0
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder that keeps all reproductions.")] = (
        FOLDER
    )
    device: Device = None
    overrides: Overrides = None
    add_to: Annotated[
        Path | None,
        typer.Option(help="Results to add to, such as papers/results/NAME: only runs they lack are trained."),
    ] = None
    show: Annotated[bool, typer.Option("--show", help="Only what is done; train nothing.")] = False
    as_file: Annotated[bool, typer.Option("--print", help="Print it as an experiment file; run nothing.")] = (
        False
    )
    yes: Yes = False

    @property
    def specific(self) -> bool:
        """Whether an option was given that makes sense only for a single preset that trains."""
        return self.methods is not None or bool(self.overrides or self.add_to or self.show or self.as_file)

    def choice(self) -> "Choice":
        from fedmux.reproduce.planning import Choice

        labels = listed(self.methods, "--methods", "random,mmfl-gvr")
        return Choice(self.seeds, self.quick, labels, self.overrides or [], self.device, self.add_to)


@grouped
def reproduce(
    name: Annotated[str, typer.Argument(help="A preset, `list` or `all`.", metavar="NAME")],
    *,
    wanted: Wanted,
    speech: Speech,
) -> None:
    """Rerun an experiment of the papers: a table with their figures and ours, and pictures.

    `list` names the experiments, `all` reruns one after the other.
    """
    if name == "list":
        _list(Speech(as_json=speech.as_json))  # what is asked for is the list
        return
    alone()
    from fedmux.reproduce.preset import find

    if name == "all":
        if wanted.specific or speech.as_json:
            raise FedmuxError("all: goes with --seeds, --quick, --parallel, --device, -o and -q")
        _all(wanted, speech)
        return
    _one(find(name), wanted, speech)


def _list(speech: Speech) -> None:
    from fedmux.reproduce.preset import all_presets

    rows = [preset.overview() for preset in all_presets()]

    def shown() -> "Iterator[Table | str]":
        from fedmux.console.tables import simple_table

        yield simple_table(tuple(rows[0]), [row.values() for row in rows])
        yield (
            "fedmux reproduce NAME --quick checks in minutes that one works; "
            "drop --quick for the paper's setting"
        )

    speech.result(rows, shown)


def _all(wanted: Wanted, speech: Speech) -> None:
    from fedmux.reproduce.preset import find, names

    problems = []
    for name in names():
        try:
            _one(find(name), wanted, speech)
        except FedmuxError as problem:  # the others are not to blame
            problems.append(str(problem))
    report_failures(problems)


def _one(preset: "Preset", wanted: Wanted, speech: Speech) -> None:
    if preset.auction is not None:
        if wanted.specific:
            raise FedmuxError(f"{preset.name} trains nothing: only --seeds, --quick and -o apply")
        from fedmux.reproduce.auctions import AuctionResults

        _tell(AuctionResults.hold(preset, wanted.output, wanted.seeds, wanted.quick), speech)
    elif wanted.as_file:
        if wanted.add_to:
            raise FedmuxError("--print cannot be combined with --add-to")
        from fedmux.reproduce.planning import as_experiment

        typer.echo(as_experiment(preset, wanted.choice()), nl=False)
    else:
        _train(preset, wanted, speech)


def _train(preset: "Preset", wanted: Wanted, speech: Speech) -> None:
    from fedmux.comparison import limits
    from fedmux.reproduce.planning import designs
    from fedmux.reproduce.reproduction import Reproduction

    if not wanted.show:
        planned, _ = designs(preset, wanted.choice())
        limits.check([design for _, design in planned], wanted.parallel, agreed(wanted.yes))
    work = Reproduction.prepare(preset, wanted.output, wanted.choice(), train=not wanted.show)
    speech.remark(preset.heading)

    @contextmanager
    def watch(schedule: "Schedule", variant: str | None) -> "Iterator[Progress]":
        if variant:
            speech.remark(f"{preset.name}: {variant}")
        hint = f"`fedmux reproduce {preset.name}` with the same options continues"
        with watched(schedule, speech, hint) as progress:
            yield progress

    failures = [] if wanted.show else work.train(wanted.parallel, watch)
    if missing := work.missing():
        notice(f"not there: {', '.join(missing[:5])}{f' and {len(missing) - 5} more' * (len(missing) > 5)}")
    with collected(failures):
        _tell(work.results(), speech)
    with collected(failures):
        warn(work.divergences(but=failures))
    report_failures(failures)


def _tell(results: "Results", speech: Speech) -> None:
    def shown() -> "Iterator[Table | str]":
        from fedmux.console.tables import simple_table
        from fedmux.reproduce.tables import tables

        for title, columns, lines in tables(results.outcome):
            yield simple_table(columns, lines, title)
        if results.changes:
            yield f"--quick, so the figures mean nothing: {'; '.join(results.changes)}"
        results.draw()
        for machine, (minutes, runs) in results.times.items():
            yield f"time:       {minutes:.1f} minutes for {runs} runs on {machine}"
        yield f"folder:     {results.folder}"

    speech.result(results.summary, shown)
