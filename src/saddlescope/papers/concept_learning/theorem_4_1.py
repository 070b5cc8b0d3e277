"""Theorem 4.1: one layer in closed form, compared with gradient flow and SGD.

The output of the one-layer network at any point z, from any start W(0), is the sum of a growth term and a noise term.
It is compared with gradient flow of equation 4.1, integrated by DOP853 on the gradient from JAX, and with SGD of the
paper's training from the actual start. Three statements of the text that hold only in part are tested as printed:

    sum       equation 4.2 sums the noise over the s concepts; for z outside their span it must run over all d
    bound     "the noise term is upper bounded by sum_i w_ki(0) mu_i": true only with absolute values
    monotone  one layer learns monotonically: true only from small starts
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.perceptron_training import (
    PerceptronTraining,
    one_layer_prediction,
    train,
)
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

_TASKS = (((1.0, 2.0), (0.05, 0.05)), ((1.5, 2.0), (0.05, 0.05)), ((1.0, 2.0), (2.0, 0.05)))  # of Figure 2
_SIZES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0)  # of starts, in units of PyTorch's default
_DIMS = (2, 8, 64)


class Params(EntryParams):
    """The paper's training at d = 64; exact flows of a small task."""

    dim: int = param(8, "dimension d of the exact flows, with three concepts", ge=4)
    flows: int = param(10, "exact flows, each from its own start and at its own point", ge=1)
    runs: int = param(16, "SGD runs of each task, with biases and without", ge=2)
    samples: int = param(5000, "samples of each cluster in SGD", ge=64)
    epochs: int = param(40, "epochs of SGD", ge=1)
    starts: int = param(4000, "random starts of each size whose loss is checked for rises", ge=1)
    seed: int = param(1000, "seed of the first flow, run and start", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Compute exact flows, train by SGD with biases and without, and count starts whose loss rises."""
    exact, training, rising = context.split(0.3, 0.5, 0.2)
    flows = exact.cached("flows", lambda: _exact_flows(params, exact.report))
    sgd = [
        step.cached(f"sgd-{bias}", partial(_sgd_runs, params, bias, step.report))
        for bias, step in training.steps((True, False))
    ]
    rises = rising.cached("rises", lambda: _rising_losses(params, rising.report))
    context.report(1.0, "done")
    return xr.merge([flows, xr.concat(sgd, dim="bias"), rises]).assign_attrs(starts=params.starts)


def _exact_flows(params: Params, report: Report) -> xr.Dataset:
    """Return outputs at random points by the closed form, as printed and as corrected, and by integration."""
    import jax
    import jax.numpy as jnp
    from scipy.integrate import solve_ivp

    from saddlescope.models import PopulationLoss, StructuredIdentityTask
    from saddlescope.theory.concepts import one_layer_output

    d, concepts = params.dim, 3
    task = StructuredIdentityTask((1.0, 1.5, 2.2), (0.05, 0.3, 0.1), 1, d)
    A, times = task.second_moment, np.linspace(0.0, 12.0, 61)
    made = []
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(PopulationLoss(jnp.asarray(A))))

        def velocity(_: float, flat: np.ndarray) -> np.ndarray:
            return -np.asarray(gradient(jnp.asarray(flat.reshape(d, d)))).ravel()

        for flow in range(params.flows):
            rng = np.random.default_rng((params.seed, flow))
            W0, z = rng.standard_normal((d, d)) / d**0.5, rng.standard_normal(d)
            path = solve_ivp(
                velocity, (0.0, times[-1]), W0.ravel(), method="DOP853", t_eval=times, rtol=1e-13, atol=1e-15
            )
            W = path.y.T.reshape(len(times), d, d)
            at_test = one_layer_output(A, W0, task.test_point, times, printed=concepts)
            made.append(
                {
                    "exact": W @ z,
                    "corrected": one_layer_output(A, W0, z, times).total,
                    "printed": one_layer_output(A, W0, z, times, printed=concepts).total,
                    "at_test_point": at_test.total - W @ task.test_point,
                    "noise": at_test.noise,
                    "start_part": W0[:, :concepts] * np.array(task.mu),
                }
            )
            report((flow + 1) / params.flows, f"flow {flow + 1} of {params.flows}")
    dims = {"start_part": ("flow", "dimension", "part")}
    return xr.Dataset(
        {
            name: (dims.get(name, ("flow", "flow_time", "dimension")), np.array([of[name] for of in made]))
            for name in made[0]
        },
        coords={"flow_time": ("flow_time", times, {"units": "t"})},
    )


def _sgd_runs(params: Params, bias: bool, report: Report) -> xr.Dataset:
    """Return outputs at the test point by SGD, and by the theorem with the limit A and with the samples' A."""
    training = PerceptronTraining(bias=bias, samples=params.samples, epochs=params.epochs, every=25)
    seeds = range(params.seed, params.seed + params.runs)
    trained = train(training, _TASKS, seeds, report=report)[["output", "diverged"]]

    def predict(empirical: bool) -> np.ndarray:
        steps = trained.step.values
        return np.array(
            [
                [one_layer_prediction(training, task, seed, steps, empirical=empirical) for seed in seeds]
                for task in _TASKS
            ]
        )

    dims = ("task", "seed", "step", "concept")
    return trained.assign(limit=(dims, predict(False)), empirical=(dims, predict(True))).assign_coords(bias=bias)


def _rising_losses(params: Params, report: Report) -> xr.Dataset:
    """Return shares of starts whose loss at the test point rises, by size and dimension, from the closed form."""
    from saddlescope.models import StructuredIdentityTask
    from saddlescope.theory.concepts import monotone_norm

    share, within, broken = (np.zeros((len(_DIMS), len(_SIZES))) for _ in range(3))
    example_times = np.linspace(0.0, 10.0, 201)
    examples = np.zeros((2, len(example_times)))
    for n, d in enumerate(_DIMS):
        task = StructuredIdentityTask((1.0, 2.0), (0.05, 0.05), 1, d)
        a, mu, rng = task.strengths[:2], np.array(task.mu), np.random.default_rng((params.seed, d))
        times = np.concatenate([[0.0], np.geomspace(1e-3, 20 / a.min(), 400)])
        limit = monotone_norm(a)
        for m, size in enumerate(_SIZES):
            columns = size * d**-0.5 * rng.uniform(-1, 1, (params.starts, d, 2))
            losses = _test_losses(columns, a, mu, times)
            rising = np.max(np.diff(losses, axis=1), axis=1) > 1e-12 * float(mu @ mu)
            small = np.linalg.norm(columns, ord=2, axis=(1, 2)) <= limit
            share[n, m], within[n, m], broken[n, m] = rising.mean(), small.mean(), np.sum(rising & small)
        if d == 2:
            right = np.outer(mu, mu) / (mu @ mu)  # W0 that maps x^ to itself
            examples = _test_losses(np.stack([right, 0.1 * right]), a, mu, example_times)
        report((n + 1) / len(_DIMS), f"starts in {d} dimensions")
    dims = ("start_dim", "size")
    return xr.Dataset(
        {
            "rising": (dims, share),
            "within": (dims, within),
            "broken": (dims, broken),
            "example": (("example_start", "example_time"), examples),
        },
        coords={
            "start_dim": list(_DIMS), "size": list(_SIZES), "example_time": ("example_time", example_times),
            "example_start": ["right at the test point", "a tenth of it"],
        },
    )  # fmt: skip


def _test_losses(columns: np.ndarray, a: np.ndarray, mu: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return |W(t) x^ - x^|^2 / 2, (starts, times), for starts with these first columns; the others have no effect."""
    C = (columns - np.eye(*columns.shape[1:])) * mu
    decay = np.exp(-np.outer(times, a))
    return np.einsum("tp,npq,tq->nt", decay, C.swapaxes(1, 2) @ C, decay) / 2


claims = Claims()


def _largest_of_flows(errors: xr.DataArray) -> Estimate:
    return Estimate.largest(errors.max([name for name in errors.dims if name != "flow"]))


def _largest_error(name: str, run: xr.Dataset) -> Estimate:
    return _largest_of_flows(abs(run[name] - run.exact))


# The closed form agrees with DOP853 at 1e-13 to far less than 1e-11; 0.02 is this project's bar for SGD.
_ERROR = "largest absolute error of outputs by Theorem 4.1, over random initializations, input points and times"

claims.add(
    "closed-form",
    "The closed-form output of a one-layer network, with noise summed over all d directions, equals gradient flow at "
        "any point", quantity=_ERROR, kind="own", source="Theorem 4.1, corrected; exact, DOP853 at 1e-13", high=1e-11,
    evidence="identity", over="random flows",
    why="DOP853 integrates the gradient of equation 4.1 without knowing the closed form",
    doubt="Ten small flows with three concepts and exact moments; agreement to rounding leaves little room",
)(partial(_largest_error, "corrected"))  # fmt: skip

claims.add(
    "printed-sum",
    "The printed closed-form output of a one-layer network, with noise summed over concepts only, equals gradient "
        "flow at any point",
    quantity=_ERROR, kind="printed", source="Theorem 4.1 as printed, 'for any z'; exact", high=1e-11,
    evidence="identity", over="random flows",
    why="A point with parts outside the concepts feels the weights there, which the printed sum leaves out",
    doubt="The paper may mean only points in the span of the concepts, where both sums agree",
)(partial(_largest_error, "printed"))  # fmt: skip

claims.add(
    "at-the-test-point",
    "The printed closed-form output of a one-layer network equals gradient flow at the test point",
    quantity="largest absolute error of the output at the test point by Theorem 4.1, over random initializations and "
        "times",
    kind="printed", source="Theorem 4.1; exact, since the test point is in the span of the concepts", high=1e-11,
    evidence="identity", over="random flows",
    why="The printed and the corrected sum have the same terms at a point in the span of the concepts",
    doubt="The flows have exact second moments, no biases and no minibatches",
)(lambda run: _largest_of_flows(abs(run.at_test_point)))  # fmt: skip

claims.add(
    "noise-bound-printed",
    "The noise in output k of a one-layer network never exceeds Σ_i w_ki(0) μ_i, with concept signals μ_i",
    quantity="largest excess of the closed form's noise term over this sum, over outputs, initial weights and times",
    kind="printed", source="Section 4.1, (iii) as printed", high=1e-11,
    evidence="identity", over="random flows",
    why="A noise term above the printed sum at any time contradicts the upper bound",
    doubt="A reader may take absolute values as meant, with which the bound holds",
)(lambda run: _largest_of_flows(run.noise - run.start_part.sum("part")))  # fmt: skip

claims.add(
    "noise-bound",
    "At the test point, the absolute noise in output k of one-layer networks never exceeds Σ_i |w_ki(0)| μ_i, "
        "signals μ_i",
    quantity="largest excess of the closed form's absolute noise term over this sum of absolute initial weights, "
        "over outputs and times", kind="own", source="Section 4.1, (iii) corrected", high=1e-11,
    evidence="identity", over="random flows",
    why="Each part of the noise decays from its initial size, so the sum of the sizes bounds it at all times",
    doubt="It is a triangle inequality, which only an error of the program could break",
)(lambda run: _largest_of_flows(abs(run.noise) - abs(run.start_part).sum("part")))  # fmt: skip


def _sgd_errors(run: xr.Dataset, prediction: str, bias: bool) -> xr.DataArray:
    """Return the largest deviation of each run from a prediction, (task, seed)."""
    one = run.sel(bias=bias)
    return abs(one.output - one[prediction]).max(("step", "concept"))


_DIVERGED = Estimate.unresolved("A run of SGD diverged; choose another seed.")


def _mean_sgd_error(run: xr.Dataset, prediction: str, bias: bool) -> Estimate:
    if bool(run.diverged.any()):
        return _DIVERGED
    errors = _sgd_errors(run, prediction, bias)
    by_task = ", ".join(f"{error:.3f}" for error in errors.mean("seed").values)
    return Estimate.mean(errors.max("task").values, f"means of the tasks: {by_task}")


# Two runs, as in the quick size, give no useful interval of a mean.
for _name, _biases, _moments, _prediction, _bias, _why in (
    ("sgd", "with", "the samples", "empirical", True, "minibatches and finite steps"),
    ("sgd-without-biases", "without", "the samples", "empirical", False, "minibatches and steps, without biases,"),
    ("sgd-in-the-limit", "with", "infinitely many samples", "limit", True, "finite samples, minibatches and steps"),
):
    claims.add(
        _name,
        f"SGD of one-layer networks {_biases} biases in 64 dimensions follows the closed form with second moments of "
            f"{_moments}",
        quantity="largest error of the test output against Theorem 4.1 along a run and over three tasks, mean over "
            "seeds",
        kind="own", source="Theorem 4.1 and Figure 2, from the actual start; the bound is this project's", high=0.02,
        sizes=("default", "paper"), evidence="sample", over="seeds",
        why=f"The closed form starts from the same weights, so {_why} make all of the difference",
        doubt="Three tasks of Figure 2 at d = 64, and a bar of 0.02 that is ours",
    )(partial(_mean_sgd_error, prediction=_prediction, bias=_bias))  # fmt: skip


@claims.add(
    "monotone",
    "From initial weights of small enough spectral norm, the test loss of a one-layer network never rises",
    quantity="number of initializations with a rising test loss, of spectral norm up to √(1 + √(min a / max a)) − 1, "
        "a the strengths",
    kind="own", source="Section 4.1, 'monotonic', with the condition that this project proves", high=0.0,
    evidence="cases", over="random starts",
    why="Every start within the proved condition must have a falling loss, so one exception refutes it",
    doubt="Random starts rarely come near the limit of the norm, so its sharpness is not tested",
)  # fmt: skip
def _exceptions(run: xr.Dataset) -> Estimate:
    tried = round(float(run.within.sum()) * run.attrs["starts"])
    return Estimate(float(run.broken.sum()), 0.0, f"of {tried} within it, {float(run.within.mean()):.0%} of all", tried)


@claims.add(
    "monotone-default",
    "From PyTorch's default initialization of a one-layer network in 64 dimensions, the test loss never rises",
    quantity="number of random initializations from which the test loss rises at some time", kind="reading",
    source="Section 4.1, on the one-layer model: it learns monotonically; for its d = 64", high=0.0,
    evidence="cases", over="random starts",
    why="The default start at d = 64 is that of the one-layer figures, whose regular curves the paper calls monotonic",
    doubt="The closed form with exact moments follows the starts, without the noise of SGD",
)  # fmt: skip
def _rising_share(run: xr.Dataset) -> Estimate:
    low, high = (float(run.rising.sel(start_dim=d, size=1.0)) for d in (2, 64))
    starts = int(run.attrs["starts"])
    return Estimate(float(round(high * starts)), 0.0, f"of {starts}; {low:.3g} of the starts at d = 2", starts)


@claims.add(
    "counterexample",
    "From one-layer weights that map the test point to itself, the test loss first rises by at least 0.025",
    quantity="largest rise of the test loss above its initial value, with a loss of 2.5 for zero weights", kind="own",
    source="contrary to Section 4.1, 'monotonic', by Theorem 4.1 itself; the bound: 1 % of |x|^2/2", low=0.025,
    evidence="identity",
    why="Weights that are right at the test point and wrong elsewhere lose it first, which a monotone loss excludes",
    doubt="One constructed start, larger than any default; the paper may have small ones in mind",
)  # fmt: skip
def _example_rise(run: xr.Dataset) -> Estimate:
    first = run.example.isel(example_start=0)
    return Estimate(float(first.max() - first[0]), remark=f"from {float(first[0]):.1g}; |x^|^2/2 is 2.5")


metrics = (
    Metric(
        name="sgd_error", quantity="largest distance of SGD to the closed form, mean over networks",
        statistic=lambda run: float(_sgd_errors(run, "empirical", True).mean()), scale="log",
    ),
    Metric(
        name="flow_error", quantity="largest distance of gradient flow to the closed form",
        statistic=lambda run: _largest_error("corrected", run).value, scale="log",
    ),
    Metric(
        name="rising", quantity="share of starts whose loss rises, over dimensions and sizes",
        statistic=lambda run: float(run.rising.mean()),
    ),
)  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw SGD and the theorem, starts whose loss rises, and the terms of one flow."""
    return [_sgd(run), _rises(run), _sum(run)]


def _sgd(run: xr.Dataset) -> Figure:
    one = run.sel(bias=True).isel(seed=0)

    def outputs(of: xr.DataArray, width: float, opacity: float = 1.0) -> tuple[Line, ...]:
        pair = of.isel(concept=[0, 1]).assign_coords(concept=[1, 2])
        return lines(pair, x="step", hue="concept", label="concept {}", grouped=True, width=width, opacity=opacity)

    panels = [
        Panel(
            title=str(task),
            x=Axis("step"),
            y=Axis("output at the test point"),
            marks=(*outputs(one.output.sel(task=task), 4.0, 0.35), *outputs(one.empirical.sel(task=task), 1.2)),
        )
        for task in run.task.values
    ]
    errors = tuple(
        Line(
            x=run.step.values[1:],
            y=abs(run.output - run[name]).sel(bias=bias).max(("concept", "task", "seed")).values[1:],
            group=group, style="solid" if bias else "dashed", color=color,
        )
        for name, group, color in (("empirical", "A of the samples", 2), ("limit", "A in the limit", 3))
        for bias in (True, False)
    )  # fmt: skip
    panels.append(Panel(title="largest error of all runs", x=Axis("step"), y=Axis("error", scale="log"), marks=errors))
    return Figure(
        name="sgd",
        title="SGD of a one-layer network, and Theorem 4.1 from its actual start",
        caption="d = 64, the paper's training: outputs at the test point along the two concepts by SGD (wide, pale) "
        "and by the theorem (thin), on three tasks of Figure 2. Last panel: the largest error over tasks, runs and "
        "concepts, with biases (solid) and without (dashed).",
        panels=tuple(panels),
    )


def _rises(run: xr.Dataset) -> Figure:
    shares = lines(run.rising, x="size", hue="start_dim", label="d = {}")
    examples = lines(run.example, x="example_time", hue="example_start", color=3)
    return Figure(
        name="rises",
        title="Starts from which the test loss of one layer rises",
        caption="Left: the share of random starts from which the loss at the test point rises somewhere, against their "
        "size in units of PyTorch's default. Right: the loss from a start that maps the test point to itself, "
        "W(0) = x xᵀ/|x|², and from a tenth of it.",
        panels=(
            Panel(
                x=Axis("size of W(0) over the default", scale="log"), y=Axis("share of starts whose loss rises"),
                marks=(*shares, Mark(at=1.0, label="PyTorch's default")),
            ),
            Panel(x=Axis("time", "t"), y=Axis("loss at the test point"), marks=examples),
        ),
    )  # fmt: skip


def _sum(run: xr.Dataset) -> Figure:
    one, times = run.isel(flow=0), run.flow_time.values
    panels = tuple(
        Panel(
            title=f"output {k + 1} of {run.sizes['dimension']}" + (", no concept" if k else ", a concept"),
            x=Axis("time", "t"),
            y=Axis("output at a random point"),
            marks=(
                Line(x=times, y=one.exact.values[:, k], group="gradient flow", color=0, width=4.0, opacity=0.35),
                Line(x=times, y=one.corrected.values[:, k], group="sum over all d", color=1, width=1.2),
                Line(x=times, y=one.printed.values[:, k], group="as printed", color=2, style="dashed"),
            ),
        )
        for k in (0, run.sizes["dimension"] - 1)
    )
    return Figure(
        name="sum",
        title="Equation 4.2 with the noise of all directions and of the concepts alone",
        caption="Two outputs at a random point with parts outside the span of the three concepts: by gradient flow, by "
        "the theorem with the noise of all directions, and as printed, with that of the concepts alone.",
        panels=panels,
    )


entry = Entry(
    "concept-learning/theorem-4-1", "Theorem 4.1: one layer in closed form, compared with gradient flow and SGD",
    citation=CITATION, source="Section 4.1 and Appendix C.2", params=Params,
    quick=dict(dim=5, flows=2, runs=2, samples=2500, epochs=80, starts=200),
    paper=dict(runs=40, flows=50, starts=50_000), run=run, claims=claims, figures=figures, metrics=metrics,
)  # fmt: skip
