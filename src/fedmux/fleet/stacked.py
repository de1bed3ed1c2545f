"""Local training of many clients at once: stacked weights, `vmap` over clients, each step a CUDA graph.

Clients are sorted by batch width and number of steps. Those of one width train together, in chunks that fit
the memory budget; within a chunk clients with most steps come first, so that those still training are always
a prefix, and a step only computes that prefix (rounded up to a few sizes). Short batches are padded with
points of weight 0: the loss is exactly the mean over the true points. On a GPU each (size, width) is one
graph, captured on first use and replayed from then on. The graphs of all tasks share one memory pool: they
run one at a time, and none reads what another left there.
"""

import gc
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedmux.aggregation import LocalRule
from fedmux.distributed.memory import WAITS, Release, is_shortage, nothing
from fedmux.errors import FedmuxError
from fedmux.fleet.batches import schedule
from fedmux.fleet.convolutions import SmallConvolutions
from fedmux.fleet.engine import Engine, whole
from fedmux.fleet.local import CHUNK_BYTES, Chunk
from fedmux.importing import FAILURES, first_line
from fedmux.model import Model, write_buffers
from fedmux.population import Ints
from fedmux.tasks.task import Task

# Of a stack: few where a step costs little anyway; from 12 on at most a quarter too large.
SIZES = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
PROBES = (4, 12)  # stack sizes from whose memory a client's is estimated
DEVICE_BYTES = 12 * 2**30  # GPU memory to train one chunk; more is no faster
DEVICE_SHARE = 0.3  # and at most this share of the free memory


Graphs = dict[Hashable, torch.cuda.CUDAGraph]  # of all tasks of a fleet, keyed by task and step


