"""What a margin flow leaves behind: margins, rates and weights at the recorded times, and how far it can be trusted."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from saddlescope.errors import InputError
from saddlescope.flow.key_query_system import Reduction
from saddlescope.flow.trajectory import Status


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MarginFlow:
    """A flow at its recorded times t.

    Attributes:
        log_times: ln t, ascending, (k,).
        margins: u, (k, n, m).
        log_excess: ln(L - L*), (k,).
        log_rates: ln|r|, r = -dL/du, (k, n, m).
        rate_signs: of r, (k, n, m).
        margin_speeds: du / d ln t, (k, n, m).
        energy_defects: |E - ln(L - L*)| over what E has changed by (at least 1), where E is the integral of
            d ln(L - L*)/dt = -|grad L|^2 / (L - L*) along the run, (k,): about the tolerance where all is well.
        evaluations: of the right-hand side.
        steps: of the solver.
        status: how the run ended; `ok` in every run that is returned and not raised.
    """

    log_times: Float[np.ndarray, "k"]
    margins: Float[np.ndarray, "k n m"]
    log_excess: Float[np.ndarray, "k"]
    log_rates: Float[np.ndarray, "k n m"]
    rate_signs: Float[np.ndarray, "k n m"]
    margin_speeds: Float[np.ndarray, "k n m"]
    energy_defects: Float[np.ndarray, "k"]
    evaluations: int
    steps: int
    status: Status

    def __repr__(self) -> str:
        last = f"ln t = {self.log_times[-1]:.6g}" if len(self.log_times) else "no recorded time"
        return f"{type(self).__name__}({len(self.log_times)} times to {last}, {self.evaluations} evaluations)"

    @property
    def margin(self) -> Float[np.ndarray, "k"]:
        """mu, the smallest of the margins (Definition 4.1)."""
        return self.margins.min(axis=(1, 2))

    @property
    def scaled_rates(self) -> Float[np.ndarray, "k n m"]:
        """The products t r, which stays between 0 and infinity."""
        return self.rate_signs * np.exp(self.log_rates + self.log_times[:, None, None])


@dataclass(frozen=True)
class DiagonalStart:
    """A start of the flow of diagonal weights, beta = xi_k * xi_q = (w_+^2 - w_-^2) / 2 (Lemma 4.1).

    Attributes:
        plus: w_+(0), (d,).
        minus: w_-(0), (d,).
    """

    plus: Float[np.ndarray, "d"]
    minus: Float[np.ndarray, "d"]

    @classmethod
    def at_scale(cls, omega0: float | Float[np.ndarray, "..."], dim: int) -> "DiagonalStart":
        """w_+ = w_- = omega_0, one for all coordinates or one for each: beta(0) = 0 (equation 5)."""
        scale = np.broadcast_to(np.asarray(omega0, float), (dim,)).copy()
        return cls(scale, scale)

    @classmethod
    def of_keys_and_queries(cls, xi_k: Float[np.ndarray, "d"], xi_q: Float[np.ndarray, "d"]) -> "DiagonalStart":
        """w_+- = (xi_k +- xi_q) / sqrt 2."""
        keys, queries = np.asarray(xi_k, float), np.asarray(xi_q, float)
        return cls((keys + queries) / 2**0.5, (keys - queries) / 2**0.5)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DiagonalMarginFlow(MarginFlow):
    """A flow of diagonal weights.

    Attributes:
        phi: 2 int r dt (Lemma A.1), (k, n, m).
        features: B, (n, m, d).
        start: w_+ and w_- at time 0.
    """

    phi: Float[np.ndarray, "k n m"]
    features: Float[np.ndarray, "n m d"]
    start: DiagonalStart

    @cached_property
    def psi(self) -> Float[np.ndarray, "k d"]:
        """B^T phi."""
        return np.einsum("knm,nmd->kd", self.phi, self.features)

    @cached_property
    def weights(self) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k d"]]:
        """w_+ and w_-, whose product stays what it is."""
        return self.start.plus * np.exp(self.psi / 2), self.start.minus * np.exp(-self.psi / 2)

    @property
    def keys_and_queries(self) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k d"]]:
        """xi_k and xi_q."""
        plus, minus = self.weights
        return (plus + minus) / 2**0.5, (plus - minus) / 2**0.5

    @cached_property
    def beta(self) -> Float[np.ndarray, "k d"]:
        """W = diag(beta)."""
        plus, minus = self.weights
        return (plus**2 - minus**2) / 2

    @property
    def direction(self) -> Float[np.ndarray, "k d"]:
        """The direction beta / mu, NaN where mu is not positive."""
        return self.beta / _positive(self.margin)[:, None]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MatrixMarginFlow(MarginFlow):
    """A flow of W alone: W = W(0) + sum_il phi_il D_il z_i^T.

    Attributes:
        phi: int r dt, (k, n, m).
        differences: D, (n, m, d).
        queries: z, (n, d).
        start: W(0), (d, d), or None for 0.
    """

    phi: Float[np.ndarray, "k n m"]
    differences: Float[np.ndarray, "n m d"]
    queries: Float[np.ndarray, "n d"]
    start: Float[np.ndarray, "d d"] | None

    @property
    def pulled(self) -> Float[np.ndarray, "k n d"]:
        """sum_l phi_il D_il, so that W - W(0) is its product with z over the samples."""
        return np.einsum("knm,nmd->knd", self.phi, self.differences)

    def weights(self, record: int) -> Float[np.ndarray, "d d"]:
        """W at one recorded time."""
        moved = np.einsum("nm,nmd->nd", self.phi[record], self.differences).T @ self.queries
        return moved if self.start is None else self.start + moved

    def direction(self, record: int) -> Float[np.ndarray, "d d"]:
        """W / mu at one recorded time, NaN where mu is not positive."""
        return self.weights(record) / _positive(self.margin)[record]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KeyQueryMarginFlow(MarginFlow):
    """A flow of keys and queries, W = K Q^T.

    Attributes:
        reduced_keys: the part of K that moves, (k, m_x, r).
        reduced_queries: the part of Q that moves, (k, m_z, r).
        reduction: the way back to K and Q.
        conservation_defects: |K^T K - Q^T Q - its value at time 0| over |K^T K|, Frobenius norms of the parts that
            move, (k,). The flow keeps it; this solver knows nothing of that.
    """

    reduced_keys: Float[np.ndarray, "k m_x r"]
    reduced_queries: Float[np.ndarray, "k m_z r"]
    reduction: Reduction
    conservation_defects: Float[np.ndarray, "k"]

    def keys(self, record: int) -> Float[np.ndarray, "d e"]:
        """K at one recorded time."""
        of = self.reduction
        return of.of_keys @ (self.reduced_keys[record] @ of.columns) + of.resting_keys

    def queries(self, record: int) -> Float[np.ndarray, "d e"]:
        """Q at one recorded time."""
        of = self.reduction
        return of.of_queries @ (self.reduced_queries[record] @ of.columns) + of.resting_queries

    def direction(self, record: int) -> tuple[Float[np.ndarray, "d e"], Float[np.ndarray, "d e"]]:
        """K / sqrt(mu) and Q / sqrt(mu), factors of W / mu at one recorded time, NaN where mu is not positive."""
        root = np.sqrt(_positive(self.margin)[record])
        return self.keys(record) / root, self.queries(record) / root

    def spectrum(self, record: int) -> Float[np.ndarray, "s"]:
        """The singular values of W = K Q^T at one recorded time, descending, from its factors."""
        left, right = (np.asarray(np.linalg.qr(of(record), mode="r")) for of in (self.keys, self.queries))
        return np.linalg.svd(left @ right.T, compute_uv=False)


class MarginFlowError(RuntimeError):
    """A flow that did not reach its last time, or whose energy is out of balance.

    Attributes:
        flow: the records until then; `flow.status` says what happened.
    """

    def __init__(self, flow: MarginFlow) -> None:
        super().__init__(str(flow.status))
        self.flow = flow


def _positive(margin: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    return np.where(margin > 0, margin, np.nan)


def checked_array(name: str, given: object, shape: tuple[int | None, ...]) -> Float[np.ndarray, "..."]:
    """An argument as float64, of this shape (None: any size of at least 1) and finite.

    Raises:
        InputError: it is not.
    """
    try:
        array = np.asarray(given, float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers; got {given!r}.") from error
    fits = array.ndim == len(shape) and all(
        a == b or (b is None and a > 0) for a, b in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"{name} must have shape ({wanted}); got shape {array.shape!r}.")
    if not np.all(np.isfinite(array)):
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{name} must be finite; got {float(array[place])!r} at {list(place)!r}.")
    return array
