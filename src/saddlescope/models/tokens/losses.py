"""Loss of a softmax attention head as a function of its margins, in logarithms: exact where the softmax underflows.

    u_il       margins (n, m) of optimal tokens, see `saddlescope.models.tokens.data`; delta_il the gaps of the scores
    sigma_il   e^-u_il sigma_i,opt with sigma_i,opt = 1 / (1 + sum_l e^-u_il): the softmax
    s_i        sum_l delta_il sigma_il, how far the output y_i Phi_i = f_i = gamma_i,opt - s_i is from its best value
    L          (1/n) sum_i l(f_i), with l(x) = e^-x or ln(1 + e^-x); L* = (1/n) sum_i l(gamma_i,opt) its infimum
    r_il       -dL/du_il = (1/n) (-l'(f_i)) sigma_il b_il with b_il = delta_il - s_i: the rates

For any weights, -grad_W L = sum_il r_il D_il z_i^T: a flow needs the rates alone. Where all gaps of a sample are
equal (Assumption 2), b_il = delta_i sigma_i,opt > 0. Where they are not, b_il has either sign, and is summed as
delta_il sigma_i,opt + sum_k (delta_il - delta_ik) sigma_ik, without the cancellation of delta_il - s_i.

`attention_loss` is the same loss as the paper writes it, with a softmax, for automatic differentiation. Its gradient is
only rounding error once the margins exceed 40.

Sheen, Chen, Wang and Zhou (2024), sections 3.2 and appendix A.1, equations (22), (23) and (29).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.real_arrays import real_array
from saddlescope.models.tokens.data import TokenData

if TYPE_CHECKING:
    import jax

LossKind = Literal["exponential", "logistic"]
_TINY = -37.0  # logarithm of q below which ln(log1p(q)) = ln(q) to rounding


@validate_arguments
@dataclass(frozen=True, eq=False, repr=False)
class SelectionLoss:
    """Loss as a function of the margins (n, m), with its rates and their derivatives, in logarithms.

    Any finite margins are allowed, such as 1e7: a rate of e^-1e7 is returned as its logarithm, -1e7.

    Attributes:
        optimal_scores: gamma_i,opt, (n,).
        gaps: delta_il, positive, (n, m).
        kind: "exponential", l(x) = e^-x, or "logistic", l(x) = ln(1 + e^-x).

    Raises:
        InputError: shapes that do not go together, gaps that are not positive, numbers not finite, or another kind.
    """

    optimal_scores: np.ndarray
    gaps: np.ndarray
    kind: str = "exponential"

    def __post_init__(self) -> None:
        scores, gaps = real_array("optimal_scores", self.optimal_scores), real_array("gaps", self.gaps)
        object.__setattr__(self, "optimal_scores", scores)
        object.__setattr__(self, "gaps", gaps)
        if gaps.ndim != 2 or scores.shape != gaps.shape[:1] or 0 in gaps.shape:
            raise InputError(
                f"optimal_scores and gaps must have shapes (n,) and (n, m); got {scores.shape!r} and {gaps.shape!r}."
            )
        if not np.all(gaps > 0):
            raise InputError(f"gaps must be positive; got {float(gaps.min())!r} among them.")
        if self.kind not in get_args(LossKind):
            raise unknown("loss", self.kind, get_args(LossKind))

    def __repr__(self) -> str:
        return f"SelectionLoss({self.kind}, {self.gaps.shape[0]} samples, {self.gaps.shape[1]} gaps each)"

    @cached_property
    def equal_gaps(self) -> bool:
        """True if all gaps of each sample are equal (Assumption 2), so that all rates are positive."""
        return bool(np.all(self.gaps == self.gaps[:, :1]))

    @cached_property
    def least(self) -> float:
        """Infimum L* of the loss over all margins."""
        return float(np.mean(self._losses(self.optimal_scores)))

    def value(self, margins: Float[np.ndarray, "n m"]) -> float:
        """Return L(u). Near L* the difference is lost to rounding: use `log_excess` for it."""
        return float(np.mean(self._losses(self._outputs(_log_softmax(margins)[1]))))

    def log_excess(self, margins: Float[np.ndarray, "n m"]) -> float:
        """Return ln(L(u) - L*), without the cancellation of the difference.

        e^-f - e^-gamma = e^-gamma (e^s - 1) for the exponential loss, ln(1 + (e^s - 1) / (1 + e^gamma)) for the other.
        """
        each = self._log_excesses(self._log_shortfall(margins))
        return float(np.logaddexp.reduce(each) - np.log(len(each)))

    def log_excess_missing(self) -> Float[np.ndarray, "n"]:
        """Return ln(L - L*) where one sample attends only to its best other token and all others to their optimal one.

        The smallest is the bound of Assumption 3: a loss below it cannot leave any sample at a wrong token.
        """
        return self._log_excesses(np.log(self.gaps.min(axis=1))) - np.log(len(self.gaps))

    def _log_excesses(self, log_s: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """Return the logarithms of l(gamma_i,opt - s_i) - l(gamma_i,opt)."""
        s = np.exp(log_s)
        log_expm1 = log_s + s + np.log(_relative_expm1(s))
        if self.kind == "exponential":
            return log_expm1 - self.optimal_scores
        log_q = log_expm1 - np.logaddexp(0.0, self.optimal_scores)
        return np.where(log_q < _TINY, log_q, np.log(np.logaddexp(0.0, np.maximum(log_q, _TINY))))

    def log_rates(self, margins: Float[np.ndarray, "n m"]) -> tuple[Float[np.ndarray, "n m"], Float[np.ndarray, "n m"]]:
        """Return ln|r| and the sign of r = -dL/du; the sign is 1 everywhere under Assumption 2, else 1, -1 or 0."""
        log_optimal, log_others = _log_softmax(margins)
        log_b, signs = self._log_brackets(log_optimal, log_others)
        return self._log_slope(log_others)[:, None] + log_others + log_b, signs

    def rate_jacobian(
        self, margins: Float[np.ndarray, "n m"], log_factor: float = 0.0
    ) -> tuple[Float[np.ndarray, "n m"], Float[np.ndarray, "n m m"]]:
        """Return the rates r and the derivatives d r_il / d u_ik, both times e^log_factor, finite where r changes sign.

        d r_l / d u_k = r_l sigma_k (1 - a b_k) + sigma_l r_k - [l = k] r_l, symmetric, with a = 1 for the exponential
        loss and 1/(1 + e^-f) for the logistic one. The margins of other samples do not matter.

        Args:
            margins: u.
            log_factor: such as ln t, for t r(u) in the logarithm of time.
        """
        log_optimal, log_others = _log_softmax(margins)
        log_b, signs = self._log_brackets(log_optimal, log_others)
        sigma = np.exp(log_others)
        rates = signs * np.exp(self._log_slope(log_others)[:, None] + log_others + log_b + log_factor)
        pull = sigma - self._curvature(log_others)[:, None] * signs * np.exp(log_others + log_b)
        jacobian = rates[:, :, None] * pull[:, None, :] + sigma[:, :, None] * rates[:, None, :]
        diagonal = np.arange(rates.shape[1])
        jacobian[:, diagonal, diagonal] -= rates
        return rates, jacobian

    def _losses(self, outputs: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """Return l(f_i)."""
        return np.exp(-outputs) if self.kind == "exponential" else np.logaddexp(0.0, -outputs)

    def _log_shortfall(self, margins: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n"]:
        """Return the logarithm of s_i."""
        return np.logaddexp.reduce(np.log(self.gaps) + _log_softmax(margins)[1], axis=1)

    def _outputs(self, log_others: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n"]:
        """Return f_i = y_i Phi_i."""
        return self.optimal_scores - np.sum(self.gaps * np.exp(log_others), axis=1)

    def _log_slope(self, log_others: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n"]:
        """Return the logarithm of (1/n) (-l'(f_i))."""
        f = self._outputs(log_others)
        return (-f if self.kind == "exponential" else -np.logaddexp(0.0, f)) - np.log(len(f))

    def _curvature(self, log_others: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n"]:
        """Return the decay rate of the slope, a = -d ln(-l'(f)) / df."""
        f = self._outputs(log_others)
        return np.ones_like(f) if self.kind == "exponential" else np.exp(-np.logaddexp(0.0, -f))

    def _log_brackets(
        self, log_optimal: Float[np.ndarray, "n"], log_others: Float[np.ndarray, "n m"]
    ) -> tuple[Float[np.ndarray, "n m"], Float[np.ndarray, "n m"]]:
        """Return ln|b_il| and the sign of b_il, a sum of terms of either sign with weights that may all be tiny."""
        log_first = np.log(self.gaps) + log_optimal[:, None]
        if self.equal_gaps:
            return log_first, np.ones_like(log_first)
        between = self.gaps[:, :, None] - self.gaps[:, None, :]
        with np.errstate(divide="ignore"):
            log_terms = np.log(np.abs(between)) + log_others[:, None, :]
            top = np.maximum(log_first, log_terms.max(axis=2))
            total = np.exp(log_first - top) + np.sum(np.sign(between) * np.exp(log_terms - top[:, :, None]), axis=2)
            return top + np.log(np.abs(total)), np.sign(total)


def _log_softmax(margins: Float[np.ndarray, "n m"]) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n m"]]:
    """Return the logarithms of sigma_i,opt and of sigma_il."""
    top = np.maximum(0.0, -margins.min(axis=1))
    optimal, others = -top, -margins - top[:, None]  # the largest is 0
    log_total = np.log(np.exp(optimal) + np.sum(np.exp(others), axis=1))
    return optimal - log_total, others - log_total[:, None]


def _relative_expm1(s: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return (1 - e^-s) / s, which is 1 at 0."""
    return np.where(s == 0, 1.0, -np.expm1(-s) / np.where(s == 0, 1.0, s))


@validate_arguments
def attention_loss(data: TokenData, kind: str = "exponential") -> "Callable[[jax.typing.ArrayLike | tuple], jax.Array]":
    """Return the loss as the paper writes it, (1/n) sum_i l(y_i v^T X_i^T softmax(X_i W z_i)), in JAX.

    Args:
        data: the tokens.
        kind: of loss, as for `SelectionLoss`.

    Returns:
        A function of the weights: beta (d,) for W = diag(beta), W (d, d), or a pair (K, Q) for W = K Q^T.

    Raises:
        InputError: another loss.
    """
    import jax
    import jax.numpy as jnp

    if kind not in get_args(LossKind):
        raise unknown("loss", kind, get_args(LossKind))

    def loss(weights: "jax.typing.ArrayLike | tuple") -> "jax.Array":
        X, z, y, v = (jnp.asarray(array) for array in (data.X, data.z, data.y, data.v))
        if isinstance(weights, tuple):
            K, Q = (jnp.asarray(each) for each in weights)
            queries = (z @ Q) @ K.T
        else:
            W = jnp.asarray(weights)
            queries = z * W[None, :] if W.ndim == 1 else z @ W.T
        attention = jax.nn.softmax(jnp.einsum("ild,id->il", X, queries), axis=1)
        outputs = y * (jnp.einsum("il,ild->id", attention, X) @ v)
        return jnp.mean(jnp.exp(-outputs) if kind == "exponential" else jax.nn.softplus(-outputs))

    return loss
