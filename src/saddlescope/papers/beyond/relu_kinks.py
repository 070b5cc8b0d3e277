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

import numpy as np
import xarray as xr

from saddlescope.papers.beyond import CITATION
from saddlescope.papers.beyond.shared.stage_claims import SADDLES, add_stage_claims, over_stages, stage_figure
from saddlescope.papers.beyond.shared.stage_comparison import compare_stages, over_seeds, record_times
from saddlescope.plot import Axis, Figure, Line, Panel, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Random teachers with two kinks."""

    seeds: tuple[int, ...] = param(tuple(range(10)), "seeds of teacher and initial weights", ge=0, order="distinct")
    samples: int = param(25, "samples, evenly spaced from -3 to 3", ge=13)
    neurons: int = param(8, "hidden neurons, half of them with a > 0", ge=4, multiple_of=2)
    log10_scales: tuple[float, ...] = param(
        (-20.0, -70.0, -240.0), "log10 of the initial scales α", ge=-300, le=-1, order="decreasing", least=2
    )
    tolerance: float = param(1e-6, "tolerance of the flow's log norms and directions", ge=1e-10, le=1e-3, scale="log")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Predict the stages from one neuron, and follow the flow of all neurons from every scale."""
    return over_seeds(params.seeds, context, lambda seed, step: _solve(params, seed, step))