class Stacked:
    """Trains clients of one task together, on copies of the weights stacked along a first dimension."""

    def __init__(
        self,
        task: Task,
        index: int,
        seed: int,
        engine: Engine,
        notice: Callable[[str], None] = print,
        graphs: Graphs | None = None,
        release_all: Release = nothing,  # frees everything of the fleet that can be rebuilt
    ) -> None:
        self.task, self.index, self.seed, self.engine, self.notice = task, index, seed, engine, notice
        self.names = list(task.layout.parameters)
        self.shapes = [p.shape for p in task.layout.parameters.values()]
        self.room, self.most = 0, SIZES[-1]  # clients that fit into the stack; the most to try
        self.starts: list[Tensor] = []  # the global model
        self.stack: list[Tensor] = []  # room x shape of each parameter, as are the next two
        self.velocity: list[Tensor] = []
        self.corrections: list[Tensor] = []
        self.inputs: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # by width
        self.graphs: Graphs = {} if graphs is None else graphs
        self.captures = engine.device.type == "cuda"
        self.release_all = release_all
        self.waits = list(WAITS)  # for others to free memory, if not even one client fits
        self.gradients = vmap(grad(self._loss))

    def _loss(self, weights: tuple[Tensor, ...], x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        """One client's mini-batch: the mean over its true points, whose shares add up to 1."""
        with SmallConvolutions():
            return self._plain_loss(weights, x, y, share)

    def _plain_loss(self, weights: tuple[Tensor, ...], x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        outputs = functional_call(self.task.module, dict(zip(self.names, weights)), (x,))
        return (self.task.loss(whole(outputs), y) * share).sum()

    def updates(
        self, model: Model, clients: Ints, round: int, rule: LocalRule | None = None
    ) -> Iterator[Chunk]:
        if not len(clients):
            return
        task = self.task
        write_buffers(list(task.layout.buffers.values()), model.buffers)
        task.module.train()
        sizes = task.sizes[clients]
        steps = task.local.steps(sizes)
        width = np.minimum(_round_up(np.minimum(sizes, task.local.batch_size)), task.local.batch_size)
        for together in np.unique(width)[::-1]:
            places = np.flatnonzero(width == together)
            places = places[np.argsort(-steps[places], kind="stable")]
            while len(places):
                trained = self._try(model, clients[places], int(together), round, rule)
                if trained is not None:
                    yield places[: len(trained)], trained, model.buffers.expand(len(trained), -1)
                    places = places[len(trained) :]

    def _try(
        self, model: Model, clients: Ints, width: int, round: int, rule: LocalRule | None
    ) -> Tensor | None:
        """Updates of the first clients, as many as fit at once; None if fewer must be tried."""
        try:
            if not self.room:
                self._make_room(model)
            chunks = -(-len(clients) // self.room)  # of about equal size, rounded up
            count = _size_for(-(-len(clients) // chunks), self.room)
            with torch.no_grad(), self.engine.computing():
                trained = self._train(model, clients[:count], width, round, rule)
            self.waits = list(WAITS)
            return trained
        except FedmuxError:
            raise
        except FAILURES as error:  # a user's module or loss can raise anything
            reason = first_line(error)
            if not is_shortage(error):  # others use the device too
                raise FedmuxError(
                    f'task "{self.task.name}": local training of clients {clients[: self.room].tolist()} '
                    f"failed: {reason}"
                ) from error
        self._shrink(reason)  # outside the handler, which would keep allocations alive
        return None

    def _shrink(self, reason: str) -> None:
        """Halve the room. Drops the graphs of all tasks: they share the memory pool."""
        tried = self.room or self.most
        self.most = max(1, tried // 2)
        if tried <= 1:
            if not self.waits:
                raise FedmuxError(
                    f'task "{self.task.name}": the GPU has too little free memory to train a client '
                    f'({reason}); free some, or choose execution.device = "cpu"'
                )
            time.sleep(self.waits.pop(0))
        self.graphs.clear()
        self.release()
        self.release_all()
        torch.cuda.empty_cache()

    def release(self) -> None:
        """Free the stack's memory; the next training allocates it again. Its graphs must be dropped too."""
        self.room = 0
        self.starts, self.stack, self.velocity, self.corrections, self.inputs = [], [], [], [], {}

    def _train(self, model: Model, clients: Ints, width: int, round: int, rule: LocalRule | None) -> Tensor:
        """Updates (k x P) of clients sorted by decreasing steps."""
        rows, shares, steps = schedule(self.task, self.index, clients, width, round, self.seed)
        count = _size_for(len(clients), self.room)
        starts = self.task.layout.views(model.parameters)
        for values, kept, stack in zip(starts, self.starts, self.stack):
            kept.copy_(values)
            stack[:count].copy_(values.expand(count, *values.shape))
        for velocity in self.velocity:
            velocity[:count].zero_()
        corrections = None if rule is None else rule.corrections(self.index, clients)
        if corrections is not None:
            self._keep_corrections(corrections)
        rate = self.task.learning_rate(round)
        working = steps[None, :] > np.arange(len(rows))[:, None]  # K x k
        alive = working.sum(1)
        rates = np.where(working, rate, 0.0)
        table = self._send(rows), self._send(shares), self._send(rates.astype(np.float32))
        now = self._inputs(width)
        now[1].zero_()  # entries beyond the chunk have no points and no rate
        now[2].zero_()
        for step in range(len(rows)):
            for here, all_steps in zip(now, table):
                here[: len(clients)].copy_(all_steps[step])
            self._step(_size_for(int(alive[step]), self.room), width, rule, corrections is not None)
        update = torch.empty(len(clients), len(model.parameters), device=self.engine.device)
        parts = update.split([shape.numel() for shape in self.shapes], dim=1)
        for part, start, stack in zip(parts, starts, self.stack):
            torch.sub(start, stack[: len(clients)], out=part.view(len(clients), *start.shape))
        return update

    def _send(self, values: np.ndarray) -> Tensor:
        """To the device, without waiting."""
        tensor = torch.from_numpy(values)
        if self.engine.device.type == "cuda":
            return tensor.pin_memory().to(self.engine.device, non_blocking=True)
        return tensor

    def _step(self, count: int, width: int, rule: LocalRule | None, corrected: bool) -> None:
        """One local step of the first `count` clients of the stack."""
        step = (count, width, rule, corrected)
        key = (self.index, *step)
        if self.captures and key not in self.graphs:
            self._capture(key, step)
        if self.captures:
            self.graphs[key].replay()
        else:
            self._advance(*step)

    def _capture(self, key: Hashable, step: tuple[int, int, LocalRule | None, bool]) -> None:
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None
        collecting = gc.isenabled()
        gc.disable()  # collecting an old graph during the capture would break it
        try:
            with torch.cuda.graph(graph, pool=pool):
                self._advance(*step)
            self.graphs[key] = graph
        except RuntimeError as error:
            if is_shortage(error):
                raise
            torch.cuda.synchronize(self.engine.device)
            self.captures = False
            self.graphs.clear()  # the pool is still capturing: other tasks start a new one
            self.notice(
                f'task "{self.task.name}": local steps cannot be captured as CUDA graphs and run slower: '
                f"{first_line(error)}"
            )
        finally:
            if collecting:
                gc.enable()

    def _advance(self, count: int, width: int, rule: LocalRule | None, corrected: bool) -> None:
        task, local = self.task, self.task.local
        rows, shares, rates = (values[:count] for values in self._inputs(width))
        stack = [weights[:count] for weights in self.stack]
        gradients = list(self.gradients(tuple(stack), task.x[rows], task.y[rows], shares))
        if rule is not None:
            correction = [c[:count] for c in self.corrections] if corrected else [None] * len(stack)
            gradients = [rule.gradient(*each) for each in zip(gradients, stack, self.starts, correction)]
        if local.clip is not None:
            norm = sum(g.flatten(1).square().sum(1) for g in gradients).sqrt()
            factor = torch.clamp(local.clip / (norm + 1e-6), max=1.0)
            gradients = [g * _along(factor, g) for g in gradients]
        if local.weight_decay:
            torch._foreach_add_(gradients, stack, alpha=local.weight_decay)
        if local.momentum:
            velocity = [v[:count] for v in self.velocity]
            torch._foreach_mul_(velocity, local.momentum)
            torch._foreach_add_(velocity, gradients)
            gradients = velocity
        for weights, gradient in zip(stack, gradients):
            weights.addcmul_(gradient, _along(rates, gradient), value=-1)

    def _make_room(self, model: Model) -> None:
        """Allocate the stack, as large as the number of clients needs and the memory budget allows."""
        clients = len(self.task.offsets) - 1
        if self.engine.device.type == "cuda":
            least = 6 * 4 * max(1, len(model.parameters))  # weights, gradients, momentum, update
            probes = [count for count in PROBES if count <= max(self.most, PROBES[0])]
            peaks = [self._peak(min(count, self.most)) for count in probes]
            each = max(least, (peaks[-1] - peaks[0]) / max(probes[-1] - probes[0], 1))
            free = torch.cuda.mem_get_info(self.engine.device)[0]
            limit = int(min(DEVICE_BYTES, DEVICE_SHARE * free) / each)
            if self.engine.precision == "fp32":
                limit = min(limit, 128)  # cuDNN's float32 convolutions with more groups run at half the speed
        else:
            limit = CHUNK_BYTES // (4 * max(1, len(model.parameters)))
        wanted = SIZES[min(bisect_left(SIZES, clients), len(SIZES) - 1)]
        limit = max(1, min(limit, self.most))
        self._allocate(min(wanted, max(size for size in SIZES if size <= limit)))

    def _peak(self, count: int) -> int:
        """Peak bytes of one step of `count` clients. Also initialises CUDA libraries before the capture."""
        device, width = self.engine.device, self.task.local.batch_size
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        self._allocate(count)
        self._inputs(width)
        with torch.no_grad(), self.engine.computing():
            self._advance(count, width, None, False)
        return torch.cuda.max_memory_allocated(device) - before

    def _allocate(self, room: int) -> None:
        device = self.engine.device
        self.room = room
        self.starts = [torch.zeros(shape, device=device) for shape in self.shapes]
        self.stack = [torch.zeros(room, *shape, device=device) for shape in self.shapes]
        self.velocity = [torch.zeros_like(w) for w in self.stack] if self.task.local.momentum else []
        self.corrections, self.inputs = [], {}

    def _inputs(self, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """A step's input buffers: its points' rows (room x width), their shares, and the rates (room)."""
        if width not in self.inputs:
            device = self.engine.device
            self.inputs[width] = (
                torch.zeros(self.room, width, dtype=torch.int64, device=device),
                torch.zeros(self.room, width, device=device),
                torch.zeros(self.room, device=device),
            )
        return self.inputs[width]

    def _keep_corrections(self, corrections: Tensor) -> None:
        if not self.corrections:
            self.corrections = [torch.zeros_like(weights) for weights in self.stack]
        parts = corrections.split([shape.numel() for shape in self.shapes], dim=1)
        for kept, part in zip(self.corrections, parts):
            kept[: len(part)].copy_(part.view(len(part), *kept.shape[1:]))


def _round_up(values: Ints) -> Ints:
    """Up to a multiple of an eighth of the next power of two, so that there are few distinct widths."""
    step = np.maximum(1, 2 ** np.ceil(np.log2(np.maximum(values, 1))) // 8).astype(np.int64)
    return np.maximum(1, -(-values // step) * step)


def _size_for(count: int, room: int) -> int:
    return min(SIZES[bisect_left(SIZES, count)], room)


def _along(values: Tensor, like: Tensor) -> Tensor:
    """One value per client, shaped to multiply its tensors."""
    return values.view(-1, *[1] * (like.dim() - 1))
