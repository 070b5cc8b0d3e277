"""Lemma 4.2: the weights diverge, where diagonal weights can separate the data.

The lemma is stated under Assumption 2, with Assumption 1 of section 3 in the background: some W separates the data. Its
proof takes a point of the l1-SVM, so a diagonal W that does. That is a stronger assumption: where no such W exists, the
flow of diagonal weights can end at a finite strict minimum of the loss. The smallest case needs no flow: tokens (0, 1)
and (0, 0) with the query (1, 0) have B = 0, though W_21 separates them.

Its proof shows int |grad L|^2 dt < infinity and takes lim |grad L| = 0 from it, where it gives the lower limit only:
|beta| is unbounded, but might come back. It cannot: from a sphere of radius R to that of 2R the path has a length of
R at least, along which |grad L| is at least some c_R > 0; so each crossing lowers the loss by some positive amount.

    printed    instances that some W separates but no diagonal one: number of flows that end at a strict minimum
    corrected  instances that diagonal weights separate, with large gaps and with a gap of 1, where flows lose samples
               and |beta| tends to infinity all the same
    slowness   2 t ln t |grad L|_inf: near 1 where beta grows like ln t, and arcsinh(beta / omega_0^2) like ln ln t
"""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.lemma_4_2.claims import RANDOM_WEIGHTS, SETTLED, claims
from saddlescope.papers.softmax_attention.lemma_4_2.figures import figures
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models import TokenData


class Params(EntryParams):
    """Instances and times."""

    instances: int = param(24, "of each of the three kinds", ge=1)
    samples: int = param(4, "n", ge=1)
    tokens: int = param(5, "L", ge=2)
    dim: int = param(8, "d where diagonal weights separate")
    low_dim: int = param(3, "d where they do not", ge=1)
    small_gap: float = param(1.0, "of the scores, at which flows lose samples", gt=0)
    scale: float = param(0.3, "omega_0", gt=0)
    log10_times: tuple[float, ...] = param(
        (
            *(-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 2.0, 4.0, 7.0, 10.0),
            *(15.0, 20.0, 30.0, 50.0, 70.0, 100.0, 150.0, 200.0, 300.0),
        ),
        "log10 t, with 2, 30 and 300 among them",
    )
    seed: int = param(200, "of the data", ge=0)

    def check(self) -> None:
        parameter_checks.require_at_least(self.low_dim + 1, self, "dim")
        times = self.log10_times
        if list(times) != sorted(set(times)) or not {SETTLED, 30.0, 300.0} <= set(times):
            raise InputError(f"log10_times must ascend, with {SETTLED:g}, 30 and 300 among them; got {times!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the flows of all three kinds of instances."""
    parts = []
    kinds = ("some W separates, no diagonal one", "diagonal weights separate", "the same, with a small gap")
    for number, kind in enumerate(kinds):
        every = _draw_instances(params, number)
        for k, data in enumerate(every):
            context.report((number + k / params.instances) / len(kinds), f"{kind}, instance {k}")
            parts.append(context.cached(f"{number}-{k}", partial(_follow, data, params, kind)))
    context.report(1.0, "done")
    return xr.concat(parts, "instance").assign_coords(log10_time=("time", np.array(params.log10_times)))


def _draw_instances(params: Params, kind: int) -> "list[TokenData]":
    """Return the first instances of a kind, in the order of their seeds."""
    from saddlescope.models import gaussian_tokens, separability

    dim, gap = (params.dim, params.small_gap if kind == 2 else None) if kind else (params.low_dim, None)
    found, seed = [], params.seed
    while len(found) < params.instances:
        data = gaussian_tokens(params.samples, params.tokens, dim, seed=seed, gap=gap)
        seed += 1
        if separability(data).separable and separability(data, diagonal=True).separable == bool(kind):
            found.append(data)
    return found


def _follow(data: "TokenData", params: Params, kind: str) -> xr.Dataset:
    from saddlescope.flow import FlowError, diagonal_margin_flow
    from saddlescope.models import SelectionLoss
    from saddlescope.papers.softmax_attention.lemma_4_2.finite_limits import strict_minimum

    loss, B = SelectionLoss(data.optimal_scores, data.gaps), data.features
    times = np.array(params.log10_times)
    log_times = times * np.log(10)
    settled = log_times[times <= SETTLED]
    sizes, slowness = np.full(len(times), np.nan), np.full(len(times), np.nan)
    limit, log_excess = None, np.nan
    with suppress(FlowError):  # values at times that a flow does not reach stay NaN, and are undecided
        flow = diagonal_margin_flow(loss, B, params.scale, log_until=settled[-1], record=settled, tolerance=1e-7)
        limit = strict_minimum(loss, B, flow.beta[-1])
        sizes[: len(flow.beta)] = np.linalg.norm(flow.beta, axis=1)
        if limit is None:
            flow = diagonal_margin_flow(
                loss, B, params.scale, log_until=log_times[-1], record=log_times, max_evaluations=5000, tolerance=1e-7
            )
            sizes[:] = np.linalg.norm(flow.beta, axis=1)
            pulls = np.einsum("knm,nmd->kd", flow.scaled_rates, B)
            slowness[:] = 2 * log_times * np.abs(pulls).max(axis=1)
        log_excess = flow.log_excess[-1]
    return xr.Dataset(
        {
            "size": ("time", sizes),
            "slowness": ("time", slowness),
            "limit": np.nan if limit is None else np.linalg.norm(limit),
            "log_excess": log_excess,
            "violations": _count_violations(data, loss, params.seed),
        },
        coords={"kind": kind},
    )


def _count_violations(data: "TokenData", loss, seed: int) -> int:
    """Count the random weights with <-grad L, beta_f> < sum r, with beta_f feasible: the inequality of the proof."""
    from saddlescope.models import separability

    feasible = separability(data, diagonal=True).weights
    if feasible is None:
        return 0
    rng, B, count = np.random.default_rng(seed), data.features, 0
    margins = B @ feasible
    for exponent in rng.uniform(-2, 6, RANDOM_WEIGHTS):
        log_rates, signs = loss.log_rates(B @ (10.0**exponent * rng.normal(size=data.dim)))
        rates = signs * np.exp(log_rates - log_rates.max())
        count += not (np.sum(rates * margins) >= np.sum(rates) * (1 - 1e-9) > 0)
    return count


entry = Entry(
    "softmax-attention/lemma-4-2",
    "Lemma 4.2: the weights diverge, where diagonal weights can separate the data",
    citation=CITATION,
    source="Lemma 4.2, appendix A.4",
    params=Params,
    quick=dict(instances=1, log10_times=(0.0, 2.0, 30.0, 300.0)),
    paper=dict(instances=100),
    run=run,
    claims=claims,
    figures=figures,
)
