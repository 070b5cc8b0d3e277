"""Quadratic networks on modular addition learn one Fourier feature after another, in the order of its coefficient.

A number a modulo p is encoded by the template shifted by a, of which only K frequencies are not zero. In their Fourier
basis that is (m_k cos θ_k(a), m_k sin θ_k(a)) with θ_k(a) = 2π ξ_k a / p + φ_k, scaled to Σ m_k² = 1. The network maps
all pairs (a, b) to the encoding of a + b. Its unit is one neuron of degree 3, f(x) = w (u·x_a + v·x_b)².

    e_k   half the mean squared error in the two coordinates of frequency k; m_k² / 2 at the origin
    L_k   ½ Σ_{j > k} m_j²: the loss with the k largest frequencies learned, and no other

The prediction from one neuron is followed to the last time of the flow. The first neurons of a frequency lead to
saddles among themselves, which it passes on the side given by the initial weights, and to valleys without end.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.beyond.shared.stage_claims import AGF, stage_table
from saddlescope.papers.beyond.shared.stage_comparison import (
    SeedParams,
    compare_stages,
    over_seeds,
    over_stages,
    time_errors,
)
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.flow import UnitTrajectory

_FIRST = 3  # stages, before which no symmetry has led to a saddle
_LEARNED = 0.02  # of a frequency's error left when it is learned, or learned when it is begun
_RECORDS = 1501
_CLOSE = 4001  # until the end of the prediction, whose plateaus may be short


class Params(SeedParams, seeds=tuple(range(20, 25))):
    """Templates with a few frequencies of given coefficients."""

    modulus: int = param(20, "modulus p", ge=5, le=40)
    coefficients: tuple[float, ...] = param(
        (1.0, 0.7, 0.5), "coefficients of the template's frequencies, up to a factor", gt=0, order="decreasing"
    )
    neurons: int = param(24, "hidden neurons", ge=1)
    log10_scale: float = param(-6.0, "log10 of the initial scale α", ge=-10, le=-1)
    until: float = param(60.0, "last time, in units of 1 / α", gt=0)
    tolerance: float = param(1e-7, "tolerance of the flow's log norms and directions", ge=1e-10, le=1e-3, scale="log")

    def check(self) -> None:
        most = (self.modulus - 1) // 2
        if len(self.coefficients) > most:
            raise InputError(
                f"coefficients must hold at most {most} values, the frequencies below half of modulus={self.modulus}; "
                f"got {len(self.coefficients)}."
            )


@over_seeds
def run(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    """Predict all stages from one neuron, and follow the flow of all neurons."""
    from saddlescope.flow import unit_flow
    from saddlescope.papers.beyond.shared.units import half_square, quadratic_neuron
    from saddlescope.theory import unit_learning

    rng, until, (theory, simulation) = np.random.default_rng(seed), params.until, context.split(3, 1)
    sizes = np.array(params.coefficients) / np.linalg.norm(params.coefficients)
    code = _encoding(params.modulus, sizes, rng)
    a, b = np.divmod(np.arange(params.modulus**2), params.modulus)
    data = np.stack([code[a], code[b]], axis=1), code[(a + b) % params.modulus]
    weights = {name: rng.standard_normal((params.neurons, code.shape[1])) for name in ("u", "v", "w")}
    units, parameters = (quadratic_neuron, data, half_square), {name: np.zeros(code.shape[1]) for name in weights}
    learned = unit_learning(*units, parameters=parameters, weights=weights, until=until, report=theory.report)
    grid = np.linspace(0.0, until, _RECORDS)
    record = np.union1d(grid, np.linspace(0, min(learned.end, until), _CLOSE))
    policies = {"until": until, "tolerance": params.tolerance, "record": record, "report": simulation.report}
    flow = unit_flow(*units, weights, degree=3.0, log_scale=params.log10_scale * np.log(10), **policies)
    shares = 1 - _errors(flow, data) / (sizes**2 / 2)[:, None]
    half = [flow.times[np.argmax(share > 0.5)] if np.any(share > 0.5) else np.nan for share in shares]
    measured = {
        "coefficient": ("frequency", sizes),
        "half_time": ("frequency", half),
        "exact_level": ("frequency", 0.5 * np.append(np.cumsum(sizes[::-1] ** 2)[::-1][1:], 0.0)),
        "found_level": ("frequency", plateaus(flow.times, flow.losses, shares)),
        "share": (("frequency", "instant"), np.array([np.interp(grid, flow.times, share) for share in shares])),
        "whole_loss": ("instant", np.interp(grid, flow.times, flow.losses)),
    }
    compared = compare_stages(learned, {params.log10_scale: flow}, until=learned.end)
    return compared.assign(measured).assign_coords(frequency=np.arange(1, len(sizes) + 1), instant=grid)


def _encoding(modulus: int, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the encoding of 0, ..., p - 1 with random frequencies and phases, shape (p, 2 K)."""
    frequencies = rng.choice(np.arange(1, (modulus + 1) // 2), len(sizes), replace=False)
    angles = 2 * np.pi * np.outer(np.arange(modulus), frequencies) / modulus + rng.uniform(0, 2 * np.pi, len(sizes))
    return np.stack([sizes * np.cos(angles), sizes * np.sin(angles)], axis=2).reshape(modulus, -1)


def _errors(flow: "UnitTrajectory", data: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return e_k at the recorded times, shape (K, times)."""
    X, Y = data
    thetas = (flow.norms[:, :, None] * flow.directions).reshape(*flow.log_norms.shape, 3, -1)  # u, v, w by name
    errors = []
    for u, v, w in thetas.transpose(0, 2, 1, 3):
        outputs = np.square(X[:, 0] @ u.T + X[:, 1] @ v.T) @ w
        errors.append(0.5 * np.mean((outputs - Y) ** 2, axis=0).reshape(-1, 2).sum(axis=1))
    return np.array(errors).T


def plateaus(times: np.ndarray, losses: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the loss midway between the end of each frequency and the beginning of the next; NaN without a plateau."""
    found = np.full(len(shares), np.nan)
    for k in range(len(shares)):
        left = np.flatnonzero((shares[: k + 1] < 1 - _LEARNED).any(axis=0))
        begun = np.flatnonzero((shares[k + 1 :] > _LEARNED).any(axis=0))
        start, end = left[-1] + 1, begun[0] if len(begun) else len(times) - 1
        if start < end:
            found[k] = np.interp((times[start] + times[end]) / 2, times, losses)
    return found


claims = Claims(
    limits="Modulus 20, three frequencies, α = 1e-6. The time of each is read off the network's own output. Closer "
    "coefficients may be learned together from a few neurons. A frequency takes about six neurons, each with a stage "
    "of its own, so that the abstract's levels are those between frequencies; where one begins before the last is done "
    "there is no such plateau, and the claim is undecided. Two neurons of opposite sign approach their plateau slowly, "
    "which delays the third at any reachable scale."
)


@claims.reading(
    "order",
    "From α = 1e-6, quadratic networks on modular addition learn Fourier features in decreasing order of coefficients "
    "that differ by a factor of 1.4 or more",
    f"{AGF}: 'learn Fourier features in decreasing order of coefficient magnitude'; factor, α: this project",
    high=0.0,
)
def _order(run: xr.Dataset) -> Estimate:
    """Number of seeds in which a frequency is half learned before one of a larger coefficient, or never."""
    times = run.half_time.fillna(np.inf)
    late = np.isinf(times).any("frequency")
    return Estimate.number((times.diff("frequency") <= 0).any("frequency") | late, over="seeds")


@claims.reading(
    "features",
    "Between two Fourier features, the loss of quadratic networks on modular addition is that of those not yet learned",
    f"{AGF}: magnitude of the drops; the closed form is derived in the module; bar: this project",
    high=0.01,
)
def _features(run: xr.Dataset) -> Estimate:
    """Largest difference of a plateau's loss from the closed form, in units of the initial loss."""
    errors = (abs(run.found_level - run.exact_level) / run.initial_loss).max("frequency", skipna=False)
    return Estimate.largest(errors, f"{int(errors.count())} of {errors.size} have all plateaus", over="seeds")


@claims.extension(
    "times",
    "From α = 1e-6, the first three neurons on modular addition become active at the times predicted from one neuron",
    "Not in the abstract, which speaks of features; bar: this project",
    high=0.02,
)
def _times(run: xr.Dataset) -> Estimate:
    """Largest relative error of a predicted stage time at the initial scale of the flow."""
    return over_stages(run.sel(stage=slice(None, _FIRST)), time_errors(run))


def figures(run: xr.Dataset) -> Figures:
    """Draw the loss of the first seed with the closed forms, and the share of each frequency that is learned."""
    first, x = run.isel(seed=0), Axis("time / (1/α)")
    times, losses = first.instant.values, first.predicted_loss.dropna("stage").values
    steps = np.array([0.0, *first.predicted_time.dropna("stage").values, times[-1]])
    levels = np.array([float(first.initial_loss), *losses, losses[-1]])
    curves = (
        Line(x=times, y=first.whole_loss.values, label="gradient flow"),
        Line(x=steps, y=levels, label="predicted", color=5, style="steps"),
        *(
            Line(x=times[[0, -1]], y=np.full(2, level), group="closed form", color=3, style="dashed", width=1.0)
            for level in first.exact_level.values
        ),
    )
    named = first.share.assign_coords(frequency=first.coefficient.values.round(2))
    shares = lines(named, x="instant", hue="frequency", label="coefficient {:g}")
    yield Figure(
        name="features",
        title="Fourier features in the order of their coefficients",
        caption="Gradient flow of quadratic neurons on modular addition, and its stages predicted from one neuron; "
        f"dashed, the loss of the features not yet learned. Table: the stages of seed {int(first.seed)}.",
        panels=(
            Panel(title=f"seed {int(first.seed)}", x=x, y=Axis("loss"), marks=curves),
            Panel(title="Fourier features", x=x, y=Axis("share learned"), marks=shares),
        ),
        table=stage_table(first),
    )


entry = Entry(
    "beyond/modular-addition",
    "Modular addition: Fourier features in the order of their coefficients",
    source="Kunin et al., quadratic networks on modular addition",
    quick={"seeds": (10,), "modulus": 7, "coefficients": (1.0, 0.6), "neurons": 16, "until": 13.0},
)
