"""Figures 2 (c) and 3: deep networks memorize for a while before they generalise.

Four-layer linear networks at d = 64 and d = 2, mu = (1, 2), sigma = (.05, .05), trained by SGD in the conventions of
`shared.perceptron_training`, for many seeds; then depths 1 to 5, and at d = 2 descent without minibatches, the same
with wide hidden layers, and one layer from a small start. One layer at d = 64 is in `figure_2`.

    descents    of the out-of-distribution loss, counted with a hysteresis of 1 % of its start
    transient   network: one with two descents or more, whose loss falls, rises, and falls again
    peak        where its loss is highest above its lowest value before
    memorizing  the output is nearer to the strongest training cluster than to the test point

At d = 2 the noise of SGD makes ripples of several per cent: runs without minibatches and rises above 5 % show what is
no ripple. The paper credits the low dimension of the data. Section 4.1 has it that one layer learns monotonically,
which equation 4.2 gives for a small start; PyTorch's start is not small at d = 2.
"""

from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.figure_3 import simulations
from saddlescope.papers.concept_learning.figure_3.claims import claims, metrics
from saddlescope.papers.concept_learning.figure_3.figures import figures
from saddlescope.papers.concept_learning.figure_3.simulations import HIGH, LOW
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """The paper's training, for many seeds, and depths beside the paper's."""

    mu: tuple[float, ...] = param((1.0, 2.0), "signals")
    sigma: tuple[float, ...] = param((0.05, 0.05), "as printed, used as variances")
    low: int = param(2, "the low dimension d, also the width of the hidden layers", ge=1)
    high: int = param(64, "the high one")
    depth: int = param(4, "L of the paper's networks")
    depths: tuple[int, ...] = param((1, 2, 3, 4, 5), "of the study of depth; 1 and the paper's are among them")
    seeds: int = param(64, "networks of every kind", ge=1)
    seed: int = param(
        0, "of samples, rotation, start and SGD of the first network; the others have the next ones", ge=0
    )
    samples: int = param(5000, "of each cluster", ge=1)
    epochs: int = param(40, "of SGD with batch 128 and learning rate 0.1", ge=1)
    per_doubling: int = param(64, "marks for each doubling of the step", ge=1)

    def check(self) -> None:
        parameter_checks.require_at_least(self.low + 1, self, "high")
        if list(self.depths) != sorted({1, self.depth, *self.depths}) or self.depths[0] < 1 or self.depth < 2:
            raise InputError(
                f"depths must be increasing, from 1 on, with depth = {self.depth!r} of at least 2 among them; got "
                f"{self.depths!r}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one kind of network after the other, all seeds at once."""
    kinds = simulations.network_kinds(params)
    parts = []
    for n, (kind, training) in enumerate(kinds):
        report = context.part(n / len(kinds), (n + 1) / len(kinds))
        make = partial(simulations.train_kind, params, kind, training, report)
        parts.append(context.cached(f"kind-{n}", make))
    context.report(1.0, "done")
    paper = [part for part in parts if int(part.depth) == params.depth and part.kind.item() in (LOW, HIGH)]
    shown = xr.concat([part[["output", "train_loss"]] for part in paper], "dimension")
    shown = shown.rename({"kind": "shown"}).drop_vars(["depth"])
    networks = xr.concat([part.drop_vars(["output", "train_loss"]) for part in parts], "network")
    return xr.merge([networks, shown], combine_attrs="drop").assign_attrs(
        paper_depth=params.depth, mu=params.mu, low=params.low, high=params.high
    )


entry = Entry(
    "concept-learning/figure-3",
    "Figures 2 (c) and 3: deep networks memorize for a while before they generalise",
    citation=CITATION,
    source="Figures 2 (c) and 3, section 3.3",
    params=Params,
    quick=dict(high=24, depths=(1, 4), seeds=8, samples=1000, epochs=50, per_doubling=16),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
