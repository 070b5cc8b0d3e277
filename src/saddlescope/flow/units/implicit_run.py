"""Flow of units by implicit steps, with a dense Jacobian: for degrees above 2, whose plateaus are stiff.

Also for degree 2, where explicit steps would be too many.

At a saddle of the active units, steps are short enough to follow the growth of deviations far below the tolerance, down
to rounding, about 1e-16; an implicit step would shrink them, and the flow would rest there. For degree 2, a deviation
below the tolerance of a direction that has aligned and become unstable ends the flow (`resting_directions`).
"""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from scipy.linalg import get_lapack_funcs

from saddlescope._shared.compiled_functions import bound, quickly_compiled
from saddlescope._shared.progress import Report
from saddlescope.flow.status import LOCAL_SHARE, REACHED, Status, diverged, exhausted, stuck
from saddlescope.flow.units.resting_directions import RestingDirections
from saddlescope.flow.units.unit_model import UnitModel
from saddlescope.flow.units.unit_records import LARGEST_LOG_NORM, NORM_BOUND, UnitRecords
from saddlescope.numerics.ndf import AbstractStiffSystem, Solver, StepError, Stepper, linear_solver


@dataclass(frozen=True)
class ImplicitPolicy:
    """Policy of the implicit steps.

    Attributes:
        longest: largest change of a log norm in a step.
        active: log norm above which growing deviations of a unit are followed.
        growth: steps, over their order's constant, are shorter than one over this times the rate of growth.
        speeds: times the speed of active units: rates below it may belong to their own motion.
        patience: steps that may be refused at one saddle, about as many e-folds, beyond those of a deviation of
            alpha^2.
        moved: change of a log norm or direction: the active units are no longer at the same saddle.
        largest_unit: unit of time in which units of order one change too fast for float64, as a logarithm.
        rounding: of the largest rate: rates below it are rounding.
    """

    longest: float = 20.0
    active: float = math.log(1e-2)
    growth: float = 20.0
    speeds: float = 3.0
    patience: float = 100.0
    moved: float = 1e-3
    largest_unit: float = math.log(1e12)
    rounding: float = 1e-14


(_cholesky,) = get_lapack_funcs(("potrf",), dtype=np.float64)
_slope, _jacobian = quickly_compiled(UnitModel.slope), quickly_compiled(UnitModel.jacobian)


class _ExhaustedError(Exception):
    pass


class ImplicitSystem(AbstractStiffSystem):
    """The system for the stiff solver, with a dense Jacobian."""

    def __init__(
        self,
        model: UnitModel,
        log_unit: float,
        log_scale: float,
        tolerance: float,
        max_evaluations: int,
        evaluations: int,
        policy: ImplicitPolicy = ImplicitPolicy(),
    ) -> None:
        self.policy, self.model, self.log_unit = policy, model, np.asarray(log_unit)
        self._most, self.evaluations = max_evaluations, evaluations
        self._slope, self._jacobian = bound(_slope, model, count=2), bound(_jacobian, model, count=2)
        self._patience = self.policy.patience - 2 * float(log_scale)
        self._refusals, self._refused_at = 0, np.zeros(0)
        self.resting = RestingDirections(model.count, tolerance) if model.degree == 2 else None

    def slope(self, y: np.ndarray) -> np.ndarray:
        """Return dy/dT."""
        if self.evaluations >= self._most:
            raise _ExhaustedError
        self.evaluations += 1
        return np.asarray(self._slope(y, self.log_unit))

    def newton(self, y: np.ndarray, c: float) -> Solver | None:
        """Return the solution of the Newton equations; None if the active units leave a saddle in less time."""
        J = np.asarray(self._jacobian(y, self.log_unit))
        if not np.isfinite(J).all():
            return lambda r: np.full_like(r, np.nan)
        if self.resting is not None:
            self.resting.linearise(J)
        if self._outgrown(y, J, c):
            return None
        return linear_solver(np.eye(len(y)) - c * J)

    def _outgrown(self, y: np.ndarray, J: np.ndarray, c: float) -> bool:
        """Return True if deviations of the active units from a saddle among them grow too fast for a step.

        An implicit step shrinks what grows by more than e^2 in it, and the flow would rest at the saddle. In weights
        rather than log norms and directions, J of the active units is symmetric but for the motion of these themselves.
        """
        m = self.model.count
        units = np.flatnonzero(y[:m] > self.policy.active)
        if not len(units):
            return False
        p = len(y) // m - 1
        rows = np.concatenate([units, (m + p * units[:, None] + np.arange(p)).ravel()])
        norms, lengths = np.exp(y[units]), np.linalg.norm(y[m:].reshape(m, p)[units], axis=1)
        norms = np.concatenate([norms, np.repeat(norms / lengths, p)])
        rates = J[np.ix_(rows, rows)] * norms[:, None] / norms
        own = self.policy.speeds * float(np.max(np.abs(self.slope(y)[rows]))) + self.policy.rounding * float(
            np.max(np.abs(rates))
        )
        left = (1 + self.policy.growth * c * own) * np.eye(len(rows)) - self.policy.growth * c * (rates + rates.T) / 2
        return bool(_cholesky(left, overwrite_a=True)[1] != 0) and self._may_leave(y[rows])

    def _may_leave(self, y: np.ndarray) -> bool:
        """Return False if the active units have rested here for so long that there is no deviation to grow."""
        if np.shape(y) != np.shape(self._refused_at) or np.max(np.abs(y - self._refused_at)) > self.policy.moved:
            self._refusals, self._refused_at = 0, y
        self._refusals += 1
        return self._refusals <= self._patience

    def shorten(self, y: np.ndarray, predicted: np.ndarray) -> float:
        """Return the fraction of the step that no log norm changes too much in."""
        count = self.model.count
        change = float(np.max(np.abs(predicted[:count] - y[:count])))
        return min(1.0, self.policy.longest / change) if change > 0 else 1.0


