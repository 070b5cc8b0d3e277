"""Weights are ordered as the lemmas say, and the loss made for Lemma D.4 meets the assumptions."""

import numpy as np
from scipy.integrate import solve_ivp

from saddlescope.papers.gradual_rank.lemmas import _ordered, made_loss


def test_weights_are_ordered_as_in_appendix_c_3():
    u0, v0 = np.random.default_rng(0).standard_normal((2, 50))
    u, v = _ordered(u0, v0)
    assert (u > abs(v)).all()
    np.testing.assert_allclose(u * v, u0 * v0)


def test_the_made_loss_is_positive_and_its_second_entry_returns_without_this_packages_flow():
    """Positive, so that it is a squared error of a smooth h; from near (1, 0) an explicit solver ends at (3, 0)."""
    x, y = np.meshgrid(np.linspace(-30, 30, 601), np.linspace(-3000, 3000, 601))
    assert np.asarray(made_loss(np.stack([x, y]))).min() > 0

    def slope(t, state):
        (x, y), u, v = state[:2] * state[2:], state[:2], state[2:]
        g = -np.array([20 * (x - 1) * (x - 1.5) * (x - 3) + y * (6 * x - 11), 3 * x**2 - 11 * x + 7 + y])
        return np.concatenate([v * g, u * g])

    start = np.tile(np.sqrt([1.0, 1e-6]), 2)
    path = solve_ivp(slope, (0, 60), start, "DOP853", rtol=1e-10, atol=1e-14)
    beta = path.y[:2] * path.y[2:]
    assert beta[1].max() > 1
    np.testing.assert_allclose(beta[:, -1], [3, 0], atol=1e-6)
