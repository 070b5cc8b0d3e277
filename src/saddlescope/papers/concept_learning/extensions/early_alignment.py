"""Future directions: two-layer ReLU networks align early, and then behave like linear ones.

The paper names early alignment as the way to ReLU networks. Networks x -> V relu(W x) in the plane of two concepts are
trained by gradient descent on equation 2.1 from small normal weights of several scales, and compared with predictions.

    fastest    direction in which one neuron escapes from the origin fastest, certified (`theory.escape`)
    predicted  direction of every neuron when the loss leaves its first plateau, by the flow of the homogeneous part of
               the loss, in which neurons do not interact (`theory.concepts.early_alignment`)
    leaving    time at which the loss has fallen by 2 % of its start
    outside    error of the best linear map x -> B x for the network's outputs on the training data at the test point
               x^, which combines both concepts, relative to |B x^|

Time is that of gradient flow: steps times the learning rate. The weight of neuron i is its share of sum_i |v_i| |w_i|.
"""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Figures, Line, Mark, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

_DROP = 0.02  # of the loss at the start: leaving

_CURVE_MARKS = 300  # times of the directions in the figure

_MOMENTS = ("leaving", "between", "end")  # leaving; half-way between the two concepts; the end of the run


class Params(EntryParams):
    """Two concepts in the plane, five scales."""

    mu: tuple[float, ...] = param((1.0, 2.0), "signals of the two concepts", gt=0, least=2, most=2, order="increasing")
    sigma: float = param(0.3, "standard deviation along either concept", gt=0)
    samples: int = param(150, "samples per cluster", ge=2)
    neurons: int = param(50, "neurons of the hidden layer", ge=2)
    scales: tuple[float, ...] = param(
        (0.1, 0.03, 0.01, 1e-3, 1e-4),
        "initial scales: standard deviation of the weights times √neurons",
        gt=0,
        lt=0.3,
        least=2,
        order="decreasing",
        scale="log",
    )
    runs: int = param(6, "networks per scale", ge=1)
    rate: float = param(0.01, "learning rate", gt=0, scale="log")
    seed: int = param(20, "seed of the samples and of the first network; the next ones count up", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train all networks of a scale at once, scale by scale."""
    from saddlescope.models import StructuredIdentityTask
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed

    task = StructuredIdentityTask(params.mu, (params.sigma,) * 2, params.samples, 2)
    X = task.draw(params.seed)
    trained = context.over({"scale": params.scales}, partial(_train_networks, params, task, X))
    fastest = np.asarray(rank_one_escape_speed(X, -X / len(X), depth=2).weights[0][0])
    return trained.assign(fastest=("coordinate", fastest / np.linalg.norm(fastest)))


def _train_networks(params: Params, task: Any, X: np.ndarray, scale: float, step: RunContext) -> xr.Dataset:
    """Train all networks of one scale, and predict the alignment of their neurons."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import sgd_batched
    from saddlescope.models import identity_loss, layered_weights
    from saddlescope.theory.concepts import early_alignment

    weakest = float(task.strengths.min())
    until = 1.3 * np.log(1 / scale) / weakest + 8 / weakest  # the second concept is learned well before that
    steps = int(until / params.rate)
    with jax.enable_x64(True):
        loss = identity_loss(X, relu=True)
        deviation = scale / params.neurons**0.5
        starts = [
            layered_weights((2, params.neurons, 2), seed=params.seed + run, deviation=deviation)
            for run in range(params.runs)
        ]
        recorded = sgd_batched(
            loss,
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts),
            steps=steps,
            learning_rate=params.rate,
            record=np.arange(steps),
            observe=jax.tree_util.Partial(_observe, loss),
            report=step.report,
        )
        predictions = [early_alignment(X, [np.asarray(part) for part in start], drop=_DROP) for start in starts]
    seen, times = recorded.observed, recorded.steps * params.rate
    leaving = np.argmax(seen["loss"] < (1 - _DROP) * seen["loss"][:, :1], axis=1)
    network, moments = np.arange(params.runs), np.stack([leaving, _halfway_marks(seen, task), 0 * leaving - 1], axis=1)
    outside = [
        [_linear_error(X, task.test_point, seen["W"][run, at], seen["V"][run, at]) for at in moments[run]]
        for run in network
    ]
    early = np.linspace(0, 1.5 * leaving[0], _CURVE_MARKS).round().astype(int)
    neuron = ("run", "neuron", "coordinate")
    return xr.Dataset(
        {
            "first": (neuron, seen["W"][network, leaving]),
            "second": (neuron, seen["V"][network, leaving].swapaxes(1, 2)),
            "predicted_first": (neuron, np.array([found.first for found in predictions])),
            "leaving": ("run", times[leaving], {"units": "t"}),
            "outside": (("run", "moment"), np.array(outside)),
            "early_time": ("early", times[early], {"units": "t"}),
            "angle": (("early", "neuron"), _degrees(seen["W"][0, early])),
        },
        coords={"moment": list(_MOMENTS)},
    )


