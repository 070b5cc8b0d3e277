"""Theorem 4.1: the direction of diagonal weights approaches a solution of the ℓ1 problem.

The diagonal flow from w₊ = w₋ = ω₀ is followed to ln t = 1e7 and compared with the certified solution β* of the ℓ1
problem. Gaussian data come first. Conditioned data are accepted only if theory predicts a direction that is off by at
most 0.5 / ln t, so that their directions converge soon. Both meet Assumptions 2 and 3.

    error    |β / μ - β*| / |β*|
    excess   |β / μ|₁ over the least ℓ1 norm, less 1; 0 at every global solution, unique or not
    rival    the same of the ℓ2 solution, which a flow that minimised the ℓ2 norm would approach

The error falls like 1 / ln t at best. A weight off the support grows like μ to the power |Σ_k λ_k B_k,j|, near 1 for
some coordinate of Gaussian data: its share of the direction then falls like a small power of 1 / ln t.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.shared.curves import flow_panel
from saddlescope.plot import Axis, Figure, Figures, Line, Mark
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_T300 = 690.7755278982137  # ln t at t = 1e300

_DECADES = (_T300, 1e3, 1e4, 1e5, 1e6, 1e7)  # ln t


class Params(EntryParams):
    """Data sets and initial scale."""

    samples: tuple[int, ...] = param((4, 10, 20), "number of samples n of each size", ge=1)
    tokens: tuple[int, ...] = param((5, 5, 10), "number of tokens per sample L of each size", ge=1)
    dims: tuple[int, ...] = param((8, 50, 200), "dimension d of each size", ge=1)
    instances: int = param(4, "number of conditioned data sets of each size", ge=1)
    raw: int = param(20, "number of Gaussian data sets of each size but the largest", ge=2)
    scale: float = param(0.3, "initial scale ω₀ of the weights", gt=0, scale="log")
    marks: int = param(33, "number of recorded times from ln t = 1 to 1e7", ge=9)
    seed: int = param(700, "seed of the first data set; the others count up", ge=0)

    def check(self) -> None:
        sizes = self.samples, self.tokens, self.dims
        if len({len(each) for each in sizes}) > 1:
            raise InputError(f"samples, tokens and dims must be as many, one of each per size; got {sizes!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow all flows, and solve their ℓ1 problems."""
    from saddlescope.models import conditioned_tokens
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens

    times = np.unique([*np.geomspace(1, _DECADES[-1], params.marks), *_DECADES])
    sizes = list(zip(params.samples, params.tokens, params.dims, strict=True))
    groups = (
        ("conditioned", conditioned_tokens, sizes, params.instances),
        ("raw", separable_gaussian_tokens, sizes[: max(1, len(sizes) - 1)], params.raw),
    )
    jobs = [(group, make, size, k) for group, make, some, count in groups for size in some for k in range(count)]

    def follow(case: int, step: RunContext) -> xr.Dataset:
        group, make, size, k = jobs[case]
        return _follow(make(*size, seed=params.seed + k), times, params.scale).assign(group=group)

    return xr.concat(context.cells({"case": range(len(jobs))}, follow), "case")


def _follow(data: "TokenData", times: np.ndarray, scale: float) -> xr.Dataset:
    """Follow one flow and compare it with its ℓ1 solution."""
    from saddlescope.models import check_token_assumptions
    from saddlescope.papers.softmax_attention.shared.flows import diagonal_flow
    from saddlescope.theory.attention.svm import l1_svm

    svm, direction = l1_svm(data), diagonal_flow(data, scale, times).direction
    assumptions, least = check_token_assumptions(data, np.zeros(data.dim)), svm.certificate.dual
    return xr.Dataset(
        {
            "error": ("time", np.linalg.norm(direction - svm.beta, axis=1) / np.linalg.norm(svm.beta)),
            "excess": ("time", np.abs(direction).sum(axis=1) / least - 1),
            "rival": np.abs(least_square(data.features.reshape(-1, data.dim))).sum() / least - 1,
            "assumptions_hold": assumptions.equal_scores.holds and assumptions.small_initial_loss.holds,
        },
        coords={"log_time": ("time", times)},
    )


def least_square(features: np.ndarray) -> np.ndarray:
    """Return the weights of least ℓ2 norm with margins of 1, by non-negative least squares (Lawson and Hanson)."""
    from scipy.optimize import nnls

    rows = np.concatenate([features.T, np.ones((1, len(features)))])
    target = np.append(np.zeros(features.shape[1]), 1.0)
    residual = rows @ nnls(rows, target)[0] - target
    return -residual[:-1] / residual[-1]


def _values_at(run: xr.Dataset, variable: str, log_time: float) -> np.ndarray:
    return run[variable].values[:, int(np.argmin(np.abs(run.log_time.values - log_time)))]


def _gaussian(run: xr.Dataset) -> xr.Dataset:
    return run.isel(case=run.group.values == "raw")


