"""Algorithm 1 against rational arithmetic, closed forms and invariances, and how it ends."""

import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import problems, tolerances
from tests.references import greedy_exact

from saddlescope.models import attention_head, attention_teacher_task, diagonal_linear_network
from saddlescope.theory import AlgorithmStatus, incremental_learning


def _integer_problem(rng):
    p = int(rng.integers(1, 7))
    while True:
        X, y = rng.integers(-5, 6, (p + 2, p)), rng.integers(-9, 10, p + 2)
        if np.linalg.matrix_rank(X) == p:
            return X, y


def _exact(X, y):
    n = len(y)
    return greedy_exact(
        [[Fraction(2 * int(entry), n) for entry in row] for row in X.T @ X],
        [Fraction(2 * int(entry), n) for entry in X.T @ y],
    )


def _assert_agrees(learned, exact):
    stages, why = exact
    assert learned.status.value == why
    assert [stage.entered for stage in learned.stages] == [
        () if entered is None else (entered,) for _, entered, _ in stages
    ]
    for stage, (T, _, beta) in zip(learned.stages, stages, strict=True):
        assert stage.time == pytest.approx(float(T), rel=tolerances.GREEDY, abs=tolerances.GREEDY)
        assert np.max(np.abs(stage.beta - np.array(beta, dtype=float))) <= tolerances.GREEDY
        assert np.array_equal(stage.beta == 0, [value == 0 for value in beta])


@pytest.mark.parametrize(("count", "fewest_ties"), [(40, 0), pytest.param(300, 1, marks=pytest.mark.slow)])
def test_agrees_with_rational_arithmetic(count, fewest_ties):
    rng, leaving, ties = np.random.default_rng(0), 0, 0
    for _ in range(count):
        X, y = _integer_problem(rng)
        learned = incremental_learning(diagonal_linear_network(X.astype(float), y.astype(float)), X.shape[1])
        _assert_agrees(learned, _exact(X, y))
        leaving += any(stage.left for stage in learned.stages)
        ties += learned.status == AlgorithmStatus.TIE
    assert leaving >= 0.1 * count
    assert fewest_ties <= ties <= 0.05 * count


def test_a_coordinate_that_leaves_returns_with_the_other_sign():
    X = np.array(problems.RETURNING_FEATURES)
    y = X @ np.array(problems.RETURNING_TEACHER)
    learned = incremental_learning(diagonal_linear_network(X, y), 3)
    _assert_agrees(learned, _exact(X.astype(int), y.astype(int)))
    (left,) = (stage for stage in learned.stages if 0 in stage.left)
    entries = [stage for stage in learned.stages if stage.entered == (0,)]
    assert [stage.signs for stage in entries] == [(1,), (-1,)]
    assert left.slope[0] == 1.0  # it starts inward from where it was active
    assert left.gradient[0] < 0
    # From +1 to -1 its slope has to move by 2.
    moved = sum(
        stage.gradient[0] * (end - stage.time)
        for stage, end in zip(learned.stages, learned.ends, strict=True)
        if left.time <= stage.time < entries[1].time
    )
    assert moved == pytest.approx(-2.0, rel=1e-12)


def test_orthogonal_features_are_learned_at_the_inverse_of_their_gradients():
    scale, target = jnp.array([1.0, 3.0, 0.5, 2.0]), jnp.array([-2.0, 0.1, 5.0, -0.7])
    learned = incremental_learning(lambda beta: 0.5 * jnp.sum(scale * (beta - target) ** 2), 4)
    g = np.asarray(scale * target)
    order = np.argsort(1 / np.abs(g))
    assert [stage.entered for stage in learned.stages[1:]] == [(i,) for i in order.tolist()]
    np.testing.assert_allclose([stage.time for stage in learned.stages[1:]], 1 / np.abs(g)[order], rtol=1e-13)
    assert [stage.signs for stage in learned.stages[1:]] == [(s,) for s in np.sign(g)[order].tolist()]
    np.testing.assert_allclose(learned.stages[-1].beta, target, rtol=1e-13)
    # L(u, s u) = scale/2 (u^2 - t)^2: its second derivative at u^2 = t is 4 scale t, and c is half of that.
    curvatures = 2 * np.minimum.accumulate(np.abs(g)[order])
    np.testing.assert_allclose([stage.curvature for stage in learned.stages[1:]], curvatures, rtol=1e-12)
    expected = np.diff(1 / np.abs(g)[order])
    np.testing.assert_allclose([stage.margin for stage in learned.stages[1:-1]], expected, rtol=1e-12)
    assert [stage.runner_up for stage in learned.stages[1:]] == [*order[1:].tolist(), None]


def _stages(loss, size, **policies):
    learned = incremental_learning(loss, size, **policies)
    assert learned.status == AlgorithmStatus.CONVERGED
    return learned.stages


@pytest.fixture(scope="module")
def leaving():
    """A problem in which coordinates leave."""
    rng = np.random.default_rng(0)
    while True:
        X, y = _integer_problem(rng)
        if X.shape[1] == 5 and any(
            stage.left
            for stage in incremental_learning(diagonal_linear_network(X.astype(float), y.astype(float)), 5).stages
        ):
            return X.astype(float), y.astype(float)


def test_permuting_the_coordinates_permutes_the_stages(leaving):
    X, y = leaving
    order = np.array([3, 0, 4, 1, 2])
    for one, other in zip(
        _stages(diagonal_linear_network(X, y), 5),
        _stages(diagonal_linear_network(X[:, order], y), 5),
        strict=True,
    ):
        assert one.time == pytest.approx(other.time, rel=1e-12)
        np.testing.assert_allclose(one.beta[order], other.beta, atol=1e-12)
        np.testing.assert_allclose(one.slope[order], other.slope, atol=1e-12)
        assert one.entered == tuple(order[list(other.entered)].tolist())
        assert one.left == tuple(sorted(order[list(other.left)].tolist()))


