"""Figures 2 (a, b), 11 and 12: perceptrons learn the stronger and the more diverse concept first.

Networks of one linear layer, two linear layers, and two layers with ReLU are trained by SGD at d = 64, in the
conventions of `shared.perceptron_training`. Figure 2 (c) is in `figure_3`.

    panel "signal"      fixed and equal σ, fixed μ₂, varied μ₁
    panel "diversity"   fixed μ = (1, 2), fixed σ₂, varied σ₁
    progress            of concept p: its coordinate of the output at the test point x^ over μ_p, from about 0 to 1
    half-time           time after which the progress of a concept stays above 1/2; infinite if it never does
    lead                of concept 1: its progress minus that of concept 2, averaged over the run. Its sign is the side
                        to which the trajectory bulges
    speed               distance that the output at x^ moves in a twentieth of the training
    arrival             time t of equation 4.1 after which the output stays within a tenth of |x^| of x^

For one layer, the slowing down of section 3.2 is measured too, and the outputs are compared with Theorem 4.1 from the
actual start, biases included. The paper gives only the values (.05, .05) and (2, .05) of σ. The other values are chosen
here on both sides of a₁ = a₂.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.perceptron_training import (
    PerceptronTraining,
    PrintedConcepts,
    one_layer_prediction,
    train,
)
from saddlescope.plot import Axis, Figure, Line, Panel, Table
from saddlescope.reproduction.claim import Claims, Estimate, Size
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

SIGNAL, DIVERSITY = "signal", "diversity"

_APART = 1.1  # strengths whose ratio is below this count as equal

_HYSTERESIS = 0.01  # of the loss at the start: smaller rises do not count

_WINDOWS = 20


class Params(EntryParams):
    """The paper's training, for several seeds."""

    mu: tuple[float, ...] = param(
        (1.0, 2.0), "signals of the two concepts; the first one only where the diversity varies", gt=0, least=2, most=2
    )
    varied_mu: tuple[float, ...] = param(
        (1.0, 1.5, 2.5, 3.0), "signals of concept 1 where the signal varies", gt=0, least=2, order="increasing"
    )
    sigma: float = param(0.05, "diversity that does not vary, as printed, used as a variance", gt=0, scale="log")
    varied_sigma: tuple[float, ...] = param(
        (0.05, 0.5, 1.5, 2.0), "diversities of concept 1 where the diversity varies, used as variances",
        gt=0, least=2, order="increasing", scale="log",
    )  # fmt: skip
    seeds: int = param(160, "networks per task", ge=1)
    seed: int = param(1000, "seed of the first network's samples, rotation, start and SGD; the next count up", ge=0)
    dim: int = param(64, "dimension of the data and width of the hidden layer", ge=2)
    samples: int = param(5000, "samples per cluster", ge=1)
    epochs: int = param(40, "epochs of SGD with batch 128 and learning rate 0.1", ge=1)
    every: int = param(10, "steps between two records", ge=1)


class ReluParams(Params):
    """The paper's training, with fewer networks and records."""

    seeds: int = param(60, "networks per task", ge=1)
    every: int = param(20, "steps between two records", ge=1)


def _tasks(params: Params) -> list[PrintedConcepts]:
    """Return the tasks of panel "signal", then those of panel "diversity"."""
    one, two = params.mu
    signal = [((value, two), (params.sigma, params.sigma)) for value in params.varied_mu]
    return signal + [((one, two), (value, params.sigma)) for value in params.varied_sigma]


def _train_panels(params: Params, context: RunContext, **network: Any) -> tuple[PerceptronTraining, xr.Dataset]:
    """Train the networks of both panels for all seeds in one call; also return the training."""
    training = PerceptronTraining(
        dim=params.dim, samples=params.samples, epochs=params.epochs, every=params.every, **network
    )
    seeds = range(params.seed, params.seed + params.seeds)
    found = train(training, _tasks(params), seeds, checkpoint=context.scratch / "runs.npz", report=context.report)
    panels = [SIGNAL] * len(params.varied_mu) + [DIVERSITY] * len(params.varied_sigma)
    coords = {"panel": ("task", panels), "varied": ("task", [*params.varied_mu, *params.varied_sigma])}
    return training, found.assign_coords(coords).assign_attrs(sigma=params.sigma, mu=params.mu)


