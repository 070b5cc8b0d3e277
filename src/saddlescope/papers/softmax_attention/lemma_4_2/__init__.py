"""Lemma 4.2: the weights diverge, where diagonal weights can separate the data   (Lemma 4.2, appendix A.4)

The lemma is stated under Assumption 2, with Assumption 1 of section 3 in the background: some W separates the data. Its
proof takes a point of the l1-SVM, so a diagonal W that does. That is more: where there is none, the flow of diagonal
weights can end at a finite strict minimum of the loss. The smallest case needs no flow: tokens (0, 1) and (0, 0) with
the query (1, 0) have B = 0, though W_21 separates them.

Its proof shows int |grad L|^2 dt < infinity and takes lim |grad L| = 0 from it, where it gives the lower limit only:
|beta| is unbounded, but might come back. It cannot: from a sphere of radius R to that of 2R the path has a length of
R at least, along which |grad L| is at least some c_R > 0; so each crossing lowers the loss by some positive amount.

    printed    instances that some W separates but no diagonal one: how many flows end at a strict minimum
    corrected  instances that diagonal weights separate, with large gaps and with a gap of 1, where flows lose samples
               and |beta| tends to infinity all the same
    slowness   2 t ln t |grad L|_inf: near 1 where beta grows like ln t, and arcsinh(beta / omega_0^2) like ln ln t
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.models import TokenData

_SETTLED = 2.0  # log10 t until when a flow that stays finite is followed; its minimum is then found by Newton's method
_WEIGHTS = 100  # random weights of each instance at which the inequality of the proof is tried


@dataclass(frozen=True, kw_only=True)
class Params:
    """Instances and times."""

    instances: int = 24  # of each of the three kinds
    samples: int = 4  # n
    tokens: int = 5  # L
    dim: int = 8  # d where diagonal weights separate
    low_dim: int = 3  # d where they do not
    small_gap: float = 1.0  # of the scores, at which flows lose samples
    scale: float = 0.3  # omega_0
    log10_times: tuple[float, ...] = (
        *(-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 2.0, 4.0, 7.0, 10.0),
        *(15.0, 20.0, 30.0, 50.0, 70.0, 100.0, 150.0, 200.0, 300.0),
    )  # log10 t, with 2, 30 and 300 among them
    seed: int = 200  # of the data

    def __post_init__(self) -> None:
        parameter_checks.at_least(1, self, "instances", "samples", "low_dim")
        parameter_checks.at_least(2, self, "tokens")
        parameter_checks.at_least(self.low_dim + 1, self, "dim")
        parameter_checks.at_least(0, self, "seed")
        parameter_checks.positive(self, "small_gap", "scale")
        times = self.log10_times
        if list(times) != sorted(set(times)) or not {_SETTLED, 30.0, 300.0} <= set(times):
            raise InputError(f"log10_times must ascend, with {_SETTLED:g}, 30 and 300 among them; got {times!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds."""
        return cls(instances=1, log10_times=(0.0, 2.0, 30.0, 300.0))

    @classmethod
    def paper(cls) -> "Params":
        """More instances; the paper has none."""
        return cls(instances=100)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """The flows of all three kinds of instances."""
    parts = []
    kinds = ("some W separates, no diagonal one", "diagonal weights separate", "the same, with a small gap")
    for number, kind in enumerate(kinds):
        every = _instances(params, number)
        for k, data in enumerate(every):
            context.report((number + k / params.instances) / len(kinds), f"{kind}, instance {k}")
            parts.append(context.cached(f"{number}-{k}", partial(_followed, data, params, kind)))
    context.report(1.0, "done")
    return xr.concat(parts, "instance").assign_coords(log10_time=("time", np.array(params.log10_times)))


def _instances(params: Params, kind: int) -> "list[TokenData]":
    """The first instances of a kind, in the order of their seeds."""
    from saddlescope.models import gaussian_tokens, separability

    dim, gap = (params.dim, params.small_gap if kind == 2 else None) if kind else (params.low_dim, None)
    found, seed = [], params.seed
    while len(found) < params.instances:
        data = gaussian_tokens(params.samples, params.tokens, dim, seed=seed, gap=gap)
        seed += 1
        if separability(data).separable and separability(data, diagonal=True).separable == bool(kind):
            found.append(data)
    return found


def _followed(data: "TokenData", params: Params, kind: str) -> xr.Dataset:

    from saddlescope.flow import MarginFlowError, diagonal_margin_flow
    from saddlescope.models import SelectionLoss
    from saddlescope.papers.softmax_attention.lemma_4_2.finite_limits import strict_minimum

    loss, B = SelectionLoss(data.optimal_scores, data.gaps), data.features
    times = np.array(params.log10_times)
    log_times = times * np.log(10)
    sizes, slowness = np.full(len(times), np.nan), np.full(len(times), np.nan)
    limit, log_excess = None, np.nan
    with suppress(MarginFlowError):  # what a flow does not come to stays NaN, and is not decided
        flow = diagonal_margin_flow(loss, B, params.scale, log_times[times <= _SETTLED])
        limit = strict_minimum(loss, B, flow.beta[-1])
        sizes[: len(flow.beta)] = np.linalg.norm(flow.beta, axis=1)
        if limit is None:
            flow = diagonal_margin_flow(loss, B, params.scale, log_times, max_evaluations=5000)
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
            "violations": _violations(data, loss, params.seed),
        },
        coords={"kind": kind},
    )


