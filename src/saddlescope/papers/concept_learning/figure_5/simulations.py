"""Starts of the entry `figure_5`: the one with the largest rise, and statistics of random ones."""

from typing import Any

import numpy as np

LAWS = ("normal", "positive")


def start_of_largest_rise(params: Any, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the start of a small batch whose loss rises most."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    starts = params.bound * np.random.default_rng(params.seed).random((params.batch, 2, 2))
    flows = symmetric_flows(a, starts, test_point=x, until=params.until, tolerance=1e-8)
    return starts[int(np.argmax(find_descents(flows.turning_losses).rises[:, 1:].sum(axis=1)))]


def random_rises(params: Any, a: np.ndarray, x: np.ndarray, law: str, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rise between two descents over each first loss, and where w_12(0) is positive, (starts,) each."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    rng = np.random.default_rng([params.seed, LAWS.index(law), params.scales.index(scale)])
    size = (params.starts, 2, 2)
    starts = scale * rng.standard_normal(size) if law == "normal" else 2 * scale * rng.random(size)
    flows = symmetric_flows(a, starts, test_point=x, until=params.until, tolerance=1e-8)
    found = find_descents(flows.turning_losses)
    return found.rises[:, 1:].sum(axis=1) / flows.losses[:, 0], flows.W[:, 0, 0, 1] > 0
