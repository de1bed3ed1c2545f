"""From an experiment to what a run works on: the population and the tasks with their data."""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from fedmux.data import Dataset, load
from fedmux.data.partition import Split, split
from fedmux.dynamics import Presence
from fedmux.errors import FedmuxError
from fedmux.experiment import Experiment, TaskSettings
from fedmux.population import Bools, Ints, Population, draw_availability, draw_capacity
from fedmux.randomness import Stream, generator, torch_seed
from fedmux.recruitment import MECHANISMS, Award
from fedmux.recruitment.bids import read_bids
from fedmux.runs.atomic import write_atomically
from fedmux.tasks import build, build_loss, build_metric
from fedmux.tasks.losses import default_metric
from fedmux.tasks.task import LocalSgd, Task

MOST_LABELS = 10**7  # clients x labels that are counted for the record


@dataclass(frozen=True, eq=False)
class Setting:
    """Everything that follows from an experiment before its first round."""

    population: Population
    tasks: list[Task]
    splits: list[Split]
    presence: Presence
    award: Award | None = None

    def in_round(self, round: int) -> Population:
        """Who is there in a round; those recruited for a fraction take part in that fraction of rounds."""
        eligible = self.population.eligible
        if not self.presence.constant:
            clients, tasks = self.presence.at(round)
            eligible = eligible & clients[:, None] & tasks
        if self.award is not None and (self.award.share % 1 > 0).any():
            rng = generator(self.presence.seed, Stream.RECRUITMENT, round=round + 1)
            eligible = eligible & (rng.random(self.award.share.shape) < self.award.share)
        if eligible is self.population.eligible:
            return self.population
        return replace(self.population, eligible=eligible)

    @property
    def constant(self) -> bool:
        """Nobody ever comes or goes."""
        return self.presence.constant

    def changes(self) -> dict[str, list[Any]]:
        """Who came and went before the last round asked for."""
        return self.presence.changes

    def running(self, round: int) -> Bools:
        """S: the tasks that are being trained in a round."""
        return self.presence.at(round)[1]

    def rand_index(self, groups: list[int]) -> dict[str, float]:
        """How well groups of clients (-1: none) match the true clusters of each task that has them."""
        from sklearn.metrics import adjusted_rand_score

        found = np.array(groups)
        index = {}
        for task, part in zip(self.tasks, self.splits):
            if part.cluster is not None:
                both = (found >= 0) & (part.cluster >= 0)
                index[task.name] = float(adjusted_rand_score(part.cluster[both], found[both]))
        return index

    def summary(self) -> dict[str, Any]:
        """What a run's summary says of the setting."""
        if self.award is None:
            return {}
        take_up = dict(zip((task.name for task in self.tasks), self.award.take_up.tolist()))
        return {
            "recruitment": {
                "take_up": take_up,
                "paid": self.award.paid,
                "budget": self.award.budget,
                "leftover": self.award.leftover,
            }
        }

    def save(self, path: Path) -> None:
        """The population as arrays, with what is known of the split."""
        arrays: dict[str, Any] = {
            "capacity": self.population.capacity,
            "sizes": self.population.sizes,
            "eligible": self.population.eligible,
            "overlap": np.array([part.overlap for part in self.splits]),
        }
        clusters = [part.cluster for part in self.splits]
        if any(cluster is not None for cluster in clusters):
            none = np.full(self.population.clients, -1)
            arrays["cluster"] = np.stack([none if c is None else c for c in clusters], axis=1)
        for task in self.tasks:
            if (labels := _labels(task)) is not None:
                arrays[f"labels.{task.name}"] = labels
        if self.award is not None:
            arrays["award_share"], arrays["award_payment"] = self.award.share, self.award.payment
        data = io.BytesIO()
        np.savez_compressed(data, **arrays)
        write_atomically(path, data.getvalue())


