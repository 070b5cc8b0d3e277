"""Directions that rest where they have become unstable: flows end, unless their deviation is known."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.flow import FlowError, unit_flow
from saddlescope.papers.beyond.shared.units import coordinate, half_square, linear_neuron

STRENGTHS = np.array([2.0, 1.0])  # modes of a linear network on white inputs


def follow(log_scale, until, tolerance, turned=False, **given):
    rng = np.random.default_rng(0)
    weights = {"in": rng.standard_normal((3, 2)), "out": rng.standard_normal((3, 2))}
    R = np.array([[0.8, 0.6], [-0.6, 0.8]]) if turned else np.eye(2)
    run = unit_flow(
        linear_neuron, (R, np.diag(STRENGTHS) @ R), half_square, {name: leaf @ R for name, leaf in weights.items()},
        degree=2.0, log_scale=log_scale, until=until, tolerance=tolerance, **given,
    )  # fmt: skip
    return weights, run


def by_weights(weights, log_scale, times):
    """Return losses of the flow of the weights themselves, by SciPy to small errors of each."""
    start = np.exp(log_scale) * np.concatenate([weights["in"].ravel(), weights["out"].ravel()])

    def residual(y):
        return np.diag(STRENGTHS) - y[6:].reshape(3, 2).T @ y[:6].reshape(3, 2)

    def slope(t, y):
        into, out = y.reshape(2, 3, 2)
        r = residual(y) / 2  # the mean of two samples
        return np.concatenate([(out @ r).ravel(), (into @ r.T).ravel()])

    found = solve_ivp(slope, (0, times[-1]), start, "DOP853", t_eval=times, rtol=1e-10, atol=1e-10 * np.exp(log_scale))
    return np.array([np.sum(residual(y) ** 2) / 4 for y in found.y.T])


@pytest.mark.parametrize(
    ("power", "tolerance", "turned", "known"),
    [
        (-4, 1e-4, True, True),
        (-12, 1e-3, True, True),
        (-12, 1e-8, True, True),
        (-30, 1e-8, True, False),
        (-30, 1e-8, False, True),
        (-100, 1e-3, False, True),
    ],
)
def test_a_second_mode_in_the_same_units_is_right_or_ends_the_flow(power, tolerance, turned, known):
    """Its deviation is below the tolerance for long; it is lost to rounding unless it has entries of its own."""
    log_scale = power * np.log(10)
    weights, run = follow(log_scale, 2.6, tolerance, turned, throw=False)
    assert run.status.ok == known, run.status
    exact = by_weights(weights, log_scale, run.times * -log_scale)
    np.testing.assert_allclose(run.losses, exact, atol=max(tolerance, 1e-6) if known else 1e-3)
    assert run.times[-1] > 0.9


def test_a_flow_that_ends_says_why_and_keeps_its_result():
    with pytest.raises(
        FlowError, match=r"Errors below the tolerance decide how unit \d moves at T = .*larger scale"
    ) as raised:
        follow(-70.0, 2.6, 1e-5, turned=True)
    run = raised.value.result
    assert 1.0 < run.times[-1] < 1.8
    np.testing.assert_allclose(run.losses[-1], STRENGTHS[1] ** 2 / 4, atol=1e-3)


@pytest.mark.parametrize(("second", "ok"), [(1.0, True), (0.9, False)])
def test_a_symmetry_holds_and_nothing_near_to_it_is_taken_for_one(second, ok):
    """Of two coordinates of one teacher, the force on the second changes its sign when the first has learned it."""
    data = np.array([[1.0, 0.8], [0.0, 0.6]]), np.array([1.0, -0.3])
    run = unit_flow(
        coordinate, data, half_square, np.array([[1.0, 1.0], [1.0, second]]),
        degree=2.0, log_scale=-50.0, until=60.0, tolerance=1e-7, kinds=np.arange(2), throw=False,
    )  # fmt: skip
    assert run.status.ok == ok
