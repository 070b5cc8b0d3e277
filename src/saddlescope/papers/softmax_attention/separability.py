"""Separability of Gaussian data: diagonal weights need far more dimensions.

The entry counts how often Gaussian tokens and queries can be separated, by any W and by diagonal ones, as the dimension
d grows. Every answer is proven: by weights with margins of 1, or by a Farkas certificate.

The paper says of Assumption 1 that Gaussian data meet it where d is larger than L and n. For W in full that is simple:
queries that are independent (d >= n) let W z_i be any vectors, and differences that are (d >= L - 1) let each of them
have margins of 1. Section 4 needs more, a diagonal W, which has d numbers instead of d^2.

With two tokens, L = 2, the features of the n samples are in general position and have random signs, so that the share
is known exactly: Cover's function counting theorem (1965), P = 2^(1-n) sum_{k < p} C(n-1, k), with p = d numbers for
diagonal weights and d^2 for W in full.
"""

from functools import partial
from math import comb

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.shared.share_curves import share_curve
from saddlescope.plot import Axis, Figure, Line, Mark, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

_KINDS = ("any W", "diagonal W")


class Params(EntryParams):
    """Sizes and trials."""

    samples: int = param(8, "n", ge=1)
    tokens: int = param(5, "L", ge=2)
    dims: tuple[int, ...] = param(
        (2, 3, 4, 5, 6, 8, 9, 12, 16, 20, 24, 28, 32), "d, with n + 1 and n (L - 1) among them"
    )
    pairs: int = param(12, "n of the data with two tokens", ge=2)
    pair_dims: tuple[int, ...] = param((2, 3, 4, 5, 6, 7, 8, 10), "their d")
    trials: int = param(200, "instances of each size", ge=1)
    seed: int = param(0, "of the data", ge=0)

    def check(self) -> None:
        for name in ("dims", "pair_dims"):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or values[0] < 1:
                raise InputError(f"{name} must be one or more, at least 1 and ascending; got {values!r}.")


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


claims = Claims()

claims.add(
    "any-w-above-n-and-l",
    "W separates whenever d >= max(n, L - 1)",
    quantity="instances that it does not",
    kind="printed",
    source="Section 3.1: for d larger than L and n; exact, see above. No exception is allowed",
    high=0.0,
)(partial(_count_inseparable, "any W", lambda run: run.n.values.clip(run.L.values - 1)))


@claims.add(
    "diagonal-w-above-n-and-l",
    "That does not carry over to the diagonal W of section 4",
    quantity="the share separated at d just above n and L",
    kind="own",
    source="This project's: less than half of them",
    high=0.5,
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


claims.add(
    "diagonal-w-above-all-differences",
    "A diagonal W separates whenever d >= n (L - 1)",
    quantity="instances that it does not",
    kind="printed",
    source="Features that are independent have any margins; exact. No exception is allowed",
    high=0.0,
)(partial(_count_inseparable, "diagonal W", lambda run: run.n.values * (run.L.values - 1)))

claims.add(
    "two-tokens-diagonal-w",
    "With two tokens, diagonal weights separate as often as Cover's theorem has it for d numbers",
    quantity="p-value",
    kind="printed",
    source="Cover (1965), exact; the bound is a level of one in a thousand",
    low=1e-3,
)(partial(_cover_p_value, "diagonal W"))

claims.add(
    "two-tokens-any-w",
    "And W in full as it has it for d^2",
    quantity="p-value",
    kind="printed",
    source="Cover (1965), exact; the bound is a level of one in a thousand",
    low=1e-3,
)(partial(_cover_p_value, "any W"))


@claims.add(
    "every-answer-is-proven",
    "Margins of 1, or a Farkas certificate",
    quantity="the worst residual, computed from all d^2 or d features",
    kind="printed",
    source="Farkas' lemma; the bound is rounding in sums of as many numbers",
    high=1e-12,
)
def _worst_proof(run: xr.Dataset) -> Estimate:
    count = run.sizes["size"] * run.attrs["trials"] * 2
    return Estimate(float(run.worst_proof.max()), remark=f"{count} answers")


metrics = (
    Metric(
        name="any_w",
        quantity="draws that some W separates, mean over sizes",
        statistic=lambda run: float(run.separable.sel(kind="any W").mean()),
    ),
    Metric(
        name="diagonal_w",
        quantity="draws that a diagonal W separates, mean over sizes",
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


entry = Entry(
    "softmax-attention/separability",
    "Separability of Gaussian data: diagonal weights need far more dimensions",
    citation=CITATION,
    source="Assumption 1, section 3.1",
    params=Params,
    quick=dict(dims=(3, 9, 32), pairs=6, pair_dims=(2, 3), trials=20),
    paper=dict(trials=2000),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
