"""Flow of a loss of margins in keys and queries, W = K Q^T, without any array of size d x d or state x state.

    D (n, m, d), z (n, d)   u_il = D_il^T K Q^T z_i;  K' = A Q, Q' = A^T K with A = sum_il r_il D_il z_i^T
    K, Q (d, e)             only the components of K in span(D) and of Q in span(z) move, and rotations of the columns
                            commute with the flow: (m_x, r) and (m_z, r) numbers remain, r <= min(e, m_x + m_z)

Stacked as Y = [K; Q], the Jacobian J is N (x) 1_r + P R P^T: N = [[0, A], [A^T, 0]] of size m_x + m_z, R = dr/du in
blocks of m x m, and P the n m columns du_il/dY = [D_il; 0] (Q^T z_i)^T + [0; z_i] (K^T D_il)^T. So (1 - c J)^-1 costs
an inverse of S = 1 - c N and a system of size n m (Sherman, Morrison and Woodbury), whatever r is.

Y' = N Y is linear: what a start lacks, such as K + Q where K = -Q and A is symmetric, it lacks for ever. But rounding
errors in that direction grow. They are carried along by the same N, and where they reach Y, the path is undecided.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saddlescope.flow.factored.scaled_factors import moved_factors
from saddlescope.flow.margin.systems import AbstractMarginSystem, MarginLoss
from saddlescope.numerics.ndf import Interpolant, Solver, linear_solver


@dataclass(frozen=True, eq=False)
class Reduction:
    """Reduction of the keys and queries to the parts that move, with the maps back.

    Attributes:
        differences: D in an orthonormal basis of its span, (n, m, m_x).
        queries: z in one of its span, (n, m_z).
        of_keys: that basis of span(D), (d, m_x).
        of_queries: that of span(z), (d, m_z).
        columns: rotation that reduces the columns, with orthonormal rows, (r, e).
        keys: K(0) in these, (m_x, r).
        query_weights: Q(0) in these, (m_z, r).
        resting_keys: the part of K that never moves, (d, e).
        resting_queries: that of Q, (d, e).
    """

    differences: Float[np.ndarray, "n m m_x"]
    queries: Float[np.ndarray, "n m_z"]
    of_keys: Float[np.ndarray, "d m_x"]
    of_queries: Float[np.ndarray, "d m_z"]
    columns: Float[np.ndarray, "r e"]
    keys: Float[np.ndarray, "m_x r"]
    query_weights: Float[np.ndarray, "m_z r"]
    resting_keys: Float[np.ndarray, "d e"]
    resting_queries: Float[np.ndarray, "d e"]

    @classmethod
    def of(
        cls,
        differences: Float[np.ndarray, "n m d"],
        queries: Float[np.ndarray, "n d"],
        keys: Float[np.ndarray, "d e"],
        query_weights: Float[np.ndarray, "d e"],
    ) -> "Reduction":
        """Return the reduction of a start K, Q."""
        n, m, d = differences.shape
        of_keys, of_queries = _span(differences.reshape(n * m, d)), _span(queries)
        moving_keys, moving_queries = of_keys.T @ keys, of_queries.T @ query_weights
        stacked = np.concatenate([moving_keys, moving_queries])
        if stacked.shape[1] > stacked.shape[0]:
            columns, triangle = np.linalg.qr(stacked.T)
            columns, stacked = columns.T, triangle.T
        else:
            columns = np.eye(stacked.shape[1])
        return cls(
            differences=differences @ of_keys,
            queries=queries @ of_queries,
            of_keys=of_keys,
            of_queries=of_queries,
            columns=columns,
            keys=stacked[: of_keys.shape[1]],
            query_weights=stacked[of_keys.shape[1] :],
            resting_keys=keys - of_keys @ moving_keys,
            resting_queries=query_weights - of_queries @ moving_queries,
        )


def _span(rows: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "d r"]:
    """Return an orthonormal basis of the rows' span, as columns."""
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    rank = int(np.sum(sizes > sizes[0] * max(rows.shape) * np.finfo(float).eps))
    return right[: max(rank, 1)].T


