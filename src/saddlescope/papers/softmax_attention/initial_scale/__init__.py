"""The initial scale: when it matters where the diagonal flow ends; smaller is not better   (Theorem 4.1, equation 5)

Theorem 4.1 allows any omega_0 that is not 0 and any global solution as the limit. Three kinds of data are followed:

    conditioned  the l1 solution is unique: the limit must not depend on omega_0
    degenerate   a segment of l1 solutions; omega_0 differs between coordinates, at random
    raw          Gaussian, from scales of 1 to 1e-8: how far the direction is from the l1 solution at t = 1e300

On degenerate data the flow ends at the solution of least entropy sum_j |beta_j| (ln(|beta_j| / omega_0,j^2) - 1), so a
common factor of omega_0 does not matter, and ratios do (this package's own derivation, in the entry's neighbour).
A smaller scale makes the flow learn coordinates one after the other: late ones wait for mu to grow by powers of
1 / omega_0.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import Axis, Figure, Line, Mark, Panel
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric

_ASTRONOMICAL = 690.7755278982137  # ln t of t = 1e300
_LATE = 1e6  # ln t
_MODERATE = 0.1  # scales from here on are held against each other on conditioned data


@dataclass(frozen=True, kw_only=True)
class Params:
    """Instances and scales."""

    samples: int = 4  # n
    tokens: int = 5  # L
    dim: int = 8  # d, without the added coordinate of degenerate data
    conditioned: int = 4  # conditioned data sets
    degenerate: int = 4  # degenerate data sets
    starts: int = 5  # omega_0 drawn for each of them; the last is the first times 1/30
    raw: int = 12  # Gaussian data sets
    scales: tuple[float, ...] = (1.0, 0.3, 0.1, 1e-2, 1e-4, 1e-8)  # omega_0 for conditioned and raw data, descending
    marks: int = 25  # times to look at, from ln t = 3 to 1e6
    seed: int = 300  # of the first data set of each kind; the others follow

    def __post_init__(self) -> None:
        parameter_checks.at_least(1, self, "samples", "conditioned", "degenerate", "seed")
        parameter_checks.at_least(2, self, "tokens", "raw")
        parameter_checks.at_least(4, self, "dim")
        parameter_checks.at_least(3, self, "starts", "marks")
        scales = self.scales
        if len(scales) < 2 or not all(1e-100 <= b < a <= 10 for a, b in pairwise(scales)):
            raise InputError(f"scales must be two or more, descending, from 10 to 1e-100; got {scales!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds."""
        return cls(conditioned=1, degenerate=1, starts=3, raw=2, scales=(0.3, 0.1), marks=7)

    @classmethod
    def paper(cls) -> "Params":
        """More instances; the paper has none."""
        return cls(conditioned=20, degenerate=20, raw=100)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """All flows of the three kinds."""
    times = np.unique([*np.geomspace(3, _LATE, params.marks), _ASTRONOMICAL])
    kinds = {"conditioned": params.conditioned, "degenerate": params.degenerate, "raw": params.raw}
    jobs = [(kind, params.seed + k) for kind, count in kinds.items() for k in range(count)]
    parts: dict[str, list[xr.Dataset]] = {kind: [] for kind in kinds}
    for k, (kind, seed) in enumerate(jobs):
        context.report(k / len(jobs), f"{kind} data, seed {seed}")
        follow = _mixed if kind == "degenerate" else _scaled
        parts[kind].append(context.cached(f"{kind}-{seed}", partial(follow, kind, seed, times, params)))
    context.report(1.0, "done")
    joined = [
        xr.concat(of, f"{kind}_seed", data_vars="all", coords="minimal", compat="equals", join="exact")
        for kind, of in parts.items()
    ]
    return xr.merge(joined, compat="equals", join="exact")


