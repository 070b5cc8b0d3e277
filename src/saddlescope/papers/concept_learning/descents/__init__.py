"""Descents: how often the loss out of distribution falls, over hundreds of thousands of starts.

The symmetric two-layer network with d' = d on the data of Figures 5, 8 and 9. Appendix E.1 shows one start with three
descents and one with four, and says that their seeds were tuned. Here descents are counted on many starts, between
exact extrema; the conjecture that there are at most s, the number of concepts, is put to the test; and a search finds
starts whose loss rises farthest before the last descent.

A count above s, found at a tolerance of 1e-7, is accepted only if it is the same at 1e-12.
"""

import itertools
from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.descents.claims import claims
from saddlescope.papers.concept_learning.descents.figures import figures
from saddlescope.papers.concept_learning.descents.simulations import (
    CONJECTURE,
    sample_law,
    search_starts,
    test_conjecture,
)
from saddlescope.papers.concept_learning.shared.random_starts import LAWS
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_DATA = ("Figure 5", "Figure 8", "Figure 9")


class Params(EntryParams):
    """Samples at the scale of the paper's figures, others at many scales and of random data, and searches."""

    starts: int = param(50_000, "of each law on each figure's data, at `scale`", ge=16)
    scale: float = param(0.1, "of U's entries in them: standard deviation, or the end of the uniform law", gt=0)
    scales: tuple[float, ...] = param((0.001, 0.01, 0.3, 1.0, 4.0), "at which the conjecture is looked at, too")
    more: int = param(1024, "starts of each law on each figure's data at each of these scales", ge=16)
    tasks: int = param(48, "random data of 2 or 3 concepts, for the conjecture", ge=1)
    of_task: int = param(512, "starts on each", ge=16)
    pool: int = param(8192, "random starts of a search", ge=16)
    generations: int = param(20, "of a search", ge=0)
    seed: int = param(0, "of everything", ge=0)

    def check(self) -> None:
        if not self.scales or not all(0 < scale <= 100 for scale in self.scales):
            raise InputError(f"scales must be one or more positive numbers up to 100; got {self.scales!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Sample starts of every figure's data and law, test the conjecture elsewhere, and search."""
    samples: list[xr.Dataset] = []
    seen: list[xr.Dataset] = []
    shares = (0.0, 0.06, 0.12, 0.22, 0.32, 0.5, 0.7)  # of the time, about
    for k, (name, law) in enumerate(itertools.product(_DATA, LAWS)):
        make = partial(sample_law, name, law, params, (params.seed, k), context.part(*shares[k : k + 2]))
        sample = context.cached(f"sample-{k}", make)
        seen.append(sample[list(CONJECTURE)])
        samples.append(sample.drop_vars(CONJECTURE))
    seen.append(context.cached("elsewhere", partial(test_conjecture, _DATA, params, context.part(0.7, 0.85))))
    found = context.cached("search", partial(search_starts, params, context.part(0.85, 1.0)))
    context.report(1.0, "done")
    laws = [xr.concat(samples[k : k + len(LAWS)], "law") for k in range(0, len(samples), len(LAWS))]
    together = xr.concat(laws, "data").assign_coords(data=list(_DATA), law=list(LAWS))
    return xr.merge([together, xr.concat(seen, "sample"), found], join="exact")


entry = Entry(
    "concept-learning/descents",
    "Descents: how often the loss out of distribution falls, over hundreds of thousands of starts",
    citation=CITATION,
    source="Section 4.2.2, E.1",
    params=Params,
    quick=dict(starts=256, scales=(4.0,), more=16, tasks=2, of_task=32, pool=512, generations=0),
    paper=dict(starts=150_000, more=8192, tasks=256, pool=32_768, generations=60),
    run=run,
    claims=claims,
    figures=figures,
)
