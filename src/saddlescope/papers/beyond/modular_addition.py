"""Quadratic networks on modular addition learn one Fourier feature after another, in the order of its coefficient.

A number a modulo p is encoded by the template shifted by a, of which only K frequencies are not zero. In their Fourier
basis that is (m_k cos θ_k(a), m_k sin θ_k(a)) with θ_k(a) = 2π ξ_k a / p + φ_k, scaled to Σ m_k² = 1. The network maps
all pairs (a, b) to the encoding of a + b. Its unit is one neuron of degree 3, f(x) = w (u·x_a + v·x_b)².

    e_k   half the mean squared error in the two coordinates of frequency k; m_k² / 2 at the origin
    L_k   ½ Σ_{j > k} m_j²: the loss with the k largest frequencies learned, and no other

The prediction from one neuron is followed to the last time of the flow. The first neurons of a frequency lead to
saddles among themselves, which it passes on the side given by the initial weights, and to valleys without end.
"""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.beyond import CITATION
from saddlescope.papers.beyond.shared.stage_claims import AGF
from saddlescope.papers.beyond.shared.stage_comparison import (
    compare_stages,
    existing,
    level_errors,
    over_seeds,
    time_errors,
)
from saddlescope.plot import Axis, Figure, Line, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_FIRST = 3  # stages, before which no symmetry has led to a saddle
_LEARNED = 0.02  # of a frequency's error left when it is learned, or learned when it is begun
_LEVEL = 0.01  # largest difference of levels that are the same, in units of the initial loss
_RECORDS = 1501
_CLOSE = 4001  # until the end of the prediction, whose plateaus may be short


