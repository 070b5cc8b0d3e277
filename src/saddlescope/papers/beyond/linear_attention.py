"""Attention-only linear transformers learn regression in context, one principal component of the inputs per head.

A context has N pairs (x_n, y_n = w · x_n) with x ~ N(0, Λ) and w ~ N(0, 1), and a query x. A linear head with keys of
rank one predicts v (q · x)(k · β) from β = sum_n y_n x_n / N; it is a unit of degree 3. The heads together predict
xᵀ F β with F = sum v q kᵀ, and over all contexts

    L(F) = (tr Λ - 2 tr(Λ F Λ) + tr(Λ F E[Λ̂²] Fᵀ)) / 2,    E[Λ̂²] = Λ² + (Λ² + tr(Λ) Λ) / N,

where Λ̂ is the covariance of a context's inputs: the fourth moments of a Gaussian. At the origin the utility of a head
is v qᵀ Λ² k, largest at the first eigenvector of Λ. With the first k components learned,

    L_k = (tr Λ - sum over j <= k of λ_j / (1 + (1 + tr Λ / λ_j) / N)) / 2.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.beyond.shared.stage_claims import AGF, SADDLES, add_level_claim, stage_figures
from saddlescope.papers.beyond.shared.stage_comparison import (
    StageParams,
    compare_stages,
    follow_scales,
    over_seeds,
    over_stages,
    time_errors,
)
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param


class Params(StageParams):
    """Covariances with given eigenvalues in a random basis."""

    eigenvalues: tuple[float, ...] = param((2.0, 1.4, 0.9), "eigenvalues of the covariance", gt=0, order="decreasing")
    pairs: int = param(16, "pairs N in a context", ge=1)
    heads: int = param(5, "attention heads", ge=1)
    log10_scales: tuple[float, ...] = param(
        (-2.0, -3.0, -4.0, -6.0), "log10 of the initial scales α", ge=-100, le=-1, order="decreasing", least=2
    )
    tolerance: float = param(1e-7, "tolerance of the flow's log norms and directions", ge=1e-10, le=1e-3, scale="log")


@over_seeds
def run(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    """Predict the stages from one head, and follow the flow of all heads from every scale."""
    from saddlescope.flow import unit_flow
    from saddlescope.papers.beyond.shared.units import context_loss, linear_head
    from saddlescope.theory import unit_learning

    rng, eigenvalues = np.random.default_rng(seed), np.array(params.eigenvalues)
    d, count = len(eigenvalues), params.pairs
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    covariance = (basis * eigenvalues) @ basis.T
    second = covariance @ covariance * (1 + 1 / count) + np.trace(covariance) * covariance / count
    moments = {"covariance": covariance[None], "second": second[None]}
    data = np.zeros((1, 1)), moments  # the loss is an average over all contexts already
    shapes: dict[str, tuple[int, ...]] = {"k": (d,), "q": (d,), "v": ()}
    weights = {name: rng.standard_normal((params.heads, *shape)) for name, shape in shapes.items()}
    parameters = {name: np.zeros(shape) for name, shape in shapes.items()}
    learned = unit_learning(linear_head, data, context_loss, parameters=parameters, weights=weights)
    follow = partial(unit_flow, linear_head, data, context_loss, weights, degree=3.0)
    times, until = learned.staircase.times, 1.1 * learned.stages[-1].time
    flows = follow_scales(params, context, follow, times, until, width=lambda log_scale: 4 * np.exp(log_scale))
    cosines = [
        min(abs(stage.direction[:d] @ basis[:, k]), abs(stage.direction[d : 2 * d] @ basis[:, k])) * np.sqrt(3)
        for k, stage in enumerate(learned.stages[1:])
        if stage.direction is not None
    ]
    return compare_stages(learned, flows).assign(misalignment=("stage", 1 - np.array(cosines)), components=d)


claims = Claims(
    limits="One set of eigenvalues; keys and queries have rank one, and the loss is the average over all contexts. A "
    "test compares it with sampled ones, and another the predicted levels with their closed form. Directions and the "
    "number of heads are those of the prediction; times and levels compare it with the flow."
)


@claims.reading(
    "components",
    "The features predicted for linear attention on regression in context are principal components, one after another",
    f"{AGF}; task, contexts: this project; the bound allows for the accuracy of directions",
    high=1e-6,
)
def _components(run: xr.Dataset) -> Estimate:
    """Largest 1 - |cos| between the key or query of the head of stage k and eigenvector k of the covariance."""
    return over_stages(run, run.misalignment)


@claims.extension(
    "heads",
    "With five heads and three principal components, the prediction for linear attention has one stage per component",
    f"{SADDLES}, on networks: ever more heads; one per component: this project",
    high=0.0,
)
def _heads(run: xr.Dataset) -> Estimate:
    """Number of seeds in which the predicted number of stages is not the number of components."""
    return Estimate.number(run.predicted_loss.notnull().sum("stage") != run.components, over="seeds")


@claims.reading(
    "times",
    "From α = 1e-6, the loss of linear attention on regression in context drops at the predicted times",
    f"{AGF}: order, timing and magnitude of the drops; bar: this project",
    high=1e-3,
)
def _times(run: xr.Dataset) -> Estimate:
    """Largest relative error of a stage time at the smallest α."""
    return over_stages(run, time_errors(run))


add_level_claim(claims, "linear attention on regression in context", "1e-6")


entry = Entry(
    "beyond/linear-attention",
    "Linear attention learns regression in context: principal components in order",
    source="Kunin et al., linear transformers; Zhang et al., heads",
    quick={"seeds": (0, 1), "eigenvalues": (2.0, 1.0), "heads": 3, "log10_scales": (-2.0, -6.0)},
    figures=stage_figures(
        title="Principal components are learned in order, one per head",
        caption="Gradient flow of linear attention that learns regression in context, and the prediction from a head.",
        unit="(1/α)",
    ),
)
