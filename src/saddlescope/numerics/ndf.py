"""A stiff solver for autonomous systems y' = f(y) with a cheap right-hand side and few columns in the Jacobian.

Numerical differentiation formulas of orders 1 to 5: Shampine and Reichelt (1997), "The MATLAB ODE suite", the method
behind MATLAB's ode15s and SciPy's BDF, with four differences:

- the system solves its own Newton equations; where few columns of the Jacobian are not 0 (`AbstractSystem`), only a
  system of their size is factorised,
- the system may shorten a step before anything is evaluated (`AbstractSystem.shorten`),
- the system may refuse a step in which deviations below the tolerance grow by much, which an implicit step would shrink
  (`AbstractSystem.newton`): for a while the step is as long and the order is the one with the least error,
- a stepper can return to a saved state (`Stepper.save`, `Stepper.restore`), because the system has changed since.

    t, y    time and state
    h       step size
    k       order
    D       scaled backward differences of y: D[j] = nabla^j y, j = 0, ..., k + 2
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import get_lapack_funcs

Solver = Callable[[np.ndarray], np.ndarray]
_factorise, _solve = get_lapack_funcs(("getrf", "getrs"), dtype=np.float64)


def linear_solver(matrix: Float[np.ndarray, "N N"]) -> Solver:
    """Return a function that solves with a matrix, for one or more right-hand sides; not finite if it is singular."""
    factors = _factorise(matrix)[:2]
    return lambda right: _solve(*factors, right)[0]


MAX_ORDER = 5
_KAPPA = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])
_GAMMA = np.hstack([0, np.cumsum(1 / np.arange(1, MAX_ORDER + 1))])

ALPHA = (1 - _KAPPA) * _GAMMA
"""By the order k, in the implicit equation y - h / ALPHA f(y) = prediction - past."""

_ERROR = _KAPPA * _GAMMA + 1 / np.arange(1, MAX_ORDER + 2)  # of a step, in units of its correction
_J = np.arange(1.0, MAX_ORDER + 1)


@dataclass(frozen=True)
class StepControl:
    """Policy of the steps; the values are those of ode15s and of SciPy's BDF.

    Attributes:
        iterations: of Newton's method in a step, at most.
        remaining: Newton's remaining error in units of the tolerance.
        slowest: rate of convergence above which Newton's method counts as failed.
        shrink, grow: bounds on the factor between two step sizes.
        unchanged: factors not worth a new step size, which costs a factorisation and k steps of patience.
        safety: of the next step size.
        held: steps of the same length after one that the system refused.
        nearly: part of the last time by which a step may miss it.
    """

    iterations: int = 4
    remaining: float = 0.1
    slowest: float = 0.9
    shrink: float = 0.2
    grow: float = 10.0
    unchanged: tuple[float, float] = (0.9, 1.15)
    safety: float = 0.9
    held: int = 20
    nearly: float = 1e-12

    def safe(self, iterations: int) -> float:
        """Return the safety factor of the next step size after so many iterations of Newton's method."""
        return self.safety * (2 * self.iterations + 1) / (2 * self.iterations + iterations)


def basis(s: "float | Float[np.ndarray, 'n']", order: int) -> Float[np.ndarray, "*n k"]:
    """Return the polynomials by which D[1], ..., D[k] count, s steps after the end of a step, for one order k."""
    return np.cumprod((np.asarray(s)[..., None] + _J[:order] - 1) / _J[:order], axis=-1)


def slope_basis(s: Float[np.ndarray, "n"], order: int) -> Float[np.ndarray, "n k"]:
    """Return the derivatives of `basis` by s."""
    value, slope, slopes = np.ones_like(s), np.zeros_like(s), []
    for j in range(order):
        factor = (s + j) / (1 + j)
        value, slope = value * factor, slope * factor + value / (1 + j)
        slopes.append(slope)
    return np.stack(slopes, 1)


def respacing(factor: float, order: int) -> Float[np.ndarray, "k1 k1"]:
    """Return the matrix by which D[0], ..., D[k] become those of a step `factor` times as long (section 3.2)."""
    # R(1) is upper triangular, so the leading blocks of R(factor) R(1) serve the lower orders.
    size = order + 1
    return (_spacing(factor, order) @ _SPACING_OF_ONE[:size, :size]).T


def _spacing(factor: float, order: int) -> np.ndarray:
    j = _J[:order]
    matrix = np.ones((order + 1, order + 1))
    matrix[1:, 0] = 0
    matrix[1:, 1:] = (j[:, None] - 1 - factor * j) / j[:, None]
    return np.cumprod(matrix, axis=0)


_SPACING_OF_ONE = _spacing(1.0, MAX_ORDER)