def assumptions_hold(run: xr.Dataset) -> bool:
    """Every data set meets Assumptions 2 and 3"""
    return bool(run.assumptions_hold.all())


claims = Claims(
    requires=[assumptions_hold],
    limits="A fall at every decade of ln t to 1e7 is no limit, and the theorem assumes that the limit exists. On "
    "Gaussian data the fall is slow, so that no finite time shows where it ends; conditioned data, which reach their "
    "solution, are selected for that. All start from ω₀ = 0.3. Rate and distance on Gaussian data depend on the two "
    "sizes, equally mixed; their bounds are after pilots on seeds 5000 to 5009 and 200 to 209.",
)


@claims.reading(
    "theorem-4-1",
    "Under Assumptions 2 and 3, on Gaussian and conditioned data that diagonal weights can separate, their direction "
    "approaches a solution of the ℓ1 problem",
    "Theorem 4.1, on the limit, if it exists; to ln t = 1e7, ℓ1 and ℓ2 solutions 1 % apart, separable: this project",
    high=0.0,
)
def _exceptions(run: xr.Dataset) -> Estimate:
    """Number of flows whose ℓ1 norm over its least rises between decades of ln t, or ends above the ℓ2 solution's."""
    differ = run.isel(case=run.rival.values > 0.01)  # elsewhere the ℓ2 solution all but solves the ℓ1 problem, too
    values = np.array([_values_at(differ, "excess", log_time) for log_time in _DECADES])
    wrong = np.any(np.diff(values, axis=0) >= 0, axis=0) | (values[-1] >= differ.rival.values)
    most = np.max(values[-1] / differ.rival.values, initial=0.0)
    remark = f"of {wrong.size} flows whose two solutions differ by 1 %; {most:.2g} of that is left at most"
    return Estimate.number(wrong, remark, over="data sets")


@claims.extension(
    "raw-rate",
    "On Gaussian data, the distance of diagonal weights' direction from the ℓ1 solution falls more slowly than "
    "1/√(ln t) from ln t = 1e5 to 1e7, in the median",
    "The theorem has no rate; the next term after ln t would give an exponent of -1",
    low=-0.5,
    high=0.0,
)
def _gaussian_exponent(run: xr.Dataset) -> Estimate:
    """Exponent of the distance as a power of ln t between ln t = 1e5 and 1e7, median over Gaussian data sets."""
    early, late = (_values_at(_gaussian(run), "error", log_time) for log_time in (1e5, 1e7))
    slopes = np.log(late / early) / np.log(100.0)
    return Estimate.median(slopes, f"{len(slopes)} flows, {slopes.min():.2g} to {slopes.max():.2g}")


@claims.extension(
    "raw-is-far",
    "On Gaussian data, the direction of diagonal weights is on average over 5 % from the ℓ1 solution at t = 1e300",
    "The theorem has no rate; trial runs on other seeds had 8 to 54 %",
    low=0.05,
)
def _gaussian_error(run: xr.Dataset) -> Estimate:
    """Relative distance of the direction from the ℓ1 solution at t = 1e300, mean over Gaussian data sets."""
    return Estimate.mean(_values_at(_gaussian(run), "error", _T300))


def figures(run: xr.Dataset) -> Figures:
    """Draw errors and excesses over time."""
    time, x = run.log_time.values, Axis("ln t", scale="log")
    names = {"conditioned": "conditioned data", "raw": "Gaussian data"}
    groups = {label: run.isel(case=run.group.values == group) for group, label in names.items()}
    errors = {label: of.error for label, of in groups.items()}
    excesses = {label: (of.excess / of.rival).transpose("case", "time") for label, of in groups.items()}
    law = Line(x=time[time > 10], y=1 / time[time > 10], style="dotted", label="1 / ln t")
    rival = Mark(at=1.0, axis="y", label="ℓ2 solution")
    error, excess = Axis("|β/μ − β*| / |β*|", scale="log"), Axis("excess over the ℓ2 solution's", scale="log")
    yield Figure(
        name="direction",
        title="Direction of diagonal weights and the ℓ1 solution over time",
        caption="Left: relative distance of the direction β/μ from the certified ℓ1 solution against time; "
        "t = 1e300 is at ln t = 691. Right: excess of its ℓ1 norm over the least, in units of that of the ℓ2 "
        "solution.",
        panels=(
            flow_panel("distance from the ℓ1 solution", x, error, time, errors, more=[law]),
            flow_panel("excess of the ℓ1 norm", x, excess, time, excesses, more=[rival]),
        ),
    )


entry = Entry(
    "softmax-attention/theorem-4-1",
    "Theorem 4.1: diagonal weights and the ℓ1 problem",
    source="Theorem 4.1, section 4.1",
    quick=dict(samples=(4,), tokens=(5,), dims=(8,), instances=2, raw=3, marks=17),
    paper=dict(instances=20, raw=50),
)
