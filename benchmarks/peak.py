"""The speed of large matrix products on one core, for the floors of benchmarks: FLOP over it."""

import time

import torch


def peak(kind: torch.dtype = torch.float32) -> float:
    """GFLOP a second of a large product, the best of ten."""
    a, found = torch.rand(1024, 1024).to(kind), []
    for _ in range(10):
        start = time.process_time()
        a @ a
        found.append(2 * 1024**3 / 1e9 / (time.process_time() - start))
    return max(found)
