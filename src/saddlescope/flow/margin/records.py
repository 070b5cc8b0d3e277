"""Records of all margin flows, whatever their weights: margins, rates, the loss; and checks of their energy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope._shared.reprs import ReprMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Axis, Line, Panel
from saddlescope.flow.status import Status, require_evaluations, require_tolerance

_BALANCE = 1000.0  # times the tolerance: an energy defect beyond it breaks a run; usual ones are below 30
_LATEST = 1e9  # ln t beyond which one unit of rounding of the time coordinate is a visible factor of t
_ROUNDING = 1e-6  # an energy defect that is allowed at any tolerance
_RECORDS = 201


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MarginFlow(ReprMixin, PlotMixin):
    """Margin flow at its recorded times t.

    Attributes:
        log_times: ln t, ascending, (k,).
        margins: u, (k, n, m).
        log_excess: ln(L - L*), (k,).
        log_rates: ln|r|, r = -dL/du, (k, n, m).
        rate_signs: of r, (k, n, m).
        margin_speeds: du / d ln t, (k, n, m).
        energy_defects: |E - ln(L - L*)| over the change of E (at least 1), where E is the integral of
            d ln(L - L*)/dt = -|grad L|^2 / (L - L*) along the run, (k,): about the tolerance in a sound run.
        evaluations: of the right-hand side.
        steps: of the solver.
        status: termination status; not ok if the run ended early or its energy is out of balance.
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

    def to_xarray(self) -> xr.Dataset:
        """Return margin, its speed and scaled_rate over (log_time, sample, token), and log_excess over log_time."""
        tables = {"margin": self.margins, "margin_speed": self.margin_speeds, "scaled_rate": self.scaled_rates}
        data: dict[str, Any] = {name: (("log_time", "sample", "token"), values) for name, values in tables.items()}
        data |= {"log_excess": ("log_time", self.log_excess), "energy_defect": ("log_time", self.energy_defects)}
        samples, tokens = (np.arange(size) for size in self.margins.shape[1:])
        coords = {"log_time": self.log_times, "sample": samples, "token": tokens}
        return xr.Dataset(data, coords, {"status": str(self.status)})

    def panel(self) -> Panel:
        """Return the smallest margin over log time."""
        shown = self.log_times > 0
        line = Line(x=self.log_times[shown], y=self.margin[shown], color=0, width=2.0)
        return Panel(x=Axis("ln t", scale="log"), y=Axis("smallest margin"), marks=(line,))

    @property
    def margin(self) -> Float[np.ndarray, "k"]:
        """The smallest margin mu (Definition 4.1)."""
        return self.margins.min(axis=(1, 2))

    @property
    def scaled_rates(self) -> Float[np.ndarray, "k n m"]:
        """The products t r, which stay between 0 and infinity."""
        return self.rate_signs * np.exp(self.log_rates + self.log_times[:, None, None])


@dataclass(frozen=True, eq=False)
class MarginRun:
    """Arguments of a run, as given to the flow.

    Raises:
        InputError: one is out of its range.
    """

    log_until: float
    tolerance: float
    record: ArrayLike | None
    max_evaluations: int
    throw: bool
    report: Report

    def __post_init__(self) -> None:
        if not -np.inf < self.log_until <= _LATEST:
            raise InputError(
                f"log_until must be finite and at most {_LATEST:g}, as a natural logarithm; got {self.log_until!r}."
            )
        require_tolerance(self.tolerance, 1e-11, 1e-4)
        require_evaluations(self.max_evaluations)

    def times(self, log_time: Callable[[float], float], last: float) -> Float[np.ndarray, "k"]:
        """Return the ln t to record, ascending, the last one `log_until`.

        Args:
            log_time: ln t at a time coordinate.
            last: time coordinate of `log_until`.

        Raises:
            InputError: `record` is no vector of times up to `log_until`.
        """
        if self.record is None:
            given = np.array([log_time(float(x)) for x in np.linspace(0.0, last, _RECORDS)[:-1]])
        else:
            given = np.asarray(self.record, float)
        if given.ndim != 1 or (self.record is not None and not np.all(given <= self.log_until)):
            raise InputError(
                f"record must be a vector of ln t, at most log_until={self.log_until!r}; got {self.record!r}."
            )
        return np.unique(np.append(given[given < self.log_until], self.log_until))


def balanced(status: Status, defects: Float[np.ndarray, "k"], tolerance: float) -> Status:
    """Return the status of a run, after a check of its energy balance."""
    worst = float(np.max(defects, initial=0.0))
    if not status.ok or worst <= _BALANCE * tolerance + _ROUNDING:
        return status
    return Status(
        False,
        "unbalanced",
        f"The loss and its gradient are out of balance: ln(L - L*) is off its integral by {worst:.2g} of it.",
        "Lower the tolerance; if that does not help, the rates are not the derivatives of the loss.",
    )