class AbstractStiffSystem(ABC):
    """Right-hand side f(y) of a stiff system, with the solution of its Newton equations."""

    @abstractmethod
    def slope(self, y: np.ndarray) -> np.ndarray:
        """Return the right-hand side f(y)."""

    @abstractmethod
    def newton(self, y: np.ndarray, c: float) -> Solver | None:
        """Return a function that solves (1 - c df/dy) x = r for x, the derivatives taken at y; None for a shorter step.

        Eigenvalues of c df/dy above one are deviations that the step would shrink, though they grow.
        """

    def shorten(self, y: np.ndarray, predicted: np.ndarray) -> float:
        """Return the fraction, in (0, 1], of the way from y to the predicted state that the next step should go."""
        return 1.0


class AbstractSystem(AbstractStiffSystem):
    """A system with few columns in its Jacobian."""

    @abstractmethod
    def jacobian(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the columns of df/dy at y that matter, and these columns; all others are taken as 0."""

    def newton(self, y: np.ndarray, c: float) -> Solver:
        """Return a function that solves (1 - c df/dy) x = r for x, by a system of the size of these columns.

        For their rows A, x_A = (1 - c J_AA)^-1 r_A, and then x = r + c J_A x_A in all rows.
        """
        columns, jacobian = self.jacobian(y)
        rest = c * jacobian
        if not columns.size:
            return lambda right: right
        solve = linear_solver(np.eye(columns.size) - rest[columns])
        return lambda right: right + rest @ solve(right[columns])


@dataclass(frozen=True)
class Interpolant:
    """Solution over one step: the interpolating polynomial through the last k + 1 states.

    Attributes:
        start, end: the times it is valid between.
        step: spacing h of the states it interpolates.
        differences: backward differences D[0], ..., D[k] at `end`, shape (k + 1, n).
        error: estimate of the error that the step made, shape (n,).
    """

    start: float
    end: float
    step: float
    differences: np.ndarray
    error: np.ndarray

    def __call__(self, time: "float | np.ndarray") -> np.ndarray:
        """Return the state at a time, shape (n,), or at several, (m, n)."""
        return self.differences[0] + self._at(basis, (time - self.end) / self.step) @ self.differences[1:]

    def slopes(self, times: np.ndarray) -> np.ndarray:
        """Return the polynomial's derivatives at several times, shape (m, n)."""
        return self._at(slope_basis, (times - self.end) / self.step) @ self.differences[1:] / self.step

    def _at(self, polynomials: Callable[[Any, int], np.ndarray], s: "float | np.ndarray") -> np.ndarray:
        return polynomials(s, len(self.differences) - 1)


class StepError(Exception):
    """No step can be taken from the present state.

    Attributes:
        finite: False if the right-hand side was NaN or infinite however short the step was.
    """

    def __init__(self, finite: bool) -> None:
        super().__init__(finite)
        self.finite = finite


SavedState = tuple[float, np.ndarray, int, float, np.ndarray, int]


def smallest_step(time: float, until: float) -> float:
    """Return the step size that rounding of the time makes useless."""
    return 16 * float(np.finfo(float).eps) * max(time, float(np.finfo(float).eps) * until)


class Stepper:
    """Stepper of y' = f(y) from time 0 to `until`, one step at a time."""

    def __init__(
        self,
        system: AbstractStiffSystem,
        y: np.ndarray,
        until: float,
        *,
        rtol: float,
        atol: float | np.ndarray,
        control: StepControl = StepControl(),
    ) -> None:
        self.system, self.until, self.rtol, self.atol, self.control = system, until, rtol, atol, control
        self.t, self.y, self.order = 0.0, y, 1
        slope = system.slope(y)
        with np.errstate(over="ignore"):  # then no step can be taken
            speed = _norm(slope / self._scale(y))
        self.h = min(until, 0.01 / speed) if speed > 0 else until
        self._differences = np.zeros((MAX_ORDER + 3, len(y)))
        self._differences[:2] = y, self.h * slope
        self._equal_steps = 0
        self._factors: Solver | None = None
        self._rate: float | None = None
        self._held = 0  # steps still to be made before a longer one is tried

    def save(self) -> SavedState:
        """Return the present state of the stepper, for `restore`."""
        return self.t, self.y, self.order, self.h, self._differences.copy(), self._equal_steps

    def restore(self, saved: SavedState) -> None:
        """Return to a saved state; the system may have changed since."""
        self.t, self.y, self.order, self.h, differences, self._equal_steps = saved
        self._differences = differences.copy()
        self._factors = self._rate = None
        self._held = 0

    def limit(self, h: float) -> None:
        """Limit the length of the next step."""
        if self.h > h:
            self._resize(h / self.h)

    def step(self) -> Interpolant:
        """Advance by one step that passes the error test.

        Raises:
            StepError: the step size fell below rounding.
        """
        d = self._differences
        finite = True
        while True:
            if self.h <= smallest_step(self.t, self.until):
                raise StepError(finite)
            if self.t + self.h > self.until * (1 - self.control.nearly):
                self._resize((self.until - self.t) / self.h)
            k = self.order
            predicted = d[: k + 1].sum(0)
            fraction = self.system.shorten(self.y, predicted)
            if fraction < 1:
                self._resize(fraction)
                continue
            fresh = self._factors is None
            if self._factors is None:
                self._factors = self.system.newton(predicted, self.h / ALPHA[k])
                self._rate = None
            if self._factors is None:
                self._held = self.control.held
                self._resize(0.5)
                continue
            correction, iterations, finite = self._newton(predicted, self._factors)
            if correction is None:
                if fresh:
                    self._resize(0.5)
                self._factors = None
                continue
            y = predicted + correction
            scale = self._scale(y)
            error = _norm(_ERROR[k] * correction / scale)
            safe = self.control.safe(iterations)
            if error > 1:
                self._resize(max(self.control.shrink, safe * error ** (-1 / (k + 1))))
                continue
            return self._accept(y, correction, error, scale, safe)

    def _accept(
        self, y: np.ndarray, correction: np.ndarray, error: float, scale: np.ndarray, safe: float
    ) -> Interpolant:
        d, k = self._differences, self.order
        start = self.t
        self.t = min(self.t + self.h, self.until)
        if self.until - self.t <= self.control.nearly * self.until:
            self.t = self.until
        self.y = y
        self._equal_steps += 1
        d[k + 2] = correction - d[k + 1]
        d[k + 1] = correction
        for j in range(k, -1, -1):
            d[j] += d[j + 1]
        interpolant = Interpolant(start, self.t, self.h, d[: k + 1].copy(), _ERROR[k] * correction)
        if self._equal_steps > k:
            lower = _norm(_ERROR[k - 1] * d[k] / scale) if k > 1 else np.inf
            higher = _norm(_ERROR[k + 1] * d[k + 2] / scale) if k < MAX_ORDER else np.inf
            if self._held:
                self._held -= 1
                self._change_order(int(np.argmin([lower, error, higher])) - 1)
                return interpolant
            with np.errstate(divide="ignore"):
                factors = np.array([lower, error, higher]) ** (-1 / np.arange(k, k + 3))
            change = int(np.argmax(factors)) - 1
            factor = min(self.control.grow, safe * float(factors.max()))
            smallest, largest = self.control.unchanged
            if change or not smallest < factor < largest:
                self.order += change
                self._resize(factor)
        return interpolant

    def _change_order(self, change: int) -> None:
        if change:
            self.order += change
            self._equal_steps = 0
            self._factors = None

    def _newton(self, predicted: np.ndarray, factors: Solver) -> tuple[np.ndarray | None, int, bool]:
        """Solve for the correction to the prediction; return it or None, the iterations, and True if f was finite."""
        d, k, control = self._differences, self.order, self.control
        c = self.h / ALPHA[k]
        past = _GAMMA[1 : k + 1] @ d[1 : k + 1] / ALPHA[k]
        scale = self._scale(predicted)
        correction, last = np.zeros_like(predicted), None
        for iteration in range(1, control.iterations + 1):
            slope = self.system.slope(predicted + correction)
            if not np.isfinite(slope).all():
                return None, iteration, False
            change = factors(c * slope - past - correction)
            size = _norm(change / scale)
            if not math.isfinite(size):
                return None, iteration, True
            if last is not None and size > control.remaining / 100:
                rate = size / last
                if rate > control.slowest:
                    return None, iteration, True
                self._rate = rate if self._rate is None else max(0.3 * self._rate, rate)
            correction = correction + change
            rate = 0.99 if self._rate is None else self._rate  # a change of the size of rounding needs no known rate
            if rate / (1 - rate) * size < control.remaining:
                return correction, iteration, True
            last = size
        return None, control.iterations, True

    def _resize(self, factor: float) -> None:
        """Change the step size: interpolate the differences to the new spacing."""
        k = self.order
        self._differences[: k + 1] = respacing(factor, k) @ self._differences[: k + 1]
        self.h *= factor
        self._equal_steps = 0
        self._factors = None

    def _scale(self, y: np.ndarray) -> np.ndarray:
        return self.atol + self.rtol * np.abs(y)


def _norm(x: np.ndarray) -> float:
    """Return the root mean square."""
    square = float(np.dot(x, x))  # unlike x @ x without a warning where it overflows
    if 1e-290 < square < math.inf:  # below, some squares have underflown
        return math.sqrt(square / x.size)
    largest = float(np.abs(x).max())  # its square over- or underflows
    return largest * math.sqrt(float(np.mean((x / largest) ** 2))) if 0 < largest < math.inf else largest
