"""Stages of products of three and more factors, for any loss, from given weights."""

import functools
import itertools
import math

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

import saddlescope as ss
from saddlescope import InputError
from saddlescope.theory import low_rank_learning

TARGET = np.diag([3.0, 2.0, 1.0]) @ np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0][:3]
METRIC = np.diag([2.0, 1.0, 0.7, 1.5]) + 0.2


def correlated(B):
    """Return the loss of a linear map on inputs that are not white, where directions turn from stage to stage."""
    return jnp.trace((B[0] - TARGET) @ METRIC @ (B[0] - TARGET).T) / 2


def chain(depth, *, m=3, n=4, h=4, seed=1):
    sizes = [n, *[h] * (depth - 1), m]
    draw = np.random.default_rng(seed).standard_normal
    return [draw((over, under)) / np.sqrt(h) for under, over in itertools.pairwise(sizes)]


@pytest.mark.parametrize("depth", [3, 4])
def test_times_and_levels_are_those_of_gradient_flow_as_the_scale_falls(depth):
    """SciPy follows all weights, by JAX's gradient of the loss of the factors."""
    start, errors = chain(depth), []
    learned = low_rank_learning(correlated, [(3, 4)], depth=depth, weights=[start])
    assert (learned.status, [one.ranks for one in learned.stages]) == ("converged", [(k,) for k in range(4)])
    levels, predicted = [one.loss for one in learned.stages], np.array([one.time for one in learned.stages[1:]])
    first, factors = jax.flatten_util.ravel_pytree(start)

    @jax.jit
    def loss_and_slope(x):
        loss = lambda x: correlated([functools.reduce(lambda B, W: W @ B, factors(x))])  # noqa: E731
        return loss(x), -jax.grad(loss)(x)

    for alpha in (1e-2, 1e-3):
        unit = alpha ** (2 - depth)
        events = [lambda _, x, k=k: float(loss_and_slope(x)[0]) - np.mean(levels[k : k + 2]) for k in range(3)]
        span = (0.0, 1.1 * unit * predicted[-1])
        run = solve_ivp(
            lambda _, x: np.asarray(loss_and_slope(x)[1]),
            span,
            alpha * np.asarray(first),
            "LSODA",
            rtol=1e-9,
            atol=1e-12,
            events=events,
        )
        errors.append(np.abs(np.array([t[0] for t in run.t_events]) / unit / predicted - 1))
    assert np.max(errors[0]) < 0.1
    assert np.max(errors[1]) < 0.02
    assert np.max(errors[1]) < np.max(errors[0]) / 5


def test_a_product_of_scalars_grows_at_the_time_of_its_integral():
    """The squares of the factors keep their differences."""
    w, slope = (0.3, -0.7, 1.1), -2.0
    learned = low_rank_learning(
        lambda B: (slope + B[0][0, 0]) ** 2 / 2, [(1, 1)], depth=3, weights=[[[[x]] for x in w]]
    )
    # The smallest factor passes 0, since its product with the others has the wrong sign.
    others = [x**2 - w[0] ** 2 for x in w[1:]]
    speed = lambda x: -slope * math.sqrt((x**2 + others[0]) * (x**2 + others[1]))  # noqa: E731
    time = quad(lambda x: 1 / speed(x), -0.3, np.inf, epsabs=1e-13)[0]
    np.testing.assert_allclose([one.time for one in learned.stages], [0.0, time], rtol=1e-9)
    np.testing.assert_allclose(learned.stages[1].products[0], 2.0, rtol=1e-12)