def _scaled(kind: str, seed: int, times: np.ndarray, params: Params) -> xr.Dataset:
    """One data set from every scale, the same for all coordinates."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.generators import conditioned_tokens
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.shared.gaussian_tokens import separable_gaussian
    from saddlescope.theory.attention.svm import l1_svm

    make = conditioned_tokens if kind == "conditioned" else separable_gaussian
    data = make(params.samples, params.tokens, params.dim, seed=seed)
    loss, beta = SelectionLoss(data.optimal_scores, data.gaps), l1_svm(data).beta
    flows = [diagonal_margin_flow(loss, data.features, scale, times) for scale in params.scales]
    directions = np.array([flow.direction for flow in flows])
    size = np.linalg.norm(beta)
    found = {
        f"{kind}_error": (("scale", "time"), np.linalg.norm(directions - beta, axis=-1) / size),
        f"{kind}_evaluations": ("scale", [flow.evaluations for flow in flows]),
    }
    if kind == "conditioned":
        apart = directions[:, None] - directions[None]
        found[f"{kind}_apart"] = (("scale", "scale_too", "time"), np.linalg.norm(apart, axis=-1) / size)
    return xr.Dataset(found, coords={"scale": list(params.scales), "log_time": ("time", times), f"{kind}_seed": seed})


def _mixed(kind: str, seed: int, times: np.ndarray, params: Params) -> xr.Dataset:
    """One degenerate data set from several omega_0, the last a multiple of the first."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.initial_scale.degenerate_tokens import degenerate_tokens, least_entropy

    of = degenerate_tokens(params.samples, params.tokens, params.dim, seed)
    loss, rng = SelectionLoss(of.data.optimal_scores, of.data.gaps), np.random.default_rng((seed, 1))
    scales = 0.3 * np.exp(rng.uniform(-1, 1, (params.starts, of.data.dim)))
    scales[-1] = scales[0] / 30
    flows = [diagonal_margin_flow(loss, of.data.features, scale, times) for scale in scales]
    limits = np.array([least_entropy(of, scale) for scale in scales])
    directions, size = np.array([flow.direction for flow in flows]), np.linalg.norm(of.beta)
    axes = ("start", "time")
    return xr.Dataset(
        {
            "entropy_error": (axes, np.linalg.norm(directions - limits[:, None], axis=-1) / size),
            "objective": (axes, np.abs(directions).sum(axis=-1) / np.abs(of.beta).sum() - 1),
            "taken": (axes, directions[:, :, -1] / np.abs(of.beta).sum()),
            "taken_limit": ("start", limits[:, -1] / np.abs(of.beta).sum()),
            "spread": ("time", np.linalg.norm(directions[:, None] - directions[None], axis=-1).max(axis=(0, 1)) / size),
            "rescaled": ("time", np.linalg.norm(directions[0] - directions[-1], axis=-1) / size),
        },
        coords={"log_time": ("time", times), f"{kind}_seed": seed},
    )


def _late(run: xr.Dataset, name: str, log_time: float = _LATE) -> np.ndarray:

    return run[name].isel(time=int(np.argmin(np.abs(run.log_time.values - log_time)))).values


def _largest(name: str, run: xr.Dataset) -> Estimate:
    values = abs(_late(run, name))
    return Estimate(float(values.max()), remark=f"{values.size} values, at ln t = {_LATE:g}")


def _independent(run: xr.Dataset) -> Estimate:
    moderate = run.scale.values >= _MODERATE
    values = _late(run, "conditioned_apart")[:, moderate][:, :, moderate]
    told = ", ".join(f"{scale:g}" for scale in run.scale.values[moderate])
    return Estimate(float(values.max()), remark=f"omega_0 = {told}; {len(values)} data sets")


def _smallest_spread(run: xr.Dataset) -> Estimate:
    values = _late(run, "spread")
    return Estimate(float(values.min()), remark=f"the least of {values.size} data sets")


def _smaller_is_not_better(run: xr.Dataset) -> Estimate:

    errors = _late(run, "raw_error", _ASTRONOMICAL)
    first, last = int(np.argmin(np.abs(run.scale.values - 0.3))), len(run.scale) - 1
    told = f"omega_0 = {run.scale.values[last]:g} over {run.scale.values[first]:g}"
    return Estimate.mean(np.log10(errors[:, last] / errors[:, first]), told)


