"""The validated description of a run, from a TOML file or from Python."""

from fedmux.experiment.experiment import Experiment
from fedmux.experiment.population import PopulationSettings
from fedmux.experiment.sections import (
    CompareSettings,
    Evaluation,
    Execution,
    Output,
    RecruitmentSettings,
    Stop,
)
from fedmux.experiment.settings import Settings
from fedmux.experiment.task import LearningRate, TaskSettings

__all__ = [
    "CompareSettings",
    "Evaluation",
    "Execution",
    "Experiment",
    "LearningRate",
    "Output",
    "PopulationSettings",
    "RecruitmentSettings",
    "Settings",
    "Stop",
    "TaskSettings",
]
