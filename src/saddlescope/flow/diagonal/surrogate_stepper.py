"""Gradient flow in windows: a surrogate of the gradient is integrated as far as it can be trusted, then corrected.

A window (predict, evaluate, correct, as multistep methods do in each step):

1. The stiff solver integrates the surrogate until its expected error has grown to a share of the tolerance.
2. The gradient is evaluated there, once, and added to the surrogate.
3. The solver returns to the start of the window and integrates it again with the better surrogate.

The difference of the two integrations bounds the error of the second. The solver's own steps cost little, since only
the surrogate is evaluated in them: a transition takes a handful of gradients instead of several dozen.
"""

from dataclasses import dataclass

import numpy as np

from saddlescope.flow.diagonal.coordinates import AbstractFlowCoordinates
from saddlescope.flow.diagonal.error_propagation import PropagatedError
from saddlescope.flow.diagonal.gradient_surrogate import GradientSurrogate
from saddlescope.flow.diagonal.surrogate_system import SurrogateSystem
from saddlescope.loss.compiled import CompiledLoss
from saddlescope.numerics.ndf import Interpolant, SavedState, StepError, Stepper


@dataclass(frozen=True)
class WindowPolicy:
    """Policy of the windows.

    Attributes:
        expected: of the tolerance: the expected error at which a window ends, to be corrected.
        accepted: of the tolerance: the largest correction; a window with a larger one is halved.
        skipped: of the tolerance: a correction that must be smaller is skipped.
        longest: steps in a window.
        moving: lengths an entry must move within one unit of state to have its column of the Hessian
            evaluated.
        refresh: windows after which the Hessian is evaluated again; as many as it has columns, if these are more.
        changed: part by which the Hessian may have changed before it is evaluated again: gradients correct it along the
            path alone, and errors grow in other directions.
        least_spread: lengths: below, rounding decides the ratio of the surrogate's error to its spread.
    """

    expected: float = 0.5
    accepted: float = 1.0
    skipped: float = 0.01
    longest: int = 60
    moving: float = 1e-6
    refresh: int = 40
    changed: float = 0.01
    least_spread: float = 1e-7


