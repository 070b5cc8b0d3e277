"""Figures of the entry `figure_4`."""

import xarray as xr

from saddlescope.papers.concept_learning.shared.two_layer_figures import entry_histories_panel, entry_table, stage_heats
from saddlescope.plot import Figure


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw every entry against time, and heat maps of |W| between the stages."""
    empty = int((run.strength == 0).sum())
    return [
        Figure(
            name="entries",
            title="Major entries grow one by one, and each suppresses its group",
            caption="Every entry of W against time: major ones solid, minor ones dashed in the colour of the concept "
            "whose group they are in first, irrelevant ones dotted. Vertical lines are the predicted times. The table "
            "has the life of every entry.",
            panels=(entry_histories_panel(run),),
            columns=1,
            table=entry_table(run),
        ),
        Figure(
            name="stages",
            title="W between the stages",
            caption="|w_ij| at the start, and after each concept has been learned; the scale is logarithmic, and cut "
            f"off at a tenth of the smallest entry at the start. The last {empty} directions have no concept.",
            panels=stage_heats(run),
            columns=2,
        ),
    ]
