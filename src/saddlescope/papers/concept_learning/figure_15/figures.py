"""Figures of the entry `figure_15`: images and signals by setting, and positions by the direct estimator."""

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Band, Figure, Film, Line, Mark, Panel, Table

_COLORS = {"color": 0, "size": 1}  # indices into the palette

_NAMES = {"color": "colour", "size": "size"}

_CLASSES = (1, 3, 0, 2)  # palette: no blue for red circles

_OTHERS = {"color": ("big circles", "small circles"), "size": ("red circles", "blue circles")}

_SIGNAL = Axis("distance of class means in pixels", range=(0.0, 25.0))


def distributions(run: xr.Dataset) -> Figure:
    """Draw the two distributions side by side: images, and positions that the direct estimator reads off others."""
    left, right = run.attrs["compared"]
    return Figure(
        name="distributions",
        title="A distribution with more signal in colour, and one with more in size",
        caption=f"Figure 15 has more signal in colour on the left, here colours {left:g} apart, and more in size on "
        f"the right, here {right:g} apart. In a column of images, place, background and jitter are the same. Each dot "
        "is another true image of the same distribution, at the colour and size that the direct estimator reads "
        "off its pixels; 0 and 1 are the class means. The spread is that of the process: sizes vary within a class by "
        "up to 0.375 of the distance of the means, colours by 0.125 a channel. Off the smallest circles, which are "
        "mostly edge, a little less colour is read.",
        panels=tuple(_plane(run, side) for side in range(2)),
        film=_side_by_side(run),
    )


def _side_by_side(run: xr.Dataset) -> Film:
    """Return images of the two distributions in one frame, with an empty column between them."""
    sides = [_frames(run.shown_by_color.sel(color_setting=[setting])) for setting in run.attrs["compared"]]
    count = sides[0].shape[2]
    gap = np.full_like(sides[0][:, :, :1], 255)
    empty = ("",) * (count - 1)
    return Film(
        steps=np.array([1]),
        images=np.concatenate([sides[0], gap, sides[1]], axis=2),
        rows=tuple(map(str, run["class"].values)),
        columns=("left", *empty, "", "right", *empty),
        unit="",
    )


def _plane(run: xr.Dataset, side: int) -> Panel:
    """Draw positions that the direct estimator reads off the images of one distribution."""
    marks: list[Line] = []
    position = run.position.isel(side=side).transpose("image", "concept").values
    for k, name in enumerate(map(str, run["class"].values)):
        x, y = position[run.image_class.values == k].T
        marks.append(Line(x=x, y=y, group=name, color=_CLASSES[k], style="points", width=2.0, opacity=0.5))
    return Panel(
        title=f"{run.side.values[side]}: colours {run.attrs['compared'][side]:g} apart",
        x=Axis("colour", range=(-0.4, 1.4)),
        y=Axis("size", range=(-0.6, 1.8)),
        marks=tuple(marks),
    )


def by_color(run: xr.Dataset) -> Figure:
    """Draw images and signals against colour's setting."""
    left, right = run.attrs["compared"]
    marks = (Mark(at=right, label="right"), Mark(at=left, label="left"))
    return Figure(
        name="color",
        title="Colour's signal from weak to strong",
        caption=f"The signals that come of colour's setting, mean over {run.sizes['seed']} seeds, and images of each "
        "class. Colour's signal is proportional to its setting, up to 0.8, where jittered colours meet the ends of "
        "their range, and several times larger in big circles than in small ones. Size's grows as well, since a "
        "stronger colour is farther from the background. Dotted: between images that differ in one concept alone, "
        "among big and among red circles.",
        panels=(_signals(run.signal, "color_setting", "colour's setting", run.image_signal, marks),),
        film=_film(run.shown_by_color, "color_setting", "colour setting"),
    )


