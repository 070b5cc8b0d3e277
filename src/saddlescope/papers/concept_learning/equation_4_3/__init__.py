"""Equation 4.3: growth, suppression and noise make up the gradient flow, but for a factor 2.

    G, S, N   growth, suppression and noise of every entry of W = U U^T; `theory.concepts.update_terms`
    dW/dt     under gradient flow of equation 4.1 in U: -(g U^T + U g^T) with g the loss's gradient in U

Automatic differentiation of the loss decides if dW/dt is G - S - N, as printed, or twice that: the appendix has the
gradient of the same loss in D.1, and half of it in D.2. Then the text's statement on the noise is tested:
section 4.2 leaves N out as "never too large". Without it the diagonal is logistic, w_kk' = 4 a_k w_kk (1 - w_kk).
"""

from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.equation_4_3 import simulations
from saddlescope.papers.concept_learning.equation_4_3.claims import claims
from saddlescope.papers.concept_learning.equation_4_3.figures import figures
from saddlescope.papers.concept_learning.shared.two_layer_runs import TwoLayerParams, strengths_and_test_point
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(TwoLayerParams):
    """Random weights of several shapes, and small starts on the data of Figure 8."""

    until: float = param(60.0, "the last time of gradient flow")
    weights: int = param(100, "random U of each shape, at which equation 4.3 is compared with autodiff", ge=1)
    scales: tuple[float, ...] = param((1e-1, 1e-3, 1e-5), "standard deviations of small starts")
    starts: int = param(100, "small starts, the same at each scale but for the factor", ge=1)
    seed: int = param(0, "of everything random", ge=0)

    def check(self) -> None:
        super().check()
        if len(self.scales) < 2 or not all(1e-7 <= b < a <= 0.1 for a, b in pairwise(self.scales)):
            raise InputError(f"scales must be two or more, decreasing, between 0.1 and 1e-7; got {self.scales!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Compare with autodiff and closed forms, then follow small starts and predict them with and without noise."""
    a, x = strengths_and_test_point(params.mu, params.sigma)
    rng = np.random.default_rng(params.seed)
    context.report(0.0, "autodiff")
    identity, printed = simulations.autodiff_errors(params.weights, rng)
    context.report(0.4, "closed forms")
    closed = simulations.closed_form_errors(a, x, rng)
    units = rng.standard_normal((params.starts, len(a), len(a)))
    stages = []
    for n, scale in enumerate(params.scales):
        context.report(0.5 + 0.5 * n / len(params.scales), f"starts of scale {scale:g}")
        stages.append(simulations.stage_times(a, x, scale * units, params.until))
    largest = int(np.argmax(np.median(stages[-1].noise_share, axis=1)))
    terms = simulations.term_curves(a, params.scales[-1] * units[largest], params.until)
    context.report(1.0, "done")
    return xr.concat(stages, dim="scale").assign_coords(scale=list(params.scales)).merge(terms).assign(
        identity_error=("weight", identity), printed_error=("weight", printed), strength=("concept", a), **closed
    )  # fmt: skip


entry = Entry(
    "concept-learning/equation-4-3",
    "Equation 4.3: growth, suppression and noise make up the gradient flow, but for a factor 2",
    citation=CITATION,
    source="Section 4.2",
    params=Params,
    quick=dict(weights=10, starts=10),
    run=run,
    claims=claims,
    figures=figures,
)
