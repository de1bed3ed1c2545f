"""The verbs that train: a file to start from, one run, its continuation, a comparison."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmux.cli.finishing import agreed, alone, collected, finish, report_failures, warn, watched
from fedmux.cli.options import Device, File, Folder, Overrides, Parallel, Workers, Yes, grouped, listed
from fedmux.cli.speech import Speech, notice
from fedmux.errors import FedmuxError

if TYPE_CHECKING:
    from rich.table import Table

    from fedmux.comparison.folder import Comparison

Log = Annotated[
    str | None,
    typer.Option("--log", metavar="NAMES", help="Also log to tensorboard, mlflow, csv, wandb; commas."),
]


def init(path: Annotated[Path, typer.Argument(help="File to write.")] = Path("experiment.toml")) -> None:
    """Write a commented experiment file to start from."""
    from importlib.resources import files

    starter = files("fedmux").joinpath("starter.toml").read_text("utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(starter)
    except FileExistsError:
        raise FedmuxError(f"{path}: exists already; name another file") from None
    typer.echo(f"wrote {path}; train it with: fedmux run {path}")


@grouped
def run(
    experiment: File,
    output: Folder = None,
    device: Device = None,
    workers: Workers = None,
    overrides: Overrides = None,
    log: Log = None,
    *,
    speech: Speech,
) -> None:
    """Train an experiment."""
    from fedmux.console.progress import RoundProgress
    from fedmux.experiment import Experiment
    from fedmux.runs.places import folder_for
    from fedmux.runs.trackers import by_name
    from fedmux.training.running import run

    wanted = ",".join(listed(log, "--log", "csv,tensorboard"))
    described = Experiment.read(experiment, _overridden(overrides, device, workers))
    folder = folder_for(described.name, output, described.output.folder)
    shown = RoundProgress(described.rounds, quiet=speech.silent, folder=folder, scales=described.scales)
    with by_name(wanted, folder) as trackers, shown as progress:
        finished = run(described, folder, observers=[progress, *trackers], notice=notice)
    finish(finished, speech)


@grouped
def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or a comparison.", metavar="RUN")],
    parallel: Annotated[int, typer.Option(min=0, help="Of a comparison: runs at a time; 0: what fits.")] = 0,
    device: Device = None,
    workers: Workers = None,
    log: Log = None,
    *,
    speech: Speech,
) -> None:
    """Continue what was interrupted."""
    from fedmux.runs.layout import COMPARISON, EXPERIMENT

    if (folder / COMPARISON).exists():
        from fedmux.comparison import limits
        from fedmux.comparison.design import Design
        from fedmux.comparison.folder import Comparison

        if device is not None or workers is not None:
            raise FedmuxError("--device and --workers are for a run; a comparison keeps its own")
        if log is not None:
            raise FedmuxError("--log is for a run; name one of the comparison's runs, in its folder runs")
        alone()
        limits.check([Design.read(folder)], parallel)
        _compare(Comparison.open(folder), parallel, speech)
        return
    from fedmux.console.progress import RoundProgress
    from fedmux.distributed.team import from_environment
    from fedmux.experiment import Experiment
    from fedmux.runs.reading import Run, newest_rounds
    from fedmux.runs.trackers import by_name
    from fedmux.training.running import resume

    given = _execution(device, workers)
    wanted = ",".join(listed(log, "--log", "csv,tensorboard"))
    with by_name(wanted, folder) as trackers:
        if from_environment():  # perhaps on a machine without the folder
            finish(resume(folder, execution=given, observers=trackers, notice=notice), speech)
            return
        run = Run(folder)
        if not run.finished:
            known = Experiment.read(folder / EXPERIMENT)
            done = next((entry.round for entry in newest_rounds(folder)), 0)
            with RoundProgress(known.rounds, done, speech.silent, folder, known.scales) as progress:
                run = resume(folder, execution=given, observers=[progress, *trackers], notice=notice)
    finish(run, speech)


@dataclass(frozen=True)
class Compared:
    """What is compared with what."""

    methods: Annotated[str | None, typer.Option(help="Methods, separated by commas.")] = None
    seeds: Annotated[str | None, typer.Option(help="Seeds, such as 0-4 or 0,2,5.")] = None
    vary: Annotated[
        list[str] | None, typer.Option(metavar="KEY=A,B,C", help="Also vary a key of the file; repeatable.")
    ] = None
    baseline: Annotated[str | None, typer.Option(help="Method to set the others against.")] = None


@grouped
def compare(
    experiment: File,
    parallel: Parallel = 0,
    output: Folder = None,
    device: Device = None,
    overrides: Overrides = None,
    yes: Yes = False,
    *,
    compared: Compared,
    speech: Speech,
) -> None:
    """Train methods x seeds from one file; ends with a table."""
    alone()
    from fedmux.comparison import limits
    from fedmux.comparison.design import Design, parse_seeds
    from fedmux.comparison.folder import name_of
    from fedmux.experiment.overrides import read_experiment
    from fedmux.runs.places import folder_for

    design = Design.make(
        read_experiment(experiment, _overridden(overrides, device, None)),
        str(experiment),
        methods=listed(compared.methods, "--methods", "random,full"),
        seeds=[] if compared.seeds is None else parse_seeds(compared.seeds),
        vary=compared.vary or [],
        baseline=next(iter(listed(compared.baseline, "--baseline", "full")), None),
    )
    limits.check([design], parallel, agreed(yes))
    _compare(design.create(folder_for(name_of(design.table), output)), parallel, speech)


def _execution(device: str | None, workers: str | None) -> dict[str, Any]:
    """What the options say of [execution]."""
    number = int(workers) if workers and workers.isdecimal() and len(workers) < 10 else workers
    return {k: v for k, v in {"device": device, "workers": number}.items() if v is not None}


def _overridden(overrides: list[str] | None, device: str | None, workers: str | None) -> list[str]:
    options = _execution(device, workers)
    return [*(overrides or []), *(f"execution.{key}={value}" for key, value in options.items())]


def _compare(comparison: "Comparison", parallel: int, speech: Speech) -> None:
    from fedmux.comparison.scheduling import Schedule

    schedule = Schedule(comparison)
    with watched(schedule, speech, f"`fedmux resume {comparison.path}` continues") as progress:
        failures = schedule.run(parallel, progress)
    with collected(failures):
        rows = comparison.results()
        speech.result(rows, lambda: _shown(comparison, rows))
    with collected(failures):
        warn(comparison.divergences(but=failures))
    report_failures([*failures, *comparison.damages()])


def _shown(comparison: "Comparison", rows: list[dict[str, Any]]) -> "Iterator[Table | str]":
    from fedmux.console.tables import comparison_tables
    from fedmux.report.accuracy import draw_comparison

    if rows:
        yield from comparison_tables(rows, comparison.name)
        picture, page = draw_comparison(comparison.path, comparison.name, comparison.runs(), notice)
        yield f"comparison: {comparison.path}\npicture:    {picture}\nreport:     {page}"