class Params(EntryParams):
    """Templates with a few frequencies of given coefficients."""

    seeds: tuple[int, ...] = param(
        tuple(range(20, 25)), "seeds of frequencies, phases and initial weights", ge=0, order="distinct"
    )
    modulus: int = param(20, "modulus p", ge=5, le=40)
    coefficients: tuple[float, ...] = param(
        (1.0, 0.7, 0.5), "coefficients of the template's frequencies, up to a factor", gt=0, order="decreasing"
    )
    neurons: int = param(24, "hidden neurons", ge=1)
    log10_scale: float = param(-6.0, "log10 of the initial scale α", ge=-10, le=-1)
    until: float = param(60.0, "last time, in units of 1 / α", gt=0)
    tolerance: float = param(1e-7, "tolerance of the flow's log norms and directions", ge=1e-10, le=1e-3, scale="log")

    def check(self) -> None:
        """Raise InputError if there are fewer frequencies below p / 2 than coefficients."""
        most = (self.modulus - 1) // 2
        if len(self.coefficients) > most:
            raise InputError(
                f"coefficients must hold at most {most} values, the frequencies below half of modulus={self.modulus}; "
                f"got {len(self.coefficients)}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Predict all stages from one neuron, and follow the flow of all neurons."""
    return over_seeds(params.seeds, context, lambda seed, step: _solve(params, seed, step))


def _solve(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    from saddlescope.flow import unit_flow
    from saddlescope.papers.beyond.shared.units import half_square, quadratic_neuron
    from saddlescope.theory import unit_learning

    rng = np.random.default_rng(seed)
    sizes = np.array(params.coefficients) / np.linalg.norm(params.coefficients)
    code = _encoding(params.modulus, sizes, rng)
    a, b = np.divmod(np.arange(params.modulus**2), params.modulus)
    data = np.stack([code[a], code[b]], axis=1), code[(a + b) % params.modulus]
    weights = {name: rng.standard_normal((params.neurons, code.shape[1])) for name in ("u", "v", "w")}
    theory, simulation = context.split(3, 1)
    learned = unit_learning(
        quadratic_neuron, data, half_square, parameters={name: np.zeros(code.shape[1]) for name in weights},
        weights=weights, until=params.until, report=theory.report,
    )  # fmt: skip
    record = [np.linspace(0, params.until, _RECORDS), np.linspace(0, min(learned.end, params.until), _CLOSE)]
    flow = unit_flow(
        quadratic_neuron, data, half_square, weights, degree=3.0, log_scale=params.log10_scale * np.log(10),
        until=params.until, tolerance=params.tolerance, record=np.unique(np.concatenate(record)),
        report=simulation.report,
    )  # fmt: skip
    errors = _errors(flow, data)
    shares = 1 - errors / (sizes**2 / 2)[:, None]
    levels = 0.5 * np.append(np.cumsum(sizes[::-1] ** 2)[::-1][1:], 0.0)
    grid = np.linspace(0.0, params.until, _RECORDS)
    known = flow.times <= learned.end
    return compare_stages(learned, {params.log10_scale: (flow.times[known], flow.losses[known])}).assign(
        coefficient=("frequency", sizes),
        half_time=("frequency", [_first(flow.times, share > 0.5) for share in shares]),
        exact_level=("frequency", levels),
        found_level=("frequency", _plateaus(flow.times, flow.losses, shares)),
        share=(("frequency", "instant"), np.array([np.interp(grid, flow.times, share) for share in shares])),
        whole_loss=("instant", np.interp(grid, flow.times, flow.losses)),
    ).assign_coords(frequency=np.arange(1, len(sizes) + 1), instant=grid)  # fmt: skip


def _encoding(modulus: int, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the encoding of 0, ..., p - 1 with random frequencies and phases, shape (p, 2 K)."""
    frequencies = rng.choice(np.arange(1, (modulus + 1) // 2), len(sizes), replace=False)
    angles = 2 * np.pi * np.outer(np.arange(modulus), frequencies) / modulus + rng.uniform(0, 2 * np.pi, len(sizes))
    return np.stack([sizes * np.cos(angles), sizes * np.sin(angles)], axis=2).reshape(modulus, -1)


def _errors(flow: Any, data: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return e_k at the recorded times, shape (K, times)."""
    X, Y = data
    thetas = (flow.norms[:, :, None] * flow.directions).reshape(*flow.log_norms.shape, 3, -1)  # u, v, w by name
    errors = []
    for u, v, w in thetas.transpose(0, 2, 1, 3):
        outputs = np.square(X[:, 0] @ u.T + X[:, 1] @ v.T) @ w
        errors.append(0.5 * np.mean((outputs - Y) ** 2, axis=0).reshape(-1, 2).sum(axis=1))
    return np.array(errors).T


def _first(times: np.ndarray, holds: np.ndarray) -> float:
    """Return the first time at which a condition holds; NaN if none."""
    return float(times[np.argmax(holds)]) if holds.any() else np.nan


def _plateaus(times: np.ndarray, losses: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the loss midway between the end of each frequency and the beginning of the next; NaN without a plateau."""
    found = []
    for k in range(len(shares)):
        left = np.flatnonzero((shares[: k + 1] < 1 - _LEARNED).any(axis=0))
        begun = np.flatnonzero((shares[k + 1 :] > _LEARNED).any(axis=0))
        start = left[-1] + 1
        end = begun[0] if len(begun) else len(times) - 1
        apart = start < end
        found.append(np.interp((times[start] + times[end]) / 2, times, losses) if apart else np.nan)
    return np.array(found)


claims = Claims()


@claims.add(
    "order", "Quadratic networks learn the Fourier features of modular addition in decreasing order of coefficient",
    quantity="number of seeds in which a frequency is half learned before one of a larger coefficient, or never",
    kind="printed", source=f"{AGF}: 'learn Fourier features in decreasing order of coefficient magnitude'", high=0.0,
    evidence="cases", over="seeds",
    why="Frequencies and phases are random, and the time of each is read off the network's own output",
    doubt="The coefficients differ by 30 % or more; close ones may be learned together from a few neurons",
)  # fmt: skip
def _order(run: xr.Dataset) -> Estimate:
    times = run.half_time.fillna(np.inf)
    late = np.isinf(times).any("frequency")
    return Estimate.number((times.diff("frequency") <= 0).any("frequency") | late)


@claims.add(
    "features", "Between two Fourier features, the loss of modular addition is that of all features not yet learned",
    quantity="largest difference of a plateau's loss from the closed form, in units of the initial loss",
    kind="reading", source=f"{AGF}: magnitude of the drops; the closed form is derived in the module", high=0.01,
    evidence="cases", over="seeds",
    why="The plateau is where one frequency is learned and the next not begun, whatever its loss",
    doubt="A frequency takes about six neurons, each with a stage of its own; only the last of each is meant here",
)  # fmt: skip
def _features(run: xr.Dataset) -> Estimate:
    errors = abs(run.found_level - run.exact_level) / run.initial_loss
    return Estimate.largest(errors.fillna(np.inf).max("frequency"))


@claims.add(
    "predicted", "The stages of modular addition are predicted from one neuron until all features are learned",
    quantity="number of seeds in which the prediction ends before", kind="own", source="Bar of this project", high=0.0,
    evidence="cases", over="seeds",
    why="The prediction says where it cannot go on, as at a saddle of the active neurons that it cannot pass",
    doubt="Whether the stages are right is another claim; late ones may begin after the last time of the flow",
)  # fmt: skip
def _reached(run: xr.Dataset) -> Estimate:
    undecided = run.seed.values[run.status.values == "saddle"].tolist()
    if undecided:
        return Estimate.unresolved(
            f"With seeds {undecided}, the active neurons come so close to a saddle that rounding decides their way on."
        )
    last = run.predicted_loss.min("stage") / run.initial_loss
    return Estimate.number(~run.status.isin(["until", "converged"]) | (last > _LEVEL))


@claims.add(
    "times", "The first three neurons of modular addition become active at the times predicted from one neuron",
    quantity="largest relative error of a predicted stage time at the initial scale of the flow", kind="own",
    source="Bar of this project", high=0.02, evidence="cases", over="seeds",
    why="Each time depends on the initial weights of the winning neuron and of those before it",
    doubt="Two neurons of opposite sign approach their plateau slowly, which delays the third at any reachable scale",
)  # fmt: skip
def _times(run: xr.Dataset) -> Estimate:
    return _over_predicted(run, time_errors(run), slice(None, _FIRST))


@claims.add(
    "later-times", "The later neurons of modular addition become active at the times predicted from one neuron",
    quantity="largest relative error of a predicted stage time at the initial scale of the flow", kind="own",
    source="Bar of this project", high=0.1, evidence="cases", over="seeds",
    why="Errors of earlier stages add up, since every dormant neuron grows in all of them",
    doubt="Only one scale is judged; neurons that nearly tie can change places at it",
)  # fmt: skip
def _later_times(run: xr.Dataset) -> Estimate:
    return _over_predicted(run, time_errors(run), slice(_FIRST + 1, None))


@claims.add(
    "levels", "The loss plateaus of modular addition are at the levels predicted from one neuron",
    quantity="largest difference of a plateau's loss from the prediction, in units of the initial loss",
    kind="reading", source=f"{AGF}: magnitude of the drops; this project's bar", high=_LEVEL,
    evidence="cases", over="seeds",
    why="The loss in the middle of each stage of the flow is compared with the saddle that the prediction names",
    doubt="Stages are found in the flow from the predicted levels, halfway between two of them",
)  # fmt: skip
def _levels(run: xr.Dataset) -> Estimate:
    return _over_predicted(run, level_errors(run))


def _over_predicted(run: xr.Dataset, errors: xr.DataArray, stages: slice = slice(None)) -> Estimate:
    """Return the largest error over the seeds with a predicted stage; infinite if the flow misses one."""
    meant = run.sel(stage=stages)
    each = existing(meant, errors.sel(stage=stages)).max("stage").dropna("seed")
    if not each.size:
        return Estimate.not_tested("No stage was predicted.")
    return Estimate.largest(each, f"{int(meant.predicted_time.notnull().sum())} stages")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the loss of the first seed with the closed forms, and the share of each frequency that is learned."""
    first = run.isel(seed=0)
    times = first.instant.values
    begins, losses = first.predicted_time.dropna("stage").values, first.predicted_loss.dropna("stage").values
    steps = np.repeat([0.0, *begins, times[-1]], 2)[1:-1]
    levels = np.repeat([float(first.initial_loss), *losses], 2)
    loss = Panel(
        title=f"seed {int(first.seed)}",
        x=Axis("time / (1/α)"),
        y=Axis("loss"),
        marks=(
            Line(x=times, y=first.whole_loss.values, label="gradient flow"),
            Line(x=steps, y=levels, label="predicted", color=5),
            *(
                Line(x=times, y=np.full(len(times), level), group="closed form", color=3, style="dashed", width=1.0)
                for level in first.exact_level.values
            ),
        ),
    )
    shares = Panel(
        title="Fourier features",
        x=Axis("time / (1/α)"),
        y=Axis("share learned"),
        marks=tuple(lines(first.share.assign_coords(frequency=first.coefficient.values.round(2)), x="instant",
                          hue="frequency", label="coefficient {:g}")),
    )  # fmt: skip
    stages = first.isel(scale=0)
    rows = tuple(
        (int(k), float(one.predicted_time), float(one.found_time), float(one.predicted_loss), float(one.found_loss))
        for k in stages.stage.values
        for one in (stages.sel(stage=k),)
    )
    columns = ("stage", "T predicted", "t found", "loss predicted", "loss found")
    return [
        Figure(
            name="features",
            title="Fourier features in the order of their coefficients",
            caption="Gradient flow of quadratic neurons on modular addition, and its stages predicted from one neuron; "
            f"dashed, the loss of the features not yet learned. Table: the stages of seed {int(first.seed)}.",
            panels=(loss, shares),
            table=Table(columns=columns, rows=rows),
        )
    ]


entry = Entry(
    "beyond/modular-addition", "Modular addition: Fourier features in the order of their coefficients",
    citation=CITATION, source="Kunin et al., quadratic networks on modular addition", params=Params,
    quick=dict(seeds=(10,), modulus=7, coefficients=(1.0, 0.6), neurons=16, until=13.0), run=run, claims=claims,
    figures=figures,
)  # fmt: skip