def run_one_layer(params: Params, context: RunContext) -> xr.Dataset:
    """Train all networks at once, then without minibatches, and apply Theorem 4.1 to each."""
    sgd, full, theorem = context.split(0.6, 0.3, 0.1)
    training, found = _train_panels(params, sgd)
    tasks, seeds = _tasks(params), found.seed.values.tolist()
    whole = train(replace(training, whole=True), tasks, seeds, report=full.report)
    predicted = [
        [one_layer_prediction(training, task, seed, found.step.values, empirical=True) for seed in seeds]
        for task in tasks
    ]
    theorem.report(1.0, "Theorem 4.1")
    axes = ("task", "seed", "step", "concept")
    return found.assign(prediction=(axes, np.array(predicted, np.float32)), whole_output=(axes, whole.output.values))


def run_two_linear_layers(params: Params, context: RunContext) -> xr.Dataset:
    return _train_panels(params, context, depth=2)[1]


def run_two_relu_layers(params: ReluParams, context: RunContext) -> xr.Dataset:
    return _train_panels(params, context, depth=2, relu=True)[1]


def _progress(run: xr.Dataset) -> xr.DataArray:
    return run.output / run.mu


def half_times(run: xr.Dataset) -> np.ndarray:
    """Return half-times (task, seed, concept), in the time t of equation 4.1."""
    below = (~(_progress(run) > 0.5)).transpose("task", "seed", "concept", "step").values
    last = below.shape[-1] - 1 - np.argmax(below[..., ::-1], axis=-1)  # the last record at which it is not above
    return np.append(run.time.values, np.inf)[np.where(below.any(axis=-1), last + 1, 0)]


def leads(run: xr.Dataset) -> xr.DataArray:
    """Return the lead of concept 1, (task, seed)."""
    made = _progress(run)
    return (made.sel(concept=1) - made.sel(concept=2)).mean("step").transpose("task", "seed")


def stronger_first(run: xr.Dataset) -> np.ndarray:
    """Return 1 where the stronger concept has its half-time first, else 0; NaN at equal strengths, (task, seed)."""
    first, second = np.moveaxis(half_times(run), -1, 0)
    strengths = run.strength.transpose("task", "concept").values
    ordered = np.where(strengths[:, :1] > strengths[:, 1:], first < second, second < first).astype(float)
    ratio = strengths.max(axis=1) / strengths.min(axis=1)
    return np.where(ratio[:, None] >= _APART, ordered, np.nan)


def _select_panel(run: xr.Dataset, panel: str) -> xr.Dataset:
    return run.isel(task=(run.panel == panel).values)


_BAR = "the paper has no number; this project's bar, from trial runs of another implementation"

_LARGE: tuple[Size, ...] = ("default", "paper")  # sizes with enough networks for shares of 0.9


def _order_claims(place: str) -> Claims:
    """Return claims on the order of learning in both panels, and on the shift of the trajectory."""
    statements = {
        SIGNAL: (
            "At equal diversity, at least 90 % of perceptrons learning the identity learn the concept with the "
            "stronger signal first",
            "share of networks whose output at the combined test point reaches 1/2 first along the concept of larger "
            "signal μₚ (cluster mean)",
            "As concept 1's signal grows, at least 90 % of perceptrons' output trajectories bulge steadily further "
            "towards concept 1",
            "share of seeds whose mean output lead of concept 1 over concept 2 at the test point grows with every "
            "increase of cluster mean μ₁",
            "The concept with the larger eigenvalue aₚ of the second moment should pass half of its signal first",
            "All tasks have the same μ₂ and σ, and the bar of 90 % is ours",
            "The lead is positive if the trajectory bulges towards concept 1, so its growth is the shift in the text",
            "The tasks of a seed share start and rotation, which makes a rise at each of few values easier",
        ),
        DIVERSITY: (
            "With one concept's diversity varied, at least 90 % of perceptrons learn the concept of larger second "
            "moment first",
            "share of networks whose output at the test point reaches 1/2 first along the concept of larger "
            "aₚ = σₚ + μₚ²/3 (variance σₚ, mean μₚ)",
            "As concept 1's diversity grows, at least 90 % of perceptrons' output trajectories bulge steadily further "
            "towards concept 1",
            "share of seeds whose mean output lead of concept 1 over concept 2 at the test point grows with every "
            "increase of variance σ₁",
            "With μ fixed, σ₁ alone can change which concept passes half of its signal first",
            "Values of σ₁ near equal second moments, where the start decides, count as ties and are left out",
            "A larger σ₁ speeds up concept 1 alone, so the bulge must move towards it if diversity sets the preference",
            "Between the two largest σ₁ the lead hardly changes, and chance can reverse that rise",
        ),
    }
    claims = Claims()
    for panel, (order, networks, shift, seeds, why, doubt, why_shift, doubt_shift) in statements.items():
        claims.add(
            f"order-{panel}", order, quantity=networks, kind="reading", low=0.9, sizes=_LARGE,
            source=f"{place}, section 3.1, and a_p of section 4.1 with a cluster at the origin; {_BAR}",
            evidence="sample", over="seeds", why=why, doubt=doubt,
        )(partial(_ordered_share, panel=panel))  # fmt: skip
        claims.add(
            f"shift-{panel}", shift, quantity=seeds, kind="reading", low=0.9, sizes=_LARGE,
            source=f"{place}, section 3.1; {_BAR}", evidence="sample", over="seeds", why=why_shift, doubt=doubt_shift,
        )(partial(_shifted_share, panel=panel))  # fmt: skip
    return claims


