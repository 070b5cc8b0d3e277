"""Result of a run: states at any time, losses, level crossings, and the accuracy of all of it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lazy_loader
import numpy as np
from jaxtyping import Float, PyTree
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import shown
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Panel
from saddlescope.figures.time_axes import loss_panel
from saddlescope.flow.diagonal.coordinates import AbstractCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, ResumeFrom
from saddlescope.flow.status import Status
from saddlescope.loss.compiled import Evaluations
from saddlescope.numerics.ndf import Interpolant

if TYPE_CHECKING:
    import xarray as xr
else:
    xr = lazy_loader.load("xarray")  # with pandas, which would take as long to load as the solver


@dataclass(frozen=True, order=True)
class LevelEvent:
    """Passage of one entry of beta (or of the parameters) through a level in absolute value.

    Attributes:
        time: in the trajectory's unit.
        index: of the entry in the flat point.
        rising: True if its absolute value passes the level upwards.
        sign: of the entry, 1 or -1.
    """

    time: float
    index: int
    rising: bool
    sign: int


@dataclass(frozen=True)
class Accuracy:
    """Differences between the run and another at ten times its tolerance: estimates of the other run's error.

    The run's own error is smaller, for a smooth loss by about the factor ten.

    Attributes:
        crossing_times: largest relative difference of the crossings' times; infinite when the two runs do not have
            the same crossings, NaN when there are none.
        values: largest difference of an entry of beta (or of the parameters) at the recorded times. In the steep
            parts a shift in time by dt appears as beta' dt, so this can be large where times are accurate.
        losses: largest difference of the loss at the recorded times.
    """

    crossing_times: float
    values: float
    losses: float


class AbstractPath(ABC):
    """States of a run at any time."""

    @abstractmethod
    def __call__(self, times: np.ndarray) -> Float[np.ndarray, "k n"]:
        """Return the states at these times, which must be within the run."""


@dataclass(frozen=True, eq=False)
class DensePath(AbstractPath):
    """Dense output: the solver's own interpolation, of its order, over every step."""

    origin: np.ndarray
    interpolants: Sequence[Interpolant]

    def __call__(self, times: np.ndarray) -> Float[np.ndarray, "k n"]:
        """Return the interpolating polynomials' values."""
        ends = np.array([interpolant.end for interpolant in self.interpolants])
        states = np.tile(self.origin, (len(times), 1))
        for row, time in enumerate(times):
            if time > 0:
                states[row] = self.interpolants[int(np.searchsorted(ends, time))](float(time))
        return states


