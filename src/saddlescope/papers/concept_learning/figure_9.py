"""Figure 9: the loss out of distribution descends four times.

The symmetric two-layer model on four concepts. Time is that of the true gradient flow of equation 4.1, half the time
of equation 4.3; its axis is logarithmic, as the paper's.
"""

import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.multiple_descents import (
    SearchParams,
    descent_claims,
    descent_figures,
    neighbours,
    search_and_follow,
)
from saddlescope.papers.concept_learning.shared.two_layer_runs import METRICS, entry_index
from saddlescope.plot import Figure
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

_DESCENTS = 4


class Params(SearchParams):
    """The paper's data, and the search for a start."""

    mu: tuple[float, ...] = param((1.0, 1.5, 2.2, 2.7), "distance of each cluster from the origin")
    sigma: tuple[float, ...] = param((0.05, 0.05, 0.05, 0.5), "standard deviation of the clusters along each concept")
    least: float = param(0.003, "every rise and fall of the start is larger than this part of the first loss")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Search a start with four descents, and follow it."""
    return search_and_follow(params, _DESCENTS, context)


claims = Claims()

claims.extend(descent_claims(_DESCENTS, "quadruple", least_rise=0.03))


@claims.add(
    "decay-after-learned",
    "Printed: w_12 starts to decay after w_22 is close to 1",
    quantity="w_22 at the peak of |w_12|",
    kind="printed",
    source="Appendix E.1; .9 for 'close to 1'. Equation 4.3 without noise says 2 (a_1 + a_2) / (3 a_2 + a_1)",
    low=0.9,
)
def _learned_at_the_peak(run: xr.Dataset) -> Estimate:
    """Return w_22 when |w_12| is largest."""
    weak, strong = neighbours(run)[0]
    a = run.strength.values
    law = 2 * (a[weak] + a[strong]) / (3 * a[strong] + a[weak])
    return Estimate(float(run.suppressor_at_top[entry_index(run, weak, strong)]), remark=f"from small starts {law:.3f}")


metrics = METRICS


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the paper's figure, with the drivers of each piece."""
    return descent_figures(run, "quadruple")


entry = Entry(
    "concept-learning/figure-9",
    "Figure 9: the loss out of distribution descends four times",
    citation=CITATION,
    source="Appendix E.1",
    params=Params,
    quick=dict(pool=2048, generations=8),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
