"""Separability of Gaussian data: diagonal weights need far more dimensions.

The entry counts the Gaussian instances that any W can separate, and those that diagonal ones can, as the dimension d
grows. Every answer has a proof: weights with margins of 1, or a Farkas certificate.

The paper recalls that Gaussian data meet Assumption 1 if d is larger than L and n. For a full W d >= n is enough: with
independent queries W z_i = y_i v is possible, and its margins are the gaps of the scores. Section 4 needs a diagonal W,
which has d numbers instead of d²; n (L - 1) of them are enough, since independent features can have any margins.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.shared.curves import share_curve
from saddlescope.plot import Axis, Figure, Figures, Mark, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_KINDS = ("any W", "diagonal W")

_APART = 10**6  # in seeds, between sizes


class Params(EntryParams):
    """Sizes and trials."""

    samples: int = param(8, "number of samples n", ge=1)
    tokens: int = param(5, "number of tokens per sample L", ge=2)
    dims: tuple[int, ...] = param(
        (2, 3, 4, 5, 6, 8, 9, 12, 16, 20, 24, 28, 32), "dimensions d", ge=1, order="increasing"
    )
    trials: int = param(200, "number of instances of each dimension", ge=1, le=500_000)
    seed: int = param(0, "seed of the first instance of each dimension; the others count up", ge=0, lt=500_000)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Count the separable instances of every dimension."""
    counted = context.over({"d": params.dims}, partial(_count_separable, params))
    return counted.assign_attrs(trials=params.trials, n=params.samples, L=params.tokens)


def _count_separable(params: Params, d: int, step: RunContext) -> xr.Dataset:
    from saddlescope.models import gaussian_tokens, separability

    separable, worst = np.zeros(2, int), np.zeros(2)
    for trial in range(params.trials):
        seed = params.seed + trial + _APART * (1000 * params.tokens + d)  # no dimension shares draws
        data = gaussian_tokens(params.samples, params.tokens, d, seed=seed)
        for kind in range(2):
            answer = separability(data, diagonal=kind == 1)
            separable[kind] += answer.separable
            if answer.multipliers is None:
                assert answer.weights is not None
                residual = 1 - float(data.margins(answer.weights).min())
            else:
                residual = _farkas_residual(data, answer.multipliers, kind == 1)
            worst[kind] = max(worst[kind], residual)
    return xr.Dataset({"separable": ("kind", separable), "worst_proof": ("kind", worst)}, {"kind": list(_KINDS)})


def _farkas_residual(data: "TokenData", multipliers: np.ndarray, diagonal: bool) -> float:
    """Return |Σ λ F| over Σ λ |F|, from all features."""
    F = data.features if diagonal else np.einsum("imd,ie->imde", data.differences, data.z)
    total, sizes = np.tensordot(multipliers, F, 2), np.sqrt(np.sum(F**2, axis=tuple(range(2, F.ndim))))
    return float(np.linalg.norm(total) / np.sum(multipliers * sizes))


def answers_are_proven(run: xr.Dataset) -> bool:
    """Every answer has a proof, weights with margins of 1 or a Farkas certificate, to 1e-12"""
    return bool(run.worst_proof.max() <= 1e-12)


claims = Claims(
    requires=[answers_are_proven],
    limits="The paper does not claim that diagonal weights separate these data; the share is of one size. That some W "
    "does for d ≥ n is no claim: with independent queries W z_i = y_i v separates.",
)


@claims.extension(
    "diagonal-w-above-n-and-l",
    "In 9 dimensions, diagonal weights separate less than half of the draws of 8 Gaussian samples of 5 tokens",
    "Not in the paper, whose section 4 needs diagonal weights",
    high=0.5,
)
def _share_just_above(run: xr.Dataset) -> Estimate:
    """Share of draws in which diagonal weights prefer every optimal token, in the smallest dimension above n and L."""
    n, L, trials = (run.attrs[name] for name in ("n", "L", "trials"))
    first = run.isel(d=run.d.values > max(n, L))
    if not first.sizes["d"]:
        return Estimate.unresolved("No dimension of the run is above n and L; add larger dims.")
    first = first.isel(d=0).sel(kind="diagonal W")
    remark = f"{int(first.separable)} of {trials}, (n, L, d) = ({n}, {L}, {int(first.d)})"
    return Estimate.share(first.separable, trials, remark, over="draws of data")


def figures(run: xr.Dataset) -> Figures:
    """Draw the shares against d."""
    n, L, trials = (run.attrs[name] for name in ("n", "L", "trials"))
    of = np.full(run.sizes["d"], trials)
    shares = [
        mark
        for color, kind in enumerate(_KINDS)
        for mark in share_curve(run.d.values, run.separable.sel(kind=kind).values, of, kind, color)
    ]
    bounds = [Mark(at=float(max(n, L - 1)), label="max(n, L−1)"), Mark(at=float(n * (L - 1)), label="n(L−1)")]
    x, y = Axis("dimension d"), Axis("share separable", range=(-0.03, 1.03))
    yield Figure(
        name="shares",
        title="Gaussian data that any W and diagonal weights separate",
        caption=f"Share of {trials} Gaussian instances that any W and that diagonal weights separate, against the "
        f"dimension, with 95 % intervals; n = {n} samples of L = {L} tokens.",
        panels=(Panel(title="separable data", x=x, y=y, marks=(*bounds, *shares)),),
    )


entry = Entry(
    "softmax-attention/separability",
    "Diagonal weights need far more dimensions to separate Gaussian data",
    source="Assumption 1, section 3.1",
    quick=dict(dims=(3, 9, 32), trials=20),
    paper=dict(trials=2000),
)
