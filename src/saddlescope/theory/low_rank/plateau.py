"""A plateau of the greedy algorithm: how long it lasts, and what ends it."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float

from saddlescope.theory.low_rank.transition import LowRankDeparture, Pairs, Saddle


@dataclass(frozen=True, eq=False, kw_only=True)
class Plateau:
    """A plateau at a saddle.

    Attributes:
        rates: of each product, the singular values of G (or eigenvalues) outside its active directions, descending.
        exponents: of each product of two factors, the xi paired with the rates when the plateau begins.
        duration: time until its end; infinite if nothing ends it.
        margin: delay of the runner-up.
        departure: what becomes active; None if nothing does, or for a tie.
        why: of a tie, what decides it, and its cure, after "At T = ... "; where nothing becomes active although
            something has a force, why.
        outside: bases of what stays inactive, see `follow_to_saddle`.
    """

    rates: tuple[Float[np.ndarray, "_"], ...]
    exponents: tuple[Float[np.ndarray, "_"], ...] = ()
    duration: float = math.inf
    margin: float = math.inf
    departure: LowRankDeparture | None = None
    why: str = ""
    outside: Pairs = ()


class InactiveGrowth(Protocol):
    """Growth of inactive directions, plateau by plateau."""

    def plateau(self, saddle: Saddle, time: float) -> Plateau:
        """Return the plateau at a saddle, which begins at a time."""
        ...

    def settle(self, plateau: Plateau, before: Saddle, found: Saddle, time: float) -> None:
        """Go on, from the end of a plateau at a time, to the next saddle."""
        ...