claims = (
    Claim(
        name="independent",
        says="Where the l1 solution is unique, directions from all omega_0 of 0.1 or more agree at ln t = 1e6",
        source="Theorem 4.1; both are within about 1e-6 by then, the bound is ten times that",
        statistic=_independent,
        high=1e-5,
    ),
    Claim(
        name="degenerate-depends",
        says="On a degenerate problem the limit depends on omega_0: largest distance of two directions, relative",
        source="Theorem 4.1 leaves it open; the bound is 1e4 times the error of a direction at that time",
        statistic=_smallest_spread,
        low=1e-2,
    ),
    Claim(
        name="degenerate-global",
        says="Each is a global solution: |beta / mu|_1 over the least, less 1",
        source="Theorem 4.1; the bound is ten times the usual error 1 / ln t",
        statistic=partial(_largest, "objective"),
        high=1e-5,
    ),
    Claim(
        name="least-entropy",
        says="The limit is the l1 solution of least entropy relative to omega_0^2: largest relative error",
        source="This project's derivation; the bound is ten times the usual error 1 / ln t",
        statistic=partial(_largest, "entropy_error"),
        high=1e-5,
    ),
    Claim(
        name="common-factor",
        says="A common factor of omega_0 (here 1/30) does not change the limit: largest distance at ln t = 1e6",
        source="The same derivation; the bound is ten times the usual error 1 / ln t",
        statistic=partial(_largest, "rescaled"),
        high=1e-5,
    ),
    Claim(
        name="smaller-is-not-better",
        says="Raw data, t = 1e300: log10 of the error from the smallest omega_0 over that from 0.3, mean",
        source="Not in the paper; the l1 bias of squared weights is usually shown for small scales. Pilots on seeds "
        "200 to 209 gave 0.64 from 1e-8, the bound asks for no gain",
        statistic=_smaller_is_not_better,
        low=0.0,
    ),
)

metrics = (
    Metric(
        name="conditioned_error",
        says="final error of the direction at the smallest scale, conditioned data, mean over instances",
        statistic=lambda run: float(run.conditioned_error.isel(scale=-1, time=-1).mean()),
        scale="log",
    ),
    Metric(
        name="raw_error",
        says="final error of the direction at the smallest scale, Gaussian data, median over instances",
        statistic=lambda run: float(run.raw_error.isel(scale=-1, time=-1).median()),
        scale="log",
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Errors by scale, and the segment of solutions with what each start picks of it."""
    time, scales = run.log_time.values, run.scale.values.tolist()
    late = Axis("ln t", scale="log")

    def by_scale(kind: str) -> tuple[Line, ...]:
        return tuple(
            Line(x=time, y=row[k], group=f"ω₀ = {scale:g}", color=k, width=1.1, opacity=0.75)
            for k, scale in enumerate(scales)
            for row in run[f"{kind}_error"].values
        )

    taken = run.taken.values[0]
    segment = [Line(x=time, y=row, color=k, width=1.5) for k, row in enumerate(taken)]
    ends = [Mark(at=float(at), axis="y", color=k) for k, at in enumerate(run.taken_limit.values[0])]
    entropy = [
        Line(x=time, y=row, color=0, group="from the least entropy", width=1.0, opacity=0.6)
        for row in run.entropy_error.values.reshape(-1, len(time))
    ]
    spread = [Line(x=time, y=row, color=3, group="between starts", width=1.0, opacity=0.8) for row in run.spread.values]
    return [
        Figure(
            name="scale",
            title="Where the flow ends depends on the start only where the problem leaves it open",
            caption="Above: distance of the direction from the l1 solution, from several initial scales; a small scale "
            "learns coordinates one after the other and waits. Below, degenerate data: how much of the norm the added "
            "coordinate takes, one data set, from several omega_0 (lines across: the solution of least entropy); and "
            "the distance from that solution, beside the largest distance between two starts, all data sets.",
            panels=(
                Panel(
                    title="conditioned data",
                    x=late,
                    y=Axis("relative error", scale="log", range=(1e-7, 10.0)),
                    marks=by_scale("conditioned"),
                ),
                Panel(
                    title="raw Gaussian data",
                    x=late,
                    y=Axis("relative error", scale="log", range=(1e-7, 10.0)),
                    marks=by_scale("raw"),
                ),
                Panel(
                    title="degenerate data: the added coordinate",
                    x=late,
                    y=Axis("β_c / |β*|₁", range=(0.0, 1.1 * float(np.nanmax(taken[:, time > 10])))),
                    marks=(*segment, *ends),
                ),
                Panel(
                    title="degenerate data: distances",
                    x=late,
                    y=Axis("relative distance", scale="log"),
                    marks=(*entropy, *spread),
                ),
            ),
        )
    ]
