"""Theorem 4.1: one layer in closed form, against gradient flow and SGD   (Section 4.1 and Appendix C.2)

The output of the one-layer network at any point z, from any start W0, is growth plus noise. It is held against gradient
flow of equation 4.1 by another integrator, on the gradient that JAX finds, and against SGD in the authors' conventions
from the actual start. Three statements of the text that hold only in part are held to what they say:

    sum       equation 4.2 sums the noise over the s concepts; for z outside their span it must run over all d
    bound     "the noise term is upper bounded by sum_i w_ki(0) mu_i": so only with absolute values
    monotone  one layer learns "monotonically": so from small starts only
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.shared.perceptron_training import Training, one_layer_prediction, train
from saddlescope.papers.concept_learning.theorem_4_1.figures import figures
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric

__all__ = ["Params", "claims", "figures", "metrics", "run"]

_TASKS = (((1.0, 2.0), (0.05, 0.05)), ((1.5, 2.0), (0.05, 0.05)), ((1.0, 2.0), (2.0, 0.05)))  # of Figure 2
_SIZES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0)  # of starts, in units of PyTorch's default
_DIMS = (2, 8, 64)


@dataclass(frozen=True, kw_only=True)
class Params:
    """The paper's training at d = 64; exact flows of a small task."""

    dim: int = 8  # dimension d of the exact flows, with three concepts
    flows: int = 10  # exact flows, each from a start and at a point of its own
    runs: int = 16  # SGD runs of each task, with biases and without
    samples: int = 5000  # of each cluster, of SGD
    epochs: int = 40  # of SGD
    starts: int = 4000  # starts of each size whose loss is looked at for rises
    seed: int = 0  # of the first flow, run and start

    def __post_init__(self) -> None:
        parameter_checks.at_least(4, self, "dim")
        parameter_checks.at_least(2, self, "runs")
        parameter_checks.at_least(1, self, "flows", "starts", "epochs")
        parameter_checks.at_least(64, self, "samples")
        parameter_checks.at_least(0, self, "seed")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: fewer runs, on fewer samples for as many steps."""
        return cls(dim=5, flows=2, runs=2, samples=2500, epochs=80, starts=200)

    @classmethod
    def paper(cls) -> "Params":
        """The default has the paper's size; more runs."""
        return cls(runs=40, flows=50, starts=50_000)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Exact flows, SGD with biases and without, and starts whose loss may rise."""
    flows = context.cached("flows", lambda: _flows(params, context.part(0.0, 0.3)))
    sgd = [
        context.cached(
            f"sgd-{bias}", lambda bias=bias, n=n: _sgd(params, bias, context.part(0.3 + n / 4, 0.55 + n / 4))
        )
        for n, bias in enumerate((True, False))
    ]
    rises = context.cached("rises", lambda: _rises(params, context.part(0.8, 1.0)))
    context.report(1.0, "done")
    return xr.merge([flows, xr.concat(sgd, dim="bias"), rises])


def _flows(params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """Outputs at random points by the closed form, as printed and as corrected, and by integration."""
    import jax
    import jax.numpy as jnp
    from scipy.integrate import solve_ivp

    from saddlescope.models import PopulationLoss, StructuredIdentityTask
    from saddlescope.theory.concepts import one_layer_output

    d, concepts = params.dim, 3
    task = StructuredIdentityTask((1.0, 1.5, 2.2), (0.05, 0.3, 0.1), 1, d)
    A, times = task.second_moment, np.linspace(0.0, 12.0, 61)
    names = ("exact", "corrected", "printed", "at_test_point", "noise", "start_part")
    kept: dict[str, list[np.ndarray]] = {name: [] for name in names}
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
            kept["exact"].append(W @ z)
            kept["corrected"].append(one_layer_output(A, W0, z, times).total)
            kept["printed"].append(one_layer_output(A, W0, z, times, printed=concepts).total)
            at_test = one_layer_output(A, W0, task.test_point, times, printed=concepts)
            kept["at_test_point"].append(at_test.total - W @ task.test_point)
            kept["noise"].append(at_test.noise)
            kept["start_part"].append(W0[:, :concepts] * np.array(task.mu))
            report((flow + 1) / params.flows, f"flow {flow + 1} of {params.flows}")
    dims = ("flow", "flow_time", "dimension")
    stacked = {name: (dims, np.array(kept[name])) for name in names[:-1]}
    return xr.Dataset(
        stacked | {"start_part": (("flow", "dimension", "part"), np.array(kept["start_part"]))},
        coords={"flow_time": ("flow_time", times, {"units": "t"})},
    )


def _sgd(params: Params, bias: bool, report: Callable[[float, str], None]) -> xr.Dataset:
    """Outputs at the test point by SGD; by the theorem from the actual start, with the limit A and the samples' A."""
    training = Training(bias=bias, samples=params.samples, epochs=params.epochs, every=25)
    seeds = range(params.seed, params.seed + params.runs)
    trained = train(training, _TASKS, seeds, report=report)[["output", "diverged"]]
    predictions = {
        name: np.array(
            [
                [one_layer_prediction(training, task, seed, trained.step.values, empirical=empirical) for seed in seeds]
                for task in _TASKS
            ]
        )
        for name, empirical in (("limit", False), ("empirical", True))
    }
    dims = ("task", "seed", "step", "concept")
    return trained.assign({name: (dims, value) for name, value in predictions.items()}).assign_coords(bias=bias)


