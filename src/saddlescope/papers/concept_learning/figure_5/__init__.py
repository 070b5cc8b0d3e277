"""Figure 5: two descents of the loss, and the minor entry behind the rise between them.

The symmetric two-layer model on two concepts, from a start with all entries of W positive. The paper does not state its
data; here mu = (1, 2) and sigma = .05. Time is that of the true gradient flow of equation 4.1, half that of 4.3.

Of a batch of small positive starts the one with the largest rise is shown. Shares of random starts are given for
both laws of the start, at several scales, by the height of the rise in parts of the first loss.
"""

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.figure_5 import simulations
from saddlescope.papers.concept_learning.figure_5.claims import claims, metrics
from saddlescope.papers.concept_learning.figure_5.figures import figures
from saddlescope.papers.concept_learning.figure_5.simulations import LAWS
from saddlescope.papers.concept_learning.shared.two_layer_runs import (
    TwoLayerParams,
    errors_against_dop853,
    follow_start,
    strengths_and_test_point,
)
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(TwoLayerParams):
    """One start of a small batch, and the statistics of large ones."""

    mu: tuple[float, ...] = param((1.0, 2.0), "distance of both clusters from the origin")
    sigma: tuple[float, ...] = param((0.05, 0.05), "standard deviation of the clusters along each concept")
    until: float = param(40.0, "the last time of gradient flow")
    bound: float = param(0.02, "entries of U of the start that is shown are uniform from 0 to this", gt=0)
    batch: int = param(256, "starts of which it is the one with the largest rise", ge=1)
    scales: tuple[float, ...] = param(
        (
            0.1,
            0.01,
            0.001,
        ),
        "of random starts: standard deviation, half the bound of positive ones",
    )
    starts: int = param(16_384, "random starts of each law and scale", ge=1)
    seed: int = param(0, "of all starts", ge=0)

    def check(self) -> None:
        super().check()
        if len(self.mu) != 2:
            raise InputError(f"mu must be two numbers; got {self.mu!r}.")
        if len(self.scales) < 2 or not all(0 < one <= 1 for one in self.scales):
            raise InputError(f"scales must be two or more numbers between 0 and 1; got {self.scales!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the start with the largest rise, and count descents of random starts."""
    a, x = strengths_and_test_point(params.mu, params.sigma)
    context.report(0.0, "small positive starts")
    one = follow_start(a, x, simulations.start_of_largest_rise(params, a, x), params.until)
    errors = errors_against_dop853(one)
    rises = np.empty((len(LAWS), len(params.scales), params.starts))
    positive = np.empty(rises.shape, bool)
    for m, scale in enumerate(params.scales):
        for n, law in enumerate(LAWS):
            part = (m * len(LAWS) + n) / (len(LAWS) * len(params.scales))
            context.report(0.1 + 0.9 * part, f"{params.starts} {law} starts of scale {scale:g}")
            rises[n, m], positive[n, m] = simulations.random_rises(params, a, x, law, scale)
    context.report(1.0, "done")
    statistics = xr.Dataset(
        {
            "rise": (("law", "scale", "sample"), rises, {"long_name": "between two descents; 0 for one descent"}),
            "positive": (("law", "scale", "sample"), positive, {"long_name": "whether w_12 is positive at the start"}),
        },
        coords={"law": list(LAWS), "scale": list(params.scales)},
    )
    return one.assign(W_error=errors.W, turn_error=errors.turns).merge(statistics)


entry = Entry(
    "concept-learning/figure-5",
    "Figure 5: two descents of the loss, and the minor entry behind the rise between them",
    citation=CITATION,
    source="Section 4.2",
    params=Params,
    quick=dict(batch=128, starts=1024),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
