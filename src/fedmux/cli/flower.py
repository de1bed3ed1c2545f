"""Verbs for real clients."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedmux.cli.finishing import finish
from fedmux.cli.options import File, Folder, grouped
from fedmux.cli.speech import Speech
from fedmux.errors import FedmuxError

flower_app = typer.Typer(help="Real clients on Flower.", no_args_is_help=True)


@flower_app.command("init")
def flower_init(folder: Annotated[Path, typer.Argument(help="Folder to make.")]) -> None:
    """Write a Flower app to start from: two models on the data that comes with fedmux."""
    import shutil
    from importlib.resources import files

    try:
        shutil.copytree(
            str(files("fedmux") / "flower" / "template"), folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    except FileExistsError:
        raise FedmuxError(f"{folder}: exists already; name another folder") from None
    typer.echo(f"wrote {folder}; try it with: fedmux flower up {folder}/experiment.toml --app {folder}")


@flower_app.command("up")
@grouped
def flower_up(
    experiment: File,
    app_folder: Annotated[
        Path | None, typer.Option("--app", help="Folder of your Flower app; without, the simulator's data.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, help="SuperNodes to start.")] = 4,
    output: Folder = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS and node keys.")] = False,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds that a client has for an answer.")] = 300,
    metrics_port: Annotated[
        int, typer.Option(min=-1, max=65535, help="Of /metrics and /health; 0: any that is free, -1: none.")
    ] = -1,
    *,
    speech: Speech,
) -> None:
    """Train an experiment on a federation of this machine: a SuperLink and SuperNodes on loopback."""
    try:
        from fedmux.flower.federation import up
        from fedmux.flower.tasks import check
    except ModuleNotFoundError as missing:
        raise FedmuxError(f"{missing.name} is not installed; run pip install 'fedmux[flower]'") from None
    from fedmux.experiment import Experiment
    from fedmux.runs.places import folder_for
    from fedmux.runs.reading import Run
    from fedmux.runs.state import AGAIN

    described = Experiment.read(experiment)
    check(described)
    if clients > (most := described.population.clients):
        raise FedmuxError(f"--clients {clients} is more than population.clients = {most}")
    if app_folder is not None and not (app_folder / "pyproject.toml").is_file():
        raise FedmuxError(f"{app_folder}: is not a Flower app; `fedmux flower init` writes one")
    folder = folder_for(described.name, output, described.output.folder)
    own = [*(["--app", app_folder] if app_folder else []), *(["--insecure"] if insecure else [])]
    again = _command("flower", "up", experiment, "-o", folder, "--clients", clients, *own)
    os.environ[AGAIN] = again  # the server keeps it in the run folder
    up(
        experiment,
        clients,
        folder,
        app=app_folder,
        secure=not insecure,
        deadline=deadline,
        metrics_port=metrics_port,
        again=again,
        notice=speech.remark,
    )
    finish(Run(folder), speech)


def _command(*words: object) -> str:
    """A command of ours, to be typed again."""
    return shlex.join(["fedmux", *map(str, words)])
