"""Deep linear networks: best fits by another algorithm, saddles by their definition, times by integrating the flow."""

import itertools

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.theory.deep_linear import aligned_time, deep_linear_stages

DRAW = np.random.default_rng(0)
X = np.diag([2.0, 1.0, 0.5, 1.5]) @ DRAW.standard_normal((4, 30))
T = DRAW.standard_normal((3, 4)) @ X + 0.3 * DRAW.standard_normal((3, 30))
STAGES = deep_linear_stages(X.T, T.T)


def loss(W):
    return np.sum((W @ X - T) ** 2) / (2 * X.shape[1])


def test_levels_are_losses_of_the_products():
    assert STAGES.ranks == (0, 1, 2, 3)
    for rank in STAGES.ranks:
        W = STAGES.product(rank)
        assert np.linalg.matrix_rank(W) == rank
        assert STAGES.losses[rank] == pytest.approx(loss(W), rel=1e-12)
    np.testing.assert_allclose(STAGES.product(3), np.linalg.lstsq(X.T, T.T, rcond=None)[0].T, atol=1e-12)
    assert np.all(np.diff(STAGES.losses) < 0)


def test_speeds_are_norms_of_what_is_left_to_learn():
    for rank in STAGES.ranks:
        left = (STAGES.product(rank) @ X - T) @ X.T / X.shape[1]
        assert STAGES.speeds[rank] == pytest.approx(np.linalg.norm(left, 2), rel=1e-10, abs=1e-12)
    assert STAGES.speeds[-1] == 0.0


@pytest.mark.parametrize("learned", [s for k in range(4) for s in itertools.combinations(range(3), k)])
def test_every_set_of_directions_is_a_saddle(learned):
    U = STAGES.directions[:, list(learned)]
    W = U @ U.T @ STAGES.regression
    left = (W @ X - T) @ X.T  # its gradient vanishes on the range and on the row space of W
    assert np.abs(W.T @ left).max() < 1e-11
    assert np.abs(left @ W.T).max() < 1e-11
    assert loss(W) >= STAGES.losses[len(learned)] - 1e-12


def test_narrow_networks_stop_at_their_width():
    narrow = deep_linear_stages(X.T, T.T, width=2)
    np.testing.assert_allclose(narrow.losses, STAGES.losses[:3], rtol=1e-12)
    np.testing.assert_allclose(narrow.speeds[:2], STAGES.speeds[:2], rtol=1e-12)
    assert narrow.speeds[2] == 0.0
    np.testing.assert_array_equal(deep_linear_stages(X.T, T.T, width=9).losses, STAGES.losses)


def test_bases_and_copies_of_the_data_do_not_matter():
    Q, R = (np.linalg.qr(DRAW.standard_normal((n, n)))[0] for n in (4, 3))
    for inputs, targets in ((Q @ X, R @ T), (np.hstack([X, X]), np.hstack([T, T]))):
        other = deep_linear_stages(inputs.T, targets.T)
        np.testing.assert_allclose(other.losses, STAGES.losses, rtol=1e-12)
        np.testing.assert_allclose(other.speeds, STAGES.speeds, rtol=1e-9, atol=1e-12)
    scaled = deep_linear_stages(3.0 * X.T, 2.0 * T.T)
    np.testing.assert_allclose(scaled.losses, 4.0 * STAGES.losses, rtol=1e-12)
    np.testing.assert_allclose(scaled.speeds, 6.0 * STAGES.speeds, rtol=1e-12, atol=1e-12)


def test_few_samples_and_dependent_inputs():
    few = deep_linear_stages(X[:, :2].T, T[:, :2].T)
    assert few.ranks == (0, 1, 2)
    assert few.losses[-1] == pytest.approx(0.0, abs=1e-20)
    doubled = deep_linear_stages(np.vstack([X, X[:1] + X[1:2]]).T, T.T)
    np.testing.assert_allclose(doubled.losses, STAGES.losses, rtol=1e-10)


@pytest.mark.parametrize("depth", [2, 3])
def test_aligned_networks_drop_half_way_at_the_times_reported(depth):
    """All weights of a network on white data, integrated: its loss is half-way from stage to stage when theory says."""
    samples, initial = 4, 0.05
    white = 2.0 * np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0][:3]  # X X^T / N = 1
    U, V = (np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))[0] for seed in (2, 3))
    targets = U @ np.diag([4.0, 1.5, 0.0]) @ V.T @ white
    reported = deep_linear_stages(white.T, targets.T)
    inner = [np.linalg.qr(np.random.default_rng(10 + layer).standard_normal((3, 3)))[0] for layer in range(1, depth)]
    frames = [V, *inner, U]
    start = np.array([initial * left @ right.T for right, left in itertools.pairwise(frames)])

    def residual(weights):
        product = white
        for weight in weights:
            product = weight @ product
        return product - targets

    def slope(_, flat):
        weights = flat.reshape(start.shape)
        gradients = []
        for layer in range(depth):
            above, below = np.eye(3), white
            for weight in weights[:layer]:
                below = weight @ below
            for weight in weights[layer + 1 :]:
                above = weight @ above
            gradients.append(-above.T @ residual(weights) @ below.T / samples)
        return np.array(gradients).ravel()

    times = [aligned_time(reported.speeds[k], depth=depth, initial=initial, share=1 - np.sqrt(0.5)) for k in range(2)]
    flow = solve_ivp(slope, (0, times[-1]), start.ravel(), t_eval=times, method="LSODA", rtol=1e-10, atol=1e-12)
    for k, weights in enumerate(flow.y.T):
        now = np.sum(residual(weights.reshape(start.shape)) ** 2) / (2 * samples)
        strengths = np.array([4.0, 1.5])
        learned = np.array([_share(s, depth, initial, times[k]) for s in strengths])
        unlearnable = initial ** (2 * depth) / 2  # at most what the third direction, of strength 0, adds
        assert now == pytest.approx(np.sum(strengths**2 * (1 - learned) ** 2) / 2, rel=1e-7, abs=unlearnable)
        assert learned[k] == pytest.approx(1 - np.sqrt(0.5), rel=1e-8)


def _share(speed, depth, initial, time):
    """The share of its final value that a direction has learned by a time, by bisection of `aligned_time`."""
    low, high = initial**depth / speed, 1 - 1e-15
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if aligned_time(speed, depth=depth, initial=initial, share=middle) < time else (low, middle)
        )
    return low
