"""Flow of a loss of margins in phi, the integrals of its rates: for diagonal weights, and for W alone.

    u (n, m)      margins; r = -dL/du their rates, from the loss
    phi (n, m)    multiplicity times the integral of r over time; its rate times dt/dx is what the solver integrates
    diagonal      u = B beta, beta = (w_+^2(0) e^psi - w_-^2(0) e^-psi) / 2, psi = B^T phi, phi = 2 int r (Lemma A.1)
    W alone       u = u(0) + G phi, G = (D D^T) * (z z^T) entry by entry, phi = int r

The first entry of the solver's state is its own time x (`saddlescope.flow.margin.time_coordinate`), on which the rates
depend.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from saddlescope.flow.margin.time_coordinate import LogLogTime
from saddlescope.numerics.ndf import AbstractStiffSystem, Interpolant, Solver, linear_solver


@runtime_checkable
class MarginLoss(Protocol):
    """A loss L of margins u (n, m), with its rates r = -dL/du in logarithms.

    Any object with these methods is one. For logistic regression on labels y and inputs x, m = 1, u = y w . x and
    r = 1 / (n (1 + e^u)). Diagonal weights take the features y x, of shape (n, 1, d). Plain weights w are the first
    column of W, with the differences y x and every query (1, 0, ..., 0).
    """

    def log_rates(self, margins: Float[np.ndarray, "n m"]) -> tuple[Float[np.ndarray, "n m"], Float[np.ndarray, "n m"]]:
        """Return ln|r| and the signs of r."""
        ...

    def rate_jacobian(
        self, margins: Float[np.ndarray, "n m"], log_factor: float = 0.0
    ) -> tuple[Float[np.ndarray, "n m"], Float[np.ndarray, "n m m"]]:
        """Return R = e^log_factor r and dR_il / du_ik."""
        ...

    def log_excess(self, margins: Float[np.ndarray, "n m"]) -> float:
        """Return ln(L - L*), L* the infimum of the loss."""
        ...


class AbstractMarginSystem(AbstractStiffSystem):
    """Stiff system of any parametrisation, with the state [x, E, coordinates].

    E is ln(L - L*) integrated from its slope, dE/dx = -sum_il (r_il / (L - L*)) du_il/dx. Nothing depends on it, so
    that its distance from ln(L - L*) of the margins measures the accumulated error. And since late margins are ln t
    times a function of the coordinates, the solver's equations converge in the margins, not in the coordinates alone.

    Attributes:
        origin: the coordinates at time 0.
        scale: size of the coordinates, to which their errors are relative.
    """

    def __init__(self, loss: MarginLoss, origin: Float[np.ndarray, "N"], scale: float) -> None:
        self.loss, self.origin, self.scale = loss, origin, scale
        self.time_coordinate, self.evaluations = LogLogTime(0.0), 0

    @abstractmethod
    def margins(self, coordinates: Float[np.ndarray, "N"]) -> Float[np.ndarray, "n m"]:
        """Return the margins u."""

    @abstractmethod
    def moved(self, coordinates: Float[np.ndarray, "N"], rates: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "N"]:
        """Return the velocity of the coordinates under these rates of the margins."""

    @abstractmethod
    def margins_jvp(
        self, coordinates: Float[np.ndarray, "N"], motion: Float[np.ndarray, "N"]
    ) -> Float[np.ndarray, "n m"]:
        """Return the velocity of the margins for a velocity of the coordinates."""

    @abstractmethod
    def margins_second_jvp(
        self, coordinates: Float[np.ndarray, "N"], motion: Float[np.ndarray, "N"], change: Float[np.ndarray, "N"]
    ) -> Float[np.ndarray, "n m"]:
        """Return the derivative of `margins_jvp` of this motion by a change of the coordinates."""

    @abstractmethod
    def coordinates_newton(
        self,
        coordinates: Float[np.ndarray, "N"],
        rates: Float[np.ndarray, "n m"],
        rates_by_margins: Float[np.ndarray, "n m m"],
        c: float,
    ) -> Solver:
        """Return a solver of 1 - c J, J the coordinates' Jacobian at these rates and derivatives of rates."""

    @abstractmethod
    def pace(self, coordinates: Float[np.ndarray, "N"], motion: Float[np.ndarray, "N"]) -> float:
        """Return the initial relative speed of the flow; 0 where it never moves."""

    def rounding(self, step: Interpolant) -> float:
        """Return the size of rounding errors, carried through this step, relative to the coordinates that grow.

        It is 0 in the coordinates phi: whatever they are, the weights are those of an exact flow for some rates.
        """
        return 0.0

    def set_time_unit(self) -> bool:
        """Set the unit of time from the initial speed of the flow; return False where it never moves."""
        coordinates = self.origin
        log_rates, signs = self.loss.log_rates(self.margins(coordinates))
        largest = float(np.max(log_rates))
        if largest == -np.inf:
            return False
        pace = self.pace(coordinates, self.moved(coordinates, signs * np.exp(log_rates - largest)))
        if pace > 0:
            self.time_coordinate = LogLogTime(-largest - math.log(pace))
        return pace > 0

    def start(self) -> np.ndarray:
        """Return the state at time 0."""
        return np.concatenate([[0.0, self.loss.log_excess(self.margins(self.origin))], self.origin])

    def margin_speeds(self, coordinates: Float[np.ndarray, "N"], log_time: float) -> Float[np.ndarray, "n m"]:
        """Return du / d ln t."""
        log_rates, signs = self.loss.log_rates(self.margins(coordinates))
        return self.margins_jvp(coordinates, self.moved(coordinates, signs * np.exp(log_rates + log_time)))

    def slope(self, y: np.ndarray) -> np.ndarray:
        """Return the right-hand side; NaN where a trial state overflows."""
        self.evaluations += 1
        coordinates = y[2:]
        with np.errstate(over="ignore", invalid="ignore"):
            margins = self.margins(coordinates)
            if not np.all(np.isfinite(margins)):
                return np.full_like(y, np.nan)
            log_rates, signs = self.loss.log_rates(margins)
            motion = self.moved(coordinates, signs * np.exp(log_rates + self.time_coordinate.log_speed(y[0])))
            pulls = signs * np.exp(log_rates - self.loss.log_excess(margins))
            return np.concatenate([[1.0, -np.sum(pulls * self.margins_jvp(coordinates, motion))], motion])

    def newton(self, y: np.ndarray, c: float) -> Solver:
        """Solve the coordinates' equations, and then that of E, whose row of the Jacobian follows from their solution.

        With w = r / (L - L*) and du/dx = U dc/dx, it is d(dE/dx) = -dw . du/dx - w . (dU dc/dx + U d(dc/dx)).
        """
        coordinates = y[2:]
        with np.errstate(over="ignore", invalid="ignore"):
            margins = self.margins(coordinates)
            rates, rates_by_margins = self.loss.rate_jacobian(margins, self.time_coordinate.log_speed(y[0]))
            pulls, pulls_by_margins = self.loss.rate_jacobian(margins, -self.loss.log_excess(margins))
            motion = self.moved(coordinates, rates)
            speeds = self.margins_jvp(coordinates, motion)
            inner = self.coordinates_newton(coordinates, rates, rates_by_margins, c)

        def solve(right: np.ndarray) -> np.ndarray:
            with np.errstate(over="ignore", invalid="ignore"):
                change = inner(right[2:])
                moved = self.margins_jvp(coordinates, change)
                of_pulls = np.einsum("ilk,ik->il", pulls_by_margins, moved) + pulls * np.sum(pulls * moved)
                of_speeds = self.margins_second_jvp(coordinates, motion, change)
                of_speeds = of_speeds + self.margins_jvp(coordinates, (change - right[2:]) / c)
                energy = np.sum(of_pulls * speeds) + np.sum(pulls * of_speeds)
                return np.concatenate([[right[0], right[1] - c * energy], change])

        return solve


