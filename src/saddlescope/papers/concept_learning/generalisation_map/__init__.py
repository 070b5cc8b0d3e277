"""Generalisation map: where two concepts are not both learned when training stops.

Two-layer linear networks on two concepts with mu = (1, r), symmetric and not, from normal weights of deviation tau.
They generalize when both outputs at the test point are at least one half of the targets. All do in the end. But
training is stopped: when the training loss has fallen to a small part of its start, or after a budget of steps. Where
in (r, sigma, tau) is that too early? The answer follows from the strengths a_p = sigma_p^2 + mu_p^2 / 2 and the start.

    share   a_2 / (a_1 + a_2), the part of the training loss that is the weaker concept's; a_1 >= a_2
    stop    when the training loss is `done` of its start: the weaker concept's output is then 1 - (done / share)^(1/2),
            or 0, so that networks have failed to generalize where the share is below 4 done, whatever tau
    budget  a time s in units of 1 / a_1, steps times learning rate: networks fail whose predicted last stage is later
    diverse which concepts have the deviation sigma: both, the one of the stronger signal, or the other alone
"""

from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.generalisation_map import simulations
from saddlescope.papers.concept_learning.generalisation_map.claims import claims, metrics
from saddlescope.papers.concept_learning.generalisation_map.figures import figures
from saddlescope.papers.concept_learning.generalisation_map.simulations import DIVERSE
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.grid import cached_rows
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Seven ratios, six diversities in three ways, four scales."""

    ratios: tuple[float, ...] = param((1.25, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0), "r, above 1, ascending")
    sigmas: tuple[float, ...] = param((0.05, 0.5, 1.0, 2.0, 4.0, 8.0), "deviation of the diverse concepts, ascending")
    calm: float = param(0.05, "deviation of the others", gt=0)
    scales: tuple[float, ...] = param((1e-4, 1e-3, 1e-2, 1e-1), "tau, ascending")
    width: int = param(4, "d', of U (2, d') and V (d', 2)", ge=2)
    starts: int = param(16, "in each cell, of each model", ge=1)
    done: float = param(0.01, "part of the training loss at which training stops", ge=1e-6, le=0.2)
    budget: float = param(50.0, "s at which it stops otherwise", gt=0)
    horizon: float = param(1000.0, "the last s")
    seed: int = param(0, "of the starts", ge=0)

    def check(self) -> None:
        parameter_checks.require_between(self.budget, 1e4, self, "horizon")
        for name, least, most in (("ratios", 1.01, 100.0), ("sigmas", 0.001, 100.0), ("scales", 1e-7, 0.2)):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or not least <= values[0] <= values[-1] <= most:
                raise InputError(f"{name} must be ascending, between {least:g} and {most:g}; got {values!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run the grid row by row; a killed run resumes after its last complete row."""
    axes = {"diverse": DIVERSE, "ratio": params.ratios}
    made = cached_rows(axes, partial(simulations.run_row, params), context)
    context.report(1.0, "done")
    return made.assign_attrs(done=params.done, budget=params.budget, horizon=params.horizon)


entry = Entry(
    "concept-learning/generalisation-map",
    "Generalisation map: where two concepts are not both learned when training stops",
    citation=CITATION,
    source="Section 4.2, beyond",
    params=Params,
    quick=dict(ratios=(2.0, 6.0), sigmas=(0.05, 4.0), scales=(1e-3, 1e-1), starts=3, budget=30.0, horizon=150.0),
    paper=dict(starts=200),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
