"""How a team is formed: from processes started here, or by torchrun on many machines.

Processes on one machine rendezvous through a file and talk over the loopback interface only. A process that
fails leaves a message that says why; one that dies is noticed by the others at once.
"""

import datetime
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from fedmux.distributed.devices import find_device
from fedmux.distributed.team import ALONE, Processes, Team, TeamLost, from_environment
from fedmux.errors import FedmuxError, Interrupted
from fedmux.importing import FAILURES, current_directory_importable, first_line, place_in_own_code

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

WORD = "fedmux-failure"  # key under which a failing process says why
PATIENCE = datetime.timedelta(hours=3)  # for a slow process; a dead one is noticed at once
GUARD = '; a Python script that starts workers needs `if __name__ == "__main__":` around its work'
Follow = Callable[[Team], None]  # what the other processes do


class ProcessSettings(Protocol):
    """What a run asks for; an experiment's [execution] has it."""

    @property
    def device(self) -> str: ...

    @property
    def workers(self) -> int | Literal["auto"]: ...


@contextmanager
def joined(wanted: ProcessSettings | None, follow: Follow) -> Iterator[Team]:
    """The team that an experiment asks for. The processes started here run `follow`."""
    if from_environment():
        with _from_environment() as team:
            yield team
        return
    assert wanted is not None, "only torchrun's processes can receive the experiment later"
    find_device(wanted.device)  # fails before anything is created or started
    size = count(wanted)
    if size == 1:
        yield ALONE
        return
    with _started(size, wanted.device, follow) as team:
        yield team


def count(wanted: ProcessSettings) -> int:
    """Number of processes on this machine: as configured, or one per core, or one per GPU."""
    if wanted.workers != "auto":
        return wanted.workers
    if find_device(wanted.device).type == "cuda":
        return torch.cuda.device_count() if ":" not in wanted.device else 1
    return cores()


def cores() -> int:
    """Number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _started(size: int, name: str, follow: Follow) -> Iterator[Team]:
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    device = find_device(name)
    with tempfile.TemporaryDirectory(prefix="fedmux-") as folder:
        place = Path(folder) / "team"
        spawn = multiprocessing.get_context("spawn")
        crew = [
            spawn.Process(target=_work, args=(rank, size, place, name, follow), daemon=True)
            for rank in range(1, size)
        ]
        store = FileStore(str(place), size)

        def reason() -> str:
            for _ in range(20):  # a failing process may need a moment to exit
                if store.check([WORD]):
                    return store.get(WORD).decode()
                for rank, process in enumerate(crew, 1):
                    if code := process.exitcode:  # those that only lost another process end with 0
                        how = f"signal {-code}" if code < 0 else f"exit code {code}"
                        guard = "" if code != 1 or dist.is_initialized() else GUARD
                        return f"worker {rank} of {size} ended early ({how}){guard}"
                time.sleep(0.1)
            return ""

        patience = 0.0
        try:
            _start(crew)
            _wait_until_ready(store, crew, reason)
            join(store, 0, size, device, shared=":" in name)
            yield Processes(reason)
            patience = 5.0
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
            for process in [process for process in crew if process.pid is not None]:
                process.join(patience)
                if process.is_alive():
                    process.kill()
                    process.join()


def _start(crew: "list[multiprocessing.context.SpawnProcess]") -> None:
    """Start workers with SIGINT blocked, which they inherit: the first process handles Ctrl-C for all."""
    resource_tracker.ensure_running()  # otherwise the first start would unblock it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with current_directory_importable():  # it may contain the user's own method
            for process in crew:
                process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise FedmuxError(
            f"the experiment cannot be sent to {len(crew)} workers ({first_line(error)}); define your own "
            "classes and functions at the top level of a module, or set workers = 1"
        ) from None
    except OSError as error:
        raise FedmuxError(f"cannot start {len(crew)} workers ({error.strerror}); try fewer") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_until_ready(
    store: "Store", crew: "list[multiprocessing.context.SpawnProcess]", reason: Callable[[], str]
) -> None:
    """Wait until all workers are ready: joining would hang if one of them has died."""
    while not all(store.check([f"ready-{rank}"]) for rank, _ in enumerate(crew, 1)):
        if any(process.exitcode is not None for process in crew):
            raise TeamLost(reason())
        time.sleep(0.02)


def join(store: "Store", rank: int, size: int, device: torch.device, shared: bool = False) -> None:
    """Create the process group of this machine's processes; `shared`: all use one GPU."""
    import torch.distributed as dist

    before = os.environ.get("GLOO_SOCKET_IFNAME")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    try:
        backend = "gloo" if shared else _backend(device, size)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    finally:
        if before is None:
            del os.environ["GLOO_SOCKET_IFNAME"]
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = before


def _backend(device: torch.device, here: int) -> str:
    """NCCL between GPUs, provided no two processes share one; gloo for everything else."""
    own_gpus = device.type == "cuda" and here <= torch.cuda.device_count()
    return "cpu:gloo,cuda:nccl" if own_gpus else "gloo"


def _work(rank: int, size: int, place: Path, name: str, follow: Follow) -> None:
    """The main function of a worker process."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    tempfile.tempdir = str(place.parent)  # the first process cleans up, even after workers are killed
    threading.Thread(target=_end_with_parent, args=(place.parent,), daemon=True).start()
    store = FileStore(str(place), size)
    code = 0
    try:
        with _leaving_word(store):
            device = find_device(name, rank)
            if device.type == "cuda":
                torch.cuda.set_device(device)
            store.set(f"ready-{rank}", "yes")
            join(store, rank, size, device, shared=":" in name)
            follow(Processes(lambda: ""))
            dist.destroy_process_group()
    except SystemExit as ended:
        code = int(ended.code or 0)
    os._exit(code)  # at once: threads of a broken process group would abort the process at exit


def _end_with_parent(folder: Path) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


@contextmanager
def _from_environment() -> Iterator[Team]:
    """From torchrun's RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK and LOCAL_WORLD_SIZE."""
    import torch.distributed as dist

    here = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    device = find_device("auto", int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        dist.init_process_group(_backend(device, here), timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise FedmuxError(
            f"RANK and WORLD_SIZE say that this is one of several processes, but they cannot connect: "
            f"{first_line(error)}; start them with torchrun, or unset these variables"
        ) from None
    store = dist.distributed_c10d._get_default_store()

    def reason() -> str:
        for _ in range(20):
            if store.check([WORD]):
                return store.get(WORD).decode()
            time.sleep(0.1)
        return "another process of the team ended"

    team = Processes(reason)
    try:
        if team.rank:
            with _leaving_word(store):
                yield team
        else:
            yield team
    finally:
        dist.destroy_process_group()


@contextmanager
def _leaving_word(store: "Store") -> Iterator[None]:
    """If a worker fails, it leaves the reason in the store for the first process and exits quietly."""
    try:
        yield
    except (TeamLost, Interrupted, KeyboardInterrupt):
        raise SystemExit from None  # the first process knows
    except FAILURES as error:
        if isinstance(error, SystemExit) and not place_in_own_code(error):
            raise  # it is done
        store.set(WORD, _word(error))
        raise SystemExit(2) from None


def _word(error: BaseException) -> str:
    """One line; more, if a user's own code failed, with all that it said."""
    place = place_in_own_code(error)
    line = str(error) if isinstance(error, FedmuxError) else first_line(error)
    if place is None:
        return line
    whole = "".join(traceback.format_exception(error))
    return f"{line if isinstance(error, FedmuxError) else f'{place}: {line}'}\n{whole}"
