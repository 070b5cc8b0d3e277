"""Figure of certificates: ranks as read and as certified, and duality gaps."""

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.certificates.claims import NORMS
from saddlescope.plot import Axis, Figure, Line, Mark, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw ranks as read against certified ones, and duality gaps."""
    true = run.true_rank.values
    order = np.argsort(true, kind="stable")
    draw = np.arange(1, len(true) + 1)
    ranks = [Line(x=draw, y=true[order], label="certified", color=0, style="steps", width=2.4)]
    gaps = []
    for color, accuracy in enumerate(run.accuracy.values, start=1):
        one = run.sel(accuracy=accuracy)
        label = f"Clarabel at {accuracy}"
        ranks.append(Line(x=draw, y=one.read_rank.values[order], group=label, color=color, style="points"))
        gaps.append(Line(x=draw, y=np.sort(one.their_gap.values), group=label, color=color))
    for color, norm in enumerate(NORMS, start=3):
        found = np.sort(np.maximum(run.gap.sel(norm=norm).values, 1e-17))
        at = np.linspace(1, len(true), len(found))
        gaps.append(
            Line(x=at, y=found, group={"l1": "ℓ1", "frobenius": "Frobenius", "nuclear": "nuclear"}[norm], color=color)
        )
    return [
        Figure(
            name="certificates",
            title="A rank is as good as the gap behind it",
            caption="Left: rank of the nuclear solution, certified, and as read off semidefinite solutions of "
            "Clarabel's, of two accuracies, by singular values above 1e-7 of the largest. Right: relative duality gaps "
            "in ascending order, of those solutions and of this package's three problems at a larger size "
            f"({run.sizes['draw']} draws, stretched).",
            panels=(
                Panel(title="rank of W_*", x=Axis("draw, by rank"), y=Axis("rank"), marks=tuple(ranks)),
                Panel(
                    title="relative duality gap",
                    x=Axis("draw, by gap"),
                    y=Axis("gap", scale="log"),
                    marks=(*gaps, Mark(at=1e-10, axis="y", label="1e-10")),
                ),
            ),
        )
    ]
