"""Asymptotics of gradient flow on softmax attention: laws for large times.

    k = (i, l)  a non-optimal token l of sample i; u_k its margin, mu the smallest one; delta_k the gap of its score
    c_k         (1/n) (-l'(gamma_i,opt)) delta_k: as margins grow, -dL/du_k -> c_k e^(-u_k), L - L* -> sum c_k e^(-u_k)
    lambda_k    multiplier of u_k >= 1 in the problem whose norm the flow minimises; sum_k lambda_k is that norm for the
                l1 and the nuclear norm, |W_F|^2 for |W|^2 / 2

Products (diagonal K and Q, or full ones): a multiplier is d phi_k / d ln mu with dphi_k/dt = 2 c_k e^(-u_k), so that

    u_k = ln t + ln mu + ln(2 c_k / lambda_k) + o(1)  on active k,        t mu (L - L*) -> sum_k lambda_k / 2.

The factor 2 is that of W' = A Q Q^T + K K^T A once K and Q are balanced, A = -grad_W L. The error falls like a power of
1/mu. For full K and Q the law assumes that the direction tends to a solution, which is open; from generic starts the
loss follows it (within 8 % at t = 1e100, 1.3 % at ln t = 1e6), but single margins do not.

W alone: dphi_k/dt = c_k e^(-u_k), and with W = W(0) + sum_k phi_k G_k, G_k = D_k z_i^T,

    W = W_F ln t + W~ + o(1),   <W~, G_k> = ln(c_k / lambda_k)  on active k,        t (L - L*) -> |W_F|^2;

the error falls like a power of t. Where more features G_k are active than independent, the multipliers are not unique;
those of the flow are c_k e^(-<W~, G_k>) for the W~ that minimises sum_k c_k e^(-<W, G_k>) + <W, W_F>.
"""

from dataclasses import dataclass
from typing import get_args

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.losses import LossKind

_ITERATIONS = 200
_NEGLIGIBLE = 1e-12  # multipliers below the largest by this factor count as 0


@validate_arguments
def log_rate_coefficients(data: TokenData, *, kind: str = "exponential") -> Float[np.ndarray, "n m"]:
    """Return ln c_k, c_k = (1/n) (-l'(gamma_i,opt)) delta_k, through which the laws depend on scores and loss.

    Args:
        data: the tokens.
        kind: the loss, l(x) = e^-x or l(x) = ln(1 + e^-x).

    Raises:
        InputError: an unknown loss.
    """
    if kind not in get_args(LossKind):
        raise unknown("loss", kind, get_args(LossKind))
    best = data.optimal_scores
    slopes = -best if kind == "exponential" else -np.logaddexp(0.0, best)
    return slopes[:, None] + np.log(data.gaps) - np.log(data.samples)


@dataclass(frozen=True, eq=False, repr=False)
class ProductLaw(ReprMixin):
    """Law of diagonal K and Q, with the l1 problem's multipliers, or of full ones, with those of the nuclear problem.

    Attributes:
        log_coefficients: ln c_k, (n, m).
        multipliers: lambda_k, (n, m), at least 0; positive means active.
    """

    log_coefficients: Float[np.ndarray, "n m"]
    multipliers: Float[np.ndarray, "n m"]

    @property
    def norm(self) -> float:
        """Least l1 or nuclear norm, sum_k lambda_k."""
        return float(np.sum(self.multipliers))

    @property
    def offsets(self) -> Float[np.ndarray, "n m"]:
        """Limit ln(2 c_k / lambda_k) of u_k - ln t - ln mu; infinite where k is not active."""
        with np.errstate(divide="ignore"):
            return np.log(2) + self.log_coefficients - np.log(self.multipliers)

    def margin(self, log_time: float) -> float:
        """Return the smallest margin: the larger root mu of mu - ln mu = ln t + min_k ln(2 c_k / lambda_k).

        Raises:
            InputError: a time before the law has a margin above 1.
        """
        right = log_time + float(self.offsets.min())
        if not 1 < right < np.inf:
            raise InputError(f"log_time must be finite and above {1 - self.offsets.min():.6g}; got {log_time!r}.")
        mu = right + np.log(right) + 1.0  # above the root, from where Newton's method descends
        for _ in range(_ITERATIONS):
            step = (mu - np.log(mu) - right) / (1 - 1 / mu)
            mu -= step
            if abs(step) <= 4e-16 * mu:
                break
        return float(mu)

    def margins(self, log_time: float, log_margin: float | None = None) -> Float[np.ndarray, "n m"]:
        """Return the margins u_k of active k at a time; infinite where k is not active.

        Args:
            log_time: ln t.
            log_margin: ln mu of a run; None: that of the law.
        """
        known = np.log(self.margin(log_time)) if log_margin is None else log_margin
        return log_time + known + self.offsets

    def log_excess(self, log_time: float, log_margin: float | None = None) -> float:
        """Return ln(L - L*) at a time; the arguments are those of `margins`."""
        known = np.log(self.margin(log_time)) if log_margin is None else log_margin
        return float(np.log(self.norm / 2) - log_time - known)


@validate_arguments
def product_law(data: TokenData, multipliers: ArrayLike, *, kind: str = "exponential") -> ProductLaw:
    """Return the law of diagonal K and Q, or of full ones.

    Args:
        data: the tokens.
        multipliers: lambda_k of the l1 problem or of the nuclear one, (n, m); positive means active.
        kind: the loss.

    Raises:
        InputError: a wrong shape, multipliers that are negative or all zero, or an unknown loss.
    """
    return ProductLaw(log_rate_coefficients(data, kind=kind), _checked_multipliers(multipliers, data))


