"""Flow of sums of units: closed forms, the flow of the plain weights, and the prediction as alpha vanishes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from tests.problems import eight_units, one_frequency, product, tilting

from saddlescope.flow import FlowError, unit_flow
from saddlescope.flow.units.twin_flow import come_apart
from saddlescope.papers.beyond.shared.units import coordinate, half_square, quadratic_neuron, relu_neuron
from saddlescope.theory import unit_learning

LABELS = np.array([1.2, -0.5, 0.7, -1.0])
TIMES = np.linspace(0, 10, 101)


def apart(output, target):
    return 0.5 * (output[0] - 1) ** 2 + 0.25 * (output[1] ** 2 - 1) ** 2


def neurons(seed):
    rng = np.random.default_rng(seed)
    return {"a": np.array([1.0, -1.0]), "w": np.abs(rng.standard_normal((2, 4))) + 0.2}


def test_from_moderate_weights_it_is_the_flow_of_the_weights():
    start = neurons(0)
    run = unit_flow(
        relu_neuron, (np.eye(4), LABELS), half_square, start, degree=2.0, log_scale=-1.0, until=9.0, tolerance=1e-8
    )

    def slope(t, flat):
        w, a = flat[:8].reshape(2, 4), flat[8:]
        hidden = np.maximum(w, 0)  # on samples that are unit vectors
        r = (LABELS - a @ hidden) / 4
        return np.concatenate([(a[:, None] * (w > 0) * r).ravel(), hidden @ r])

    flat = np.concatenate([start["w"].ravel(), start["a"]]) * np.exp(-1.0)
    end = solve_ivp(slope, (0, 9.0), flat, rtol=1e-11, atol=1e-12).y[:, -1]
    thetas = run.norms[-1][:, None] * run.directions[-1]  # leaves in the order of their names: a, w
    np.testing.assert_allclose(thetas[:, 0], end[8:], atol=1e-6)
    np.testing.assert_allclose(thetas[:, 1:], end[:8].reshape(2, 4), atol=1e-6)


def test_cubic_units_pass_any_level_at_the_time_of_their_closed_form():
    """For abc = f(1) from a = b = c = alpha: da/dt = a^2 (y - a^3) is a^2 y as long as a is small."""
    run = unit_flow(
        product, (np.ones(1), np.ones(1)), half_square, np.ones((1, 3)),
        degree=3.0, log_scale=np.log(1e-9), until=2.0, tolerance=1e-9, level=1e-3 * np.sqrt(3),
    )  # fmt: skip
    np.testing.assert_allclose(run.rises, 1 - 1e-9 / 1e-3, atol=1e-8)
    np.testing.assert_allclose(run.losses[-1], 0, atol=1e-12)


def test_units_of_degree_four_grow_from_norms_whose_gradient_underflows():
    """For abcd = f(1) from alpha: da/dt = a^3 as long as a is small, so a = alpha / sqrt(1 - 2 T)."""
    run = unit_flow(
        product, (np.ones(1), np.ones(1)), half_square, np.ones((1, 4)),
        degree=4.0, log_scale=np.log(1e-150), until=0.45, tolerance=1e-8,
    )  # fmt: skip
    np.testing.assert_allclose(run.log_norms[-1] - run.log_norms[0], 0.5 * np.log(10), atol=1e-7)


def test_a_unit_that_decays_below_the_least_number_stops_no_other():
    """Of two coordinates of one teacher, the second decays once the first has learned it."""
    data = np.array([[1.0, 0.8], [0.0, 0.6]]), np.array([1.0, -0.3])
    ends = [
        unit_flow(
            coordinate, data, half_square, np.ones((2, 2)),
            degree=2.0, log_scale=log_scale, until=60.0, tolerance=1e-7, kinds=np.arange(2),
        )
        for log_scale in (-50.0, -650.0)
    ]  # fmt: skip
    assert ends[1].log_norms[-1].min() < -745  # below the least positive number
    np.testing.assert_allclose(ends[1].losses[-1], ends[0].losses[-1], rtol=1e-6)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-5, 1e-7])
def test_active_units_leave_a_saddle_among_them_when_deviations_below_the_tolerance_have_grown(tolerance):
    """One unit (a, b) rests at (1, 0), from which b grows as exp(t): an implicit step shrinks such a b instead."""
    first = np.array([1.0, 1e-9])
    run = unit_flow(
        lambda theta, x: theta[0] * theta * x, (np.ones(1), np.ones(1)), apart, np.e * first[None],
        degree=2.0, log_scale=-1.0, until=40.0, tolerance=tolerance,
    )  # fmt: skip

    def slope(t, y):
        p, q = y[0] ** 2 - 1, y[0] * y[1]
        force = (q**2 - 1) * q
        return np.array([-2 * p * y[0] - force * y[1], -force * y[0]])

    exact = solve_ivp(slope, (0, 40.0), first, "DOP853", t_eval=run.times, rtol=1e-12, atol=1e-15).y.T
    np.testing.assert_allclose(run.norms[:, 0, None] * run.directions[:, 0], exact, atol=max(2e-3, 20 * tolerance))


@pytest.mark.parametrize(("b", "level"), [(0.1, 0.0), (0.0, 0.25)])
def test_active_units_leave_a_saddle_unless_they_are_exactly_on_it(b, level):
    """The unit (a, b) leaves the saddle (1, 0) in a time t of 100, 1e-8 of T."""
    run = unit_flow(
        tilting, (np.ones(1), np.ones(1)), apart, np.array([[1.0, b]]),
        degree=3.0, log_scale=np.log(1e-10), until=1.0, tolerance=1e-5, max_evaluations=30_000,
    )  # fmt: skip
    np.testing.assert_allclose(run.losses[-1], level, atol=1e-8)


@pytest.mark.parametrize("power", [-3, -8])
@pytest.mark.parametrize(("b", "code"), [(1e-3, "reached"), (0.0, "undecided")])
def test_a_flow_ends_where_rounding_decides_how_active_units_leave_a_saddle(b, code, power):
    """The same in turned weights, in which no entry of the deviation is 0 exactly."""
    turn = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
    run = unit_flow(
        lambda theta, x: (turn[:, 0] @ theta) ** 2 * theta * x, (np.ones(1), np.ones(1)),
        lambda f, y: apart(turn.T @ f, y), np.array([1.0, b])[None] @ turn.T,
        degree=3.0, log_scale=power * np.log(10), until=1.0, tolerance=1e-5, throw=False,
    )  # fmt: skip
    assert run.status.code == code
    assert run.losses[-1] < 1e-8 if code == "reached" else run.losses[-1] > 0.25 - 1e-4


def test_a_scale_whose_changes_take_no_time_is_one_sentence():
    with pytest.raises(FlowError, match=r"T = 0\.33.* a time that rounds to none of T.*larger scale"):
        unit_flow(
            tilting, (np.ones(1), np.ones(1)), apart, np.array([[1.0, 0.1]]),
            degree=3.0, log_scale=np.log(1e-20), until=1.0, tolerance=1e-5,
        )  # fmt: skip


@pytest.mark.slow
def test_stages_after_a_saddle_of_four_units_do_not_depend_on_the_tolerance():
    """The fifth unit of one frequency of modular addition, from 1e-8."""
    last = [
        np.nanmax(
            unit_flow(
                quadratic_neuron, one_frequency(), half_square, eight_units(0),
                degree=3.0, log_scale=np.log(1e-8), until=3.0, tolerance=tolerance,
            ).rises
        )
        for tolerance in (1e-5, 1e-7, 1e-9)
    ]  # fmt: skip
    np.testing.assert_allclose(last[:2], last[2], rtol=1e-4)


@pytest.mark.parametrize("seed", range(2))
def test_the_error_of_the_prediction_falls_as_one_over_log_alpha(seed):
    start = neurons(seed)
    parameters = {"a": np.zeros(()), "w": np.zeros(4)}
    learned = unit_learning(relu_neuron, (np.eye(4), LABELS), half_square, parameters=parameters, weights=start)
    logs, errors, lowest = np.log(10) * np.array([8.0, 25.0, 100.0]), [], np.inf
    for log in logs:
        run = unit_flow(
            relu_neuron, (np.eye(4), LABELS), half_square, start, degree=2.0, log_scale=-log, until=4.5, tolerance=1e-6
        )
        lowest = run.losses[-1]
        errors.append(np.abs(np.sort(run.rises) - learned.staircase.times))
    slopes = np.polyfit(np.log(logs), np.log(errors), 1)[0]
    np.testing.assert_allclose(slopes, -1, atol=0.1)
    np.testing.assert_allclose(lowest, learned.stages[-1].loss, atol=1e-8)


@pytest.mark.parametrize(("power", "tolerance", "code"), [(-6, 1e-6, "undecided"), (-3, 1e-8, "reached")])
def test_parts_of_a_unit_below_the_tolerance_come_in_time_or_end_the_flow(power, tolerance, code):
    """The second block of W_3 W_2 W_1 stays at the initial scale in a unit that is learned; T by SciPy's LSODA.

    Twins are .027 apart at 1e-6, and 8e-6 at 1e-3.
    """
    weights = np.random.default_rng(3).standard_normal((1, 3, 2, 2))
    data = np.zeros((1, 1)), np.diag([2.0, 1.0])[None]
    run = unit_flow(
        lambda theta, x: theta[0] @ theta[1] @ theta[2], data, lambda f, y: jnp.sum((f - y) ** 2) / 2, weights,
        degree=3.0, log_scale=power * np.log(10), until=1.8, tolerance=tolerance,
        record=np.linspace(0, 1.8, 1801), throw=False,
    )  # fmt: skip
    assert run.status.code == code
    if code == "reached":
        np.testing.assert_allclose(run.times[np.argmax(run.losses < 0.25)], 1.61182, rtol=1e-3)


def test_dead_units_have_no_degree():
    relu = lambda theta, x: theta[0] * jax.nn.relu(theta[1] * x)  # noqa: E731
    data = np.array([1.0, 2.0]), np.array([1.0, 2.0])
    run = unit_flow(
        relu, data, lambda f, y: (f - y) ** 2, np.array([[1.0, -0.5], [0.3, -2.0]]),
        degree=2.0, log_scale=-50.0, until=1.0, tolerance=1e-4,
    )  # fmt: skip
    assert run.losses[-1] == run.losses[0]


@pytest.mark.parametrize(
    ("change", "known"),
    [
        (lambda one: one, 101),
        (lambda one: np.roll(one, 1), 101),  # later, by less than one record
        (lambda one: np.roll(one, 2), 31),  # by more than the root of the tolerance
        (lambda one: np.where(TIMES < 6, one, -one), 60),  # elsewhere for good
        (lambda one: np.where((TIMES > 4.05) & (TIMES < 4.75), 1 - one, one), 41),  # too long for a passage
        (lambda one: np.where(TIMES < 10, one, 0.5 * one), 100),  # elsewhere at the end
        (lambda one: one + 0.05, 101),  # less than the fourth root of the tolerance
    ],
)
def test_twins_may_be_apart_for_a_moment(change, known):
    one = 1 / (1 + np.exp(-50 * (TIMES - 3.05)))
    assert come_apart(TIMES, one[:, None], change(one)[:, None], 1e-4) == known
