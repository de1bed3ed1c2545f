"""What a person sees while fedmux works, on stderr."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group
from rich.live import Live
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from fedmux.errors import FedmuxError
from fedmux.runs import finals
from fedmux.runs.reading import Run, newest_rounds, read_jobs
from fedmux.runs.rounds import Round
from fedmux.runs.scale import ACCURACIES, Scale
from fedmux.runs.state import is_finished

progress_console = Console(stderr=True, highlight=False, markup=False)  # names are the user's: no markup

BLOCKS = "▁▂▃▄▅▆▇█"
BAR = 16  # characters
MOST_NAMED = 4  # clients of a task
MOST_READ = 5000  # jobs at the end of a run's record


def _bar(counted: str, live: bool) -> Progress:
    """How many are done of how many, time left, and a description; nothing unless on a terminal."""
    return Progress(
        TextColumn(counted),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=progress_console,
        disable=not live,
    )


class RoundProgress:
    """Observer of a run: a table that changes on a terminal, a line now and then elsewhere.

    A round only leaves its figures here; they are drawn four times a second, however short the rounds are.
    """

    def __init__(
        self,
        rounds: int,
        done: int = 0,
        quiet: bool = False,
        folder: Path | None = None,
        scales: Mapping[str, Scale] | None = None,
    ) -> None:
        self.quiet, self.rounds, self.done = quiet, rounds, done
        self.folder = folder  # of the run, where it says who trains
        self.live = not quiet and progress_console.is_terminal
        self.screen = Live(self, console=progress_console, refresh_per_second=4)
        self.scales = scales or {}
        self.curves: dict[str, list[float]] = {}  # scores of each task so far
        self.last = Round(0)
        self.began: tuple[float, int] | None = None  # when the first round came, and which
        self.bar = "#-" if progress_console.options.ascii_only else "━─"
        self.over = False
        self.printed = 0.0

    def __enter__(self) -> "RoundProgress":
        if self.live:
            self.screen.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over = True  # one line is left of it
        self.screen.stop()

    def __call__(self, entry: Round) -> None:
        now = time.monotonic()
        self.began = self.began or (now, entry.round)
        self.last, self.done = entry, entry.round
        for name, figures in entry.tasks.items():
            if figures.score is not None:
                self.curves.setdefault(name, []).append(figures.score)
        if not self.live and not self.quiet and (self.done == self.rounds or now - self.printed > 5):
            self.printed = now
            progress_console.print(f"round {self.done}/{self.rounds}  {self._scores()}")

    def __rich__(self) -> Group:
        if self.over or not self.last.tasks:
            return Group(self._line())
        return Group(self._line(), self._tasks())

    def _scores(self) -> str:
        return "  ".join(f"{name} {self._scale(name).show(curve[-1])}" for name, curve in self.curves.items())

    def _scale(self, task: str) -> Scale:
        return self.scales.get(task, ACCURACIES)

    def _line(self) -> Text:
        """How far it is, how fast, how long it will take, and who is there."""
        full = BAR * min(self.done, self.rounds) // self.rounds
        parts = self._pace()
        if not self.over:
            there = {"clients": self.last.clients, "dropped": self.last.dropped}
            parts += [f"{count} {what}" for what, count in there.items() if count is not None]
        return Text.assemble(
            f"round {self.done}/{self.rounds}  ",
            (self.bar[0] * full, "bar.complete"),
            (self.bar[1] * (BAR - full), "bar.back"),
            f"  {', '.join(parts)}",
            no_wrap=True,
            overflow="ellipsis",
        )

    def _pace(self) -> list[str]:
        if self.began is None or self.done == self.began[1]:
            return []
        seconds = time.monotonic() - self.began[0]
        rate = (self.done - self.began[1]) / max(seconds, 1e-9)
        if self.over:
            return [_clock(seconds)]
        pace = f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s/round"
        return [pace, f"{_clock((self.rounds - self.done) / rate)} left"]

    def _scored(self) -> str:
        """By what: the metric, if all tasks have the same."""
        names = {self._scale(name).name for name in self.last.tasks}
        return names.pop() if len(names) == 1 else "score"

    def _tasks(self) -> Table:
        """What each task has come to, and how much of the round went into it."""
        table = Table(
            Column("task", no_wrap=True, max_width=20),
            *(
                Column(head, justify="right", no_wrap=True)
                for head in (self._scored(), "change", "jobs", "uploads")
            ),
            Column("clients", no_wrap=True),
            Column("over rounds"),  # the one to give way on a narrow terminal
            box=None,
            padding=(0, 2, 0, 0),
        )
        who = self._who()
        for number, (name, figures) in enumerate(self.last.tasks.items()):
            curve = self.curves.get(name, [])
            scale = self._scale(name)
            now = scale.show(curve[-1] if curve else None)
            name += " (diverged)" if figures.diverged else ""
            change = scale.change(*curve[:-3:-1]) if len(curve) > 1 else ""
            work = ("" if count is None else str(count) for count in (figures.jobs, figures.uploads))
            table.add_row(Text(name), now, change, *work, who.get(number, ""), Sparkline(curve))
        return table

    def _who(self) -> dict[int, str]:
        """The first few clients of each task in the last round, from the end of the run's own record."""
        if self.folder is None:
            return {}
        try:
            jobs = read_jobs(self.folder, last=MOST_READ)
        except FedmuxError:
            return {}
        jobs = jobs[jobs["round"] == self.done]
        named = {}
        for task in set(jobs["task"].tolist()):
            clients = jobs["client"][jobs["task"] == task].tolist()
            named[task] = " ".join(map(str, clients[:MOST_NAMED])) + (
                " …" if len(clients) > MOST_NAMED else ""
            )
        return named


