"""How nearly the diagonal flow's direction is a KKT point: residuals with two multipliers   (Appendix A.5)

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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import Figure
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

KINDS = ("conditioned", "Gaussian")
MULTIPLIERS = ("paper's", "incremental")
_T10, T100 = 10 * math.log(10), 100 * math.log(10)  # ln t at t = 1e10 and 1e100
_MARKS = (_T10, T100, 1e3, 1e4, 1e5, 1e6)


@dataclass(frozen=True, kw_only=True)
class Params:
    """Instances of both kinds, each followed from every scale."""

    samples: int = 4  # n
    tokens: int = 5  # L
    dim: int = 8  # d
    instances: int = 20  # of each kind
    scales: tuple[float, ...] = (0.3, 0.03)  # omega_0 of the start, the same for all coordinates
    times: int = 41  # recorded times from ln t = 10 to 1e6
    seed: int = 0  # of the first instance

    def __post_init__(self) -> None:
        parameter_checks.at_least(2, self, "samples", "tokens", "instances", "times")
        parameter_checks.at_least(4, self, "dim")
        parameter_checks.at_least(0, self, "seed")
        if not self.scales or not all(0 < scale < math.inf for scale in self.scales):
            raise InputError(f"scales must be one or more positive numbers; got {self.scales!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds."""
        return cls(instances=2, scales=(0.3,), times=9, seed=3)

    @classmethod
    def paper(cls) -> "Params":
        """More and larger instances; the paper has none."""
        return cls(samples=10, dim=50, instances=50)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """All flows, and the residuals at the recorded times."""
    made: list[xr.Dataset] = []
    for k, kind in enumerate(KINDS):
        report = context.part(k / len(KINDS), (k + 1) / len(KINDS))
        made.append(context.cached(kind, partial(_of_kind, kind, params, report)))
    context.report(1.0, "done")
    return xr.concat(made, "kind")


def _of_kind(kind: str, params: Params, report: Callable[[float, str], None]) -> xr.Dataset:

    log_times = np.union1d(np.geomspace(10.0, 1e6, params.times), _MARKS)
    histories = []
    for k, data in enumerate(_instances(kind, params)):
        report(k / params.instances, f"{kind}, instance {k + 1}")
        histories.append(xr.concat([_history(data, scale, log_times) for scale in params.scales], "scale"))
    return xr.concat(histories, "instance").assign_coords(kind=kind)


def _instances(kind: str, params: Params) -> "list[TokenData]":
    """The first instances that diagonal weights separate; conditioned ones all are."""
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


def _history(data: "TokenData", scale: float, log_times: np.ndarray) -> xr.Dataset:
    """The residuals of one flow, and what they tend to."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.theory.attention.asymptotics import product_law
    from saddlescope.theory.attention.kkt_residuals import averaged_multipliers, incremental_multipliers, kkt_residuals
    from saddlescope.theory.attention.svm import l1_svm

    B, solution = data.features, l1_svm(data)
    flow = diagonal_margin_flow(SelectionLoss(data.optimal_scores, data.gaps), B, scale, log_times)
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


# The bounds were written down before the run. Pilots: instances of seeds 1000 to 1007, from omega_0 = 0.3 and 0.03.
def _at(run: xr.Dataset, kind: str, log_time: float, multiplier: str) -> np.ndarray:
    """Epsilon of all flows of a kind at one time."""
    chosen = run.stationarity.sel(kind=kind, multiplier=multiplier).sel(log_time=log_time, method="nearest")
    return chosen.values.ravel()


def _largest(log_time: float, well: bool, run: xr.Dataset) -> Estimate:
    """The incremental multiplier's largest epsilon, of all conditioned instances or those of a constant up to 1."""
    values = _at(run, KINDS[0], log_time, MULTIPLIERS[1])
    constants = run.incremental_constant.sel(kind=KINDS[0]).values.ravel()
    chosen = values[constants <= 1] if well else values
    if not len(chosen):
        return Estimate.unresolved("No instance of the run has a constant of at most 1.")
    told = f"{len(chosen)} of {len(values)} flows; median {np.median(chosen):.2g}"
    return Estimate(float(chosen.max()), remark=f"{told}; the largest constant is {float(constants.max()):.3g}")


def _smallest(run: xr.Dataset) -> Estimate:
    values = _at(run, KINDS[0], 1e6, MULTIPLIERS[0])
    return Estimate(float(values.min()), remark=f"{len(values)} flows, up to {float(values.max()):.2g}")


def _paper_law(kind: str, since: float, run: xr.Dataset) -> Estimate:

    of = run.sel(kind=kind, multiplier=MULTIPLIERS[0])
    of = of.isel(log_time=of.log_time.values > 0.999 * since)
    ratio = of.stationarity * np.log(of.margin) / of.paper_constant
    return Estimate(float(abs(ratio - 1).max()))


def _incremental_law(run: xr.Dataset) -> Estimate:
    of = run.sel(kind=KINDS[0], multiplier=MULTIPLIERS[1]).sel(log_time=1e4, method="nearest")
    return Estimate(float(abs(of.stationarity * of.margin / of.incremental_constant - 1).max()))