@dataclass(frozen=True, eq=False)
class SampledPath(AbstractPath):
    """Linear interpolation between recorded states."""

    times: np.ndarray
    states: np.ndarray

    def __call__(self, times: np.ndarray) -> Float[np.ndarray, "k n"]:
        """Interpolate between the two records around each time."""
        after = np.clip(np.searchsorted(self.times, times), 1, max(1, len(self.times) - 1))
        if len(self.times) == 1:
            return np.repeat(self.states, len(times), axis=0)
        start, stop = self.times[after - 1], self.times[after]
        share = ((times - start) / (stop - start))[:, None]
        return (1 - share) * self.states[after - 1] + share * self.states[after]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Trajectory(ReprMixin, PlotMixin):
    """A run of gradient flow or gradient descent. Call it with times to have beta (or the parameters) there.

    Attributes:
        times: recorded times, ascending, shape (k,). They include every crossing.
        time_unit: unit of all times: "t / log(1/alpha)" or "t".
        losses: the loss at the recorded times, shape (k,).
        values: beta, for a start at `DiagonalInit`, or the flat parameters, at the recorded times, shape (k, p).
        crossings: passages of |values| through `level`, in the order of time.
        level: the level given, or None.
        conserved: largest relative drift of an entry of u^2 - v^2, for starts at `DiagonalInit`, else None. It is 0
            for gradient flow, whose coordinates conserve it by construction. For gradient descent a drift near or
            above 1 means that float64 has lost the entry: a coordinate that leaves 0 afterwards may do so too late
            or with the wrong sign.
        accuracy: see `Accuracy`; None if there was one run only.
        time_error: estimate of the largest relative error of the crossings' times, at least the tolerance: the
            difference from the other run, or, without one, 3 times the errors of single steps and windows propagated
            to the crossings to first order. Infinite if the two runs differ in their crossings. On 42 problems with a
            saturated tanh the true error was at most 1.5 times as large. Of a run without crossings: 3 times the error
            of the state, relative to its size or to its move in so long a time, where that exceeds 3 times the
            tolerance, else None. None for gradient descent, and flows that a batch takes by explicit steps.
        evaluations: numbers of evaluations of the loss, in all runs.
        status: termination status; what was computed until then is recorded.
        end: the last state, as a start for another run.
    """

    times: Float[np.ndarray, "k"]
    time_unit: str
    losses: Float[np.ndarray, "k"]
    values: Float[np.ndarray, "k p"]
    crossings: tuple[LevelEvent, ...]
    level: float | None
    conserved: float | None
    accuracy: Accuracy | None
    time_error: float | None = None
    evaluations: Evaluations
    status: Status
    end: AbstractInit
    coordinates: AbstractCoordinates
    path: AbstractPath

    identified = True

    def __repr__(self) -> str:
        crossings = "" if self.level is None else f"{len(self.crossings)} crossings, "
        if self.accuracy is not None and self.time_error is not None:
            crossings = f"{len(self.crossings)} crossings with relative errors of about {self.time_error:.1g}, "
        return (
            f"Trajectory({len(self.times)} records to {self.times[-1]:.6g} in {self.time_unit!r}, "
            f"loss {self.losses[0]:.3g} to {self.losses[-1]:.3g}, {crossings}"
            f"{self.evaluations.gradients} gradients; {self.status})"
        )

    @property
    def log_scale(self) -> float | None:
        """Natural logarithm of the initial scale alpha; None if the start has none, as with `ParameterInit`."""
        start = self.end
        while isinstance(start, ResumeFrom):
            start = start.start
        return getattr(start, "log_scale", None)

    @property
    def beta(self) -> Float[np.ndarray, "k p"]:
        """The products u * v at the recorded times: `values`."""
        return self.values

    @property
    def activity(self) -> Float[np.ndarray, "k p"]:
        """Components at the recorded times, which `compare` counts: `values`."""
        return self.values

    def panel(self) -> Panel:
        """Return the loss over time, with the entries that pass the level."""
        events = [(one.time, f"{'+' if one.rising else '−'}{one.index}") for one in self.crossings]
        title = "" if self.level is None else f"+i, −i: entry i rises above, falls below {self.level:.3g} in size"
        return loss_panel(self.time_unit, self.times, self.losses, events, title)

    def to_xarray(self) -> "xr.Dataset":
        """Return loss (time) and value (time, entry), beta or the parameters, with crossings over `crossing`."""
        data = {"loss": ("time", self.losses), "value": (("time", "entry"), self.values)}
        for name in ("time", "index", "sign", "rising"):
            data[f"crossing_{name}"] = ("crossing", np.array([getattr(one, name) for one in self.crossings]))
        coords = {"time": ("time", self.times, {"units": self.time_unit}), "entry": np.arange(self.values.shape[1])}
        return xr.Dataset(data, coords, {"status": str(self.status)})

    def __call__(self, times: ArrayLike) -> Float[np.ndarray, "m p"]:
        """Return beta, or the flat parameters, at any times of the run."""
        return self.coordinates.point(self._states(times))

    def parameters(self, times: ArrayLike) -> PyTree:
        """Return the weights (u, v), or the pytree of parameters, at any times of the run; time is the first axis."""
        return self.coordinates.parameters(self._states(times))

    def log_abs(self, times: ArrayLike) -> Float[np.ndarray, "m p"]:
        """Return the natural logarithm of |beta|, or of the parameters, also where float64 underflows."""
        return self.coordinates.log_abs(self._states(times))

    def _states(self, times: ArrayLike) -> np.ndarray:
        times = np.asarray(times, float)
        if times.ndim != 1 or not np.all((times >= 0) & (times <= self.times[-1])):
            raise InputError(
                f"times must be a vector of times between 0 and {float(self.times[-1])!r}; got {shown(times)}."
            )
        return self.path(times)
