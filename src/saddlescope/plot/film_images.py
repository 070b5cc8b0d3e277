"""Pixels of films and pictures: grids of images as one image, frames of a film side by side, and PNG.

All images are RGB, uint8, shape (..., height, width, 3). Grids have a fourth channel, opacity, since the gaps between
their images show the paper.
"""

from dataclasses import dataclass
from io import BytesIO
from math import ceil, isfinite, isqrt
from typing import Any, Literal

import numpy as np

from saddlescope.figures.records import Axis, Film, Panel, Picture
from saddlescope.plot.axis_values import values_along

_FRAME = 128  # grey of the frame round a picture, seen on light and on dark paper
_BORDER = 1  # pixels of a frame
_MARGIN = 0.05  # of a panel's width or height, beyond its points


@dataclass(frozen=True, eq=False)
class Sprite:
    """All frames of a film in one image, row by row from the top left.

    Attributes:
        pixels: shape (down * height, across * width, 4), uint8.
        across, down: frames beside and below each other; the last row may be short.
    """

    pixels: np.ndarray
    across: int
    down: int


def grid(images: np.ndarray) -> np.ndarray:
    """Arrange images in rows and columns as one image, each in a grey frame with a gap at its right and below it.

    Args:
        images: shape (row, column, height, width, 3), uint8.

    Returns:
        Shape (row * (height + 2 + gap), column * (width + 2 + gap), 4), uint8; the gap is transparent, of
        (height + 2) / 16 pixels, at least one.
    """
    images = framed(images)
    rows, columns, height, width, _ = images.shape
    gap = max(1, height // 16)
    cells = np.zeros((rows, columns, height + gap, width + gap, 4), np.uint8)
    cells[:, :, :height, :width, :3] = images
    cells[:, :, :height, :width, 3] = 255
    return cells.swapaxes(1, 2).reshape(rows * (height + gap), columns * (width + gap), 4)


def sprite(film: Film) -> Sprite:
    """Arrange the frames of a film in one image that is about as wide as high: browsers reject very long images."""
    frames = np.stack([grid(images) for images in np.asarray(film.images)])
    count, height, width, _ = frames.shape
    across = min(count, max(1, isqrt(ceil(count * height / width))))
    down = ceil(count / across)
    blank = np.zeros((across * down - count, height, width, 4), np.uint8)
    tiles = np.concatenate([frames, blank]).reshape(down, across, height, width, 4)
    return Sprite(tiles.swapaxes(1, 2).reshape(down * height, across * width, 4), across, down)


@dataclass(frozen=True, eq=False)
class Strip:
    """Some frames of a film side by side.

    Attributes:
        frames: their numbers, from 0.
        pixels: shape (height, width, 4), uint8.
        rows: the middle of each row, in pixels from the top.
        columns: the middle of each column of each frame, shape (chosen, column), in pixels from the left.
    """

    frames: np.ndarray
    pixels: np.ndarray
    rows: np.ndarray
    columns: np.ndarray


def strip(film: Film, most: int) -> Strip:
    """Select at most `most` frames of a film, at least one, evenly spaced by number, with the first and the last."""
    images = np.asarray(film.images)
    count, rows, columns, height, width, _ = images.shape
    height, width = height + 2 * _BORDER, width + 2 * _BORDER
    chosen = np.unique(np.linspace(count - 1, 0, max(1, most)).round().astype(int))
    grids = [grid(images[k]) for k in chosen]
    apart = np.zeros((len(grids[0]), width // 2, 4), np.uint8)
    pixels = np.concatenate([part for one in grids for part in (one, apart)][:-1], axis=1)
    pitch = len(grids[0]) // rows - height + width  # of the columns of one frame
    starts = np.arange(len(chosen)) * (columns * pitch + apart.shape[1])
    return Strip(
        chosen,
        pixels,
        np.arange(rows) * (len(grids[0]) // rows) + (height - 1) / 2,
        starts[:, None] + np.arange(columns) * pitch + (width - 1) / 2,
    )


def framed(image: np.ndarray) -> np.ndarray:
    """Add a grey frame of one pixel to images, shape (..., height, width, 3), which stand out from any background."""
    around = ((0, 0),) * (image.ndim - 3) + ((_BORDER, _BORDER),) * 2 + ((0, 0),)
    return np.pad(image, around, constant_values=_FRAME)


def png(pixels: np.ndarray) -> bytes:
    """Encode an image, shape (height, width, 3 or 4), as PNG; the same pixels give the same bytes."""
    from matplotlib.image import imsave

    file = BytesIO()
    unsigned: dict[str, Any] = {"Software": None}  # else the version of Matplotlib is in the file
    imsave(file, pixels, format="png", metadata=unsigned, pil_kwargs={"optimize": True})
    return file.getvalue()


def can_stand(picture: Picture, panel: Panel) -> bool:
    """Return True if a picture's point is on the axes: finite, and positive where an axis is logarithmic."""
    places = ((picture.x, panel.x), (picture.y, panel.y))
    return all(isfinite(at) and (at > 0 or axis.scale == "linear") for at, axis in places)


def ranges(panel: Panel) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the ranges of the axes of a panel with pictures, with space for the pictures above their points.

    Returns:
        Low and high of x and of y, in data units; a range that the axis specifies stays.
    """
    above = max(mark.size for mark in panel.marks if isinstance(mark, Picture))
    return _range(panel, "x", _MARGIN), _range(panel, "y", above + _MARGIN)


def _range(panel: Panel, name: Literal["x", "y"], above: float) -> tuple[float, float]:
    """Low and high on one axis; `above` is the share of the panel that stays free beyond the greatest value."""
    axis: Axis = getattr(panel, name)
    if axis.range is not None and not (axis.scale == "log" and min(axis.range) <= 0):
        return axis.range
    values = values_along(panel, name)
    values = values[(values > 0) | (axis.scale == "linear")]
    if axis.scale == "log":
        values = np.log10(values)
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    span = (high - low or 1.0) / (1 - above - _MARGIN)
    low, high = low - _MARGIN * span, high + above * span
    return (10**low, 10**high) if axis.scale == "log" else (low, high)
