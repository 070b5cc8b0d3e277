"""A second flow with other errors: where it goes elsewhere, errors decide, and the flow is not known from there on.

The twins start some hundred roundings to either side of the given weights, more than those of all steps add up to, so
that a deviation which is lost to rounding has either sign; equal sizes move equally, so that what is equal exactly, as
units that a symmetry permutes, stays so, and both conserve what the given weights do. Both may reach a transition at
times that differ a little, since a passage amplifies errors: they are apart for a moment, and together again after it.
The second has half the tolerance of the first, so that such times show its errors, too.
"""

import numpy as np
from jaxtyping import Float

_ULPS = 256  # of a number's relative change, times one to four
_SHARE = 0.25  # power of the tolerance, for differences that count
_OF_TIME = 0.5  # and for the part of the time that a passage takes
_HASH = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio, as a multiplier: neighbours get unlike bits


def rounded(numbers: Float[np.ndarray, "..."], side: int) -> Float[np.ndarray, "..."]:
    """Return numbers that are some roundings larger or smaller; those of side -1 lie opposite to those of 1."""
    bits = (np.abs(numbers).view(np.uint64) * _HASH) >> np.uint64(61)
    ulps = _ULPS * (bits.astype(int) % 4 + 1) * np.where(bits >= 4, side, -side)
    return numbers * (1 + ulps * np.finfo(float).eps)


def come_apart(
    times: Float[np.ndarray, "k"], one: Float[np.ndarray, "k n"], two: Float[np.ndarray, "k n"], tolerance: float
) -> int:
    """Return the number of the first record from which on a twin is elsewhere; that of records if it never is.

    Args:
        times: of the records, from 0, where the twins are together.
        one: what the flow has at each record, such as its losses and norms.
        two: what its twin has.
        tolerance: of both.
    """
    near = np.abs(two - one) <= tolerance**_SHARE * np.max(np.abs(one), axis=0)
    together = np.flatnonzero(np.all(near, axis=1))
    last = np.append(together[1:], len(one)) - 1  # record until which they are apart after each of these
    first = np.minimum(together + 1, len(one) - 1)
    passage = times[last] - times[first] <= tolerance**_OF_TIME * times[first]
    lost = (last > together) & (~passage | (last == len(one) - 1))
    return int(together[np.argmax(lost)]) + 1 if lost.any() else len(one)
