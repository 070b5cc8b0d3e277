"""Assumptions D.1 to D.5: at which starts they hold, and what is left of the story without them   (Appendix D.1)

The lemmas of appendix D assume that W(0) is small and that the strengths differ enough. "All commonly hold in
practice", the paper says. Here is the largest omega, the smallest entry of W(0), at which they do; the data of the
figures are held against them; and on these data starts far outside are followed. Logarithms are used throughout: P is
as large as omega is small.

    margin  of the data: the least a_i - 3 a_j over two concepts of which i is the stronger, over the least strength;
            D.5 needs it to be positive
    ordered a run in which the major entries w_kk pass 1/2 in the order of the strengths
    minor   the largest |w_ij| of a run, i other than j; Assertion D.1 with D.3 has it at most 0.4
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, drawn
from saddlescope.papers.concept_learning.shared.two_layer_runs import data
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.grid import cached_rows

_KAPPAS = (1.1001, 1.11, 1.13, 1.16, 1.2, 1.3, 1.5, 2.0)  # over which the largest omega is looked for
_SMALL = 0.4  # P beta omega in D.3
_MARKED, _UNTIL = (0.3, 100.0), 400.0  # W is recorded between the first two, and followed to the last


@dataclass(frozen=True, kw_only=True)
class Params:
    """Two concepts in theory; the figures' data in runs."""

    ratios: int = 200  # of the two strengths, from 3.05 to 1e5
    betas: tuple[float, ...] = (1.0, 2.0, 10.0)  # of D.1: the largest |w_ij(0)| over the smallest
    settings: int = 4000  # random settings of all constants, at which printed and corrected assumptions are checked
    scales: tuple[float, ...] = (0.1, 0.01, 0.001, 0.0001, 0.00001)  # deviations of U's entries, descending
    starts: int = 1024  # at each scale, on each figure's data
    marks: int = 401  # times at which W is recorded
    seed: int = 0  # of everything

    def __post_init__(self) -> None:
        parameter_checks.at_least(10, self, "ratios", "settings", "starts", "marks")
        parameter_checks.at_least(0, self, "seed")
        if not self.betas or not all(1 <= beta <= 1e6 for beta in self.betas):
            raise InputError(f"betas must be one or more numbers from 1 to 1e6; got {self.betas!r}.")
        if not self.scales or list(self.scales) != sorted(set(self.scales), reverse=True) or not self.scales[-1] > 0:
            raise InputError(f"scales must be positive and descending; got {self.scales!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds."""
        return cls(ratios=10, settings=60, scales=(0.1, 0.001), starts=64, marks=101)

    @classmethod
    def paper(cls) -> "Params":
        """More of all; the paper has no such numbers."""
        return cls(ratios=2000, settings=100_000, starts=16_384)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """The largest omega, random settings, the figures' data, and runs on them."""
    context.report(0.0, "the largest omega")
    theory = context.cached("theory", partial(_theory, params))
    axes = {"data": tuple(FIGURES), "scale": params.scales}
    figures = cached_rows(axes, partial(_followed, params), context.subtask(0.2, 1.0), name="runs")
    context.report(1.0, "done")
    return xr.merge([theory, figures], join="exact")


def _theory(params: Params) -> xr.Dataset:

    ratios = np.geomspace(3.05, 1e5, params.ratios)
    largest = [[_largest([1.0, ratio], beta) for beta in params.betas] for ratio in ratios.tolist()]
    three = [_largest([1.0, ratio, ratio**2], params.betas[0]) for ratio in ratios.tolist()]
    printed, corrected, without = _settings(params)
    strengths = {name: np.sort(data(*FIGURES[name])[0]) for name in FIGURES}
    margins = {
        name: min(b - 3 * c for k, c in enumerate(a) for b in a[k + 1 :]) / a[0] for name, a in strengths.items()
    }
    omegas = [_largest(a.tolist(), params.betas[0]) if margins[name] > 0 else math.nan for name, a in strengths.items()]
    return xr.Dataset(
        {
            "log10_omega": (("ratio", "beta"), np.array(largest)),
            "log10_omega_three": ("ratio", np.array(three)),
            "settings": params.settings,
            "printed_hold": printed,
            "corrected_hold": corrected,
            "without_data_hold": without,
            "margin": ("data", np.array(list(margins.values()))),
            "figure_log10_omega": ("data", np.array(omegas)),
        },
        coords={"ratio": ratios, "beta": list(params.betas), "data": list(FIGURES)},
    )


def _largest(strengths: list[float], beta: float) -> float:
    """The largest log10 omega over kappa."""
    from saddlescope.theory.concepts import largest_start

    return max(largest_start(strengths, beta=beta, kappa=kappa).log_omega for kappa in _KAPPAS) / math.log(10)


def _settings(params: Params) -> tuple[int, int, int]:
    """At how many random settings the assumptions hold as printed, corrected, and with a direction without data."""
    from saddlescope.theory.concepts import check_assumptions, largest_start

    rng = np.random.default_rng((params.seed, 1000))
    held = np.zeros(3, int)
    for _ in range(params.settings):
        ratio, beta = 3 + 10 ** rng.uniform(-1, 4), 1 + 10 ** rng.uniform(-2, 1)
        constants = {"K": 20 * 10 ** rng.uniform(0, 1), "kappa": 1.1 + 10 ** rng.uniform(-3, 0)}
        best = largest_start([1.0, ratio], beta=beta, **constants)
        more, less = rng.exponential(30.0), rng.exponential(0.3 if rng.random() < 0.5 else 300.0)
        tuned: dict[str, Any] = {
            **constants, "C": 1 + 10 ** rng.uniform(-2, 1.5), "log_P": best.log_P + more,
            "log_scale": best.log_omega - more - less,
        }  # fmt: skip
        start = np.full((2, 2), 1.0) + (beta - 1) * np.eye(2)
        held += [
            check_assumptions([1.0, ratio], start, **tuned).hold,
            check_assumptions([1.0, ratio], start, corrected=True, **tuned).hold,
            check_assumptions([0.0, 1.0, ratio], np.full((3, 3), 1.0) + (beta - 1) * np.eye(3), **tuned).hold,
        ]
    return int(held[0]), int(held[1]), int(held[2])


def _followed(params: Params, k: int, cell: tuple[str, float], report: Callable[[float, str], None]) -> xr.Dataset:
    """Runs on one figure's data: the order of the major entries, the size of the minor ones, the end."""
    from saddlescope.flow import Ending, symmetric_flows

    name, scale = cell
    report(0.0, f"{name}, scale {scale:g}")
    a, x = data(*FIGURES[name])
    U = drawn(np.random.default_rng((params.seed, k)), "normal", scale, (params.starts, len(a), len(a)))
    times = np.geomspace(*_MARKED, params.marks)
    ordered, minor, learned = [], [], 0
    for first in range(0, params.starts, 256):  # whose recorded W are kept at a time
        flows = symmetric_flows(a, U[first : first + 256], test_point=x, until=_UNTIL, record=times, tolerance=1e-8)
        major = np.einsum("ntii->nti", flows.W)
        passed = _half_times(flows.times, major)[:, np.argsort(-a)]
        ordered.append(np.all(np.diff(passed, axis=1) > 0, axis=1))
        minor.append(np.abs(flows.W - major[..., None] * np.eye(len(a))).max(axis=(1, 2, 3)))
        learned += int(np.sum(flows.endings == Ending.LEARNED))
    minors = np.concatenate(minor)
    return xr.Dataset(
        {
            "starts": params.starts,
            "ordered": np.concatenate(ordered).sum(),
            "small": np.sum(minors <= _SMALL),
            "learned": learned,
            "minor": ("quantile", np.quantile(minors, (0.1, 0.5, 0.9))),
        },
        coords={"quantile": [0.1, 0.5, 0.9]},
    )


def _half_times(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """When values (starts, times, d) first pass 1/2, interpolated between marks, (starts, d); NaN where they do not."""
    after = np.argmax(values > 0.5, axis=1)
    high = np.take_along_axis(values, after[:, None], axis=1)[:, 0]
    low = np.take_along_axis(values, np.maximum(after - 1, 0)[:, None], axis=1)[:, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(after > 0, (0.5 - low) / (high - low), 0.0)
    when = times[np.maximum(after - 1, 0)] + part * (times[after] - times[np.maximum(after - 1, 0)])
    return np.where(high > 0.5, when, np.nan)


def _largest_omega(run: xr.Dataset) -> Estimate:
    best = run.log10_omega.where(run.log10_omega == run.log10_omega.max(), drop=True).ratio.values[0]
    told = f"at strengths in the ratio {best:.3g}; three concepts: {float(run.log10_omega_three.max()):.1f}"
    return Estimate(float(run.log10_omega.max()), remark=told)


def _allowed(run: xr.Dataset) -> Estimate:
    told = ", ".join(f"{name} {float(run.margin.sel(data=name)):.2f}" for name in run.data.values.tolist())
    return Estimate(float((run.margin > 0).mean()), remark=f"margins over alpha: {told}")


def _held(kind: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        return Estimate(float(run[f"{kind}_hold"]), remark=f"of {int(run.settings)} settings")

    return statistic


def _least_share(of: str, *, at: Callable[[xr.Dataset], xr.Dataset]) -> Callable[[xr.Dataset], Estimate]:
    """The share of runs on the data on which it is least, at some scales."""

    def statistic(run: xr.Dataset) -> Estimate:
        one = at(run)
        shares = [
            (Estimate.share(float(cell[of]), float(cell.starts)), f"{name}, scale {scale:g}")
            for name, scale in itertools.product(one.data.values.tolist(), one.scale.values.tolist())
            for cell in [one.sel(data=name, scale=scale)]
        ]
        least, where = min(shares, key=lambda found: found[0].value)
        return Estimate(least.value, least.uncertainty, f"{where}: {least.remark}")

    return statistic


claims = (
    Claim(
        name="largest-omega",
        says="As printed, they hold together at absurdly small starts only: log10 of the largest omega, two concepts",
        source="Assumptions D.1 to D.5, computed; the bound this project's",
        statistic=_largest_omega,
        high=-60.0,
        unit="log10",
    ),
    Claim(
        name="in-practice",
        says="As printed: they commonly hold in practice. Part of the data of Figures 5, 8, 9 and 10 on which they "
        "hold at any start at all",
        source="Appendix D.1, literally: all four",
        statistic=_allowed,
        low=1.0,
    ),
    Claim(
        name="can-be-met",
        says="As printed they can be met: settings of all constants at which they hold",
        source="Assumptions D.1 to D.5; the bound: one",
        statistic=_held("printed"),
        low=1.0,
    ),
    Claim(
        name="contradiction",
        says="With P^2 in D.4, which the proofs need (Corollary D.1), D.4 and D.5 contradict each other: settings at "
        "which they hold",
        source="this project's proof, in saddlescope.theory.concepts",
        statistic=_held("corrected"),
        high=0.0,
    ),
    Claim(
        name="no-free-direction",
        says="They exclude directions without data, d > s, since D.1 has 0 < alpha <= a_k: settings at which they hold",
        source="Assumption D.1",
        statistic=_held("without_data"),
        high=0.0,
    ),
    Claim(
        name="order",
        says="Far outside the assumptions concepts are still learned in the order of their strengths: least share of "
        "starts up to a scale of 0.001",
        source="section 4.2.1; the bound from trial runs on other seeds",
        statistic=_least_share("ordered", at=lambda run: run.sel(scale=run.scale <= 0.0011)),
        low=0.98,
    ),
    Claim(
        name="order-of-figures",
        says="At the scale of the figures, 0.1, too: least share of starts",
        source="section 4.2.1; the bound this project's",
        statistic=_least_share("ordered", at=lambda run: run.isel(scale=[0])),
        low=0.9,
    ),
    Claim(
        name="minor-small",
        says="Minor entries stay below 0.4, where Assertion D.1 with D.3 has them: least share of starts at any scale",
        source="Assertion D.1; the bound from trial runs on other seeds",
        statistic=_least_share("small", at=lambda run: run),
        low=0.97,
    ),
    Claim(
        name="learned",
        says="Every start generalizes in the end: least share at any scale",
        source="section 4.2.1, and d/dt log det W = 4 tr(A (1 - W)); exact",
        statistic=lambda run: Estimate(float((run.learned / run.starts).min())),
        low=1.0,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The largest omega against the ratio of strengths; what is left of the story against the scale."""
    scale = Axis("scale of U's entries", scale="log")
    omegas: list[Line | Mark] = [
        Line(x=run.ratio.values, y=run.log10_omega.sel(beta=beta).values, label=f"two concepts, β = {beta:g}", color=k)
        for k, beta in enumerate(run.beta.values.tolist())
    ]
    omegas.append(
        Line(x=run.ratio.values, y=run.log10_omega_three.values, label="three concepts", color=5, style="dashed")
    )
    omegas.append(Mark(at=-37.9, label="float32 ends", axis="y"))
    ordered, minors = [], []
    for k, name in enumerate(run.data.values.tolist()):
        one = run.sel(data=name)
        ordered.append(Line(x=run.scale.values, y=(one.ordered / one.starts).values, group=name, color=k))
        minors.append(Line(x=run.scale.values, y=one.minor.sel(quantile=0.5).values, group=name, color=k))
    rows = tuple(
        (name, float(run.margin.sel(data=name)), float(run.figure_log10_omega.sel(data=name)))
        for name in run.data.values.tolist()
    )
    return [
        Figure(
            name="omega",
            title="The assumptions need starts of 1e-61; the story does not",
            caption="Left: the largest omega, the smallest entry of W(0), at which D.3, D.4 and D.5 as printed hold "
            "together, against the ratio of neighbouring strengths. Then, far outside: the share of normal starts "
            "whose concepts are learned in the order of their strengths, and the median of the largest minor entry. "
            "The table has the margin of each figure's data in D.5, which must be positive, and log10 of its largest "
            "omega.",
            panels=(
                Panel(
                    title="assumptions hold below", x=Axis("ratio of strengths", scale="log"), y=Axis("log₁₀ ω"),
                    marks=tuple(omegas),
                ),
                Panel(title="in order", x=scale, y=Axis("share of starts", range=(0.0, 1.05)), marks=tuple(ordered)),
                Panel(title="largest minor entry", x=scale, y=Axis("median |wᵢⱼ|", scale="log"), marks=tuple(minors)),
            ),
            columns=3,
            table=Table(columns=("data", "margin / alpha", "log10 omega"), rows=rows),
        )
    ]  # fmt: skip
