"""Attention-only linear transformers learn regression in context, one principal component of the inputs per head.

A context has N pairs (x_n, y_n = w · x_n) with x ~ N(0, Λ) and w ~ N(0, 1), and a query x. A linear head with keys of
rank one predicts v (q · x)(k · β) from β = sum_n y_n x_n / N; it is a unit of degree 3. The heads together predict
xᵀ F β with F = sum v q kᵀ, and over all contexts

    L(F) = (tr Λ - 2 tr(Λ F Λ) + tr(Λ F E[Λ̂²] Fᵀ)) / 2,    E[Λ̂²] = Λ² + (Λ² + tr(Λ) Λ) / N,

where Λ̂ is the covariance of a context's inputs: the fourth moments of a Gaussian. At the origin the utility of a head
is v qᵀ Λ² k, largest at the first eigenvector of Λ. With the first k components learned,

    L_k = (tr Λ - sum over j <= k of λ_j / (1 + (1 + tr Λ / λ_j) / N)) / 2.
"""

import numpy as np
import xarray as xr

from saddlescope.papers.beyond import CITATION
from saddlescope.papers.beyond.shared.stage_claims import AGF, SADDLES, add_level_claim, over_stages, stage_figure
from saddlescope.papers.beyond.shared.stage_comparison import compare_stages, over_seeds, record_times, time_errors
from saddlescope.plot import Figure
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Covariances with given eigenvalues in a random basis."""

    seeds: tuple[int, ...] = param(tuple(range(10)), "seeds of basis and initial weights", ge=0, order="distinct")
    eigenvalues: tuple[float, ...] = param((2.0, 1.4, 0.9), "eigenvalues of the covariance", gt=0, order="decreasing")
    pairs: int = param(16, "pairs N in a context", ge=1)
    heads: int = param(5, "attention heads", ge=1)
    log10_scales: tuple[float, ...] = param(
        (-2.0, -3.0, -4.0, -6.0), "log10 of the initial scales α", ge=-100, le=-1, order="decreasing", least=2
    )
    tolerance: float = param(1e-7, "tolerance of the flow's log norms and directions", ge=1e-10, le=1e-3, scale="log")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Predict the stages from one head, and follow the flow of all heads from every scale."""
    return over_seeds(params.seeds, context, lambda seed, step: _solve(params, seed, step))


def _solve(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    from saddlescope.flow import unit_flow
    from saddlescope.papers.beyond.shared.units import context_loss, linear_head
    from saddlescope.theory import unit_learning

    rng = np.random.default_rng(seed)
    eigenvalues = np.array(params.eigenvalues)
    d, count = len(eigenvalues), params.pairs
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    covariance = (basis * eigenvalues) @ basis.T
    second = covariance @ covariance * (1 + 1 / count) + np.trace(covariance) * covariance / count

    moments = {"covariance": covariance[None], "second": second[None]}
    data = np.zeros((1, 1)), moments  # the loss is an average over all contexts already
    draw = lambda *shape: rng.standard_normal((params.heads, *shape))  # noqa: E731
    weights = {"k": draw(d), "q": draw(d), "v": draw()}
    parameters = {"k": np.zeros(d), "q": np.zeros(d), "v": np.zeros(())}
    learned = unit_learning(linear_head, data, context_loss, parameters=parameters, weights=weights)
    until, curves = 1.1 * learned.stages[-1].time, {}
    for scale, step in context.steps(params.log10_scales):
        flow = unit_flow(
            linear_head, data, context_loss, weights, degree=3.0, log_scale=scale * np.log(10), until=until,
            tolerance=params.tolerance, record=record_times(learned.staircase.times, until, 4 * 10.0**scale),
            report=step.report,
        )  # fmt: skip
        curves[scale] = flow.times, flow.losses
    gains = eigenvalues / (1 + (1 + eigenvalues.sum() / eigenvalues) / count)
    stages = len(learned.stages) - 1
    cosines = [
        min(abs(stage.direction[:d] @ basis[:, k]), abs(stage.direction[d : 2 * d] @ basis[:, k])) * np.sqrt(3)
        for k, stage in enumerate(learned.stages[1:])
        if stage.direction is not None
    ]
    return compare_stages(learned, curves).assign(
        exact_loss=("stage", 0.5 * (eigenvalues.sum() - np.cumsum(gains)[:stages])),
        misalignment=("stage", 1 - np.array(cosines)),
        components=d,
    )


claims = Claims()


@claims.add(
    "components",
    "The features that attention-only linear transformers learn one after another are principal components",
    quantity="largest 1 - |cos| between the key or query of the head of stage k and eigenvector k of the covariance",
    kind="printed", source=f"{AGF}; the bound allows for the accuracy of directions", high=1e-6,
    evidence="cases", over="seeds",
    why="Eigenvectors in the order of their eigenvalues are known, and the prediction starts from random heads",
    doubt="Keys and queries of rank one are the setting, and the directions are those on arrival",
)  # fmt: skip
def _components(run: xr.Dataset) -> Estimate:
    return over_stages(run, run.misalignment)


@claims.add(
    "heads", "Linear self-attention learns solutions with an increasing number of heads, one per principal component",
    quantity="number of seeds in which the predicted number of stages is not the number of components",
    kind="reading", source=SADDLES, high=0.0, evidence="cases", over="seeds",
    why="Each stage adds one head, and there are as many stages as components",
    doubt="With fewer heads than components the last ones are never learned",
)  # fmt: skip
def _heads(run: xr.Dataset) -> Estimate:
    return Estimate.number(run.predicted_loss.notnull().sum("stage") != run.components)


@claims.add(
    "closed-form", "The loss of linear attention after k components is that of regression in context along these alone",
    quantity="largest difference of a predicted level from the closed form, in units of the initial loss",
    kind="reading", source="Derived in the module; the bound allows for rounding", high=1e-8,
    evidence="cases", over="seeds",
    why="The closed form follows from fourth moments of Gaussian inputs, and the prediction knows the loss alone",
    doubt="Both use the average over all contexts; that it is the average of sampled ones is a test of its own",
)  # fmt: skip
def _closed_form(run: xr.Dataset) -> Estimate:
    return over_stages(run, abs(run.predicted_loss - run.exact_loss) / run.initial_loss)


@claims.add(
    "times", "From the smallest initial scale, heads of linear attention become active at the predicted times",
    quantity="largest relative error of a stage time", kind="reading",
    source=f"{AGF}: timing of the drops; times are in units of 1 / α for a unit of degree 3; this project's bar",
    high=1e-3, evidence="cases", over="seeds",
    why="Each time depends on the initial weights of the winning head and of all before it",
    doubt="At larger scales the error is larger: it falls with a power of α, which the picture shows",
)  # fmt: skip
def _times(run: xr.Dataset) -> Estimate:
    return over_stages(run, time_errors(run))


add_level_claim(claims, "linear attention")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the losses and the errors."""
    caption = "Gradient flow of linear attention heads that learn regression in context, and the prediction from one."
    title = "Principal components are learned in order, one per head"
    return [stage_figure(run, title=title, caption=caption, unit="(1/α)")]


entry = Entry(
    "beyond/linear-attention", "Linear attention learns regression in context: principal components in order",
    citation=CITATION, source="Kunin et al., linear transformers; Zhang et al., heads", params=Params,
    quick=dict(seeds=(0, 1), eigenvalues=(2.0, 1.0), heads=3, log10_scales=(-2.0, -6.0)), run=run, claims=claims,
    figures=figures,
)  # fmt: skip
