"""What all margin flows record, whatever their weights: margins, rates, the loss; and when they are to be trusted."""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.diagonal.trajectory import Status

_ROUNDING = 1e-6  # an energy defect that is allowed at any tolerance


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MarginFlow(ReprMixin):
    """A flow at its recorded times t.

    Attributes:
        log_times: ln t, ascending, (k,).
        margins: u, (k, n, m).
        log_excess: ln(L - L*), (k,).
        log_rates: ln|r|, r = -dL/du, (k, n, m).
        rate_signs: of r, (k, n, m).
        margin_speeds: du / d ln t, (k, n, m).
        energy_defects: |E - ln(L - L*)| over what E has changed by (at least 1), where E is the integral of
            d ln(L - L*)/dt = -|grad L|^2 / (L - L*) along the run, (k,): about the tolerance where all is well.
        evaluations: of the right-hand side.
        steps: of the solver.
        status: how the run ended; `ok` in every run that is returned and not raised.
    """

    log_times: Float[np.ndarray, "k"]
    margins: Float[np.ndarray, "k n m"]
    log_excess: Float[np.ndarray, "k"]
    log_rates: Float[np.ndarray, "k n m"]
    rate_signs: Float[np.ndarray, "k n m"]
    margin_speeds: Float[np.ndarray, "k n m"]
    energy_defects: Float[np.ndarray, "k"]
    evaluations: int
    steps: int
    status: Status

    def __repr__(self) -> str:
        last = f"ln t = {self.log_times[-1]:.6g}" if len(self.log_times) else "no recorded time"
        return f"{type(self).__name__}({len(self.log_times)} times to {last}, {self.evaluations} evaluations)"

    @property
    def margin(self) -> Float[np.ndarray, "k"]:
        """mu, the smallest of the margins (Definition 4.1)."""
        return self.margins.min(axis=(1, 2))

    @property
    def scaled_rates(self) -> Float[np.ndarray, "k n m"]:
        """The products t r, which stays between 0 and infinity."""
        return self.rate_signs * np.exp(self.log_rates + self.log_times[:, None, None])


class MarginFlowError(RuntimeError):
    """A flow that did not reach its last time, or whose energy is out of balance.

    Attributes:
        flow: the records until then; `flow.status` says what happened.
    """

    def __init__(self, flow: MarginFlow) -> None:
        super().__init__(str(flow.status))
        self.flow = flow


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """One recorded time of a `MarginFlow`, in the same words."""

    margins: Float[np.ndarray, "n m"]
    log_rates: Float[np.ndarray, "n m"]
    rate_signs: Float[np.ndarray, "n m"]
    margin_speeds: Float[np.ndarray, "n m"]
    log_excess: float


def as_tables(records: list[Record]) -> dict[str, Any]:
    """The records as arrays with the time as their first axis."""
    return {field.name: np.array([getattr(record, field.name) for record in records]) for field in fields(Record)}


def balanced(status: Status, defects: Float[np.ndarray, "k"], bound: float) -> Status:
    """How a run ended, once its energy is held against its balance."""
    worst = float(np.max(defects, initial=0.0))
    if not status.ok or worst <= bound + _ROUNDING:
        return status
    return Status(
        False,
        f"The loss and its gradient are out of balance: ln(L - L*) is off its integral by {worst:.2g} of it.",
        "Lower the tolerance; if that does not help, the rates are not the derivatives of the loss.",
    )


_Flow = TypeVar("_Flow", bound=MarginFlow)


def trusted(flow: _Flow) -> _Flow:
    """The flow, where it is to be trusted.

    Raises:
        MarginFlowError: it is not.
    """
    if not flow.status.ok:
        raise MarginFlowError(flow)
    return flow


def checked_array(name: str, given: object, shape: tuple[int | None, ...]) -> Float[np.ndarray, "..."]:
    """An argument as float64, of this shape (None: any size of at least 1) and finite.

    Raises:
        InputError: it is not.
    """
    try:
        if np.asarray(given).dtype.kind == "c":  # of which float would keep the real part
            raise TypeError("complex")
        array = np.asarray(given, float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers; got {given!r}.") from error
    fits = array.ndim == len(shape) and all(
        a == b or (b is None and a > 0) for a, b in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"{name} must have shape ({wanted}); got shape {array.shape!r}.")
    if not np.all(np.isfinite(array)):
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{name} must be finite; got {float(array[place])!r} at {list(place)!r}.")
    return array


def checked_log_times(given: object, latest: float) -> Float[np.ndarray, "k"]:
    """Times to record at, up to the latest one allowed.

    Raises:
        InputError: they are not ascending numbers.
    """
    try:
        times = np.asarray(given, float)
    except (TypeError, ValueError) as error:
        raise InputError(f"log_times must be numbers; got {given!r}.") from error
    ascending = times.ndim == 1 and times.size > 0 and bool(np.all(times[1:] > times[:-1]))
    if not ascending or not np.all(times <= latest) or not np.isfinite(times[-1]):
        raise InputError(f"log_times must be a vector of ln t, ascending and at most {latest:g}; got {given!r}.")
    return times
