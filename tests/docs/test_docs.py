"""What the documents say holds: code in them runs, commands exist, links resolve, the reference is fresh."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pytest
import typer

import fedmux
from conftest import population, round_state, table
from fedmux.cli import app
from fedmux.data.sets import known
from fedmux.experiment import TaskSettings
from fedmux.experiment.mistakes import validated
from fedmux.methods import registry
from fedmux.runs.scale import KNOWN

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md"]
PAGES = {
    name: (ROOT / name).read_text("utf-8")
    for name in NAMES + sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    page: str
    language: str
    code: str


BLOCKS = [Block(page, *found) for page, text in PAGES.items() for found in FENCED.findall(text)]


def blocks(language: str) -> list[Any]:
    """Parameters of a test: every block of a language, named by its page and its place there."""
    chosen = [(number, block) for number, block in enumerate(BLOCKS) if block.language == language]
    return [pytest.param(block, id=f"{block.page}-{number}") for number, block in chosen]


def is_whole(code: str) -> bool:
    """A whole experiment, not a part of one."""
    return {"rounds", "population", "task"} <= tomllib.loads(code).keys()


def first(page: str, language: str) -> str:
    return next(block.code for block in BLOCKS if block.page == page and block.language == language)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with the examples' modules in it."""
    for path in EXAMPLES.glob("*.py"):
        shutil.copy(path, tmp_path)
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("block", [p for p in blocks("toml") if is_whole(p.values[0].code)])
def test_a_whole_experiment_in_the_documents_runs(block: Block, folder: Path) -> None:
    path = folder / "experiment.toml"
    path.write_text(block.code)
    run = fedmux.run(fedmux.Experiment.read(path, ["rounds=1", "task.local_epochs=1"]), folder / "run")
    assert run.summary["rounds"] == 1


@pytest.mark.parametrize("block", [p for p in blocks("toml") if not is_whole(p.values[0].code)])
def test_a_part_of_an_experiment_in_the_documents_is_valid(block: Block, folder: Path) -> None:
    part = tomllib.loads(block.code)
    of_a_task = {key: part.pop(key) for key in set(part) & set(TaskSettings.model_fields) - {"name"}}
    whole = {**table(), **part}
    whole["task"] = [{**task, **of_a_task} for task in whole["task"]]
    try:
        validated(fedmux.Experiment, whole, block.page)
    except fedmux.FedmuxError as error:
        if "trains one task" not in str(error):
            raise
        validated(fedmux.Experiment, {**whole, "task": whole["task"][:1]}, block.page)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_in_the_documents_runs(block: Block, folder: Path) -> None:
    exec(compile(block.code, block.page, "exec"), {"__name__": "example"})


def test_the_readme_says_the_same_in_toml_and_in_python(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = first("README.md", "python")
    assert len(code.splitlines()) < 15
    described: list[fedmux.Experiment] = []

    class Trained:
        path = folder
        summary: dict[str, Any] = {"accuracy": {}}  # noqa: RUF012

    monkeypatch.setattr(fedmux, "run", lambda given: described.append(given) or Trained(), raising=False)
    exec(compile(code, "README.md", "exec"), {"__name__": "example"})
    read = validated(fedmux.Experiment, tomllib.loads(first("README.md", "toml")), "README.md")
    assert described[0].table() == read.table()


def test_the_reference_of_the_experiment_file_is_up_to_date(tmp_path: Path) -> None:
    for name in ("generate.py", "experiment-file.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path)
    check = [sys.executable, "generate.py", "--check"]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "experiment-file.md").open("a") as file:
        file.write("one line more\n")
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "make docs" in done.stderr) == (1, True)


def test_the_tables_of_results_are_up_to_date() -> None:
    results = sorted((ROOT / "benchmarks/results").glob("*.json"))
    script = [sys.executable, ROOT / "benchmarks/speed/table.py", *results]
    rendered = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert PAGES["docs/benchmark-results.md"] == rendered, "run `make docs`"


