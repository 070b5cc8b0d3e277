"""Figure 15: signals of colour and size, measured in the images.

Circles of the process on which section 5 trains its diffusion models. The figure shows one distribution with the
stronger signal in colour (left) and one with the stronger signal in size (right), without numbers. Here they are the
ends of appendix G.1: colours that differ by 0.7 and by 0.2, with diameters that differ by 0.4 in both. Section 5 calls
the "difference of class mean pixel values" the signal of a concept, and appendix G.1 states that the two signals are
controlled "independently".

    setting      difference of the two colours' channels, or of the two diameters as a fraction of the image's side
    signal       L2 distance of class means over all pixels and channels; of colour among big or among small circles,
                 of size among red or among blue circles
    mu           signals from (red, big): to (blue, big) and to (red, small), both trained classes
    overlap      cosine of the angle between these two directions
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Figures, Film, Line, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

_EXAMPLES_SEED, _READ_SEED = 15, 16  # of the images shown, and of those read by the estimator


class Params(EntryParams):
    """Images of appendix G's size."""

    pixels: int = param(32, "side of the images", unit="pixels", ge=4)
    colors: tuple[float, ...] = param(
        (0.7, 0.2), "colour settings, left and right, at size setting 0.4", least=2, most=2, order="decreasing"
    )
    sizes: tuple[float, ...] = param(
        (0.1, 0.5), "size settings, at colour setting 0.4", least=2, most=2, order="increasing"
    )
    images: int = param(512, "images of each class from which signals are measured", ge=2)
    seeds: tuple[int, ...] = param((0, 1, 2, 3, 4), "seeds of independent measurements", ge=0, order="distinct")
    read: int = param(1024, "true images of each distribution for the direct estimator", ge=4)
    shown: int = param(6, "images of each class in the pictures", ge=1)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Measure signals seed by seed, then draw the images that are shown and read."""
    from saddlescope.training.diffusion.circles import CLASSES, CONCEPTS, CircleProcess
    from saddlescope.training.diffusion.positions import concept_positions

    circles = partial(CircleProcess, pixels=params.pixels)
    by_color = [circles(color_signal=color, size_signal=0.4) for color in params.colors]  # the impossible are refused
    by_size = [circles(color_signal=0.4, size_signal=size) for size in params.sizes]

    def measure(seed: int, step: RunContext) -> xr.Dataset:
        color, size = (
            [one.class_means(images=params.images, seed=seed) for one in processes] for processes in (by_color, by_size)
        )
        ways = np.array([means[[2, 1]] - means[0] for means in color])
        mu = np.linalg.norm(ways, axis=2)
        one, other = np.moveaxis(ways / mu[:, :, None], 1, 0)
        return xr.Dataset(
            {
                "signal": (("color_setting", "concept", "other"), [_distances(means) for means in color]),
                "signal_by_size": (("size_setting", "concept", "other"), [_distances(means) for means in size]),
                "mu": (("color_setting", "concept"), mu),
                "overlap": ("color_setting", np.vecdot(one, other)),
            }
        )

    measured = context.over({"seed": params.seeds}, measure)
    shown = [  # of every class and process, with the same places and backgrounds
        [process.draw(np.full(params.shown, k), seed=_EXAMPLES_SEED).images for k in range(len(CLASSES))]
        for process in by_color
    ]
    classes = np.arange(params.read) % len(CLASSES)
    read = [concept_positions(one.draw(classes, seed=_READ_SEED).images, one).position for one in by_color]
    image = ("color_setting", "class", "example", "channel", "row", "column")
    settings = {"color_setting": list(params.colors), "size_setting": list(params.sizes)}
    return measured.assign(
        shown=(image, np.round(255 * np.array(shown)).astype(np.uint8)),
        position=(("color_setting", "image", "concept"), np.stack(read)),
        image_class=("image", classes),
    ).assign_coords({**settings, "concept": list(CONCEPTS), "class": list(CLASSES)})


def _distances(means: np.ndarray) -> list[list[float]]:
    """Return the distances of class means, of colour among big and among small, of size among red and among blue."""
    pairs = [[(0, 2), (1, 3)], [(0, 1), (2, 3)]]
    return [[float(np.linalg.norm(means[a] - means[b])) for a, b in concept] for concept in pairs]


claims = Claims(
    limits="The process is this project's, made from appendix G.1; the paper prints no numbers for its figure, so its "
    "sides are taken for the ends of the range of colours. Section 1 calls the sensitivity of the process to a "
    "concept its signal: root mean square distances of images, in place of distances of means, have the same "
    "order. Random places blur mean images of small circles more than those of big ones, and pixels are one "
    "choice of coordinates. 'Independently' may mean only that each setting can be chosen without the other.",
)


def _mean(values: xr.DataArray, remark: str = "") -> Estimate:
    return Estimate.mean(values, remark, over="seeds")


@claims.reading(
    "stronger",
    "In this project's circles, colours 0.7 apart move the mean (red, big) image more than size does, 0.2 apart less",
    "Figure 15, left and right, with the settings of the ends of appendix G.1",
    low=1.0,
)
def _signal_ratio(run: xr.Dataset) -> Estimate:
    """Signal of the stronger concept over that of the other, measured from (red, big), smaller of both sides."""
    found = []
    for side, name, (strong, weak) in ((0, "left", ("color", "size")), (1, "right", ("size", "color"))):
        mu = run.mu.isel(color_setting=side)
        distances = ", ".join(f"{float(mu.sel(concept=concept).mean()):.3g}" for concept in ("color", "size"))
        remark = f"{name}: distances {distances} in colour and size"
        found.append(_mean(mu.sel(concept=strong) / mu.sel(concept=weak), remark))
    return min(found, key=lambda one: one.value)


@claims.extension(
    "independent",
    "In this project's circles, colours 0.2 to 0.7 and sizes 0.1 to 0.5 apart change the other signal by at most 10 %",
    "after Figure 15: 'control the strength of the two concept signals independently'; 10 % is this project's bar",
    high=1.1,
)
def _dependence(run: xr.Dataset) -> Estimate:
    """Factor by which a signal changes between ends of the other concept's setting, larger of both concepts."""
    size = [run.mu.sel(concept="size").isel(color_setting=k) for k in (0, 1)]
    color = [run.signal_by_size.sel(concept="color").isel(other=0, size_setting=k) for k in (-1, 0)]
    found = []
    for name, (large, small) in (("size", size), ("colour", color)):
        remark = f"the signal of {name} from {float(small.mean()):.3g} to {float(large.mean()):.3g}"
        found.append(_mean(np.exp(abs(np.log(large / small))), remark))
    return max(found, key=lambda one: one.value)