def _observe(loss: Any, weights: Any) -> dict[str, Any]:
    return {"loss": loss(weights), "W": weights[0], "V": weights[1]}


def _halfway_marks(seen: dict[str, np.ndarray], task: Any) -> np.ndarray:
    """Return the mark half-way between those at which each concept's mean is mapped half-way to itself, (runs,)."""
    passed = []
    for concept, mean in enumerate(task.centers[:2]):
        hidden = np.maximum(seen["W"] @ mean, 0.0)
        output = np.einsum("rkn,rkn->rk", seen["V"][:, :, concept], hidden)
        passed.append(np.argmax(output > mean[concept] / 2, axis=1))
    return (passed[0] + passed[1]) // 2


def _linear_error(X: np.ndarray, point: np.ndarray, W: np.ndarray, V: np.ndarray) -> float:
    """Return the relative error at a point of the best linear map for the outputs on the data."""
    B, *_ = np.linalg.lstsq(X, np.maximum(X @ W.T, 0.0) @ V.T, rcond=None)
    off = np.maximum(point @ W.T, 0.0) @ V.T - point @ B
    return float(np.linalg.norm(off) / np.linalg.norm(point @ B))


def _degrees(w: np.ndarray) -> np.ndarray:
    return np.asarray(np.degrees(np.arctan2(w[..., 1], w[..., 0])))


def _length(one: xr.DataArray) -> xr.DataArray:
    return (one**2).sum("coordinate") ** 0.5


def _cosine(one: xr.DataArray, other: xr.DataArray) -> xr.DataArray:
    return (one * other).sum("coordinate") / (_length(one) * _length(other))


def _alignment(run: xr.Dataset) -> xr.DataArray:
    """Return the mean cosine of input weights to the fastest direction, by weight of the neuron, (scale, run)."""
    return _cosine(run.first, run.fastest).weighted(_length(run.first) * _length(run.second)).mean("neuron")


claims = Claims(
    limits="Two concepts in the plane, one draw of the samples for all networks, and one learning rate. Where cosines "
    "are averaged, neurons are weighted by the norms of both layers, since light ones can point anywhere; "
    "`every-neuron` counts all alike. The plateau ends when the loss has fallen by 2 %. 'Behaves like a linear model' "
    "is tested where it could fail most, at the test point, which is in the cone of the clusters but far from every "
    "sample, at three times. The pilots had seeds 200 to 205.",
)


@claims.extension(
    "aligned",
    "At scale 1e-4, ReLU neurons, weighted by norm, point in the direction of fastest escape when the plateau ends",
    "after appendix E.4, which recalls it from Maennel et al. 2018 and Min et al. 2023; .9999 in the pilot",
    low=0.999,
)
def smallest_scale_alignment(run: xr.Dataset) -> Estimate:
    """Smallest over networks of the mean cosine between input weights and the direction of fastest escape."""
    return Estimate.smallest(_alignment(run).isel(scale=-1).values, f"scale {float(run.scale[-1]):g}", over="networks")


