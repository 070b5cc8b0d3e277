"""ReLU neurons on orthogonal samples: the positive labels are learned first, then the negative ones, or the reverse.

The unit is one hidden neuron, f(x) = a relu(w · x), on n samples that are the unit vectors. A neuron with a > 0 whose
weights see all samples with positive labels grows along those labels at the rate |y₊| / n, one with a < 0 along the
negative labels at |y₋| / n; while a sample is unseen by a neuron, nothing moves that weight.

    y₊, y₋    positive and negative labels
    T         n / |y₊| and n / |y₋|
    L         (|y|² - |y₊|²) / (2 n) after the positive labels, 0 at the end
"""

import numpy as np
import xarray as xr

from saddlescope.papers.beyond import CITATION
from saddlescope.papers.beyond.shared.stage_claims import AGF, add_stage_claims, over_stages, stage_figure
from saddlescope.papers.beyond.shared.stage_comparison import compare_stages, over_seeds, record_times
from saddlescope.plot import Figure
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Random labels, some of each sign."""

    seeds: tuple[int, ...] = param(tuple(range(10)), "seeds of labels and initial weights", ge=0, order="distinct")
    samples: int = param(6, "samples, half of them with positive labels", ge=2, multiple_of=2)
    neurons: int = param(6, "hidden neurons, of which two see all samples at the start", ge=2)
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
    n, half = params.samples, params.samples // 2
    sizes = rng.uniform(0.5, 1.5, n) * np.repeat([1.0, 0.6], half)
    labels = sizes * np.repeat([1.0, -1.0] if seed % 2 == 0 else [-1.0, 1.0], half)
    signs = np.where(np.arange(params.neurons) % 2 == 0, 1.0, -1.0)
    into = rng.standard_normal((params.neurons, n))
    into[:2] = np.abs(into[:2])
    weights = {"a": signs * np.linalg.norm(into, axis=1), "w": into}  # balanced, so that a keeps its sign
    data = np.eye(n), labels
    learned = unit_learning(
        relu_neuron, data, half_square, parameters={"a": np.zeros(()), "w": np.zeros(n)}, weights=weights
    )
    exact = np.sort([np.linalg.norm(labels[labels > 0]), np.linalg.norm(labels[labels < 0])])[::-1]
    until, curves = 1.3 * n / exact[-1], {}
    for scale, step in context.steps(params.log10_scales):
        flow = unit_flow(
            relu_neuron, data, half_square, weights, degree=2.0, log_scale=scale * np.log(10), until=until,
            tolerance=params.tolerance, record=record_times(learned.staircase.times, until, -1 / (scale * np.log(10))),
            report=step.report,
        )  # fmt: skip
        curves[scale] = flow.times, flow.losses
    compared = compare_stages(learned, curves)
    return compared.assign(
        exact_time=("stage", _padded(n / exact, compared.sizes["stage"])),
        exact_loss=("stage", _padded(np.array([exact[1] ** 2, 0.0]) / (2 * n), compared.sizes["stage"])),
    )


def _padded(values: np.ndarray, size: int) -> np.ndarray:
    """Return the first values, NaN beyond them: a prediction with another number of stages agrees with none."""
    return np.append(values, np.full(size, np.nan))[:size]


claims = Claims()


@claims.add(
    "closed-form",
    "On orthogonal samples, ReLU neurons learn the positive and the negative labels at the times n / |y|",
    quantity="largest relative difference of a predicted time or level from the closed form", kind="reading",
    source="Derived in the module; the bound allows for the accuracy of directions", high=1e-7, evidence="cases",
    over="seeds",
    why="Times and levels follow from the labels alone, and the prediction finds the neurons that win",
    doubt="Two neurons see all samples at the start; neurons that see fewer are slower and never become active",
)  # fmt: skip
def _closed_form(run: xr.Dataset) -> Estimate:
    times = abs(run.predicted_time / run.exact_time - 1)
    return over_stages(run, np.maximum(times, abs(run.predicted_loss - run.exact_loss) / run.initial_loss))


@claims.add(
    "stages", "On orthogonal samples with labels of both signs, ReLU networks learn in exactly two stages",
    quantity="number of seeds with another predicted number of stages", kind="reading",
    source=f"{AGF}: a dormant neuron becomes active at each iteration; derived in the module", high=0.0,
    evidence="cases", over="seeds",
    why="One neuron of each sign fits all labels of its sign, and no utility is left",
    doubt="The number of stages of the flow is judged by its levels alone",
)  # fmt: skip
def _stages(run: xr.Dataset) -> Estimate:
    return Estimate.number(run.predicted_loss.notnull().sum("stage") != 2)


add_stage_claims(claims, "ReLU networks on orthogonal samples")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the losses and the errors."""
    caption = "Gradient flow of ReLU neurons on orthogonal samples, and the prediction from one neuron."
    return [stage_figure(run, title="ReLU neurons learn the labels of one sign at a time", caption=caption)]


entry = Entry(
    "beyond/relu-neurons", "ReLU neurons on orthogonal samples: labels of one sign at a time, in closed form",
    citation=CITATION, source="Kunin et al., order and timing of the drops", params=Params,
    quick=dict(seeds=(0, 1), log10_scales=(-20.0, -70.0), samples=4, neurons=3), run=run, claims=claims,
    figures=figures,
)  # fmt: skip
