"""Random starts of the symmetric two-layer network on the data of the paper's figures.

law     "normal": entries of U(0) normal, of mean 0 and standard deviation scale
        "uniform": between 0 and scale, as in the authors' programs, which makes every entry of W(0) positive
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

VISIBLE = 0.01
"""Hysteresis, over the first loss, of visible descents: about the width of a line in the paper's figures."""

Law = Literal["normal", "uniform"]
LAWS: tuple[Law, ...] = get_args(Law)


class Signal(NamedTuple):
    """Signal mu and deviation sigma of every concept; without a cluster at the origin."""

    mu: tuple[float, ...]
    sigma: tuple[float, ...]


# For Figure 5 the paper has s = 2 alone. These are the numbers of Figure 2; the authors' program has mu = (1, 1.5)
FIGURES = {
    "Figure 5": Signal((1.0, 2.0), (0.05, 0.05)),
    "Figure 8": Signal((1.0, 1.5, 2.2), (0.05, 0.05, 0.05)),
    "Figure 9": Signal((1.0, 1.5, 2.2, 2.7), (0.05, 0.05, 0.05, 0.5)),
    "Figure 10": Signal((0.7, 1.7, 3.0), (0.05, 0.05, 0.05)),
}


def draw_starts(rng: np.random.Generator, law: Law, scale: float, shape: tuple[int, int, int]) -> np.ndarray:
    """Draw starts U, (starts, d, d'), of a law."""
    return scale * (rng.standard_normal(shape) if law == "normal" else rng.random(shape))


def count_starts(counts: np.ndarray, most: int) -> np.ndarray:
    """Return how many starts have 0, 1, ..., most descents; higher counts are added to the last."""
    return np.bincount(np.minimum(counts, most), minlength=most + 1)
