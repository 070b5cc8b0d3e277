"""Synthetic records of losses: power laws, which have no drops, and staircases with known ones."""

from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter


def power_law(seed):
    """Return steps and losses of a power law with a floor, in noise.

    20 to 100,000 records, evenly or geometrically spaced; exponents 0.05 to 1.5; noise of 0.01 to 20 %, of the loss or
    of its range, in a third of the curves correlated over up to twenty records.
    """
    draw = np.random.default_rng([seed, 1])
    n, end = int(10 ** draw.uniform(1.3, 5)), 10 ** draw.uniform(2, 6)
    if draw.random() < 2 / 3:
        steps = np.linspace(0, end, n)
    else:
        steps = np.unique(np.round(np.geomspace(1, max(end, 2 * n), n)))
    start = end * 10 ** draw.uniform(-4, -0.5)
    loss = (steps / start + 1) ** -draw.uniform(0.05, 1.5) + draw.choice([0, draw.uniform(0, 2)])
    size, noise = 10 ** draw.uniform(-4, -0.7), draw.standard_normal(len(steps))
    if draw.random() < 1 / 3:
        memory = draw.uniform(0.3, 0.95)
        noise = lfilter([np.sqrt(1 - memory**2)], [1, -memory], noise)
    return steps, loss * np.exp(size * noise) if draw.random() < 0.6 else loss + size * np.ptp(loss) * noise


@dataclass(frozen=True)
class Staircase:
    """A record with drops at `drops` of `widths`; spaced in the logarithm of the steps if `geometric`."""

    steps: np.ndarray
    losses: np.ndarray
    drops: np.ndarray
    widths: np.ndarray
    geometric: bool
    noise: float

    def is_found(self, drops):
        """Return True for as many drops, each within four widths (an eighth of its step if geometric)."""
        found = np.array([drop.step for drop in drops])
        near = np.maximum(4 * self.widths, 0.12 * self.drops if self.geometric else 2 * self.steps[1])
        return len(found) == len(self.drops) and bool(np.all(np.abs(found - self.drops) <= near))


def staircase(seed):
    """Return a record of 100 to 10,000 records with 1 to 5 drops of 1 to 6 % of the plateaus beside them.

    A third of them fall over one to five decades; half have slopes of up to a tenth of the range between their drops;
    40 % have spikes; the noise is 0, 0.3, 1 or 3 % of the range, or of the loss where it falls over decades.
    """
    draw = np.random.default_rng([seed, 2])
    n, count, geometric = int(10 ** draw.uniform(2, 4)), int(draw.integers(1, 6)), draw.random() < 0.5
    first, gap = (0.25, 0.12) if geometric else (0.08, 0.08)
    places = np.sort(draw.uniform(first, 0.92, count))
    while count > 1 and np.min(np.diff(places)) < gap:
        places = np.sort(draw.uniform(first, 0.92, count))
    drops = 10 ** (4 * places) if geometric else 1e4 * places
    steps = np.concatenate([[0], np.geomspace(1, 1e4, n - 1)]) if geometric else np.linspace(0, 1e4, n)
    gaps = np.diff(np.concatenate([[0], drops, [1e4]]))
    widths = np.minimum(gaps[:-1], gaps[1:]) * draw.uniform(0.01, 0.06, count)
    sizes = draw.uniform(0.3, 1, count)
    rises = 1 / (1 + np.exp(-np.clip((steps[:, None] - drops) / widths, -500, 500)))
    fallen = rises @ (sizes / sizes.sum())
    noise, slope = float(draw.choice([0, 0.003, 0.01, 0.03])), draw.uniform(0, 0.1) * draw.integers(2)
    errors = noise * draw.standard_normal(n)
    if draw.random() < 1 / 3:
        losses = 10 ** (-draw.uniform(1, 5) * fallen) * (1 - slope * steps / 1e4) * np.exp(errors)
    else:
        losses = 1 + draw.uniform(0, 1) - fallen + slope * (1 - steps / 1e4) + errors
    if draw.random() < 0.4:
        for at in draw.integers(0, n, draw.integers(1, 6)):
            length = len(losses[at : at + max(1, n // 100)])
            spike = np.exp(-np.arange(length) / max(1.0, length / 3))
            losses[at : at + length] += np.ptp(losses) * draw.uniform(0.2, 1) * spike
    return Staircase(steps, losses, drops, widths, geometric, noise)
