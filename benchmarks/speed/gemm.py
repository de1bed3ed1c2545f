"""The most that this core or GPU can do: GFLOP/s of a large float32 matrix product.

Run as `python benchmarks/speed/gemm.py --device cpu`.
"""

import json
import time

import torch
from harness import arguments

SIZE = {"cpu": 2048, "cuda": 8192}


def gflops(device: str, kind: torch.dtype = torch.float32, repeats: int = 9) -> float:
    """Of the best repeat, since a peak is wanted; by CPU time on a CPU, which others may use."""
    now = time.process_time if device == "cpu" else time.perf_counter
    size = SIZE[device]
    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    seconds = []
    for _ in range(repeats):
        clock = now()
        c = a @ b
        c[0, 0].item()  # waits for the GPU
        seconds.append(now() - clock)
    return 2 * size**3 / min(seconds) / 1e9


def by_precision() -> dict[str, float]:
    """Of a GPU, in each precision of fedmux."""
    peaks = {"fp32": gflops("cuda"), "bf16": gflops("cuda", torch.bfloat16)}
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return peaks | {"tf32": gflops("cuda")}
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


if __name__ == "__main__":
    given = arguments(__doc__)
    print(json.dumps({"float32": gflops(given.device)}))
