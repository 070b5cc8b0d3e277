"""Termination of a run: its status, the errors that carry a partial result, and checks of common arguments."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from saddlescope._shared.errors import FlowError as FlowError
from saddlescope._shared.errors import InputError

LOCAL_SHARE = 0.02  # of the tolerance, for the error of one step


@dataclass(frozen=True)
class Status:
    """Termination status of a run.

    Attributes:
        ok: True if the run reached its end.
        code: one word for programs: reached, stopped, exhausted, diverged, stuck, not_finite, unbalanced or undecided;
            for the symmetric two-layer model, the name of its `Ending`.
        sentence: what happened.
        cure: what to do about it; empty where nothing need be done.
    """

    ok: bool
    code: str
    sentence: str
    cure: str = ""

    def __str__(self) -> str:
        return f"{self.sentence} {self.cure}".strip()


REACHED = Status(True, "reached", "The run reached its last time.")


class BatchedFlowError(FlowError):
    """Some runs of a batch ended early.

    Attributes:
        result: all runs, as far as they came; `result.failed` holds the numbers of those that ended early.
    """

    @staticmethod
    def _message(result: Any) -> str:
        failed = list(result.failed)
        named = ", ".join(map(str, failed[:10])) + (", ..." if len(failed) > 10 else "")
        return (
            f"{len(failed)} of {len(result.statuses)} runs ended early: {named}. "
            f"Run {failed[0]}: {result.statuses[failed[0]]}"
        )


_BLOW_UP = 1e6  # sizes per time so far: no smooth path moves so fast but one that ends here
GROWN = 10.0
"""Times as large within a thousandth of the time: next to a pole sizes hardly change."""


def stuck(time: float, unit: str, *, finite: bool, growth: float = 0.0, grown: float = 1.0) -> Status:
    """Return the status of a run that could take no step.

    Args:
        time: reached.
        unit: of time.
        finite: the right-hand side was finite after the time.
        growth: the move in so long a time at the last speed, in units of the state: large at a blow-up.
        grown: the parameters' size over that at 0.999 of the time: large too, unless they meet a pole.
    """
    if growth > _BLOW_UP and grown > GROWN:
        return diverged(time, unit, "The parameters grow beyond all bounds in finite time,")
    if growth > _BLOW_UP:
        return Status(
            False,
            "stuck",
            f"The parameters move ever faster, so that no step could be taken at {unit} = {time:.6g}, however short.",
            "The gradient seems to be infinite there, as next to a pole or a root; see the last recorded values.",
        )
    if finite:
        return Status(
            False,
            "stuck",
            f"No step could be taken at {unit} = {time:.6g}, however short.",
            "The loss may not be twice continuously differentiable there, or tolerance is below rounding errors.",
        )
    return Status(
        False,
        "not_finite",
        f"The gradient is NaN or infinite just after {unit} = {time:.6g}.",
        "Evaluate the loss and its gradient at the last recorded values to see where they come from.",
    )


def too_sudden(time: float, unit: str) -> Status:
    """Return the status of a run whose parameters rise, to a finite size, in a time that no float resolves."""
    return Status(
        False,
        "stuck",
        f"The parameters rise at {unit} = {time:.6g} in less than the rounding of that time.",
        "Start a new run from the parameters there, whose time begins at 0, to see where they end.",
    )


def diverged(time: float, unit: str, bound: str = "The parameters exceed 1e26") -> Status:
    """Return the status of a run whose parameters are beyond what can be followed."""
    return Status(
        False,
        "diverged",
        f"{bound} at {unit} = {time:.6g}.",
        "The loss seems to be unbounded below along the flow, or to have its minimum at infinity.",
    )


def undecided(time: float, unit: str, source: str, cure: str) -> Status:
    """Return the status of a run whose further path errors of a source decide."""
    sentence = f"From {unit} = {time:.6g} on, {source} that the flow has amplified decide the path."
    return Status(False, "undecided", sentence, cure)


def exhausted(
    max_evaluations: int,
    time: float,
    unit: str,
    cure: str = "Raise max_evaluations or tolerance, or continue from the end.",
) -> Status:
    """Return the status of a run that has used up its evaluations."""
    return Status(False, "exhausted", f"max_evaluations={max_evaluations} were used up at {unit} = {time:.6g}.", cure)


def hidden_nan(time: float, unit: str) -> Status:
    """Return the status of a run whose loss is not finite where its gradient is."""
    return Status(
        False,
        "not_finite",
        f"The loss is NaN or infinite at {unit} = {time:.6g}, though its gradient is finite.",
        "Evaluate it at the recorded values there; a jnp.where that hides NaN from the gradient does this.",
    )


def of_steps(steps: Int[np.ndarray, "k"], finite: Bool[np.ndarray, "k"], what: str = "A weight") -> tuple[Status, int]:
    """Return the status of a descent, and the number of records before it diverged, if it did.

    Args:
        steps: recorded.
        finite: False at records where the descent had diverged.
        what: is infinite or NaN there.
    """
    if finite.all():
        return Status(True, "reached", "All steps were taken."), len(steps)
    count = int(np.argmin(finite))
    sentence = f"{what} became infinite or NaN between steps {steps[max(count - 1, 0)]} and {steps[count]}."
    return Status(False, "not_finite", sentence, "Use a smaller learning rate."), count


def require_tolerance(tolerance: float, smallest: float, largest: float) -> None:
    """Raise unless the tolerance is in the range of its solver.

    Raises:
        InputError: it is out of range.
    """
    if not smallest <= tolerance <= largest:
        raise InputError(f"tolerance must be between {smallest:g} and {largest:g}; got {tolerance!r}.")


def require_evaluations(max_evaluations: int) -> None:
    """Raise unless a run may evaluate its right-hand side at least once.

    Raises:
        InputError: the limit is below 1.
    """
    if max_evaluations < 1:
        raise InputError(f"max_evaluations must be at least 1; got {max_evaluations!r}.")


def require_run(
    *,
    until: float,
    tolerance: float,
    record: np.ndarray | None,
    max_evaluations: int,
    level: float | None = None,
    smallest_tolerance: float = 1e-11,
) -> None:
    """Raise unless a flow can run with these arguments.

    Raises:
        InputError: an argument is out of its range.
    """
    if not 0 <= until < np.inf:
        raise InputError(f"until must be a finite time of at least 0; got {until!r}.")
    require_tolerance(tolerance, smallest_tolerance, 1e-1)
    if level is not None and not 0 < level < np.inf:
        raise InputError(f"level must be positive and finite; got {level!r}.")
    require_evaluations(max_evaluations)
    times = np.zeros(1) if record is None else np.asarray(record)
    if not (times.ndim == 1 and np.all((times >= 0) & (times <= until))):
        raise InputError(f"record must be a vector of times between 0 and until={until!r}; got {record!r}.")
