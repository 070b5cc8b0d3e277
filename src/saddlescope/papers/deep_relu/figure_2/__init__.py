"""Figures 2 and 6: wide networks find faster escape directions than any of rank one.

Networks of depth 3 descend the localised loss on the sphere |theta|^2 = 3 from random starts, on the circle of
Example 1 (N = 8) and on one with twice the points. The end of a descent is polished to machine precision. Success is
measured in two ways:

    faster     the speed exceeds tan(pi/N), the best of rank-one networks: sqrt 2 - 1 for N = 8, the paper's measure
    optimal    the speed is the largest possible, to 1e-6, by a certificate: conjecture 1 states it of wide networks

Besides descent, convex steps, which insert neurons where they help most, start from the same points on the larger
circle.
"""

from functools import partial
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.figure_2.claims import claims
from saddlescope.papers.deep_relu.figure_2.figures import figures
from saddlescope.papers.deep_relu.figure_2.metrics import metrics
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle, rank_one_optimum
from saddlescope.papers.deep_relu.shared.sequence_checks import require_increasing
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Enough starts for error bars of two or three per cent."""

    widths: tuple[int, ...] = param((1, 2, 4, 8, 16, 32, 64), "of both hidden layers, increasing")
    starts: int = param(400, "random starts of each width, on each circle", ge=1)
    circles: tuple[int, ...] = param((8, 16), "N, multiples of 4, increasing; convex steps are tried on the last one")
    steps: int = param(4000, "of each descent", ge=100)
    drawn: int = param(24, "runs of each width whose curves are stored", ge=1)
    improved_width: int = param(16, "of the networks that convex steps improve, on the larger circle", ge=1)
    improved_starts: int = param(300, "how many of these", ge=1)
    seed: int = param(0, "of the starts", ge=0)

    def check(self) -> None:
        if (
            not self.circles
            or any(n < 4 or n % 4 for n in self.circles)
            or any(a >= b for a, b in pairwise(self.circles))
        ):
            raise InputError(f"circles must be multiples of 4, increasing, such as 8,16; got {self.circles!r}.")
        require_increasing(1, self, "widths", example="4,8,16")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Search circle by circle and width by width; then apply the convex steps."""
    circles = []
    for place, samples in enumerate(params.circles):
        widths = []
        for n, width in enumerate(params.widths):
            fraction = 0.8 * (place + n / len(params.widths)) / len(params.circles)
            context.report(fraction, f"N = {samples}, width {width}")
            search = partial(_search_directions, samples, width, params)
            widths.append(context.cached(f"circle-{samples}-{width}", search))
        optimum = context.cached(f"optimum-{samples}", partial(_optimum, samples))
        circles.append(xr.concat(widths, dim="width").merge(optimum))
    context.report(0.8, "convex steps")
    improved = context.cached("improved", partial(_improve_directions, params))
    context.report(1.0, "done")
    X, G = alternating_circle(params.circles[0])
    together = xr.concat(circles, dim="circle").merge(improved)
    together.attrs["improved_width"] = params.improved_width
    return together.assign(inputs=(("axis", "sample"), X.T), gradient=("sample", G[:, 0])).assign_coords(
        circle=list(params.circles), width=list(params.widths)
    )


def _search_directions(samples: int, width: int, params: Params) -> xr.Dataset:
    from saddlescope.theory.escape.directions import escape_directions

    found = escape_directions(
        *alternating_circle(samples),
        depth=3,
        widths=width,
        num_starts=params.starts,
        steps=params.steps,
        record=np.arange(1, 51) * params.steps // 50,
        seed=params.seed + 1000 * samples + width,
    )
    return xr.Dataset(
        {
            "speed": ("start", found.speeds),
            "residual": ("start", found.residuals),
            "converged": ("start", found.converged),
            "descended": ("start", found.curves[:, -1]),
            "rank": (("start", "layer"), found.ranks),
            "curve": (("run", "step"), found.curves[: params.drawn]),
        },
        coords={"step": found.steps, "layer": [1, 2, 3]},
    )


def _optimum(samples: int) -> xr.Dataset:
    from saddlescope.theory.escape.certificate import certified_escape_speed

    best = certified_escape_speed(*alternating_circle(samples))
    return xr.Dataset({"optimum": best.lower, "optimum_upper": best.upper, "rank_one": rank_one_optimum(samples)})


def _improve_directions(params: Params) -> xr.Dataset:
    from saddlescope.theory.escape.column_generation import column_generation
    from saddlescope.theory.escape.directions import escape_directions

    X, G = alternating_circle(params.circles[-1])
    found = escape_directions(
        X, G, depth=3, widths=params.improved_width, num_starts=params.improved_starts, steps=params.steps,
        record=np.arange(1, 51) * params.steps // 50, seed=params.seed + 1,
    )  # fmt: skip
    better = column_generation(found, X, G)
    return xr.Dataset(
        {
            "plain_speed": ("trial", found.speeds),
            "improved_speed": ("trial", better.speeds),
            "improved_residual": ("trial", better.residuals),
        }
    )


entry = Entry(
    "deep-relu/figure-2",
    "Figures 2 and 6: wide networks find faster escape directions than any of rank one",
    citation=CITATION,
    source="Section 4.1, conjecture 1",
    params=Params,
    quick=dict(widths=(1, 8), circles=(8,), starts=6, steps=1000, drawn=4, improved_width=8, improved_starts=6),
    paper=dict(widths=(1, 2, 4, 8, 16, 32, 64, 128), starts=1000),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
