"""Stage times of deeper linear networks against gradient flow."""

import itertools

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope._shared.errors import InputError
from saddlescope.models import StructuredIdentityTask
from saddlescope.theory import aligned_time
from saddlescope.theory.concepts import concept_stages, deep_stages

FIGURE_8 = StructuredIdentityTask((1.0, 1.5, 2.2), (0.05,) * 3, 10, 3).strengths


def _start(scale, seed, depth, width=3, d=3):
    rng = np.random.default_rng(seed)
    widths = [d, *[width] * (depth - 1), d]
    return [scale * rng.standard_normal((out, into)) for into, out in itertools.pairwise(widths)]


def _product(layers):
    W = layers[0]
    for layer in layers[1:]:
        W = layer @ W
    return W


def _found(a, layers, end, rtol=1e-9):
    """Return the time at which each diagonal entry first passes 1/2, by the flow of the layers."""
    ends = np.cumsum([0, *(layer.size for layer in layers)])

    def unpacked(y):
        return [y[ends[n] : ends[n + 1]].reshape(layer.shape) for n, layer in enumerate(layers)]

    def velocity(_, y):
        now = unpacked(y)
        missing = (np.eye(len(a)) - _product(now)) * a
        slopes = []
        for n in range(len(now)):
            after = _product(now[n + 1 :]) if n + 1 < len(now) else np.eye(len(a))
            before = _product(now[:n]) if n else np.eye(len(a))
            slopes.append((after.T @ missing @ before.T).ravel())
        return np.concatenate(slopes)

    events = [lambda _, y, k=k: _product(unpacked(y))[k, k] - 0.5 for k in range(len(a))]
    start = np.concatenate([layer.ravel() for layer in layers])
    flow = solve_ivp(velocity, (0.0, end), start, method="LSODA", rtol=rtol, atol=1e-12, events=events)
    return np.array([times[0] if len(times) else np.inf for times in flow.t_events])


@pytest.mark.parametrize("depth", [2, 3, 4, 6])
def test_successive_elimination_is_the_aligned_case_on_diagonal_starts(depth):
    # The sizes are such that every concept is alone when it is learned, in the limit of small starts only.
    a, w = np.array([0.5, 1.0, 1.6]), np.array([1e-12, 3e-12, 9e-12])
    stages = deep_stages(a, [np.diag(w ** (1 / depth))] * depth)
    exact = [
        aligned_time(speed, depth=depth, initial=size ** (1 / depth), share=0.5, curvature=speed)
        for speed, size in zip(a.tolist(), w.tolist(), strict=True)
    ]
    np.testing.assert_allclose(stages.times, exact, rtol=1e-5)
    assert stages.order == (2, 1, 0)


@pytest.mark.parametrize(("depth", "scale", "within"), [(2, 0.01, 0.004), (3, 0.01, 0.004), (4, 0.03, 0.06)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_times_of_random_starts(depth, scale, within, seed):
    layers = _start(scale, seed, depth)
    stages = deep_stages(FIGURE_8, layers)
    found = _found(FIGURE_8, layers, 1.3 * stages.times.max())
    np.testing.assert_allclose(stages.times, found, rtol=within)
    assert stages.order == tuple(np.argsort(found))
    assert np.all((stages.alignments > 0) & (stages.alignments <= 1))


def test_depth_two_has_the_schur_complements_of_the_mean_of_both_layers():
    layers = _start(1e-4, 3, 2, width=5)
    mean = (layers[1] + layers[0].T) / 2
    np.testing.assert_allclose(deep_stages(FIGURE_8, layers).times, 2 * concept_stages(FIGURE_8, mean).times, rtol=1e-6)


def test_times_scale_as_the_power_of_the_scale_that_depth_gives():
    for depth in (3, 4):
        one, other = (deep_stages(FIGURE_8, _start(scale, 1, depth)).times for scale in (1e-5, 1e-6))
        np.testing.assert_allclose(other / one, 10.0 ** (depth - 2), rtol=1e-3)


def test_the_order_of_the_concepts_and_the_basis_of_the_neurons_do_not_matter():
    layers, order = _start(1e-3, 4, 3), [2, 0, 1]
    plain = deep_stages(FIGURE_8, layers)
    turned = deep_stages(FIGURE_8[order], [layers[0][:, order], layers[1], layers[2][order]])
    np.testing.assert_allclose(turned.times, plain.times[order], rtol=1e-7)
    Q, P = (np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))[0] for seed in (5, 6))
    rotated = deep_stages(FIGURE_8, [Q @ layers[0], P @ layers[1] @ Q.T, layers[2] @ P.T])
    np.testing.assert_allclose(rotated.times, plain.times, rtol=1e-7)


def test_a_narrow_network_learns_as_many_concepts_as_it_has_neurons():
    stages = deep_stages(FIGURE_8, _start(1e-3, 0, 3, width=2))
    assert np.isfinite(stages.times).sum() == 2
    assert len(stages.order) == 2
    assert stages.staircase.ranks == (0, 1, 2)
    left = [k for k in range(3) if k not in stages.order]
    np.testing.assert_allclose(stages.staircase.losses[-1], FIGURE_8[left].sum() / 2)


def test_directions_without_strength_are_never_learned():
    a = np.append(FIGURE_8, 0.0)
    layers = _start(1e-3, 1, 3, width=4, d=4)
    stages = deep_stages(a, layers)
    assert np.isinf(stages.times[3])
    np.testing.assert_allclose(stages.times[:3], _found(a, layers, 1.2 * stages.times[:3].max())[:3], rtol=0.01)


def test_a_weaker_concept_learned_first_is_forgotten_at_the_rate_predicted():
    a, gaps = np.array([0.75, 1.6]), []
    for noise in (1e-3, 1e-5):
        layers = [layer * noise + np.diag([0.1, 0.03]) for layer in _start(0.03, 2, 4, width=2, d=2)]
        stages = deep_stages(a, layers)
        assert stages.order == (0, 1)
        assert not stages.kept
        found = _found(a, layers, stages.times[0] + 60, rtol=1e-10)
        np.testing.assert_allclose(stages.times[0], found[0], rtol=0.01)
        gaps.append(found[1] - found[0])
    top = np.linalg.eigvalsh([[-a[0], a[1]], [a[1], -a[1]]])[-1]  # the rate of docs/concepts.md
    np.testing.assert_allclose(np.log(100) / (gaps[1] - gaps[0]), top, rtol=0.01)
    with pytest.raises(InputError, match="Concepts must be learned from the strongest on"):
        _ = stages.staircase
