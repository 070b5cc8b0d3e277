"""Part (B) of Algorithm 1: where gradient flow takes the weights once a new coordinate is active (equation 13).

    theta^{k+1} = lim_{eps -> 0} lim_{t -> infinity} psi(t, eps),  psi(0, eps) = theta^k + eps (e_i, sgn(g_i) e_i)

The loss need not be convex, so the limit is not "the minimum" over the active coordinates: it is the end of one path.
Two policies find it, and both follow that path from the saddle: `saddlescope.theory.following.FlowThenNewton`, the
default, and its specification, `saddlescope.theory.resting.FlowToRest`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from saddlescope.errors import InputError
from saddlescope.theory.landscape import Landscape, NotFinite
from saddlescope.theory.stationary import Face, NoRest, Rest

LARGEST_LOG = 300.0  # log|beta| beyond it is divergence; e^300 and its square are still finite
HORIZON = 1e12  # in units of 1 / |g_i|: a transition that lasts this long ends at no strict minimum


@dataclass(frozen=True, eq=False)
class Departure:
    """A saddle and the coordinate that has become active at it.

    Attributes:
        landscape: the loss.
        rest: the stationary point theta^k.
        entering: i_k; the sign it takes is that of g there.
        noise: rounding error of an entry of g: smaller entries count as zero.
    """

    landscape: Landscape
    rest: Rest
    entering: int
    noise: float

    @property
    def pull(self) -> float:
        """|g_i| of the entering coordinate at the saddle: its log|beta| starts to grow at the rate 2 |g_i|."""
        return abs(float(self.rest.gradient[self.entering]))

    def face(self) -> Face:
        """The support of theta^k with the new coordinate, whose sign is that of g."""
        signs = np.sign(self.rest.beta)
        signs[self.entering] = np.sign(self.rest.gradient[self.entering])
        among = np.flatnonzero(signs)
        return Face(self.landscape, among, signs[among])

    def no_rest(self, largest: float, outside: NotFinite | None) -> NoRest:
        """Why the path was left without an end.

        Args:
            largest: max |beta| where it was left.
            outside: set if the loss was not finite just beyond.

        Raises:
            NotFinite: that one, unless |beta| is so large there that the path diverges.
        """
        if outside is not None and largest < np.exp(LARGEST_LOG / 2):
            raise outside
        return NoRest(
            f"The transition that coordinate {self.entering} starts finds no strict local minimum: it was followed to "
            f"max |beta| = {largest:.3g} (Assumption 4.4 fails; losses with exponential tails have no minimum, and "
            "more weights than samples make it flat). Add a small penalty on beta to the loss."
        )

    def not_finite(self, error: NotFinite) -> str:
        """What to say if the loss was not finite on the path."""
        return (
            "The loss must be finite, with finite derivatives, wherever learning takes beta; it is NaN or infinite near "
            f"max |beta| = {error.size:.6g}, on the path that starts with coordinate {self.entering}. "
            "Look for a division, root or logarithm of beta."
        )

    def jump(self) -> InputError:
        """The gradient at arbitrarily small beta_i differs from the saddle's."""
        return InputError(
            "loss must be twice continuously differentiable; got a gradient that jumps as coordinate "
            f"{self.entering} leaves 0. Replace ReLU or |beta| by something smooth, such as GeLU."
        )


Transition: TypeAlias = Callable[[Departure], Rest | NoRest]
"""Finds theta^{k+1} of equation 13, or says why there is none; raises NotFinite where the loss is not finite."""


def check_between(low: float, high: float, **values: float) -> None:
    """Raises InputError unless every value lies strictly between low and high."""
    for name, value in values.items():
        if not (isinstance(value, float) and low < value < high):
            raise InputError(f"{name} must be a number between {low:g} and {high:g}; got {value!r}.")
