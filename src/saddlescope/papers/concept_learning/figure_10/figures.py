"""Figures of the entry `figure_10`: a plateau and a start of lower rank, the output, and learning times."""

import xarray as xr

from saddlescope.papers.concept_learning.figure_10.simulations import CASES
from saddlescope.papers.concept_learning.shared.two_layer_figures import entries_panel, loss_panel, output_panels
from saddlescope.plot import Axis, Figure, Line, Mark, Panel


def _one(run: xr.Dataset, case: str) -> xr.Dataset:
    """Return one of the two runs, without the padding of its turns."""
    return run.sel(case=case).dropna("turn", subset=["turning_time"])


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the plateau and the deficient start, the output, learning times of random starts, and the printed map."""
    horizon = Mark(at=float(run.horizon), label="horizon")
    panels = []
    for case, title in zip(CASES, ("full rank: a plateau", "rank 2: for ever"), strict=True):
        one = _one(run, case)
        for panel in (loss_panel(one, title, top=4 * float(run.lost_loss)), entries_panel(one, title)):
            turns = [mark for mark in panel.marks if not isinstance(mark, Mark)]
            panels.append(Panel(title=panel.title, x=panel.x, y=panel.y, marks=(*turns, horizon)))
    output = [
        output_panels(_one(run, case).sel(time=slice(None, until)))[0]
        for case, until in (("plateau", float(run.horizon)), ("plateau", float("inf")), ("deficient", float("inf")))
    ]
    titles = ("plateau, to the horizon", "plateau, to the end", "rank 2, to the end")
    shares = tuple(
        Line(x=run.batch_time.values, y=run.learned_share.sel(moment=moment).values, group=f"with {moment}", color=n)
        for n, moment in enumerate(run.moment.values.tolist())
    )
    return [
        Figure(
            name="failure",
            title="Figure 10's failure is a plateau cut short, or a start of lower rank",
            caption="Loss out of distribution and entries of W. From full rank the plateau ends when it is said to; "
            "from rank 2 it does not. At the vertical line, the time of 2000 steps of .01 by default, the two cannot "
            "be told apart by their losses.",
            panels=(panels[0], panels[2], panels[1], panels[3]),
            columns=2,
        ),
        Figure(
            name="output",
            title="The output stops at a combination of two concepts, and goes on",
            caption="The output at the test point in the two weaker concepts.",
            panels=tuple(
                Panel(title=title, x=panel.x, y=panel.y, marks=panel.marks)
                for title, panel in zip(titles, output, strict=True)
            ),
            columns=3,
        ),
        Figure(
            name="how-long",
            title="How long random starts take, and what the printed map does",
            caption="Left: share of random starts of full rank whose weakest concept is learned, with A and with A^2. "
            "Right: the printed map D.2 from a start from which it loses positive semidefiniteness: w_11 crosses 0, "
            "where the flow cannot, and goes to minus infinity.",
            panels=(
                Panel(
                    title="w_11 > 1/2",
                    x=Axis("time t of gradient flow"),
                    y=Axis("share of starts"),
                    marks=(*shares, horizon),
                ),
                Panel(
                    title="printed map",
                    x=Axis("time t"),
                    y=Axis("w_11 by D.2", range=(-1.0, 0.2)),
                    marks=(Line(x=run.map_time.values, y=run.map_weakest.values, group="w_11 by D.2", color=3),),
                ),
            ),
        ),
    ]
