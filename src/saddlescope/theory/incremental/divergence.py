"""Paths that end at infinity: they are left as soon as that is clear, since they would be followed for ever.

Where a loss has an exponential tail its rates fade as r ~ 1/t while x grows as log t, and a Newton step stays as long
as it is, dx = r / H. Towards a strict minimum the step falls in proportion to r; towards a degenerate one as a root
of r (the cube root for a quartic minimum).
"""

import numpy as np
from jaxtyping import Bool, Float

from saddlescope.theory.incremental.loss_oracle import NonFiniteLossError
from saddlescope.theory.incremental.stationary_point import Face, newton_displacement

_FROM = 1e-3  # of the entering coordinate's rate: where rates begin to fade
_DECADES = 3  # over which the Newton step is watched
_FELL = 0.5  # a step of relative size 1/x falls by 7/14 from r = e^-7 to e^-14; a quartic's by 1/10


class DivergenceTest:
    """Watches the rates of a path fade."""

    def __init__(self, face: Face, pull: float) -> None:
        self._face = face
        self._next = _FROM * pull
        self._steps: list[float] = []

    def towards_infinity(
        self, x: Float[np.ndarray, "m"], r: Float[np.ndarray, "m"], zero: Bool[np.ndarray, "m"]
    ) -> bool:
        """Whether the path has been seen to go to infinity; costs one Hessian in each decade of the rates.

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
        last = self._steps[-1 - _DECADES :]
        return len(last) > _DECADES and bool(np.isfinite(last).all()) and last[-1] > _FELL * last[0]
