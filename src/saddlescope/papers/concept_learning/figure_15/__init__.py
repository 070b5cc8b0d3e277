"""Figure 15: a signal for colour and a signal for size, measured in the images   (Figure 15, appendix G.1)

Circles of the process that section 5 trains its diffusion models on. The figure shows a distribution with more signal
in colour and one with more in size, without their numbers; taken here are the ends of appendix G.1, colours that differ
by 0.7 and by 0.2, with diameters that differ by 0.4 in both. Section 5 calls "difference of class mean pixel values"
what a concept's signal is, and appendix G.1 has the two "controlled independently"; here they are measured.

    setting      what is set: the difference of two colours' channels, or of two diameters as a fraction of the side
    signal       what comes of it: the L2 distance of class means over all pixels and channels
    image signal root mean square distance of images that differ in the class of one concept alone
    mu, sigma    of the matching SIM task: distance of the class means of the trained classes, and spread within a class
                 along the same direction; the overlap is the cosine of the angle between the two directions
    position     colour and size of an image by the direct estimator; 0 and 1 are the class means
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.figure_15.claims import CLAIMS
from saddlescope.papers.concept_learning.figure_15.figures import by_color, by_size, distributions, geometry
from saddlescope.plot import Figure
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parameter_checks import at_least

if TYPE_CHECKING:
    from saddlescope.train.diffusion.circles import CircleProcess

_EXAMPLES_SEED, _READ_SEED = 15, 16  # of the images shown, and of those read by the estimator


@dataclass(frozen=True, kw_only=True)
class Params:
    """Images of appendix G's size."""

    pixels: int = 32  # along a side
    compared: tuple[float, ...] = (0.7, 0.2)  # colour settings of the two distributions, left and right
    color_settings: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # at size setting 0.4
    size_settings: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)  # at colour setting 0.4
    images: int = 512  # of each class, by which a signal is measured
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # of independent measurements
    read: int = 1024  # true images of either distribution that the direct estimator reads
    shown: int = 6  # images of each class in the pictures

    def __post_init__(self) -> None:
        at_least(2, self, "images")
        at_least(4, self, "pixels", "read")
        at_least(1, self, "shown")
        for name in ("color_settings", "size_settings"):
            settings = getattr(self, name)
            if len(settings) < 2 or sorted(set(settings)) != list(settings):
                raise InputError(f"{name} must be two or more, increasing; got {settings!r}.")
        if len(self.compared) != 2 or not set(self.compared) <= set(self.color_settings):
            raise InputError(f"compared must be two of color_settings, left and right; got {self.compared!r}.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds must be distinct and at least 0, such as 0,1,2; got {self.seeds!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: half as many pixels a side, and few images."""
        return cls(
            pixels=16,
            color_settings=(0.2, 0.4, 0.7),
            size_settings=(0.2, 0.4),
            images=32,
            seeds=(0, 1),
            read=128,
            shown=3,
        )

    @classmethod
    def paper(cls) -> "Params":
        """The default has the paper's images; the 2048 of each class are those of its predecessor's public code."""
        return cls(images=2048)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Signals seed by seed, then the images that are shown and read."""
    for color in params.color_settings:  # refuses what cannot be drawn, before anything is
        _process(params, color=color)
    for size in params.size_settings:
        _process(params, size=size)
    of_seeds: list[xr.Dataset] = []
    for k, seed in enumerate(params.seeds):
        report = context.part(0.9 * k / len(params.seeds), 0.9 * (k + 1) / len(params.seeds))
        of_seeds.append(context.cached(f"seed-{seed}", _Signals(params, seed, report)))
    context.report(0.9, "images")
    signals = xr.concat(of_seeds, xr.DataArray(list(params.seeds), dims="seed", name="seed"))
    merged = xr.merge([signals, _shown(params), _read(params)]).assign_attrs(compared=params.compared)
    context.report(1.0, "done")
    return merged


def _process(params: Params, *, color: float = 0.4, size: float = 0.4) -> "CircleProcess":
    from saddlescope.train.diffusion.circles import CircleProcess

    return CircleProcess(pixels=params.pixels, color_signal=color, size_signal=size)


@dataclass(frozen=True)
class _Signals:
    """All signals from the images of one seed: measured when called."""

    params: Params
    seed: int
    report: Callable[[float, str], None]

    def __call__(self) -> xr.Dataset:

        from saddlescope.train.diffusion.circles import CONCEPTS
        from saddlescope.train.diffusion.signals import concept_geometry, pixel_signals

        params, total = self.params, len(self.params.color_settings) + len(self.params.size_settings)
        drawn = {"images": params.images, "seed": self.seed}
        by_color, by_size, geometries = [], [], []
        for color in params.color_settings:
            process = _process(params, color=color)
            by_color.append(pixel_signals(process, **drawn))
            geometries.append(concept_geometry(process, **drawn))
            self.report(len(by_color) / total, f"seed {self.seed}, colour setting {color:g}")
        for size in params.size_settings:
            by_size.append(pixel_signals(_process(params, size=size), **drawn))
            done = (len(by_color) + len(by_size)) / total
            self.report(done, f"seed {self.seed}, size setting {size:g}")
        concept = ("color_setting", "concept")
        mu, sigma, jitter, overlap = (np.array(part) for part in zip(*geometries, strict=True))
        return xr.Dataset(
            {
                "signal": ((*concept, "other"), np.array([found.means for found in by_color])),
                "image_signal": ((*concept, "other"), np.array([found.images for found in by_color])),
                "signal_by_size": (("size_setting", "concept", "other"), np.array([found.means for found in by_size])),
                "mu": (concept, mu),
                "sigma": (concept, sigma),
                "jitter": (concept, jitter),
                "overlap": ("color_setting", overlap),
            },
            coords={
                "color_setting": list(params.color_settings),
                "size_setting": list(params.size_settings),
                "concept": list(CONCEPTS),
                "other": ["big or red", "small or blue"],
            },
        )


def _shown(params: Params) -> xr.Dataset:
    """Images of every class at every setting, of the same places and backgrounds."""
    from saddlescope.train.diffusion.circles import CLASSES

    def drawn(process: "CircleProcess") -> np.ndarray:
        rows = [process.draw(np.full(params.shown, k), seed=_EXAMPLES_SEED).images for k in range(len(CLASSES))]
        return np.round(255 * np.stack(rows)).astype(np.uint8)

    image = ("class", "example", "channel", "row", "column")
    by_color = np.stack([drawn(_process(params, color=color)) for color in params.color_settings])
    by_size = np.stack([drawn(_process(params, size=size)) for size in params.size_settings])
    return xr.Dataset(
        {"shown_by_color": (("color_setting", *image), by_color), "shown_by_size": (("size_setting", *image), by_size)},
        coords={"class": list(CLASSES), "channel": ["red", "green", "blue"]},
    )


def _read(params: Params) -> xr.Dataset:
    """What the direct estimator reads off true images of the two distributions, and what is true."""
    from saddlescope.train.diffusion.circles import CLASSES
    from saddlescope.train.diffusion.positions import concept_positions, true_positions

    classes = np.arange(params.read) % len(CLASSES)
    found, blank, true = [], [], []
    for color in params.compared:
        process = _process(params, color=color)
        drawn = process.draw(classes, seed=_READ_SEED)
        positions = concept_positions(drawn.images, process)
        found.append(positions.position)
        blank.append(positions.blank)
        true.append(true_positions(drawn.conditions, process))
    point = ("side", "image", "concept")
    return xr.Dataset(
        {
            "position": (point, np.stack(found)),
            "true_position": (point, np.stack(true)),
            "blank": (("side", "image"), np.stack(blank)),
            "image_class": ("image", classes),
        },
        coords={"side": ["left", "right"]},
    )


claims = CLAIMS


def figures(run: xr.Dataset) -> list[Figure]:
    """The two distributions, images and signals by either setting, and the matching SIM task."""
    return [distributions(run), by_color(run), by_size(run), geometry(run)]