def by_size(run: xr.Dataset) -> Figure:
    """Draw images and signals against size's setting."""
    return Figure(
        name="size",
        title="The same with size's signal from weak to strong",
        caption="Colours are 0.4 apart throughout, and the mean of the two diameters stays at half the image's side. "
        "As the setting grows, big circles grow and show more colour, small ones shrink and show less of it.",
        panels=(_signals(run.signal_by_size, "size_setting", "size's setting"),),
        film=_film(run.shown_by_size, "size_setting", "size setting"),
    )


def _signals(
    signal: xr.DataArray,
    setting: str,
    label: str,
    images: xr.DataArray | None = None,
    marks: tuple[Mark, ...] = (),
) -> Panel:
    """Draw signals of both concepts by the other's value, with dots that follow the film."""
    x, lines = signal[setting].values, []
    for concept, color in _COLORS.items():
        for k, other in enumerate(_OTHERS[concept]):
            y = signal.sel(concept=concept).isel(other=k).mean("seed").values
            lines.append(
                Line(
                    x=x, y=y, at=x, color=color, style="dashed" if k else "solid", width=1.2 if k else 2.2,
                    label=f"{_NAMES[concept]}, {other}",
                )
            )  # fmt: skip
        if images is not None:
            y = images.sel(concept=concept).isel(other=0).mean("seed").values
            lines.append(Line(x=x, y=y, color=color, style="dotted", width=1.2, label=f"{_NAMES[concept]}, images"))
    return Panel(title="signals", x=Axis(label), y=_SIGNAL, marks=(*lines, *marks))


def _film(shown: xr.DataArray, setting: str, unit: str) -> Film:
    rows = tuple(map(str, shown["class"].values))
    return Film(steps=shown[setting].values, images=_frames(shown), rows=rows, unit=unit)


def _frames(shown: xr.DataArray) -> np.ndarray:
    """Return images by setting, in the axis order of a film."""
    return shown.transpose(..., "class", "example", "row", "column", "channel").values


def geometry(run: xr.Dataset) -> Figure:
    """Draw (mu, sigma) of the matching SIM task, and the cosine between the concepts."""
    x = run.color_setting.values
    marks: list[Line | Band | Mark] = []
    for concept, color in _COLORS.items():
        mu, sigma = (part.sel(concept=concept).mean("seed").values for part in (run.mu, run.sigma))
        name = _NAMES[concept]
        marks.append(Band(x=x, low=mu - sigma, high=mu + sigma, group=name, color=color))
        marks.append(Line(x=x, y=mu, group=name, color=color, width=2.0))
    overlap = run.overlap.mean("seed").values
    rows = []
    for setting in x:
        of = run[["mu", "sigma", "jitter", "overlap"]].sel(color_setting=setting).mean("seed")
        numbers = [float(part.sel(concept=c)) for c in _COLORS for part in (of.mu, of.sigma, of.jitter)]
        rows.append((float(setting), *numbers, float(of.overlap)))
    return Figure(
        name="geometry",
        title="The trained classes as clusters of a SIM task",
        caption="(red, big) is the origin; one concept leads from it to (blue, big), the other to (red, small). Left: "
        "mu, the distances, with bands of sigma, the spread within a class along the same direction, place and "
        "background included. Right: cosine of the angle between the two directions, 0 in the SIM task. In the table, "
        "jitter is the spread of the concept's own value alone, in the units of mu.",
        panels=(
            Panel(title="mu and sigma", x=Axis("colour's setting"), y=_SIGNAL, marks=tuple(marks)),
            Panel(
                title="overlap",
                x=Axis("colour's setting"),
                y=Axis("cosine", range=(0.0, 1.0)),
                marks=(Line(x=x, y=overlap, color=2, width=2.0),),
            ),
        ),
        table=Table(
            columns=(
                "colour's setting", "mu, colour", "sigma, colour", "jitter, colour", "mu, size", "sigma, size",
                "jitter, size", "overlap",
            ),
            rows=tuple(rows),
        ),
    )  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the two distributions, images and signals by either setting, and the matching SIM task."""
    return [distributions(run), by_color(run), by_size(run), geometry(run)]
