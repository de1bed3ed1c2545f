"""`fedmux auction`, and `[recruitment]` in an experiment, as a user types them: output and refusals."""

import csv
import io
import json

import pytest
import tomli_w

from conftest import table
from fedmux import cli
from fedmux.data.png import decode_png
from fedmux.recruitment import MECHANISMS, max_min_fair
from fedmux.recruitment.bids import read_bids

UNIFORM = {"kind": "uniform"}


def bids_file(folder, text: str) -> None:
    (folder / "bids.csv").write_text(text)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """`fedmux ARGUMENTS` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fedmux", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def assert_refused(ended: tuple[int, str, str], *says: str) -> None:
    code, out, err = ended
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and err.startswith("fedmux: ")
    for part in says:
        assert part in err


AUCTIONED = "user,a,b\nann,0.1,0.5\nbob,0.2,\ncy,0.9,0.3\ndi,0.4,0.2\n"


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("a,b\n0.1,-0.2\n", ["--budget", 1], ["line 2, b", "at least 0"]),
        ("a,b\n0.1,inf\n", ["--budget", 1], ["line 2, b", "finite"]),
        ("a,b\n0.1,nan\n", ["--budget", 1], ["line 2, b", "finite"]),
        ("a,b\n0.1,0.2\n0.1,cheap\n", ["--budget", 1], ["line 3, b", '"cheap" is not a number']),
        ("a,b\n0.1\n", ["--budget", 1], ["line 2 has 1 columns, the header 2"]),
        ("", ["--budget", 1], ["header", "row for each user"]),
        ("a,b\n", ["--budget", 1], ["row for each user"]),
        ("0.1,0.2\n0.3,0.4\n", ["--budget", 1], ["must name the tasks"]),
        ("a,a\n0.3,0.4\n", ["--budget", 1], ["name each task once"]),
        ("user\nann\n", ["--budget", 1], ["name each task once"]),
        (AUCTIONED, ["--budget", -1], ["budget must be finite and at least 0"]),
        (AUCTIONED, ["--budget", "inf"], ["budget must be finite"]),
        (AUCTIONED, ["--budget", "nan", "--compare"], ["must be finite"]),
        (AUCTIONED, ["--budget", "much"], ["budget"]),
        (AUCTIONED, [], ["--budget"]),
        (AUCTIONED, ["--budget", 1, "--mechanism", "max-min-fiar"], ['did you mean "max-min-fair"?']),
        (AUCTIONED, ["--budget", 1, "--mechanism", "vcg"], ["unknown mechanism", "gmm-fair"]),
    ],
)
def test_an_auction_with_bad_input_says_so_in_one_line(text, arguments, says, command, tmp_path):
    bids_file(tmp_path, text)
    assert_refused(command("auction", "bids.csv", *arguments), *says)


def test_a_file_of_bids_that_is_none_is_refused_in_one_line(command, tmp_path):
    assert_refused(command("auction", "bids.csv", "--budget", 1), "bids.csv: no such file")
    (tmp_path / "bids.csv").write_bytes(b"\xff\xfe\x00a")
    assert_refused(command("auction", "bids.csv", "--budget", 1), "cannot be read")
    assert_refused(command("auction", ".", "--budget", 1), "cannot be read")


@pytest.mark.parametrize(
    ("recruitment", "says"),
    [
        ({"budget": 0.0}, ['task "a": no client can train it', "recruitment budget"]),
        ({"budget": -1.0}, ["[recruitment] budget", "greater than or equal to 0"]),
        ({"budget": float("inf")}, ["budget", "finite"]),
        ({"mechanism": "max-min-fiar"}, ["[recruitment] mechanism", "max-min-fair", "got 'max-min-fiar'"]),
        ({"bids": [UNIFORM] * 3}, ["bids lists 3 distributions for 2 tasks"]),
        ({"bids": {"kind": "uniform", "low": 2.0}}, ["low must be below high"]),
        ({"bids": "missing.csv"}, ["missing.csv: no such file"]),
        ({"bids": "short.csv"}, ["a row for each of 12 clients", "it has 3"]),
        ({"bids": "names.csv"}, ["columns a, b; it has 12 rows and a, c"]),
        ({"bids": "nobody.csv"}, ['task "b": no client can train it']),
        ({"bids": "word.csv"}, ["line 3, a", "not a number"]),
    ],
)
def test_an_experiment_with_bad_recruitment_says_so_in_one_line(recruitment, says, command, tmp_path):
    for name, text in {
        "short": "a,b\n" + "1,1\n" * 3,
        "names": "a,c\n" + "1,1\n" * 12,
        "nobody": "a,b\n" + "1,\n" * 12,
        "word": "a,b\n1,1\nfree,1\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text(text)
    small = table(recruitment={"mechanism": "max-min-fair", "budget": 5.0, "bids": UNIFORM, **recruitment})
    (tmp_path / "experiment.toml").write_text(tomli_w.dumps(small))
    assert_refused(command("run", "experiment.toml", "-o", "run"), *says)
    assert not (tmp_path / "run").exists()


def test_an_auction_prints_winners_and_totals(command, tmp_path):
    bids_file(tmp_path, AUCTIONED)
    award = max_min_fair(read_bids("bids.csv")[2], 1.2)
    code, out, err = command("auction", "bids.csv", "--budget", 1.2)
    assert (code, err) == (0, "")
    assert "max-min-fair: 4 winners" in out
    assert f"paid {award.paid:.4g} of 1.2" in out and f"take-up: a {award.take_up[0]:.2f}, b" in out


def test_an_auction_prints_nothing_but_json_or_csv(command, tmp_path):
    bids_file(tmp_path, AUCTIONED)
    award = max_min_fair(read_bids("bids.csv")[2], 1.2)
    code, out, err = command("auction", "bids.csv", "--budget", 1.2, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["take_up"] == pytest.approx(dict(zip("ab", award.take_up)))
    assert found["paid"] + found["leftover"] == pytest.approx(1.2)
    assert sum(row["payment"] for row in found["winners"]) == pytest.approx(award.paid)
    code, out, err = command("auction", "bids.csv", "--budget", 1.2, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, err) == (0, "")
    assert [{**row, "share": float(row["share"]), "payment": float(row["payment"])} for row in rows] == found[
        "winners"
    ]
    assert {row["user"] for row in rows if row["task"] == "b"} <= {"ann", "cy", "di"}


@pytest.mark.parametrize("budget", [1.2, 3.36, 60.66])  # the last two are not 20 times their twentieth
def test_a_comparison_of_mechanisms_writes_a_picture_and_a_line_for_each(budget, command, tmp_path):
    bids_file(tmp_path, AUCTIONED)
    code, out, err = command("auction", "bids.csv", "--budget", budget, "--compare", "--json")
    rows = json.loads(out)
    assert (code, err) == (0, "picture:    auction.png\n")
    assert {row["mechanism"] for row in rows} == set(MECHANISMS)
    assert sum(row["budget"] == budget for row in rows) == len(MECHANISMS)
    assert max(row["budget"] for row in rows) == pytest.approx(2 * budget)
    assert decode_png((tmp_path / "auction.png").read_bytes(), "auction.png").size > 10_000
    for row in rows:
        assert row["mechanism"] == "posted-price" or row["paid"] <= row["budget"] * (1 + 1e-9)


def test_a_comparison_is_a_table_or_csv_and_the_picture_goes_where_it_is_told(command, tmp_path):
    bids_file(tmp_path, AUCTIONED)
    code, out, err = command("auction", "bids.csv", "--budget", 1.2, "--compare", "-o", "p.png")
    assert (code, err) == (0, "") and "take-up at a budget of 1.2" in out and "gmm-fair" in out
    assert (tmp_path / "p.png").stat().st_size > 1000
    code, out, err = command("auction", "bids.csv", "--budget", 1.2, "--compare", "--csv", "-o", "p.png")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, err) == (0, "picture:    p.png (in place of the one that was there)\n") and len(
        rows
    ) == 20 * len(MECHANISMS)


def test_an_auction_without_winners_says_nobody(command, tmp_path):
    bids_file(tmp_path, "a,b\n,\n,\n")
    code, out, _ = command("auction", "bids.csv", "--budget", 3)
    assert code == 0 and "nobody" in out and "take-up: a 0.00, b 0.00; paid 0 of 3" in out
    code, out, _ = command("auction", "bids.csv", "--budget", 3, "--compare", "--json")
    assert code == 0 and all(row["paid"] == 0 for row in json.loads(out))
