"""Theorem 4.1: one layer in closed form, compared with gradient flow.

The output of the one-layer network at the test point, from any start W(0), is the sum of a growth term and a noise
term. It is compared with gradient flow of equation 4.1, integrated by DOP853 on the gradient from JAX; `figure-2`
compares it with SGD. Equation C.13, which makes A diagonal, is tested on growing samples.
"""

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.plot import Axis, Figure, Figures, Mark, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.models import StructuredIdentityTask

_SIZES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0)  # of starts, in units of PyTorch's default
_DIMS = (2, 8, 64)
_COUNTS = (100, 1000, 10_000, 100_000)  # samples of each cluster


class Params(EntryParams):
    """Exact flows and samples of a small task, and starts in three dimensions."""

    dim: int = param(8, "dimension d of the exact flows, with three concepts", ge=4)
    flows: int = param(10, "exact flows, each from its own start", ge=2)
    runs: int = param(16, "draws of the samples of each size", ge=2)
    starts: int = param(4000, "random starts of each size whose loss is checked for rises", ge=1)
    seed: int = param(1000, "seed of the first flow, draw and start", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Compute exact flows and moments, and count starts whose loss rises."""
    exact, rising = context.split(0.6, 0.4)
    flows = exact.cached("flows", lambda: _exact_flows(params, exact.report))
    rises = rising.over({"start_dim": _DIMS}, partial(_rising_losses, params))
    return xr.merge([flows, rises, _moment_errors(params)]).assign_attrs(starts=params.starts)


def _exact_flows(params: Params, report: Report) -> xr.Dataset:
    """Return the distance of outputs at the test point by the theorem from those by integration."""
    import jax
    import jax.numpy as jnp
    from scipy.integrate import solve_ivp

    from saddlescope.models import PopulationLoss
    from saddlescope.theory.concepts import one_layer_output

    d, task = params.dim, _exact_task(params.dim)
    A, times, made = task.second_moment, np.linspace(0.0, 12.0, 61), []
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(PopulationLoss(jnp.asarray(A))))

        def velocity(_: float, flat: np.ndarray) -> np.ndarray:
            return -np.asarray(gradient(jnp.asarray(flat.reshape(d, d)))).ravel()

        for flow in range(params.flows):
            W0 = np.random.default_rng((params.seed, flow)).standard_normal((d, d)) / d**0.5
            path = solve_ivp(
                velocity, (0.0, times[-1]), W0.ravel(), method="DOP853", t_eval=times, rtol=1e-13, atol=1e-15
            )
            printed = one_layer_output(A, W0, task.test_point, times, printed=task.concepts).total
            made.append(np.abs(printed - path.y.T.reshape(len(times), d, d) @ task.test_point).max())
            report((flow + 1) / params.flows, f"flow {flow + 1} of {params.flows}")
    return xr.Dataset({"flow_error": ("flow", np.array(made))})


def _exact_task(dim: int, samples: int = 1) -> "StructuredIdentityTask":
    """Return a task of three concepts."""
    from saddlescope.models import StructuredIdentityTask

    return StructuredIdentityTask((1.0, 1.5, 2.2), (0.05, 0.3, 0.1), samples, dim)


def _moment_errors(params: Params) -> xr.Dataset:
    """Return the largest entry of A - diag(a) for growing samples of every cluster, (samples, draw)."""
    errors = np.zeros((len(_COUNTS), params.runs))
    for (n, count), draw in product(enumerate(_COUNTS), range(params.runs)):
        task = _exact_task(params.dim, count)
        X = task.draw(params.seed + draw)
        errors[n, draw] = np.abs(X.T @ X / len(X) - np.diag(task.strengths)).max()
    return xr.Dataset({"moment_error": (("samples", "draw"), errors)}, coords={"samples": list(_COUNTS)})


def _rising_losses(params: Params, d: int, step: RunContext) -> xr.Dataset:
    """Return shares of starts whose loss at the test point rises, by size, from the closed form."""
    from saddlescope.models import StructuredIdentityTask

    task, share = StructuredIdentityTask((1.0, 2.0), (0.05, 0.05), 1, d), []
    a, mu, rng = task.strengths[:2], np.array(task.mu), np.random.default_rng((params.seed, d))
    times = np.concatenate([[0.0], np.geomspace(1e-3, 20 / a.min(), 400)])
    decay = np.exp(-np.outer(times, a))
    for size in _SIZES:
        columns = size * d**-0.5 * rng.uniform(-1, 1, (params.starts, d, 2))  # the others have no effect
        C = (columns - np.eye(d, 2)) * mu
        losses = np.einsum("tp,npq,tq->nt", decay, C.mT @ C, decay) / 2
        share.append(np.mean(np.max(np.diff(losses, axis=1), axis=1) > 1e-12 * float(mu @ mu)))
    return xr.Dataset({"rising": ("size", share)}, {"size": list(_SIZES)})


claims = Claims(
    limits="Outside the span of the concepts the printed sum leaves out the weights of other directions, an erratum; "
    "the paper uses it at the test point. 'Monotonic' is read as a test loss that never rises, by the closed form "
    "without biases, for one pair of strengths, of ratio 4; strengths further apart or larger starts make rises easier."
)


@claims.printed(
    "at-the-test-point",
    "Gradient flow of a one-layer network on equation 4.1 has the output of equation 4.2 at the test point",
    "Theorem 4.1; exact, to rounding",
    high=1e-11,
)
def flow_error(run: xr.Dataset) -> Estimate:
    """Largest absolute error of the output at the test point, over starts and times."""
    return Estimate.largest(run.flow_error.values, over="random starts")


@claims.reading(
    "moments",
    "As the samples of each cluster grow, A converges to diag(μ)²/s + diag(σ)² at a rate of about n^(−1/2)",
    "Equation C.13; the error of a mean of n samples falls as n^(−1/2), here to within a fifth of that power",
    low=-0.6,
    high=-0.4,
)
def moment_rate(run: xr.Dataset) -> Estimate:
    """Slope of the logarithm of the largest entry of A − diag(a) against that of n, mean over draws."""
    slopes = np.polyfit(np.log(run.samples.values), np.log(run.moment_error.values), 1)[0]
    last = float(run.moment_error[-1].mean())
    return Estimate.mean(slopes, f"error {last:.2g} at n = {int(run.samples[-1])}", over="draws of the samples")


@claims.reading(
    "monotone-default",
    "With μ = (1, 2) and σ = (0.05, 0.05), from PyTorch's default weights in 64 dimensions, the test loss of a "
    "one-layer network never rises under gradient flow",
    "Section 4.1: the one-layer model has a 'monotonic [...] output trajectory'; its figures have d = 64",
    high=0.0,
)
def rising_starts(run: xr.Dataset) -> Estimate:
    """Number of random starts from which the test loss rises at some time, by the closed form."""
    low, high = (float(run.rising.sel(start_dim=d, size=1.0)) for d in (2, 64))
    starts = int(run.attrs["starts"])
    rising = np.arange(starts) < round(high * starts)
    return Estimate.number(rising, f"of {starts}; {low:.3g} of the starts at d = 2", over="random starts")


def figures(run: xr.Dataset) -> Figures:
    """Draw starts whose loss rises, and the convergence of A."""
    shares = lines(run.rising, x="size", hue="start_dim", label="d = {}")
    errors = lines(run.moment_error.mean("draw"), x="samples", color=3)
    yield Figure(
        name="rises",
        title="Starts from which the test loss of one layer rises, and the second moment of growing samples",
        caption="Left: the share of random starts from which the loss at the test point rises somewhere, against "
        "their size in units of PyTorch's default. Right: the largest entry of A − diag(a), mean over draws of the "
        "samples.",
        panels=(
            Panel(
                x=Axis("size of W(0) over the default", scale="log"),
                y=Axis("share of starts whose loss rises"),
                marks=(*shares, Mark(at=1.0, label="PyTorch's default")),
            ),
            Panel(x=Axis("samples of each cluster", scale="log"), y=Axis("error of A", scale="log"), marks=errors),
        ),
    )


entry = Entry(
    "concept-learning/theorem-4-1",
    "Theorem 4.1: one layer in closed form, compared with gradient flow",
    source="Section 4.1 and Appendix C.2",
    quick=dict(dim=5, flows=2, runs=2, starts=200),
    paper=dict(runs=40, flows=50, starts=50_000),
)
