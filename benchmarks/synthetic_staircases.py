"""Synthetic staircases with known stages, to test a finder of stages.

    u        place in the record, from 0 to 1; samples are evenly spaced in u
    t        time: u itself (linear sampling), or 1000^u (geometric sampling)
    stages   2 to 6, one per plateau
    lengths  of plateaus in u, in proportion to exp(U(-1, 1)): up to a factor 7.4 between two of them
    heights  of drops, in proportion to exp(U(-1.2, 1.2)), each at least 4 % of the loss's range
    widths   of drops (from 10 to 90 %) in u: log-uniform between 2 and 30 % of the shorter plateau beside it
    shapes   logistic, or of one side slower than the other: 1 / (1 + e^-z)^a with a log-uniform in [1/2, 3]
    drift    a slow fall by up to 1 % of the range over the complete record
    noise    in units of the loss's range: independent normal errors of the losses; singular values have relative ones

Every layer gains one singular value a drop; the first two layers gain up to two more at the first drop. Singular values
that are not learned stay in a bulk, at 0.1 to 10 % of those that are.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from saddlescope.measure import Staircase


@dataclass(frozen=True, eq=False)
class SyntheticRun:
    """A record with known stages.

    Attributes:
        times: (n,).
        losses: (n,), with noise.
        singular_values: for each layer (n, r).
        drops: (stages - 1,) times at which the loss is half-way from a plateau to the next.
        early, late: (stages - 1,) the times between which a drop's middle 80 % lie, a sample more on either side.
        levels: (stages,) of the plateaus, half-way between the drops.
        layer_ranks: for each stage the rank of every layer.
        range: of the loss, without noise.
    """

    times: np.ndarray
    losses: np.ndarray
    singular_values: tuple[np.ndarray, ...]
    drops: np.ndarray
    early: np.ndarray
    late: np.ndarray
    levels: np.ndarray
    layer_ranks: tuple[tuple[int, ...], ...]
    range: float

    def matches(self, staircase: "Staircase") -> bool:
        """Return True if a staircase has these stages.

        As many stages, each drop's time within its middle 80 % or a sample beside them, each level to 1 % of the range,
        and every layer's rank in every stage.
        """
        if len(staircase) != len(self.levels):
            return False
        times, levels = np.array(staircase.times), np.array(staircase.losses)
        placed = np.all((self.early <= times) & (times <= self.late))
        level = np.all(np.abs(levels - self.levels) <= 0.01 * self.range)
        return bool(placed and level and staircase.layer_ranks == self.layer_ranks)


def synthetic_run(seed: int, *, noise: float, geometric: bool) -> SyntheticRun:
    """Draw one staircase of the family above.

    Args:
        seed: seed of all draws; the same seed gives the same staircase at every noise and sampling.
        noise: standard deviation of a loss in units of the range.
        geometric: True for samples evenly spaced in log t, False in t.
    """
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 7))
    lengths = np.exp(draw.uniform(-1, 1, count))
    lengths /= lengths.sum()
    heights = np.zeros(1)
    while heights.min() < 0.04:
        heights = np.exp(draw.uniform(-1.2, 1.2, count - 1))
        heights /= heights.sum()
    middle = np.cumsum(lengths)[:-1]
    widths = np.minimum(lengths[:-1], lengths[1:]) * np.exp(draw.uniform(np.log(0.02), np.log(0.3), count - 1))
    shapes = np.where(draw.random(count - 1) < 0.5, 1.0, np.exp(draw.uniform(np.log(0.5), np.log(3.0), count - 1)))
    drift, scale = draw.uniform(0, 0.01), np.exp(draw.uniform(-3, 3))
    samples = int(np.exp(draw.uniform(np.log(150), np.log(1000))))

    def steepness(share: float) -> np.ndarray:
        return np.asarray(-np.log(share ** (-1 / shapes) - 1))

    rate = (steepness(0.9) - steepness(0.1)) / widths

    def fallen(u: np.ndarray) -> np.ndarray:
        return (1 + np.exp(-np.clip(rate * (u[:, None] - middle) + steepness(0.5), -500, 500))) ** -shapes

    u = np.linspace(0, 1, samples)
    plateaus = np.concatenate([[0.0], middle, [1.0]])
    plateaus = (plateaus[:-1] + plateaus[1:]) / 2
    early, late = (middle + (steepness(share) - steepness(0.5)) / rate for share in (0.1, 0.9))

    def loss(u: np.ndarray) -> np.ndarray:
        return scale * (1.0 - (fallen(u) @ heights + drift * u) / (1 + drift))

    def time(u: np.ndarray) -> np.ndarray:
        return 1000.0**u if geometric else u

    depth = int(draw.integers(3, 7))
    extra = [int(more) for more in draw.integers(0, 3, 2)] + [0] * (depth - 2)
    width = count + 4
    ranks = tuple(tuple(stage and stage + more for more in extra) for stage in range(count))
    learned = fallen(u)
    spectra = []
    for more in extra:
        bulk = np.exp(draw.uniform(np.log(1e-3), np.log(0.1))) * draw.uniform(0.7, 1.0, width)
        drop = np.minimum(np.maximum(np.arange(width) - more, 0), count - 1)
        rises = np.where(np.arange(width) < count - 1 + more, learned[:, np.minimum(drop, count - 2)], 0.0)
        values = bulk + draw.uniform(0.4, 1.5, width) * rises
        values *= 1 + noise * draw.standard_normal(values.shape)
        spectra.append(-np.sort(-values, axis=1))
    spacing = 1 / (samples - 1)
    return SyntheticRun(
        times=time(u),
        losses=loss(u) + noise * scale * draw.standard_normal(samples),
        singular_values=tuple(spectra),
        drops=time(middle),
        early=time(early - spacing),
        late=time(late + spacing),
        levels=loss(plateaus),
        layer_ranks=ranks,
        range=float(scale),
    )
