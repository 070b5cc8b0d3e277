"""Pairs of factors whose directions differ in size by any number of orders, and the group that moves them.

    L, R       the factors, (d, h) each (filled with zero rows to be of one height); B = L R^T
    M          [L; R], (2d, h)
    G          -dL/dB
    U, V       the frame: orthogonal (d, d) matrices
    a, b       (d, h): M = [U; V] a / sqrt(2) + [U; -V] b / sqrt(2)

Under gradient flow L' = G R and R' = G^T L, so M' = S M with the symmetric S = [[0, G], [G^T, 0]]. It commutes with
J = diag(I, -I) up to sign, so that M(t) = Phi(t) M(0) with Phi in SO(d, d), the group that leaves J alone: only M(0)
knows the initial scale, and M^T J M = L^T L - R^T R is conserved. In float64 both facts are lost: once an entry of M
is of order 1, rounding seeds all directions with 1e-16. Here they hold by construction.

Each row of a and b has its own power of two, of any size. The group acts by the
Iwasawa decomposition: exp(S) [U; V] = [U'; V'] P with P upper triangular, and

    a' = P (a + K b),    b' = P^-T b,    K antisymmetric,

in which, with rows sorted by size, every row of a receives from smaller rows only: no digits are lost, as in the
stabilised products of determinant Monte Carlo. Since a'^T b' + b'^T a' = a^T b + b^T a whatever P and K are, rounding
them does not break the conservation law. For d = 1 this is u + v = a, u - v = b, the coordinates of a network with
diagonal weights (`saddlescope.flow.diagonal.coordinates`).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular

_DEPENDENT = 1e-11  # relative size of a remainder that is rounding: the row depends on the others
_CLEARED = 8 * np.finfo(float).eps  # relative size of what is taken for zero
_SYMMETRIC = 64 * np.finfo(float).eps  # relative size of an antisymmetric part that is rounding
_PIECE = 2.0  # e-folds per application: the parts of P that a structured rounding cannot reach stay below e^4 eps


_NOTHING = -(1 << 40)  # the exponent of a row of zeros


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows 2^exponent_i part_i, with integer exponents of any size; part_i is of length 1/2 to 1, or 0.

    A power of two and not a logarithm: scaling is exact, so that no rounding grows with the range.
    """

    part: Float[np.ndarray, "d h"]
    exponent: Int[np.ndarray, "d"]

    @classmethod
    def scaled(cls, rows: Float[np.ndarray, "d h"], exponent: Int[np.ndarray, "d"]) -> "Rows":
        """Return the rows 2^exponent_i rows_i."""
        size, more = np.frexp(np.sqrt(np.sum(rows**2, axis=1)))
        part = np.ldexp(rows, -more[:, None])
        return cls(part, np.where(size > 0, exponent + more.astype(np.int64), _NOTHING))

    @property
    def log(self) -> Float[np.ndarray, "d"]:
        """Natural logarithms of the lengths; -inf for a row of zeros."""
        with np.errstate(divide="ignore"):
            return np.log(np.sqrt(np.sum(self.part**2, axis=1))) + np.log(2) * self.exponent

    def combined(self, matrix: Float[np.ndarray, "k d"]) -> "Rows":
        """Return the rows matrix @ self."""
        reference = np.where(matrix != 0, self.exponent, _NOTHING).max(axis=1, initial=_NOTHING)
        return Rows.scaled((matrix * _power(self.exponent - reference[:, None])) @ self.part, reference)

    def __add__(self, other: "Rows") -> "Rows":
        reference = np.maximum(self.exponent, other.exponent)
        one, two = (_power(rows.exponent - reference)[:, None] * rows.part for rows in (self, other))
        return Rows.scaled(one + two, reference)

    def grown(self, efolds: Float[np.ndarray, "d"]) -> "Rows":
        """Return the rows e^efolds_i row_i, for numbers of any size."""
        whole = np.rint(efolds / np.log(2)).astype(np.int64)
        factor = np.exp(efolds - whole * np.log(2))
        grown = Rows.scaled(factor[:, None] * self.part, self.exponent + whole)
        return Rows(grown.part, np.where(self.exponent == _NOTHING, _NOTHING, grown.exponent))

    def __getitem__(self, index: np.ndarray | slice) -> "Rows":
        return Rows(self.part[index], self.exponent[index])

    def followed(self, by: "Rows") -> "Rows":
        """Return these rows followed by the others."""
        return Rows(np.concatenate([self.part, by.part]), np.concatenate([self.exponent, by.exponent]))

    def dense(self) -> Float[np.ndarray, "d h"]:
        """Return the rows in float64; entries that underflow are 0."""
        return _power(self.exponent)[:, None] * self.part


