"""Sets up an experiment: loads the data, divides it among clients, builds the modules."""

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
from fedmux.tasks import build, build_loss, build_metric
from fedmux.tasks.task import LocalSgd, Task
from fedmux.training.setting import Setting
from fedmux.training.trial import check_targets, try_out


def assemble(experiment: Experiment) -> Setting:
    """Load data, divide it, build modules; FedmuxError names the task that fails."""
    clients, seed = experiment.population.clients, experiment.seed
    has = draw_availability(
        experiment.population.availability,
        clients,
        len(experiment.tasks),
        generator(seed, Stream.AVAILABILITY),
    )
    capacity = draw_capacity(experiment.population.processors, has, generator(seed, Stream.CAPACITY))
    loaded: dict[Any, Dataset] = {}
    tasks, splits = [], []
    for index, settings in enumerate(experiment.tasks):
        try:
            dataset = _dataset(settings, loaded)
            task, part = _task(experiment, settings, index, dataset, has[:, index])
        except FedmuxError as error:
            raise FedmuxError(f'task "{settings.name}": {error}') from error
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
                f"{settings.bids}: must have a row for each of {clients} clients and the columns "
                f"{', '.join(wanted)}; it has {bids.shape[0]} rows and {', '.join(names)}"
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


def _dataset(settings: TaskSettings, loaded: dict[Any, Dataset]) -> Dataset:
    if isinstance(settings.data, Dataset):
        return settings.data.check(settings.name)
    key = settings.data if isinstance(settings.data, str) else id(settings.data)
    if key not in loaded:
        loaded[key] = load(settings.data)
    return loaded[key]


def _task(
    experiment: Experiment, settings: TaskSettings, index: int, dataset: Dataset, has: Bools
) -> tuple[Task, Split]:
    part = split(
        settings.partition,
        dataset.train_y if dataset.classes is not None else None,
        dataset.groups,
        np.flatnonzero(has),
        points=len(dataset.train_x),
        clients=experiment.population.clients,
        seed=experiment.seed,
        task=index,
    )
    check_targets(settings, dataset)
    inputs = _Inputs(dataset)
    validation, test = [
        (inputs(dataset.test_x[rows]), _targets(dataset, dataset.test_y[rows]))
        for rows in _held_out(experiment, index, len(dataset.test_x))
    ]
    x, y = inputs(dataset.train_x[part.indices]), _targets(dataset, dataset.train_y[part.indices])
    task = Task(
        name=settings.name,
        module=_module(settings, dataset, x, y, torch_seed(experiment.seed, Stream.INITIAL, task=index)),
        loss=build_loss(settings.loss, settings.loss_options),
        metric=build_metric(settings.scored_by),
        x=x,
        y=y,
        offsets=part.offsets,
        validation=validation,
        test=test,
        local=local_sgd(settings),
        learning_rate=settings.learning_rate,
        privacy=settings.privacy,
        scale=settings.scale,
    )
    try_out(task, settings)
    return task, part


def local_sgd(settings: TaskSettings) -> LocalSgd:
    """How clients train, according to the experiment."""
    return LocalSgd(
        settings.batch_size, settings.local_epochs, settings.momentum, settings.weight_decay, settings.clip
    )


def _held_out(experiment: Experiment, task: int, points: int) -> tuple[Ints, Ints]:
    """Rows of the validation and the test part."""
    held_out = generator(experiment.seed, Stream.HELD_OUT, task=task).permutation(points)
    held_out = held_out[: experiment.evaluation.samples]
    cut = round(len(held_out) * experiment.evaluation.validation_share)
    if not 0 < cut < len(held_out):
        raise FedmuxError(
            f"{len(held_out)} held-out points cannot be divided by "
            f"evaluation.validation_share = {experiment.evaluation.validation_share}; use more points"
        )
    return held_out[:cut], held_out[cut:]


def _module(settings: TaskSettings, dataset: Dataset, x: Tensor, y: Tensor, seed: int) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        outputs = dataset.classes or (y.shape[1] if y.ndim > 1 else 1)
        module = build(
            settings.model, input_shape=tuple(x.shape[1:]), outputs=outputs, options=settings.model_options
        )
    if settings.initial_weights is not None:
        _start_from(module, settings.initial_weights)
    return module


class _Inputs:
    """Converts raw inputs to tensors; images are standardised per channel, over the whole training set."""

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
    if Path(path).is_dir():
        raise FedmuxError(f"initial_weights: {path} is a folder; name a .safetensors file")
    try:
        weights = load_file(path)
        module.load_state_dict(weights)
    except FileNotFoundError:
        raise FedmuxError(f"initial_weights: no such file: {path}") from None
    except Exception as error:  # safetensors' and torch's messages name the mismatch
        reason = str(error).strip().splitlines()[-1].strip()
        raise FedmuxError(f"initial_weights: {path} does not fit the model ({reason})") from None
