"""Squares X^T X of blocks of columns, such as X = [L - L0, L0], in wide type.

NumPy multiplies an array by its own transpose in half the operations (BLAS syrk). So the host joins the blocks, some
rows at a time. Elsewhere blocks are multiplied in pairs: copies would cost more.
"""

from collections.abc import Sequence
from functools import reduce
from types import ModuleType
from typing import Any

import numpy as np

from saddlescope.measure.arrays import Library, Stored, is_numpy, upcast

Blocks = tuple[tuple[int, ...], ...]
"""Blocks by their parts: `(1,)` is the second of the given matrices, `(0, 1)` the first minus the second."""

NOW, BEFORE, MOVED = (0,), (1,), (0, 1)

_JOINED = 2**18  # entries of joined blocks at once


def squares_of(library: Library, parts: Sequence[Stored], blocks: Blocks) -> Any:
    """Return X^T X (count, k h, k h) for k blocks X of parts (count, d, h), which are shorter than wide type."""
    if not is_numpy(library):
        return _squares_of_pairs(library.xp, blocks_of(library, parts, blocks))
    count, _, h = parts[0].array.shape
    squares = np.zeros((count, len(blocks) * h, len(blocks) * h))
    for total, *matrices in zip(squares, *(one.array for one in parts), strict=True):
        _add_squares(total, matrices, blocks)
    return squares


def blocks_of(library: Library, parts: Sequence[Stored], blocks: Blocks) -> list[Any]:
    """Return the blocks in wide type."""
    wide = [upcast(library, one) for one in parts]
    return [reduce(lambda now, then: now - then, (wide[number] for number in block)) for block in blocks]


def _add_squares(total: np.ndarray, parts: Sequence[np.ndarray], blocks: Blocks) -> None:
    """Add X^T X to a matrix on the host, with some rows of X at a time, in the order of the parts in memory."""
    (rows, h), columns = parts[0].shape, len(total)
    step = max(1, min(rows, _JOINED // columns))
    by_rows = parts[0].strides[0] > parts[0].strides[1]
    space = np.empty((step, columns)) if by_rows else np.empty((columns, step)).T
    for start in range(0, rows, step):
        X = space[: rows - start]
        here = [part[start : start + step] for part in parts]
        here = [part.copy() for part in here] if by_rows else here  # rows far apart are slow to read twice
        for k, (first, *others) in enumerate(blocks):
            block = X[:, k * h : (k + 1) * h]
            block[...] = here[first]
            for number in others:
                block -= here[number]
        total += X.T @ X


def _squares_of_pairs(xp: ModuleType, blocks: Sequence[Any]) -> Any:
    """Return X^T X for X given as one block or two adjacent ones."""
    own = [xp.matrix_transpose(block) @ block for block in blocks]
    if len(blocks) == 1:
        return own[0]
    across = xp.matrix_transpose(blocks[0]) @ blocks[1]
    upper = xp.concat([own[0], across], axis=-1)
    return xp.concat([upper, xp.concat([xp.matrix_transpose(across), own[1]], axis=-1)], axis=-2)
