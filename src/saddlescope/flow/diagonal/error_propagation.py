"""Propagation of the errors of an integration along its path, to first order.

    e(t)    error of the state y at time t
    J       Jacobian of the flow's right-hand side: e' = J e + new errors

A small early error can move a late stage by much more: where the gradient nearly vanishes after a transition, the time
to the next stage depends on small differences. A step of length h maps errors by (1 - z + z^2 / 2)^-1, an approximation
of e^z for z = h J in the middle of the step that is damped where the flow is.
"""

import numpy as np
from jaxtyping import Float

from saddlescope.numerics.ndf import AbstractSystem, Interpolant

_SAMPLES = 16


class PropagatedError:
    """Errors of a state, carried along with the integration.

    New errors are estimates whose signs mean little: they are added with their own signs, and with random ones in 15
    further samples. The size of an error is the largest of the first sample and the root mean square of all.

    Args:
        size: length of the state.
    """

    def __init__(self, size: int) -> None:
        self._samples = np.zeros((size, _SAMPLES))
        self._rng = np.random.default_rng(0)

    @property
    def size(self) -> Float[np.ndarray, "n"]:
        """Size of the error of each entry of the state."""
        mean_square = np.einsum("ns,ns->n", self._samples, self._samples) / _SAMPLES
        return np.maximum(np.abs(self._samples[:, 0]), np.sqrt(mean_square))

    def advance(self, step: Interpolant, system: AbstractSystem) -> None:
        """Carry the errors through a step, and add the step's own."""
        columns, jacobian = system.jacobian(step((step.start + step.end) / 2))
        if columns.size:
            z = (step.end - step.start) * jacobian
            active = z[columns]
            inverse = active @ active / 2 - active
            inverse.flat[:: columns.size + 1] += 1
            after = np.linalg.solve(inverse, self._samples[columns])
            self._samples += z @ (after - active @ after / 2)
        self.add(step.error)

    def add(self, error: Float[np.ndarray, "n"]) -> None:
        """Add an error made at the present time."""
        signs = 2.0 * self._rng.integers(0, 2, _SAMPLES) - 1
        signs[0] = 1.0
        self._samples += error[:, None] * signs
