"""How nearly the diagonal flow's direction is a KKT point: residuals with two multipliers.

The proof of Theorem 4.1 shows beta^ = beta / mu to be an approximate KKT point of the l1 problem (Definition A.3), with
multipliers phi / ln mu. Its epsilon, epsilon' and delta are measured here along flows, beside those of d phi / d ln mu:
on conditioned instances, whose directions converge soon, and on raw Gaussian data, whose directions do not.

    (C1)  epsilon, the distance of sum_k lambda_k B_k from the subdifferential of |.|_1
    (C2)  holds at every time, for beta^ has margins of 1 and more by definition
    (C3)  delta, the largest lambda_k (B_k.beta^ - 1)
    epsilon'  the length of beta^ off the support of the solution

This project's laws for them follow from u_k = ln t + ln mu + ln s_k + o(1), s_k = C_k / lambda_k: delta mu tends to
max_k lambda_k ln(s_k / s), s the least; beta - mu beta* to beta~ with B_k.beta~ = ln(s_k / s) on active k; and epsilon
mu of d phi / d ln mu to the length of beta~_j / beta*_j over the solution's support, the constant of an instance. Of
the paper's multiplier, epsilon ln mu tends to the length of ln(2 |beta*_j| / w0^2): it falls like 1 / ln ln t.
"""

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.kkt_residuals.claims import KINDS, MULTIPLIERS, T10, T100, claims
from saddlescope.papers.softmax_attention.kkt_residuals.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_MARKS = (T10, T100, 1e3, 1e4, 1e5, 1e6)


class Params(EntryParams):
    """Instances of both kinds, each followed from every scale."""

    samples: int = param(4, "n", ge=2)
    tokens: int = param(5, "L", ge=2)
    dim: int = param(8, "d", ge=4)
    instances: int = param(20, "of each kind", ge=2)
    scales: tuple[float, ...] = param((0.3, 0.03), "omega_0 of the start, the same for all coordinates")
    times: int = param(41, "recorded times from ln t = 10 to 1e6", ge=2)
    seed: int = param(0, "of the first instance", ge=0)

    def check(self) -> None:
        if not self.scales or not all(0 < scale < math.inf for scale in self.scales):
            raise InputError(f"scales must be one or more positive numbers; got {self.scales!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow all flows, and compute the residuals at the recorded times."""
    parts: list[xr.Dataset] = []
    for k, kind in enumerate(KINDS):
        report = context.part(k / len(KINDS), (k + 1) / len(KINDS))
        parts.append(context.cached(kind, partial(_follow_kind, kind, params, report)))
    context.report(1.0, "done")
    return xr.concat(parts, "kind")


def _follow_kind(kind: str, params: Params, report: Report) -> xr.Dataset:
    log_times = np.union1d(np.geomspace(10.0, 1e6, params.times), _MARKS)
    histories = []
    for k, data in enumerate(_draw_instances(kind, params)):
        report(k / params.instances, f"{kind}, instance {k + 1}")
        histories.append(xr.concat([_follow_instance(data, scale, log_times) for scale in params.scales], "scale"))
    return xr.concat(histories, "instance").assign_coords(kind=kind)


def _draw_instances(kind: str, params: Params) -> "list[TokenData]":
    """Return the first instances that diagonal weights separate; conditioned ones all are."""
    from saddlescope.models.tokens.generators import conditioned_tokens, gaussian_tokens
    from saddlescope.models.tokens.separability import separability

    draw = conditioned_tokens if kind == KINDS[0] else gaussian_tokens
    found, seed = [], params.seed
    while len(found) < params.instances:
        data = draw(params.samples, params.tokens, params.dim, seed=seed)
        if separability(data, diagonal=True).separable:
            found.append(data)
        elif seed > params.seed + 20 * params.instances:
            raise InputError(f"dim must be large enough for separable data; got {params.dim!r}.")
        seed += 1
    return found


def _follow_instance(data: "TokenData", scale: float, log_times: np.ndarray) -> xr.Dataset:
    """Compute the residuals of one flow, and their limits."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.theory.attention.asymptotics import product_law
    from saddlescope.theory.attention.kkt_residuals import averaged_multipliers, incremental_multipliers, kkt_residuals
    from saddlescope.theory.attention.svm import l1_svm

    B, solution = data.features, l1_svm(data)
    flow = diagonal_margin_flow(
        SelectionLoss(data.optimal_scores, data.gaps),
        B,
        scale,
        log_until=log_times[-1],
        record=log_times,
        tolerance=1e-7,
    )
    residuals = np.full((len(MULTIPLIERS), 3, len(log_times)), np.nan)
    for k, (beta, mu) in enumerate(zip(flow.beta, flow.margin, strict=True)):
        if mu <= 1:  # the paper's multiplier needs ln mu > 0
            continue
        offered = [averaged_multipliers(flow.phi[k], float(np.log(mu)))]
        rates = np.exp(flow.log_rates[k] - flow.log_rates[k].max())
        with suppress(InputError):  # the smallest margin may fall for a while
            offered.append(incremental_multipliers(B, beta, rates, offsets=scale**2))
        for row, multipliers in zip(residuals, offered, strict=False):
            found = kkt_residuals(B, beta, multipliers, solution.support)
            row[:, k] = found.stationarity, found.slackness, found.distance
    active, on = solution.multipliers > 0, solution.support
    offsets = product_law(data, solution.multipliers).offsets[active]
    behind = offsets - offsets.min()
    correction = np.linalg.lstsq(B[active][:, on], behind, rcond=None)[0]
    return xr.Dataset(
        {
            "stationarity": (("multiplier", "log_time"), residuals[:, 0]),
            "slackness": (("multiplier", "log_time"), residuals[:, 1]),
            "distance": ("log_time", residuals[0, 2]),
            "margin": ("log_time", flow.margin),
            "paper_constant": np.linalg.norm(np.log(2 * np.abs(solution.beta[on]) / scale**2)),
            "incremental_constant": np.linalg.norm(correction / solution.beta[on]),
            "slackness_constant": np.max(solution.multipliers[active] * behind),
        },
        coords={"multiplier": list(MULTIPLIERS), "log_time": log_times, "scale": scale},
    )


entry = Entry(
    "softmax-attention/kkt-residuals",
    "How nearly the diagonal flow's direction is a KKT point: residuals with two multipliers",
    citation=CITATION,
    source="Appendix A.5",
    params=Params,
    quick=dict(instances=2, scales=(0.3,), times=9, seed=3),
    paper=dict(samples=10, dim=50, instances=50),
    run=run,
    claims=claims,
    figures=figures,
)
