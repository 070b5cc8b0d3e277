"""First-order correction of Algorithm 1 at a finite initial scale: the part of order 1 of the plateaus' lines.

    l        log(1/alpha)
    y_i      integral of g_i over time t; beta_i = alpha^2 (e^{P_i + 2 y_i} - e^{M_i - 2 y_i})
    P_i      log ((u0_i + v0_i) / 2)^2, from the initial weights before they are scaled by alpha
    M_i      log ((u0_i - v0_i) / 2)^2
    xi, T    Algorithm 1's slopes and times, the parts of order l of y and t
    eta, c   the parts of order 1: y_i = xi_i l + eta_i when stage k begins, at t = T_k l + c_k

Coordinate i has |beta_i| = 1 at the end s = +-1 of its interval where 2 s y_i = 2 l - P_i for s = +1, or - M_i for
s = -1. On a plateau y moves at the rate g, and the transition k shifts it by J^k (see `orbit`):

    c_k   = c_{k-1} - (s R_i / 2 + eta_i^{k-1}) / g_i^{k-1},    R = P or M, for the coordinate i that enters
    eta^k = eta^{k-1} + g^{k-1} (c_k - c_{k-1}) + J^k

No alpha occurs, so T_k + c_k / l is the time of stage k up to terms exponentially small in the distance of stages.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.errors import InputError
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import ReprMixin


@dataclass(frozen=True, eq=False, repr=False)
class Correction(ReprMixin):
    """Parts of order 1 when a stage begins.

    Attributes:
        begins: c_k, in time t: where the straight line of the first entering coordinate meets |beta| = 1.
        halfway: C_k, in time t: where |beta| of the first entering coordinate passes half its value on the plateau.
        offset: eta^k, in units of log w, shape (p,).
    """

    begins: float
    halfway: float
    offset: Float[np.ndarray, "p"]


@dataclass(frozen=True, eq=False, repr=False)
class FirstOrderInit(ReprMixin):
    """Logarithms P and M of the initial weights before they are scaled by alpha.

    Attributes:
        plus: P, shape (p,).
        minus: M, shape (p,).
    """

    plus: Float[np.ndarray, "p"]
    minus: Float[np.ndarray, "p"]

    @classmethod
    def of(cls, weights: Iterable[ArrayLike], size: int) -> "FirstOrderInit":
        """Return P and M of a pair (u0, v0).

        Raises:
            InputError: weights is not a pair of finite arrays of shape (size,), or |u0_i| = |v0_i| for some i.
        """
        pair = tuple(weights)
        if len(pair) != 2:
            raise InputError(f"weights must be a pair (u0, v0) of arrays of shape ({size},); got {pair!r}.")
        u, v = (real_array(f"{name} of weights", w, (size,)) for name, w in zip(("u0", "v0"), pair, strict=True))
        degenerate = np.flatnonzero(np.abs(u) == np.abs(v))
        if degenerate.size:
            i = int(degenerate[0])
            raise InputError(
                f"weights must have |u0_i| different from |v0_i| for every i; got u0[{i}] = {u[i]:g} and v0[{i}] = "
                f"{v[i]:g}, which fixes the sign of beta_{i} for ever. Change one of them a little."
            )
        return cls(2 * np.log(np.abs(u + v) / 2), 2 * np.log(np.abs(u - v) / 2))

    def lacking(
        self, gradient: Float[np.ndarray, "p"], offset: Float[np.ndarray, "p"], time: float = 0.0
    ) -> Float[np.ndarray, "p"]:
        """Return the growth of log w that each coordinate lacks, beyond (1 - s xi) l, until |beta| = 1.

        Args:
            gradient: g; its signs are the ends s that coordinates move to.
            offset: eta when the plateau begins.
            time: time t after Algorithm 1's time.
        """
        s = np.sign(gradient)
        return -np.where(s > 0, self.plus, self.minus) / 2 - s * (offset + gradient * time)
