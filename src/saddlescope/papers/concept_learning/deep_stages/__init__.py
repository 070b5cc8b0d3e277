"""Future directions: when deeper linear networks learn each concept.

The paper leaves deeper networks to future work. Here their stage times are predicted, by `theory.concepts.deep_stages`
for random starts and by `balanced_times` for balanced diagonal ones, and compared with gradient flow of equation 4.1.

    L        depth; omega the standard deviation of the weights at the start
    T_k      when w_kk = 1/2, in time t of gradient flow
    random   independent normal weights; the data of Figure 8, d = hidden width = 3
    diagonal W_l = diag(r omega, omega) in all layers, the first for the weaker of two concepts, r times ahead
    noisy    the same with noise: the weaker concept is learned first, and then given up for the stronger one
"""

from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.deep_stages import simulations
from saddlescope.papers.concept_learning.deep_stages.claims import claims, metrics
from saddlescope.papers.concept_learning.deep_stages.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Depths two to four, three scales, on the data of Figure 8."""

    mu: tuple[float, ...] = param((1.0, 1.5, 2.2), "distances of the clusters' means")
    sigma: float = param(0.05, "standard deviation along every concept", gt=0)
    depths: tuple[int, ...] = param((2, 3, 4), "numbers of layers L, ascending")
    scales: tuple[float, ...] = param((0.1, 0.03, 0.01), "standard deviations omega of random weights, decreasing")
    starts: int = param(5, "random starts of every depth and scale", ge=1)
    ratios: tuple[float, ...] = param((1.0, 1.25, 1.75, 2.5, 4.0), "r by which the weaker of two concepts is ahead")
    small: float = param(0.03, "omega of the diagonal and noisy starts", gt=0)
    noises: tuple[float, ...] = param((1e-2, 1e-4), "deviation of the noise over omega: two, decreasing")
    noisy_depth: int = param(4, "number of layers with noise", ge=3)
    seed: int = param(0, "of the first random start; the others have the next ones", ge=0)
    tolerance: float = param(1e-6, "of the flow", gt=0)

    def check(self) -> None:
        if (
            not self.depths
            or self.depths[-1] < 3
            or self.depths[0] < 2
            or sorted(set(self.depths)) != list(self.depths)
        ):
            raise InputError(f"depths must be at least 2 and ascending, the last at least 3; got {self.depths!r}.")
        for name in ("scales", "noises"):
            values = getattr(self, name)
            if len(values) < 2 or sorted(set(values), reverse=True) != list(values) or not 0 < values[-1] < 1:
                raise InputError(f"{name} must be two or more, positive, below 1 and decreasing; got {values!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow random, diagonal and noisy starts, depth by depth."""
    parts: list[xr.Dataset] = []
    share = 0.8 / len(params.depths)
    for n, depth in enumerate(params.depths):
        make = partial(simulations.random_starts, params, depth, context.part(n * share, (n + 1) * share))
        parts.append(context.cached(f"random-{depth}", make))
    diagonal = context.cached("diagonal", lambda: simulations.diagonal_starts(params, context.part(0.8, 0.95)))
    noisy = context.cached("noisy", lambda: simulations.noisy_starts(params, context.part(0.95, 1.0)))
    context.report(1.0, "done")
    random = xr.concat(parts, dim="depth")
    return xr.merge([random, diagonal, noisy]).assign_attrs(noisy_depth=params.noisy_depth, tolerance=params.tolerance)


entry = Entry(
    "concept-learning/deep-stages",
    "Future directions: when deeper linear networks learn each concept",
    citation=CITATION,
    source="Appendix E.4",
    params=Params,
    quick=dict(mu=(1.5, 2.2), depths=(4,), scales=(0.1, 0.01), starts=1, ratios=(1.0, 4.0), tolerance=1e-5),
    paper=dict(depths=(2, 3, 4, 5), scales=(0.1, 0.03, 0.01, 0.003), starts=30),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