def _violations(data: "TokenData", loss, seed: int) -> int:
    """At how many random weights <-grad L, beta_f> < sum r, with beta_f feasible: the inequality of the proof."""
    from saddlescope.models import separability

    feasible = separability(data, diagonal=True).weights
    if feasible is None:
        return 0
    rng, B, count = np.random.default_rng(seed), data.features, 0
    margins = B @ feasible
    for exponent in rng.uniform(-2, 6, _WEIGHTS):
        log_rates, signs = loss.log_rates(B @ (10.0**exponent * rng.normal(size=data.dim)))
        rates = signs * np.exp(log_rates - log_rates.max())
        count += not (np.sum(rates * margins) >= np.sum(rates) * (1 - 1e-9) > 0)
    return count


def _of(run: xr.Dataset, diagonal: bool) -> xr.Dataset:
    return run.isel(instance=[("no diagonal" not in kind) == diagonal for kind in run.kind.values.tolist()])


def _at(values: xr.DataArray, log10_time: float) -> np.ndarray:
    return values.values[:, values.log10_time.values.tolist().index(log10_time)]


def _finite(run: xr.Dataset) -> Estimate:
    chosen = _of(run, diagonal=False)
    finite = int(chosen.limit.notnull().sum())
    open_ends = int((chosen.limit.isnull() & chosen.size.isel(time=-1).isnull()).sum())
    return Estimate(
        float(finite),
        remark=f"{finite} of {chosen.sizes['instance']} end at a strict minimum; {open_ends} were not decided",
    )


def _returned(run: xr.Dataset) -> Estimate:
    chosen = _of(run, diagonal=True)
    late, later = _at(chosen["size"], 30.0), _at(chosen["size"], 300.0)
    if not all(value == value for value in later):
        return Estimate.unresolved("A flow did not come to t = 1e300.")
    lost = int((chosen.log_excess > -10).sum())
    return Estimate(
        float(sum(later < 2 * late)),
        remark=f"of {len(late)}, {lost} of which have lost samples; least ratio {min(later / late):.3g}",
    )


def _slowness(run: xr.Dataset) -> Estimate:
    values = _at(_of(run, diagonal=True).slowness, 300.0)
    if not all(value == value for value in values):
        return Estimate.unresolved("A flow did not come to t = 1e300.")
    return Estimate(float(max(abs(values - 1))), remark=f"2 t ln t |grad L| is {min(values):.4g} to {max(values):.4g}")


def _not_falling(run: xr.Dataset) -> Estimate:
    slowness = _of(run, diagonal=True).slowness
    late, later = _at(slowness, 30.0) / 30, _at(slowness, 300.0) / 300
    if not all(value == value for value in later):
        return Estimate.unresolved("A flow did not come to t = 1e300.")
    return Estimate(float(sum(later >= late)), remark=f"of {len(late)}; largest ratio {max(later / late):.3g}")


def _broken(run: xr.Dataset) -> Estimate:
    chosen = _of(run, diagonal=True)
    return Estimate(
        float(chosen.violations.sum()), remark=f"of {_WEIGHTS * chosen.sizes['instance']} weights, up to 1e6"
    )


claims = (
    Claim(
        name="as-printed",
        says="Where some W separates the data, |beta(t)| tends to infinity: flows that end at a finite strict minimum",
        source="Lemma 4.2 under Assumptions 1 and 2 as printed; no exception is allowed",
        statistic=_finite,
        high=0.0,
    ),
    Claim(
        name="with-diagonal-separability",
        says="Where diagonal weights do, it does: flows whose |beta| does not double from t = 1e30 to 1e300",
        source="Lemma 4.2 with what its proof uses; |beta| grows like ln t, tenfold. No exception is allowed",
        statistic=_returned,
        high=0.0,
    ),
    Claim(
        name="gradient-vanishes",
        says="lim |grad L| = 0, not just the lower limit: flows whose t |grad L| does not fall from t = 1e30 to 1e300",
        source="Lemma 4.2's proof; t |grad L| falls like 1 / ln t, tenfold. No exception is allowed",
        statistic=_not_falling,
        high=0.0,
    ),
    Claim(
        name="gradient-law",
        says="It does so like 1/(2 t ln t), as first posed: largest |2 t ln t |grad L| - 1| at t = 1e300",
        source="The law of beta growing like ln t; the bound is this project's, for corrections of ln ln t / ln t",
        statistic=_slowness,
        high=0.1,
    ),
    Claim(
        name="no-stationary-point",
        says="<-grad L, beta_f> >= sum r > 0 at any weights, with beta_f feasible: random weights that violate it",
        source="Appendix A.4, below equation 29, exact; so the loss has no stationary point",
        statistic=_broken,
        high=0.0,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The size of beta over time, for the three kinds of instances."""

    def curves(part: xr.Dataset, until: float) -> tuple[Line, ...]:
        time = part.log10_time.values
        kinds = sorted(set(run.kind.values.tolist()))
        return tuple(
            Line(
                x=time[time <= until], y=row[time <= until], group=kind, color=kinds.index(kind), width=1.2, opacity=0.7
            )
            for kind, row in zip(part.kind.values.tolist(), part["size"].values, strict=True)
        )

    return [
        Figure(
            name="sizes",
            title="The weights diverge where diagonal weights can separate the data",
            caption="Left: |beta| of flows on data that diagonal weights separate, with large gaps of the scores and "
            "with a gap of 1, where some flows lose samples. Right: on data that some W separates but no diagonal one; "
            "flat curves have come to a strict minimum of the loss.",
            panels=(
                Panel(
                    title="separable by diagonal weights",
                    x=Axis("time, log10 t"),
                    y=Axis("|β|", scale="log"),
                    marks=curves(_of(run, diagonal=True), 300.0),
                ),
                Panel(
                    title="separable by others only",
                    x=Axis("time, log10 t"),
                    y=Axis("|β|", scale="log"),
                    marks=curves(_of(run, diagonal=False), _SETTLED),
                ),
            ),
        )
    ]
