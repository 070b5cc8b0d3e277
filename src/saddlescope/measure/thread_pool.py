"""Parallel work on many small matrices: one thread per piece, and one thread of BLAS in each.

Several BLAS threads do not speed up matrices of a few hundred rows, and often slow them down; parallel pieces do speed
them up. The number of threads is that of NumPy's OpenBLAS (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, threadpoolctl); with
another BLAS, one.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from saddlescope._shared.progress import Report, silent

Item = TypeVar("Item")
Result = TypeVar("Result")

_ALONE = RLock()  # BLAS limits apply to the process: two concurrent calls would restore each other's


def threaded_map(function: Callable[[Item], Result], items: Sequence[Item], report: Report = silent) -> list[Result]:
    """Return the result for each item, in order; the function must release the GIL most of the time, as LAPACK does."""
    if len(items) < 2:
        return collect(map(function, items), len(items), report)
    blas = _blas()
    with _ALONE:
        threads = max((library.get_num_threads() or 1 for library in blas.lib_controllers), default=1)
        if threads == 1:
            return collect(map(function, items), len(items), report)
        with blas.limit(limits=1), ThreadPoolExecutor(min(threads, len(items))) as pool:
            return collect(pool.map(function, items), len(items), report)


def collect(results: Iterable[Result], count: int, report: Report) -> list[Result]:
    """Return the results as a list, with a report after each."""
    found = []
    for result in results:
        found.append(result)
        report(len(found) / count, f"block {len(found)} of {count}")
    return found


@cache
def _blas() -> Any:
    """Return the controller of OpenBLAS, which NumPy ships; another BLAS may be PyTorch's, and is not changed."""
    from threadpoolctl import ThreadpoolController

    np.linalg.svdvals(np.eye(2))  # so that it is loaded
    return ThreadpoolController().select(internal_api="openblas")
