"""Validation of strengths and maps of the linear networks."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.errors import InputError
from saddlescope._shared.real_arrays import real_array
from saddlescope.models import symmetric_factor


def validate_strengths(strengths: ArrayLike, *, distinct: bool = False) -> Float[np.ndarray, "d"]:
    """Return the strengths as an array.

    Args:
        strengths: a, (d,).
        distinct: True if no two positive strengths may be equal.

    Raises:
        InputError: the list is empty, a strength is negative, NaN or infinite, or two are equal that must not be.
    """
    a = real_array("strengths", strengths, (None,))
    if np.any(a < 0):
        raise InputError(f"strengths must be at least 0; got {a.tolist()!r}.")
    if distinct and len(np.unique(a[a > 0])) < np.sum(a > 0):
        raise InputError(
            "strengths must differ from one another where positive, since equal ones are learned together; got "
            f"{a.tolist()!r}."
        )
    return a


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
    return real_array(name, W, (len(strengths), len(strengths)))