def _ordered_share(run: xr.Dataset, *, panel: str) -> Estimate:
    ordered = stronger_first(_select_panel(run, panel))
    known = ~np.isnan(ordered)
    if not known.any():
        return Estimate.unresolved("No task has two strengths that differ by a tenth; vary the concepts more.")
    return _network_share(ordered[known.any(axis=1)])


def _network_share(right: np.ndarray) -> Estimate:
    """Return the share of all networks, (task, seed), with the interval of as many trials as there are seeds.

    The networks of a seed share their start and rotation: at worst, they are right or wrong together.
    """
    return Estimate.share(right.mean(axis=0).sum(), right.shape[1], f"{right.sum():.0f} of {right.size} networks")


def _shifted_share(run: xr.Dataset, *, panel: str) -> Estimate:
    lead = leads(_select_panel(run, panel)).values
    rises = np.all(np.diff(lead, axis=0) > 0, axis=0)
    means = ", ".join(f"{value:+.2f}" for value in lead.mean(axis=1))
    return Estimate.share(rises.sum(), len(rises), f"{rises.sum()} of {len(rises)} seeds; mean leads {means}")


def _two_layer_claims(place: str) -> Claims:
    """Return the claims of a figure with two layers."""
    claims = _order_claims(place)

    @claims.add(
        "arrives",
        "At least 90 % of perceptrons reduce their loss at the test point of combined concepts to below a tenth",
        quantity="share of networks whose out-of-distribution loss, at the test point of both concepts, ends below "
            "a tenth of its start", kind="reading",
        source=f"{place}: the trajectories end at the test points; {_BAR}", low=0.9, sizes=_LARGE,
        evidence="sample", over="seeds",
        why="Trajectories that end at the test point leave no loss there, so what is left of it shows which networks "
            "arrive",
        doubt="A tenth of the first loss is our bar, and ReLU networks still improve at the end of training",
    )  # fmt: skip
    def arrived(run: xr.Dataset) -> Estimate:
        left = run.test_loss.isel(step=-1) / run.test_loss.isel(step=0)
        return _network_share((left < 0.1).transpose("task", "seed").values)

    return claims


one_layer_claims = _order_claims("Figure 2 (a, b)")


@one_layer_claims.add(
    "slowing",
    "In every one-layer network, the output at the test point moves at least ten times slower finally than initially",
    quantity="largest ratio over networks of the test output's speed in the last twentieth of training to that in "
        "the first",
    kind="reading", source="section 3.2; exponential by section 4.1; the bound is this project's bar", high=0.1,
    evidence="cases", over="networks",
    why="An output that nears its target exponentially moves ever less, so the last twentieth shows how far it has "
        "slowed",
    doubt="Any network that converges slows down; the ratio does not test that the decay is exponential",
)  # fmt: skip
def _slowing(run: xr.Dataset) -> Estimate:
    if run.sizes["step"] <= _WINDOWS:
        return Estimate.unresolved("The run has too few records for the speed; set a smaller every.")
    at = np.linspace(0, run.sizes["step"] - 1, _WINDOWS + 1).astype(int)
    moves = run.output.isel(step=at).diff("step")
    speed = ((moves**2).sum("concept") ** 0.5).transpose("step", "task", "seed").values
    ratio = speed[-1] / speed[0]
    return Estimate.largest(ratio, f"{ratio.size} networks, median {np.median(ratio):.2g}")


