"""`SelectionLoss` in JAX: the same rates, their derivatives and the loss, for compiled flows.

Formulas and symbols are those of `saddlescope.models.tokens.losses`, which is the specification.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_TINY = -37.0  # logarithm of q below which ln(log1p(q)) = ln(q) to rounding

Scalar = Float[Array, ""]


class SelectionLossInJax(eqx.Module):
    """Loss of margins (n, m) as a pytree, with the functions that a compiled margin flow needs.

    Attributes:
        optimal_scores: gamma_i,opt, (n,).
        gaps: delta_il, positive, (n, m).
        logistic: True for l(x) = ln(1 + e^-x), False for l(x) = e^-x.
        equal_gaps: True if all gaps of each sample are equal, so that all rates are positive.
    """

    optimal_scores: Float[Any, "n"]
    gaps: Float[Any, "n m"]
    logistic: bool = eqx.field(static=True)
    equal_gaps: bool = eqx.field(static=True)

    def log_excess(self, margins: Float[Array, "n m"]) -> Scalar:
        """Return ln(L(u) - L*)."""
        log_s = _log_sum(jnp.log(self.gaps) + _log_softmax(margins)[1])
        s = jnp.exp(log_s)
        safe = jnp.where(s == 0, 1.0, s)
        log_expm1 = log_s + s + jnp.log(jnp.where(s == 0, 1.0, -jnp.expm1(-s) / safe))
        if self.logistic:
            log_q = log_expm1 - jnp.logaddexp(0.0, self.optimal_scores)
            each = jnp.where(log_q < _TINY, log_q, jnp.log(jnp.logaddexp(0.0, jnp.maximum(log_q, _TINY))))
        else:
            each = log_expm1 - self.optimal_scores
        return _log_sum(each[None])[0] - np.log(each.shape[0])

    def log_rates(self, margins: Float[Array, "n m"]) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
        """Return ln|r| and the signs of r."""
        log_optimal, log_others = _log_softmax(margins)
        log_b, signs = self._log_brackets(log_optimal, log_others)
        return self._log_slope(log_others)[:, None] + log_others + log_b, signs

    def rate_jacobian(
        self, margins: Float[Array, "n m"], log_factor: Scalar
    ) -> tuple[Float[Array, "n m"], Float[Array, "n m m"]]:
        """Return R = e^log_factor r and dR_il / du_ik."""
        log_optimal, log_others = _log_softmax(margins)
        log_b, signs = self._log_brackets(log_optimal, log_others)
        sigma = jnp.exp(log_others)
        rates = signs * jnp.exp(self._log_slope(log_others)[:, None] + log_others + log_b + log_factor)
        pull = sigma - self._curvature(log_others)[:, None] * signs * jnp.exp(log_others + log_b)
        jacobian = rates[:, :, None] * pull[:, None, :] + sigma[:, :, None] * rates[:, None, :]
        return rates, jacobian - rates[:, :, None] * jnp.eye(rates.shape[1])[None]

    def _log_slope(self, log_others: Float[Array, "n m"]) -> Float[Array, "n"]:
        f = self._outputs(log_others)
        return (-jnp.logaddexp(0.0, f) if self.logistic else -f) - np.log(f.shape[0])

    def _curvature(self, log_others: Float[Array, "n m"]) -> Float[Array, "n"]:
        f = self._outputs(log_others)
        return jnp.exp(-jnp.logaddexp(0.0, -f)) if self.logistic else jnp.ones_like(f)

    def _outputs(self, log_others: Float[Array, "n m"]) -> Float[Array, "n"]:
        return self.optimal_scores - jnp.sum(self.gaps * jnp.exp(log_others), axis=1)

    def _log_brackets(
        self, log_optimal: Float[Array, "n"], log_others: Float[Array, "n m"]
    ) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
        log_first = jnp.log(self.gaps) + log_optimal[:, None]
        if self.equal_gaps:
            return log_first, jnp.ones_like(log_first)
        between = self.gaps[:, :, None] - self.gaps[:, None, :]
        log_terms = jnp.log(jnp.abs(between)) + log_others[:, None, :]
        top = jnp.maximum(log_first, log_terms.max(axis=2))
        total = jnp.exp(log_first - top) + jnp.sum(jnp.sign(between) * jnp.exp(log_terms - top[:, :, None]), axis=2)
        return top + jnp.log(jnp.abs(total)), jnp.sign(total)


def _log_softmax(margins: Float[Array, "n m"]) -> tuple[Float[Array, "n"], Float[Array, "n m"]]:
    top = jnp.maximum(0.0, -margins.min(axis=1))
    optimal, others = -top, -margins - top[:, None]  # the largest is 0
    log_total = jnp.log(jnp.exp(optimal) + jnp.sum(jnp.exp(others), axis=1))
    return optimal - log_total, others - log_total[:, None]


def _log_sum(terms: Float[Array, "n m"]) -> Float[Array, "n"]:
    """Return the logarithm of the sums of e^terms, all finite."""
    top = terms.max(axis=1)
    return top + jnp.log(jnp.sum(jnp.exp(terms - top[:, None]), axis=1))