def test_the_page_of_the_papers_is_up_to_date() -> None:
    check = [sys.executable, ROOT / "docs" / "papers.py", "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def commands() -> list[Any]:
    """(command line, whether it stands in a block of code and so must be complete), with its page."""
    found = []
    for page, text in PAGES.items():
        code = "\n".join(block.code for block in BLOCKS if block.page == page and block.language == "sh")
        code += "\n".join(re.findall(r"^    (?=\S)(.*)", FENCED.sub("", text), re.MULTILINE))
        found += [(page, line, True) for line in re.findall(r"^fedmux .*", code, re.MULTILINE)]
        found += [(page, line, False) for line in re.findall(r"`(fedmux [^`]+)`", text)]
    return [pytest.param(line, whole, id=f"{page}: {line}") for page, line, whole in dict.fromkeys(found)]


@pytest.mark.parametrize(("line", "complete"), commands())
def test_a_command_in_the_documents_exists(line: str, complete: bool) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = typer.main.get_command(app)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]}"
        command = command.commands[words.pop(0)]
    known = {"--help", *(name for parameter in command.params for name in parameter.opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known
    if complete and not isinstance(command, click.Group):
        command.make_context("fedmux", words)  # parses, runs nothing


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    text = FENCED.sub("", PAGES[page])
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        if name == "docs/images/quickstart.png" and "<!-- quickstart-table -->" in text:
            continue  # the picture comes with the table of a measured run, which takes the marker's place
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target} does not exist"
        assert not anchor or anchor in anchors(path.read_text("utf-8")), (
            f"{page}: {target} has no such heading"
        )


def test_methods_in_the_readme_exist() -> None:
    section = PAGES["README.md"].partition("## Methods")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert named
    assert set(named) <= set(registry())


def test_every_method_is_in_the_readme_and_on_its_page() -> None:
    for page in ("README.md", "docs/methods.md"):
        text = PAGES[page]
        assert [name for name in registry() if f"`{name}`" not in text] == [], f"{page} lacks them"


def test_every_data_set_is_in_the_table() -> None:
    section = PAGES["docs/data.md"].partition("## Sets with a name")[2].partition("\n##")[0]
    assert {*re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)} == {*known()}


def test_every_dependency_has_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = PAGES["docs/dependencies.md"]
    groups = {"To run": project["dependencies"], "To develop": project["optional-dependencies"]["dev"]}
    for heading, requirements in groups.items():
        section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
        listed = re.findall(r"^\| `([\w-]+)` \| \S", section, re.MULTILINE)
        assert listed == sorted(re.match(r"[\w-]+", requirement)[0] for requirement in requirements)
    capped = {requirement for requirement in project["dependencies"] if "<" in requirement}
    caps = page.partition("## Caps\n")[2]
    for requirement in capped:
        name, limit = re.match(r"([\w-]+).*<([\d.]+)", requirement).groups()
        assert re.search(rf"`{name}`[\w ]* below {re.escape(limit)}\b", caps), (
            f"{requirement} has a cap to explain"
        )


def test_the_citation_names_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert "\n## [Unreleased]\n" in PAGES["CHANGELOG.md"]


def test_the_page_on_methods_shows_the_example() -> None:
    code = (EXAMPLES / "my_method.py").read_text()
    assert first("docs/add-a-method.md", "python") == code
    assert len(code.splitlines()) <= 40


def test_the_page_on_metrics_shows_the_example_and_every_metric() -> None:
    assert first("docs/metrics.md", "python") == (EXAMPLES / "my_metrics.py").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \|[^|]*\| (higher|lower) \|", PAGES["docs/metrics.md"], re.MULTILINE)
    known = {scale.name: scale.better for scale in KNOWN.values()}
    known.pop("negative-squared-error")  # for experiments from before there were others
    assert dict(listed) == known


def test_the_unlike_tasks_are_trained_from_their_folder(folder: Path) -> None:
    changes = ["rounds=1", "task.local_epochs=1", "evaluation.samples=50", "population.clients=8"]
    experiment = fedmux.Experiment.read(EXAMPLES / "unlike-tasks.toml", changes)
    tasks = fedmux.run(experiment, folder / "run").summary["tasks"]
    assert [found.get("metric", "accuracy") for found in tasks.values()] == [
        "accuracy",
        "mean-absolute-error",
        "perplexity",
    ]


def test_the_example_method_runs_from_its_folder(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-B",
        "-m",
        "fedmux",
        "run",
        "quickstart.toml",
        "--quiet",
        "-o",
        str(tmp_path / "run"),
    ]
    changes = ["method=my_method:LossFirst", "rounds=1", "task.local_epochs=1"]
    for change in changes:
        command += ["--set", change]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = fedmux.Run(tmp_path / "run")
    assert run.table["method"] == {"name": "my_method:LossFirst"}
    assert run.summary["totals"]["forward_passes"] > 0  # the losses it asks for


def test_the_example_method_prefers_large_losses_and_is_unbiased(folder: Path) -> None:
    from my_method import LossFirst

    people = population()
    state = round_state(people)
    method = LossFirst(uniform=0.2)
    plan = method.allocator().plan(state)
    several = people.available.sum(1) > 1
    losses = np.nan_to_num(state.signals.losses[several])
    assert (plan.probability[several].argmax(1) == losses.argmax(1)).all()

    draws, rng = 4000, np.random.default_rng(0)
    weights = np.zeros((draws, *people.sizes.shape))
    aggregator = method.aggregator()
    for draw in range(draws):
        jobs = plan.draw(rng)
        shares = people.shares[jobs.client, jobs.task]
        weights[draw, jobs.client, jobs.task] = aggregator.job_weights(jobs, shares)
    error = weights.std(0) / np.sqrt(draws) + 1e-12
    assert (np.abs(weights.mean(0) - people.shares) < 4.5 * error).all()
