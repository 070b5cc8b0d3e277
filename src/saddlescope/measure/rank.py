"""Four definitions of the rank of a matrix from its singular values, all of them 0 for the zero matrix.

    s       singular values (..., r), at least 0, in any order
    p       s / sum(s), the distribution of the entropy rank

Each is invariant under multiplication of all singular values by one number (and of the level of `numerical_rank`), and
is at most the true rank; all but the numerical rank are at least 1 for a nonzero matrix.
"""

import math
import sys
from typing import Any

from jaxtyping import Float, Int

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.measure.arrays import Library, Stored, take


def stable_rank(values: Any) -> Float[Any, "..."]:
    """Return the stable rank |W|_F^2 / |W|_2^2 = sum(s^2) / max(s)^2; Boix-Adserà et al. 2023, Figure 4.

    A smooth proxy of the rank that hardly depends on small singular values. 1 for one direction, r for r equal ones.

    Args:
        values: s, (..., r), of NumPy, JAX or PyTorch, such as `Spectrum.values`.

    Returns:
        (...), in float64 (float32 if the library has no float64).

    Raises:
        InputError: not a floating-point array, no singular value, or a negative, infinite or NaN one.

    >>> import numpy as np
    >>> stable_rank(np.array([2.0, 1.0, 1.0])).item()
    1.5
    """
    library, shares = _shares(values)
    return library.give_back(library.xp.sum(shares**2, axis=-1))


def numerical_rank(values: Any, *, level: Any) -> Int[Any, "..."]:
    """Count the singular values greater than a level.

    Args:
        values: s, (..., r).
        level: absolute, at least 0, in the unit of s: one number, or an array (...) of the library of s, such as
            `Spectrum.noise_floor`.

    Returns:
        (...), integers.

    Raises:
        InputError: as `stable_rank`, or a level below 0 or of another shape.

    >>> import numpy as np
    >>> numerical_rank(np.array([2.0, 1.0, 1e-17]), level=1e-16).item()
    2
    """
    library, (s,) = take(axes=1, values=values)
    _check_not_negative(library, "values", s)
    if isinstance(level, int | float):
        if not level >= 0:
            raise InputError(f"level must be at least 0; got {level!r}.")
        threshold = level if level <= sys.float_info.max else math.inf  # an integer may be beyond every float
    else:
        _, (given,) = take(axes=0, level=level)
        _check_not_negative(library, "level", given)
        batch = tuple(s.array.shape[:-1])
        if tuple(given.array.shape) not in ((), batch):
            raise InputError(f"level must be a number or have shape {batch!r}; got {tuple(given.array.shape)!r}.")
        threshold = given.array[..., None]
    return library.give_back(library.xp.sum(library.xp.astype(s.array > threshold, library.xp.int64), axis=-1))


def effective_rank(values: Any) -> Float[Any, "..."]:
    """Return exp(-sum(p log p)) with p = s / sum(s); Roy and Vetterli 2007, "The effective rank".

    The singular values themselves are normalised, not their squares. More sensitive to small singular values than the
    stable rank: r for r equal ones, 1 for one direction.

    Args:
        values: s, (..., r).

    Returns:
        (...), in float64 (float32 if the library has no float64).

    Raises:
        InputError: as `stable_rank`.

    >>> import numpy as np
    >>> effective_rank(np.array([3.0, 3.0, 0.0])).round(12).item()
    2.0
    """
    library, shares = _shares(values)
    xp = library.xp
    total = xp.sum(shares, axis=-1, keepdims=True)
    p = shares / xp.where(total > 0, total, xp.ones_like(total))
    entropy = -xp.sum(p * xp.log(xp.where(p > 0, p, xp.ones_like(p))), axis=-1)
    return library.give_back(xp.where(total[..., 0] > 0, xp.exp(entropy), xp.zeros_like(entropy)))


@validate_arguments
def energy_rank(values: Any, *, fraction: float) -> Int[Any, "..."]:
    """Return the least k such that the k largest singular values have `fraction` of the energy sum(s^2) = |W|_F^2.

    The rank of the best low-rank approximation with relative squared error at most 1 - fraction (Eckart and Young).

    Args:
        values: s, (..., r).
        fraction: greater than 0, at most 1; 0.9 and 0.99 are customary. 1 counts the singular values that are not 0,
            however small; below 1 the comparison is up to rounding.

    Returns:
        (...), integers.

    Raises:
        InputError: as `stable_rank`, or a fraction outside of its range.

    >>> import numpy as np
    >>> energy_rank(np.array([3.0, 1.0, 0.0]), fraction=0.9).item()
    1
    >>> energy_rank(np.array([3.0, 1.0, 0.0]), fraction=0.95).item()
    2
    """
    if not 0 < fraction <= 1:
        raise InputError(f"fraction must be greater than 0 and at most 1; got {fraction!r}.")
    if fraction == 1:
        return numerical_rank(values, level=0)
    library, shares = descending_shares(values)
    xp = library.xp
    held = xp.cumulative_sum(shares**2, axis=-1)
    total = held[..., -1:]
    short = xp.sum(xp.astype(held < fraction * total, xp.int64), axis=-1)
    return library.give_back(xp.where(total[..., 0] > 0, short + 1, short))


def descending_shares(values: Any) -> tuple[Library, Any]:
    """Return the singular values over the largest, in descending order; zeros stay."""
    library, shares = _shares(values)
    return library, library.xp.sort(shares, axis=-1, descending=True)


def _shares(values: Any) -> tuple[Library, Any]:
    """Return the singular values over the largest (zeros stay), so that no square overflows or vanishes."""
    library, (s,) = take(axes=1, values=values)
    _check_not_negative(library, "values", s)
    wide = library.xp.astype(s.array, library.wide, copy=False)
    largest = library.xp.max(wide, axis=-1, keepdims=True)
    return library, wide / library.xp.where(largest > 0, largest, library.xp.ones_like(largest))


def _check_not_negative(library: Library, name: str, given: Stored) -> None:
    if bool(library.xp.any(given.array < 0)):
        least, cure = float(library.xp.min(given.array)), ". Of a matrix, pass spectrum(matrix).values."
        raise InputError(f"{name} must be at least 0; got {least!r}{cure if name == 'values' else '.'}")
