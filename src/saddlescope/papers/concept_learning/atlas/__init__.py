"""Atlas: a million starts over the ratio of mu, sigma, initial scale and width.

The symmetric two-layer network on s = 2 and 3 concepts with mu = 1, r, r^2, one sigma for all, and normal entries of U
of deviation tau in d' = f d columns. Of every start: how many descents the loss out of distribution has, how far it
rises between them, and from when on the network generalizes.

    ratio   r, of the mu of a concept over the next weaker one's
    factor  f, of the width over the dimension
    visible descents after rises of more than 0.1 % of the first loss; others can be as small as rounding lets them
    rise    the largest between two descents, in units of |x|^2 / 2
    time    from when on the loss is below 1 % of the weakest concept's part of it, mu_1^2 / 2, in units of 1 / (4 a_1)
"""

from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.atlas import simulations
from saddlescope.papers.concept_learning.atlas.claims import claims
from saddlescope.papers.concept_learning.atlas.figures import figures
from saddlescope.papers.concept_learning.atlas.simulations import CONCEPTS
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.grid import cached_rows
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """A million starts."""

    ratios: tuple[float, ...] = param((1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0), "r, at least 1")
    sigmas: tuple[float, ...] = param((0.02, 0.05, 0.1, 0.3, 1.0), "a standard deviation")
    scales: tuple[float, ...] = param((0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "tau, ascending")
    factors: tuple[int, ...] = param((1, 2, 4, 8, 32), "f, ascending")
    starts: int = param(420, "in each cell of the grid, for 2 concepts and for 3", ge=16)
    seed: int = param(0, "of the starts", ge=0)

    def check(self) -> None:
        for name, least in (("ratios", 1.0), ("sigmas", 0.0), ("scales", 1e-6), ("factors", 1)):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or not least <= values[0] <= values[-1] <= 100:
                raise InputError(f"{name} must be ascending, between {least:g} and 100; got {values!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run the grid row by row; a killed run resumes after its last complete row."""
    axes = {"concepts": CONCEPTS, "ratio": params.ratios, "sigma": params.sigmas}
    made = cached_rows(axes, partial(simulations.run_row, params), context)
    context.report(1.0, "done")
    return made


entry = Entry(
    "concept-learning/atlas",
    "Atlas: a million starts over the ratio of mu, sigma, initial scale and width",
    citation=CITATION,
    source="Section 4.2, beyond",
    params=Params,
    quick=dict(ratios=(1.0, 2.0), sigmas=(0.05,), scales=(0.01, 0.1), factors=(1, 8), starts=64),
    paper=dict(starts=4200),
    run=run,
    claims=claims,
    figures=figures,
)