def assemble(experiment: Experiment) -> Setting:
    """Load data, divide it, build modules; FedmuxError names the task that cannot be had."""
    clients, seed = experiment.population.clients, experiment.seed
    has = draw_availability(
        experiment.population.availability,
        clients,
        len(experiment.tasks),
        generator(seed, Stream.AVAILABILITY),
    )
    capacity = draw_capacity(experiment.population.processors, has, generator(seed, Stream.CAPACITY))
    loaded: dict[str, Dataset] = {}
    tasks, splits = [], []
    for index, settings in enumerate(experiment.tasks):
        try:
            dataset = _dataset(settings, loaded)
            task, part = _task(experiment, settings, index, dataset, has[:, index])
        except FedmuxError as error:
            raise FedmuxError(f'task "{settings.name}": {error}') from None
        tasks.append(task)
        splits.append(part)
    sizes = np.stack([np.diff(part.offsets) for part in splits], axis=1)
    award = _recruit(experiment, has)
    population = Population(capacity, sizes, has if award is None else has & (award.share > 0))
    for index, number in enumerate(population.available.sum(0)):
        if number == 0:
            raise FedmuxError(
                f'task "{tasks[index].name}": no client can train it; '
                f"raise population.availability, give clients processors or raise the recruitment budget"
            )
    presence = Presence(
        clients,
        [task.name for task in tasks],
        seed,
        experiment.population.start or clients,
        experiment.events,
        experiment.arrivals,
        experiment.departures,
        experiment.absence,
    )
    return Setting(population, tasks, splits, presence, award)


def _recruit(experiment: Experiment, has: Bools) -> Award | None:
    """Run the auction, if there is one; clients bid for the tasks they have."""
    settings = experiment.recruitment
    if settings is None:
        return None
    clients, tasks = has.shape
    if isinstance(settings.bids, str):
        _, names, bids = read_bids(settings.bids)
        wanted = [task.name for task in experiment.tasks]
        if bids.shape[0] != clients or set(names) != set(wanted):
            raise FedmuxError(
                f"{settings.bids}: must have a line for each of {clients} clients and the columns "
                f"{', '.join(wanted)}; it has {bids.shape[0]} and {', '.join(names)}"
            )
        bids = bids[:, [names.index(name) for name in wanted]]
    else:
        laws = settings.bids * tasks if len(settings.bids) == 1 else settings.bids
        bids = np.stack(
            [
                law.draw(clients, generator(experiment.seed, Stream.BIDS, task=task))
                for task, law in enumerate(laws)
            ],
            axis=1,
        )
    mechanism = MECHANISMS[settings.mechanism]
    rng = generator(experiment.seed, Stream.RECRUITMENT)
    return mechanism(np.where(has, bids, np.nan), settings.budget, rng)


def _labels(task: Task) -> Ints | None:
    """Points of each client with each label (N x labels); None without classes, or with far too many."""
    if task.y.dtype != torch.int64 or task.y.ndim != 1 or not len(task.y):
        return None
    clients, labels = len(task.sizes), int(task.y.max()) + 1
    if clients * labels > MOST_LABELS:
        return None
    owner = np.repeat(np.arange(clients), task.sizes)
    counts = np.bincount(owner * labels + task.y.cpu().numpy(), minlength=clients * labels)
    return counts.reshape(clients, labels).astype(np.int32)


def _dataset(settings: TaskSettings, loaded: dict[str, Dataset]) -> Dataset:
    if isinstance(settings.data, Dataset):
        return settings.data.check(settings.name)
    if settings.data not in loaded:
        loaded[settings.data] = load(settings.data)
    return loaded[settings.data]