class Sparkline:
    """A curve in one line of blocks, from its lowest value to its highest; as many as there is room for."""

    def __init__(self, values: Sequence[float], most: int = 40) -> None:
        self.values, self.most = values, most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        marks = "_.-=+*#@" if options.ascii_only else BLOCKS
        yield Text(self.drawn(min(self.most, options.max_width), marks))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, min(self.most, options.max_width))

    def drawn(self, width: int, marks: str) -> str:
        count = len(self.values)
        points = min(width, count)
        seen = [self.values[(i + 1) * count // points - 1] for i in range(points)]  # the last one always
        low, high = min(seen, default=0.0), max(seen, default=0.0)
        step = (high - low) / (len(marks) - 1) or 1.0
        return "".join(marks[round((value - low) / step)] for value in seen)


def _clock(seconds: float) -> str:
    """0:07, 12:30 or 3:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class ComparisonProgress:
    """One bar over all rounds of all cells, and which of them run now."""

    def __init__(self, folders: dict[str, Path], rounds: int, quiet: bool) -> None:
        self.folders, self.rounds, self.quiet = folders, rounds, quiet
        self.live = not quiet and progress_console.is_terminal
        self.bar = _bar("rounds", self.live)
        self.id = self.bar.add_task("", total=rounds * len(folders))
        self.done: set[str] = {name for name, folder in folders.items() if is_finished(folder)}
        if self.done and not quiet:
            progress_console.print(f"{len(self.done)} of {len(folders)} runs are done already")

    def __enter__(self) -> "ComparisonProgress":
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.stop()

    def __call__(self, working: Sequence[Any]) -> None:
        finished = {name for name, folder in self.folders.items() if is_finished(folder)}
        if not self.quiet:
            for name in sorted(finished - self.done):
                progress_console.print(f"{name}: {_ended(self.folders[name])}")
        self.done = finished
        rounds = len(finished) * self.rounds
        names = [cell.name for cell in working if cell.name not in finished]
        rounds += sum(_trained(self.folders[name]) for name in names)
        self.bar.update(self.id, completed=rounds, description=", ".join(names)[:40])


def _ended(folder: Path) -> str:
    """What a finished run ended with, or what is wrong with it."""
    try:
        summary = Run(folder).summary
    except FedmuxError as error:
        return str(error)
    mean = finals.overall(summary)
    measure = "accuracy" if finals.by_accuracy(summary) else "progress"
    reached = "" if mean is None else f"{measure} {mean:.1%} "
    return f"{reached}after {summary['rounds']} rounds, {summary['seconds']:.0f} s"


def _trained(folder: Path) -> int:
    """Rounds that a run has behind it."""
    last = next(newest_rounds(folder), None)
    return 0 if last is None else last.round
