"""Approximate KKT points: residuals of the direction of the diagonal flow, with two choices of multipliers.

The proof of Theorem 4.1 shows that β / μ is an approximate KKT point of the ℓ1 problem (Definition A.3). Its ε, ε' and
δ are measured along flows, with the proof's multipliers φ / ln μ and with dφ / d ln μ:

    (C1)  ε, the distance of Σ_k λ_k B_k from the subdifferential of |.|₁ at the direction without its entries off the
          support of the solution; ε' is the length of these entries
    (C2)  margins of β / μ of 1 or more, by definition
    (C3)  δ, the largest λ_k (B_k.β / μ - 1)

By Lemma A.1, Σ_k φ_k B_k is arcsinh(β / ω₀²), that is ln μ plus a constant on the support, with a sign. With φ / ln μ,
ε thus falls like 1 / ln μ, hardly at all in practice; with dφ / d ln μ it falls like 1 / μ.

Inequality 36 has the proof's own constant: display (vi) has ln|β|₂ >= (m / d) Σ φ for large t, where m is the smallest
margin of β* / |β*|₂. The ratio of both sides tends to d |β*|₂ / |β*|₁, at least √d.
"""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.shared.curves import flow_panel
from saddlescope.papers.softmax_attention.shared.first_seeds import first_seeds
from saddlescope.plot import Axis, Figure, Figures
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_KINDS = ("conditioned", "Gaussian")

_PROOFS, _INCREMENTAL = "proof's", "incremental"  # φ / ln μ and dφ / d ln μ

_RESIDUALS = ("ε", "ε'", "δ")

_LATE = (1e3, 1e4, 1e5, 1e6)  # ln t


