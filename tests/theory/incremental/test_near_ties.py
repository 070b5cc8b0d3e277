"""Tied coordinates enter together, in proportions given by the initial weights; compared with the flow."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.flow import DiagonalInit, gradient_flow
from saddlescope.models import attention_head, attention_teacher_task, transformer_teacher_task
from saddlescope.theory import AlgorithmStatus, incremental_learning

LOG10 = math.log(10)


def _heads(seed, dim, heads):
    """The loss of several heads in one layer that learn one head's outputs, their number of coordinates, weights."""
    task = attention_teacher_task(seed, samples=60, tokens=5, dim=dim)

    def loss(beta):
        each = beta.reshape(heads, 2 * dim)
        out = jax.vmap(lambda x: sum(attention_head(x, each[h]) for h in range(heads)))(task.network.inputs)
        return jnp.mean((out - task.network.targets) ** 2)

    size = 2 * dim * heads
    return loss, size, tuple(np.random.default_rng(seed + 5).standard_normal((2, size)))


def _plateaus(learned):
    """Each stage with its end."""
    return zip(learned.stages, learned.ends, strict=True)


@pytest.fixture(scope="module")
def two_heads():
    loss, size, weights = _heads(1, 3, 2)
    return loss, weights, incremental_learning(loss, size, weights=weights)


def test_two_heads_enter_together_in_the_proportion_of_their_weights(two_heads):
    _, (u, v), learned = two_heads
    first = learned.stages[1]
    one, other = first.entered
    assert other == one + 6
    assert first.signs == (1, 1)
    expected = ((u[one] + v[one]) / (u[other] + v[other])) ** 2
    assert first.beta[one] / first.beta[other] == pytest.approx(expected, rel=1e-9)
    # What they add up to is what one head alone would learn.
    task = attention_teacher_task(1, samples=60, tokens=5, dim=3)
    alone = incremental_learning(task.network, 6, max_stages=1).stages[1]
    assert first.beta[one] + first.beta[other] == pytest.approx(alone.beta[one], rel=1e-9)
    # The loss is flat along their difference, but along their sum it is that of one head.
    assert first.curvature == 0.0
    assert first.convergence_rate == pytest.approx(alone.curvature, rel=1e-9)


def test_a_tie_is_broken_when_a_key_enters(two_heads):
    """From then on the heads differ, and the flow along the flat direction is part of the orbit."""
    _, _, learned = two_heads
    first, second = learned.stages[1:3]
    assert second.entered[0] % 6 < 3
    assert second.curvature > 0
    one, other = first.entered
    ratios = [stage.beta[other] / stage.beta[one] for stage in (first, second)]
    assert abs(ratios[0] - ratios[1]) >= 0.01


@pytest.mark.parametrize(("digits", "within"), [(64, 0.05), (256, 1e-3)])
def test_the_flow_of_two_heads_agrees(two_heads, digits, within):
    loss, weights, learned = two_heads
    start, until = DiagonalInit(*weights, log_scale=-digits * LOG10), 1.1 * learned.stages[-1].time
    middles = np.array([(stage.time + min(end, until)) / 2 for stage, end in _plateaus(learned)])
    flow = gradient_flow(loss, start, until=until, tolerance=1e-7, record=middles)
    for stage, beta in zip(learned.stages, flow(middles), strict=True):
        np.testing.assert_allclose(beta, stage.beta, atol=within)
    times = learned.times_at(start.log_scale)
    for k in range(1, 4):
        i, before, stage = learned.stages[k].entered[0], learned.stages[k - 1], learned.stages[k]
        assert flow(times[[k]])[0, i] == pytest.approx(stage.beta[i] / 2, rel=within)
        assert abs(learned.corrections[k] * before.gradient[i]) >= 0.03  # e-folds that the limit is off by


@pytest.mark.slow
def test_three_heads_stay_tied_in_pairs():
    """A key of one head enters: the values of the two others still have equal gradients."""
    loss, size, weights = _heads(1, 2, 3)
    learned = incremental_learning(loss, size, weights=weights, max_stages=3)
    assert len(learned.stages[1].entered) == 3
    late = -2500.0
    flow = gradient_flow(
        loss,
        DiagonalInit(*weights, log_scale=late),
        until=learned.end,
        tolerance=1e-7,
        record=np.linspace(0, learned.end, 9),
    )
    for stage, end in zip(learned.stages, learned.ends, strict=True):
        np.testing.assert_allclose(flow(np.array([(stage.time + end) / 2]))[0], stage.beta, atol=1e-3)


