"""A stiff solver for many systems at once, each with its own time, step size and order.

The formulas are those of `saddlescope.numerics.ndf_coefficients`, as in `saddlescope.numerics.ndf`. One `tick`
evaluates every system's right-hand side once. One system then continues Newton's method, another takes its step and
tries the next, a third halves its step. So none waits for another, and Python's overhead is paid once per tick, not
once per system. Finished systems are removed from the arrays.

    n, p    systems that are still running, and their unknowns
    rows    numbers of some of these systems, 0 <= row < n
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float, Int

from saddlescope.numerics import ndf_coefficients
from saddlescope.numerics.interpolants import DifferenceInterpolants

# Newton's rate of convergence with an inverse computed for the step, until it is known. 0.99 costs a tenth more
# right-hand sides at the same error of the stage times.
_FIRST_RATE = 0.2
_SLOW = 0.2  # a rate above which the inverse is recomputed at the iterate; with 0.9 a tenth more right-hand sides


class AbstractSystems(ABC):
    """Right-hand sides f(y) of the systems that are still running."""

    @abstractmethod
    def slope(self, y: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
        """Return the right-hand sides f(y)."""

    @abstractmethod
    def refresh(self, rows: Int[np.ndarray, "r"], y: Float[np.ndarray, "r p"]) -> None:
        """Evaluate the expensive parts of the Jacobians of some systems at y."""

    @abstractmethod
    def newton_inverse(
        self, rows: Int[np.ndarray, "r"], y: Float[np.ndarray, "r p"], c: Float[np.ndarray, "r"]
    ) -> Float[np.ndarray, "r p p"]:
        """Return the inverses of 1 - c df/dy at y, with the expensive parts from the last `refresh`."""

    @abstractmethod
    def shorten(
        self,
        rows: Int[np.ndarray, "r"],
        y: Float[np.ndarray, "r p"],
        moved: Float[np.ndarray, "r p"],
        slope: Float[np.ndarray, "r p"],
    ) -> Float[np.ndarray, "r"]:
        """Return the fraction, in (0, 1], of the predicted move from y that the next step should go; slope is f(y)."""

    @abstractmethod
    def keep(self, rows: Int[np.ndarray, "r"]) -> None:
        """Drop all systems but these."""


@dataclass
class _Running:
    """State of each running system; all arrays have the system as their first axis."""

    system: Int[np.ndarray, "n"]
    t: Float[np.ndarray, "n"]
    h: Float[np.ndarray, "n"]
    order: Int[np.ndarray, "n"]
    equal_steps: Int[np.ndarray, "n"]
    differences: Float[np.ndarray, "n 8 p"]
    # the step that is being tried, and the progress of Newton's method
    predicted: Float[np.ndarray, "n p"]
    correction: Float[np.ndarray, "n p"]
    past: Float[np.ndarray, "n p"]
    scale: Float[np.ndarray, "n p"]
    c: Float[np.ndarray, "n"]
    inverse: Float[np.ndarray, "n p p"]
    iteration: Int[np.ndarray, "n"]
    last_size: Float[np.ndarray, "n"]
    rate: Float[np.ndarray, "n"]  # of convergence; NaN where it is not known
    inverse_fresh: Bool[np.ndarray, "n"]  # computed for this step
    jacobian_fresh: Bool[np.ndarray, "n"]  # refreshed at this step's beginning

    def keep(self, rows: np.ndarray) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[rows])


class BatchStepper:
    """Stepper of y' = f(y) to `until`, for many systems.

    Args:
        systems: the right-hand sides of these systems.
        y: states at the beginning.
        until: last time.
        rtol, atol: tolerances of the error of a step.
        t: the systems' times at the beginning; by default 0.
        numbers: the systems' numbers; by default 0, 1, ...

    Attributes:
        stuck: systems that could take no step however short; True where f was finite at the last trial.
    """

    def __init__(
        self,
        systems: AbstractSystems,
        y: Float[np.ndarray, "n p"],
        until: float,
        *,
        rtol: float,
        atol: float,
        t: Float[np.ndarray, "n"] | None = None,
        numbers: Int[np.ndarray, "n"] | None = None,
    ) -> None:
        self.systems, self.until, self.rtol, self.atol = systems, until, rtol, atol
        self.stuck: dict[int, bool] = {}
        n, p = y.shape
        slope = systems.slope(y)
        rates = slope / (atol + rtol * np.abs(y))
        largest = np.maximum(np.abs(rates).max(axis=1), np.finfo(float).tiny)  # squares could overflow
        speed = largest * _norm(rates / largest[:, None])
        t = np.zeros(n) if t is None else t
        h = np.minimum(until - t, 0.01 / np.maximum(speed, np.finfo(float).tiny))
        differences = np.zeros((n, ndf_coefficients.ROWS, p))
        differences[:, 0], differences[:, 1] = y, h[:, None] * slope
        self._now = _Running(
            system=np.arange(n) if numbers is None else numbers,
            t=t.copy(),
            h=h,
            order=np.ones(n, int),
            equal_steps=np.zeros(n, int),
            differences=differences,
            **{name: np.zeros((n, p)) for name in ("predicted", "correction", "past", "scale")},
            **{name: np.zeros(n) for name in ("c", "last_size", "rate")},
            inverse=np.zeros((n, p, p)),
            iteration=np.zeros(n, int),
            **{name: np.zeros(n, bool) for name in ("inverse_fresh", "jacobian_fresh")},
        )
        rows = np.arange(n)
        systems.refresh(rows, y)
        self._now.jacobian_fresh[:] = True
        self._begin(rows, np.ones(n), np.ones(n, bool))

    @property
    def running(self) -> Int[np.ndarray, "n"]:
        """Systems that are still running, by their numbers at the beginning."""
        return self._now.system

    def stop(self, systems: np.ndarray) -> None:
        """Stop these systems where they are."""
        self._keep(np.flatnonzero(~np.isin(self._now.system, systems)))

    def tick(self) -> DifferenceInterpolants:
        """Evaluate each right-hand side once and return the steps that this completes."""
        now = self._now
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            slope = self.systems.slope(now.predicted + now.correction)
            done, failed = self._newton(slope)
        rows = np.flatnonzero(done)
        factor, change = np.ones(len(now.t)), np.zeros(len(now.t), int)
        completed = self._judge(rows, factor, change)
        fresh = failed & now.inverse_fresh
        factor[fresh & now.jacobian_fresh] = 0.5
        behind = np.flatnonzero(fresh & ~now.jacobian_fresh)
        if len(behind):
            self.systems.refresh(behind, now.differences[behind, 0])
            now.jacobian_fresh[behind] = True
        tried = done | failed
        stale = failed | (factor != 1) | (change != 0)
        stuck = tried & (
            now.h * factor <= ndf_coefficients.SMALLEST_STEP * np.maximum(now.t, np.finfo(float).eps * self.until)
        )
        for row in np.flatnonzero(stuck):
            self.stuck[int(now.system[row])] = bool(np.isfinite(slope[row]).all())
        over = stuck | (tried & (now.t == self.until))
        if over.any():
            rest = np.flatnonzero(~over)
            self._keep(rest)
            factor, stale, tried = factor[rest], stale[rest], tried[rest]
        rows = np.flatnonzero(tried)
        if len(rows):
            self._begin(rows, factor[rows], stale[rows])
        return completed

    def _newton(self, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take one iteration for every system; return masks of those that converged and those that failed."""
        now = self._now
        residual = now.c[:, None] * slope - now.past - now.correction
        change = (now.inverse @ residual[:, :, None])[:, :, 0]
        size = _norm(change / now.scale)
        known = (now.iteration > 1) & np.isfinite(now.last_size) & (size > ndf_coefficients.NEWTON_TOLERANCE / 100)
        rate = size / now.last_size
        bad = ~np.isfinite(size) | (known & (rate > ndf_coefficients.NEWTON_SLOWEST))
        now.rate = np.where(known & ~bad, np.fmax(0.3 * now.rate, rate), now.rate)
        now.correction += change
        assumed = np.where(np.isnan(now.rate), _FIRST_RATE, now.rate)
        done = ~bad & (assumed / (1 - assumed) * size < ndf_coefficients.NEWTON_TOLERANCE)
        failed = ~done & (bad | (now.iteration == ndf_coefficients.NEWTON_ITERATIONS))
        slow = np.flatnonzero(~done & ~failed & known & (rate > _SLOW))
        if len(slow):
            at = now.predicted[slow] + now.correction[slow]
            now.inverse[slow] = self.systems.newton_inverse(slow, at, now.c[slow])
            now.rate[slow] = np.nan
            now.inverse_fresh[slow] = True
        now.iteration += 1
        now.last_size = size
        now.last_size[slow] = np.inf
        return done, failed

    def _judge(self, rows: np.ndarray, factor: np.ndarray, change: np.ndarray) -> DifferenceInterpolants:
        """Accept or reject steps that Newton's method has found; enter the factors of the next step sizes."""
        now = self._now
        correction = now.correction[rows]
        scale = self.atol + self.rtol * np.abs(now.predicted[rows] + correction)
        k = now.order[rows]
        error = ndf_coefficients.ERROR[k] * _norm(correction / scale)
        safe = np.asarray(ndf_coefficients.safety(now.iteration[rows] - 1))
        bad = error > 1
        if bad.any():
            factor[rows[bad]] = np.maximum(ndf_coefficients.SHRINK, safe[bad] * error[bad] ** (-1 / (k[bad] + 1)))
            good = ~bad
            rows, correction, scale, k = rows[good], correction[good], scale[good], k[good]
            error, safe = error[good], safe[good]
        differences = now.differences[rows]
        before = differences[:, 0]
        after = (
            ndf_coefficients.ADVANCE[k, :, :-1] @ differences
            + ndf_coefficients.ADVANCE[k, :, -1:] * correction[:, None]
        )
        now.differences[rows] = after
        start, step = now.t[rows], now.h[rows]
        end = start + step
        end = np.where(self.until - end <= ndf_coefficients.NEARLY * self.until, self.until, end)
        now.t[rows] = end
        now.equal_steps[rows] += 1
        now.jacobian_fresh[rows] = False
        newest = after[:, : ndf_coefficients.MAX_ORDER + 1]
        completed = DifferenceInterpolants(now.system[rows], start, end, step, before, newest[:, 0], k, newest)
        settled = now.equal_steps[rows] > k
        if settled.any():
            each = np.arange(len(rows))
            lower = np.where(k > 1, ndf_coefficients.ERROR[k - 1] * _norm(after[each, k] / scale), np.inf)
            higher = ndf_coefficients.ERROR[np.minimum(k + 1, ndf_coefficients.MAX_ORDER)] * _norm(
                after[each, k + 2] / scale
            )
            higher[k == ndf_coefficients.MAX_ORDER] = np.inf
            powers = -1 / (k[:, None] + np.arange(3))
            tiny = np.finfo(float).tiny
            factors = np.maximum(np.stack([lower, error, higher], 1), tiny) ** powers
            best = np.argmax(factors, axis=1)
            gain = np.minimum(ndf_coefficients.GROW, safe * factors[each, best])
            smallest, largest = ndf_coefficients.UNCHANGED
            worth = settled & ((best != 1) | (gain < smallest) | (gain > largest))
            factor[rows] = np.where(worth, gain, 1.0)
            change[rows] = np.where(worth, best - 1, 0)
            now.order[rows] += change[rows]
        return completed

    def _begin(self, rows: np.ndarray, factor: np.ndarray, stale: np.ndarray) -> None:
        """Begin a step, with a step size `factor` times the last, and a new inverse where the old one is stale."""
        now = self._now
        k, h, t, differences = now.order[rows], now.h[rows], now.t[rows], now.differences[rows]
        left = (self.until - t) / h
        factor = np.where(t + factor * h > self.until * (1 - ndf_coefficients.NEARLY), left, factor)
        moved = (ndf_coefficients.basis(factor, k)[:, None] @ differences[:, 1 : ndf_coefficients.MAX_ORDER + 1])[:, 0]
        factor = factor * self.systems.shorten(rows, differences[:, 0], moved, differences[:, 1] / h[:, None])
        sized = np.flatnonzero(factor != 1)
        if len(sized):
            low = slice(0, ndf_coefficients.MAX_ORDER + 1)
            respaced = ndf_coefficients.respacing(factor[sized], k[sized]) @ differences[sized, low]
            differences[sized, low] = respaced
            now.differences[rows[sized], low] = respaced
            now.h[rows[sized]] = h[sized] * factor[sized]
            now.equal_steps[rows[sized]] = 0
            stale = stale | (factor != 1)
        sums = ndf_coefficients.PREDICT_AND_PAST[k] @ differences
        predicted = sums[:, 0]
        now.predicted[rows], now.past[rows] = predicted, sums[:, 1]
        now.scale[rows] = self.atol + self.rtol * np.abs(predicted)
        now.c[rows] = now.h[rows] / ndf_coefficients.ALPHA[k]
        now.correction[rows] = 0
        now.iteration[rows] = 1
        now.inverse_fresh[rows] = stale
        again = rows[stale]
        if len(again):
            now.inverse[again] = self.systems.newton_inverse(again, predicted[stale], now.c[again])
            now.rate[again] = np.nan

    def _keep(self, rows: np.ndarray) -> None:
        self._now.keep(rows)
        self.systems.keep(rows)


def _norm(x: np.ndarray) -> np.ndarray:
    """Return the root mean square over the last axis."""
    return np.sqrt(np.einsum("np,np->n", x, x) / x.shape[1])
