"""Figure 8: the loss out of distribution descends three times.

The symmetric two-layer model on three concepts. Time is that of the true gradient flow of equation 4.1, half the time
of equation 4.3; its axis is logarithmic, as the paper's.
"""

import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.multiple_descents import (
    SearchParams,
    descent_claims,
    descent_figures,
    search_and_follow,
)
from saddlescope.papers.concept_learning.shared.two_layer_runs import METRICS
from saddlescope.plot import Figure
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry

_DESCENTS = 3


class Params(SearchParams):
    """The paper's data, and the search for a start."""


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Search a start with three descents, and follow it."""
    return search_and_follow(params, _DESCENTS, context)


claims = descent_claims(_DESCENTS, "triple", least_rise=0.08)

metrics = METRICS


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the paper's figure, with the drivers of each piece."""
    return descent_figures(run, "triple")


entry = Entry(
    "concept-learning/figure-8",
    "Figure 8: the loss out of distribution descends three times",
    citation=CITATION,
    source="Appendix E.1",
    params=Params,
    quick=dict(pool=1024, generations=6, least=0.003),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
