"""Figure 8: the loss out of distribution descends three times   (Appendix E.1)

The symmetric two-layer model on three concepts. Time is that of the true gradient flow of equation 4.1, half the time
of equation 4.3; its axis is logarithmic, as the paper's.
"""

from dataclasses import dataclass

import xarray as xr

from saddlescope.papers.concept_learning.shared.multiple_descents import claims_of, descent_figures, searched
from saddlescope.papers.concept_learning.shared.two_layer_runs import QUANTITIES, check_data
from saddlescope.plot import Figure
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.context import RunContext

_DESCENTS = 3


@dataclass(frozen=True, kw_only=True)
class Params:
    """The paper's data, and the search for a start."""

    mu: tuple[float, ...] = (1.0, 1.5, 2.2)  # distance of each cluster from the origin
    sigma: tuple[float, ...] = (0.05, 0.05, 0.05)  # standard deviation of the clusters along each concept
    until: float = 40.0  # the last time of gradient flow
    least: float = 0.01  # every rise and fall of the start is larger than this part of the first loss
    bound: float = 0.3  # on the absolute value of the start's weights
    pool: int = 16_384  # random starts of the search
    generations: int = 40  # in which the best are bred
    seed: int = 0  # of the search

    def __post_init__(self) -> None:
        check_data(self)
        parameter_checks.at_least(1, self, "pool")
        parameter_checks.at_least(0, self, "generations", "seed")
        parameter_checks.between(0.0, 0.5, self, "least")
        parameter_checks.positive(self, "bound")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a smaller search."""
        return cls(pool=1024, generations=6, least=0.003)

    @classmethod
    def paper(cls) -> "Params":
        """The default is the paper's figure."""
        return cls()


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Finds a start with three descents, and follows it."""
    return searched(params, _DESCENTS, context)


claims = claims_of(_DESCENTS, "triple", least_rise=0.08)

metrics = QUANTITIES


def figures(run: xr.Dataset) -> list[Figure]:
    """The paper's figure, with what drives each piece."""
    return descent_figures(run, "triple")
