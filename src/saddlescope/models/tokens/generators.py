"""Random token data: Gaussian, well conditioned for the l1 problem, and meeting Assumptions 2 and 4.

The optimal tokens have score 0, except where the assumptions forbid it: a common shift of the scores only rescales the
time of the flow under the exponential loss. The default gap meets Assumption 3 at zero weights.

Sheen, Chen, Wang and Zhou (2024), Assumptions 2 to 4; the paper has no experiments, so the laws are this package's.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.real_arrays import real_array
from saddlescope.models.tokens.data import TokenData

_HEAD = 4.0  # |v| in units of the gap: tokens then move by a quarter of a unit to get their scores
_DRAWS = 10_000  # of conditioned data; the rarest sizes tried, (20, 10, 200), take about 30
_LARGEST_CORRELATION = 0.2  # of a feature off the support with the multipliers; 1 is where it would join the solution
_LEAST_SLACK = 0.05  # by which margins that are not active exceed the active ones
_LARGEST_CORRECTION = 0.5  # of the direction at ln t, in units of 1 / ln t


@validate_arguments
def gaussian_tokens(
    samples: int, tokens: int, dim: int, *, seed: int, gap: float | None = None, spread: float = 0.0
) -> TokenData:
    """Draw Gaussian tokens and queries, moved along v to have the scores 0 (optimal) and -gap (all others).

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


@validate_arguments
def conditioned_tokens(
    samples: int,
    tokens: int,
    dim: int,
    *,
    seed: int,
    gap: float | None = None,
    support: int = 3,
    shrink: float = 0.02,
    report: Report = silent,
) -> TokenData:
    """Draw well-conditioned data on which the diagonal flow soon reaches the sparse l1 solution of its theorem.

    A teacher with entries +-1 on `support` coordinates picks the optimal tokens by a margin of 1 or more; the queries'
    other entries are shrunk; the head v is 0 on the support, so that moving tokens along it to equal scores does not
    touch the teacher's margins. Instances are drawn until the l1 solution (min |beta|_1 with all margins 1 or more)
    has the teacher's support and as many active margins, and

    - features off the support correlate little with the multipliers, |sum lambda_il B_il,j| <= 0.2: those weights
      would grow like mu to that power;
    - other margins exceed the active ones by 5 %;
    - the active margins u_k = ln t + ln mu + ln(C / lambda_k) + o(1) differ so little that the direction is off by at
      most 0.5 / ln t, relative to the solution's length.

    On instances of other seeds than those of the tests the direction was within 5.4e-4 at ln t = 1e3, 5.4e-5 at 1e4
    and 8.4e-7 at 1e6, from omega_0 = 0.3.

    Args:
        samples: n.
        tokens: L, at least 2.
        dim: d, above `support`.
        seed: of the draws.
        gap: of the scores, positive; as for `gaussian_tokens`.
        support: number of coordinates of the solution.
        shrink: factor of the queries' entries off the support, positive.
        report: called after each draw with the fraction of the allowed draws and a note.

    Raises:
        InputError: a number out of its range, or no such instance was found.
    """
    rng, gap = _checked(samples, tokens, dim, seed, gap)
    if not 1 <= support < dim:
        raise InputError(f"support must be at least 1 and below dim={dim}; got {support!r}.")
    if not 0 < shrink < math.inf:
        raise InputError(f"shrink must be positive and finite; got {shrink!r}.")
    for draw in range(1, _DRAWS + 1):
        data, on = _teacher_tokens(rng, samples, tokens, dim, gap, support, shrink)
        if _well_conditioned(data, on):
            report(1.0, f"draw {draw}")
            return data
        report(draw / _DRAWS, f"draw {draw}")
    raise InputError(
        f"support must allow a well conditioned instance of size {(samples, tokens, dim)!r}; got support={support!r}"
        f" and shrink={shrink!r}, and none in {_DRAWS} draws. Lower shrink or samples."
    )


