"""Token data at random: Gaussian, well conditioned for the l1 problem, and such as Assumptions 2 and 4 ask for.

All have optimal tokens of score 0: a common shift of the scores only rescales the time of the flow under the
exponential loss. Where no gap is given it is the smallest round one that meets Assumption 3 at zero weights.

Sheen, Chen, Wang and Zhou (2024), Assumptions 2 to 4; the paper has no experiments, so the laws are this package's.
"""

import math

import numpy as np

from saddlescope.errors import InputError
from saddlescope.models.tokens import TokenData

_HEAD = 4.0  # |v| in units of the gap: tokens then move by a fourth of a unit to get their scores


def gaussian_tokens(
    samples: int, tokens: int, dim: int, *, seed: int, gap: float | None = None, spread: float = 0.0
) -> TokenData:
    """Gaussian tokens and queries, moved along v to have the scores 0 (optimal) and -gap (all others).

    Args:
        samples: n.
        tokens: L, at least 2.
        dim: d.
        seed: of the draw.
        gap: of the scores, positive; by default L ln n (1 for one sample), which meets Assumption 3 at zero weights.
        spread: makes the scores of other tokens unequal (against Assumption 2): gaps are uniform within that share of
            `gap` on either side, in [0, 1).

    Raises:
        InputError: a number out of its range.
    """
    rng, gap = _checked(samples, tokens, dim, seed, gap)
    if not 0 <= spread < 1:
        raise InputError(f"spread must be at least 0 and below 1; got {spread!r}.")
    X, z = rng.standard_normal((samples, tokens, dim)), rng.standard_normal((samples, dim))
    v = rng.standard_normal(dim)
    v *= _HEAD * gap / np.linalg.norm(v)
    y = rng.choice((-1.0, 1.0), samples)
    gaps = gap * (1 + spread * rng.uniform(-1, 1, (samples, tokens)))
    gaps[np.arange(samples), rng.integers(tokens, size=samples)] = 0.0
    return TokenData(_with_scores(X, v, -y[:, None] * gaps), z, y, v)


def gap_for_small_initial_loss(samples: int, tokens: int) -> float:
    """L ln n, or 1 for one sample: a gap of equal scores that meets Assumption 3 at zero weights, nearly the smallest.

    There it reads n e^(-gap/L) <= 1 + (n - 1) e^-gap.

    Raises:
        InputError: no sample, or fewer than two tokens.
    """
    for name, value, least in (("samples", samples, 1), ("tokens", tokens, 2)):
        if value < least:
            raise InputError(f"{name} must be at least {least}; got {value!r}.")
    return tokens * math.log(samples) if samples > 1 else 1.0


def _with_scores(X: np.ndarray, v: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The tokens nearest to X with x.v as wanted."""
    return X + (wanted - X @ v)[..., None] * (v / (v @ v))


def _checked(samples: int, tokens: int, dim: int, seed: int, gap: float | None) -> tuple[np.random.Generator, float]:
    for name, value, least in (("dim", dim, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{name} must be at least {least}; got {value!r}.")
    default = gap_for_small_initial_loss(samples, tokens)
    if gap is not None and not 0 < gap < math.inf:
        raise InputError(f"gap must be positive and finite; got {gap!r}.")
    return np.random.default_rng(seed), default if gap is None else gap