def test_independent_coordinates_that_tie_keep_their_own_times():
    """Equal gradients, nothing else in common: each is logistic, and the stage is where the first is half-way."""
    target, scale = np.array([2.0, -0.5, 1.0]), np.array([1.0, 4.0, 2.0])
    u, v = np.array([1.0, 0.3, -0.7]), np.array([0.4, 1.0, 0.2])

    def loss(beta):
        return jnp.sum(jnp.asarray(scale) * (beta - jnp.asarray(target)) ** 2) / 2

    learned = incremental_learning(loss, 3, weights=(u, v))
    assert [stage.entered for stage in learned.stages] == [(), (0, 1, 2)]
    assert learned.stages[1].signs == (1, -1, 1)
    np.testing.assert_allclose(learned.stages[1].beta, target, rtol=1e-12)
    R = np.log(((u + np.sign(target) * v) / 2) ** 2)
    assert learned.corrections[1] == pytest.approx(np.min((np.log(np.abs(target)) - R) / 4), abs=1e-5)
    settled = np.sign(target) * (np.log(np.abs(target)) - R) / 2
    np.testing.assert_allclose(learned.stages[1].correction.offset, settled, rtol=1e-12)


def test_mirrored_coordinates_share_what_they_learn():
    """L depends on beta_0 - beta_1 alone: they enter with opposite signs and keep their ratio."""
    u, v = np.array([1.0, 0.5]), np.array([0.3, -0.9])
    learned = incremental_learning(lambda beta: (beta[0] - beta[1] - 3.0) ** 2, 2, weights=(u, v))
    assert learned.status == AlgorithmStatus.CONVERGED
    stage = learned.stages[1]
    assert stage.signs == (1, -1)
    shares = np.array([(u[0] + v[0]) ** 2, (u[1] - v[1]) ** 2])
    np.testing.assert_allclose(stage.beta, 3 * shares / np.sum(shares) * np.array([1, -1]), rtol=1e-9)
    # The sum is logistic, half-way where e^{R + 12 C} = 3 with e^R = e^{R_0} + e^{R_1}.
    assert learned.corrections[1] == pytest.approx((math.log(3) - math.log(np.sum(shares) / 4)) / 12, abs=1e-6)


def test_coordinates_that_only_seem_tied_at_the_saddle_part_on_the_way():
    """Equal first and second derivatives at 0; the valley beta_0 + beta_1 = 1 has its lowest point at beta_0 = 0.3."""

    def loss(beta):
        return (beta[0] + beta[1] - 1) ** 2 + 0.3 * (beta[0] ** 4 - 0.4 * beta[0] ** 3)

    learned = incremental_learning(loss, 2, weights=(np.array([1.0, 0.3]), np.array([0.2, 0.1])))
    np.testing.assert_allclose(learned.stages[1].beta, [0.3, 0.7], rtol=1e-9)
    assert learned.stages[1].curvature == learned.stages[1].convergence_rate > 0


def test_a_path_dependent_tie_follows_the_weights():
    """Equal rates at the origin, but each slows the other down more than itself: whoever is ahead wins."""

    def loss(beta):
        return -beta[0] - beta[1] + (beta[0] ** 2 + beta[1] ** 2) / 2 + 2 * beta[0] * beta[1]

    for u, winner in (([1.0, 0.8], 0), ([0.8, 1.0], 1)):
        learned = incremental_learning(loss, 2, weights=(np.array(u), np.array([0.1, 0.1])))
        expected = np.zeros(2)
        expected[winner] = 1.0
        np.testing.assert_allclose(learned.stages[1].beta, expected, atol=1e-12)
        assert learned.stages[1].entered == (0, 1)
        assert learned.stages[1].left == ()
        assert learned.next == (1 - winner,)
        # The loser's slope was at the end already; now it travels all the way back.
        assert learned.end - learned.stages[1].time == pytest.approx(2.0, rel=1e-9)
        flow = gradient_flow(
            loss, DiagonalInit(np.array(u), np.array([0.1, 0.1]), log_scale=-500.0), until=2.0, tolerance=1e-7
        )
        np.testing.assert_allclose(flow.beta[-1], expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_two_layers_of_two_heads_are_followed_past_the_stages_whose_minimum_is_shallow(seed):
    """Orbits end in valleys a hundred times shallower than steep; what secants know of them is not enough."""
    task = transformer_teacher_task(seed, layers=2, heads=2, samples=200, tokens=5, dim=6, hidden=12)
    learned = incremental_learning(task.network, 48, weights=(task.u0, task.v0), max_stages=20)
    assert learned.status is AlgorithmStatus.MAX_STAGES
    assert all(b.loss < a.loss for a, b in zip(learned.stages, learned.stages[1:], strict=False))