def _task(
    experiment: Experiment, settings: TaskSettings, index: int, dataset: Dataset, has: Bools
) -> tuple[Task, Split]:
    seed = experiment.seed
    part = split(
        settings.partition,
        dataset.train_y if dataset.classes is not None else None,
        dataset.groups,
        np.flatnonzero(has),
        points=len(dataset.train_x),
        clients=experiment.population.clients,
        seed=seed,
        task=index,
    )
    inputs = _Inputs(dataset)
    held_out = generator(seed, Stream.HELD_OUT, task=index).permutation(len(dataset.test_x))
    held_out = held_out[: experiment.evaluation.samples]
    cut = round(len(held_out) * experiment.evaluation.validation_share)
    if not 0 < cut < len(held_out):
        raise FedmuxError(
            f"{len(held_out)} held-out points cannot be divided by "
            f"evaluation.validation_share = {experiment.evaluation.validation_share}; take more points"
        )
    x, y = inputs(dataset.train_x[part.indices]), _targets(dataset, dataset.train_y[part.indices])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, Stream.INITIAL, task=index))
        outputs = dataset.classes or (y.shape[1] if y.ndim > 1 else 1)
        module = build(
            settings.model, input_shape=tuple(x.shape[1:]), outputs=outputs, options=settings.model_options
        )
    if settings.initial_weights is not None:
        _start_from(module, settings.initial_weights)
    parts = [
        (inputs(dataset.test_x[rows]), _targets(dataset, dataset.test_y[rows]))
        for rows in (held_out[:cut], held_out[cut:])
    ]
    loss = build_loss(settings.loss, settings.loss_options)
    task = Task(
        name=settings.name,
        module=module,
        loss=loss,
        metric=build_metric(settings.metric or default_metric(settings.loss)),
        x=x,
        y=y,
        offsets=part.offsets,
        validation=parts[0],
        test=parts[1],
        local=LocalSgd(
            settings.batch_size,
            settings.local_epochs,
            settings.momentum,
            settings.weight_decay,
            settings.clip,
        ),
        learning_rate=settings.learning_rate,
        privacy=settings.privacy,
    )
    _try_out(task)
    return task, part


class _Inputs:
    """Raw inputs to tensors; images are standardised by the whole training set's channels."""

    def __init__(self, dataset: Dataset) -> None:
        self.kind = dataset.inputs
        if self.kind == "images":
            pixels = dataset.train_x.reshape(*dataset.train_x.shape[:3], -1)
            self.mean = pixels.mean((0, 1, 2)) / 255
            self.scale = np.maximum(pixels.std((0, 1, 2)) / 255, 1e-6)

    def __call__(self, raw: np.ndarray) -> Tensor:
        if self.kind == "tokens":
            return torch.from_numpy(raw.astype(np.int64))
        if self.kind == "numbers":
            return torch.from_numpy(np.ascontiguousarray(raw, np.float32))
        pixels = raw.reshape(*raw.shape[:3], -1).astype(np.float32) / 255
        pixels = (pixels - self.mean.astype(np.float32)) / self.scale.astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def _targets(dataset: Dataset, raw: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(raw, np.float32 if dataset.classes is None else np.int64))


def _start_from(module: torch.nn.Module, path: str) -> None:
    try:
        weights = load_file(path)
        module.load_state_dict(weights)
    except FileNotFoundError:
        raise FedmuxError(f"initial_weights: no such file: {path}") from None
    except Exception as error:  # safetensors' and torch's own messages name the mismatch
        reason = str(error).strip().splitlines()[-1].strip()
        raise FedmuxError(f"initial_weights: {path} does not fit the model ({reason})") from None


def _try_out(task: Task) -> None:
    """One small batch through module, loss and metric, so that a misfit is told before any work starts."""
    x, y = task.test[0][:2], task.test[1][:2]
    task.module.eval()
    try:
        with torch.no_grad():
            outputs = task.module(x)
            values = task.loss(outputs, y), task.metric(outputs, y)
    except FedmuxError:  # says itself what does not fit
        raise
    except Exception as error:  # whatever a user's module raises is the message
        reason = str(error).strip().splitlines()[0]
        raise FedmuxError(
            f"the model does not fit the data of shape {tuple(x.shape[1:])}: {reason}"
        ) from None
    for name, value in zip(("loss", "metric"), values):
        if value.shape != (len(x),):
            raise FedmuxError(
                f"the {name} must give one value for each point, got shape {tuple(value.shape)} "
                f"for {len(x)} points"
            )