@claims.extension(
    "linear-outside",
    "Once aligned, ReLU networks of scale 1e-4 act at the test point as the best linear fit on their data, to 10 %",
    "after appendix E.4: early alignment 'make the model behaves like a linear model'; to the end: this project",
    high=0.1,
)
def linear_error(run: xr.Dataset) -> Estimate:
    """Largest relative error of that map at the test point, over networks and three times, smallest scale."""
    one = run.isel(scale=-1).outside
    remark = ", ".join(f"{float(one.sel(moment=moment).max()):.3f} {moment}" for moment in _MOMENTS)
    return Estimate.largest(one.max("moment").values, remark, over="networks")


@claims.extension(
    "every-neuron",
    "At scale 1e-4, at least 95 % of ReLU neurons point at the plateau's end as the homogeneous loss's flow predicts",
    "This project's prediction, theory.concepts.early_alignment; .98 to 1 in the pilot",
    low=0.95,
)
def neurons_as_predicted(run: xr.Dataset) -> Estimate:
    """Share of neurons within 5 degrees of their prediction at the end of the plateau, smallest over networks."""
    one = run.isel(scale=-1)
    within = _cosine(one.first, one.predicted_first) > np.cos(np.radians(5))
    remark = f"scale {float(one.scale):g}, {within.size} neurons"
    return Estimate.smallest(within.mean("neuron").values, remark, over="networks")


@claims.extension(
    "too-large",
    "At scale 0.1, the loss leaves its plateau before ReLU neurons, weighted by norm, point where escape is fastest",
    "The contrary of `aligned`, for weights that are not small; mean cosine of 0.9: this project, about .5 in the "
    "pilot",
    high=0.9,
)
def largest_scale_alignment(run: xr.Dataset) -> Estimate:
    """Largest over networks of the mean cosine between input weights and the direction of fastest escape."""
    return Estimate.largest(_alignment(run).isel(scale=0).values, f"scale {float(run.scale[0]):g}", over="networks")


def figures(run: xr.Dataset) -> Figures:
    """Draw neurons turning at the largest and at the smallest scale."""
    yield Figure(
        name="turning",
        title="Directions of neurons until the loss leaves its plateau",
        caption="Direction of the input weights of every neuron over time, for one network of the largest scale "
        "and one of the smallest. At 0 degrees is the weaker concept, at 90 the stronger one. The vertical line "
        "is the time at which the loss has fallen by 2 %, the points on it are the predicted directions.",
        panels=tuple(_turning(run, run.isel(scale=place)) for place in (0, -1)),
    )


def _turning(run: xr.Dataset, one: xr.Dataset) -> Panel:
    angles = one.angle.transpose("early", "neuron").copy()
    angles.values[1:][np.abs(np.diff(angles.values, axis=0)) > 180] = np.nan  # a turn through 180 degrees is no line
    predicted, leaving = _degrees(one.predicted_first.isel(run=0).values), float(one.leaving[0])
    each = angles.assign_coords(t=one.early_time)
    marks = (
        *lines(each, x="t", hue="neuron", label="a neuron", grouped=True, color=None, width=0.9, opacity=0.6),
        Line(
            x=np.full(len(predicted), leaving),
            y=predicted,
            group="predicted when the loss leaves",
            color=1,
            style="points",
        ),
        Mark(at=float(_degrees(run.fastest.values)), axis="y", label="fastest"),
        Mark(at=leaving),
    )
    y = Axis("direction of w", unit="degrees", range=(-180.0, 180.0))
    return Panel(title=f"scale {float(one.scale):g}", x=Axis("time t"), y=y, marks=marks)


entry = Entry(
    "concept-learning/early-alignment",
    "Future directions: two-layer ReLU networks align early, and then behave like linear ones",
    source="Appendix E.4",
    quick=dict(samples=60, neurons=20, scales=(0.1, 1e-3), runs=2, rate=0.02),
    paper=dict(neurons=200, samples=1000, runs=10),
)