@dataclass(frozen=True, eq=False, repr=False)
class MatrixLaw(ReprMixin):
    """Law of W alone.

    Attributes:
        limit: W_F, the solution of least Frobenius norm, (d, d).
        offset: W~, (d, d): within the span of the active features by the law, orthogonal to it that of the start.
        offsets: <W~, G_k>, (n, m), the limit of u_k - ln t; infinite where k is not active.
        multipliers: c_k e^(-<W~, G_k>), (n, m), those of the flow; 0 where k is not active.
        remembered: the dimension of the features' span beyond that of the active ones. There the true W~ depends on
            the whole run, and no law of large times predicts it.
    """

    limit: Float[np.ndarray, "d d"]
    offset: Float[np.ndarray, "d d"]
    offsets: Float[np.ndarray, "n m"]
    multipliers: Float[np.ndarray, "n m"]
    remembered: int

    def weights(self, log_time: float) -> Float[np.ndarray, "d d"]:
        """Return W_F ln t + W~; all of W only where `remembered` is 0."""
        return self.limit * log_time + self.offset

    def margins(self, log_time: float) -> Float[np.ndarray, "n m"]:
        """Return the margins u_k of active k at a time; infinite where k is not active."""
        return log_time + self.offsets

    def log_excess(self, log_time: float) -> float:
        """Return ln(L - L*) at a time."""
        return float(np.log(np.sum(self.limit**2)) - log_time)


@validate_arguments
def matrix_law(
    data: TokenData,
    multipliers: ArrayLike,
    *,
    kind: str = "exponential",
    start: ArrayLike | None = None,
) -> MatrixLaw:
    """Return W_F, W~ and the multipliers of the flow on W alone.

    Args:
        data: the tokens.
        multipliers: of the problem of least Frobenius norm, (n, m), up to one positive factor: W_F is sum_k lambda_k
            G_k with a smallest margin of 1. Where they are not unique, any with all active k positive.
        kind: the loss.
        start: W(0), (d, d); None: zero.

    Raises:
        InputError: inconsistent shapes, multipliers that are negative or all zero, or an unknown loss.
        ArithmeticError: no W~ was found, as where the multipliers are not those of a solution.
    """
    D, z = data.differences, data.z
    given = _checked_multipliers(multipliers, data)
    least = float(data.margins(np.einsum("im,imd,ie->de", given, D, z)).min())
    if not least > 0:
        raise InputError(f"multipliers must combine to positive margins; got {least!r} as the smallest.")
    given = given / least
    W0 = np.zeros((data.dim, data.dim)) if start is None else np.asarray(start, float)
    if W0.shape != (data.dim, data.dim) or not np.all(np.isfinite(W0)):
        raise InputError(f"start must be finite, of shape {(data.dim, data.dim)!r}; got {W0!r}.")
    active = given > 0
    log_c, lambdas = log_rate_coefficients(data, kind=kind)[active], given[active]
    basis, sizes = _range(_gram(data, active))
    margins = _least(basis, log_c, lambdas)
    shares = np.zeros(given.shape)  # of the features in W~ - W(0), so that it has these margins
    shares[active] = basis @ ((basis.T @ (margins - data.margins(W0)[active])) / sizes)
    offsets, found = np.full(given.shape, np.inf), np.zeros(given.shape)
    offsets[active], found[active] = margins, np.exp(log_c - margins)
    every, _ = _range(_gram(data, np.ones_like(active)))
    return MatrixLaw(
        limit=np.einsum("im,imd,ie->de", given, D, z),
        offset=W0 + np.einsum("im,imd,ie->de", shares, D, z),
        offsets=offsets,
        multipliers=found,
        remembered=every.shape[1] - basis.shape[1],
    )


def _checked_multipliers(multipliers: ArrayLike, data: TokenData) -> Float[np.ndarray, "n m"]:
    given = np.asarray(multipliers, float)
    if given.shape != data.gaps.shape:
        raise InputError(f"multipliers must have shape {data.gaps.shape!r}; got {given.shape!r}.")
    if not np.all(given >= 0) or not 0 < np.max(given) < np.inf:
        raise InputError(f"multipliers must be at least 0, one of them positive; got {given.tolist()!r}.")
    return np.where(given > _NEGLIGIBLE * given.max(), given, 0.0)


def _gram(data: TokenData, chosen: np.ndarray) -> np.ndarray:
    """Return the inner products (D_k.D_k') (z_i.z_i') of the chosen features."""
    D, z = data.differences[chosen], data.z[np.nonzero(chosen)[0]]
    return (D @ D.T) * (z @ z.T)


def _range(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an orthonormal basis of the range of a Gram matrix, and its eigenvalues there."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > 10 * len(gram) * np.finfo(float).eps * values[-1]
    return vectors[:, kept], values[kept]


def _least(basis: np.ndarray, log_c: np.ndarray, lambdas: np.ndarray) -> np.ndarray:
    """Return the u in the range of the basis that minimises sum_k c_k e^(-u_k) + lambda.u, by Newton's method."""
    u = log_c - np.log(lambdas)
    if basis.shape[1] == len(u):
        return u
    place = basis.T @ u
    for _ in range(_ITERATIONS):
        weights = np.exp(log_c - basis @ place)
        slope = basis.T @ (lambdas - weights)
        step = -np.linalg.solve((basis.T * weights) @ basis, slope)
        if -slope @ step <= 1e-26 * lambdas.sum():
            return basis @ place
        place = place + step / (1 + np.abs(basis @ step).max())  # the curvature changes by a factor e where u does by 1
    raise ArithmeticError("No W~ was found: these multipliers do not belong to a solution with all of them positive.")
