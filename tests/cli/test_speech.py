"""What a verb says, by --quiet and --json."""

import json

import pytest

from fedmux.cli.speech import Speech, notice


@pytest.mark.parametrize(
    ("speech", "out", "err"),
    [
        (Speech(), "a line\n", "remark\nnotice\n"),
        (Speech(quiet=True), "", "notice\n"),
        (Speech(as_json=True), json.dumps({"a": 1}, indent=1) + "\n", "notice\n"),
        (Speech(quiet=True, as_json=True), json.dumps({"a": 1}, indent=1) + "\n", "notice\n"),
    ],
)
def test_results_go_to_stdout_and_remarks_to_stderr(speech, out, err, capsys) -> None:
    speech.remark("remark")
    speech.result({"a": 1}, lambda: ["a line"])
    notice("notice")
    assert capsys.readouterr() == (out, err)


def test_tables_are_made_only_to_be_shown() -> None:
    def never() -> list[str]:
        raise AssertionError

    Speech(quiet=True).result([], never)
    Speech(as_json=True).result([], never)
