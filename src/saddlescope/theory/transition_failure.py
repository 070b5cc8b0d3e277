"""Failure of a transition between saddles, as a value."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TransitionFailure:
    """Result of a transition that found no stationary point.

    Attributes:
        reason: one sentence for the reader.
        finite: True if the loss was finite on the whole path.
    """

    reason: str
    finite: bool = True
