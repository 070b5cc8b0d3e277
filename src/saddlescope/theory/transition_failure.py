"""Failure of a transition between saddles, as a value."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TransitionFailure:
    """Result of a transition that found no stationary point.

    Attributes:
        reason: one sentence for the reader.
        finite: True if the loss was finite on the whole path.
        saddle: True if the path ends at a saddle of what is active.
    """

    reason: str
    finite: bool = True
    saddle: bool = False
