"""The greedy prediction for full weights: closed forms, diagonal problems in any basis, the flow as alpha vanishes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import problems, tolerances
from tests.problems import fit

from saddlescope._shared.errors import InputError
from saddlescope.flow import FactorInit, factored_flow
from saddlescope.models import full_attention_teacher_task
from saddlescope.theory import incremental_learning, low_rank_learning


@pytest.mark.parametrize("factor", [1.0, 1e20, 1e-20])
def test_a_force_that_cancels_on_the_data_is_none(factor):
    """An even target has no linear part: X^T y = 0 but for rounding."""
    X = np.random.default_rng(0).standard_normal((50, 2))
    X = np.concatenate([X, -X])
    y = np.abs(X[:, 0]) - 0.3
    assert 0 < np.max(np.abs(X.T @ y)) < 1e-13
    for learned in (
        incremental_learning(lambda beta: factor * jnp.mean((X @ beta - y) ** 2), 2),
        low_rank_learning(lambda B: factor * jnp.mean((X @ B[0][:, 0] - y) ** 2), [(2, 1)]),
    ):
        assert (learned.status.value, len(learned.stages)) == ("converged", 1)


def rotations(size, seed=5):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(np.linalg.qr(rng.standard_normal((size, size)))[0]) for _ in range(2)]


@pytest.mark.parametrize(("m", "n", "width"), [(4, 4, None), (5, 3, None), (3, 5, 2)])
def test_whitened_linear_networks_learn_singular_directions_at_one_over_sigma(m, n, width):
    target = jnp.asarray(np.random.default_rng(0).standard_normal((m, n)))
    U, s, Vt = np.linalg.svd(target)
    learned = low_rank_learning(fit(target), [(m, n)], width=width)
    rank = width or len(s)
    assert learned.status.value == "converged"
    assert [stage.ranks for stage in learned.stages] == [(k,) for k in range(rank + 1)]
    np.testing.assert_allclose([stage.time for stage in learned.stages[1:]], 1 / s[:rank], rtol=tolerances.GREEDY)
    last = learned.stages[-1]
    np.testing.assert_allclose(last.products[0], (U[:, :rank] * s[:rank]) @ Vt[:rank], atol=1e-9)
    np.testing.assert_allclose(last.loss, 0.5 * np.sum(s[rank:] ** 2), atol=1e-14)
    assert learned.staircase.ranks == tuple(range(rank + 1))


def returning(P, Q):
    X, teacher = jnp.asarray(problems.RETURNING_FEATURES), jnp.asarray(problems.RETURNING_TEACHER)

    def along(beta):
        return jnp.mean((X @ (beta - teacher)) ** 2)

    def loss(B):
        inside = P.T @ B[0] @ Q
        diagonal = jnp.diag(inside)
        return along(diagonal) + 3.0 * jnp.sum((inside - jnp.diag(diagonal)) ** 2)

    return along, loss


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_diagonal_problems_in_any_basis_are_those_of_algorithm_1_also_where_ranks_fall(decay):
    """A direction that leaves and returns with the other sign: pairing is by direction, not in sorted order."""
    P, Q = rotations(3)
    along, loss = returning(P, Q)
    greedy = incremental_learning(along, 3, weight_decay=decay)
    learned = low_rank_learning(loss, [(3, 3)], weight_decay=decay)
    np.testing.assert_allclose(learned.staircase.losses, greedy.staircase.losses, atol=1e-12)
    np.testing.assert_allclose(
        [stage.time for stage in learned.stages], [stage.time for stage in greedy.stages], rtol=1e-9
    )
    assert [stage.rank_drops[0] for stage in learned.stages] == [len(stage.left) for stage in greedy.stages]
    assert sum(stage.rank_drops[0] for stage in learned.stages) == 1
    for mine, theirs in zip(learned.stages, greedy.stages, strict=True):
        np.testing.assert_allclose(P.T @ mine.products[0] @ Q, np.diag(theirs.beta), atol=1e-8)


@pytest.fixture(scope="module")
def attention():
    task = full_attention_teacher_task(3, samples=40, tokens=4, dim=4, rank=2)
    return task, low_rank_learning(task.network, [(4, 4)] * 2)


def test_a_saddle_has_no_force_on_its_active_directions_and_exponents_between_0_and_1(attention):
    task, learned = attention
    assert learned.stages[-1].loss < 1e-25
    for stage in learned.stages:
        slopes = task.network.value_and_gradient(tuple(map(jnp.asarray, stage.products)))[1]
        for p, (G, B) in enumerate(zip(map(np.asarray, slopes), stage.products, strict=True)):
            U, s, Vt = np.linalg.svd(B)
            k = stage.ranks[p]
            np.testing.assert_allclose(s[:k], stage.singular_values[p], atol=1e-12)
            assert s[k:].max(initial=0.0) < 1e-12
            assert max(np.abs(U[:, :k].T @ G).max(initial=0.0), np.abs(G @ Vt[:k].T).max(initial=0.0)) < 1e-8
            assert stage.exponents[p].max() < 1
            np.testing.assert_allclose(np.linalg.svd(G)[1][: 4 - k], stage.rates[p], atol=1e-8)


def test_the_new_direction_is_the_top_pair_and_its_exponent_has_just_reached_1(attention):
    _, learned = attention
    for before, after in zip(learned.stages[:-1], learned.stages[1:], strict=True):
        (p,) = after.entered
        rate, start = before.rates[p][0], before.exponents[p][0]
        np.testing.assert_allclose(start + rate * (after.time - before.time), 1, rtol=1e-12)
        assert after.ranks[p] == before.ranks[p] + 1


def test_keys_and_queries_have_not_grown_before_values(attention):
    _, learned = attention
    assert learned.stages[1].entered == (1,)
    np.testing.assert_allclose(learned.stages[1].exponents[0], 0, atol=1e-12)
    assert learned.stages[1].time == pytest.approx(1 / learned.stages[0].rates[1][0])


@pytest.mark.slow
def test_the_flow_of_full_weights_converges_to_it_as_one_over_log_alpha(attention):
    task, learned = attention
    stages = learned.stages[1:4]
    levels = np.full((2, 4), 1e9)
    where = tuple(np.array([(p, stage.ranks[p] - 1) for stage in stages for p in stage.entered]).T)
    levels[where] = [stage.singular_values[p][i] / 2 for stage, p, i in zip(stages, *where, strict=True)]
    predicted = np.array([stage.time for stage in stages])
    constants = []
    for power in (-64, -256):
        log = -power * np.log(10)
        trajectory = factored_flow(
            task.network, FactorInit(pairs=task.pairs, log_scale=-log), until=1.1 * predicted[-1], tolerance=1e-5
        )
        constants.append((trajectory.rises(levels)[where] - predicted) * log)
    np.testing.assert_allclose(constants[0], constants[1], atol=0.15)
    assert np.abs(constants).max() < 5


def test_stages_can_be_limited_and_are_reported(attention):
    task, learned = attention
    heard = []
    some = low_rank_learning(
        task.network, [(4, 4)] * 2, max_stages=2, report=lambda fraction, note: heard.append((fraction, note))
    )
    assert some.status.value == "max_stages"
    assert [stage.time for stage in some.stages] == [stage.time for stage in learned.stages[:3]]
    assert some.end == learned.stages[3].time
    assert [fraction for fraction, _ in heard] == [0.5, 1.0]


def test_two_directions_at_the_same_time_are_a_tie():
    target = jnp.diag(jnp.array([2.0, 2.0, 1.0]))
    learned = low_rank_learning(fit(target), [(3, 3)])
    assert (learned.status.value, learned.end, len(learned.stages)) == ("tie", 0.5, 1)


def test_given_weights_decide_a_tie_at_the_origin():
    """The flow keeps the direction that the weights have in the plane of equal singular values."""
    target = jnp.diag(jnp.array([2.0, 2.0, 1.0]))
    u, v = np.array([[0.3], [1.0], [-0.5]]), np.array([[0.9], [-0.2], [2.0]])
    learned = low_rank_learning(fit(target), [(3, 3)], weights=[(u, v)])
    along = np.append((u + v)[:2, 0], 0.0)
    assert (learned.status.value, learned.stages[1].entered, learned.stages[1].time) == ("converged", (0,), 0.5)
    expected = 2 * np.outer(along, along) / (along @ along)
    np.testing.assert_allclose(learned.stages[1].products[0], expected, atol=1e-9)


def test_products_that_tie_enter_together():
    targets = [jnp.diag(jnp.array([2.0, 1.0])), jnp.diag(jnp.array([2.0, 0.5]))]
    weights = [np.random.default_rng(p).standard_normal((2, 2, 2)) for p in range(2)]
    learned = low_rank_learning(
        lambda B: 0.5 * sum(jnp.sum((b - t) ** 2) for b, t in zip(B, targets, strict=True)),
        [(2, 2)] * 2,
        weights=[(left, right) for left, right in weights],
    )
    assert [stage.entered for stage in learned.stages] == [(), (0, 1), (0,), (1,)]
    np.testing.assert_allclose([stage.time for stage in learned.stages], [0.0, 0.5, 1.0, 2.0], rtol=1e-9)
    np.testing.assert_allclose(learned.staircase.losses, [4.625, 0.625, 0.125, 0.0], atol=1e-12)


def test_equal_weights_of_a_symmetric_loss_are_symmetric_factors():
    target, left = jnp.diag(jnp.array([2.0, -3.0])), np.random.default_rng(0).standard_normal((2, 2))
    found, declared = (
        low_rank_learning(fit(target), [(2, 2)], **more) for more in ({"weights": [(left, left)]}, {"symmetric": True})
    )
    assert found.staircase.times == declared.staircase.times == (0.5,)
    assert found.staircase.losses[-1] == pytest.approx(4.5)


TARGET = jnp.diag(jnp.array([2.0, 1.0]))


@pytest.mark.parametrize(
    ("loss", "status", "says"),
    [
        (lambda B: jnp.sum(jnp.exp(-B[0])), "no_minimum", "Assumption 4.4"),
        (lambda B: jnp.sum(jax.nn.softplus(-TARGET.diagonal() * jnp.diag(B[0]))), "no_minimum", "at infinity"),
        (lambda B: -jnp.exp(B[0][0, 0]), "no_minimum", "without bound"),
        (lambda B: -B[0][0, 0] - jnp.sum(B[0] ** 3), "no_minimum", "without bound"),
        (lambda B: jnp.sum((jnp.exp(B[0]) - 1 - 1e-12 * TARGET) ** 2), "no_minimum", "expm1"),
        (lambda B: jnp.sum(jnp.where(B[0] > 0.5, jnp.nan, (B[0] - 1) ** 2)), "not_finite", "logarithm"),
        (lambda B: jnp.sqrt(1.2 - B[0][0, 0]), "not_finite", "root"),
    ],
)
def test_a_transition_that_ends_at_no_minimum_names_the_reason(loss, status, says):
    learned = low_rank_learning(loss, [(2, 2)])
    assert (learned.status.value, len(learned.stages)) == (status, 1)
    assert says in learned.message


def test_separable_cross_entropy_has_a_first_stage_and_no_minimum():
    X, labels = jnp.diag(jnp.array([3.0, 2.0, 1.0])), np.arange(3)

    def loss(B):
        return -jnp.mean(jax.nn.log_softmax(X @ B[0].T)[labels, labels])

    force = -jax.grad(loss)((jnp.zeros((3, 3)),))[0]
    learned = low_rank_learning(loss, [(3, 3)])
    assert learned.status.value == "no_minimum"
    assert learned.end == pytest.approx(1 / np.linalg.norm(force, 2), rel=1e-12)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_the_unit_of_products_is_that_of_times(unit):
    target = np.array([[2.0, 1.0], [0.5, -1.0]])
    learned = low_rank_learning(lambda B: jnp.sum((B[0] / unit - target) ** 2) / 2, [(2, 2)])
    np.testing.assert_allclose(learned.staircase.times, unit / np.linalg.svd(target)[1], rtol=1e-9)
    np.testing.assert_allclose(learned.stages[-1].products[0] / unit, target, atol=1e-9)


@pytest.mark.parametrize("constant", [-2.5, 1e16])
def test_a_constant_in_the_loss_changes_no_stage(constant):
    """An energy with L(0) = 0 falls below 0; a large constant hides all falls in rounding."""

    def loss(B):
        return constant - jnp.trace(TARGET @ B[0]) + jnp.sum(B[0] ** 2) / 2

    assert low_rank_learning(loss, [(2, 2)]).staircase.times == pytest.approx((0.5, 1.0))
    diagonal = incremental_learning(lambda beta: loss((jnp.diag(beta),)), 2)
    assert diagonal.staircase.times == pytest.approx((0.5, 1.0))


def test_equal_weights_of_a_loss_that_is_symmetric_only_near_0_are_not_taken_for_symmetric_factors():
    target, W = jnp.array([[2.0, 1.0], [1.0, 1.5]]), np.random.default_rng(0).standard_normal((2, 2))

    def loss(B):
        return jnp.sum((B[0] - target) ** 2) / 2 + B[0][0, 1] ** 4 / 2

    learned = low_rank_learning(loss, [(2, 2)], weights=[(W, W)])
    assert learned.status.value == "converged"
    slope = jax.grad(loss)((jnp.asarray(learned.stages[-1].products[0]),))[0]
    np.testing.assert_allclose(slope, 0.0, atol=1e-8)
    with pytest.raises(InputError, match="symmetric gradients at symmetric products"):
        low_rank_learning(loss, [(2, 2)], symmetric=True)


def test_weights_that_lack_a_tied_direction_are_told_so():
    target, U = jnp.diag(jnp.array([2.0, 2.0, 2.0, 1.0])), np.random.default_rng(0).standard_normal((4, 3))
    U[:, 2] = U[:, 0]
    learned = low_rank_learning(fit(target), [(4, 4)], weights=[(U, U)])
    assert learned.status.value == "tie"
    assert "fewer independent columns" in learned.message