def _rises(params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """How often the loss at the test point rises, by size of the start and dimension, from the closed form."""
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
    """|W(t) x^ - x^|^2 / 2 from starts with these first columns, (starts, times), where the others have no effect."""
    C = (columns - np.eye(*columns.shape[1:])) * mu
    decay = np.exp(-np.outer(times, a))
    return np.einsum("tp,npq,tq->nt", decay, C.swapaxes(1, 2) @ C, decay) / 2


# The bounds: closed form against DOP853 at 1e-13 has 1e-11 to spare; .02 is this project's bar for SGD.
def _closed_form(run: xr.Dataset) -> Estimate:
    return Estimate(float(abs(run.corrected - run.exact).max()), remark=f"{run.sizes['flow']} starts and points")


def _printed_sum(run: xr.Dataset) -> Estimate:
    return Estimate(float(abs(run.printed - run.exact).max()))


def _at_test_point(run: xr.Dataset) -> Estimate:
    return Estimate(float(abs(run.at_test_point).max()))


def _printed_bound(run: xr.Dataset) -> Estimate:
    return Estimate(float((run.noise - run.start_part.sum("part")).max()))


def _absolute_bound(run: xr.Dataset) -> Estimate:
    return Estimate(float((abs(run.noise) - abs(run.start_part).sum("part")).max()))


def _sgd_error(run: xr.Dataset, prediction: str, bias: bool) -> xr.DataArray:
    one = run.sel(bias=bias)
    return abs(one.output - one[prediction]).max(("step", "concept"))


def _mean_error(run: xr.Dataset, prediction: str, bias: bool) -> Estimate:
    """The largest error of a run, its mean over runs, on the task where that is largest."""
    if bool(run.diverged.any()):
        return Estimate.unresolved("A run diverged.")
    errors = _sgd_error(run, prediction, bias)
    one = errors.isel(task=errors.mean("seed").argmax("task"))
    return Estimate.mean(one.values, f"{one.task.item()}; smallest task {float(errors.mean('seed').min()):.3f}")


def _with_bias(run: xr.Dataset) -> Estimate:
    return _mean_error(run, "empirical", True)


def _without_bias(run: xr.Dataset) -> Estimate:
    return _mean_error(run, "empirical", False)


def _in_the_limit(run: xr.Dataset) -> Estimate:
    return _mean_error(run, "limit", True)


def _largest(run: xr.Dataset) -> Estimate:
    if bool(run.diverged.any()):
        return Estimate.unresolved("A run diverged.")
    errors = _sgd_error(run, "empirical", True)
    by_task = ", ".join(
        f"{float(error):.3f} at {task}" for task, error in zip(errors.task.values, errors.max("seed"), strict=True)
    )
    return Estimate(float(errors.max()), remark=f"{errors.size} runs: {by_task}")


def _broken(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.broken.sum()), remark=f"{float(run.within.mean()):.0%} of all starts are within it")


