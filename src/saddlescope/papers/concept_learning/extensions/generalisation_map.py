"""Generalisation map: regions in which training stops before both concepts are learned.

Two-layer linear networks on two concepts with mu = (1, r), from normal weights of standard deviation tau. A network
generalizes if both outputs f(x)_k / mu_k at the test point x are at least one half. In the end, all networks do. The
entry shows for which (r, sigma, tau) training stops too early: when the training loss has fallen to a small part of its
start, or after a budget of steps. The answer follows from the start and the strengths a_p = sigma_p^2 + mu_p^2 / 2.

    s       time in units of 1 / a_1, a_1 the larger strength: steps times a learning rate proportional to 1 / a_1
    share   a_2 / (a_1 + a_2), the weaker concept's part of the first training loss; a_1 >= a_2
    stop    when the training loss is `done` of its start: the weaker concept's output is then 1 - (done / share)^(1/2)
            or 0, so that networks fail to generalize if the share is below 4 done, for any tau
    budget  a time s: networks fail whose predicted last stage is later
    diverse the concepts with the deviation sigma: both, the one of the stronger signal, or the other alone

The symmetric network x -> U U^T x follows gradient flow. The other, x -> U V x, is trained by gradient descent on both
weights. In it P = (U + V^T) / 2 grows as e^(a t) while U - V^T fades: from small starts it follows the symmetric
network from P at half the speed. One step eta multiplies by 1 + eta a instead of e^(eta a), so that the time of descent
is longer than that of the flow by the factor eta a / log(1 + eta a).
"""

import dataclasses
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.plot import Axis, Figure, Heat, Line, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, Evidence, Metric, RunContext, param
from saddlescope.reproduction.grid import cached_rows, join_cells

Diverse = Literal["both", "strong", "weak"]

_DIVERSE: tuple[Diverse, ...] = ("both", "strong", "weak")
_MODELS = ("symmetric", "trained")
RATE = 0.1  # of gradient descent, over 1 / a_1
_LEARNED = 0.5  # least output of a learned concept
_FIRST, _MARKS = 0.2, 500  # the first s > 0 that is recorded, and the number of marks


