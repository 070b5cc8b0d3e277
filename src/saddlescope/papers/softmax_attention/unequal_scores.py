"""Unequal scores: the flow has the same limit as with equal scores.

Assumption 2 gives all tokens of a sample but the optimal one the same score; the paper remarks that small perturbations
are possible. Gaps are drawn here within a share, the spread, of their mean.

    conditioned  data with a sparse, well conditioned ℓ1 solution, with which the direction β/μ is compared
    Gaussian     n = 4, L = 5, d = 8, separable by diagonal weights, with mean gaps of 1 and of 20: number of flows that
                 lose a sample
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.shared.curves import flow_panel
from saddlescope.papers.softmax_attention.shared.first_seeds import first_seeds
from saddlescope.papers.softmax_attention.shared.lost_samples import (
    FLOWS,
    LOST,
    count_losing_flows,
    log_lost_samples,
    losing_share_curve,
)
from saddlescope.plot import Axis, Figure, Figures, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

_GAPS = (1.0, 20.0)  # of the Gaussian data, means

_LOG_TIMES = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)  # ln t of the conditioned data

_WHEN = 30.0  # log10 t until when Gaussian data are followed


class Params(EntryParams):
    """Spreads and instances."""

    spreads: tuple[float, ...] = param(
        (0.0, 0.1, 0.5, 0.9), "spreads of the gaps, as shares of the mean gap", ge=0, lt=1, least=2, order="increasing"
    )
    conditioned: int = param(6, "number of conditioned instances of size (10, 5, 50), each with all spreads", ge=1)
    gaussian: int = param(24, "number of draws of Gaussian data, each with all spreads and gaps", ge=1)
    scale: float = param(0.3, "initial scale ω_0 of the weights", gt=0, scale="log")
    seed: int = param(300, "first seed of the instances, the draws and the initial weights", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the conditioned and the Gaussian instances, each at all spreads."""
    first, second = context.split(0.4, 0.6)
    instances = {"instance": range(params.conditioned)}
    conditioned = first.over(instances, partial(_follow_conditioned, params))
    draws = {"draw": range(params.gaussian)}
    gaussian = second.over(draws, partial(_follow_gaussian, params, _separable_seeds(params)))
    return xr.merge([conditioned, gaussian])


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


def _separable_seeds(params: Params) -> list[int]:
    """Return the first seeds whose data diagonal weights separate at every spread and gap."""
    from saddlescope.models import separability

    def separable(seed: int) -> bool:
        draws = (_draw_gaussian(seed, gap, spread) for gap in _GAPS for spread in params.spreads)
        return all(separability(data, diagonal=True).separable for data in draws)

    return first_seeds(params.gaussian, params.seed, separable)


def _draw_gaussian(seed: int, gap: float, spread: float):
    from saddlescope.models import gaussian_tokens

    return gaussian_tokens(4, 5, 8, seed=seed, gap=gap, spread=spread)


def _follow_gaussian(params: Params, seeds: list[int], draw: int, step: RunContext) -> xr.Dataset:
    """Return the number of samples that the flows of one Gaussian draw lose, at all spreads and gaps."""
    log_times = np.log(10) * np.array([3.0, _WHEN])
    lost = np.empty((len(params.spreads), len(_GAPS), len(FLOWS)))
    for i, j in np.ndindex(lost.shape[:2]):
        data = _draw_gaussian(seeds[draw], _GAPS[j], params.spreads[i])
        lost[i, j] = np.exp(log_lost_samples(data, params.scale, log_times)[:, -1])
    coords = {"spread": list(params.spreads), "gap": list(_GAPS), "flow": list(FLOWS)}
    return xr.Dataset({"lost": (("spread", "gap", "flow"), lost)}, coords)


def _ends(run: xr.Dataset, flow: str) -> np.ndarray:
    """Return the number of samples that each flow has lost at the end, (spreads, gaps, draws)."""
    return run.lost.sel(flow=flow).transpose("spread", "gap", "draw").values


claims = Claims(
    limits="Conditioned data are selected for early convergence. The remark gives no number: gaps add constants to the "
    "margins, so that the error falls like 1 / ln t at any spread. Half of that exponent is asked for; an error that "
    "stays has 0. Lost samples are counted on one size, with 24 draws, to t = 1e30."
)


@claims.reading(
    "perturbations",
    "With gaps of the scores spread by 10 to 90 %, diagonal weights still tend to the ℓ1 solution",
    "The remark after Assumption 2, on small perturbations",
    high=-0.5,
)
def _slowest_fall(run: xr.Dataset) -> Estimate:
    """Exponent of the direction's distance from the ℓ1 solution in ln t, from 1e3 to 1e4, largest of all spreads."""
    late = run.error.isel(spread=run.spread.values > 0).sel(log_time=slice(1e3, None))
    first, last = late.isel(log_time=0), late.isel(log_time=-1)
    slopes = np.log(last / first) / np.log(late.log_time.values[-1] / late.log_time.values[0])
    remark = f"{slopes.size} flows; the distance ends at {float(last.max()):.2g} at most"
    return Estimate.largest(slopes.max("spread"), remark, over="data sets")


@claims.extension(
    "w-alone-loses-none",
    "One attention matrix W learns every sample at every spread and mean of the gaps",
    "Not in the paper, with equal scores either; no exception is allowed",
    high=0.0,
)
def _count_losing_alone(run: xr.Dataset) -> Estimate:
    """Number of flows of W on Gaussian data that attend to a wrong token of some sample by t = 1e30."""
    ends = _ends(run, "W alone")
    at_spread = [f"{(row > LOST).sum()} at {spread:g}" for row, spread in zip(ends, run.spread.values, strict=True)]
    return count_losing_flows(ends, f"t = 1e{_WHEN:g}; by spread {', '.join(at_spread)}")


def figures(run: xr.Dataset) -> Figures:
    """Draw the direction over time on conditioned data, and the share of flows that lose a sample."""
    spreads = run.spread.values.tolist()
    errors = {f"spread {spread:g}": run.error.sel(spread=spread) for spread in spreads}
    shares = [
        mark
        for color, flow in enumerate(FLOWS, len(spreads))
        for mark in losing_share_curve(run.spread.values, _ends(run, flow)[:, 0], flow, color)
    ]
    x, y = Axis("ln t", scale="log"), Axis("distance from the ℓ1 solution", scale="log")
    share = Axis("share that loses a sample", range=(-0.02, 0.92))
    yield Figure(
        name="unequal",
        title="Directions and lost samples with unequal scores",
        caption="Left: the distance of the direction from the ℓ1 solution of the data, relative to its length, "
        f"against time, on {run.sizes['instance']} conditioned instances. Right: the share of {run.sizes['draw']} "
        "draws of Gaussian data whose flow loses a sample, with 95 % intervals, against the spread of the gaps, at "
        f"a mean gap of {_GAPS[0]:g}.",
        panels=(
            flow_panel("conditioned data", x, y, run.log_time.values, errors, width=1.2, opacity=0.7),
            Panel(title="Gaussian data", x=Axis("spread of the gaps"), y=share, marks=tuple(shares)),
        ),
    )


entry = Entry(
    "softmax-attention/unequal-scores",
    "Unequal scores: the same limit as with equal scores",
    source="Assumption 2 and the remark after it",
    quick=dict(spreads=(0.1, 0.9), conditioned=2, gaussian=2),
    paper=dict(conditioned=20, gaussian=300),
)
