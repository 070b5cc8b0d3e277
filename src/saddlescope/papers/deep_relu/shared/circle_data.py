"""The data of Example 1: points on the unit circle with loss gradients of alternating sign."""

import math

import numpy as np


def alternating_circle(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return X (2, N), x_j = (sin, cos)(2 pi j / N), and G (1, N), G_j = (-1)^j, j = 1..N; Example 1 has N = 8."""
    j = np.arange(1, samples + 1)
    angle = 2 * np.pi * j / samples
    return np.stack([np.sin(angle), np.cos(angle)]).T, ((-1.0) ** j)[:, None]


def rank_one_optimum(samples: int) -> float:
    """Return the exact largest speed with layers of rank one, for even N >= 4: tan(pi/N) if 4 divides N, else 0.

    With relu(t) = (t + |t|) / 2 and sum_j G_j x_j = 0, the speed of a neuron is |sum_j G_j |v.x_j|| / 2. If N/2 is odd,
    G changes sign between antipodes, and the sum is 0. If it is even it is a geometric series, largest on the lines
    v.x_j = 0.
    """
    return math.tan(math.pi / samples) if samples % 4 == 0 else 0.0


def depth_three_optimum(samples: int) -> float:
    """Return 1 / (1 + cot(2 pi/N)) for N a multiple of 4: read off certified values, not proven."""
    return 1 / (1 + 1 / math.tan(2 * math.pi / samples))
