"""Propagation of the errors of an integration along its path, to first order.

    e(t)    error of the state y at time t
    J       Jacobian of the flow's right-hand side: e' = J e + new errors

A small early error can move a late stage by much more: where the gradient nearly vanishes after a transition, the time
to the next stage depends on small differences. So do rounding errors at a saddle whose unstable directions are absent
from the state or smaller than its rounding. A step of length h maps errors by e^z for z = h J in the middle of the
step, or by (1 - z + z^2 / 2)^-1, an approximation that is damped where the flow is, where nothing grows by much.
"""

import numpy as np
from jaxtyping import Float
from scipy.linalg import expm

from saddlescope.numerics.ndf import AbstractSystem, Interpolant

_SAMPLES, _OF_ROUNDING = 16, 4
_UNBOUNDED = np.errstate(over="ignore", invalid="ignore")  # errors that are no numbers end a run


class PropagatedError:
    """Errors of a state, carried along with the integration.

    New errors are estimates whose signs mean little: they are added with their own signs, and with random ones in 15
    further samples. The size of an error is the largest of the first sample and the root mean square of all. Rounding
    errors, of the state and of the gradient's terms, are carried in 4 more samples.

    Args:
        size: length of the state.
        samples: those of an earlier run that ended at this state; None: the state is exact.
    """

    def __init__(self, size: int, samples: Float[np.ndarray, "n 20"] | None = None) -> None:
        self.samples = np.zeros((size, _SAMPLES + _OF_ROUNDING)) if samples is None else samples.copy()
        self._rng = np.random.default_rng(0)
        self._made = np.zeros(size)  # by all steps, as if nothing had grown

    @property
    @_UNBOUNDED
    def size(self) -> Float[np.ndarray, "n"]:
        """Size of the error of each entry of the state, but for rounding."""
        of_steps = self.samples[:, :_SAMPLES]
        return np.maximum(np.abs(of_steps[:, 0]), np.sqrt(np.mean(of_steps**2, axis=1)))

    @property
    @_UNBOUNDED
    def rounding(self) -> Float[np.ndarray, "n"]:
        """Size of the error of each entry by rounding."""
        return np.sqrt(np.mean(self.samples[:, _SAMPLES:] ** 2, axis=1))

    @_UNBOUNDED
    def amplified(self, slope: Float[np.ndarray, "n"]) -> float:
        """Return the error of a function with this slope, beyond what errors make that have not grown."""
        of_steps = slope @ self.samples[:, :_SAMPLES]
        return float(np.sqrt(np.mean(of_steps**2)) - np.abs(slope) @ self._made)

    @_UNBOUNDED
    def advance(self, step: Interpolant, system: AbstractSystem) -> None:
        """Carry the errors through a step, and add the step's own."""
        middle = step((step.start + step.end) / 2)
        columns, jacobian = system.jacobian(middle)
        z = (step.end - step.start) * jacobian
        size = np.abs(middle) + np.abs(z) @ np.abs(middle[columns])
        signs = self._rng.choice([-1.0, 1.0], (len(size), _OF_ROUNDING))
        self.samples[:, _SAMPLES:] += np.finfo(float).eps * size[:, None] * signs
        own = step.error
        self._made += np.abs(own)
        if columns.size:
            grown = z @ _integrated(z[columns], np.column_stack([self.samples, own])[columns])
            self.samples += grown[:, :-1]
            from_start = own + grown[:, -1]  # as if made there: a long step may end after it has grown by far
            own = np.where(np.abs(from_start) > np.abs(own), from_start, own)
        self.add(own)

    def add(self, error: Float[np.ndarray, "n"]) -> None:
        """Add an error made at the present time, or before it, as that of a window."""
        signs = 2.0 * self._rng.integers(0, 2, _SAMPLES) - 1
        signs[0] = 1.0
        self.samples[:, :_SAMPLES] += error[:, None] * signs


def _integrated(z: Float[np.ndarray, "a a"], errors: Float[np.ndarray, "a s"]) -> Float[np.ndarray, "a s"]:
    """Return the mean of e^(s z) errors over s from 0 to 1."""
    unit = np.eye(len(z))
    # The Jacobian is similar to a symmetric matrix, which has the same diagonal and the same products z_ij z_ji.
    symmetric = np.sign(z) * np.sqrt(np.abs(z * z.T))
    try:
        np.linalg.cholesky(unit - 2 * symmetric)
    except np.linalg.LinAlgError:  # something grows by more than e^(1/2)
        return expm(np.block([[z, unit], [np.zeros_like(z), np.zeros_like(z)]]))[: len(z), len(z) :] @ errors
    after = np.linalg.solve(unit - z + z @ z / 2, errors)
    return after - z @ after / 2
