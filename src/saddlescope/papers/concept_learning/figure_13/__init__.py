"""Figures 13 and 14: three-layer linear networks in three dimensions memorize for a while.

d = 3, hidden layers of width 3, two concepts, sigma = (.05, .05), mu = (1, 2) and (2, 4), without a rotation, by SGD in
the conventions of `shared.perceptron_training`, for many seeds, of which the figures show one each. Beside them one
layer in the same three dimensions, and two layers at d = 64, as in Figure 11.

    descents    of the out-of-distribution loss, counted with a hysteresis of 1 % of its start
    transient   network: one with two descents or more, whose loss falls, rises, and falls again
    peak        where its loss is highest above its lowest value before
    learned     the step at which the loss is first below 1 % of its start
"""

from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.figure_13 import simulations
from saddlescope.papers.concept_learning.figure_13.claims import claims, metrics
from saddlescope.papers.concept_learning.figure_13.figures import figures
from saddlescope.papers.concept_learning.figure_13.simulations import DEEP, ONE, WIDE
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """The paper's two tasks, for many seeds."""

    mu: tuple[float, ...] = param(
        (1.0, 2.0), "signals of the first task, increasing; those of the second are twice as large"
    )
    sigma: tuple[float, ...] = param((0.05, 0.05), "as printed, used as variances")
    seeds: int = param(128, "networks of three layers, and of one, for each task", ge=1)
    wide_seeds: int = param(16, "networks of two layers at d = 64; 0: none", ge=0)
    seed: int = param(0, "of the first network's samples, start and SGD; the others have the next ones", ge=0)
    samples: int = param(5000, "of each cluster", ge=1)
    epochs: int = param(40, "of SGD with batch 128 and learning rate 0.1", ge=1)
    per_doubling: int = param(48, "marks for each doubling of the step", ge=1)

    def check(self) -> None:
        for name in ("mu", "sigma"):
            values = getattr(self, name)
            if len(values) != 2 or not all(0 < value < float("inf") for value in values):
                raise InputError(f"{name} must be two positive numbers; got {values!r}.")
        if self.mu[0] >= self.mu[1]:
            raise InputError(f"mu must be increasing; got {self.mu!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train the networks of three layers, then those beside them."""
    edges = (0.0, 0.4, 0.6, 1.0)
    kinds = [(DEEP, 3, 3, params.seeds), (ONE, 1, 3, params.seeds), (WIDE, 2, 64, params.wide_seeds)]
    parts = [
        context.cached(
            f"kind-{n}",
            partial(simulations.train_kind, params, kind, depth, dim, seeds, context.part(edges[n], edges[n + 1])),
        )
        for n, (kind, depth, dim, seeds) in enumerate(kinds)
        if seeds
    ]
    context.report(1.0, "done")
    shown = parts[0][["output", "train_loss", "test_loss", "mu"]].drop_vars("kind")
    return xr.merge(
        [
            xr.concat([part[["descents", "rise", "peak_output", "learned"]] for part in parts], "kind", join="outer"),
            shown,
        ]
    )


entry = Entry(
    "concept-learning/figure-13",
    "Figures 13 and 14: three-layer linear networks in three dimensions memorize for a while",
    citation=CITATION,
    source="Figures 13, 14, F.2",
    params=Params,
    quick=dict(seeds=48, wide_seeds=0, samples=1000, epochs=30, per_doubling=16),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
