"""A second flow with other errors: where it goes elsewhere, errors decide, and the flow is not known from there on.

The twins start a few roundings to either side of the given weights, so that a deviation which is lost to rounding has
either sign; equal sizes move equally, so that what is equal exactly, as units that a symmetry permutes, stays so. Both
may reach a transition at times that differ a little: what the twin has at a record is compared with all that the flow
has between the records beside it.
"""

import numpy as np
from jaxtyping import Float

_ULPS = 4  # of a number's relative change, at most
_SHARE = 0.5  # power of the tolerance, for the differences that count
_HASH = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio, as a multiplier: neighbours get unlike bits


def rounded(numbers: Float[np.ndarray, "..."], side: int) -> Float[np.ndarray, "..."]:
    """Return numbers that are one to four roundings larger or smaller; those of side -1 lie opposite to those of 1."""
    bits = (np.abs(numbers).view(np.uint64) * _HASH) >> np.uint64(61)
    ulps = (bits.astype(int) % _ULPS + 1) * np.where(bits >= _ULPS, side, -side)
    return numbers * (1 + ulps * np.finfo(float).eps)


def come_apart(one: Float[np.ndarray, "k n"], two: Float[np.ndarray, "k n"], tolerance: float) -> int:
    """Return the number of the first record from which on a twin is elsewhere; that of records if it never is.

    Args:
        one: what the flow has at each record, such as its losses and norms.
        two: what its twin has.
        tolerance: of both.
    """
    beside = [one, np.concatenate([one[:1], one[:-1]]), np.concatenate([one[1:], one[-1:]])]
    slack = tolerance**_SHARE * np.max(np.abs(one), axis=0)
    low, high = np.min(beside, axis=0) - slack, np.max(beside, axis=0) + slack
    apart = np.flatnonzero(np.any((two < low) | (two > high), axis=1))
    return int(apart[0]) if len(apart) else len(one)