def follow_implicitly(
    system: ImplicitSystem, records: UnitRecords, until: float, tolerance: float, report: Report
) -> Status:
    """Follow the flow from where its records end, and return the status."""
    if records.time >= until:
        return REACHED
    try:
        stepper = Stepper(system, records.state, until, rtol=0.0, atol=tolerance * LOCAL_SHARE)
        stepper.t = records.time
        next_report = records.time
        while stepper.t < until:
            before = stepper.y
            step = stepper.step()
            records.add(np.array([step.end]), stepper.y[None], step)
            if (ended := _undecided(system, step.end, step.end - step.start, before, stepper.y)) is not None:
                return ended
            if float(np.max(stepper.y[: system.model.count])) > LARGEST_LOG_NORM:
                return diverged(stepper.t, "T", NORM_BOUND)
            if stepper.t >= next_report:
                report(min(stepper.t / until, 1.0), f"T = {stepper.t:.4g} of {until:.4g}")
                next_report = stepper.t + 0.01 * until
    except _ExhaustedError:
        return exhausted(system.evaluations, records.time, "T")
    except StepError as error:
        if error.finite and _unbounded(system.model, records.state):
            return Status(
                False,
                "diverged",
                f"The units blow up in finite time, at T = {records.time:.6g}: the loss falls without bound.",
                "End before that time, or bound the loss from below.",
            )
        if error.finite and float(system.log_unit) > system.policy.largest_unit:
            return Status(
                False,
                "stuck",
                f"No step could be taken at T = {records.time:.6g}: units of order one change in a time that rounds "
                "to none of T.",
                "Start from a larger scale.",
            )
        return stuck(records.time, "T", finite=error.finite)
    return REACHED


def _unbounded(model: UnitModel, state: np.ndarray) -> bool:
    """Return True if the loss falls ever faster along the ray through the weights, up to the largest norms."""
    log_norms, u = model.split(jnp.asarray(state))
    farther = np.linspace(0, max(LARGEST_LOG_NORM - float(np.max(log_norms)), 1.0), 4)
    falls = np.diff([float(model.mean_loss(jnp.exp(log_norms + more)[:, None] * u)) for more in farther])
    return bool(np.all(falls < 0) and np.all(np.diff(falls) < 0))


def _undecided(
    system: ImplicitSystem, time: float, duration: float, before: np.ndarray, after: np.ndarray
) -> Status | None:
    """Return the status of a flow whose next motion is decided by deviations below the tolerance."""
    if system.resting is None:
        return None
    units = system.resting.undecided(duration, before, after)
    if not units.size:
        return None
    return Status(
        False,
        "undecided",
        f"The direction of unit {int(units[0])} rests where it has become unstable, at T = {time:.6g}: when it "
        "leaves is decided by a deviation below the tolerance.",
        "Lower tolerance, start from a larger scale, or use gradient_flow or factored_flow.",
    )
