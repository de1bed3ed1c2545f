"""What a results file says about the machine."""

import os
import re
from pathlib import Path

import torch

FAMILIES = ("xeon", "epyc", "ryzen", "core")


def processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else os.uname().machine


def cores() -> int:
    return len(os.sched_getaffinity(0))


def describe(device: str) -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    hardware: dict[str, object] = {"processor": processor(), "cores": cores(), "memory_bytes": memory}
    if device == "cuda":
        hardware |= {
            "gpu": torch.cuda.get_device_name(),
            "gpu_memory_bytes": torch.cuda.get_device_properties(0).total_memory,
        }
    return hardware


def slug(device: str) -> str:
    """A short name for a file: cpu-xeon-2-cores, nvidia-h200."""
    if device == "cuda":
        return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")
    name = processor().lower()
    family = next((family for family in FAMILIES if family in name), "unknown")
    return f"cpu-{family}-{cores()}-cores"
