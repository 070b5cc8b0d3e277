"""Equation 4.3: growth, suppression and noise, and the effect of leaving the noise out.

    G, S, N   growth, suppression and noise of every entry of W = U Uᵀ; `theory.concepts.update_terms`

Gradient flow of equation 4.1 in U is dW/dt = 2 (G − S − N), by automatic differentiation: the printed equation lacks
the 2, which D.1 has and D.2 drops. Section 4.2 leaves N out, as "never too large"; the entry tests what this does to
the times of learning. Without noise the diagonal is logistic: dw_kk/dt = 4 a_k w_kk (1 − w_kk).
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.shared.two_layer_runs import TwoLayerParams, strengths_and_test_point
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param


class Params(TwoLayerParams, until=60.0):
    """Small starts on the data of Figure 8."""

    scales: tuple[float, ...] = param(
        (1e-1, 1e-3, 1e-5),
        "standard deviations of the entries of U of small starts",
        ge=1e-7,
        le=0.1,
        least=2,
        order="decreasing",
        scale="log",
    )
    starts: int = param(200, "small starts, rescaled to each scale", ge=1)
    seed: int = param(1, "seed of all random numbers", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow small starts, and predict their stage times with noise and without."""
    a, _ = strengths_and_test_point(params.mu, params.sigma)
    units = np.random.default_rng(params.seed).standard_normal((params.starts, len(a), len(a)))
    stages = context.over({"scale": params.scales}, partial(_stage_times, a, units, params.until))
    largest = int(stages.noise_share.isel(scale=-1).median("concept").argmax("start"))
    terms = _term_curves(a, params.scales[-1] * units[largest], params.until)
    return stages.merge(terms).assign(strength=("concept", a))


def _stage_times(a: np.ndarray, units: np.ndarray, until: float, scale: float, step: RunContext) -> xr.Dataset:
    """Return stage times of each start by flow and by prediction, with N and without."""
    from saddlescope.flow import symmetric_path
    from saddlescope.theory.concepts import concept_stages

    weights, concepts = a + a[:, None], range(len(a))
    found, schur, bare, shares = [], [], [], []
    for start in scale * units:
        path = symmetric_path(a, start, until=until, tolerance=1e-11)
        found.append([path.crossings(k, k, 0.5).max(initial=0.0) for k in concepts])
        schur.append(concept_stages(a, start).times)
        bare.append(np.log(1 / np.diag(start @ start.T) - 1) / (4 * a))
        W = path(np.linspace(0.0, until, 2000))
        noise = np.einsum("tki,ki->ti", W**2, weights) - np.einsum("tii,ii->ti", W**2, weights)
        shares.append((noise / (2 * a * np.einsum("tii->ti", W))).max(axis=0))
    dims = ("start", "concept")
    return xr.Dataset(
        {
            "found_time": (dims, np.array(found)),
            "schur_time": (dims, np.array(schur)),
            "bare_time": (dims, np.array(bare), {"long_name": "without noise"}),
            "noise_share": (dims, np.array(shares), {"long_name": "largest N_kk / G_kk"}),
        }
    )


def _term_curves(a: np.ndarray, start: np.ndarray, until: float) -> xr.Dataset:
    """Return the three terms of the weakest concept's major entry against time, from one start."""
    from saddlescope.flow import symmetric_path
    from saddlescope.theory.concepts import update_terms

    times, weak = np.linspace(0.0, until, 1500), int(np.argmin(a))
    terms = [update_terms(a, W) for W in symmetric_path(a, start, until=until, tolerance=1e-11)(times)]
    names = ("growth", "suppression", "noise")
    curves = {name: ("time", np.array([getattr(one, name)[weak, weak] for one in terms])) for name in names}
    return xr.Dataset(curves, coords={"time": times})


claims = Claims(
    limits="The strengths are closer together than Assumption D.5 allows, and only the scale differs between the "
    "starts. Times are those of gradient flow, twice as fast as equation 4.3. 'Never too large', of the noise, is "
    "read as times that are right to leading order.",
)


@claims.reading(
    "noise-omitted",
    "On the data of Figure 8, the relative error of learning times without the noise term falls by at least a fifth, "
    "in the median start, from scale 1e-3 to 1e-5",
    "Section 4.2: the noise is never too large and omitted. An error that stays while times grow as log(1/scale) gives "
    ".6; bound with a third more",
    low=0.0,
    high=0.8,
)
def relative_fall(run: xr.Dataset) -> Estimate:
    """Relative error of the worst concept's time without noise, smallest scale over second smallest, median."""
    late = [errors / found for errors, found in _late(run)]
    last, least = (one.max(axis=1) for one in late)
    remark = f"medians {np.median(last):.4f} and {np.median(least):.4f}"
    return Estimate.median(least / last, remark, over="random starts")


def _late(run: xr.Dataset) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return errors of the times without noise, and the times, (starts, concepts), at the two smallest scales."""
    cells = [run.isel(scale=scale).transpose("start", "concept", ...) for scale in (-2, -1)]
    return [(abs(one.bare_time - one.found_time).values, one.found_time.values) for one in cells]


def figures(run: xr.Dataset) -> Figures:
    """Draw the three terms from one start, and errors of stage times with noise and without."""
    terms = run[["growth", "suppression", "noise"]].to_dataarray("term")
    drawn = terms.where(terms > float(run.growth.max()) * 1e-16)
    curves, medians = [], {}
    for name, label in (("bare", "without noise"), ("schur", "by Schur complements")):
        errors = abs(run.found_time - run[f"{name}_time"]).max("concept")
        medians[name] = float(errors.isel(scale=-1).median())
        for n, scale in enumerate(run.scale.values.tolist()):
            x = np.sort(errors.isel(scale=n).values)
            share = (1 + np.arange(len(x))) / len(x)
            style = "dashed" if name == "bare" else "solid"
            curves.append(Line(x=x, y=share, group=f"{label}, scale {scale:g}", color=n, style=style))
    until = float(run.found_time.isel(scale=-1).max())
    yield Figure(
        name="terms",
        title="The terms of equation 4.3, and stage times with and without noise",
        caption="Left: the three terms of equation 4.3 for the major entry of the weakest concept against time, "
        "from one start. Right: share of starts whose largest error of a stage time is below the value on the "
        f"axis. At the smallest scale the median is {medians['bare']:.2g} without noise and "
        f"{medians['schur']:.2g} by Schur complements.",
        panels=(
            Panel(
                title="w_kk of the weakest concept",
                x=Axis("time t of gradient flow", range=(0.0, until)),
                y=Axis("term of dW/dt / 2", scale="log"),
                marks=lines(drawn, x="time", hue="term", grouped=True),
            ),
            Panel(
                title="stage times",
                x=Axis("largest error of a stage time", scale="log"),
                y=Axis("share of starts below"),
                marks=tuple(curves),
            ),
        ),
    )


entry = Entry(
    "concept-learning/equation-4-3",
    "Equation 4.3: growth, suppression and noise, and the effect of leaving the noise out",
    source="Section 4.2",
    quick=dict(starts=10),
)
