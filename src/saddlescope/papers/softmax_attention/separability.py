"""Separability of Gaussian data: diagonal weights need far more dimensions   (Assumption 1, section 3.1)

The entry counts how often Gaussian tokens and queries can be separated, by any W and by diagonal ones, as the dimension
d grows. Every answer is proven: by weights with margins of 1, or by a Farkas certificate.

The paper says of Assumption 1 that Gaussian data meet it where d is larger than L and n. For W in full that is simple:
queries that are independent (d >= n) let W z_i be any vectors, and differences that are (d >= L - 1) let each of them
have margins of 1. Section 4 needs more, a diagonal W, which has d numbers instead of d^2.

With two tokens, L = 2, the features of the n samples are in general position and have random signs, so that the share
is known exactly: Cover's function counting theorem (1965), P = 2^(1-n) sum_{k < p} C(n-1, k), with p = d numbers for
diagonal weights and d^2 for W in full.
"""

from dataclasses import dataclass
from functools import partial
from math import comb

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.shared.share_curves import share_curve
from saddlescope.plot import Axis, Figure, Line, Mark, Panel
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric

_KINDS = ("any W", "diagonal W")


@dataclass(frozen=True, kw_only=True)
class Params:
    """Sizes and trials."""

    samples: int = 8  # n
    tokens: int = 5  # L
    dims: tuple[int, ...] = (2, 3, 4, 5, 6, 8, 9, 12, 16, 20, 24, 28, 32)  # d, with n + 1 and n (L - 1) among them
    pairs: int = 12  # n of the data with two tokens
    pair_dims: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 10)  # their d
    trials: int = 200  # instances of each size
    seed: int = 0  # of the data

    def __post_init__(self) -> None:
        parameter_checks.require_at_least(1, self, "samples", "trials")
        parameter_checks.require_at_least(2, self, "tokens", "pairs")
        parameter_checks.require_at_least(0, self, "seed")
        for name in ("dims", "pair_dims"):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or values[0] < 1:
                raise InputError(f"{name} must be one or more, at least 1 and ascending; got {values!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds."""
        return cls(dims=(3, 9, 32), pairs=6, pair_dims=(2, 3), trials=20)

    @classmethod
    def paper(cls) -> "Params":
        """More trials; the paper has none."""
        return cls(trials=2000)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Count the separable instances of every size."""
    jobs = [(params.samples, params.tokens, d) for d in params.dims]
    jobs += [(params.pairs, 2, d) for d in params.pair_dims]
    parts = []
    for k, size in enumerate(jobs):
        context.report(k / len(jobs), f"(n, L, d) = {size}")
        parts.append(context.cached(f"size-{k}", partial(_count_separable, size, params)))
    context.report(1.0, "done")
    return xr.concat(parts, "size").assign_attrs(trials=params.trials)


def _count_separable(size: tuple[int, int, int], params: Params) -> xr.Dataset:
    from saddlescope.models import gaussian_tokens, separability

    n, L, d = size
    separable, worst, conflicts = np.zeros(2, int), np.zeros(2), np.zeros(2)
    for trial in range(params.trials):
        data = gaussian_tokens(n, L, d, seed=params.seed + trial)
        for kind in range(2):
            answer = separability(data, diagonal=kind == 1)
            separable[kind] += answer.separable
            conflicts[kind] += len(answer.conflict)
            if answer.multipliers is None:
                assert answer.weights is not None
                residual = 1 - float(data.margins(answer.weights).min())
            else:
                residual = _farkas_residual(data, answer.multipliers, kind == 1)
            worst[kind] = max(worst[kind], residual)
    failed = np.maximum(params.trials - separable, 1)
    return xr.Dataset(
        {
            "separable": ("kind", separable),
            "worst_proof": ("kind", worst),
            "conflict_size": ("kind", conflicts / failed),
            "cover": ("kind", [_cover_share(n, d * d), _cover_share(n, d)] if L == 2 else [np.nan, np.nan]),
        },
        coords={"kind": list(_KINDS), "n": n, "L": L, "d": d},
    )


def _farkas_residual(data, multipliers: np.ndarray, diagonal: bool) -> float:
    """Return |sum lambda F| over sum lambda |F|, from all features."""
    F = data.features if diagonal else np.einsum("imd,ie->imde", data.differences, data.z)
    total, sizes = np.tensordot(multipliers, F, 2), np.sqrt(np.sum(F**2, axis=tuple(range(2, F.ndim))))
    return float(np.linalg.norm(total) / np.sum(multipliers * sizes))


def _cover_share(n: int, numbers: int) -> float:
    """Return the share of sign patterns of n points in general position that `numbers` weights can separate."""
    return sum(comb(n - 1, k) for k in range(min(numbers, n))) / 2 ** (n - 1)


def _select_many_tokens(run: xr.Dataset) -> xr.Dataset:
    return run.isel(size=run.L.values > 2)


def _count_inseparable(kind: str, least_dim, run: xr.Dataset) -> Estimate:
    """Count the inseparable instances where d is at least the sufficient one."""
    chosen = run.isel(size=run.d.values >= least_dim(run)).sel(kind=kind)
    if not chosen.sizes["size"]:
        return Estimate.unresolved("No size of the run has d that large.")
    count = chosen.sizes["size"] * run.attrs["trials"]
    return Estimate(
        float(count - chosen.separable.sum()), remark=f"of {count} instances, d from {chosen.d.values.min()}"
    )


def _share_just_above(run: xr.Dataset) -> Estimate:
    """Return the share that diagonal weights separate at the smallest d above n and L."""
    many = _select_many_tokens(run)
    enough = many.isel(size=many.d.values > max(many.n.values[0], many.L.values[0]))
    if not enough.sizes["size"]:
        return Estimate.unresolved("No size of the run has d above n and L.")
    first = enough.isel(size=0)
    share = Estimate.share(first.separable.sel(kind="diagonal W"), run.attrs["trials"])
    return Estimate(
        share.value, share.uncertainty, f"{share.remark}, (n, L, d) = ({first.n:d}, {first.L:d}, {first.d:d})"
    )


def _cover_p_value(kind: str, run: xr.Dataset) -> Estimate:
    """Return the p-value of the counts against Cover's shares, by chi^2 over dimensions where both are expected."""
    from scipy.stats import chi2

    pairs, trials = run.isel(size=run.L.values == 2).sel(kind=kind), run.attrs["trials"]
    share = pairs.cover.values
    open_ones = np.minimum(share, 1 - share) * trials >= 1
    if not np.any(open_ones):
        return Estimate.unresolved("No dimension of the run has both answers.")
    expected = share[open_ones] * trials
    deviation = (pairs.separable.values[open_ones] - expected) ** 2 / (expected * (1 - share[open_ones]))
    dims = ", ".join(str(d) for d in pairs.d.values[open_ones])
    return Estimate(
        float(chi2.sf(deviation.sum(), len(deviation))), remark=f"d = {dims}; chi^2 = {deviation.sum():.3g}"
    )


def _worst_proof(run: xr.Dataset) -> Estimate:
    count = run.sizes["size"] * run.attrs["trials"] * 2
    return Estimate(float(run.worst_proof.max()), remark=f"{count} answers")


claims = (
    Claim(
        name="any-w-above-n-and-l",
        says="W separates whenever d >= max(n, L - 1): instances that it does not",
        source="Section 3.1: for d larger than L and n; exact, see above. No exception is allowed",
        statistic=partial(_count_inseparable, "any W", lambda run: run.n.values.clip(run.L.values - 1)),
        high=0.0,
    ),
    Claim(
        name="diagonal-w-above-n-and-l",
        says="That does not carry over to the diagonal W of section 4: the share separated at d just above n and L",
        source="This project's: less than half of them",
        statistic=_share_just_above,
        high=0.5,
    ),
    Claim(
        name="diagonal-w-above-all-differences",
        says="A diagonal W separates whenever d >= n (L - 1): instances that it does not",
        source="Features that are independent have any margins; exact. No exception is allowed",
        statistic=partial(_count_inseparable, "diagonal W", lambda run: run.n.values * (run.L.values - 1)),
        high=0.0,
    ),
    Claim(
        name="two-tokens-diagonal-w",
        says="With two tokens, diagonal weights separate as often as Cover's theorem has it for d numbers: p-value",
        source="Cover (1965), exact; the bound is a level of one in a thousand",
        statistic=partial(_cover_p_value, "diagonal W"),
        low=1e-3,
    ),
    Claim(
        name="two-tokens-any-w",
        says="And W in full as it has it for d^2: p-value",
        source="Cover (1965), exact; the bound is a level of one in a thousand",
        statistic=partial(_cover_p_value, "any W"),
        low=1e-3,
    ),
    Claim(
        name="every-answer-is-proven",
        says="Margins of 1, or a Farkas certificate: the worst residual, computed from all d^2 or d features",
        source="Farkas' lemma; the bound is rounding in sums of as many numbers",
        statistic=_worst_proof,
        high=1e-12,
    ),
)

metrics = (
    Metric(
        name="any_w",
        says="draws that some W separates, mean over sizes",
        statistic=lambda run: float(run.separable.sel(kind="any W").mean()),
    ),
    Metric(
        name="diagonal_w",
        says="draws that a diagonal W separates, mean over sizes",
        statistic=lambda run: float(run.separable.sel(kind="diagonal W").mean()),
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the shares against d, for many tokens and for two, with Cover's theorem."""
    many, trials = _select_many_tokens(run), run.attrs["trials"]
    pairs = run.isel(size=run.L.values == 2)

    def shares(part: xr.Dataset) -> list:
        counts, of = (part.separable.sel(kind=kind).values for kind in _KINDS), np.full(part.sizes["size"], trials)
        return [
            mark
            for color, (kind, count) in enumerate(zip(_KINDS, counts, strict=True))
            for mark in share_curve(part.d.values, count, of, kind, color, points=part is pairs)
        ]

    n, L = int(many.n.values[0]), int(many.L.values[0])
    laws = [
        Line(x=pairs.d.values, y=pairs.cover.sel(kind=kind).values, group="Cover's theorem", color=2, style="dashed")
        for kind in _KINDS
    ]
    d = Axis("dimension d")
    return [
        Figure(
            name="shares",
            title="Diagonal weights need far more dimensions",
            caption=f"Share of {trials} Gaussian instances that can be separated by any W and by diagonal ones, with "
            f"95 % intervals. Left: n = {n} samples of L = {L} tokens. Right: n = {int(pairs.n.values[0])} samples of "
            "two tokens, and Cover's theorem.",
            panels=(
                Panel(
                    title=f"{L} tokens",
                    x=d,
                    y=Axis("share separable", range=(-0.03, 1.03)),
                    marks=(
                        *shares(many),
                        Mark(at=float(max(n, L - 1)), label="max(n, L−1)"),
                        Mark(at=float(n * (L - 1)), label="n(L−1)"),
                    ),
                ),
                Panel(
                    title="two tokens",
                    x=d,
                    y=Axis("share separable", range=(-0.03, 1.03)),
                    marks=(*laws, *shares(pairs)),
                ),
            ),
        )
    ]
