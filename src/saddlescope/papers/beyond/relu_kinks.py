"""ReLU neurons on one-dimensional data: the number of kinks of the learned function rises by one at each stage.

The unit is one hidden neuron with a bias, f(x) = a relu(w x + b), whose kink is at -b / w. The teacher is zero between
two kinks and has values of one sign beyond each,

    y(x) = ± (c relu(x - p) - d relu(-x - q)),    p, q > 0.

    z         (x, 1)
    g         sum of y z / n over the samples of one side of the teacher
    T         1 / |g| for each side: a neuron in the direction g sees this side alone if its kink, at most 1 / (p or q)
              from 0, is in the flat part; its utility is largest there
    L_1, L_2  loss of the other side of the teacher once the first is fitted, and 0
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.beyond.shared.stage_claims import SADDLES, stage_figure
from saddlescope.papers.beyond.shared.stage_comparison import (
    StageParams,
    compare_stages,
    follow_scales,
    over_seeds,
    over_stages,
)
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param


class Params(StageParams):
    """Random teachers with two kinks."""

    samples: int = param(25, "samples, evenly spaced from -3 to 3", ge=13)
    neurons: int = param(8, "hidden neurons, half of them with a > 0", ge=4, multiple_of=2)
    log10_scales: tuple[float, ...] = param(
        (-20.0, -70.0, -240.0), "log10 of the initial scales α", ge=-300, le=-1, order="decreasing", least=2
    )


@over_seeds
def run(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    """Predict the stages from one neuron, and follow the flow of all neurons from every scale."""
    from saddlescope.flow import unit_flow
    from saddlescope.papers.beyond.shared.units import half_square, relu_neuron
    from saddlescope.theory import unit_learning

    rng, x = np.random.default_rng(seed), np.linspace(-3, 3, params.samples)
    kinks, slopes = rng.uniform(0.6, 0.9, 2), np.array([1.0, 0.4]) * rng.uniform(0.9, 1.1, 2)
    sides = np.maximum(np.stack([x, -x]) - kinks[:, None], 0) * slopes[:, None]
    y = (sides[0] - sides[1]) * (1.0 if seed % 2 == 0 else -1.0)
    data = np.stack([x, np.ones_like(x)], axis=1), y
    pairs = params.neurons // 2
    angles = 2 * np.pi * (np.arange(pairs) + rng.uniform()) / pairs  # pairs of equal (w, b), spread over the circle
    into = np.repeat(np.stack([np.cos(angles), np.sin(angles)], axis=1), 2, axis=0)
    signs = np.where(np.arange(params.neurons) % 2 == 0, 1.0, -1.0)
    weights = {"a": signs * np.linalg.norm(into, axis=1), "w": into}  # balanced, so that a keeps its sign
    parameters = {"a": np.zeros(()), "w": np.zeros(2)}
    learned = unit_learning(relu_neuron, data, half_square, parameters=parameters, weights=weights)
    times = np.array(learned.staircase.times)
    until = 1.6 * times[-1]
    middles = (times + np.append(times[1:], until)) / 2
    follow = partial(unit_flow, relu_neuron, data, half_square, weights, degree=2.0)
    flows = follow_scales(params, context, follow, learned.staircase.times, until, more=middles)
    smallest = flows[params.log10_scales[-1]]
    at = np.searchsorted(smallest.times, middles)
    learnt = np.exp(np.maximum(smallest.log_norms[at], -700.0))[:, :, None] * smallest.directions[at]
    functions = [np.maximum(data[0] @ thetas[:, 1:].T, 0) @ thetas[:, 0] for thetas in learnt]
    measured = {
        "target": ("x", y),
        "learned": (("stage", "x"), np.array(functions)),
        "kinks": ("stage", [len(distinct_kinks(stage.thetas)) for stage in learned.stages[1:]]),
        "flow_kinks": ("stage", [len(distinct_kinks(thetas)) for thetas in learnt]),
    }
    return compare_stages(learned, flows).assign(measured).assign_coords(x=x)


def distinct_kinks(thetas: np.ndarray) -> np.ndarray:
    """Return the distinct kinks between -3 and 3; leaves are in the order of their names: a, then w and b.

    A kink is a change of slope |a w| above 1e-3; kinks closer than 1e-3 are one.
    """
    seen = thetas[np.abs(thetas[:, 0] * thetas[:, 1]) > 1e-3]
    places = np.sort(-seen[:, 2] / seen[:, 1])
    places = places[np.abs(places) < 3]
    return places[np.diff(places, prepend=-np.inf) > 1e-3]


claims = Claims(
    limits="Kinks are counted in the learned function, where neurons with the same kink count as one. The teachers "
    "are flat between their kinks; other targets may leave kinks unlearned. Initial neurons are balanced and evenly "
    "spread. A test compares the predicted times and levels with their closed forms."
)


@claims.reading(
    "kinks",
    "On one-dimensional data of a teacher with two kinks, ReLU networks from α = 1e-240 learn one more kink per stage",
    f"{SADDLES}: an increasing number of kinks; one is a change of slope above 1e-3 between -3 and 3",
    high=0.0,
)
def _one_more_kink(run: xr.Dataset) -> Estimate:
    """Largest difference from k of the number of kinks of plateau k, predicted or of the flow at the smallest α."""
    flow = abs(run.flow_kinks - run.stage)
    return over_stages(run, np.maximum(flow, abs(run.kinks - run.stage)))


def figures(run: xr.Dataset) -> Figures:
    """Draw the losses and the errors, and the functions on the plateaus of the first seed."""
    caption = "Gradient flow of ReLU neurons with biases on one-dimensional data, and the prediction from one neuron."
    first = run.isel(seed=0)
    functions = Panel(
        title=f"seed {int(first.seed)}",
        x=Axis("x"),
        y=Axis("f(x)"),
        marks=(
            *lines(first.learned.dropna("stage", how="all"), x="x", hue="stage", label="stage {}"),
            Line(x=first.x.values, y=first.target.values, label="teacher", color=3, style="dashed"),
        ),
    )
    yield stage_figure(run, title="One more kink at each stage", caption=caption)
    yield Figure(
        name="functions",
        title="Functions on the plateaus",
        caption="Learned functions in the middle of each stage, from the smallest initial scale, and the teacher.",
        panels=(functions,),
    )


entry = Entry(
    "beyond/relu-kinks",
    "ReLU neurons on one-dimensional data: one more kink at each stage",
    source="Zhang et al., number of kinks",
    quick={"seeds": (0, 1), "log10_scales": (-20.0, -70.0), "samples": 13},
)