def test_products_grow_each_by_its_own_weights():
    """Two products, of which neither enters the other's force: one prediction is the union of two."""
    targets, starts = (TARGET[:2, :2], 0.5 * TARGET[1:, 2:]), (chain(3, m=2, n=2, h=2), chain(3, m=2, n=2, h=2, seed=2))
    starts = (starts[0], [1e-4 * W for W in starts[1]])  # each has its own unit
    losses = [lambda B, k=k, A=A: jnp.sum((B[k] - A) ** 2) / 2 for k, A in enumerate(targets)]
    both = low_rank_learning(lambda B: losses[0](B) + losses[1](B), [(2, 2), (2, 2)], depth=3, weights=starts)
    alone = [
        low_rank_learning(lambda B, A=A: jnp.sum((B[0] - A) ** 2) / 2, [A.shape], depth=3, weights=[W])
        for A, W in zip(targets, starts, strict=True)
    ]
    expected = sorted((stage.time, p) for p, one in enumerate(alone) for stage in one.stages[1:])
    np.testing.assert_allclose([one.time for one in both.stages[1:]], [time for time, _ in expected], rtol=1e-6)
    assert [one.entered for one in both.stages[1:]] == [(p,) for _, p in expected]
    assert both.stages[0].margin == math.inf
    np.testing.assert_allclose(both.stages[1].margin, abs(np.diff([one.stages[1].time for one in alone])))


def test_units_of_weights_and_losses_change_times_alone():
    start, factor = chain(3), 1e-30
    one, other = (
        low_rank_learning(lambda B, f=f: f * correlated(B), [(3, 4)], depth=3, weights=[[f * W for W in start]])
        for f in (1.0, factor)
    )
    np.testing.assert_allclose([s.time * factor**2 for s in other.stages], [s.time for s in one.stages], rtol=1e-6)
    np.testing.assert_allclose([s.loss / factor for s in other.stages], [s.loss for s in one.stages], atol=1e-9)


def test_equal_and_missing_weights_end_with_the_reason():
    white, eye = lambda B: jnp.sum((B[0] - 2 * jnp.eye(3)) ** 2), np.eye(3)

    def end(*weights):
        learned = low_rank_learning(white, [(3, 3)], depth=3, weights=[weights])
        return len(learned.stages), learned.status.value, learned.message

    for weights, stages, status, said in (
        ((eye, eye, eye), 1, "tie", "several directions blow up together"),
        ((-eye, eye, eye), 1, "tie", "rounding decides whether they grow again"),
        ((np.ones((2, 3)), np.ones((2, 2)), np.ones((3, 2))), 2, "converged", "have nothing along them"),
        (chain(3, m=3, n=3, h=3), 4, "converged", "or all are active"),  # equal rates, told apart by the weights
        (chain(3, m=3, n=3, h=2), 3, "converged", "or all are active"),
    ):
        found = end(*weights)
        assert found[:2] == (stages, status)
        assert said in found[2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"depth": 1}, "depth must be at least 2"),
        ({"symmetric": True}, "symmetric and weight_decay must be off"),
        ({"weight_decay": 0.1}, "symmetric and weight_decay must be off"),
        ({"weights": None}, "weights must be given"),
        ({"weights": [chain(2)]}, "weights must hold W_1, ..., W_3"),
        ({"weights": [[*chain(3)[:2], np.full((3, 4), np.nan)]]}, "weights must be finite"),
        ({"weights": [[*chain(3)[:2], "no"]]}, "weights must be a sequence"),
        ({"width": 2}, "width must be the smallest of the weights, 4"),
    ],
)
def test_what_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        low_rank_learning(correlated, [(3, 4)], **{"depth": 3, "weights": [chain(3)]} | options)


def test_the_front_door_predicts_and_simulates():
    predicted = ss.predict(lambda B: jnp.sum((B[0] - TARGET[:2, :2]) ** 2) / 2, shapes=[(2, 2)], depth=3)
    assert predicted.result.time_unit == "t alpha^1"
    run = ss.simulate(predicted, log_scale=math.log(1e-2))
    with pytest.raises(InputError, match=r"Rescale one of them by Staircase\.rescaled"):
        ss.compare(predicted, run)
    result = ss.compare(predicted.staircase.rescaled(1e2, "t"), run)
    assert (len(result.matches), result.missed, result.extra) == (2, (), ())
    assert max(map(abs, result.time_errors)) < 0.1
    assert max(map(abs, result.loss_errors)) < 1e-3