class Params(EntryParams):
    """Seven ratios, six diversities in three ways, four scales."""

    ratios: tuple[float, ...] = param(
        (1.25, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0), "ratios r of the two signals", ge=1.01, le=100, order="increasing"
    )
    sigmas: tuple[float, ...] = param(
        (0.05, 0.5, 1.0, 2.0, 4.0, 8.0),
        "standard deviations of the diverse concepts",
        ge=0.001,
        le=100,
        order="increasing",
    )
    calm: float = param(0.05, "standard deviation of the other concepts", gt=0)
    scales: tuple[float, ...] = param(
        (1e-4, 1e-3, 1e-2, 1e-1),
        "standard deviations τ of the initial weights",
        ge=1e-7,
        le=0.2,
        order="increasing",
        scale="log",
    )
    width: int = param(4, "hidden width d'", ge=2)
    starts: int = param(16, "random starts of each model in each cell of the grid", ge=1)
    done: float = param(0.01, "training loss over its start at which training stops", ge=1e-6, le=0.2, scale="log")
    budget: float = param(50.0, "time s after which training stops otherwise", gt=0)
    horizon: float = param(1000.0, "last time s of the runs", gt=0, le=1e4, scale="log")
    seed: int = param(1, "seed of the starts", ge=0)

    def check(self) -> None:
        if self.horizon < self.budget:
            raise InputError(f"horizon must be at least budget={self.budget:g}; got {self.horizon:g}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run the grid row by row; a killed run resumes after its last complete row."""
    made = cached_rows({"diverse": _DIVERSE, "ratio": params.ratios}, partial(_run_row, params), context)
    context.report(1.0, "done")
    return made.assign_attrs(done=params.done, budget=params.budget, horizon=params.horizon)


def _run_row(params: Params, k: int, law: tuple[Diverse, float], report: Report) -> xr.Dataset:
    """Run all diversities and scales at one ratio of the signals, with both models."""
    diverse, ratio = law
    rng = np.random.default_rng((params.seed, k))
    grid = list(itertools.product(params.sigmas, params.scales))
    laws = [data_law(diverse, ratio, sigma, params.calm) for sigma, _ in grid]
    starts = [scale * rng.standard_normal((params.starts, 2, 2, params.width)) for _, scale in grid]
    symmetric = []
    for n in range(0, len(grid), len(params.scales)):  # one data law
        report(0.5 * n / len(grid), f"diversity in {diverse}, ratio {ratio:g}: symmetric networks")
        together = np.concatenate([start[:, 0] for start in starts[n : n + len(params.scales)]])
        runs = symmetric_runs(*laws[n], together, params)
        symmetric += [runs.isel(start=slice(k, k + params.starts)) for k in range(0, len(together), params.starts)]
    report(0.5, f"diversity in {diverse}, ratio {ratio:g}: descent")
    axes = {"model": _MODELS, "sigma": params.sigmas, "scale": params.scales}
    row = join_cells([*symmetric, *trained_runs(laws, starts, params)], axes)
    shares = np.array([float(a.min() / a.sum()) for a, _ in laws[:: len(params.scales)]])
    outputs = np.array([predicted_output(share, params.done) for share in shares])
    return row.assign(share=("sigma", shares), output=("sigma", outputs))


def data_law(diverse: Diverse, ratio: float, sigma: float, calm: float) -> tuple[np.ndarray, np.ndarray]:
    """Return strengths and test point of mu = (1, ratio); diverse concepts have the deviation sigma, others calm."""
    deviations = {"both": (sigma, sigma), "strong": (calm, sigma), "weak": (sigma, calm)}[diverse]
    return strengths_and_test_point((1.0, ratio), deviations)


def predicted_output(share: float, done: float) -> float:
    """Return the weaker concept's output w at the stop, if only its part of the loss, share (1 - w)^2, is left."""
    return max(0.0, 1 - (done / share) ** 0.5)


def symmetric_runs(a: np.ndarray, x: np.ndarray, starts: np.ndarray, params: Params) -> xr.Dataset:
    """Follow gradient flow from starts U, (starts, d, d'), on one data law."""
    from saddlescope.flow import symmetric_flows

    s, rate = _marks(params), float(np.max(a))
    flows = symmetric_flows(
        a, starts, test_point=x, until=s[-1] / rate, record=s / rate, tolerance=1e-6, level=params.done
    )
    E = flows.W - np.eye(len(a))
    return _read_off(s, (E**2).sum(axis=-2) @ a / 2, flows.W @ x / x, params).assign(
        predicted=("start", rate * _last_times(a, starts))
    )


def trained_runs(
    laws: Sequence[tuple[np.ndarray, np.ndarray]], starts: Sequence[np.ndarray], params: Params
) -> list[xr.Dataset]:
    """Run gradient descent from starts (U, V^T), (starts, 2, d, d'), for each data law (strengths and test point)."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import sgd_batched
    from saddlescope.models import PopulationLoss

    class Seen(eqx.Module):
        """Training loss, and output over the target."""

        loss: PopulationLoss
        x: jax.Array

        def __call__(self, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return self.loss.layered(weights), weights[1] @ (weights[0] @ self.x) / self.x

    steps = np.unique(np.round(_marks(params) / RATE).astype(int))
    with jax.enable_x64(True):
        kinds = [(PopulationLoss(np.diag(a)), jnp.asarray(x)) for a, x in laws]
        runs = [kind for kind, some in zip(kinds, starts, strict=True) for _ in some]
        both = np.concatenate(starts)
        recorded = sgd_batched(
            [loss.layered for loss, _ in runs],
            (both[:, 1].mT, both[:, 0]),
            steps=int(steps[-1]),
            learning_rate=[RATE / float(np.max(a)) for (a, _), some in zip(laws, starts, strict=True) for _ in some],
            record=steps,
            observe=[Seen(loss, x) for loss, x in runs],
            throw=False,
        )
    losses, outputs = (np.asarray(leaf) for leaf in recorded.observed)
    found, first = [], 0
    for (a, _), some in zip(laws, starts, strict=True):
        own = slice(first, first + len(some))
        first += len(some)
        growth = RATE * float(a.min() / a.max())  # of the concept that comes last, in a step
        delay = 2 * float(a.max()) * growth / np.log1p(growth)
        one = _read_off(RATE * recorded.steps, losses[own], outputs[own], params)
        found.append(one.assign(predicted=("start", delay * _last_times(a, some.mean(axis=1)))))
    return found


def _marks(params: Params) -> np.ndarray:
    return np.unique(np.append(np.geomspace(_FIRST, params.horizon, _MARKS), (0.0, params.budget)))


def _last_times(a: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return when the symmetric network learns the last concept, in t, for each start."""
    from saddlescope.theory.concepts import concept_stages

    return np.array([concept_stages(a, start).times.max() for start in starts])


def _read_off(s: np.ndarray, losses: np.ndarray, outputs: np.ndarray, params: Params) -> xr.Dataset:
    """Summarise runs from their training losses (starts, times) and outputs (starts, times, 2).

    Returns:
        Over `start`: `stop`, in s, NaN if training is not done by the horizon; `at_stop` and `at_budget`, the smaller
        output at these times; `learned`, the time from which it stays above one half, NaN if it does not.
    """
    least = outputs.min(axis=-1)
    left = np.log(losses / (params.done * losses[:, :1]))
    stop = _passing_times(s, left <= 0, left)
    at_stop = np.array(
        [np.interp(when, s, one) if np.isfinite(when) else np.nan for when, one in zip(stop, least, strict=True)]
    )
    stays = np.logical_and.accumulate((least >= _LEARNED)[:, ::-1], axis=1)[:, ::-1]
    return xr.Dataset(
        {
            "stop": ("start", stop),
            "at_stop": ("start", at_stop),
            "at_budget": ("start", least[:, np.searchsorted(s, params.budget)]),
            "learned": ("start", _passing_times(s, stays, least - _LEARNED)),
        }
    )


def _passing_times(s: np.ndarray, beyond: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return when each row is first beyond, interpolated where `level` is 0; NaN where it never is."""
    after = np.argmax(beyond, axis=1)
    rows, before = np.arange(len(beyond)), np.maximum(after - 1, 0)
    high, low = level[rows, after], level[rows, before]
    part = np.where(high != low, low / np.where(high != low, low - high, 1.0), 1.0)
    return np.where(beyond.any(axis=1), s[before] + part * (s[after] - s[before]), np.nan)


claims = Claims(
    limits="Predictions are derived for small starts and concepts that are learned one after the other. Cells "
    "whose predicted output is within 0.05 of one half are left out of `border`, where a prediction is hardest, "
    "and most cells are far from the budget. One width, one learning rate, one budget; bounds are from pilots on "
    "other seeds. That diversity helps is read off section 3.1; training stops at a part of the first loss, and at "
    "a fixed loss or time the effect of diversity may differ. Shares are means over this project's grid.",
)

_CLEAR = 0.05  # predicted outputs nearer to one half than this are on the border

_MANY = ("default", "paper")  # the quick run has too few starts, and too few diversities


def _least_of_models(right: dict[str, tuple[xr.DataArray, int]]) -> Estimate:
    """Return the share of starts that go as predicted, of the model in which fewer do."""
    shares = {model: Estimate.share(float(number.sum()), of) for model, (number, of) in right.items()}
    model, least = min(shares.items(), key=lambda found: found[1].value)
    return dataclasses.replace(least, remark=f"{_NAMES[model]}: {least.remark} starts", over="random starts")


@claims.extension(
    "border",
    "Away from the border, networks that stop at 1% training loss generalize or fail as predicted",
    "Derived from equation 4.1: the weaker concept is at one half if its share of the first loss is four times the "
    "stop's",
    low=0.99,
    sizes=_MANY,
)
def border_share(run: xr.Dataset) -> Estimate:
    """Share of starts whose outputs at the stop are above one half or not as predicted, smaller of two models."""
    right = {}
    for model in _MODELS:
        one = run.sel(model=model)
        judged = one.at_stop.where(abs(one.output - _LEARNED) > _CLEAR)
        as_predicted = ((judged < _LEARNED) == (one.output < _LEARNED)) & judged.notnull()
        right[model] = as_predicted, int(judged.count())
    return _least_of_models(right)


@claims.extension(
    "budget",
    "Networks generalize within a fixed time if and only if the predicted time of the last concept is shorter",
    "theory.concepts.concept_stages; from (U + V^T) / 2 at half the speed for networks U V",
    low=0.99,
    sizes=_MANY,
)
def budget_share(run: xr.Dataset) -> Estimate:
    """Share of starts, of any scale, that generalize within the budget or not as predicted, smaller of two models."""
    right = {}
    for model in _MODELS:
        one = run.sel(model=model)
        as_predicted = (one.at_budget >= _LEARNED) == (one.predicted <= run.attrs["budget"])
        right[model] = as_predicted, as_predicted.size
    return _least_of_models(right)


def failed_share(run: xr.Dataset) -> xr.DataArray:
    """Return the share of starts in each cell that fail at the stop; NaN where not all have reached it."""
    return (run.at_stop < _LEARNED).where(run.at_stop.notnull()).mean("start", skipna=False)


def _diversity_effect(run: xr.Dataset, diverse: str) -> Estimate:
    """Return the share that fails at the largest sigma less that at the smallest, mean over cells.

    Each start is an independent trial for both models together. With k of n failing its variance is that of a share
    (k + 1/2) / (n + 1), so that no cell counts as exact.
    """
    if run.sizes["sigma"] < 2:
        return Estimate.unresolved("The run has one sigma; give two or more.")
    shares = failed_share(run.sel(diverse=diverse))
    shares = shares.where(shares.notnull().all("sigma"))
    one, n = shares.mean("model"), run.sizes["start"]
    smooth = (one * n + 0.5) / (n + 1)
    others = [dim for dim in one.dims if dim != "sigma"]
    errors = (smooth * (1 - smooth) / n).sum(others) ** 0.5 / one.count(others)
    mean = shares.mean([dim for dim in shares.dims if dim != "sigma"])
    words = ", ".join(f"{value:.3f} at {at:g}" for value, at in zip(mean.values, mean.sigma.values, strict=True))
    error = 1.96 * float(errors[0] ** 2 + errors[-1] ** 2) ** 0.5
    return Estimate(float(mean[-1] - mean[0]), error, words, n, evidence=Evidence.SAMPLE, over="random starts")


@claims.reading(
    "diversity-helps",
    "More variance along both concepts makes fewer networks fail to generalize when training stops at 1% loss",
    "Section 3.1: with more diverse data, the model generalizes better; any difference counts",
    high=0.0,
    sizes=_MANY,
)
def effect_of_both(run: xr.Dataset) -> Estimate:
    """Share of starts that fail at the largest σ less that at the smallest, mean over cells."""
    return _diversity_effect(run, "both")


@claims.extension(
    "diversity-hides",
    "More variance along the stronger signal alone makes more networks fail to generalize at that stop",
    "It lowers the other concept's share of the loss, contrary to section 3.1 taken for any diversity",
    low=0.0,
    sizes=_MANY,
)
def effect_of_the_stronger(run: xr.Dataset) -> Estimate:
    """Share of starts that fail at the largest σ less that at the smallest, mean over cells."""
    return _diversity_effect(run, "strong")


metrics = (
    Metric(
        name="failed_at_stop",
        quantity="share of starts that have not generalized when training stops",
        statistic=lambda run: float(failed_share(run).mean()),
    ),
    Metric(
        name="failed_in_budget",
        quantity="share of starts that have not generalized within the budget",
        statistic=lambda run: float((run.at_budget < _LEARNED).mean()),
    ),
)


_AT = {"sigma": 0.05, "scale": 1e-3}  # values not on the axes of a map; the nearest exist
_AXES = {"sigma": "log₁₀ σ", "scale": "log₁₀ initial scale τ"}
_NAMES = {"symmetric": "symmetric, gradient flow", "trained": "U V, gradient descent"}
_TITLES = {"both": "both concepts diverse", "strong": "the strong signal diverse", "weak": "the weak signal diverse"}


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw failures at the stop and within the budget, with their predictions."""
    done, budget, starts = run.attrs["done"], run.attrs["budget"], run.sizes["start"]
    stopped = (run.at_stop < _LEARNED).where(run.at_stop.notnull()).mean("start")
    late = (run.at_budget < _LEARNED).mean("start")
    hidden = (4 * done / run.share).broadcast_like(stopped)
    slow = run.predicted.median("start") / budget
    sigma, scale = (float(run[name].sel({name: at}, method="nearest")) for name, at in _AT.items())
    return [
        Figure(
            name="stopped",
            title="Starts that have not learned both concepts when training stops at a small loss",
            caption=f"Share of {starts} starts in which an output at the test point is below half its target when the "
            f"training loss has fallen to {done:.0%} of its start; initial scale {scale:g}. Dots: where the weaker "
            f"concept's share of the first training loss is {4 * done:g}, the predicted border.",
            panels=tuple(
                _map(f"{title}; {_NAMES[model]}", stopped.sel(model=model, diverse=kind), hidden, "sigma")
                for model in run.model.values
                for kind, title in _TITLES.items()
            ),
            columns=3,
        ),
        Figure(
            name="budget",
            title="Starts that have not learned both concepts within a budget of steps",
            caption=f"Share of starts in which an output is below half its target at s = {budget:g} (steps times the "
            "learning rate times the larger strength). Dots: where the median of the predicted last stage equals the "
            f"budget. Top: σ = {sigma:g}; bottom: diversity in both concepts, at an initial scale of {scale:g}.",
            panels=tuple(
                _map(_NAMES[model], late.sel(model=model, diverse="both"), slow, x)
                for x in ("scale", "sigma")
                for model in run.model.values
            ),
        ),
    ]


def _map(title: str, failed: xr.DataArray, excess: xr.DataArray, x: str) -> Panel:
    """Draw the share that fails over x and the ratio, with the border where the predicted excess is 1."""
    at = {name: value for name, value in _AT.items() if name != x}
    predicted = excess.sel({name: failed[name] for name in ("model", "diverse")})
    shown, predicted = (of.sel(at, method="nearest").transpose("ratio", x) for of in (failed, predicted))
    across, along = np.log10(shown[x].values), np.log2(shown["ratio"].values)
    heat = Heat(x=across, y=along, z=shown.values, label="share that fails", range=(0.0, 1.0))
    border = _border(across, along, np.log(predicted.values))
    return Panel(title=title, x=Axis(_AXES[x]), y=Axis("log₂ ratio of μ"), marks=(heat, *border))


def _border(x: np.ndarray, y: np.ndarray, excess: np.ndarray) -> tuple[Line, ...]:
    """Return dots where values on a grid, (len(y), len(x)), pass 0 along its lines."""
    dots = []
    for places, others, values, turned in ((y, x, excess.T, False), (x, y, excess, True)):
        for other, row in zip(others, values, strict=True):
            for k in np.flatnonzero(row[1:] * row[:-1] < 0):
                part = row[k] / (row[k] - row[k + 1])
                place = places[k] + part * (places[k + 1] - places[k])
                dots.append((place, other) if turned else (other, place))
    if not dots:
        return ()
    across, along = np.array(dots).T
    return (Line(x=across, y=along, style="points", group="predicted border", color=1, width=4.0),)


entry = Entry(
    "concept-learning/generalisation-map",
    "Generalisation map: regions in which training stops before both concepts are learned",
    citation=CITATION,
    source="Section 4.2, beyond",
    params=Params,
    quick=dict(ratios=(2.0, 6.0), sigmas=(0.05, 4.0), scales=(1e-3, 1e-1), starts=3, budget=30.0, horizon=150.0),
    paper=dict(starts=200),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
