"""Figure of Lemma 4.2: sizes of weights over time."""

import xarray as xr

from saddlescope.papers.softmax_attention.lemma_4_2.claims import SETTLED, select_instances
from saddlescope.plot import Axis, Figure, Line, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the size of beta over time, for the three kinds of instances."""

    def curves(part: xr.Dataset, until: float) -> tuple[Line, ...]:
        time = part.log10_time.values
        kinds = sorted(set(run.kind.values.tolist()))
        return tuple(
            Line(
                x=time[time <= until], y=row[time <= until], group=kind, color=kinds.index(kind), width=1.2, opacity=0.7
            )
            for kind, row in zip(part.kind.values.tolist(), part["size"].values, strict=True)
        )

    return [
        Figure(
            name="sizes",
            title="The weights diverge where diagonal weights can separate the data",
            caption="Left: |beta| of flows on data that diagonal weights separate, with large gaps of the scores and "
            "with a gap of 1, where some flows lose samples. Right: on data that some W separates but no diagonal one; "
            "flat curves have come to a strict minimum of the loss.",
            panels=(
                Panel(
                    title="separable by diagonal weights",
                    x=Axis("time, log10 t"),
                    y=Axis("|β|", scale="log"),
                    marks=curves(select_instances(run, diagonal=True), 300.0),
                ),
                Panel(
                    title="separable by others only",
                    x=Axis("time, log10 t"),
                    y=Axis("|β|", scale="log"),
                    marks=curves(select_instances(run, diagonal=False), SETTLED),
                ),
            ),
        )
    ]
