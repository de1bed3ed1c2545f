"""Every chart of runs there is, in the order of a page: what it is called, how to read it, how to draw it."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedmux.report.charts import allocation, auctions, curves, data, finals, fleet, forecasts, groups, spreads
from fedmux.report.charts.lines import LOSS, STEP
from fedmux.report.charts.style import Chart
from fedmux.runs.history import History
from fedmux.runs.scale import ACCURACY as ACCURACY_NAME


@dataclass(frozen=True)
class Kind:
    """A chart of one run, or of several together."""

    key: str  # also the name of its picture
    title: str
    caption: str
    draw: Callable[[Sequence[History]], Chart | None]  # None: the data for it is not there
    several: bool = False  # drawn from all runs at once; otherwise from the first one given
    unlike: str = ""  # what it is called where tasks have other metrics than accuracy

    def called(self, histories: Sequence[History]) -> str:
        return self.unlike if self.unlike and _unlike(histories) else self.title

    def explained(self, histories: Sequence[History]) -> str:
        """The caption, in the words for what is shown."""
        if not self.over_tasks or not _unlike(histories):
            return self.caption
        return self.caption.replace("Test accuracy", "Progress").replace("accuracy", "progress")

    @property
    def over_tasks(self) -> bool:
        return "progress" in self.unlike.lower()


def _unlike(histories: Sequence[History]) -> bool:
    return any(history.measure != ACCURACY_NAME for history in histories)


def _of_one(draw: Callable[[History], Chart | None]) -> Callable[[Sequence[History]], Chart | None]:
    return lambda histories: draw(histories[0]) if histories else None


def _of_tasks(key: str, title: str, what: str) -> Callable[[Sequence[History]], Chart | None]:
    return lambda histories: curves.task_chart(
        curves.metrics_of(histories), key, title, defaultdict(lambda: curves.Axis(what))
    )


def _methods(histories: Sequence[History]) -> Chart | None:
    compared = curves.metrics_of(histories)
    return curves.method_chart(compared, "Methods compared") if len(compared) > 1 else None


def _of_cost(cost: str, title: str, what: str) -> Callable[[Sequence[History]], Chart | None]:
    return lambda histories: curves.cost_chart(histories, cost, title, what)


CHARTS: list[Kind] = [
    Kind(
        "task-accuracy",
        curves.ACCURACY_TITLE,
        "Test accuracy of each model over the rounds; a task with another metric is shown by it, in its own "
        "unit. Several methods have a panel for each task; a band is the range over seeds.",
        curves.score_chart,
        several=True,
        unlike="Score of each task",
    ),
    Kind(
        "task-loss",
        "Loss of each task",
        "Test loss of each model over the rounds; lower is better. Accuracy can rest while the loss "
        "still falls.",
        _of_tasks("loss", "Loss of each task", LOSS),
        several=True,
    ),
    Kind(
        "over-tasks",
        "Accuracy over all tasks",
        "Mean over the tasks, the worst task and the variance between them. A method is fair if the "
        "worst task is close to the mean and the variance small.",
        curves.over_tasks,
        several=True,
        unlike="Progress over all tasks",
    ),
    Kind(
        "methods",
        "Methods compared",
        "Test accuracy, mean over tasks, of every method over the rounds. A band is the range over seeds.",
        _methods,
        several=True,
        unlike="Progress of the methods compared",
    ),
    Kind(
        "final-accuracy",
        "Final accuracy",
        "Mean over the last ten rounds, best first. Where full participation was run it is 1, and the"
        " others are shown as a part of it, seed by seed.",
        finals.final_chart,
        several=True,
        unlike="Final progress",
    ),
    Kind(
        "uploads",
        "Accuracy by uploads",
        "Mean accuracy against the updates that clients have sent so far. Further left and higher is "
        "better: the same accuracy for less traffic.",
        _of_cost("uploads", "by uploads", "updates sent, all tasks"),
        several=True,
        unlike="Progress by uploads",
    ),
    Kind(
        "gradient-steps",
        "Accuracy by computation",
        "Mean accuracy against the local SGD steps that clients have made so far, those included that"
        " only serve to report an update norm.",
        _of_cost("gradient_steps", "by computation", "gradient steps, all tasks"),
        several=True,
        unlike="Progress by computation",
    ),
    Kind(
        "step-size",
        "Step size",
        "The sum of the coefficients of the updates of a round, ||H||₁. Full participation has 1 in "
        "every round; the more it jumps, the more the allocation's variance shakes the model.",
        _of_tasks("step_size", "Step size", STEP),
        several=True,
    ),
    Kind(
        "allocation",
        "Who trains what",
        "Clients from top to bottom, those with most jobs first, rounds from left to right; the "
        "colour is the task that the client trained. Empty cells are rounds without a job.",
        _of_one(allocation.allocation_map),
    ),
    Kind(
        "job-shares",
        "Jobs of each task",
        "How the jobs of each round are divided among the tasks.",
        _of_one(allocation.job_shares),
    ),
    Kind(
        "fairness",
        "How evenly clients take part",
        "Lorenz curves: the share of all jobs that the least used clients have together. On the "
        "diagonal all clients have alike; the Gini coefficient is 0 there and 1 if one client has "
        "everything.",
        _of_one(allocation.lorenz),
    ),
    Kind(
        "probability",
        "Probabilities of the clients",
        "How the probabilities to train are spread over the clients: the median, the middle half and "
        "the middle 80 %. Saturated clients have a probability that has reached its bound.",
        _of_one(spreads.probability),
    ),
    Kind(
        "forecast-error",
        "Error of the forecasts",
        "How far forecasts of the updates were off, for the clients that were drawn and before the method "
        "learned from them. Norms: a factor, of which 1 is exact. Cosines with a client's last update: a "
        "difference. Both are root mean squares; large errors make steps vary more, but leave them unbiased.",
        _of_one(forecasts.forecast_error),
    ),
    Kind(
        "client-accuracy",
        "Accuracy at the clients",
        "Accuracy of the global models on each client's own training points: the median, the middle "
        "half and the middle 80 % of the clients. Narrow bands mean that the model serves all alike.",
        _of_one(spreads.client_accuracy),
        unlike="Scores at the clients",
    ),
    Kind(
        "groups",
        "Groups of alike clients",
        "Clients in the plane of the first two principal components of their losses, at a few rounds "
        "in which groups were formed: above by group, below by true cluster. The Rand index is 1 if "
        "both agree.",
        _of_one(groups.plane),
    ),
    Kind(
        "dynamics",
        "Clients that come, go and fail",
        "Clients that can train over the rounds, with marks where some join or leave and lines where "
        "tasks start or end; below, jobs that did not return and failures by kind.",
        _of_one(fleet.dynamics),
    ),
    Kind(
        "recruitment",
        "Recruitment before training",
        "Clients that the auction won for each task, and what they are paid together. A client "
        "recruited for a part of the rounds counts as that part.",
        _of_one(auctions.recruitment),
    ),
    Kind(
        "data",
        "Data of the clients",
        "Which labels each client has: a column is a client, a row a label, and the stronger the "
        "colour the larger its share of the client's points. Without labels, the number of points of "
        "each client.",
        _of_one(data.data),
    ),
    Kind(
        "phases",
        "Where the time goes",
        "Seconds of each round by what they went into: asking for signals, planning, training, "
        "aggregating, evaluating.",
        _of_one(fleet.phases),
    ),
]
