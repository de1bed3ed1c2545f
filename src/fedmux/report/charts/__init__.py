"""The charts: one definition each, for pages and for pictures. `CHARTS` has all those of runs."""

from fedmux.report.charts.auctions import take_up
from fedmux.report.charts.curves import method_accuracy, task_accuracy
from fedmux.report.charts.explained import explained
from fedmux.report.charts.groups import plane
from fedmux.report.charts.kinds import CHARTS, Kind
from fedmux.report.charts.papers import beside
from fedmux.report.charts.style import Chart, check_picture, save, spec, theme

__all__ = [
    "CHARTS",
    "Chart",
    "Kind",
    "beside",
    "check_picture",
    "explained",
    "method_accuracy",
    "plane",
    "save",
    "spec",
    "take_up",
    "task_accuracy",
    "theme",
]
