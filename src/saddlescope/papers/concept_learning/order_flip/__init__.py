"""Which of two concepts is learned first, and the diversity at which the order flips.

The theory's order is that of a_p = sigma_p^2 + mu_p^2 / c, with c clusters: a weak signal mu_1 < mu_2 comes first from

    sigma_1*^2 = sigma_2^2 + (mu_2^2 - mu_1^2) / c

on. Here sigma_1 is swept across it, in terms of the ratio a_1 / a_2, and the flip of the order is measured.

    T_k        when concept k is half learned: w_kk = 1/2, or output k at the test point is mu_k / 2
    two-layer  symmetric, gradient flow from random U. Flip at log(1/w_11 - 1) / a_1 = log(1/w_22 - 1) / a_2, w at time
               0: at a_1 / a_2 = 1 in the limit of small starts, with a spread between starts as 1 / log(1/scale)
    one-layer  SGD at d = 64 in the authors' conventions from PyTorch's default start, with the cluster at the origin
               (c = 3) and without; flip predicted by Theorem 4.1 from the actual start and the samples' A
"""

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.order_flip import simulations
from saddlescope.papers.concept_learning.order_flip.claims import claims
from saddlescope.papers.concept_learning.order_flip.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Figure 2's signals, and a sweep of the weaker one's diversity."""

    mu: tuple[float, ...] = param((1.0, 2.0), "distances of the two means, the weaker signal first")
    sigma: float = param(0.05, "standard deviation along the second concept", gt=0)
    ratios: int = param(25, "values of a_1 / a_2 in the sweep of flows, evenly from .35 to 2.2", ge=5)
    scales: tuple[float, ...] = param((0.1, 0.01, 1e-4), "standard deviations of U, decreasing")
    starts: int = param(60, "starts U of each scale", ge=2)
    clusters: tuple[int, ...] = param((2, 3), "numbers of clusters of SGD's data: 2, and 3 with that at the origin")
    runs: int = param(64, "SGD runs at each of 9 values of the sweep", ge=2)
    samples: int = param(5000, "of each cluster, of SGD", ge=64)
    seed: int = param(0, "of the starts, and of the first SGD run", ge=0)

    def check(self) -> None:
        if not self.clusters or not set(self.clusters) <= {2, 3} or len(set(self.clusters)) < len(self.clusters):
            raise InputError(f"clusters must be 2, 3 or both; got {self.clusters!r}.")
        if len(self.mu) != 2 or not 0 < self.mu[0] < self.mu[1] or 0.35 * self._strongest <= self.mu[0] ** 2 / 2:
            raise InputError(
                f"mu must be two positive numbers, the first below .8 of the second, to be ahead at no sigma_1 of the "
                f"sweep already; got {self.mu!r}."
            )
        if len(self.scales) < 2 or sorted(set(self.scales), reverse=True) != list(self.scales) or self.scales[-1] <= 0:
            raise InputError(f"scales must be two or more, positive and decreasing; got {self.scales!r}.")

    @property
    def _strongest(self) -> float:
        return self.sigma**2 + self.mu[1] ** 2 / 2


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow flows of the symmetric network, then train one layer by SGD."""
    flows = context.cached("flows", lambda: simulations.symmetric_half_times(params, context.part(0.0, 0.5)))
    sgd = [
        context.cached(
            f"sgd-{clusters}",
            lambda clusters=clusters: simulations.sgd_half_times(
                params, clusters, context.part(clusters / 4, clusters / 4 + 0.25)
            ),
        )
        for clusters in params.clusters
    ]
    context.report(1.0, "done")
    together = xr.concat(sgd, dim="clusters")
    return xr.merge([flows, together]).assign_attrs(mu=list(params.mu), sigma=params.sigma)


entry = Entry(
    "concept-learning/order-flip",
    "Which of two concepts is learned first, and the diversity at which the order flips",
    citation=CITATION,
    source="Sections 3.1 and 4",
    params=Params,
    quick=dict(ratios=7, scales=(0.1, 1e-3), starts=20, clusters=(2,), runs=2, samples=1000),
    paper=dict(starts=500, runs=64),
    run=run,
    claims=claims,
    figures=figures,
)
