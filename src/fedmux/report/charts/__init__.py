"""The charts: one definition each, for pages and for pictures. `CHARTS` has all those of runs."""

from fedmux.report.charts.auctions import take_up
from fedmux.report.charts.curves import method_accuracy, task_accuracy
from fedmux.report.charts.explained import probabilities
from fedmux.report.charts.kinds import CHARTS, Kind
from fedmux.report.charts.look import Chart, check_picture, save, spec, theme

__all__ = [
    "CHARTS",
    "Chart",
    "Kind",
    "check_picture",
    "method_accuracy",
    "probabilities",
    "save",
    "spec",
    "take_up",
    "task_accuracy",
    "theme",
]