@one_layer_claims.add(
    "late",
    "At the weaker concept's smallest diversity, one-layer networks learn at least 1.5 times as late as at "
        "its largest",
    quantity="median over seeds of the time until the output stays within 10 % of the test point, smallest over "
        "largest variance σ₁", kind="reading",
    source="section 3.2, σ = (.05, .05) beside (2, .05): many more time; the bound is this project's bar", low=1.5,
    sizes=_LARGE,
    evidence="sample", over="seeds",
    why="The time to stay within a tenth of the test point is the extra computation that the text sees at σ₁ = .05",
    doubt="Arrival at 10 % is our criterion, and only the two extreme values of σ₁ are compared",
)  # fmt: skip
def _lateness(run: xr.Dataset) -> Estimate:
    panel = _select_panel(run, DIVERSITY).isel(task=[0, -1])
    ratios = []
    for values in (panel.output, panel.prediction):
        far = ((values - panel.mu) ** 2).sum("concept") ** 0.5 > 0.1 * (panel.mu**2).sum("concept") ** 0.5
        far = far.transpose("task", "seed", "step").values
        last = far.shape[-1] - 1 - np.argmax(far[..., ::-1], axis=-1)
        if np.any(last == far.shape[-1] - 1):
            return Estimate.unresolved("A network has not arrived by the end; train for more epochs.")
        times = run.time.values[last + 1]
        ratios.append(times[0] / times[1])
    return Estimate.median(ratios[0], f"Theorem 4.1 has {np.median(ratios[1]):.3g}")


def _deviation(run: xr.Dataset, *, output: str) -> Estimate:
    away = abs(run[output] - run.prediction).max(("step", "concept"))
    relative = float((away / (run.mu**2).sum("concept") ** 0.5).max())
    remark = f"{away.size} networks, mean {float(away.mean()):.4f}; largest part of |x^| {relative:.4f}"
    return Estimate.largest(away, remark)


_THEOREM = "Theorem 4.1 with A of equation 4.1, the samples' second moment; this project's bar at d = 64"

_DEVIATION = (
    "largest deviation of an output coordinate at the test point from the solution of Theorem 4.1, over networks "
    "and times"
)

one_layer_claims.add(
    "theorem-4-1",
    "Under full-batch gradient descent, one-layer networks' outputs follow the closed-form gradient-flow solution "
        "from their start to within 0.02", quantity=_DEVIATION, kind="reading", source=_THEOREM, high=0.02,
    evidence="cases", over="networks",
    why="Full-batch descent differs from the flow of the theorem only by its steps, so agreement confirms solution "
        "and time scale",
    doubt="Biases are put into an extended second moment that the theorem does not mention; 0.02 is our bar",
)(partial(_deviation, output="whole_output"))  # fmt: skip

one_layer_claims.add(
    "theorem-4-1-sgd",
    "Under minibatch SGD, one-layer networks' outputs follow the closed-form gradient-flow solution from their "
        "start to within 0.02", quantity=_DEVIATION, kind="own", source=_THEOREM, high=0.02,
    evidence="cases", over="networks",
    why="Minibatches are what full-batch descent leaves out of the paper's training, and the same deviation measures "
        "their noise",
    doubt="A maximum over all networks and times grows with their number and says little about a typical one",
)(partial(_deviation, output="output"))  # fmt: skip


@one_layer_claims.add(
    "one-descent",
    "No one-layer network's loss at the out-of-distribution test point falls, rises by over 1 %, and falls again",
    quantity="number of one-layer networks whose out-of-distribution loss falls, rises by over 1 % of its initial "
        "value, and falls again", kind="reading", source="section 4.1: monotonic; the level is ours", high=0.0,
    evidence="cases", over="networks",
    why="One layer that learns monotonically has a single descent, so a network with a second one is an exception",
    doubt="Rises below 1 % of the first loss do not count, and minibatch noise can make or hide small ones",
)  # fmt: skip
def _turns(run: xr.Dataset) -> Estimate:
    from saddlescope.measure import find_descents

    losses = run.test_loss.stack(network=("task", "seed")).transpose("network", "step")
    found = find_descents(losses.values.astype(float), hysteresis=_HYSTERESIS)
    return Estimate.number(found.counts > 1, f"of {len(found.counts)} networks")


metrics = (
    Metric(
        name="deviation", quantity="largest deviation of a trajectory from Theorem 4.1, mean over networks",
        statistic=lambda run: float(abs(run.output - run.prediction).max(("step", "concept")).mean()), scale="log",
    ),
    Metric(
        name="final_loss", quantity="final loss out of distribution, mean over networks",
        statistic=lambda run: float(run.test_loss.isel(step=-1).mean()), scale="log",
    ),
)  # fmt: skip


