"""One core for a benchmark, and one thread for each library, so that CPU times are those of the work alone.

XLA has a thread for each core it sees, and those that wait for work spin: with two cores, they took half as much CPU
time again as 64 flows of many short calls.
"""

import os

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")


def take(*, float64: bool = False) -> None:
    """Takes one core; to be called before NumPy, JAX, PyTorch and Clarabel are loaded, which read these settings.

    Args:
        float64: True: JAX computes in float64.
    """
    os.environ |= dict.fromkeys(_THREADS, "1")
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if float64:
        os.environ["JAX_ENABLE_X64"] = "1"
    if hasattr(os, "sched_setaffinity"):  # on Linux
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
