"""Directions of units that rest where they are unstable, so that deviations below the tolerance decide what comes next.

    B      derivative of a unit's own direction rate by its direction; symmetric where the rate is 0
    rate   largest eigenvalue of B: at which a deviation of the direction grows
    d      deviation of a direction from rest, estimated from its motion in a step; below the tolerance it is not known

A direction that aligns comes to rest exponentially: after log(1/alpha) its deviation is a power of alpha. If the
residual then changes so that this rest becomes unstable, as for the second mode of a linear network in the same units,
the time of leaving it follows from a deviation that is not known. A direction that has rested from the start does so by
a symmetry, exactly, and does not count.
"""

import numpy as np
from jaxtyping import Float, Int

_EFOLDS = 1.0  # by which a deviation that is not known may have grown: after three, times can be off by 7 %


class RestingDirections:
    """Watch on the directions of all units along a flow.

    Args:
        count: number of units.
        tolerance: deviations of a direction below it are not known.
    """

    def __init__(self, count: int, tolerance: float) -> None:
        self._count, self._tolerance = count, tolerance
        self._rates: Float[np.ndarray, "m"] = np.zeros(count)
        self._fastest: Float[np.ndarray, "m"] = np.zeros(count)
        self._moved = np.zeros(count, bool)
        self._grown: Float[np.ndarray, "m"] = np.zeros(count)

    def linearise(self, jacobian: Float[np.ndarray, "s s"]) -> None:
        """Take the rates from the Jacobian of the flow by log norms and directions."""
        m = self._count
        units = np.arange(m)
        B = jacobian[m:, m:].reshape(m, -1, m, len(jacobian) // m - 1)[units, :, units, :]
        values = np.linalg.eigvalsh((B + B.mT) / 2)
        self._rates, self._fastest = np.maximum(values[:, -1], 0.0), np.max(np.abs(values), axis=1)

    def undecided(
        self, duration: float, before: Float[np.ndarray, "s"], after: Float[np.ndarray, "s"]
    ) -> Int[np.ndarray, "u"]:
        """Return the units whose next motion is not decided by what is known, after a step of that duration."""
        motion = np.linalg.norm((after - before)[self._count :].reshape(self._count, -1), axis=1)
        share = np.minimum(duration * self._fastest, 1.0)  # of the deviation that is moved in the step
        rests = motion <= self._tolerance * share
        self._grown = np.where(rests & self._moved, self._grown + self._rates * duration, 0.0)
        self._moved |= ~rests
        return np.flatnonzero(self._grown > _EFOLDS)
