"""What this machine can take: how many processes, and how much memory. Checked before any is started."""

from pathlib import Path

from fedmux.distributed.workers import cores
from fedmux.errors import FedmuxError

PROCESSES_A_CORE = 4  # more only wait for each other
PROCESS = 250 * 2**20  # bytes of a process that has imported torch and trains a small model
MEMORY, GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def check_number(asked: str, processes: int) -> None:
    """Refuse more processes than could ever pay; `asked` is what the user wrote."""
    most = PROCESSES_A_CORE * cores()
    if processes > most:
        raise FedmuxError(
            f"{asked}: {processes} processes would only wait for each other, as this machine has "
            f"{cores()} core{'s' * (cores() > 1)}; take at most {most}"
        )


def check_memory(asked: str, processes: int, each: int) -> None:
    """Refuse what does not fit into the memory that is free; `each` is in bytes."""
    free = available()
    if free is None or processes * each <= free:
        return
    fitting = free // each
    remedy = f"at most {fitting} fit" if fitting else "take less data or fewer clients, or free some memory"
    if processes == 1:
        needs = f"{asked} needs about {gigabytes(each)}"
    else:
        total = gigabytes(processes * each)
        needs = f"{asked}: {processes:,} processes of about {gigabytes(each)} need {total}"
    raise FedmuxError(f"{needs}, but {gigabytes(free)} are free here; {remedy}")


def available() -> int | None:
    """Bytes that new processes may take; None where the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, LookupError, ValueError):
        return None
    try:  # a container may have less than its machine
        limit = int((GROUP / "memory.max").read_text())
        return min(free, max(0, limit - int((GROUP / "memory.current").read_text())))
    except (OSError, ValueError):
        return free


def gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
