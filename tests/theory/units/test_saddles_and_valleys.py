"""Units of degree above 2: the active ones go past saddles among them and into valleys without end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from tests.problems import eight_units, one_frequency, product, product_of_kind, tilting, two_sided

from saddlescope.flow import unit_flow
from saddlescope.papers.beyond.shared.units import half_square, quadratic_neuron
from saddlescope.theory import unit_learning
from saddlescope.theory.units import unit_network
from saddlescope.theory.units.superlinear_units import SuperlinearUnits
from saddlescope.theory.units.transition import Transition
from saddlescope.theory.units.unit_network import UnitNetwork

ONE_SAMPLE = np.ones(1), np.ones(1)


def kinked(theta, x):
    """As `tilting` for a > 0, with a kink at a = 0 that is not met."""
    return jnp.abs(theta[0]) * theta[0] * theta * x


def coordinate(theta, x, kind):
    return jnp.prod(theta) * jax.nn.one_hot(kind, 3) * x


def exponential(output, constant):
    return jnp.exp(-output) + constant


def valley(excess, f, y):
    """At the bottom f_0 is infinite, and the forces on units 1 and 2 are 1 and 1 + excess."""
    rest = jnp.exp(-f[0])
    return rest + (f[1] - 1 - rest) ** 2 / 2 + (f[2] - 1 - excess) ** 2 / 2


@pytest.mark.parametrize(
    ("unit", "b", "level"),
    [(tilting, 0.3, -8 / 3), (tilting, -0.3, -5 / 12), (tilting, 1e-3, -8 / 3), (kinked, -0.3, -5 / 12)],
)
def test_a_saddle_is_passed_on_the_side_of_the_initial_weights(unit, b, level):
    weights = np.array([[1.0, b]])
    learned = unit_learning(unit, ONE_SAMPLE, two_sided, parameters=np.zeros(2), weights=weights)
    assert [stage.passed for stage in learned.stages] == [False, True]
    np.testing.assert_allclose(learned.stages[1].loss, level, atol=1e-9)
    assert learned.stages[1].fall == 0
    run = unit_flow(unit, ONE_SAMPLE, two_sided, weights, degree=3.0, log_scale=np.log(1e-8), until=2.0, tolerance=1e-5)
    np.testing.assert_allclose(run.losses[-1], level, atol=1e-6)
    np.testing.assert_allclose(run.rises, learned.stages[1].time, rtol=1e-4)


@pytest.mark.parametrize("unit", [tilting, kinked])
def test_a_saddle_that_is_met_exactly_ends_the_prediction(unit):
    learned = unit_learning(unit, ONE_SAMPLE, two_sided, parameters=np.zeros(2), weights=np.array([[1.0, 0.0]]))
    assert (learned.status.value, len(learned.stages)) == ("saddle", 1)
    assert "a saddle among them" in learned.message


def test_the_last_deviation_is_what_decays_most_slowly():
    """Of (x^2 + 0.9 y^2 + 0.5 z^2) x the maximum is at (1, 0, 0), and y and z are left as 1.2 and 2 powers of 1 / x."""
    network = UnitNetwork.of(
        lambda theta, x: theta[0] * jnp.sum(jnp.array([1.0, 0.9, 0.5]) * theta**2) * x,
        ONE_SAMPLE, lambda f, y: (f - y) ** 2 / 2, np.zeros(3), 1, 0,
    )  # fmt: skip
    _, residual = network.origin
    units = SuperlinearUnits(network, np.array([[0.8, -0.4, 0.4]]), np.zeros(1, int), 1e-12)
    (arrival,) = units.arrivals(residual)
    approach = units.approach(arrival, residual)
    np.testing.assert_allclose(approach, [0.0, -1.0, 0.0], atol=2e-2)
    there = SuperlinearUnits(network, np.array([[1.0, 0.0, 0.0]]), np.zeros(1, int), 1e-12)
    assert there.approach(there.arrivals(residual)[0], residual) is None


@pytest.mark.parametrize(("excess", "ends"), [(1e-9, None), (1e-4, 2), (-1e-4, 1)])
def test_what_a_valley_still_moves_decides_no_order(excess, ends):
    """Where the valley is left, exp(-f_0) is 4e-9."""
    learned = unit_learning(
        coordinate, ONE_SAMPLE, Partial(valley, jnp.asarray(excess)), parameters=np.zeros(3),
        kinds=3, width=1, weights=np.array([1, 0.6, 0.75])[:, None] * np.ones((3, 3)), max_stages=2,
    )  # fmt: skip
    entered = [stage.entered for stage in learned.stages]
    assert entered == [None, 0] if ends is None else [None, 0, ends]
    assert learned.status.value == ("tie" if ends is None else "max_stages")


@pytest.mark.parametrize("constant", [0.0, -1e3])
def test_a_valley_ends_a_stage_near_its_bottom(constant):
    """Late in the valley of exp(-f), L = 1 / (t |grad f|^2) = -dL / dlog t."""
    data, weights = (np.ones(1), np.full(1, constant)), np.array([[0.5, 0.5, 0.5]])
    learned = unit_learning(product, data, exponential, parameters=np.zeros(3), weights=weights)
    assert learned.status.value == "converged"
    stage = learned.stages[1]
    left = stage.loss - constant
    assert 0 < left < 1e-3
    np.testing.assert_allclose(stage.fall, left, rtol=0.15)
    assert learned.stages[1].flat > 0


def test_a_saddle_not_yet_left_is_no_valley():
    network = UnitNetwork.of(tilting, ONE_SAMPLE, two_sided, np.zeros(2), 1, 0)
    path = Transition(network, np.ones((1, 2)), np.zeros(1, int), distance=1.0, rate=1.0, rotate=False)
    assert path._valley_at(np.array([[1.0, 1e-9]]), 1e5) is None


@pytest.mark.parametrize("until", [3.5, pytest.param(4.0, marks=pytest.mark.slow)])
def test_modular_addition_of_one_frequency_goes_past_a_saddle_of_four_units(until):
    """The levels of one, two and three quadratic units are 8/9, 5/9 and 1/3 of that at the origin."""
    learned = modular_addition(1, until)
    *first, valley = learned.staircase.losses[:5]
    np.testing.assert_allclose(first, [1 / 2, 4 / 9, 5 / 18, 1 / 6], atol=1e-6)
    assert 0 < valley - 0.0897 < 4 * learned.stages[4].fall  # the loss falls as the inverse root of time
    last = [(stage.passed, 0 <= stage.loss < 1e-4) for stage in learned.stages[5:]]
    assert last == ([(False, True)] if until == 4.0 else [])
    assert [stage.passed for stage in learned.stages[:5]] == [False, False, False, False, True]
    assert learned.stages[4].fall > 0
    assert learned.status.value == "until"


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "stages"), [(0, 5), (1, 4), (2, 5)])
def test_the_flow_of_modular_addition_approaches_the_prediction_as_alpha_vanishes(seed, stages):
    learned = modular_addition(seed, until=3.5)
    times = np.array(learned.staircase.times)
    errors = []
    for log10_scale in (-6.0, -8.0):
        run = unit_flow(
            quadratic_neuron, one_frequency(), half_square, eight_units(seed), degree=3.0,
            log_scale=log10_scale * np.log(10), until=1.2 * times[-1], tolerance=1e-6,
        )  # fmt: skip
        rises = np.sort(run.rises[np.isfinite(run.rises)])[:stages]
        errors.append(np.abs(rises / times - 1))
    assert len(times) == stages
    assert np.max(errors[1]) < 0.7 * np.max(errors[0])
    np.testing.assert_allclose(errors[1], 0.0, atol=0.015)


def test_stages_that_begin_too_late_are_not_computed():
    data, weights = (np.eye(2), np.array([2.0, 0.7])), np.array([[0.5, 0.5, 0.5], [0.8, 0.8, 0.8]])
    learned = unit_learning(
        product_of_kind, data, half_square,
        parameters=np.zeros(3), kinds=2, width=1, weights=weights, until=3.0,
    )  # fmt: skip
    assert (learned.status.value, len(learned.stages)) == ("until", 2)
    np.testing.assert_allclose(learned.end, 1 / (0.35 * 0.8), rtol=1e-8)
    assert f"T = {learned.end:.6g}, after until=3" in learned.message


def test_the_hessian_is_that_of_the_loss():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((5, 2)), rng.standard_normal((5, 3))
    unit = lambda theta, x: theta["out"] * jnp.tanh(theta["in"] @ x)  # noqa: E731
    network = UnitNetwork.of(
        unit, data, lambda f, y: jnp.sum(jnp.cosh(f - y)), {"in": np.zeros(2), "out": np.zeros(3)}, 1, 0
    )
    thetas, kinds = rng.standard_normal((3, 5)), np.zeros(3, int)
    plain = jax.hessian(lambda flat: network.system.loss_of(flat.reshape(3, 5), jnp.asarray(kinds)))(
        jnp.asarray(thetas).ravel()
    )
    by_columns = unit_network._hessian_by_columns(network.system, jnp.asarray(thetas), jnp.asarray(kinds))
    for found in (network.loss_hessian(thetas, kinds), by_columns):
        np.testing.assert_allclose(found, plain, atol=1e-12 * np.max(np.abs(plain)))


def modular_addition(seed, until):
    one = {name: np.zeros(2) for name in "uvw"}
    return unit_learning(
        quadratic_neuron, one_frequency(), half_square, parameters=one, weights=eight_units(seed), until=until
    )
