"""Validation of strengths, weights and times of the linear networks."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.errors import InputError
from saddlescope.models import symmetric_factor


def validate_strengths(strengths: ArrayLike, *, distinct: bool = False) -> Float[np.ndarray, "d"]:
    """Return the strengths as an array.

    Args:
        strengths: a, (d,).
        distinct: True if no two positive strengths may be equal.

    Raises:
        InputError: the list is empty, a strength is negative, NaN or infinite, or two are equal that must not be.
    """
    a = np.array(strengths, float)
    if a.ndim != 1 or a.size == 0 or not np.all((a >= 0) & (a < np.inf)):
        raise InputError(f"strengths must be a list of finite numbers of at least 0; got {strengths!r}.")
    if distinct and len(np.unique(a[a > 0])) < np.sum(a > 0):
        raise InputError(
            "strengths must differ from one another where positive, since equal ones are learned together; got "
            f"{a.tolist()!r}."
        )
    return a


def validate_factor(factor: ArrayLike, strengths: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d width"]:
    """Return the weights U as an array with a row for each strength.

    Raises:
        InputError: a wrong shape, or entries that are not finite.
    """
    U = np.array(factor, float)
    if U.ndim != 2 or len(U) != len(strengths) or U.shape[1] == 0:
        raise InputError(f"U must have a row for each of the {len(strengths)} strengths; got shape {U.shape!r}.")
    if not np.all(np.isfinite(U)):
        raise InputError(f"U must be finite; got {int(np.sum(~np.isfinite(U)))!r} entries that are not.")
    return U


def validate_map(W: ArrayLike, strengths: Float[np.ndarray, "d"], *, name: str) -> Float[np.ndarray, "d d"]:
    """Return the symmetric network's map W as an array.

    Args:
        W: symmetric and positive semidefinite, (d, d).
        strengths: a, (d,).
        name: of W in an error.

    Raises:
        InputError: a W that is not symmetric or not positive semidefinite, or of another size than the strengths.
    """
    symmetric_factor(W, name=name)
    found = np.array(W, float)
    if len(found) != len(strengths):
        wanted = (len(strengths), len(strengths))
        raise InputError(
            f"{name} must have shape {wanted!r}, as there are {len(strengths)} strengths; got {found.shape!r}."
        )
    return found


def validate_times(times: ArrayLike) -> Float[np.ndarray, "times"]:
    """Return the times as an array.

    Raises:
        InputError: a wrong shape, or a time that is NaN, infinite or negative.
    """
    t = np.array(times, float)
    if t.ndim != 1 or not np.all((t >= 0) & (t < np.inf)):
        raise InputError(f"times must be a list of finite numbers of at least 0; got {times!r}.")
    return t
