"""Figures of the entry `figure_5`."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.shared.two_layer_figures import (
    entries_panel,
    entry_table,
    later_losses,
    loss_panel,
    output_panels,
)
from saddlescope.plot import Axis, Figure, Line, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the paper's figure with the predicted times, and shares of random starts against the rise."""
    return [
        Figure(
            name="two-descents",
            title="Two descents: the minor entry rises with the first concept and is suppressed by it",
            caption="The loss out of distribution with its turns, whole and from near; the entries of W, with vertical "
            "lines where the Schur complements of the start predict w_kk = 1/2; the output's path, which turns back. "
            "The table has the life of every entry.",
            panels=(
                loss_panel(run),
                loss_panel(run, top=later_losses(run)),
                entries_panel(run, predicted=True),
                *output_panels(run),
            ),
            table=entry_table(run),
        ),
        Figure(
            name="how-often",
            title="How often a random start does it, and how far the loss rises",
            caption="Share of random starts with two descents and a rise above the height on the axis, by the scale of "
            "U. Smaller starts do it more often, but rise less.",
            panels=tuple(_share_panel(run, str(law)) for law in run.law.values),
        ),
    ]


def _share_panel(run: xr.Dataset, law: str) -> Panel:
    heights = np.geomspace(1e-5, 0.3, 200)
    lines = tuple(
        Line(
            x=heights, y=(run.rise.sel(law=law, scale=scale).values > heights[:, None]).mean(axis=1),
            group=f"scale {scale:g}", color=n,
        )
        for n, scale in enumerate(run.scale.values.tolist())
    )  # fmt: skip
    return Panel(
        title=f"{law} entries of U",
        x=Axis("height of the rise in parts of the first loss", scale="log"),
        y=Axis("share of starts above", range=(-0.02, 1.02)),
        marks=lines,
    )