@validate_arguments
def aligned_tokens(
    samples: int,
    tokens: int,
    dim: int,
    *,
    seed: int,
    gap: float | None = None,
    ratio: ArrayLike | float = 0.0,
    signed: bool = False,
) -> TokenData:
    """Draw data that meet Assumptions 2 and 4: optimal tokens, queries along n orthogonal axes; other tokens in pairs.

    x_i,opt and z_i lie along a_i, of lengths within a factor e^(1/2) of 1, and pairs are c_i x_i,opt +- e_ik. The two
    assumptions together force v.e_ik = 0, one c_i for all pairs of a sample, and gamma_il = c_i gamma_i,opt, so that
    the optimal scores are gap / (1 - c_i).

    Args:
        samples: n.
        tokens: L, odd.
        dim: d, at least n, and at least 3 (2 for one sample), so that directions are left for e_ik.
        seed: of the draw.
        gap: of the scores, positive; as for `gaussian_tokens`, and then Assumption 3 holds where all c_i are equal.
        ratio: c_i, in [-1, 1), one number or one per sample.
        signed: True: z_i points along x_i,opt or against it at random (Assumption 4 (ii) allows both). False: along it.

    Raises:
        InputError: a number out of its range.
    """
    rng, gap = _checked(samples, tokens, dim, seed, gap)
    if tokens % 2 == 0:
        raise InputError(f"tokens must be odd: one optimal, the others in pairs (Assumption 4); got {tokens!r}.")
    if dim < max(samples, min(samples, 2) + 1):
        raise InputError(f"dim must be at least {max(samples, min(samples, 2) + 1)}; got {dim!r}.")
    c = real_array("ratio", ratio)
    if c.shape not in ((), (samples,)) or not np.all((c >= -1) & (c < 1)):
        raise InputError(f"ratio must be in [-1, 1), one number or one per sample; got {ratio!r}.")
    c = np.broadcast_to(c, (samples,))
    axes = np.linalg.qr(rng.standard_normal((dim, samples)))[0].T
    y = rng.choice((-1.0, 1.0), samples)
    signs = rng.choice((-1.0, 1.0), samples) if signed else np.ones(samples)
    lengths, query_lengths = np.exp(rng.uniform(-0.5, 0.5, (2, samples)))
    best = lengths[:, None] * axes
    v = (y * gap / (1 - c) / lengths) @ axes
    X = np.empty((samples, tokens, dim))
    for i in range(samples):
        allowed = np.linalg.qr(np.stack([axes[i], v]).T)[0] if samples > 1 else axes[:1].T
        sides = rng.standard_normal((tokens // 2, dim))
        sides -= (sides @ allowed) @ allowed.T
        sequence = np.concatenate([best[i][None], c[i] * best[i] + sides, c[i] * best[i] - sides])
        X[i] = rng.permutation(sequence)
    return TokenData(X, (signs * query_lengths)[:, None] * axes, y, v)


@validate_arguments
def with_gaps(data: TokenData, gaps: ArrayLike | float) -> TokenData:
    """Return the data with other gaps: only tokens that are not optimal are moved, along v.

    Args:
        data: the tokens.
        gaps: delta_il as in `TokenData.gaps`, positive, (n, m), or one number.

    Raises:
        InputError: gaps of another shape, or not positive and finite.
    """
    wanted = real_array("gaps", gaps)
    if wanted.shape not in ((), data.gaps.shape) or not np.all(wanted > 0):
        raise InputError(f"gaps must be positive, a number or an array of shape {data.gaps.shape!r}; got {gaps!r}.")
    scores = data.scores.copy()
    np.put_along_axis(scores, data.others, data.optimal_scores[:, None] - np.broadcast_to(wanted, data.gaps.shape), 1)
    X = _with_scores(data.X, data.v, data.y[:, None] * scores)
    every = np.arange(data.samples)
    X[every, data.optimal] = data.X[every, data.optimal]
    return TokenData(X, data.z, data.y, data.v)


def gap_for_small_initial_loss(samples: int, tokens: int) -> float:
    """Return L ln n, or 1 for one sample: nearly the smallest gap that meets Assumption 3 at zero weights.

    For equal scores, Assumption 3 reads n e^(-gap/L) <= 1 + (n - 1) e^-gap.

    Raises:
        InputError: no sample, or fewer than two tokens.
    """
    for name, value, least in (("samples", samples, 1), ("tokens", tokens, 2)):
        if value < least:
            raise InputError(f"{name} must be at least {least}; got {value!r}.")
    return tokens * math.log(samples) if samples > 1 else 1.0


def _with_scores(X: np.ndarray, v: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the tokens nearest to X with the wanted x.v."""
    size = np.linalg.norm(v)
    return X + ((wanted - X @ v) / size)[..., None] * (v / size)


def _checked(samples: int, tokens: int, dim: int, seed: int, gap: float | None) -> tuple[np.random.Generator, float]:
    for name, value, least in (("dim", dim, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{name} must be at least {least}; got {value!r}.")
    default = gap_for_small_initial_loss(samples, tokens)
    if gap is not None and not 0 < gap < math.inf:
        raise InputError(f"gap must be positive and finite; got {gap!r}.")
    return np.random.default_rng(seed), default if gap is None else gap


def _teacher_tokens(
    rng: np.random.Generator, samples: int, tokens: int, dim: int, gap: float, support: int, shrink: float
) -> tuple[TokenData, np.ndarray]:
    """Draw data for `conditioned_tokens`, with the mask (d,) of the teacher's support."""
    X, z = rng.standard_normal((samples, tokens, dim)), rng.standard_normal((samples, dim))
    teacher = np.zeros(dim)
    teacher[rng.choice(dim, support, replace=False)] = rng.choice((-1.0, 1.0), support)
    on = teacher != 0
    z[:, ~on] *= shrink
    v = np.where(on, 0.0, rng.standard_normal(dim))
    v *= _HEAD * gap / np.linalg.norm(v)
    y = rng.choice((-1.0, 1.0), samples)
    queries, every = z * teacher, np.arange(samples)
    attention = np.einsum("ild,id->il", X, queries)
    best, ranked = attention.argmax(axis=1), np.sort(attention, axis=1)
    short = np.maximum(0.0, rng.uniform(1, 2, samples) - (ranked[:, -1] - ranked[:, -2]))
    X[every, best] += (short / np.sum(queries**2, axis=1))[:, None] * queries
    gaps = np.full((samples, tokens), gap)
    gaps[every, best] = 0.0
    return TokenData(_with_scores(X, v, -y[:, None] * gaps), z, y, v), on


def _well_conditioned(data: TokenData, on: np.ndarray) -> bool:
    """Return True if the l1 problem of the data has the properties stated in `conditioned_tokens`."""
    from scipy.optimize import linprog

    B = data.features.reshape(-1, data.dim)
    answer = linprog(np.ones(2 * data.dim), A_ub=np.hstack([-B, B]), b_ub=-np.ones(len(B)), method="highs")
    if answer.status != 0:
        return False
    beta, multipliers = answer.x[: data.dim] - answer.x[data.dim :], -answer.ineqlin.marginals
    active = multipliers > 1e-9
    if not np.array_equal(beta != 0, on) or active.sum() != on.sum():
        return False
    slack = (B @ beta - 1)[~active].min(initial=math.inf)
    behind = np.log(multipliers[active].max() / multipliers[active])
    correction = np.linalg.norm(np.linalg.solve(B[np.ix_(active, on)], behind)) / np.linalg.norm(beta)
    return bool(
        slack >= _LEAST_SLACK
        and np.abs(multipliers @ B)[~on].max() <= _LARGEST_CORRELATION
        and correction <= _LARGEST_CORRECTION
    )
