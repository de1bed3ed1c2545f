"""Whether clients of a task can be stacked; tested on three points before the first round."""

import copy
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import grad

from fedmux.distributed.memory import is_shortage
from fedmux.fleet.engine import Engine
from fedmux.fleet.stacked import Stacked
from fedmux.importing import first_line
from fedmux.tasks.task import Task


def obstacle(task: Task, engine: Engine) -> str | None:
    """Why stacking clients of a task would not give the loop's result; None if it would.

    Rounding can flip a ReLU, which changes a gradient by more than rounding. So if gradients differ, they are
    compared again in float64, if the module supports it.
    """
    try:
        reason = _difference(task, engine)
    except Exception as error:  # whatever vmap does not support in a module
        if is_shortage(error):
            raise
        return first_line(error)
    with suppress(Exception):
        return reason and _difference(_in_float64(task), engine)
    return reason


def _in_float64(task: Task) -> Task:
    """A copy with only the points that the test needs."""
    x, y = (part[:3].double() if part.is_floating_point() else part[:3] for part in (task.x, task.y))
    return replace(task, module=copy.deepcopy(task.module).double(), x=x, y=y)


def _difference(task: Task, engine: Engine) -> str | None:
    """Compares gradients of two stacked clients, one with a padded batch, with each client's alone."""
    task = replace(task, module=copy.deepcopy(task.module).train())
    trial, layout = Stacked(task, 0, 0, engine), task.layout
    rows = torch.arange(3, device=task.x.device) % max(1, len(task.x))
    x, y = task.x[rows], task.y[rows]
    weights = tuple(p.detach().clone() for p in layout.parameters.values())
    before = [b.clone() for b in layout.buffers.values()]

    def alone(order: list[int]) -> list[Tensor]:
        share = torch.full((len(order),), 1 / len(order), device=x.device)
        return list(grad(trial._plain_loss)(weights, x[order], y[order], share))

    devices = [engine.device] if engine.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices), Engine(engine.device).computing():
        task.module(x)
        if any(not torch.equal(a, b) for a, b in zip(before, layout.buffers.values())):
            return "it changes its buffers while training"
        first, again, full = alone([0, 1]), alone([0, 1]), alone([1, 2, 0])
        if not _alike(first, again):
            return "it draws random numbers, which a stack would draw in a different order"
        order = torch.tensor([[0, 1, 0], [1, 2, 0]], device=x.device)
        shares = torch.tensor([[0.5, 0.5, 0.0], [1 / 3] * 3], device=x.device)
        both = trial.gradients(tuple(torch.stack([w, w]) for w in weights), x[order], y[order], shares)
        if not _alike(full, [g[1] for g in both]):
            return "stacked clients get different gradients than one alone"
        if not _alike(first, [g[0] for g in both]):
            return "the points of a batch are not independent of each other"
    return None


def _alike(some: list[Tensor], others: list[Tensor]) -> bool:
    scale = max((float(g.abs().max()) for g in some if g.numel()), default=0.0)
    return all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-4 * scale + 1e-12) for a, b in zip(some, others, strict=True)
    )
