"""Flows of Theorem 5.1 by quadrature: under Assumptions 2 and 4, from an aligned start, each sample is one scalar.

    b_i     the weight of sample i: W = sum_i b_i p_i q_i^T with p_i = x_i,opt/|x_i,opt|, q_i = z_i/|z_i|
    h_i     |z_i| p_i.(x_i,opt - x_il), the same for all tokens l: all margins of sample i are u_i = h_i b_i
    a_i     m h_i r_i with r_i = (1/n) (-l'(f_i)) Delta_i sigma_i,opt^2 e^(-u_i): the slope of the loss along b_i

The paired tokens of Assumption 4 (iii) have one margin, so that their sum pushes along p_i alone, and samples do not
interact: b = xi_k xi_q with xi_k' = a xi_q, xi_q' = a xi_k, which conserve |xi_k^2 - xi_q^2| = 2 w:

    t = int db / (2 a(b) sqrt(b^2 + w^2)) = int dphi / (2 a(w sinh phi)).

The integrand grows like e^u. It is summed in logarithms, from the end where it is largest, with Gauss-Legendre
points in u, and in phi where |u| < 1, since w may be far smaller than the change of u. No differential equation is
integrated: this is a reference for flows.
"""

from dataclasses import dataclass
from typing import get_args

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.losses import LossKind

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_PANEL = 0.5  # length of a panel in u or phi; the integrand's poles are pi away
_DEPTH = 80.0  # in u below the end, where the integrand is e^-80 of that at the end
_ALIKE = 1e-9  # relative difference up to which numbers count as equal in Assumptions 2 and 4


@dataclass(frozen=True, eq=False, repr=False)
class AlignedFlow(ReprMixin):
    """Flow of data that meet Assumptions 2 and 4, sample by sample, at any time.

    Attributes:
        data: the tokens.
        steepness: h_i, positive, (n,).
        start: b_i(0), (n,).
        imbalance: w_i = |xi_k^2 - xi_q^2| / 2, (n,), conserved.
        kind: the loss.
    """

    data: TokenData
    steepness: Float[np.ndarray, "n"]
    start: Float[np.ndarray, "n"]
    imbalance: Float[np.ndarray, "n"]
    kind: str

    def log_times(self, weights: ArrayLike) -> Float[np.ndarray, "n"]:
        """Return ln t at which each b_i has the given value, at least its start; -inf at the start.

        Raises:
            InputError: a weight below its start, or not finite.
        """
        b = np.broadcast_to(np.asarray(weights, float), self.start.shape)
        if not np.all(b >= self.start) or not np.all(np.isfinite(b)):
            raise InputError(f"weights must be finite and at least those of the start, {self.start!r}; got {b!r}.")
        return np.array([self._log_time(i, float(u)) for i, u in enumerate(self.steepness * b)])

    def weights(self, log_times: ArrayLike) -> Float[np.ndarray, "times n"]:
        """Return b_i at the times of the given logarithms, each to floating-point accuracy.

        Raises:
            InputError: times that are not finite, or beyond e^(1e9).
        """
        times = np.asarray(log_times, float)
        if times.ndim != 1 or not np.all(np.abs(times) <= 1e9):
            raise InputError(f"log_times must be a sequence of numbers within 1e9; got {log_times!r}.")
        margins = [[self._margin(i, float(time)) for i in range(self.data.samples)] for time in times]
        return np.array(margins).reshape(len(times), -1) / self.steepness

    def margins(self, weights: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "... n m"]:
        """Return u_il = h_i b_i, the same for all tokens l of a sample."""
        u = (self.steepness * weights)[..., None]
        return np.broadcast_to(u, (*u.shape[:-1], self.data.tokens - 1)).copy()

    def matrix(self, weights: Float[np.ndarray, "n"]) -> Float[np.ndarray, "d d"]:
        """Return W = sum_i b_i p_i q_i^T."""
        keys, queries = self.directions
        return (keys.T * weights) @ queries

    @property
    def directions(self) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
        """Directions p_i and q_i, as rows."""
        return _directions(self.data)

    @property
    def limit(self) -> Float[np.ndarray, "n"]:
        """Weights b_i = 1 / h_i of a solution of both the nuclear and the Frobenius problem.

        They have the same solution: with multipliers 1 / (m h_i^p), p = 1 or 2, shared by the tokens of a sample,
        sum_k lambda_k G_k is sum_i p_i q_i^T or W itself. The nuclear norm is sum_i 1/h_i, the square of Frobenius'
        sum_i 1/h_i^2.
        """
        return 1 / self.steepness

    def _log_pace(self, i: int, u: np.ndarray) -> np.ndarray:
        """Return ln(1 / (2 a_i)), integrated over phi, at margins u."""
        data, m = self.data, self.data.tokens - 1
        h, gap = float(self.steepness[i]), float(data.gaps[i].mean())
        log_optimal = -np.logaddexp(0.0, np.log(m) - u)
        f = data.optimal_scores[i] - gap * m * np.exp(log_optimal - u)
        log_slope = -f if self.kind == "exponential" else -np.logaddexp(0.0, f)
        log_a = np.log(m * h * gap / data.samples) + log_slope - u + 2 * log_optimal
        return -log_a - np.log(2)

    def _log_time(self, i: int, u: float) -> float:
        """Return ln t at which sample i has the margin u."""
        h = float(self.steepness[i])
        begin = h * float(self.start[i])
        if u <= begin:
            return -np.inf
        w = h * float(self.imbalance[i])
        below, middle, above = ((begin, min(u, -1.0)), (max(begin, -1.0), min(u, 1.0)), (max(begin, 1.0), u))
        parts = []
        for low, high in (below, above):
            if low < high:
                points, widths = _panels(low, high)
                parts.append(np.log(widths) + self._log_pace(i, points) - np.log(np.hypot(points, w)))
        if middle[0] < middle[1]:
            phi, widths = _panels(*(_phi(end, w) for end in middle), depth=np.inf)
            parts.append(np.log(widths) + self._log_pace(i, w * np.sinh(phi) if w else np.exp(phi)))
        return float(np.logaddexp.reduce(np.concatenate(parts)))

    def _margin(self, i: int, log_time: float) -> float:
        """Return the margin u of sample i at a time."""
        begin = float(self.steepness[i] * self.start[i])

        def late(log_rise: float) -> float:
            return self._log_time(i, begin + float(np.exp(log_rise))) - log_time

        low, high = -1.0, 1.0
        while late(low) > 0:
            if begin + np.exp(low) == begin:
                return begin
            low *= 2
        while late(high) < 0:
            high += 1
        log_rise, _ = brentq(late, low, high, xtol=1e-13, full_output=True)
        u = begin + float(np.exp(log_rise))
        here = self._log_time(i, u)
        if here == -np.inf:
            return begin
        log_pace = float(self._log_pace(i, np.array([u]))[0])
        log_slope = log_pace - here - float(np.log(np.hypot(u, self.steepness[i] * self.imbalance[i])))
        return u - (here - log_time) / float(np.exp(log_slope))  # one step of Newton's method, in u itself