def _slackness_law(since: float, run: xr.Dataset) -> Estimate:
    of = run.sel(kind=KINDS[0], multiplier=MULTIPLIERS[1])
    of = of.isel(log_time=of.log_time.values > 0.999 * since)
    return Estimate(float(abs(of.slackness * of.margin / of.slackness_constant - 1).max()))


def _distance(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.distance.sel(kind=KINDS[0]).sel(log_time=1e3, method="nearest").max()))


def _raw_certified(run: xr.Dataset) -> Estimate:
    """From the first scale alone, so that the flows are independent."""
    values = _at(run.isel(scale=[0]), KINDS[1], T100, MULTIPLIERS[1])
    return Estimate.share((values <= 1e-2).sum(), len(values))


def _raw_exceptions(run: xr.Dataset) -> Estimate:

    early, late = (_at(run, KINDS[1], log_time, MULTIPLIERS[1]) for log_time in (_T10, 1e6))
    told = f"of {len(early)} flows; medians {np.nanmedian(early):.2g} and {np.nanmedian(late):.2g}"
    return Estimate(float(np.sum(~(late < early))), remark=told)


_THEIRS = "The paper's multiplier"
_OURS = "The incremental multiplier, conditioned instances"
_BAR = "Theorem 4.1, which has no rate; the bound is this project's bar"

claims = (
    Claim(
        name="paper-law",
        says=f"{_THEIRS}, conditioned instances: epsilon ln mu is its constant from t = 1e100 on: largest "
        "relative error",
        source="(C1) with equation 37 of appendix A.5, which has no rate; this project's law, 1 %",
        statistic=partial(_paper_law, KINDS[0], T100),
        high=0.01,
    ),
    Claim(
        name="paper-law-raw",
        says="The same on raw Gaussian data",
        source="the same; 30 %, from the pilot (11 %)",
        statistic=partial(_paper_law, KINDS[1], T100),
        high=0.3,
    ),
    Claim(
        name="paper-law-late",
        says="Posed again for conditioned instances from ln t = 1e5 on",
        source="as paper-law, which was refuted where an entry of the solution is small",
        statistic=partial(_paper_law, KINDS[0], 1e5),
        high=0.01,
    ),
    Claim(
        name="paper-useless",
        says=f"{_THEIRS} certifies nothing at times that can be written down: smallest epsilon of conditioned "
        "instances at ln t = 1e6",
        source="erratum of this project: by its law it falls like 1 / ln ln t",
        statistic=_smallest,
        low=0.1,
    ),
    Claim(
        name="incremental-1e100",
        says=f"{_OURS}: largest epsilon at t = 1e100",
        source=_BAR,
        statistic=partial(_largest, T100, False),
        high=1e-2,
    ),
    Claim(
        name="incremental-1e5",
        says=f"{_OURS}: largest epsilon at ln t = 1e5",
        source=_BAR,
        statistic=partial(_largest, 1e5, False),
        high=1e-4,
    ),
    Claim(
        name="incremental-law",
        says=f"{_OURS}: epsilon mu is its constant at ln t = 1e4: largest relative error",
        source="this project's law; 5 %, from the pilot (1.6 %)",
        statistic=_incremental_law,
        high=0.05,
    ),
    Claim(
        name="well-1e100",
        says="Posed again for conditioned instances whose constant, known from the solution, is at most 1: largest "
        "epsilon at t = 1e100",
        source=f"{_BAR}; incremental-1e100 was refuted where an entry of the solution is small",
        statistic=partial(_largest, T100, True),
        high=1e-2,
    ),
    Claim(
        name="well-1e5",
        says="And at ln t = 1e5",
        source=f"{_BAR}; incremental-1e5 was refuted likewise",
        statistic=partial(_largest, 1e5, True),
        high=1e-4,
    ),
    Claim(
        name="slackness",
        says=f"{_OURS}: delta mu is its constant from ln t = 1e3 on: largest relative error",
        source="(C3), with this project's law; 1 %",
        statistic=partial(_slackness_law, 1e3),
        high=0.01,
    ),
    Claim(
        name="slackness-late",
        says="Posed again from ln t = 1e5 on",
        source="as above; the claim before was refuted where an entry of the solution is small",
        statistic=partial(_slackness_law, 1e5),
        high=0.01,
    ),
    Claim(
        name="distance",
        says="Conditioned instances: largest epsilon' at ln t = 1e3",
        source="Theorem 4.1; the bound is this project's bar on directions",
        statistic=_distance,
        high=1e-3,
    ),
    Claim(
        name="raw-certified",
        says="Raw Gaussian data stay away: share of instances where the incremental multiplier has an epsilon of at "
        "most 1e-2 at t = 1e100",
        source="this project's, from the pilot (0 of 8)",
        statistic=_raw_certified,
        high=0.5,
    ),
    Claim(
        name="raw-falls",
        says="And yet its epsilon is smaller at ln t = 1e6 than at t = 1e10: exceptions",
        source="Theorem 4.1, where the limit exists; exact count",
        statistic=_raw_exceptions,
        high=0.0,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Residuals over time, of both kinds."""
    from saddlescope.papers.softmax_attention.kkt_residuals.figures import pictures

    return pictures(run)
