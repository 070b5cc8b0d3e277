"""Rows of arrays in units of their own size."""

import numpy as np
from jaxtyping import Float, Int


def of_unit_size(rows: Float[np.ndarray, "... d"]) -> tuple[Float[np.ndarray, "... d"], Int[np.ndarray, "..."]]:
    """Return rows divided by powers of 2, their largest entries between 1/2 and 1, and the exponents.

    Nothing is rounded. Rows of zeros stay, with the exponent 0.
    """
    exponents = np.frexp(np.abs(rows).max(axis=-1))[1].astype(int)
    return np.ldexp(rows, -exponents[..., None]), exponents
