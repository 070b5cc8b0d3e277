"""The authors' scripts: the data matrix squared, Euler's steps, and what of the figures hangs on it.

Not in the text of Figures 5, 8, 9 and 10: the programs behind them, as reported, have A^2 where the paper has A, which
sets the concepts' strengths farther apart; they take Euler's steps of .01 in U, 2000 or 10000 of them, where appendix
D has the map D.2 in W; and U starts with uniform entries between 0 and 1/5 or 1/10, so that all of W is positive.

    A       E[x x^T], strengths a_p = sigma_p^2 + mu_p^2 / s
    A^2     strengths a_p^2
    var     A^2 with the numbers of the figures' captions as variances, sigma_p for sigma_p^2, as in their data code

Here all of it is compared from the same starts, on the data of Figures 8 and 9.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.authors_scripts.claims import claims
from saddlescope.papers.concept_learning.authors_scripts.figures import figures
from saddlescope.papers.concept_learning.authors_scripts.simulations import (
    CONVENTIONS,
    DATA,
    compare_maps,
    example_losses,
    flows_by_law,
    padded_strengths,
)
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """The authors' numbers, from many starts."""

    divisors: tuple[float, ...] = param((5.0, 10.0), "entries of U are uniform from 0 to 1 over this")
    starts: int = param(4096, "of each law", ge=1)
    step: float = param(0.01, "of Euler's method and of the map D.2", ge=1e-4, le=0.05)
    steps: tuple[int, ...] = param((2000, 10_000), "after which their runs end")
    map_starts: int = param(1024, "of the first ones, from which Euler's method and D.2 are iterated", ge=1)
    seed: int = param(0, "of all starts", ge=0)

    def check(self) -> None:
        if not self.divisors or not all(1 <= one < float("inf") for one in self.divisors):
            raise InputError(f"divisors must be one or more numbers of at least 1; got {self.divisors!r}.")
        if len(self.steps) != 2 or not 1 <= self.steps[0] < self.steps[1]:
            raise InputError(f"steps must be two, increasing, at least 1; got {self.steps!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow flows with every convention, then iterate both discrete maps."""
    cases = [(name, convention) for name in DATA for convention in CONVENTIONS]
    flows = []
    for n, (name, convention) in enumerate(cases):
        report = context.part(0.7 * n / len(cases), 0.7 * (n + 1) / len(cases))
        report(0.0, f"{name}, {convention}")
        flows.append(context.cached(f"flows-{n}", partial(flows_by_law, params, name, convention)))
    maps = []
    for n, convention in enumerate(CONVENTIONS[:2]):
        context.report(0.7 + 0.15 * n, f"Euler's steps and D.2, {convention}")
        maps.append(context.cached(f"maps-{n}", partial(compare_maps, params, convention)))
    context.report(1.0, "done")
    per_data = [
        xr.concat(flows[n : n + len(CONVENTIONS)], dim="convention") for n in range(0, len(cases), len(CONVENTIONS))
    ]
    both = xr.concat(per_data, dim="data").assign_coords(data=list(DATA), convention=list(CONVENTIONS))
    both = both.assign(
        concepts=("data", [len(mu) for mu, _ in DATA.values()]),
        end=("steps", [params.step * n for n in params.steps], {"long_name": "time of the last step"}),
        strength=(
            ("data", "convention", "concept"),
            np.array([padded_strengths(*case) for case in cases]).reshape(2, 3, -1),
        ),
    )
    maps_too = xr.concat(maps, dim="map_convention").assign_coords(map_convention=list(CONVENTIONS[:2]))
    return xr.merge([both, maps_too, example_losses(params)]).assign_attrs(
        starts=params.starts, map_starts=min(params.map_starts, params.starts)
    )


entry = Entry(
    "concept-learning/authors-scripts",
    "The authors' scripts: the data matrix squared, Euler's steps, and what of the figures hangs on it",
    citation=CITATION,
    source="Appendix E",
    params=Params,
    quick=dict(divisors=(5.0,), starts=160, map_starts=48, steps=(2000, 4000)),
    run=run,
    claims=claims,
    figures=figures,
)
