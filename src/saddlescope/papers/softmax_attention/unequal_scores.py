"""Unequal scores: the flow has the same limit as with equal scores.

Assumption 2 gives all tokens of a sample but the optimal one the same score; the paper remarks that small perturbations
are possible. Gaps are drawn here within a share, the spread, of their mean, on data with a sparse, well conditioned ℓ1
solution, with which the direction β/μ is compared.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.shared.curves import flow_panel
from saddlescope.plot import Axis, Figure, Figures
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

_LOG_TIMES = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)  # ln t


class Params(EntryParams):
    """Spreads and instances."""

    spreads: tuple[float, ...] = param(
        (0.0, 0.1, 0.5, 0.9), "spreads of the gaps, as shares of the mean gap", ge=0, lt=1, least=2, order="increasing"
    )
    conditioned: int = param(6, "number of conditioned instances of size (10, 5, 50), each with all spreads", ge=1)
    scale: float = param(0.3, "initial scale ω_0 of the weights", gt=0, scale="log")
    seed: int = param(300, "first seed of the instances and the initial weights", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the instances, each at all spreads."""
    return context.over({"instance": range(params.conditioned)}, partial(_follow_conditioned, params))


def _follow_conditioned(params: Params, instance: int, step: RunContext) -> xr.Dataset:
    """Follow one conditioned instance at all spreads, and compare it with the l1 solution of its data."""
    from saddlescope.models import conditioned_tokens, with_gaps
    from saddlescope.papers.softmax_attention.shared.flows import diagonal_flow
    from saddlescope.theory.attention.svm import l1_svm

    seed, log_times, errors = params.seed + instance, np.array(_LOG_TIMES), []
    base = conditioned_tokens(10, 5, 50, seed=seed)
    factors = np.random.default_rng(seed).uniform(-1, 1, base.gaps.shape)
    for spread in params.spreads:
        data = with_gaps(base, base.gaps * (1 + spread * factors))
        best, direction = l1_svm(data).beta, diagonal_flow(data, params.scale, log_times, 1e-8).direction
        errors.append(np.linalg.norm(direction - best, axis=1) / np.linalg.norm(best))
    axes, coords = ("spread", "log_time"), {"spread": list(params.spreads), "log_time": log_times}
    return xr.Dataset({"error": (axes, np.array(errors))}, coords)


claims = Claims(
    limits="Conditioned data are selected for early convergence; all have one size and initial scale. The remark gives "
    "no number and speaks of small perturbations: gaps add constants to the margins, so that the error falls like "
    "1 / ln t at any spread. Half of that exponent is asked for; an error that stays has 0."
)


@claims.reading(
    "perturbations",
    "On conditioned data with gaps of the scores spread by 10 to 90 %, diagonal weights still tend to the ℓ1 direction",
    "The remark after Assumption 2, on small perturbations; spreads and rate: this project",
    high=-0.5,
)
def _slowest_fall(run: xr.Dataset) -> Estimate:
    """Exponent of the direction's distance from the ℓ1 solution in ln t, from 1e3 to 1e4, largest of all spreads."""
    late = run.error.isel(spread=run.spread.values > 0).sel(log_time=slice(1e3, None))
    first, last = late.isel(log_time=0), late.isel(log_time=-1)
    slopes = np.log(last / first) / np.log(late.log_time.values[-1] / late.log_time.values[0])
    remark = f"{slopes.size} flows; the distance ends at {float(last.max()):.2g} at most"
    return Estimate.largest(slopes.max("spread"), remark, over="data sets")


def figures(run: xr.Dataset) -> Figures:
    """Draw the direction over time."""
    errors = {f"spread {spread:g}": run.error.sel(spread=spread) for spread in run.spread.values.tolist()}
    x, y = Axis("ln t", scale="log"), Axis("distance from the ℓ1 solution", scale="log")
    yield Figure(
        name="unequal",
        title="Directions with unequal scores",
        caption="The distance of the direction from the ℓ1 solution of the data, relative to its length, against time, "
        f"on {run.sizes['instance']} conditioned instances.",
        panels=(flow_panel("conditioned data", x, y, run.log_time.values, errors, width=1.2, opacity=0.7),),
    )


entry = Entry(
    "softmax-attention/unequal-scores",
    "Unequal scores: the same limit as with equal scores",
    source="Assumption 2 and the remark after it",
    quick=dict(spreads=(0.1, 0.9), conditioned=2),
    paper=dict(conditioned=20),
)
