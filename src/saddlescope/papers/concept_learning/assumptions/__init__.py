"""Assumptions D.1 to D.5: at which starts they hold, and what is left of the story without them.

The lemmas of appendix D assume that W(0) is small and that the strengths differ enough. "All commonly hold in
practice", the paper says. Here is the largest omega, the smallest entry of W(0), at which they do; the data of the
figures are compared with them; and on these data starts far outside are followed. Logarithms are used throughout: P is
as large as omega is small.

    margin  of the data: the least a_i - 3 a_j over two concepts of which i is the stronger, over the least strength;
            D.5 needs it to be positive
    ordered a run in which the major entries w_kk pass 1/2 in the order of the strengths
    minor   the largest |w_ij| of a run, i other than j; Assertion D.1 with D.3 has it at most 0.4
"""

from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.assumptions import simulations
from saddlescope.papers.concept_learning.assumptions.claims import claims
from saddlescope.papers.concept_learning.assumptions.figures import figures
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.grid import cached_rows
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Two concepts in theory; the figures' data in runs."""

    ratios: int = param(200, "of the two strengths, from 3.05 to 1e5", ge=10)
    betas: tuple[float, ...] = param((1.0, 2.0, 10.0), "of D.1: the largest |w_ij(0)| over the smallest")
    settings: int = param(
        4000, "random settings of all constants, at which printed and corrected assumptions are checked", ge=10
    )
    scales: tuple[float, ...] = param((0.1, 0.01, 0.001, 0.0001, 0.00001), "deviations of U's entries, descending")
    starts: int = param(1024, "at each scale, on each figure's data", ge=10)
    marks: int = param(401, "times at which W is recorded", ge=10)
    seed: int = param(0, "of everything", ge=0)

    def check(self) -> None:
        if not self.betas or not all(1 <= beta <= 1e6 for beta in self.betas):
            raise InputError(f"betas must be one or more numbers from 1 to 1e6; got {self.betas!r}.")
        if not self.scales or list(self.scales) != sorted(set(self.scales), reverse=True) or not self.scales[-1] > 0:
            raise InputError(f"scales must be positive and descending; got {self.scales!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Compute the largest omega, count random settings, and follow starts on the figures' data."""
    context.report(0.0, "the largest omega")
    theory = context.cached("theory", partial(simulations.largest_omegas, params))
    axes = {"data": tuple(FIGURES), "scale": params.scales}
    figures = cached_rows(axes, partial(simulations.follow_starts, params), context.subtask(0.2, 1.0), name="runs")
    context.report(1.0, "done")
    return xr.merge([theory, figures], join="exact")


entry = Entry(
    "concept-learning/assumptions",
    "Assumptions D.1 to D.5: at which starts they hold, and what is left of the story without them",
    citation=CITATION,
    source="Appendix D.1",
    params=Params,
    quick=dict(ratios=10, settings=60, scales=(0.1, 0.001), starts=64, marks=101),
    paper=dict(ratios=2000, settings=100_000, starts=16_384),
    run=run,
    claims=claims,
    figures=figures,
)
