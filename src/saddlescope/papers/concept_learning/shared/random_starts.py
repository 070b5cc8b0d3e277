"""Random starts of the symmetric two-layer network on the data of the paper's figures, and their descents.

law     "normal": entries of U(0) normal, of mean 0 and standard deviation scale
        "uniform": between 0 and scale, as in the authors' programs, which makes every entry of W(0) positive
rise    the largest rise of the loss out of distribution between two descents, in units of |x|^2 / 2
"""

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

if TYPE_CHECKING:
    from saddlescope.flow import SymmetricFlows

VISIBLE = 0.01
"""Hysteresis, over the first loss, of visible descents: about the width of a line in the paper's figures."""

_EXACT = 1e-12  # tolerance at which counts above the number of concepts are repeated

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


def descent_counts(flows: "SymmetricFlows") -> np.ndarray:
    """Return the number of descents of every start at hysteresis 0, (starts,): falls between exact extrema."""
    return np.sum(np.diff(flows.turning_losses, axis=1) < 0, axis=1)


def verified_descent_counts(flows: "SymmetricFlows", starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count descents, and repeat counts above s, the number of concepts, at the lowest tolerance.

    Returns:
        The counts, (starts,), and the smallest rise where the count is still above s, otherwise 0.
    """
    from saddlescope.flow import symmetric_flows

    s, x = len(flows.strengths), flows.test_point
    counts, clear = descent_counts(flows), np.zeros(len(flows))
    above = np.flatnonzero(counts > s)
    if len(above):
        until = float(flows.times[-1])
        again = symmetric_flows(flows.strengths, starts[above], test_point=x, until=until, tolerance=_EXACT)
        counts[above] = descent_counts(again)
        steps = np.diff(again.turning_losses, axis=1)[:, 1:]  # after the first fall or rise
        smallest = np.where(steps > 0, steps, np.inf).min(axis=1) / (x @ x / 2)
        clear[above] = np.where(counts[above] > s, smallest, 0.0)
    return counts, clear


def largest_rises(flows: "SymmetricFlows") -> np.ndarray:
    """Return the largest rise between two descents of every start, (starts,); 0 with one descent."""
    steps = np.diff(flows.turning_losses, axis=1)
    before = np.cumsum(steps < 0, axis=1) > 0
    after = np.cumsum(steps[:, ::-1] < 0, axis=1)[:, ::-1] > 0
    between = np.where(before & after, np.maximum(steps, 0.0), 0.0)
    return between.max(axis=1) / (flows.test_point @ flows.test_point / 2)