@dataclass(frozen=True, eq=False)
class ScaledFactors:
    """A pair of factors in the coordinates above; rows are sorted, a's largest first, and a_i is at least b_i.

    Attributes:
        U, V: the frame.
        a, b: the coefficients.
        shape: rows of L and of R; the rows beyond are filled with zeros.
    """

    U: Float[np.ndarray, "d d"]
    V: Float[np.ndarray, "d d"]
    a: Rows
    b: Rows
    shape: tuple[int, int]

    @classmethod
    def of(cls, left: Float[np.ndarray, "m h"], right: Float[np.ndarray, "n h"], log_scale: float) -> "ScaledFactors":
        """Return the factors e^log_scale left and e^log_scale right."""
        d = max(len(left), len(right))
        L, R = (np.pad(factor, ((0, d - len(factor)), (0, 0))) for factor in (left, right))
        exponent = round(log_scale / np.log(2))
        scale = np.exp(log_scale - exponent * np.log(2)) / np.sqrt(2)
        a, b = (Rows.scaled(scale * factor, np.full(d, exponent)) for factor in (L + R, L - R))
        return cls(np.eye(d), np.eye(d), a, b, (len(left), len(right)))._sorted()

    @property
    def log_sizes(self) -> Float[np.ndarray, "d"]:
        """Natural logarithm of the length of each direction's larger row."""
        return np.maximum(self.a.log, self.b.log)

    def _sorted(self) -> "ScaledFactors":
        """Return the same factors with a_i at least b_i, by the sign of a column of V, and the largest a_i first."""
        swap = self.b.log > self.a.log
        order = np.argsort(-self.log_sizes, kind="stable")
        V = np.where(swap, -self.V, self.V)[:, order]
        a, b = (
            Rows(np.where(swap[:, None], y.part, x.part)[order], np.where(swap, y.exponent, x.exponent)[order])
            for x, y in ((self.a, self.b), (self.b, self.a))
        )
        return ScaledFactors(self.U[:, order], V, a, b, self.shape)

    def factors(self) -> tuple[Float[np.ndarray, "m h"], Float[np.ndarray, "n h"]]:
        """Return L and R in float64; entries that underflow are 0."""
        a, b = self.a.dense(), self.b.dense()
        m, n = self.shape
        return (self.U[:m] @ (a + b)) / np.sqrt(2), (self.V[:n] @ (a - b)) / np.sqrt(2)

    def moved(self, integral: Float[np.ndarray, "m n"]) -> "ScaledFactors":
        """Return exp([[0, W], [W^T, 0]]) M, for W the integral of G over time, of any size."""
        m, n = self.shape
        d = len(self.U)
        W = integral if m == n else np.pad(integral, ((0, d - m), (0, d - n)))
        left, w, right = _decomposed(W)
        pieces = max(1, int(np.ceil(w[0] / _PIECE)))
        Y, Z = left.T @ self.U, right @ self.V
        a, b = self.a, self.b
        state = ScaledFactors(Y, Z, a, b, self.shape)
        grow = np.exp(w / pieces)
        for left_over in range(pieces, 0, -1):
            aligned = state._aligned(w * left_over / pieces)
            if aligned is not None:
                state = aligned
                break
            state = state._piece(grow)
        return ScaledFactors(_orthogonal(left @ state.U), _orthogonal(right.T @ state.V), state.a, state.b, self.shape)

    def _aligned(self, efolds: Float[np.ndarray, "d"]) -> "ScaledFactors | None":
        """Return exp(S) M where every direction of the frame grows at one rate of S; None otherwise."""
        stacked = np.abs(np.concatenate([self.U + self.V, self.U - self.V])) > _CLEARED
        growth = np.concatenate([efolds, -efolds])[:, None]
        most, least = np.where(stacked, growth, -np.inf).max(axis=0), np.where(stacked, growth, np.inf).min(axis=0)
        if np.any(most - least > 1e-12):
            return None
        return ScaledFactors(self.U, self.V, self.a.grown(most), self.b.grown(-most), self.shape)._sorted()

    def _piece(self, grow: Float[np.ndarray, "d"]) -> "ScaledFactors":
        """Return exp(S) M in the frame of S: G is diagonal there, with entries log(grow), descending."""
        plus, minus = (self.U + self.V) / 2, (self.U - self.V) / 2
        top, bottom = grow[:, None], 1 / grow[:, None]
        d = len(grow)
        stacked = np.concatenate([top * plus, (bottom * minus)[::-1]])  # rows of S's eigenvectors, the largest first
        Q, P = np.linalg.qr(stacked)
        sign = np.where(np.diag(P) < 0, -1.0, 1.0)
        # Entries that are zero up to rounding are set to 0, so that problems that decouple into blocks do so here, too.
        Q, P = _cleared(Q * sign, 1.0), _cleared(P * sign[:, None], np.abs(np.diag(P))[:, None])
        upper, lower = Q[:d], Q[d:][::-1]
        mixed = upper.T @ (top * minus) + lower.T @ (bottom * plus)
        K = _cleared(solve_triangular(P, mixed, check_finite=False), 1.0)
        inverse = solve_triangular(P, np.eye(d), check_finite=False)
        a = (self.a + self.b.combined((K - K.T) / 2)).combined(P)
        U, V = _orthogonal(upper + lower), _orthogonal(upper - lower)
        return ScaledFactors(U, V, a, self.b.combined(inverse.T), self.shape)._sorted()

    def moved_beyond(self, active: int, integral: Float[np.ndarray, "e e"]) -> "ScaledFactors":
        """Return the same for W, given in the frame, acting on the directions after the first `active` ones only."""
        rest = slice(active, None)
        size = len(self.U) - active
        if size == 0:
            return self
        moved = ScaledFactors(np.eye(size), np.eye(size), self.a[rest], self.b[rest], (size, size)).moved(integral)
        U, V = self.U.copy(), self.V.copy()
        U[:, rest], V[:, rest] = U[:, rest] @ moved.U, V[:, rest] @ moved.V
        stay = slice(active)
        a, b = self.a[stay].followed(moved.a), self.b[stay].followed(moved.b)
        return ScaledFactors(_orthogonal(U), _orthogonal(V), a, b, self.shape)

    def untilted(self, active: int) -> "ScaledFactors":
        """Return the factors with the rows after the first `active` ones orthogonal to those.

        The part that is removed tilts the active directions, M -> M + [U; V]_rest X a_active, and would relax in the
        flow: it is no seed of a new direction. It is removed by an element of the group, so that the conserved quantity
        stays.
        """
        stay, rest = slice(active), slice(active, None)
        fixed, below, parts = self.a[stay], self.b[stay], {}
        inverse = np.linalg.pinv(fixed.part)
        for name, rows in (("a", self.a[rest]), ("b", self.b[rest])):
            X = rows.part @ inverse
            left = rows.part - X @ fixed.part
            left = np.where(np.sum(left**2, axis=1, keepdims=True) > _DEPENDENT**2, left, 0.0)
            parts[name] = Rows.scaled(left, rows.exponent)
            partner = self.b[rest] if name == "a" else parts["a"]
            pushed = Rows(partner.part, partner.exponent + rows.exponent).combined(X.T)
            below = below + Rows(pushed.part, pushed.exponent - fixed.exponent)
        return ScaledFactors(self.U, self.V, fixed.followed(parts["a"]), below.followed(parts["b"]), self.shape)

    def drift(self, start: "ScaledFactors", log_scale: float) -> float:
        """Return the largest change of an entry of L^T L - R^T R since `start`, in units of e^(2 log_scale)."""
        unit = round(2 * log_scale / np.log(2))

        def conserved(pair: ScaledFactors) -> np.ndarray:
            half = (pair.a.part * _power(pair.a.exponent + pair.b.exponent - unit)[:, None]).T @ pair.b.part
            return half + half.T

        return float(np.max(np.abs(conserved(self) - conserved(start))))

    def log_singular_values(self) -> Float[np.ndarray, "r"]:
        """Return the logarithms of the singular values of B, descending, to about 1e-6; -inf for 0.

        Windows of rows of similar size go through a singular value decomposition, in which far smaller rows hardly
        matter; far larger ones have been eliminated before.
        """
        d, width = self.a.part.shape
        rank = min(*self.shape, width)
        size = np.maximum(self.a.exponent, self.b.exponent)
        a, b = (_power(rows.exponent - size)[:, None] * rows.part for rows in (self.a, self.b))
        core = (a + b) @ (a - b).T / 2
        logs = np.full(d, -np.inf)
        start = 0
        while start < rank and size[start] > _NOTHING:
            depth = size[start] - size[start:]
            near, taken = start + int(np.sum(depth <= _WINDOW)), start + int(np.sum(depth <= _TAKEN))
            scale = _power(size[start:near] - size[start])
            values = np.linalg.svd(scale[:, None] * core[start:near, start:near] * scale, compute_uv=False)
            with np.errstate(divide="ignore"):
                logs[start:taken] = 2 * np.log(2) * size[start] + np.log(values[: taken - start])
            one, rest = slice(start, taken), slice(taken, d)
            start = taken
            if start < rank:  # in the scaled core the eliminated part is as large as the rest, so no digits are lost
                core[rest, rest] -= core[rest, one] @ np.linalg.lstsq(core[one, one], core[one, rest], rcond=None)[0]
        return np.append(np.sort(logs)[::-1][:rank], np.full(min(self.shape) - rank, -np.inf))


