"""Many small matrices on several processors: a thread for each piece of the work, and one thread of BLAS in each.

BLAS gains nothing from several threads on matrices of a few hundred rows, and often loses; pieces side by side do gain.
As many threads are used as NumPy's OpenBLAS may use (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, threadpoolctl); with
another BLAS, one.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")
Made = TypeVar("Made")

_ALONE = Lock()  # limits of BLAS hold for the process: two calls at once would restore each other's


def each(make: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    """What `make` makes of each item, in their order; it must release the GIL where its time goes, as LAPACK does."""
    if len(items) < 2:
        return [make(item) for item in items]
    blas = _blas()
    with _ALONE:
        threads = max((library.get_num_threads() or 1 for library in blas.lib_controllers), default=1)
        if threads == 1:
            return [make(item) for item in items]
        with blas.limit(limits=1), ThreadPoolExecutor(min(threads, len(items))) as pool:
            return list(pool.map(make, items))


@cache
def _blas() -> Any:
    """OpenBLAS, which NumPy brings along; another BLAS may be PyTorch's, too, whose threads are not ours to set."""
    from threadpoolctl import ThreadpoolController

    np.linalg.svdvals(np.eye(2))  # so that it is loaded
    return ThreadpoolController().select(internal_api="openblas")