@claims.extension(
    "small-circles",
    "In this project's circles with colours 0.7 apart, mean images of small circles differ more between colours than "
    "mean images do between sizes",
    "Figure 15 has one signal for each concept, whatever the value of the other; the unseen class is small",
    low=1.0,
)
def _small_circle_ratio(run: xr.Dataset) -> Estimate:
    """Signal of colour among small circles over that of size, averaged over both colours."""
    signal = run.signal.isel(color_setting=0)
    color, size = signal.sel(concept="color").isel(other=1), signal.sel(concept="size").mean("other")
    return _mean(color / size, f"distances {float(color.mean()):.3g} in colour and {float(size.mean()):.3g} in size")


@claims.extension(
    "orthogonal",
    "In this project's circles with colours 0.7 apart, colour and size move the mean (red, big) image in nearly "
    "orthogonal pixel directions",
    "Section 2, whose clusters are on the coordinate axes; 0.1 is this project's bar",
    low=-0.1,
    high=0.1,
)
def _overlap(run: xr.Dataset) -> Estimate:
    """Cosine between the directions from the mean (red, big) to the means of (blue, big) and (red, small)."""
    return _mean(run.overlap.isel(color_setting=0))


_CLASSES = (1, 3, 0, 2)  # palette: no blue for red circles


def figures(run: xr.Dataset) -> Figures:
    """Draw positions that the direct estimator reads in both distributions, and images of both in one frame."""
    names, panels = tuple(map(str, run["class"].values)), []
    for side, (place, setting) in enumerate(zip(("left", "right"), run.color_setting.values, strict=True)):
        position = run.position.isel(color_setting=side).transpose("image", "concept").values
        dots = []
        for k, name in enumerate(names):
            x, y = position[run.image_class.values == k].T
            dots.append(Line(x=x, y=y, group=name, color=_CLASSES[k], style="points", width=2.0, opacity=0.5))
        x, y = Axis("colour", range=(-0.4, 1.4)), Axis("size", range=(-0.6, 1.8))
        panels.append(Panel(title=f"{place}: colours {setting:g} apart", x=x, y=y, marks=tuple(dots)))
    left, right = run.shown.transpose("color_setting", "class", "example", "row", "column", "channel").values
    empty = ("",) * (left.shape[1] - 1)
    yield Figure(
        name="distributions",
        title="Two distributions of circles with different colour signals",
        caption="In a column of images, place, background and jitter are the same. Each dot is another true image "
        "of the distribution, at the colour and size that the direct estimator reads from its pixels; 0 and 1 are "
        "the class means. Within a class, sizes vary by up to 0.375 of the distance of the means, and every "
        "channel of the colour by up to 0.125.",
        panels=tuple(panels),
        film=Film(
            steps=np.array([1]),
            images=np.concatenate([left, np.full_like(left[:, :1], 255), right], axis=1)[None],
            rows=names,
            columns=("left", *empty, "", "right", *empty),
            unit="",
        ),
    )


entry = Entry(
    "concept-learning/figure-15",
    "Figure 15: signals of colour and size, measured in the images",
    source="Figure 15, appendix G.1",
    quick=dict(pixels=16, sizes=(0.2, 0.4), images=32, seeds=(0, 1), read=128, shown=3),
    paper=dict(images=2048),
)
