"""Signals of the images by colour and size setting, examples of them, and positions read off others."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report

if TYPE_CHECKING:
    from saddlescope.train.diffusion.circles import CircleProcess

_EXAMPLES_SEED, _READ_SEED = 15, 16  # of the images shown, and of those read by the estimator


def circle_process(params: Any, *, color: float = 0.4, size: float = 0.4) -> "CircleProcess":
    """Return the process of circles at these settings."""
    from saddlescope.train.diffusion.circles import CircleProcess

    return CircleProcess(pixels=params.pixels, color_signal=color, size_signal=size)


def measure_signals(params: Any, seed: int, report: Report) -> xr.Dataset:
    """Measure all signals on the images of one seed."""
    from saddlescope.train.diffusion.circles import CONCEPTS
    from saddlescope.train.diffusion.signals import concept_geometry, pixel_signals

    total = len(params.color_settings) + len(params.size_settings)
    drawn = {"images": params.images, "seed": seed}
    by_color, by_size, geometries = [], [], []
    for color in params.color_settings:
        process = circle_process(params, color=color)
        by_color.append(pixel_signals(process, **drawn))
        geometries.append(concept_geometry(process, **drawn))
        report(len(by_color) / total, f"seed {seed}, colour setting {color:g}")
    for size in params.size_settings:
        by_size.append(pixel_signals(circle_process(params, size=size), **drawn))
        done = (len(by_color) + len(by_size)) / total
        report(done, f"seed {seed}, size setting {size:g}")
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


def example_images(params: Any) -> xr.Dataset:
    """Return images of every class at every setting, with the same places and backgrounds."""
    from saddlescope.train.diffusion.circles import CLASSES

    def drawn(process: "CircleProcess") -> np.ndarray:
        rows = [process.draw(np.full(params.shown, k), seed=_EXAMPLES_SEED).images for k in range(len(CLASSES))]
        return np.round(255 * np.stack(rows)).astype(np.uint8)

    image = ("class", "example", "channel", "row", "column")
    by_color = np.stack([drawn(circle_process(params, color=color)) for color in params.color_settings])
    by_size = np.stack([drawn(circle_process(params, size=size)) for size in params.size_settings])
    return xr.Dataset(
        {"shown_by_color": (("color_setting", *image), by_color), "shown_by_size": (("size_setting", *image), by_size)},
        coords={"class": list(CLASSES), "channel": ["red", "green", "blue"]},
    )


def read_positions(params: Any) -> xr.Dataset:
    """Return positions that the direct estimator reads off true images of both distributions, and the true ones."""
    from saddlescope.train.diffusion.circles import CLASSES
    from saddlescope.train.diffusion.positions import concept_positions, true_positions

    classes = np.arange(params.read) % len(CLASSES)
    found, blank, true = [], [], []
    for color in params.compared:
        process = circle_process(params, color=color)
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
