"""Claims of the entry `assumptions`."""

import itertools
from collections.abc import Callable
from functools import partial

import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate


def settings_held(run: xr.Dataset, *, kind: str) -> Estimate:
    """Return the number of random settings at which assumptions of one kind hold."""
    return Estimate(float(run[f"{kind}_hold"]), remark=f"of {int(run.settings)} settings")


def least_share(run: xr.Dataset, *, of: str, at: Callable[[xr.Dataset], xr.Dataset]) -> Estimate:
    """Return the share of runs on the data and scale at which it is least."""
    one = at(run)
    shares = [
        (Estimate.share(float(cell[of]), float(cell.starts)), f"{name}, scale {scale:g}")
        for name, scale in itertools.product(one.data.values.tolist(), one.scale.values.tolist())
        for cell in [one.sel(data=name, scale=scale)]
    ]
    least, where = min(shares, key=lambda found: found[0].value)
    return Estimate(least.value, least.uncertainty, f"{where}: {least.remark}")


claims = Claims()


@claims.add(
    "largest-omega",
    "As printed, they hold together at absurdly small starts only",
    quantity="log10 of the largest omega, two concepts",
    kind="own",
    source="Assumptions D.1 to D.5, computed; the bound this project's",
    high=-60.0,
    unit="log10",
)
def largest_omega(run: xr.Dataset) -> Estimate:
    """Return log10 of the largest omega for two concepts."""
    best = run.log10_omega.where(run.log10_omega == run.log10_omega.max(), drop=True).ratio.values[0]
    remark = f"at strengths in the ratio {best:.3g}; three concepts: {float(run.log10_omega_three.max()):.1f}"
    return Estimate(float(run.log10_omega.max()), remark=remark)


@claims.add(
    "in-practice",
    "As printed",
    quantity="they commonly hold in practice. Part of the data of Figures 5, 8, 9 and 10 on which they hold at any start at all",
    kind="printed",
    source="Appendix D.1, literally: all four",
    low=1.0,
)
def allowed_data(run: xr.Dataset) -> Estimate:
    """Return the part of the figures' data with a positive margin."""
    remark = ", ".join(f"{name} {float(run.margin.sel(data=name)):.2f}" for name in run.data.values.tolist())
    return Estimate(float((run.margin > 0).mean()), remark=f"margins over alpha: {remark}")


claims.add(
    "can-be-met",
    "As printed they can be met",
    quantity="settings of all constants at which they hold",
    kind="printed",
    source="Assumptions D.1 to D.5; the bound: one",
    low=1.0,
)(partial(settings_held, kind="printed"))

claims.add(
    "contradiction",
    "With P^2 in D.4, which the proofs need (Corollary D.1), D.4 and D.5 contradict each other",
    quantity="settings at which they hold",
    kind="own",
    source="this project's proof, in saddlescope.theory.concepts",
    high=0.0,
)(partial(settings_held, kind="corrected"))

claims.add(
    "no-free-direction",
    "They exclude directions without data, d > s, since D.1 has 0 < alpha <= a_k",
    quantity="settings at which they hold",
    kind="printed",
    source="Assumption D.1",
    high=0.0,
)(partial(settings_held, kind="without_data"))

claims.add(
    "order",
    "Far outside the assumptions concepts are still learned in the order of their strengths",
    quantity="least share of starts up to a scale of 0.001",
    kind="printed",
    source="section 4.2.1; the bound from trial runs on other seeds",
    low=0.98,
)(partial(least_share, of="ordered", at=lambda run: run.sel(scale=run.scale <= 0.0011)))

claims.add(
    "order-of-figures",
    "At the scale of the figures, 0.1, too",
    quantity="least share of starts",
    kind="own",
    source="section 4.2.1; the bound this project's",
    low=0.9,
)(partial(least_share, of="ordered", at=lambda run: run.isel(scale=[0])))

claims.add(
    "minor-small",
    "Minor entries stay below 0.4, where Assertion D.1 with D.3 has them",
    quantity="least share of starts at any scale",
    kind="printed",
    source="Assertion D.1; the bound from trial runs on other seeds",
    low=0.97,
)(partial(least_share, of="small", at=lambda run: run))

claims.add(
    "learned",
    "Every start generalizes in the end",
    quantity="least share at any scale",
    kind="printed",
    source="section 4.2.1, and d/dt log det W = 4 tr(A (1 - W)); exact",
    low=1.0,
)(lambda run: Estimate(float((run.learned / run.starts).min())))
