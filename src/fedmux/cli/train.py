"""The verbs that train: a file to start from, one run, its continuation, a comparison."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmux.cli.options import (
    Device,
    File,
    Folder,
    Json,
    Overrides,
    Quiet,
    Workers,
    alone,
    finish,
    notice,
    run_comparison,
)
from fedmux.errors import FedmuxError

Log = Annotated[
    str, typer.Option("--log", metavar="NAMES", help="Also log to tensorboard, mlflow, csv, wandb; commas.")
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


def run(
    experiment: File,
    output: Folder = None,
    device: Device = None,
    workers: Workers = None,
    overrides: Overrides = None,
    log: Log = "",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an experiment."""
    from fedmux.console.progress import RoundProgress
    from fedmux.experiment import Experiment
    from fedmux.runs.trackers import by_name
    from fedmux.training.running import default_folder, run

    described = Experiment.read(experiment, _overridden(overrides, device, workers))
    folder = Path(output or described.output.folder or default_folder(described.name))
    shown = RoundProgress(described.rounds, quiet=quiet or as_json, folder=folder)
    with by_name(log, folder) as trackers, shown as progress:
        finished = run(described, folder, observers=[progress, *trackers], notice=notice)
    finish(finished, quiet, as_json)


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or a comparison.", metavar="RUN")],
    parallel: Annotated[int, typer.Option(min=0, help="Of a comparison: runs at a time; 0: what fits.")] = 0,
    device: Device = None,
    workers: Workers = None,
    log: Log = "",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Continue what was interrupted."""
    if (folder / "comparison.toml").exists():
        from fedmux.comparison.folder import Comparison

        if device or workers:
            raise FedmuxError("--device and --workers are for a run; a comparison keeps its own")
        if log:
            raise FedmuxError("--log is for a run; name one of the comparison's runs, in its folder runs")
        alone()
        _compare(Comparison.open(folder), parallel, quiet, as_json)
        return
    from fedmux.console.progress import RoundProgress
    from fedmux.distributed.team import from_environment
    from fedmux.experiment import Experiment
    from fedmux.runs.reading import Run
    from fedmux.runs.trackers import by_name
    from fedmux.training.running import resume

    given = _execution(device, workers)
    with by_name(log, folder) as trackers:
        if from_environment():  # perhaps on a machine without the folder
            finish(resume(folder, execution=given, observers=trackers, notice=notice), quiet, as_json)
            return
        run = Run(folder)
        if not run.finished:
            rounds = Experiment.read(folder / "experiment.toml").rounds
            done, silent = max(0, len(run.metrics) - 1), quiet or as_json
            with RoundProgress(rounds, done, silent, folder) as progress:
                run = resume(folder, execution=given, observers=[progress, *trackers], notice=notice)
    finish(run, quiet, as_json)


def compare(
    experiment: File,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = "",
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0-4 or 0,2,5.")] = "",
    vary: Annotated[
        list[str] | None, typer.Option(metavar="KEY=A,B,C", help="Also vary a key of the file; repeatable.")
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Method to set the others against.")] = None,
    parallel: Annotated[int, typer.Option(min=0, help="Runs at a time; 0: one a core, several a GPU.")] = 0,
    output: Folder = None,
    device: Device = None,
    overrides: Overrides = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train methods x seeds from one file; ends with a table."""
    alone()
    from fedmux.comparison.design import Design, parse_seeds
    from fedmux.comparison.folder import Comparison
    from fedmux.experiment.overrides import read_experiment
    from fedmux.training.running import default_folder

    design = Design.make(
        read_experiment(experiment, _overridden(overrides, device, None)),
        str(experiment),
        methods=[name.strip() for name in methods.split(",") if name.strip()],
        seeds=parse_seeds(seeds) if seeds else [],
        vary=vary or [],
        baseline=baseline,
    )
    folder = output or default_folder(str(design.table.get("name", "comparison")))
    _compare(Comparison.create(folder, design), parallel, quiet, as_json)


def _execution(device: str | None, workers: str | None) -> dict[str, Any]:
    """What the options say of [execution]."""
    number = int(workers) if workers and workers.isdecimal() else workers
    return {k: v for k, v in {"device": device, "workers": number}.items() if v is not None}


def _overridden(overrides: list[str] | None, device: str | None, workers: str | None) -> list[str]:
    options = _execution(device, workers)
    return [*(overrides or []), *(f"execution.{key}={value}" for key, value in options.items())]


def _compare(comparison: Any, parallel: int, quiet: bool, as_json: bool) -> None:
    hint = f"`fedmux resume {comparison.path}` continues"
    failures = run_comparison(comparison, parallel, quiet or as_json, hint)
    rows = comparison.results()
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    elif rows and not quiet:
        from fedmux.console.tables import comparison_table, output
        from fedmux.report.charts import method_accuracy, save
        from fedmux.report.page import write
        from fedmux.runs.history import find
        from fedmux.runs.reading import Run

        curves: dict[str, list[Any]] = {}
        for cell in comparison.cells:
            if comparison.finished(cell):
                curves.setdefault(cell.label, []).append(
                    [dict(entry) for entry in Run(comparison.folder(cell)).metrics]
                )
        name = str(comparison.design.table.get("name", "comparison"))
        picture, page = comparison.path / "accuracy.png", comparison.path / "report.html"
        save(method_accuracy(curves, f"{name}: accuracy over rounds"), picture)
        output.print(comparison_table(rows, name))
        write(find([comparison.path]), page, name)
        typer.echo(f"comparison: {comparison.path}\npicture:    {picture}\nreport:     {page}")
    for line in comparison.divergences(but=failures):
        notice(f"warning: {line}")
    if failures:
        raise FedmuxError("\n".join(failures))