def _figures(networks: str) -> Callable[[xr.Dataset], list[Figure]]:
    """Return the function that draws the paper's two panels for networks of a name."""

    def draw(run: xr.Dataset) -> list[Figure]:
        theorem = " Dashed lines are Theorem 4.1 from the same start." if "prediction" in run else ""
        return [
            Figure(
                name="trajectories",
                title=f"Output trajectories of {networks} in the plane of the two concepts",
                caption="Output at the test point for one seed. Small points are at equal times, the large point of "
                f"each colour is the test point.{theorem} Left: varied signal μ₁. Right: varied diversity σ₁, used as "
                "a variance.",
                panels=tuple(_panel(run, panel) for panel in (SIGNAL, DIVERSITY)),
                table=_table(run),
            )
        ]

    return draw


def _panel(run: xr.Dataset, panel: str) -> Panel:
    """Draw the outputs of the first seed, with points at about 40 equal times, the test point and any prediction."""
    tasks, ((mu_1, mu_2), sigma) = _select_panel(run, panel).isel(seed=0), (run.attrs["mu"], run.attrs["sigma"])
    if panel == SIGNAL:
        sign, title = "μ₁", f"μ = (μ₁, {mu_2:g}), σ = ({sigma:g}, {sigma:g})"
    else:
        sign, title = "σ₁", f"μ = ({mu_1:g}, {mu_2:g}), σ = (σ₁, {sigma:g})"
    marks = []
    for k, value in enumerate(tasks.varied.values.tolist()):
        one = tasks.isel(task=k)
        x, y = one.output.transpose("concept", "step").values
        points = slice(None, None, max(1, len(x) // 40))
        goal = one.mu.values[:, None]
        line = partial(Line, group=f"{sign} = {value:g}", color=k)
        marks += [
            line(x=x, y=y, width=1.2, opacity=0.6),
            line(x=x[points], y=y[points], style="points", width=1.5),
            line(x=goal[0], y=goal[1], style="points", width=5.0),
        ]
        if "prediction" in one:
            x, y = one.prediction.transpose("concept", "step").values
            marks.append(line(x=x, y=y, style="dashed", width=1.0))
    return Panel(title=title, x=Axis("output, concept 1"), y=Axis("output, concept 2"), marks=tuple(marks))


def _table(run: xr.Dataset) -> Table:
    """Return a table of predictions and measurements, one row per task."""
    half, lead, ordered = half_times(run), leads(run).values, stronger_first(run)
    rows = []
    for k, task in enumerate(run.task.values.tolist()):
        known = ordered[k][~np.isnan(ordered[k])]
        right = f"{int(known.sum())} of {len(known)}" if len(known) else "a₁ ≈ a₂"
        a, times = run.strength.isel(task=k).values.tolist(), np.median(half[k], axis=0).tolist()
        rows.append((task, *a, *times, float(lead[k].mean()), right))
    columns = (
        "task, numbers as printed", "a₁", "a₂", "half-time of concept 1, median", "of concept 2", "lead of concept 1",
        "stronger first",
    )  # fmt: skip
    return Table(columns=columns, rows=tuple(rows))


_QUICK = dict(varied_mu=(1.0, 3.0), varied_sigma=(0.05, 2.0), seeds=20, dim=24, samples=1500)

figure_2 = Entry(
    "concept-learning/figure-2",
    "Figure 2 (a, b): one-layer networks learn the stronger and the more diverse concept first", citation=CITATION,
    source="Figure 2, section 3.1", params=Params,
    quick=dict(varied_mu=(1.0, 3.0), varied_sigma=(0.05, 2.0), seeds=6, dim=32, samples=2000),
    run=run_one_layer, claims=one_layer_claims, figures=_figures("one-layer networks"), metrics=metrics,
)  # fmt: skip

figure_11 = Entry(
    "concept-learning/figure-11",
    "Figure 11: two-layer linear networks learn the stronger and the more diverse concept first", citation=CITATION,
    source="Appendix F, Figure 11", params=Params, quick=dict(_QUICK, every=20), run=run_two_linear_layers,
    claims=_two_layer_claims("Figure 11"), figures=_figures("two-layer linear networks"),
)  # fmt: skip

figure_12 = Entry(
    "concept-learning/figure-12",
    "Figure 12: two-layer ReLU networks learn the stronger and the more diverse concept first", citation=CITATION,
    source="Appendix F, Figure 12", params=ReluParams, quick=_QUICK, run=run_two_relu_layers,
    claims=_two_layer_claims("Figure 12"), figures=_figures("two-layer ReLU networks"),
)  # fmt: skip