def test_flipping_signs_of_features_flips_the_stages(leaving):
    X, y = leaving
    flips = np.array([1.0, -1.0, -1.0, 1.0, -1.0])
    for one, other in zip(
        _stages(diagonal_linear_network(X, y), 5), _stages(diagonal_linear_network(X * flips, y), 5), strict=True
    ):
        assert one.time == pytest.approx(other.time, rel=1e-12)
        np.testing.assert_allclose(one.beta * flips, other.beta, atol=1e-12)
        assert one.entered == other.entered
        assert one.signs == tuple(flips[i] * s for i, s in zip(one.entered, other.signs, strict=True))


@pytest.mark.parametrize("unit", [1e-9, 1e9, 1e22, 1e30])
def test_the_unit_of_beta_does_not_matter(leaving, unit):
    """beta in another unit: g is divided by it, so all times are multiplied by it."""
    X, y = leaving
    for one, other in zip(
        _stages(diagonal_linear_network(X, y), 5), _stages(diagonal_linear_network(X / unit, y), 5), strict=True
    ):
        assert other.time == pytest.approx(one.time * unit, rel=1e-12)
        np.testing.assert_allclose(other.beta / unit, one.beta, atol=1e-12)


def test_saddles_are_what_the_theory_says():
    task = attention_teacher_task(0, samples=50, tokens=4, dim=4)
    stages = _stages(task.network, 8)
    for before, stage in itertools.pairwise(stages):
        active = stage.beta != 0
        assert np.max(np.abs(stage.gradient[active])) <= 1e-13
        assert np.all(np.abs(stage.slope) <= 1 + 1e-12)
        assert np.array_equal(stage.slope[active], np.sign(stage.beta[active]))
        assert set(stage.support) <= set(before.support) | set(stage.entered)
        assert set(before.support) - set(stage.support) == set(stage.left)
        assert np.all(stage.slope[list(stage.left)] * stage.gradient[list(stage.left)] < 0)  # Lemma D.4
        assert stage.loss < before.loss
        assert stage.time > before.time
        assert stage.curvature > 0


def test_fewer_stages_are_a_prefix():
    task = attention_teacher_task(2, samples=50, tokens=4, dim=3)
    whole = incremental_learning(task.network, 6)
    part = incremental_learning(task.network, 6, max_stages=3)
    assert part.status == AlgorithmStatus.MAX_STAGES
    assert len(part.stages) == 4
    assert part.end == whole.stages[4].time
    assert part.next == whole.stages[4].entered
    assert all(np.array_equal(one.beta, other.beta) for one, other in zip(part.stages, whole.stages[:4], strict=True))


def _assert_learns_the_teacher(task):
    size = len(task.teacher)
    learned = incremental_learning(task.network, size)
    assert learned.status == AlgorithmStatus.CONVERGED
    assert size <= len(learned.stages) - 1 <= size + 2
    assert np.max(np.abs(learned.stages[-1].beta - task.teacher)) <= tolerances.TEACHER


def test_an_attention_head_learns_its_teacher():
    _assert_learns_the_teacher(attention_teacher_task(1, samples=100, tokens=5, dim=8))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_the_paper_s_attention_heads_learn_their_teachers(seed):
    _assert_learns_the_teacher(attention_teacher_task(seed))


# How it ends


def test_two_heads_of_a_layer_tie():
    task = attention_teacher_task(0, samples=50, tokens=4, dim=3)

    def two_heads(beta):
        outputs = jax.vmap(lambda x: attention_head(x, beta[:6]) + attention_head(x, beta[6:]))(task.network.inputs)
        return jnp.mean((outputs - task.network.targets) ** 2)

    learned = incremental_learning(two_heads, 12)
    assert learned.status == AlgorithmStatus.TIE
    assert len(learned.stages) == 1
    one, other = learned.next
    assert other == one + 6
    assert "Assumption 4.3" in learned.message
    assert "weights=(u0, v0)" in learned.message
    assert f"{one}, {other}" in learned.message
    assert learned.end == pytest.approx(1 / np.max(np.abs(learned.stages[0].gradient)), rel=1e-14)


def test_a_flat_origin_is_never_left():
    learned = incremental_learning(lambda beta: (beta[0] * beta[1] - 1) ** 2, 2)
    assert learned.status == AlgorithmStatus.CONVERGED
    assert len(learned.stages) == 1
    assert math.isinf(learned.end)
    assert "origin" in learned.message


@pytest.mark.parametrize(
    ("loss", "size"),
    [
        (lambda beta: jnp.abs(beta[0] - 1.0), 1),
        (lambda beta: jnp.mean(jnp.abs(jnp.array([[1.0, 2], [3, 1]]) @ beta - 1)), 2),
    ],
)
def test_a_minimum_on_a_kink_away_from_0_is_named(loss, size):
    learned = incremental_learning(loss, size)
    assert learned.status == AlgorithmStatus.NO_MINIMUM
    assert "has a kink" in learned.message


def test_a_gradient_below_the_tolerance_is_not_said_to_be_0():
    loss = lambda beta: 0.5 * (1e12 * beta[0] - 1) ** 2 + 0.5 * (beta[1] - 1) ** 2  # noqa: E731
    learned = incremental_learning(loss, 2, tolerance=1e-11)
    assert (learned.status, len(learned.stages)) == (AlgorithmStatus.CONVERGED, 2)
    assert learned.message.startswith("No coordinate outside the support has a gradient above 10,")
