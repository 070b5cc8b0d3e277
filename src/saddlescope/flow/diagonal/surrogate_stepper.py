"""Gradient flow in windows: a model of the gradient is integrated as far as it can be trusted, then held to account.

A window (predict, evaluate, correct, as multistep methods do in each step):

1. The stiff solver integrates the model until its expected error has grown to a share of the tolerance.
2. The gradient is evaluated there, once, and the model learns it.
3. The solver goes back and integrates the window again with the better model.

The difference of the two integrations bounds the error of the second. The solver's own steps cost little, since only
the model is evaluated in them: a transition takes a handful of gradients instead of several dozen.
"""

import numpy as np

from saddlescope.flow.diagonal.coordinates import AbstractFlowCoordinates
from saddlescope.flow.diagonal.gradient_surrogate import GradientSurrogate
from saddlescope.flow.diagonal.surrogate_system import SurrogateSystem
from saddlescope.flow.losses.compiled import CompiledLoss
from saddlescope.flow.solvers.ndf import Mark, Piece, StepError, Stepper

_EXPECTED = 0.5  # of the tolerance: the expected error at which a window ends, to be corrected
_ACCEPTED = 1.0  # of the tolerance: the largest correction; a window with a larger one is halved
_SKIPPED = 0.01  # of the tolerance: a correction that must be smaller is not made
_LONGEST = 60  # steps in a window
_MOVING = 1e-6  # lengths an entry must move within one unit of state to have its column of the Hessian evaluated
_REFRESH = 40  # windows after which the Hessian is evaluated again; or as many as it has columns, if these are more
_LEAST_SPREAD = 1e-7  # below, rounding errors make the ratio of the model's error to its spread


class SurrogateStepper:
    """Follows a flow from time 0 to `until`, one window at a time.

    Args:
        loss: what is minimised.
        coordinates: the coordinates.
        y: the state at time 0.
        until: the last time.
        tolerance: the size of errors, relative to the coordinates's scale and to |y|, that a window may make.
        local: the same for the error of one step of the stiff solver.
    """

    def __init__(
        self,
        loss: CompiledLoss,
        coordinates: AbstractFlowCoordinates,
        y: np.ndarray,
        until: float,
        *,
        tolerance: float,
        local: float,
    ) -> None:
        self._loss, self._chart, self._tolerance = loss, coordinates, tolerance
        point = coordinates.point(y)
        gradient = loss.value_and_gradient(point)[1]
        self._model = GradientSurrogate(point, gradient, _length(loss, point, gradient))
        self._error = float(np.max(np.abs(gradient))) / self._model.length  # the model's, in units of its spread
        self._limit = np.inf  # of a window's duration
        self._age = 0  # of the Hessian, in windows
        self._evaluate_columns(y)
        self._solver = Stepper(
            SurrogateSystem(self._model, coordinates), y, until, rtol=local, atol=local * coordinates.scale
        )

    @property
    def t(self) -> float:
        """The time reached."""
        return self._solver.t

    @property
    def y(self) -> np.ndarray:
        """The state there."""
        return self._solver.y

    def step(self) -> list[Piece]:
        """Advances by one window.

        Raises:
            StepError: the gradient is not finite, or differs from its model, however short the window is.
        """
        solver, model = self._solver, self._model
        self._age += 1
        if self._age > max(_REFRESH, model.columns.size) and model.columns.size:
            self._age = 1
            model.set_columns(model.columns, self._hessian(model.columns))
        mark, start = solver.mark(), solver.t
        while True:
            pieces = self._predict(mark)
            end, point = solver.t, self._chart.point(solver.y)
            gradient = self._loss.value_and_gradient(point)[1]
            finite = bool(np.all(np.isfinite(gradient)))
            if finite:
                miss = float(np.max(np.abs(gradient - model.gradient(point))))
                error = miss / max(model.spread(point), _LEAST_SPREAD * model.length)
                if self._chart.rate * (end - start) * miss > _SKIPPED * self._tolerance * self._chart.scale:
                    model.hold(point, gradient)
                    solver.go_back(mark)
                    pieces = self._correct(pieces)
                if pieces:
                    model.learn(point, gradient)
                    self._error, self._limit = max(error, self._error / 2), 4 * self._limit
                    return pieces
                self._error = max(error, 2 * self._error)
                model.drop()
            self._limit = min(self._limit, end - start) / 2
            if self._limit <= 64 * np.finfo(float).eps * max(end, np.finfo(float).eps * solver.until):
                solver.go_back(mark)
                raise StepError(finite)

    def _predict(self, mark: Mark) -> list[Piece]:
        """Integrates the model as far as it can be trusted, from the mark."""
        solver, coordinates, pieces, expected = self._solver, self._chart, [], 0.0
        solver.go_back(mark)
        start, last = solver.t, min(solver.until, solver.t + self._limit)
        while not pieces or last - solver.t > 1e-3 * (last - start):
            solver.limit(last - solver.t)
            try:
                piece = solver.step()
            except StepError:
                if not pieces:
                    raise
                break
            if self._evaluate_columns(solver.y):  # so far, the model took these entries to stay where they are
                solver.go_back(mark)
                pieces, expected = [], 0.0
                continue
            pieces.append(piece)
            spread = self._model.spread(coordinates.point(solver.y))
            size = coordinates.scale + float(np.max(np.abs(solver.y)))
            expected += coordinates.rate * (piece.end - piece.start) * self._error * spread / size
            too_far = expected > _EXPECTED * self._tolerance or coordinates.diverged(solver.y)
            if too_far or len(pieces) == _LONGEST:
                break
        return pieces

    def _correct(self, predicted: list[Piece]) -> list[Piece]:
        """Integrates the window again; nothing if that differs by too much from what was predicted."""
        solver, pieces, end = self._solver, [], predicted[-1].end
        try:
            # No step is made to end at the window's end, so that the solver need not change its step size for it.
            while not pieces or solver.t + solver.h / 2 < end:
                pieces.append(solver.step())
                if len(pieces) > 3 * _LONGEST:
                    return []
        except StepError:
            return []
        time = min(end, solver.t)
        before = next(piece for piece in predicted if time <= piece.end)(time)
        after = next(piece for piece in pieces if time <= piece.end)(time)
        correction = np.abs(after - before) / (self._chart.scale + np.abs(after))
        return pieces if np.max(correction) <= _ACCEPTED * self._tolerance else []

    def _evaluate_columns(self, y: np.ndarray) -> bool:
        """Has the model know the Hessian's columns of all entries that move at y; whether there were new ones."""
        moving = self._chart.metric(y) * self._chart.scale > _MOVING * self._model.length
        moving[self._model.columns] = False
        new = np.flatnonzero(moving)
        if new.size:
            self._model.add_columns(new, self._hessian(new))
        return bool(new.size)

    def _hessian(self, columns: np.ndarray) -> np.ndarray:
        hessian = self._loss.hessian_columns(self._model.anchor, columns)
        return np.where(np.isfinite(hessian), hessian, 0.0)


def _length(loss: CompiledLoss, point: np.ndarray, gradient: np.ndarray) -> float:
    """How far to go until the gradient has changed by as much as itself, by its change along a random direction."""
    direction = 1e-6 * np.random.default_rng(0).standard_normal(point.size)
    change = float(np.max(np.abs(loss.value_and_gradient(point + direction)[1] - gradient)))
    size = float(np.max(np.abs(gradient)))
    far = 1e-6 * size / change if np.isfinite(change) and change > 1e-14 * size else 1.0
    return max(float(np.max(np.abs(point))), far)