def _solve(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    from saddlescope.flow import unit_flow
    from saddlescope.papers.beyond.shared.units import half_square, relu_neuron
    from saddlescope.theory import unit_learning

    rng = np.random.default_rng(seed)
    x = np.linspace(-3, 3, params.samples)
    kinks, slopes = rng.uniform(0.6, 0.9, 2), np.array([1.0, 0.4]) * rng.uniform(0.9, 1.1, 2)
    sides = np.maximum(np.stack([x, -x]) - kinks[:, None], 0) * slopes[:, None]
    y = (sides[0] - sides[1]) * (1.0 if seed % 2 == 0 else -1.0)
    data = np.stack([x, np.ones_like(x)], axis=1), y
    into = _spread(params.neurons, rng)
    signs = np.where(np.arange(params.neurons) % 2 == 0, 1.0, -1.0)
    weights = {"a": signs * np.linalg.norm(into, axis=1), "w": into}  # balanced, so that a keeps its sign
    parameters = {"a": np.zeros(()), "w": np.zeros(2)}
    learned = unit_learning(relu_neuron, data, half_square, parameters=parameters, weights=weights)
    times = np.array(learned.staircase.times)
    until = 1.6 * times[-1]
    ends, curves, counts, learnt = np.append(times[1:], until), {}, [], []
    for scale, step in context.steps(params.log10_scales):
        record = record_times(learned.staircase.times, until, -1 / (scale * np.log(10)))
        flow = unit_flow(
            relu_neuron, data, half_square, weights, degree=2.0, log_scale=scale * np.log(10), until=until,
            tolerance=params.tolerance, record=np.union1d(record, (times + ends) / 2), report=step.report,
        )  # fmt: skip
        curves[scale] = flow.times, flow.losses
        at = np.searchsorted(flow.times, (times + ends) / 2)
        learnt = [_with_norms(flow.log_norms[n], flow.directions[n]) for n in at]
        counts.append([len(distinct_kinks(thetas)) for thetas in learnt])
    predicted = [distinct_kinks(stage.thetas) for stage in learned.stages[1:]]
    rates = np.linalg.norm(sides @ data[0], axis=1) / params.samples
    order, exact = np.argsort(-rates), 0.5 * np.mean(sides**2, axis=1)
    stages = len(times)
    functions = {
        "target": ("x", y),
        "learned": (("stage", "x"), np.array([_function(thetas, data[0]) for thetas in learnt])),
    }
    return compare_stages(learned, curves).assign(functions | {
        "kinks": ("stage", [len(found) for found in predicted]),
        "flow_kinks": (("scale", "stage"), np.array(counts)),
        "exact_time": ("stage", _padded(1 / rates[order], stages)),
        "exact_loss": ("stage", _padded(np.array([exact[order[1]], 0.0]), stages)),
        "misplaced": _misplaced(predicted[-1], np.array([-kinks[1], kinks[0]])),
    }).assign_coords(x=x)  # fmt: skip


def _spread(count: int, rng: np.random.Generator) -> np.ndarray:
    """Return directions of (w, b), in pairs of equal ones, spread over the circle from a random angle on."""
    angles = 2 * np.pi * (np.arange(count // 2) + rng.uniform()) / (count // 2)
    return np.repeat(np.stack([np.cos(angles), np.sin(angles)], axis=1), 2, axis=0)


def _with_norms(log_norms: np.ndarray, directions: np.ndarray) -> np.ndarray:
    return np.exp(np.maximum(log_norms, -700.0))[:, None] * directions


def distinct_kinks(thetas: np.ndarray) -> np.ndarray:
    """Return the distinct kinks between -3 and 3; leaves are in the order of their names: a, then w and b.

    A kink is a change of slope |a w| above 1e-3; kinks closer than 1e-3 are one.
    """
    seen = thetas[np.abs(thetas[:, 0] * thetas[:, 1]) > 1e-3]
    places = np.sort(-seen[:, 2] / seen[:, 1])
    places = places[np.abs(places) < 3]
    return places[np.diff(places, prepend=-np.inf) > 1e-3]


def _padded(values: np.ndarray, size: int) -> np.ndarray:
    """Return the first values, NaN beyond them: a prediction with another number of stages agrees with none."""
    return np.append(values, np.full(size, np.nan))[:size]


def _misplaced(found: np.ndarray, teacher: np.ndarray) -> float:
    return float(np.max(np.abs(found - teacher))) if len(found) == len(teacher) else np.inf


def _function(thetas: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return np.maximum(Z @ thetas[:, 1:].T, 0) @ thetas[:, 0]


claims = Claims()


@claims.add(
    "kinks", "ReLU networks learn solutions with an increasing number of kinks, one more at each stage",
    quantity="largest difference of the number of kinks, predicted or on a plateau of the flow from the smallest "
    "scale, from the number of the stage", kind="reading",
    source=f"{SADDLES}; a kink is a change of slope above 1e-3 between -3 and 3", high=0.0,
    evidence="cases", over="seeds",
    why="Kinks are counted in the learned function, where neurons with the same kink count as one",
    doubt="The teachers have two kinks around a flat part; other targets may leave kinks unlearned",
)  # fmt: skip
def _one_more_kink(run: xr.Dataset) -> Estimate:
    flow = abs(run.flow_kinks.isel(scale=-1) - run.stage)
    return over_stages(run, xr.where(flow > abs(run.kinks - run.stage), flow, abs(run.kinks - run.stage)))


@claims.add(
    "places", "The kinks that a ReLU network learns at the end are those of the teacher",
    quantity="largest distance of a predicted kink at the end from that of the teacher; infinite if there are not two",
    kind="own", source="Bound of this project, above the accuracy of stationary points", high=1e-6,
    evidence="cases", over="seeds",
    why="Two neurons that fit all samples have these kinks, if three samples or more are beyond each",
    doubt="Only the end is compared; a kink of a teacher that is not flat on one side need not be found",
)  # fmt: skip
def _places(run: xr.Dataset) -> Estimate:
    return Estimate.largest(run.misplaced.fillna(np.inf))


@claims.add(
    "closed-form", "Each side of the teacher is fitted by one neuron, which becomes active at 1 / |g|",
    quantity="largest relative difference of a predicted time or level from the closed form", kind="reading",
    source="Derived in the module; the bound allows for the accuracy of directions", high=1e-7, evidence="cases",
    over="seeds",
    why="Times and levels follow from the data alone; the prediction ascends from neurons all over the circle",
    doubt="The flat part of the teacher separates the sides; where neurons see both, nothing here is in closed form",
)  # fmt: skip
def _closed_form(run: xr.Dataset) -> Estimate:
    levels = abs(run.predicted_loss - run.exact_loss) / run.initial_loss
    times = abs(run.predicted_time / run.exact_time - 1)
    return over_stages(run, xr.where(levels < times, times, levels))


add_stage_claims(claims, "ReLU networks on one-dimensional data")


def figures(run: xr.Dataset) -> list[Figure]:
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
    return [
        stage_figure(run, title="One more kink at each stage", caption=caption),
        Figure(
            name="functions",
            title="Functions on the plateaus",
            caption="Learned functions in the middle of each stage, from the smallest initial scale, and the teacher.",
            panels=(functions,),
        ),
    ]


entry = Entry(
    "beyond/relu-kinks", "ReLU neurons on one-dimensional data: one more kink at each stage",
    citation=CITATION, source="Zhang et al., number of kinks", params=Params,
    quick=dict(seeds=(0, 1), log10_scales=(-20.0, -70.0), samples=13), run=run, claims=claims,
    figures=figures,
)  # fmt: skip