class IntegralSystem(AbstractMarginSystem):
    """Margin system in the coordinates phi, which start at 0: u = P f(Q phi), f entry by entry.

    Args:
        loss: of the margins.
        shape: (n, m).
        outer: P, (n m, k).
        inner: Q, (k, n m).
        weights: from Q phi to f, its derivative and its second derivative.
        multiplicity: of the integrals of the rates.
        moves: entries of f that are not constant, (k,).
    """

    def __init__(
        self,
        loss: MarginLoss,
        shape: tuple[int, ...],
        outer: Float[np.ndarray, "N k"],
        inner: Float[np.ndarray, "k N"],
        weights: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]],
        *,
        multiplicity: float = 1.0,
        moves: Bool[np.ndarray, "k"] | bool = True,
    ) -> None:
        scale = float(1 / max(np.abs(inner).max(), np.finfo(float).tiny))
        super().__init__(loss, np.zeros(math.prod(shape)), scale)
        self._shape, self._outer, self._inner = shape, outer, inner
        self._weights, self._multiplicity, self._moves = weights, multiplicity, moves

    @classmethod
    def diagonal(
        cls,
        loss: MarginLoss,
        features: Float[np.ndarray, "n m d"],
        plus: Float[np.ndarray, "d"],
        minus: Float[np.ndarray, "d"],
    ) -> "IntegralSystem":
        """Return the system of diagonal weights, from w_+ and w_- at time 0: f(psi) = beta."""
        with np.errstate(divide="ignore"):
            log_plus, log_minus = 2 * np.log(np.abs(plus)), 2 * np.log(np.abs(minus))

        def weights(psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            up, down = np.exp(log_plus + psi) / 2, np.exp(log_minus - psi) / 2
            return up - down, up + down, up - down

        B, moves = features.reshape(-1, features.shape[2]), np.maximum(log_plus, log_minus) > -np.inf
        return cls(loss, features.shape[:2], B, B.T, weights, multiplicity=2.0, moves=moves)

    @classmethod
    def of_matrix(
        cls,
        loss: MarginLoss,
        differences: Float[np.ndarray, "n m d"],
        queries: Float[np.ndarray, "n d"],
        margins: Float[np.ndarray, "n m"],
    ) -> "IntegralSystem":
        """Return the system of W alone, from the margins of W(0): f is the margins."""
        tall = differences.reshape(-1, differences.shape[2])
        repeated = np.repeat(queries, differences.shape[1], axis=0)
        gram, first = (tall @ tall.T) * (repeated @ repeated.T), margins.ravel()
        return cls(
            loss, margins.shape, np.eye(first.size), gram,
            lambda moved: (first + moved, np.ones_like(moved), np.zeros_like(moved)),
        )  # fmt: skip

    def pace(self, coordinates: np.ndarray, motion: np.ndarray) -> float:
        """Return the largest speed of Q phi, of entries that move: of ln w^2, or of the margins."""
        return float(np.max(np.abs(self._inner @ motion) * self._moves))

    def moved(self, coordinates: np.ndarray, rates: np.ndarray) -> np.ndarray:
        """Return dphi/dx."""
        return self._multiplicity * rates.ravel()

    def margins(self, coordinates: np.ndarray) -> np.ndarray:
        """Return P f(Q phi)."""
        return (self._outer @ self._weights(self._inner @ coordinates)[0]).reshape(self._shape)

    def margins_jvp(self, coordinates: np.ndarray, motion: np.ndarray) -> np.ndarray:
        """Return P f' Q motion."""
        slope = self._weights(self._inner @ coordinates)[1]
        return (self._outer @ (slope * (self._inner @ motion))).reshape(self._shape)

    def margins_second_jvp(self, coordinates: np.ndarray, motion: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Return P f'' (Q motion) (Q change)."""
        both = (self._inner @ motion) * (self._inner @ change)
        return (self._outer @ (self._weights(self._inner @ coordinates)[2] * both)).reshape(self._shape)

    def coordinates_newton(
        self, coordinates: np.ndarray, rates: np.ndarray, rates_by_margins: np.ndarray, c: float
    ) -> Solver:
        """Solve by the LU decomposition of the full matrix."""
        n, m = self._shape
        by_integrals = (self._outer * self._weights(self._inner @ coordinates)[1]) @ self._inner
        inner = (rates_by_margins @ by_integrals.reshape(n, m, n * m)).reshape(n * m, n * m)
        return linear_solver(np.eye(n * m) - c * self._multiplicity * inner)