def _decomposed(
    W: Float[np.ndarray, "d d"],
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d"], Float[np.ndarray, "d d"]]:
    """Return the singular value decomposition; of a symmetric matrix with vectors that are equal up to exact signs.

    So a pair with L = R stays so under symmetric G, also where the difference of the two would grow.
    """
    if np.abs(W - W.T).max() > _SYMMETRIC * np.abs(W).max():
        return np.linalg.svd(W)
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    order = np.argsort(-np.abs(values), kind="stable")
    values, vectors = values[order], vectors[:, order]
    return vectors, np.abs(values), np.where(values < 0, -1.0, 1.0)[:, None] * vectors.T


def _cleared(matrix: Float[np.ndarray, "m n"], size: "float | np.ndarray") -> Float[np.ndarray, "m n"]:
    return np.where(np.abs(matrix) <= _CLEARED * size, 0.0, matrix)


def _power(exponent: Int[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return 2^exponent; 0 where that underflows."""
    return np.ldexp(1.0, np.clip(exponent, -1100, 1000))


_WINDOW, _TAKEN = 20, 9  # powers of 2 of rows: those left out change those taken by 2^(-2 (20 - 9)) = 2e-7


def moved_factors(
    left: Float[np.ndarray, "m h"], right: Float[np.ndarray, "n h"], integral: Float[np.ndarray, "m n"]
) -> tuple[Float[np.ndarray, "m h"], Float[np.ndarray, "n h"]]:
    """Return exp([[0, W], [W^T, 0]]) [L; R] in plain float64, to rounding errors of the largest product."""
    U, w, Vt = np.linalg.svd(integral, full_matrices=False)
    at_left, at_right = U.T @ left, Vt @ right
    even, odd = 2 * np.sinh(w / 2)[:, None] ** 2, np.sinh(w)[:, None]  # cosh - 1 without cancellation
    return left + U @ (even * at_left + odd * at_right), right + Vt.T @ (even * at_right + odd * at_left)


def _orthogonal(Q: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """Return the nearest orthogonal matrix to one that is nearly so, by a step of Newton's iteration."""
    return Q @ (1.5 * np.eye(len(Q)) - 0.5 * (Q.T @ Q))
