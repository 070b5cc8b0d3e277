"""Part (B) of Algorithm 1: where gradient flow takes the weights once a new coordinate is active (equation 13).

    theta^{k+1} = lim_{eps -> 0} lim_{t -> infinity} psi(t, eps),  psi(0, eps) = theta^k + eps (e_i, sgn(g_i) e_i)

The loss need not be convex, so the limit is not "the minimum" over the active coordinates: it is the end of one path.
Two policies find it, and both follow that path from the saddle: `saddlescope.theory.incremental.newton_transition.NewtonTransition`, the
default, and its specification, `saddlescope.theory.incremental.ode_transition.OdeTransition`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool

from saddlescope._shared.errors import InputError
from saddlescope.theory.incremental.loss_oracle import LossOracle, NonFiniteLossError
from saddlescope.theory.incremental.stationary_point import Face, NoStationaryPoint, StationaryPoint

LARGEST_LOG = 300.0  # log|beta| beyond it is divergence; e^300 and its square are still finite
HORIZON = 1e12  # in units of 1 / |g_i|: a transition that lasts this long ends at no strict minimum


@dataclass(frozen=True, eq=False)
class Departure:
    """A saddle and the coordinates that have become active at it.

    Attributes:
        landscape: the loss.
        rest: the stationary point theta^k.
        entering: i_k, or several that are tied; the signs they take are those of g there.
        noise: rounding error of an entry of g: smaller entries count as zero.
        delays: how much later than the first each of them arrives, in time t: on the way out of the saddle
            |beta_i| = e^{2 |g_i| (t - delay_i)}.
    """

    oracle: LossOracle
    rest: StationaryPoint
    entering: tuple[int, ...]
    noise: float
    delays: tuple[float, ...] = (0.0,)

    @property
    def pull(self) -> float:
        """The largest |g_i| of those that enter, at the saddle: log|beta_i| starts to grow at the rate 2 |g_i|."""
        return float(np.max(np.abs(self.rest.gradient[list(self.entering)])))

    def face(self) -> Face:
        """The support of theta^k with the new coordinates, whose signs are those of g."""
        new = list(self.entering)
        signs = self.rest.beta.copy()
        signs[new] = self.rest.gradient[new]
        return Face.of(self.oracle, signs)

    def new(self, face: Face) -> Bool[np.ndarray, "m"]:
        """Which of the face's coordinates enter."""
        return (face.directions[np.isin(face.among, self.entering)] != 0).any(axis=0)

    @property
    def named(self) -> str:
        """The entering coordinates, for a sentence."""
        return ("coordinate " if len(self.entering) == 1 else "coordinates ") + ", ".join(map(str, self.entering))

    def no_rest(
        self, largest: float, outside: NonFiniteLossError | None, *, towards_infinity: bool = False
    ) -> NoStationaryPoint:
        """Why the path was left without an end.

        Args:
            largest: max |beta| where it was left.
            outside: set if the loss was not finite just beyond.
            towards_infinity: whether the path was seen to go to infinity.

        Raises:
            NonFiniteLossError: that one, unless |beta| is so large there that the path diverges.
        """
        if outside is not None and largest < np.exp(LARGEST_LOG / 2):
            raise outside
        why = (
            "the minimiser seems to be at infinity, as for losses with exponential tails on separable data"
            if towards_infinity or np.log(largest) > LARGEST_LOG
            else "there the loss is flat, as with more weights than samples, or it has no minimum"
        )
        return NoStationaryPoint(
            f"The transition that starts with {self.named} finds no strict local minimum (Assumption 4.4 fails): it "
            f"was followed to max |beta| = {largest:.3g}, and {why}. Add a small penalty on beta to the loss."
        )

    def not_finite(self, error: NonFiniteLossError) -> str:
        """What to say if the loss was not finite on the path."""
        return (
            "The loss must be finite, with finite derivatives, wherever learning takes beta; it is NaN or infinite "
            f"near max |beta| = {error.size:.6g}, on the path that starts with {self.named}. "
            "Look for a division, root or logarithm of beta."
        )

    def jump(self) -> InputError:
        """The gradient at arbitrarily small beta_i differs from the saddle's."""
        return InputError(
            f"loss must be twice continuously differentiable; got a gradient that jumps as {self.named} "
            "becomes other than 0. Replace ReLU or |beta| by something smooth, such as GeLU."
        )


Transition: TypeAlias = Callable[[Departure], StationaryPoint | NoStationaryPoint]
"""Finds theta^{k+1} of equation 13, or says why there is none; raises NonFiniteLossError where the loss is not finite."""


def check_between(low: float, high: float, **values: float) -> None:
    """Raises InputError unless every value lies strictly between low and high."""
    for name, value in values.items():
        if not (isinstance(value, float) and low < value < high):
            raise InputError(f"{name} must be a number between {low:g} and {high:g}; got {value!r}.")
