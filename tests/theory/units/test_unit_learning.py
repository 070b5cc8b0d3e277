"""Greedy stages of sums of units: closed forms of diagonal, linear, ReLU and cubic units, and every status."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from tests.problems import neuron, product, product_of_kind

from saddlescope._shared.errors import InputError
from saddlescope.flow import unit_flow
from saddlescope.papers.beyond.shared.units import coordinate, half_square, linear_neuron, relu_neuron
from saddlescope.theory import incremental_learning, low_rank_learning, unit_learning
from saddlescope.theory.units.explicit_path import Limits
from saddlescope.theory.units.unit_network import UnitNetwork

ORTHOGONAL = np.linalg.qr(np.random.default_rng(7).standard_normal((20, 4)))[0] * np.sqrt(20)


def regression(seed, p=5):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12, p)) @ (np.eye(p) + 0.4 * rng.standard_normal((p, p)))
    return X, X @ (2 * rng.standard_normal(p))


@pytest.mark.parametrize("seed", [0, 1])  # in seed 1 a coordinate leaves and returns with the other sign
def test_diagonal_networks_have_the_stages_of_algorithm_1(seed):
    X, Y = regression(seed)
    learned = unit_learning(coordinate, (X, Y), half_square, parameters=np.zeros(2), kinds=5, width=1)
    greedy = incremental_learning(lambda beta: 0.5 * jnp.mean((jnp.asarray(X) @ beta - Y) ** 2), 5)
    assert (learned.degree, learned.status.value) == (2.0, greedy.status.value)
    times = [(one.time, other.time) for one, other in zip(learned.stages, greedy.stages, strict=True)]
    np.testing.assert_allclose(*np.transpose(times), rtol=1e-9)
    np.testing.assert_allclose(learned.staircase.losses, greedy.staircase.losses, atol=1e-9)
    assert learned.staircase.supports == greedy.staircase.supports
    assert [stage.left for stage in learned.stages] == [len(stage.left) for stage in greedy.stages]
    assert sum(stage.left for stage in learned.stages) == seed
    margins = [(one.margin, other.margin) for one, other in zip(learned.stages, greedy.stages, strict=True)]
    np.testing.assert_allclose(*np.transpose(margins), rtol=1e-9)


@pytest.mark.parametrize("width", [None, 2])
def test_linear_networks_learn_singular_modes_in_order(width):
    target = np.random.default_rng(3).standard_normal((4, 3))
    s = np.linalg.svd(target)[1][: width or 3]
    parameters = {"in": np.zeros(4), "out": np.zeros(3)}
    data = (ORTHOGONAL, ORTHOGONAL @ target)
    learned = unit_learning(linear_neuron, data, half_square, parameters=parameters, width=width)
    assert learned.status.value == "converged"
    np.testing.assert_allclose(learned.staircase.times, 1 / s, rtol=1e-8)
    levels = [0.5 * (np.sum(target**2) - np.sum(s[:k] ** 2)) for k in range(len(s) + 1)]
    np.testing.assert_allclose(learned.staircase.losses, levels, atol=1e-8)
    assert learned.staircase.ranks == tuple(range(len(s) + 1))
    learned_map = sum(np.outer(theta[:4], theta[4:]) for theta in learned.stages[-1].thetas)
    U, full, Vt = np.linalg.svd(target, full_matrices=False)
    np.testing.assert_allclose(learned_map, (U[:, : len(s)] * full[: len(s)]) @ Vt[: len(s)], atol=1e-8)


BLOCKS = {
    3: lambda theta, x: theta[0] @ theta[1] @ theta[2],
    4: lambda theta, x: theta[0] @ theta[1] @ theta[2] @ theta[3],
}


@pytest.mark.parametrize("depth", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("second", "status"), [(1.0, "unstable"), (0.0, "converged")])
def test_a_unit_that_is_learned_in_part_has_not_converged(depth, second, status):
    """One product of matrices: its second singular value grows by the order of the depth, later; symmetries do not."""
    data = np.zeros((1, 1)), np.diag([2.0, second])[None]
    weights = np.random.default_rng(3).standard_normal((1, depth, 2, 2))
    learned = unit_learning(
        BLOCKS[depth], data, lambda f, y: jnp.sum((f - y) ** 2) / 2, parameters=weights[0], weights=weights
    )
    assert (learned.status.value, len(learned.stages)) == (status, 2)
    assert ("still at the initial scale" in learned.message) == (status == "unstable")
    np.testing.assert_allclose(learned.stages[-1].loss, second**2 / 2, atol=1e-9)


def test_explicit_steps_follow_the_flow_to_their_tolerance():
    data, parameters = (np.eye(3), np.array([2.0, 1.0, 1.5])), np.zeros(2)
    network = UnitNetwork.of(coordinate, data, half_square, parameters, 3, 0)
    start = np.array([[0.02, 0.01], [0.01, 0.03], [0.05, 0.05]])
    limits = Limits(rate=0.5, tolerance=1e-6, absolute=1e-8, slow=0.1, asleep=1e-3, largest=1e8, horizon=1e9, steps=500)
    end = network.explicit_path(start, np.arange(3), limits)
    slope = lambda t, y: -network.loss_gradient(y.reshape(3, 2), np.arange(3))[1].ravel()  # noqa: E731
    path = solve_ivp(slope, (0, end.time), start.ravel(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(end.thetas.ravel(), path.y[:, -1], atol=1e-5)
    speeds = np.linalg.norm([slope(0, y) for y in path.y.T], axis=1)
    assert end.slow
    assert speeds[-1] <= 0.1 * np.max(speeds) * 1.001
    np.testing.assert_allclose(end.fastest, np.max(speeds), rtol=0.05)
    stopped = network.explicit_path(start, np.arange(3), limits._replace(steps=3))
    assert not stopped.slow
    assert stopped.time < end.time


def test_memory_that_scipy_never_sets_does_not_warn(monkeypatch):
    monkeypatch.setattr("saddlescope.theory.units.transition.MOST", 0)
    signaling = lambda shape, dtype: np.full(shape, 0x7FF0000000000001, np.uint64).view(dtype)  # noqa: E731
    monkeypatch.setattr("scipy.integrate._ivp.bdf.np", SimpleNamespace(**vars(np) | {"empty": signaling}))
    target = np.random.default_rng(3).standard_normal((4, 3))
    parameters = {"in": np.zeros(4), "out": np.zeros(3)}
    learned = unit_learning(linear_neuron, (ORTHOGONAL, ORTHOGONAL @ target), half_square, parameters=parameters)
    assert learned.status.value == "converged"


class _Quadratic(UnitNetwork):
    """A network of one unit whose loss is quadratic, with its minimum at 1."""

    hessian: np.ndarray

    def __init__(self, hessian):
        object.__setattr__(self, "hessian", hessian)

    def loss_gradient(self, thetas, kinds):
        return 0.0, (thetas - 1) @ self.hessian

    def loss_hessian(self, thetas, kinds):
        return self.hessian


@pytest.mark.parametrize(("curvature", "minimum"), [(5e-7, True), (1e-9, True), (-1e-9, True), (-5e-7, False)])
def test_a_slight_descent_direction_is_not_taken_for_a_flat_one(curvature, minimum):
    network = _Quadratic(np.diag([1.0, curvature]))
    found = network.stationary_near(np.array([[1.01, 1.0]]), np.zeros(1, int), minimum=True)
    assert (found is not None) == minimum


def test_linear_networks_on_correlated_inputs_have_the_stages_of_full_weights():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((15, 3)) @ np.diag([1.0, 1.5, 0.6]) @ rng.standard_normal((3, 3))
    Y = X @ rng.standard_normal((3, 2))
    learned = unit_learning(linear_neuron, (X, Y), half_square, parameters={"in": np.zeros(3), "out": np.zeros(2)})
    full = low_rank_learning(lambda B: 0.5 * jnp.mean(jnp.sum((jnp.asarray(X) @ B[0] - Y) ** 2, 1)), [(3, 2)])
    np.testing.assert_allclose(learned.staircase.times, full.staircase.times, rtol=1e-8)
    np.testing.assert_allclose(learned.staircase.losses, full.staircase.losses, atol=1e-8)


def test_cubic_units_blow_up_at_one_over_rate_and_start():
    """For abc = f(1) from a = b = c = w: da/dt = r a^2, so T = 1 / (r w) in t alpha."""
    data = (np.eye(2), np.array([2.0, 0.7]))
    weights = np.array([[0.5, 0.5, 0.5], [0.8, 0.8, 0.8]])
    learned = unit_learning(
        product_of_kind, data, half_square, parameters=np.zeros(3), kinds=2, width=1, weights=weights
    )
    assert (learned.degree, learned.time_unit, learned.status.value) == (3.0, "t alpha^1", "converged")
    np.testing.assert_allclose(learned.staircase.times, [1 / (1.0 * 0.5), 1 / (0.35 * 0.8)], rtol=1e-8)
    np.testing.assert_allclose(learned.staircase.losses, [(4 + 0.49) / 4, 0.49 / 4, 0], atol=1e-8)
    assert learned.staircase.supports == ((), (0,), (0, 1))


def test_targets_of_sizes_far_apart_have_their_stages():
    data = np.eye(2), np.array([10.0, 1e-2])
    found = unit_learning(product_of_kind, data, half_square, parameters=jnp.zeros(4), kinds=2, width=1)
    assert (found.status.value, len(found.stages)) == ("converged", 3)


def test_a_unit_whose_direction_still_drifts_becomes_active():
    """Maxima of (x^2 + (1 - 1e-6) y^2) z are nearly a circle, along which directions drift for 1e6 e-folds."""
    data = (np.ones((1, 1)), np.array([[1.0, 1.0 - 1e-6]]))
    learned = unit_learning(
        lambda theta, x: theta[:2] ** 2 * theta[2] * x[0], data, half_square, parameters=np.zeros(3),
        weights=np.array([[0.8, 0.6, 0.7]]),
    )  # fmt: skip
    assert (learned.degree, len(learned.stages), learned.status.value) == (3.0, 2, "converged")
    np.testing.assert_allclose(learned.staircase.losses, [0.5 * (1 + (1 - 1e-6) ** 2), 0.0], atol=1e-12)


def test_a_unit_smooth_at_the_origin_counts_by_its_leading_part():
    data = (np.eye(2), np.array([[1.5, 0.0], [0.0, 0.5]]))
    learned = unit_learning(
        lambda theta, x: theta["out"] * jnp.tanh(theta["in"] @ x), data, half_square,
        parameters={"in": np.zeros(2), "out": np.zeros(2)},
    )  # fmt: skip
    assert (learned.degree, learned.status.value, len(learned.stages)) == (2.0, "unstable", 2)
    assert "separate from each other" in learned.message
    np.testing.assert_allclose(learned.stages[1].time, 2 / 1.5, rtol=1e-8)


def test_every_end_is_one_sentence_with_the_stages_found_so_far():
    parameters = {"in": np.zeros(2), "out": np.zeros(2)}

    def ends(Y, **given):
        return unit_learning(
            linear_neuron, (np.eye(2), np.asarray(Y, float)), half_square, parameters=parameters, **given
        )

    nothing = ends(np.zeros((2, 2)))
    assert (nothing.status.value, len(nothing.stages)) == ("no_utility", 1)
    assert "nothing will ever be learned" in nothing.message
    assert ends(np.eye(2)).status.value == "degenerate"
    data = (np.eye(2), np.array([1.0, 1.0]))
    tied = unit_learning(coordinate, data, half_square, parameters=np.zeros(2), kinds=2, width=1)
    assert (tied.status.value, tied.end) == ("tie", 2.0)
    unbounded = unit_learning(
        linear_neuron, (np.eye(2), np.eye(2)), lambda f, y: jnp.sum(jnp.exp(-f)) + 0 * jnp.sum(y), parameters=parameters
    )
    assert unbounded.status.value == "no_minimum"
    assert "minimum at infinity" in unbounded.message
    broken = unit_learning(
        linear_neuron, (np.eye(2), np.diag([2.0, 1.0])),
        lambda f, y: jnp.where(jnp.sum(f) > 1, jnp.nan, half_square(f, y)), parameters=parameters,
    )  # fmt: skip
    assert (broken.status.value, len(broken.stages)) == ("not_finite", 1)


def gated(theta, x):
    value, out, key, query = theta
    return value * out * (x[0] + jnp.sinh(key * query) * x[1])  # of degree 2 at the origin, by two weights


@pytest.mark.parametrize("seed", [0, 1])
def test_weights_still_dormant_in_a_unit_do_not_grow_from_rounding(seed):
    X = np.random.default_rng(0).standard_normal((40, 2))
    y = 2 * (X[:, 0] + 6 * X[:, 1])
    learned = unit_learning(gated, (X, y), half_square, parameters=np.zeros(4), width=1, seed=seed)
    plateau = (np.mean(y**2) - np.mean(X[:, 0] * y) ** 2 / np.mean(X[:, 0] ** 2)) / 2
    assert (learned.status.value, len(learned.stages)) == ("saddle", 1)
    assert f"a saddle among them, of loss {plateau:.6g}" in learned.message


def test_near_ties_at_a_finite_scale():
    data = (np.eye(2), np.diag([2.0, 1.9]))
    learned = unit_learning(linear_neuron, data, half_square, parameters={"in": np.zeros(2), "out": np.zeros(2)})
    (order,) = [tie for tie in learned.near_ties(-10.0) if tie.kind == "order"]
    assert order.stage == 1
    np.testing.assert_allclose(order.efolds, 10 * 0.95 * (2 / 1.9 - 1), rtol=1e-9)
    assert not [tie for tie in learned.near_ties(-1000.0) if tie.kind == "order"]
    with pytest.raises(InputError, match="log_scale"):
        learned.near_ties(0.5)


def test_a_tie_of_units_with_the_same_leading_part_belongs_to_the_unit():
    """The advice helps: one unit is followed to a stationary point, and unit_flow follows all from given weights."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    data = X, np.tanh(X @ np.array([1.0, 0.5, -0.3])) + 0.3 * X[:, 0] ** 2
    unit, parameters = neuron(jax.nn.gelu), {"a": np.zeros(()), "w": np.zeros(3)}
    learned = unit_learning(unit, data, half_square, parameters=parameters)
    assert learned.status.value == "tie"
    assert "theta and -theta of a GELU or swish unit" in learned.message
    assert "Break the symmetry" not in learned.message
    alone = unit_learning(unit, data, half_square, parameters=parameters, width=1)
    assert (alone.status.value, alone.stages[-1].active) == ("converged", 1)
    weights = {"a": alone.stages[-1].thetas[:, :1].ravel(), "w": alone.stages[-1].thetas[:, 1:]}
    run = unit_flow(unit, data, half_square, weights, degree=2.0, log_scale=-400.0, until=6.0, tolerance=1e-6)
    np.testing.assert_allclose(run.losses[-1], alone.stages[-1].loss, atol=1e-6)
    np.testing.assert_allclose(run.rises, alone.stages[-1].time, rtol=0.02)


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda f, y: (f - y) ** 4 / 4, "the loss is flat"),
        (lambda f, y: jnp.exp(-f * y), "minimum at infinity"),
    ],
)
def test_one_unit_that_finds_no_minimum_names_the_reason(loss, says):
    learned = unit_learning(product, (np.ones(1), np.ones(1)), loss, parameters=np.zeros(2))
    assert learned.status.value == "no_minimum"
    assert says in learned.message


def test_a_tie_of_the_data_is_named_as_such():
    data = np.eye(2), np.array([1.0, 1.0])
    unit = lambda theta, x, kind: theta[0] * jnp.tanh(theta[1] * x[kind])  # noqa: E731
    learned = unit_learning(unit, data, half_square, parameters=np.zeros(2), kinds=2, width=1)
    assert learned.status.value == "tie"
    assert "Break the symmetry of the data" in learned.message


@pytest.mark.parametrize("unit", [1.0, 1e-30, 1e30])
def test_targets_of_any_size_have_their_stages(unit):
    y = unit * np.array([1.0, -0.5])
    learned = unit_learning(relu_neuron, (np.eye(2), y), half_square, parameters={"w": np.zeros(2), "a": np.zeros(())})
    assert (learned.degree, learned.status.value) == (2.0, "converged")
    np.testing.assert_allclose(np.array(learned.staircase.losses) / unit**2, [0.3125, 0.0625, 0.0], atol=1e-8)
