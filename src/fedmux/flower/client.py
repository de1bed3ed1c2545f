"""The ClientApp: answers the server from a node's own data. Updates and scalars leave it, points do not.

Every message starts a process that imports this, so it imports nothing of the server's.
"""

import traceback
from collections.abc import Callable, Mapping

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from fedmux.aggregation import LocalRule
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment
from fedmux.fleet import TRAINED_SIGNALS
from fedmux.fleet.local import TightLoop
from fedmux.fleet.scoring import by_client, forward
from fedmux.flower.fitting import same_module
from fedmux.flower.rules import read_rule
from fedmux.flower.tasks import FlowerTask, How, from_experiment, of_task
from fedmux.flower.wire import Hello, Job, asked_tasks, put_failure, tensor, vectors
from fedmux.tasks.task import Task

Tasks = Mapping[str, FlowerTask]
Answer = Callable[[Tasks, RecordDict, Context], RecordDict]
Work = Callable[[str, Task, Job, RecordDict, RecordDict], None]  # the last is the reply to write into


def client_app(given: Tasks | None = None) -> ClientApp:
    """A ClientApp for nodes that have some or all of these tasks; by default those of the experiment file."""

    def answers(answer: Answer) -> Callable[[Message, Context], Message]:
        def reply(message: Message, context: Context) -> Message:
            tasks = given or from_experiment(Experiment.read(str(context.run_config["experiment"])))
            return Message(answer(tasks, message.content, context), reply_to=message)

        return reply

    app = ClientApp()
    app.query("hello")(answers(_hello))
    app.query("signals")(answers(by_task(_signals)))
    app.train("multi")(answers(by_task(_train)))
    app.evaluate("multi")(answers(by_task(_evaluate)))
    return app


def _hello(tasks: Tasks, asked: RecordDict, context: Context) -> RecordDict:
    points = {name: task.points(name, context.node_config) for name, task in tasks.items()}
    sizes = {name: len(own[0]) for name, own in points.items() if own is not None}
    content = RecordDict()
    Hello(identity(context), int(context.node_config.get("processors", 1)), sizes).put(content)
    return content


def by_task(work: Work) -> Answer:
    """A reply with the work on each task; one that fails does not take the others with it."""

    def answer(tasks: Tasks, asked: RecordDict, context: Context) -> RecordDict:
        content = RecordDict()
        for name in asked_tasks(asked):
            try:
                with of_task(name):
                    job = Job.read(asked, name)
                    work(name, _task(tasks, name, context, job), job, asked, content)
            except FedmuxError as error:
                traceback.print_exception(error.__cause__ or error)  # into this client's own log
                put_failure(content, name, str(error).removeprefix(f'task "{name}": '))
        return content

    return answer


def _signals(name: str, task: Task, job: Job, asked: RecordDict, content: RecordDict) -> None:
    report = _loss(task, job)
    if TRAINED_SIGNALS & job.wants:
        update = _update(task, job, None)[0]
        if task.privacy is not None:
            update = task.privacy.clipped(update[None])[0]
        if f"stale.{name}" in asked.array_records:
            last = tensor(asked.array_records[f"stale.{name}"], "update")
            report["beta"] = beta(update, last) if "projection" in job.wants else 1.0
            update = update - report["beta"] * last
        report["norm"] = float(torch.linalg.vector_norm(update))
    content[f"signal.{name}"] = MetricRecord(dict(report))


def _loss(task: Task, job: Job) -> dict[str, float]:
    """The mean loss of the server's model over the client's points, if it is wanted."""
    if "loss" not in job.wants:
        return {}
    return {"loss": float(forward(task, job.model, task.x, task.y)[0].mean())}


def _train(name: str, task: Task, job: Job, asked: RecordDict, content: RecordDict) -> None:
    if report := _loss(task, job):
        content[f"signal.{name}"] = MetricRecord(dict(report))
    update, buffers = _update(task, job, read_rule(asked, name))
    if task.privacy is not None:  # noise that the server cannot know: from the operating system
        update = task.privacy.sent(update[None], [np.random.default_rng()])[0]
        content[f"privacy.{name}"] = ConfigRecord(task.privacy.model_dump())
    content[f"update.{name}"] = vectors(update=update, buffers=buffers)


def _evaluate(name: str, task: Task, job: Job, asked: RecordDict, content: RecordDict) -> None:
    values = forward(task, job.model, task.x, task.y)
    loss, mean = by_client(task.metric, values, np.array([0, len(task.x)]))[:, 0].tolist()
    score = float(task.metric.finish(np.array(mean)))
    # A score may be undefined on a client's own points, such as auc where all have one label.
    content[f"score.{name}"] = MetricRecord({"loss": loss} | ({"score": score} if score == score else {}))


def identity(context: Context) -> str:
    """The id that a restarted node keeps: `client-id` or `partition-id` of its configuration."""
    for key in ("client-id", "partition-id"):
        if key in context.node_config:
            return str(context.node_config[key])
    raise FedmuxError("a SuperNode needs client-id or partition-id in its --node-config")


def beta(update: Tensor, last: Tensor) -> float:
    """<G, h> / ||h||^2; 0 for a client that has not sent anything yet."""
    square = float(last @ last)
    return float(update @ last) / square if square > 0 else 0.0


def _task(tasks: Tasks, name: str, context: Context, job: Job) -> Task:
    torch.set_num_threads(1)
    points = tasks[name].points(name, context.node_config) if name in tasks else None
    if points is None:
        raise FedmuxError("this client does not have the task")
    how = How(job.local, lambda round: job.learning_rate, job.privacy, job.objective)
    task = tasks[name].task(name, how, points, job.client)
    same_module(task, job.model)
    return task


def _update(task: Task, job: Job, rule: LocalRule | None) -> tuple[Tensor, Tensor]:
    loop = TightLoop(task, job.task, job.seed)
    ((_, updates, buffers),) = loop.updates(job.model, np.array([job.client]), job.round, rule)
    return updates[0], buffers[0]
