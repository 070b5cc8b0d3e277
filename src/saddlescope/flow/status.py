"""What all flows have in common: what they may be asked for, the share of the tolerance for a step, how they end."""

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope.flow.diagonal.trajectory import Status

LOCAL_SHARE = 0.02  # of the tolerance, for the error of one step
REACHED = Status(True, "The run reached its last time.")


def stuck(time: float, unit: str, *, finite: bool) -> Status:
    """No step could be taken; `finite` is whether the right-hand side was, just after the time."""
    if finite:
        return Status(
            False,
            f"No step could be taken at {unit} = {time:.6g}, however short.",
            "The loss may not be twice continuously differentiable there, or tolerance is below rounding errors.",
        )
    return Status(
        False,
        f"The gradient is NaN or infinite just after {unit} = {time:.6g}.",
        "Evaluate the loss and its gradient at the last of the trajectory's values to see where they come from.",
    )


def diverged(time: float, unit: str) -> Status:
    """The parameters are beyond what can be followed."""
    return Status(
        False,
        f"The parameters exceed 1e26 at {unit} = {time:.6g}.",
        "The loss seems to be unbounded below along the flow, or to have its minimum at infinity.",
    )


def exhausted(max_gradients: int, time: float, unit: str) -> Status:
    """All gradients that were allowed are used up."""
    return Status(
        False,
        f"max_gradients={max_gradients} gradients were used up at {unit} = {time:.6g}.",
        "Raise max_gradients or tolerance, or go on from the trajectory's end.",
    )


def hidden_nan(time: float, unit: str) -> Status:
    """The loss is not finite where its gradient is."""
    return Status(
        False,
        f"The loss is NaN or infinite at {unit} = {time:.6g}, though its gradient is finite.",
        "Evaluate it at the trajectory's values there; a jnp.where that hides NaN from the gradient does this.",
    )


def silent(fraction: float, note: str) -> None:
    """Reports no progress."""


def require_run(
    *,
    until: float,
    tolerance: float,
    record: np.ndarray | None,
    level: float | None,
    max_gradients: int,
) -> None:
    """Refuses what no flow can be asked for.

    Raises:
        InputError: an argument is out of its range.
    """
    if not 0 <= until < np.inf:
        raise InputError(f"until must be a finite time of at least 0; got {until!r}.")
    if not 1e-11 <= tolerance <= 1e-1:
        raise InputError(f"tolerance must be between 1e-11 and 0.1; got {tolerance!r}.")
    if level is not None and not 0 < level < np.inf:
        raise InputError(f"level must be positive and finite; got {level!r}.")
    if max_gradients < 1:
        raise InputError(f"max_gradients must be at least 1; got {max_gradients!r}.")
    marks = np.zeros(1) if record is None else np.asarray(record)
    if not (marks.ndim == 1 and np.all((marks >= 0) & (marks <= until))):
        raise InputError(f"record must be a vector of times between 0 and until={until!r}; got {record!r}.")