@validate_arguments
def aligned_product_flow(
    data: TokenData,
    keys: ArrayLike | float,
    queries: ArrayLike | float,
    *,
    kind: str = "exponential",
) -> AlignedFlow:
    """Return the flow of K = sum_i xi_k,i p_i v_i^T and Q = sum_i xi_q,i q_i v_i^T with any orthonormal v_i.

    The paper's starts, equation 5, are xi_k xi_q = 0 with xi_k^2 + xi_q^2 = 2 omega_0^2.

    Args:
        data: the tokens. Assumption 4 (ii) is not needed: z_i may have any direction.
        keys: xi_k(0), (n,), or one number for all.
        queries: xi_q(0), (n,), or one number for all.
        kind: the loss.

    Raises:
        InputError: data that do not split into scalars, wrong shapes, an unknown loss, or a sample whose weight cannot
            grow: xi_k = -xi_q.
    """
    xi_k, xi_q = (_per_sample(name, given, data) for name, given in (("keys", keys), ("queries", queries)))
    stuck = np.flatnonzero(xi_k + xi_q == 0)
    if len(stuck):
        raise InputError(f"keys must differ from -queries, or b never grows; got {keys!r} and {queries!r}.")
    imbalance = np.abs((xi_k - xi_q) * (xi_k + xi_q)) / 2
    return AlignedFlow(data, _steepness(data), xi_k * xi_q, imbalance, _checked_loss(kind))


def _checked_loss(kind: str) -> str:
    if kind not in get_args(LossKind):
        raise unknown("loss", kind, get_args(LossKind))
    return kind


def _per_sample(name: str, given: ArrayLike | float, data: TokenData) -> Float[np.ndarray, "n"]:
    array = np.asarray(given, float)
    if array.shape not in ((), (data.samples,)) or not np.all(np.isfinite(array)):
        raise InputError(f"{name} must be finite, one number or one for each of {data.samples} samples; got {given!r}.")
    return np.full(data.samples, array)


def _directions(data: TokenData) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
    """Return p_i = x_i,opt / |x_i,opt| and q_i = z_i / |z_i|, as rows."""
    optimal = data.X[np.arange(data.samples), data.optimal]
    return tuple(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (optimal, data.z))


def _steepness(data: TokenData) -> Float[np.ndarray, "n"]:
    """Return h_i; raise unless the samples decouple."""
    keys, queries = _directions(data)
    along = np.einsum("imd,id->im", data.differences, keys)
    sums = data.differences.sum(axis=1)
    beside = np.linalg.norm(sums - along.sum(axis=1)[:, None] * keys, axis=1) / np.linalg.norm(sums, axis=1)
    gram_error = max(float(np.abs(rows @ rows.T - np.eye(data.samples)).max()) for rows in (keys, queries))
    for broken, condition in (
        (gram_error, "optimal tokens orthogonal to each other and queries to each other (Assumption 4 (i))"),
        (float(beside.max()), "the sum of each sample's tokens along its optimal one (Assumption 4 (iii))"),
        (float((np.ptp(along, axis=1) / along.max(axis=1)).max()), "equal margins within each sample (2 and 4 (iii))"),
        (float((np.ptp(data.gaps, axis=1) / data.gaps.max(axis=1)).max()), "equal gaps (Assumption 2)"),
    ):
        if not broken <= _ALIKE:
            raise InputError(f"data must have {condition}; got data that violate it by {broken:.3g}.")
    h = np.linalg.norm(data.z, axis=1) * along.mean(axis=1)
    if not np.all(h > 0):
        raise InputError(f"data must have tokens x with x.x_opt < |x_opt|^2, c < 1; got h = {h.tolist()!r}.")
    return h


def _phi(u: float, w: float) -> float:
    return float(np.arcsinh(u / w)) if w else float(np.log(u))


def _panels(begin: float, end: float, depth: float = _DEPTH) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss-Legendre points and weights from the end down, as far as the integrand matters."""
    low = end - depth if end > depth + abs(begin) else begin  # below 0 the integrand falls towards the end
    edges = np.linspace(low, end, 2 + int((end - low) / _PANEL))
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + _POINTS)).ravel(), (half * _WEIGHTS).ravel()
