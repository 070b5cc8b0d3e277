"""KKT residuals of a diagonal flow's direction for the l1 problem: the approximate KKT points of appendix A.5.

    beta^       beta / mu, the direction normalised by its smallest margin mu = min_k B_k.beta
    lambda_k    candidate multipliers, at least 0
    beta~       beta^ with the entries outside the limit's support set to 0

Definition A.3 requires |beta~ - beta^| <= epsilon', and the proof of Theorem 4.1

    (C1)  |I - sum_k lambda_k B_k| <= epsilon for an I in the subdifferential of |.|_1 at beta~,
    (C2)  B_k.beta^ >= 1,        (C3)  lambda_k (B_k.beta^ - 1) <= delta.

The proof takes phi / ln mu, phi = 2 int r dt of Lemma A.1. Where the weights are large, |sum_k phi_k B_k|_j is
ln(2 |beta_j| / w0^2) = ln mu + ln(2 |beta^_j| / w0^2), so that its epsilon falls like 1 / ln mu, that is like
1 / ln ln t: it is not small at any practical time. The derivative d phi / d ln mu has the same limit, does not depend
on w0, and converges like a power of 1 / ln t.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import shown, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.real_arrays import real_array


@dataclass(frozen=True, eq=False)
class KKTResiduals:
    """Residuals of the KKT conditions of the l1 problem, for a direction and multipliers.

    Attributes:
        stationarity: epsilon of (C1), the Euclidean distance of sum_k lambda_k B_k from the subdifferential.
        distance: epsilon', the Euclidean distance of beta~ from beta^.
        slackness: delta of (C3), the largest lambda_k (B_k.beta^ - 1).
        least_margin: of beta^, at least 1 in (C2); below 1 only by rounding.
    """

    stationarity: float
    distance: float
    slackness: float
    least_margin: float


@validate_arguments
def averaged_multipliers(phi: ArrayLike, log_margin: float) -> Float[np.ndarray, "n m"]:
    """Return the multipliers of the paper's proof, phi / ln mu.

    Args:
        phi: of Lemma A.1, (n, m).
        log_margin: ln mu, positive: the proof assumes margins above 1.

    Raises:
        InputError: a margin that is not above 1, or a phi that is not finite.
    """
    if not 0 < log_margin < np.inf:
        raise InputError(f"log_margin must be positive and finite; got {log_margin!r}.")
    return real_array("phi", phi) / log_margin


@validate_arguments
def incremental_multipliers(
    features: ArrayLike, beta: ArrayLike, rates: ArrayLike, *, offsets: ArrayLike | float = 0.0
) -> Float[np.ndarray, "n m"]:
    """Return the multipliers d phi / d ln mu, from the rates at one time of the flow.

    With phi' = 2 r and Lemma A.1, beta' = sqrt(beta^2 + w0^4) (B phi'), and mu' is that of the smallest margin.

    Args:
        features: B_k, (n, m, d).
        beta: the diagonal weights, (d,).
        rates: r_k = -dL/du_k, (n, m), up to one positive factor: they may have been divided by the largest.
        offsets: w0^2, (d,) or one number; 0 to neglect it, where beta is far larger.

    Raises:
        InputError: shapes that do not fit, negative offsets, or rates that do not raise the smallest margin.
    """
    B, weights = _checked(features, beta)
    r = real_array("rates", rates, B.shape[:2])
    squares = np.asarray(offsets, float)
    if squares.shape not in ((), weights.shape) or not np.all((squares >= 0) & (squares < np.inf)):
        raise InputError(f"offsets must be finite, at least 0, one or {len(weights)}; got {shown(offsets)}.")
    margins = B @ weights
    slope = np.hypot(weights, squares) * np.einsum("im,imd->d", r, B)
    lowest = np.unravel_index(np.argmin(margins), margins.shape)
    relative_rise = float(B[lowest] @ slope) / float(margins[lowest])
    if not 0 < relative_rise < np.inf:
        raise InputError(f"rates must raise a positive smallest margin; got {relative_rise!r} for d ln mu.")
    return r / relative_rise


@validate_arguments
def kkt_residuals(features: ArrayLike, beta: ArrayLike, multipliers: ArrayLike, support: ArrayLike) -> KKTResiduals:
    """Return the residuals of (C1) to (C3) at a direction with multipliers.

    Args:
        features: B_k, (n, m, d).
        beta: the diagonal weights, of any positive length, (d,); all margins must be positive.
        multipliers: lambda_k, (n, m).
        support: True where the limit of beta^ is not 0, (d,), such as the support of the solution.

    Raises:
        InputError: shapes that do not fit, a negative multiplier, or a margin that is not positive.
    """
    B, weights = _checked(features, beta)
    lambdas, inside = real_array("multipliers", multipliers, B.shape[:2]), np.asarray(support)
    if np.any(lambdas < 0):
        raise InputError(f"multipliers must be at least 0; got {lambdas.tolist()!r}.")
    if inside.shape != weights.shape or inside.dtype != bool:
        raise InputError(f"support must be booleans of shape {weights.shape!r}; got {inside!r}.")
    margins = B @ weights
    mu = float(margins.min())
    if not mu > 0:
        raise InputError(f"beta must have positive margins; got {mu!r} as the smallest.")
    return KKTResiduals(
        stationarity=_from_subdifferential(np.einsum("im,imd->d", lambdas, B), weights, inside),
        distance=float(np.linalg.norm(weights[~inside])) / mu,
        slackness=float(np.max(lambdas * (margins - mu) / mu)),
        least_margin=float((B @ (weights / mu)).min()),
    )


def _from_subdifferential(
    combined: Float[np.ndarray, "d"], weights: Float[np.ndarray, "d"], inside: Bool[np.ndarray, "d"]
) -> float:
    """Return the distance from the subdifferential of |.|_1: the sign where beta~ is not 0, else [-1, 1]."""
    signed = inside & (weights != 0)
    gaps = np.where(signed, combined - np.sign(weights), np.maximum(np.abs(combined) - 1, 0))
    return float(np.linalg.norm(gaps))


def _checked(features: ArrayLike, beta: ArrayLike) -> tuple[Float[np.ndarray, "n m d"], Float[np.ndarray, "d"]]:
    B = real_array("features", features, (None, None, None))
    weights = real_array("beta", beta)
    if weights.shape != B.shape[2:]:
        raise InputError(f"features and beta must be (n, m, d) and (d,); got shapes {B.shape!r} and {weights.shape!r}.")
    return B, weights
