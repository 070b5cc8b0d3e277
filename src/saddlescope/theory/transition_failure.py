"""Failure of a transition between saddles, as a value."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TransitionFailure:
    """Result of a transition that found no stationary point.

    Attributes:
        reason: one sentence for the reader.
        status: of the prediction that it ends. `saddle`: the path comes so close to a saddle of what is active that
            rounding decides how it leaves it; `not_finite`: the loss is NaN or infinite on the path.
    """

    reason: str
    status: Literal["no_minimum", "saddle", "not_finite"] = "no_minimum"
