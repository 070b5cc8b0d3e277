"""Detection of paths that diverge, which would otherwise be followed for ever.

Where a loss has an exponential tail its rates decay as r ~ 1/t while x grows as log t, and the length of a Newton step,
dx = r / H, stays constant. Towards a strict minimum the step falls in proportion to r; towards a degenerate one as a
root of r (the cube root for a quartic minimum).
"""

import numpy as np
from jaxtyping import Bool, Float

from saddlescope.theory.incremental.stationary_point import Face, newton_displacement
from saddlescope.theory.saddle.path import NonFiniteLossError


class DivergenceTest:
    """Test for divergence, called along a path."""

    def __init__(self, face: Face, entering_rate: float) -> None:
        self._face = face
        self._next = 1e-3 * entering_rate  # where the test starts
        self._steps: list[float] = []

    def diverging(self, x: Float[np.ndarray, "m"], r: Float[np.ndarray, "m"], zero: Bool[np.ndarray, "m"]) -> bool:
        """Return True once the path is known to diverge; costs one Hessian in each decade of the rates.

        Args:
            x: the present point.
            r: the rates there.
            zero: the coordinates that leave the support.
        """
        fastest = float(np.max(np.abs(r[~zero]), initial=0.0))
        if not 0 < fastest <= self._next:
            return False
        self._next = 0.1 * fastest
        kept = self._face.restricted(~zero)
        try:
            displacement = newton_displacement(x[~zero], r[~zero], kept.hessian(x[~zero]))
        except NonFiniteLossError:
            return False
        self._steps.append(float(np.max(np.abs(displacement))))
        last = self._steps[-4:]  # over three decades of the rates
        # A step of relative size 1/x falls by 7/14 from r = e^-7 to e^-14; a quartic's by 1/10.
        return len(last) == 4 and bool(np.isfinite(last).all()) and last[-1] > 0.5 * last[0]