class Params(EntryParams):
    """Instances of both kinds, each followed from every scale."""

    samples: int = param(4, "number of samples n", ge=2)
    tokens: int = param(5, "number of tokens per sample L", ge=2)
    dim: int = param(8, "dimension d", ge=4)
    instances: int = param(20, "number of instances of each kind", ge=2)
    scales: tuple[float, ...] = param((0.3, 0.03), "initial scales ω₀ of the weights", gt=0, scale="log")
    times: int = param(41, "number of recorded times from ln t = 10 to 1e6", ge=2)
    tolerance: float = param(1e-10, "relative tolerance of the flows", ge=1e-11, le=1e-4, scale="log")
    seed: int = param(600, "first seed of the instances", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow all flows, and compute the residuals at the recorded times."""
    data = {kind: _draw_instances(kind, params) for kind in _KINDS}
    axes = {"kind": _KINDS, "instance": range(params.instances), "scale": params.scales}
    found = context.over(axes, lambda kind, instance, scale, _: _follow(data[kind][instance], scale, params))
    return found.assign_attrs(tolerance=params.tolerance, dim=params.dim)


def _draw_instances(kind: str, params: Params) -> "list[TokenData]":
    """Return the first instances of a kind that diagonal weights separate."""
    from saddlescope.models import conditioned_tokens, gaussian_tokens, separability

    make = conditioned_tokens if kind == _KINDS[0] else gaussian_tokens
    draw = partial(make, params.samples, params.tokens, params.dim)
    seeds = first_seeds(params.instances, params.seed, lambda s: separability(draw(seed=s), diagonal=True).separable)
    return [draw(seed=seed) for seed in seeds]


def _follow(data: "TokenData", scale: float, params: Params) -> xr.Dataset:
    """Compute the residuals of one flow, and the two sides of inequality 36."""
    from saddlescope.papers.softmax_attention.shared.flows import diagonal_flow
    from saddlescope.theory.attention.kkt_residuals import averaged_multipliers, incremental_multipliers, kkt_residuals
    from saddlescope.theory.attention.svm import l1_svm

    log_times = np.union1d(np.geomspace(10.0, 1e6, params.times), _LATE)
    B, solution = data.features, l1_svm(data)
    flow = diagonal_flow(data, scale, log_times, params.tolerance)
    residuals = np.full((2, len(_RESIDUALS), len(log_times)), np.nan)
    for k, (beta, mu) in enumerate(zip(flow.beta, flow.margin, strict=True)):
        if mu <= 1:  # the proof's multiplier needs ln mu > 0
            continue
        offered = [averaged_multipliers(flow.phi[k], float(np.log(mu)))]
        rates = np.exp(flow.log_rates[k] - flow.log_rates[k].max())
        with suppress(InputError):  # the smallest margin may fall for a while
            offered.append(incremental_multipliers(B, beta, rates, offsets=scale**2))
        for row, multipliers in zip(residuals, offered, strict=False):
            found = kkt_residuals(B, beta, multipliers, solution.support)
            row[:, k] = found.stationarity, found.distance, found.slackness
    other_side = 1 / np.linalg.norm(solution.beta) / data.dim * flow.phi.sum(axis=(1, 2))
    return xr.Dataset(
        {
            "residual": (("multiplier", "residual_of", "log_time"), residuals),
            "ratio_36": ("log_time", np.log(np.linalg.norm(flow.beta, axis=1)) / other_side),
            "margin": ("log_time", flow.margin),
        },
        {"multiplier": [_PROOFS, _INCREMENTAL], "residual_of": list(_RESIDUALS), "log_time": log_times},
    )


def _at(run: xr.Dataset, log_times: tuple[float, ...]) -> xr.Dataset:
    return run.sel(log_time=list(log_times), method="nearest")


def _exponents(values: xr.DataArray, of: xr.DataArray) -> xr.DataArray:
    """Return the slopes of the logarithms of values by those of a positive variable, over time, by least squares."""
    x, y = xr.apply_ufunc(np.log, of), xr.apply_ufunc(np.log, values)
    return xr.cov(x, y, "log_time") / xr.cov(x, x, "log_time")


def tolerance_is_small(run: xr.Dataset) -> bool:
    """The flows are followed at a relative tolerance of at most 1e-9"""
    return bool(run.attrs["tolerance"] <= 1e-9)


claims = Claims(
    limits="One size, two initial scales. The laws are judged on conditioned data, selected to converge by the times "
    "that are followed; Gaussian ones do not. The proof gives no rate: that of its multipliers follows from equation "
    "37, and an exponent of half of it is asked for. The other multipliers are rates over their scale, and their "
    "residual is off by the tolerance times μ, so that they are judged up to ln t = 1e4."
)


@claims.reading(
    "conditions",
    "On conditioned data, with the proof's multipliers, ε, ε', δ fall at least like 1/√(ln μ) from ln t = 1e3 to 1e6",
    "Appendix A.5, (C1) to (C3): all tend to 0; by equation 37 ε falls like 1 / ln μ; half of its exponent",
    high=-0.5,
    requires=[tolerance_is_small],
)
def _slowest_fall(run: xr.Dataset) -> Estimate:
    """Largest exponent of ε, ε' or δ as a power of ln μ from ln t = 1e3 to 1e6, over conditioned data and scales."""
    late = _at(run.sel(kind=_KINDS[0], multiplier=_PROOFS), _LATE)
    slopes = _exponents(late.residual, xr.apply_ufunc(np.log, late.margin)).max("scale", skipna=False)
    each = ", ".join(f"{name} {float(slopes.sel(residual_of=name).max()):.3g}" for name in _RESIDUALS)
    return Estimate.largest(slopes.max("residual_of", skipna=False), each, over="data sets")


@claims.reading(
    "inequality-36",
    "On Gaussian and conditioned data, ln |β|₂ is at least (m / d) Σ φ, the proof's bound, from ln t = 1e3 to 1e6",
    "Inequality 36, for sufficiently large t, with the factor of its display (vi); times: this project",
    low=1.0,
)
def _smallest_ratio(run: xr.Dataset) -> Estimate:
    """Smallest ratio of ln |β|₂ to (m / d) Σ φ from ln t = 1e3 to 1e6, over data, scales and times."""
    ratio = _at(run, _LATE).ratio_36.min(("log_time", "scale"), skipna=False)
    return Estimate.smallest(ratio, f"√d = {run.attrs['dim'] ** 0.5:.3g}", over="data sets")


@claims.extension(
    "slow",
    "On conditioned data, with the proof's multipliers, ε is still above 0.1 at ln t = 1e6",
    "By equation 37, ε falls like 1 / ln μ, that is like 1 / ln ln t",
    low=0.1,
)
def _smallest_stationarity(run: xr.Dataset) -> Estimate:
    """Smallest ε with the proof's multipliers at ln t = 1e6, over conditioned data and scales."""
    values = _at(run.sel(kind=_KINDS[0], multiplier=_PROOFS, residual_of="ε"), (1e6,)).residual
    return Estimate.smallest(values.min(("scale", "log_time")), f"up to {float(values.max()):.2g}", over="data sets")


@claims.extension(
    "incremental-rate",
    "On conditioned data, with the multipliers dφ / d ln μ, ε falls at least like μ^-0.9 from ln t = 1e3 to 1e4",
    "These multipliers have the limit of the proof's; their error is that of the direction, of order 1 / μ",
    high=-0.9,
    requires=[tolerance_is_small],
)
def _incremental_exponent(run: xr.Dataset) -> Estimate:
    """Largest exponent of ε as a power of μ from ln t = 1e3 to 1e4, over conditioned data and scales."""
    late = _at(run.sel(kind=_KINDS[0], multiplier=_INCREMENTAL, residual_of="ε"), _LATE[:2])
    slopes = _exponents(late.residual, late.margin)
    return Estimate.largest(slopes.max("scale", skipna=False), f"median {float(slopes.median()):.3g}", over="data sets")


def figures(run: xr.Dataset) -> Figures:
    """Draw the residuals over time, for both kinds, from the first scale."""
    first, time = run.isel(scale=0).residual, run.log_time.values
    stationarity = {"φ / ln μ": (_PROOFS, "ε"), "dφ / d ln μ": (_INCREMENTAL, "ε")}
    shown = {"ε": stationarity, "residual": {name: (_PROOFS, name) for name in ("δ", "ε'")}}
    panels = [
        flow_panel(
            title=kind,
            x=Axis("ln t", scale="log"),
            y=Axis(label, scale="log", range=(1e-9, 10.0)),
            time=time,
            groups={name: first.sel(kind=kind, multiplier=of, residual_of=one) for name, (of, one) in groups.items()},
            opacity=0.45,
        )
        for label, groups in shown.items()
        for kind in _KINDS
    ]
    yield Figure(
        name="residuals",
        title="KKT residuals of the direction",
        caption="Above: ε of (C1), the distance of Σ λ B from the subgradients of |β|₁, with the proof's "
        "multiplier φ / ln μ and with dφ / d ln μ. Below: δ of (C3) with the proof's multiplier, and ε', the "
        "length of the direction off the solution's support. Each line is one flow, from "
        f"ω₀ = {float(run.scale[0]):g}.",
        panels=tuple(panels),
    )


entry = Entry(
    "softmax-attention/kkt-residuals",
    "KKT residuals of the direction of diagonal weights",
    source="Appendix A.5",
    quick=dict(instances=2, scales=(0.3,), times=9, seed=3),
    paper=dict(samples=10, dim=50, instances=50),
)
