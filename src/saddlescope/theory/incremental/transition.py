"""Part (B) of Algorithm 1: the transition of gradient flow once a new coordinate is active (equation 13).

    theta^{k+1} = lim_{eps -> 0} lim_{t -> infinity} psi(t, eps),  psi(0, eps) = theta^k + eps (e_i, sgn(g_i) e_i)

The loss need not be convex, so the limit is not "the minimum" over the active coordinates: it is the end of one path,
which `saddlescope.theory.incremental.orbit` follows from the saddle.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from saddlescope._shared.errors import InputError
from saddlescope.loss.checks import ROUGH, rounding_share
from saddlescope.theory.incremental.loss_oracle import LossOracle
from saddlescope.theory.incremental.stationary_point import Face, StationaryPoint
from saddlescope.theory.saddle.path import (
    NoMinimum,
    NonFiniteLossError,
    TransitionFailure,
    falls_ahead,
    falls_without_bound,
)

LARGEST_LOG = 300.0  # log|beta| beyond it is divergence; e^300 and its square are still finite
HORIZON = 1e12  # in units of 1 / |g_i|: a transition that lasts this long ends at no strict minimum


@dataclass(frozen=True, eq=False)
class SaddleDeparture:
    """Saddle and the coordinates that become active at it.

    Attributes:
        oracle: the loss.
        saddle: the stationary point theta^k.
        entering: i_k, or several that are tied; the signs they take are those of g there.
        noise: rounding error of an entry of g: smaller entries count as zero.
        delays: arrival time t of each of them after the first: near the saddle |beta_i| = e^{2 |g_i| (t - delay_i)}.
    """

    oracle: LossOracle
    saddle: StationaryPoint
    entering: tuple[int, ...]
    noise: float
    delays: tuple[float, ...] = (0.0,)

    @property
    def entering_rate(self) -> float:
        """Largest |g_i| - lambda of those that enter, at the saddle: log|beta_i| starts to grow at twice this rate."""
        return float(np.max(np.abs(self.saddle.gradient[list(self.entering)]))) - self.oracle.decay

    def face(self) -> Face:
        """Return the face of the support of theta^k and the new coordinates, whose signs are those of g."""
        new = list(self.entering)
        signs = self.saddle.beta.copy()
        signs[new] = self.saddle.gradient[new]
        return Face.of(self.oracle, signs)

    def new(self, face: Face) -> Bool[np.ndarray, "m"]:
        """Return a mask of the face's coordinates that enter."""
        return (face.directions[np.isin(face.among, self.entering)] != 0).any(axis=0)

    @property
    def named(self) -> str:
        """Entering coordinates, for a message."""
        return ("coordinate " if len(self.entering) == 1 else "coordinates ") + ", ".join(map(str, self.entering))

    def descends(self, end: StationaryPoint) -> bool:
        """Return True if the loss at the end is lower than at the saddle, as far as rounding shows."""
        return bool(end.loss <= self.saddle.loss + 4 * np.finfo(float).eps * abs(self.saddle.loss))

    def no_stationary_point(
        self,
        face: Face,
        x: Float[np.ndarray, "m"],
        outside: NonFiniteLossError | None = None,
        *,
        diverging: bool = False,
    ) -> TransitionFailure:
        """Return the reason why the path was stopped without a stationary point.

        Args:
            face: the face of the path.
            x: where it was stopped.
            outside: set if the loss was not finite just beyond.
            diverging: True if the path is known to diverge.

        Raises:
            NonFiniteLossError: that one, unless |beta| is so large there, or the loss goes on falling, that the path
                diverges.
        """
        if outside is None:
            far = np.log(np.max(x)) > LARGEST_LOG
        else:  # it may have been a trial step's, far beyond x
            far = np.log(max(np.max(x), outside.size)) > LARGEST_LOG / 2

        def loss(outwards: float) -> float:
            return face.oracle.value_and_gradient(face.beta(outwards * x))[0]

        if outside is not None and not (far or falls_ahead(loss)):
            raise outside
        fastest = float(np.max(np.abs(face.rate(x))))
        if diverging:
            why = NoMinimum.AT_INFINITY
        elif far or outside is not None or fastest > 10 * self.entering_rate or falls_without_bound(loss):
            why = NoMinimum.UNBOUNDED
        else:
            H = face.hessian(x)
            share = rounding_share(face.rate, x, -H @ x, float(np.max(np.abs(H) @ x)))
            why = NoMinimum.ROUNDED.format(share) if share > ROUGH else NoMinimum.FLAT
        return TransitionFailure(
            f"The transition that starts with {self.named} finds no strict local minimum (Assumption 4.4 fails): it "
            f"was followed to max |beta| = {np.max(x):.3g}, and {why}"
        )

    def not_finite(self, error: NonFiniteLossError) -> str:
        """Return the message for a loss that was not finite on the path."""
        return (
            "The loss must be finite, with finite derivatives, wherever learning takes beta; it is NaN or infinite "
            f"near max |beta| = {error.size:.6g}, on the path that starts with {self.named}. "
            "Look for a division, root or logarithm of beta."
        )

    def jump(self) -> InputError:
        """Return the error for a gradient that at arbitrarily small beta_i differs from the saddle's."""
        return InputError(
            f"loss must be twice continuously differentiable; got a gradient that jumps as {self.named} "
            "becomes other than 0. Replace ReLU or |beta| by something smooth, such as GeLU."
        )