class SurrogateStepper:
    """Stepper of a flow from time 0 to `until`, one window at a time.

    Args:
        loss: the loss of the flow.
        coordinates: of the flow.
        y: the state at time 0.
        until: the last time.
        tolerance: the size of errors, relative to the coordinates' scale and to |y|, that a window may make.
        local: the same for the error of one step of the stiff solver.
        samples: of the error of y, from an earlier run; None: y is exact.
        policy: of the windows.

    Attributes:
        errors: estimated size of the state's error at the end of each step of the last window, to first order.
        rounding: part of it that is due to rounding.
        loss_errors: error of the loss there by errors of the state that the flow has amplified, and the speed of its
            fall.
        loss: time of the last evaluation, near the end of the last window, the loss, and its derivative's 1-norm.
    """

    errors: list[np.ndarray]
    rounding: list[np.ndarray]
    loss_errors: list[tuple[float, float]]
    loss: tuple[float, float, float]

    def __init__(
        self,
        loss: CompiledLoss,
        coordinates: AbstractFlowCoordinates,
        y: np.ndarray,
        until: float,
        *,
        tolerance: float,
        local: float,
        samples: np.ndarray | None = None,
        policy: WindowPolicy = WindowPolicy(),
    ) -> None:
        self._policy = policy
        self._loss, self._coordinates, self._tolerance = loss, coordinates, tolerance
        point = coordinates.point(y)
        value, gradient = loss.value_and_gradient(point)
        self.loss = 0.0, value, float(np.abs(gradient * coordinates.metric(y)).sum())
        self._surrogate = GradientSurrogate(point, gradient, _length(loss, point, gradient))
        self._error = (
            float(np.max(np.abs(gradient))) / self._surrogate.length
        )  # the surrogate's, in units of its spread
        self._limit = np.inf  # of a window's duration
        self._age = 0  # of the Hessian, in windows
        self._evaluate_columns(coordinates.metric(y))
        self._system = SurrogateSystem(self._surrogate, coordinates)
        self._solver = Stepper(self._system, y, until, rtol=local, atol=local * coordinates.scale)
        self._propagated = PropagatedError(y.size, samples)

    @property
    def t(self) -> float:
        """Time reached."""
        return self._solver.t

    @property
    def until(self) -> float:
        """The last time."""
        return self._solver.until

    @property
    def y(self) -> np.ndarray:
        """State at that time."""
        return self._solver.y

    @property
    def samples(self) -> np.ndarray:
        """Samples of the error of that state, for a run that continues from there."""
        return self._propagated.samples

    def step(self) -> list[Interpolant]:
        """Advance by one window.

        Raises:
            StepError: the gradient is not finite, or differs from its surrogate, however short the window is.
        """
        solver, surrogate = self._solver, self._surrogate
        self._age += 1
        old = self._age > max(self._policy.refresh, surrogate.columns.size) or surrogate.age > self._policy.changed
        if surrogate.forget() or surrogate.creeps or old:
            self._renew()
        saved, start, renewed = solver.save(), solver.t, False
        while True:
            steps = self._predict(saved)
            end, point = solver.t, self._coordinates.point(solver.y)
            value, gradient = self._loss.value_and_gradient(point)
            finite = bool(np.all(np.isfinite(gradient)))
            if finite:
                slope = float(np.abs(gradient * self._coordinates.metric(solver.y)).sum())
                miss = float(np.max(np.abs(gradient - surrogate.gradient(point))))
                error = miss / max(surrogate.spread(point), self._policy.least_spread * surrogate.length)
                duration = self._coordinates.rate * (end - start)
                change = duration / 2 * (surrogate.gradient(point) - gradient)  # of a correction that is skipped
                if duration * miss > self._policy.skipped * self._tolerance * self._coordinates.scale:
                    if not surrogate.hold(point, gradient) and not renewed:
                        renewed = True  # so near, only nodes far away or an old Hessian can be wrong
                        surrogate.drop(0.0)
                        self._renew()
                        continue
                    solver.restore(saved)
                    steps, change = self._correct(steps)
                if steps:
                    self._propagate(steps, change)
                    surrogate.learn(point, gradient)
                    self._error, self._limit = max(error, self._error / 2), 4 * self._limit
                    self.loss = end, value, slope
                    return steps
                self._error = max(error, 2 * self._error)
                surrogate.drop(surrogate.length)
            self._limit = min(self._limit, end - start) / 2
            if self._limit <= 64 * np.finfo(float).eps * max(end, np.finfo(float).eps * solver.until):
                solver.restore(saved)
                raise StepError(finite)

    def _renew(self) -> None:
        """Evaluate the Hessian at the anchor."""
        if self._surrogate.columns.size:
            self._age = 1
            self._surrogate.set_columns(self._surrogate.columns, self._hessian(self._surrogate.columns))

    def _predict(self, saved: SavedState) -> list[Interpolant]:
        """Integrate the surrogate as far as it can be trusted, from the saved state."""
        solver, coordinates, steps, expected = self._solver, self._coordinates, [], 0.0
        solver.restore(saved)
        start, last = solver.t, min(solver.until, solver.t + self._limit)
        while not steps or last - solver.t > 1e-3 * (last - start):
            solver.limit(last - solver.t)
            try:
                step = solver.step()
            except StepError:
                if not steps:
                    raise
                break
            if self._evaluate_columns(coordinates.metric(solver.y)):  # so far, these entries were taken as constant
                solver.restore(saved)
                steps, expected = [], 0.0
                continue
            steps.append(step)
            spread = self._surrogate.spread(coordinates.point(solver.y))
            size = coordinates.scale + float(np.abs(solver.y).max())
            expected += coordinates.rate * (step.end - step.start) * self._error * spread / size
            too_far = expected > self._policy.expected * self._tolerance or coordinates.diverged(solver.y)
            if too_far or len(steps) == self._policy.longest:
                break
        return steps

    def _propagate(self, steps: list[Interpolant], change: np.ndarray) -> None:
        """Estimate the errors after each step; the correction of a window stands for what it leaves."""
        self.errors, self.rounding, self.loss_errors, propagated = [], [], [], self._propagated
        for step in steps:
            propagated.advance(step, self._system)
            if step is steps[-1]:
                propagated.add(change)
            self.errors.append(propagated.size)
            self.rounding.append(propagated.rounding)
            after = step.differences[0]
            gradient, metric = self._surrogate.gradient(self._coordinates.point(after)), self._coordinates.metric(after)
            with np.errstate(over="ignore", invalid="ignore"):  # a loss of 1e200 may fall faster than any float
                speed = self._coordinates.rate * float(np.sum(gradient**2 * metric))
            self.loss_errors.append((propagated.amplified(gradient * metric), speed))

    def _correct(self, predicted: list[Interpolant]) -> tuple[list[Interpolant], np.ndarray]:
        """Integrate the window again; return its steps, none if they differ too much, and the change at its end."""
        solver, steps, end = self._solver, [], predicted[-1].end
        try:
            # No step is shortened to end at the window's end, so that the solver keeps its step size.
            while not steps or solver.t + solver.h / 2 < end:
                steps.append(solver.step())
                if len(steps) > 3 * self._policy.longest:
                    return [], np.zeros_like(solver.y)
        except StepError:
            return [], np.zeros_like(solver.y)
        time = min(end, solver.t)
        before = next(step for step in predicted if time <= step.end)(time)
        after = next(step for step in steps if time <= step.end)(time)
        correction = np.abs(after - before) / (self._coordinates.scale + np.abs(after))
        return steps if np.max(correction) <= self._policy.accepted * self._tolerance else [], after - before

    def _evaluate_columns(self, metric: np.ndarray) -> bool:
        """Add the Hessian's columns of all entries that move by their metric; return True if any was new."""
        moving = metric * self._coordinates.scale > self._policy.moving * self._surrogate.length
        moving[self._surrogate.columns] = False
        new = np.flatnonzero(moving)
        if new.size:
            self._surrogate.add_columns(new, self._hessian(new))
        return bool(new.size)

    def _hessian(self, columns: np.ndarray) -> np.ndarray:
        hessian = self._loss.hessian_columns(self._surrogate.anchor, columns)
        return np.where(np.isfinite(hessian), hessian, 0.0)


def _length(loss: CompiledLoss, point: np.ndarray, gradient: np.ndarray) -> float:
    """Estimate the distance over which the gradient changes by as much as itself, along a random direction.

    Where it first changes by higher derivatives, an estimate by the first one is far too long, and made shorter.
    """
    direction = np.random.default_rng(0).standard_normal(point.size)

    def change(distance: float) -> float:
        return float(np.max(np.abs(loss.value_and_gradient(point + distance * direction)[1] - gradient)))

    size, near, first = float(np.max(np.abs(gradient))), float(np.max(np.abs(point))), change(1e-6)
    far = 1e-6 * size / first if np.isfinite(first) and first > 1e-14 * size else 1.0
    while far > max(near, 1e-6) and not change(far) <= 10 * size:
        far /= 10
    return max(near, far) or 1.0  # a start at rest at 0