def _rising(run: xr.Dataset) -> Estimate:
    one = run.rising.sel(start_dim=2, size=1.0)
    return Estimate(float(one), remark=f"d = 64: {float(run.rising.sel(start_dim=64, size=1.0)):.3g}")


def _example(run: xr.Dataset) -> Estimate:
    first = run.example.isel(example_start=0)
    return Estimate(float(first.max() - first[0]), remark=f"from {float(first[0]):.1g}; |x^|^2/2 is 2.5")


claims = (
    Claim(
        name="closed-form",
        says="Equation 4.2 with the sum over all d is the flow of equation 4.1, at any z from any W0: largest error",
        source="Theorem 4.1, corrected; exact, DOP853 at 1e-13",
        statistic=_closed_form,
        high=1e-11,
    ),
    Claim(
        name="printed-sum",
        says="Equation 4.2 as printed, with the sum over the s concepts, is it, at any z: largest error",
        source="Theorem 4.1 as printed, 'for any z'; exact",
        statistic=_printed_sum,
        high=1e-11,
    ),
    Claim(
        name="at-the-test-point",
        says="As printed it is right at the test point, which is in the span of the concepts: largest error",
        source="Theorem 4.1; exact",
        statistic=_at_test_point,
        high=1e-11,
    ),
    Claim(
        name="noise-bound-printed",
        says="The noise of output k is at most sum_i w_ki(0) mu_i: largest excess",
        source="Section 4.1, (iii) as printed",
        statistic=_printed_bound,
        high=1e-11,
    ),
    Claim(
        name="noise-bound",
        says="The noise of output k is in size at most sum_i |w_ki(0)| mu_i: largest excess",
        source="Section 4.1, (iii) corrected",
        statistic=_absolute_bound,
        high=1e-11,
    ),
    Claim(
        name="sgd",
        says="SGD at d = 64 with biases follows the theorem, with A of the samples: mean largest error, worst task",
        source="Theorem 4.1 and Figure 2, from the actual start; this project's bar",
        statistic=_with_bias,
        high=0.02,
    ),
    Claim(
        name="sgd-without-biases",
        says="The same without biases",
        source="Theorem 4.1; this project's bar",
        statistic=_without_bias,
        high=0.02,
    ),
    Claim(
        name="sgd-in-the-limit",
        says="The same with biases and A of infinitely many samples",
        source="Theorem 4.1, for large n; this project's bar",
        statistic=_in_the_limit,
        high=0.02,
    ),
    Claim(
        name="sgd-largest",
        says="SGD with biases, A of the samples: largest error of all runs, to which minibatches add",
        source="this project's bar, which a pilot of 18 runs on seeds 100 to 105 kept with .011",
        statistic=_largest,
        high=0.02,
    ),
    Claim(
        name="monotone",
        says="From starts of spectral norm up to sqrt(1 + sqrt(min a / max a)) - 1 the loss never rises: exceptions",
        source="Section 4.1, 'monotonic', with the condition this project proves",
        statistic=_broken,
        high=0.0,
    ),
    Claim(
        name="monotone-printed",
        says="One layer learns monotonically: share of PyTorch's default starts at d = 2 whose test loss rises",
        source="Section 4.1, the limitation of the one-layer model, as printed",
        statistic=_rising,
        high=0.0,
    ),
    Claim(
        name="counterexample",
        says="From a W0 that is right at the test point the loss there rises first, by at least 1 % of |x^|^2/2",
        source="the contrary, by Theorem 4.1 itself",
        statistic=_example,
        low=0.025,
    ),
)

metrics = (
    Metric(
        name="sgd_error",
        says="largest distance of SGD to the closed form, mean over networks",
        statistic=lambda run: float(_sgd_error(run, "empirical", True).mean()),
        scale="log",
    ),
    Metric(
        name="flow_error",
        says="largest distance of gradient flow to the closed form",
        statistic=lambda run: float(abs(run.corrected - run.exact).max()),
        scale="log",
    ),
    Metric(
        name="rising",
        says="share of starts whose loss rises, over dimensions and sizes",
        statistic=lambda run: float(run.rising.mean()),
    ),
)