class KeyQuerySystem(AbstractMarginSystem):
    """Margin system in the reduced K and Q, stacked and flattened."""

    def __init__(self, loss: MarginLoss, reduction: Reduction) -> None:
        origin = np.concatenate([reduction.keys.ravel(), reduction.query_weights.ravel()])
        super().__init__(loss, origin, float(np.sqrt(np.mean(origin**2))))
        self.differences, self.queries = reduction.differences, reduction.queries
        self._split, self._width = reduction.keys.shape
        self._tall = self.differences.reshape(-1, self._split)
        self._owner = np.repeat(np.arange(len(self.queries)), self.differences.shape[1])
        self._errors = np.zeros_like(origin)
        self._rng = np.random.default_rng(0)

    def pace(self, coordinates: np.ndarray, motion: np.ndarray) -> float:
        """Return the relative speed of [K; Q]."""
        size = float(np.linalg.norm(coordinates))
        return float(np.linalg.norm(motion)) / size if size > 0 else 0.0

    def pair(
        self, coordinates: Float[np.ndarray, "N"]
    ) -> tuple[Float[np.ndarray, "m_x r"], Float[np.ndarray, "m_z r"]]:
        """Return the reduced K and Q."""
        both = coordinates.reshape(-1, self._width)
        return both[: self._split], both[self._split :]

    def rounding(self, step: Interpolant) -> float:
        """Return the size of rounding errors of all steps so far, carried along by N, relative to [K; Q]."""
        coordinates, x = step.differences[0][2:], (step.start + step.end) / 2
        middle = step(x)[2:]
        signs = self._rng.choice([-1.0, 1.0], len(middle))
        self._errors += np.finfo(float).eps * np.abs(middle) * signs
        rates = self.loss.rate_jacobian(self.margins(middle), self.time_coordinate.log_speed(x))[0]
        moved = moved_factors(*self.pair(self._errors), (step.end - step.start) * self._force(rates))
        self._errors = np.concatenate(moved).ravel()
        return float(np.linalg.norm(self._errors) / np.linalg.norm(coordinates))

    def _force(self, rates: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "m_x m_z"]:
        """Return A."""
        return np.einsum("im,imx->ix", rates, self.differences).T @ self.queries

    def margins(self, coordinates: np.ndarray) -> np.ndarray:
        """Return D^T K Q^T z."""
        K, Q = self.pair(coordinates)
        return np.einsum("imx,ix->im", self.differences, (self.queries @ Q) @ K.T)

    def moved(self, coordinates: np.ndarray, rates: np.ndarray) -> np.ndarray:
        """Return A Q and A^T K, which is P r."""
        K, Q = self.pair(coordinates)
        pulled = np.einsum("im,imx->ix", rates, self.differences)
        return np.concatenate([pulled.T @ (self.queries @ Q), self.queries.T @ (pulled @ K)]).ravel()

    def margins_jvp(self, coordinates: np.ndarray, motion: np.ndarray) -> np.ndarray:
        """Return D^T (K' Q^T + K Q'^T) z, which is P^T (K', Q')."""
        (K, Q), (dK, dQ) = self.pair(coordinates), self.pair(motion)
        return np.einsum("imx,ix->im", self.differences, (self.queries @ Q) @ dK.T + (self.queries @ dQ) @ K.T)

    def margins_second_jvp(self, coordinates: np.ndarray, motion: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Return the same form of motion and change: the margins are quadratic."""
        return self.margins_jvp(change, motion)

    def coordinates_newton(
        self, coordinates: np.ndarray, rates: np.ndarray, rates_by_margins: np.ndarray, c: float
    ) -> Solver:
        """Solve by S^-1 b + c S^-1 P w with (1 - c R P^T S^-1 P) w = R P^T S^-1 b."""
        inverse = self._inverse(c * self._force(rates))
        outer = self._projected(coordinates, inverse)
        n, m = self.queries.shape[0], self.differences.shape[1]
        inner = (rates_by_margins @ outer.reshape(n, m, n * m)).reshape(n * m, n * m)
        weigh = linear_solver(np.eye(n * m) - c * inner)

        def solve(right: np.ndarray) -> np.ndarray:
            first = inverse @ right.reshape(-1, self._width)
            pulled = np.einsum("ilk,ik->il", rates_by_margins, self.margins_jvp(coordinates, first.ravel()))
            weights = weigh(pulled.ravel()).reshape(n, m)
            return (first + c * (inverse @ self.moved(coordinates, weights).reshape(-1, self._width))).ravel()

        return solve

    def _inverse(self, A: Float[np.ndarray, "m_x m_z"]) -> Float[np.ndarray, "M M"]:
        """Return (1 - N)^-1 for N = [[0, A], [A^T, 0]], by the smaller of the Schur complements."""
        rows, columns = A.shape
        small = linear_solver(np.eye(columns) - A.T @ A)(np.eye(columns))
        corner = A @ small
        return np.block([[np.eye(rows) + corner @ A.T, corner], [corner.T, small]])

    def _projected(self, coordinates: np.ndarray, inverse: Float[np.ndarray, "M M"]) -> Float[np.ndarray, "nm nm"]:
        """Return P^T S^-1 P, from products of the data and of the projected keys and queries."""
        K, Q = self.pair(coordinates)
        D, z, owner = self._tall, self.queries, self._owner
        keys, queries = D @ K, (z @ Q)[owner]
        first, second, last = (inverse[: self._split, : self._split], inverse[: self._split, self._split :],
                               inverse[self._split :, self._split :])  # fmt: skip
        mixed = (D @ second @ z.T)[:, owner] * (queries @ keys.T)
        return (
            (D @ first @ D.T) * (queries @ queries.T)
            + mixed
            + mixed.T
            + (z @ last @ z.T)[owner][:, owner] * (keys @ keys.T)
        )
