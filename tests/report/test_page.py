"""The report: one page that holds everything, whatever the runs are called and however broken they are."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from histories import history
from typer.testing import CliRunner

import fedmux
from conftest import table
from fedmux.cli import app
from fedmux.report.page import as_json, report, summaries
from fedmux.runs.history import History, find

HOSTILE = "<img src=x onerror=alert(1)></script><b>&\"'"


class Page(HTMLParser):
    """Elements with their attributes, the text of scripts, all visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method in ("full", "mmfl-lvr", "random"):
        for seed in (0, 1):
            fedmux.run(fedmux.Experiment(**table(method=method, seed=seed)), folder / f"{method}-{seed}")
    return folder


def test_a_report_of_several_runs_has_tables_charts_and_how_to_repeat_it(runs: Path) -> None:
    page = Page(report(find([runs]), "Six runs"))
    told = json.loads(page.scripts[0])
    figures = {attrs["id"] for tag, attrs in page.elements if tag == "figure"}
    assert set(told["specs"]) == figures and {"task-accuracy", "methods", "final-accuracy"} < figures
    assert "run0-allocation-map" in figures or any(name.startswith("run0-") for name in figures)
    assert set(told["themes"]) == {"light", "dark"}
    summary = fedmux.Run(runs / "mmfl-lvr-0").summary
    for wanted in ("mmfl-lvr", "relative to full", "fedmux run experiment.toml", str(summary["name"])):
        assert wanted in page.text
    assert 'method = "mmfl-lvr"' in page.text or 'name = "mmfl-lvr"' in page.text


def test_the_table_says_what_the_summaries_say(runs: Path) -> None:
    rows = {row["label"]: row for row in summaries(find([runs]))}
    finals = {
        method: [fedmux.Run(runs / f"{method}-{seed}").summary["accuracy"]["mean"] for seed in (0, 1)]
        for method in ("full", "mmfl-lvr", "random")
    }
    for method, values in finals.items():
        assert rows[method]["overall"].startswith(f"{sum(values) / 2:.1%} ± ") and rows[method]["seeds"] == 2
    ratios = [mine / full for mine, full in zip(finals["random"], finals["full"])]  # paired by seed
    assert rows["random"]["relative"] == f"{sum(ratios) / 2:.3f}"


@pytest.mark.parametrize("twice", ["full", "random"])
def test_runs_of_one_label_and_seed_are_counted_and_not_paired(twice: str) -> None:
    def run(label: str, seed: int, score: float, path: str = "") -> History:
        summary = {"accuracy": {"mean": score, "minimum": score}, "tasks": {"a": {"accuracy": score}}}
        return history([], label=label, seed=seed, path=Path(path), summary=summary)

    runs = [run("full", 0, 0.5), run("full", 1, 0.5), run("random", 0, 0.25), run("random", 1, 0.25)]
    assert {row["label"]: row["relative"] for row in summaries(runs)} == {"full": "1.000", "random": "0.500"}
    rows = {row["label"]: row for row in summaries([*runs, run(twice, 1, 0.25, "again")])}
    assert rows[twice]["seeds"] == 3 and rows["random"]["relative"] == ""


def test_nothing_is_fetched_and_no_name_becomes_markup(tmp_path: Path) -> None:
    run = fedmux.run(fedmux.Experiment(**table()), tmp_path / HOSTILE.replace("/", "_"))
    text = (run.path / "experiment.toml").read_text()
    (run.path / "experiment.toml").write_text(text.replace('name = "small"', f"name = {json.dumps(HOSTILE)}"))
    histories = find([run.path])
    assert histories[0].name == HOSTILE
    page = Page(report(histories, HOSTILE))
    assert page.text.count(HOSTILE) >= 1
    assert not [tag for tag, attrs in page.elements if tag == "img" or "onerror" in attrs]
    assert len(page.scripts) == 2 and json.loads(page.scripts[0])
    fetched = [
        value
        for _, attrs in page.elements
        for key, value in attrs.items()
        if key in ("src", "href") and value
    ]
    assert all(re.match(r"#|data:", value) for value in fetched)


def test_broken_folders_are_listed_and_harm_nothing(runs: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "metrics.jsonl").write_bytes(b"\x00\xff{not json\n" * 3)
    (broken / "experiment.toml").write_text("= nothing")
    page = Page(report(find([runs / "full-0", broken]), "One is broken"))
    assert "damaged: experiment.toml: not valid TOML" in page.text
    assert len(json.loads(page.scripts[0])["specs"]) > 5


@pytest.mark.parametrize(
    "summary",
    [
        {"accuracy": 3},
        {"accuracy": {"mean": "x"}, "tasks": {}},
        {"accuracy": {"mean": 0.5}},
        {"accuracy": {"mean": 0.5, "minimum": None}, "tasks": {"a": {}}, "rounds": 0},
        {"tasks": []},
    ],
)
def test_summaries_that_make_no_sense_harm_nothing(tmp_path: Path, summary: dict) -> None:
    run = fedmux.run(fedmux.Experiment(**table(rounds=1)), tmp_path / "run")
    (run.path / "summary.json").write_text(json.dumps(summary))
    assert "small" in Page(report(find([run.path]), "One")).text


def test_the_command_writes_the_page_and_the_pictures(runs: Path, tmp_path: Path) -> None:
    pages, pictures = tmp_path / "a.html", tmp_path / "pictures"
    done = CliRunner().invoke(app, ["report", str(runs / "full-0"), "-o", str(pages), "--png", str(pictures)])
    assert done.exit_code == 0, done.output
    assert pages.stat().st_size > 500_000
    assert {"task-accuracy.png", "data.png"} & {path.name for path in pictures.iterdir()}
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in pictures.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "no such folder"),
        (["."], "no run with a finished round"),
        (["RUN", "-o", "."], "is a folder"),
        (["RUN", "-o", "no/where/a.html"], "there is no folder"),
    ],
)
def test_mistakes_are_told_in_one_line(runs: Path, tmp_path: Path, monkeypatch, arguments, said) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(runs / "full-0") if word == "RUN" else word for word in arguments]
    done = CliRunner().invoke(app, ["report", *given])
    assert isinstance(done.exception, fedmux.FedmuxError) and said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_json_in_a_page_cannot_end_its_script() -> None:
    assert json.loads(as_json({"a": HOSTILE, "b": "\u2028"})) == {"a": HOSTILE, "b": "\u2028"}
    assert "<" not in as_json({"a": HOSTILE})
