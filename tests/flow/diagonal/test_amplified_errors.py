"""Flows from parameters whose small directions, or rounding errors, decide what they learn: right, or ended."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.flow import DiagonalInit, ParameterInit, gradient_flow

c, s = np.cos(0.5), np.sin(0.5)
BALANCED = np.eye(2) + 0.3 * np.random.default_rng(0).standard_normal((2, 2))
ROTATED = np.array([[c, -s], [s, c]])


def completion(product):
    """[[?, 1], [1, 0]] of Razin and Cohen (2020): det W(0) > 0 remains so, and the first entry grows for ever."""
    return ((product[0, 1] - 1) ** 2 + (product[1, 0] - 1) ** 2 + product[1, 1] ** 2) / 2


def two_values(product):
    """A target of singular values 2 and 1, the second of which is learned from what the first leaves of it."""
    return ((product - ROTATED @ np.diag([2.0, 1.0])) ** 2).sum() / 2


def plain_slope(target, left, right):
    """Return the slope of U V^T towards a target with known entries, for SciPy; NaN is unknown."""

    def slope(_, flat):
        U, V = flat.reshape(2, 2, 2)
        G = np.nan_to_num(target - U @ V.T)
        return np.concatenate([(G @ V).ravel(), (G.T @ U).ravel()])

    return slope, np.concatenate([left.ravel(), right.ravel()])


@pytest.mark.parametrize("tolerance", [pytest.param(1e-3, marks=pytest.mark.slow), 1e-6])
@pytest.mark.parametrize(
    ("loss", "target", "scale", "until"),
    [
        (completion, np.array([[np.nan, 1.0], [1.0, 0.0]]), 1e-2, 30.0),
        (completion, np.array([[np.nan, 1.0], [1.0, 0.0]]), 1e-1, 20.0),
        (two_values, ROTATED @ np.diag([2.0, 1.0]), 1e-6, 1.05),
    ],
)
def test_small_directions_are_followed_to_their_own_size(loss, target, scale, until, tolerance):
    """U^T U = V^T V at the start; against SciPy at 1e-12."""
    left, right, last = scale * BALANCED, scale * ROTATED @ BALANCED, until * np.log(1 / scale)
    start = ParameterInit({"U": left, "V": right})
    flow = gradient_flow(lambda p: loss(p["U"] @ p["V"].T), start, until=last, tolerance=tolerance)
    slope, origin = plain_slope(target, left, right)
    exact = solve_ivp(slope, (0, last), origin, method="DOP853", rtol=1e-12, atol=1e-30).y[:, -1]
    reported = max(30 * tolerance, flow.time_error or 0.0)
    np.testing.assert_allclose(flow.values[-1], exact, atol=reported * np.abs(exact).max())


X = np.array([[1, 0.5, 0.7, 0], [0.5, 1, 0.1, 0.7]])
WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (4, 2))


def regression(beta):
    return 0.5 * jnp.sum((X @ beta - jnp.array([1.0, 0.0])) ** 2)


@pytest.mark.parametrize("digits", [20, 40])
def test_a_coordinate_whose_return_rounding_decides_ends_the_flow_and_its_advice_works(digits):
    """Zhao et al. (2026): a coordinate leaves and returns from u - v = 1e-40, below the rounding of u."""
    log = digits * np.log(10)
    weights = ParameterInit(WEIGHTS * 10.0**-digits)

    def of_weights(t):
        return regression(2 * t[:, 0] * t[:, 1])

    flow = gradient_flow(of_weights, weights, until=4 * log, tolerance=1e-4, verify=False, throw=False)
    right = gradient_flow(regression, DiagonalInit(*(2**0.5 * WEIGHTS.T), log_scale=-log), until=8.0, tolerance=1e-6)
    assert flow.status.code == "undecided"
    assert "DiagonalInit" in flow.status.cure
    until_then = 2 * flow.values[-1].reshape(4, 2).prod(axis=1)
    np.testing.assert_allclose(until_then, right(flow.times[-1:] * 2 / log)[0], atol=2e-2)
    np.testing.assert_allclose(right.beta[-1], [0, 0, 1.428571, -0.204082], atol=1e-4)


def wells(x):
    """Wells at (+-1, +-sqrt(2)) in rotated coordinates, on whose axis flows move to a saddle at (1, 0)."""
    y = ROTATED.T @ x
    return (y[0] ** 2 - 1) ** 2 / 4 - y[1] ** 2 + y[1] ** 4 / 4


def two_units(t):
    """Two equal units share a target until their difference grows by itself."""
    return (t[0] + t[1] - 1) ** 2 - (t[0] - t[1]) ** 2 / 2 + (t[0] - t[1]) ** 4


def symmetric_factors(x):
    """Factors u v^T towards a symmetric target with a negative eigenvalue, which u = v cannot learn."""
    return jnp.sum((jnp.outer(x[0], x[1]) - TARGET) ** 2) / 2


@pytest.mark.parametrize(
    ("loss", "start", "away"),
    [
        (wells, ROTATED @ np.array([0.5, 0.0]), lambda x: (ROTATED.T @ x)[1]),
        (two_units, np.array([0.3, 0.3]), lambda x: x[0] - x[1]),
        (symmetric_factors, np.array([[1e-2, 3e-2], [1e-2, 3e-2]]), lambda x: np.abs(x[:2] - x[2:]).max()),
    ],
)
def test_flows_on_an_unstable_manifold_follow_it_until_rounding_decides(loss, start, away):
    flow = gradient_flow(loss, ParameterInit(start), until=60.0, tolerance=1e-4, throw=False)
    assert flow.status.code == "undecided"
    assert max(abs(away(x)) for x in flow.values) < 1e-2
    assert flow.time_error is None or flow.time_error <= 3e-2
    later = gradient_flow(loss, flow.end, until=60.0, tolerance=1e-4, throw=False)
    assert later.status.code == "undecided"  # what is not known does not become known


TARGET = ROTATED @ np.diag([1.0, -2.0]) @ ROTATED.T


@pytest.mark.parametrize("power", [3, 4, 6])
def test_a_blow_up_in_finite_time_is_called_so(power):
    flow = gradient_flow(
        lambda x: -jnp.sum(x**power) / power, ParameterInit(np.array([0.5])), until=1e3, tolerance=1e-4, throw=False
    )
    assert flow.status.code == "diverged"
    assert flow.times[-1] == pytest.approx(0.5 ** (2 - power) / (power - 2), rel=1e-3)


def test_a_loss_of_zero_at_the_start_is_no_special_case():
    flow = gradient_flow(
        lambda x: -x[0] * x[1] + (x[0] * x[1]) ** 2 / 2, ParameterInit(np.full(2, 1e-3)), until=30.0, tolerance=1e-6
    )
    assert flow.losses[0] == pytest.approx(-1e-6, rel=1e-3)
    assert flow.losses[-1] == pytest.approx(-0.5)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-7])
def test_a_flow_that_rests_at_degenerate_minima_amplifies_no_errors(tolerance):
    """Along them nothing grows, but by errors of a Hessian that the surrogate learned on the way there."""
    start = ParameterInit(0.1 * np.random.default_rng(0).standard_normal((3, 2, 2)))

    def loss(w):
        return jnp.sum((w[0] @ w[1] @ w[2] - jnp.diag(jnp.array([2.0, 1.0]))) ** 2) / 2

    run = gradient_flow(loss, start, until=4000.0, tolerance=tolerance)
    assert run.time_error is None or run.time_error < 10 * tolerance


@pytest.mark.parametrize("until", [1.1, 1.613])
def test_a_gradient_that_is_stationary_at_the_start_changes_in_a_length_of_its_own(until):
    """At b = 0 the loss has no second derivative to measure a length by. The time of the blow-up is by quadrature."""
    start = DiagonalInit(np.array([1.0]), np.array([0.0]), log_scale=np.log(1e-4))
    run = gradient_flow(lambda b: -(b[0] ** 3) / 3 - b[0], start, until=until, tolerance=1e-6, throw=False)
    assert run.status.code == "diverged"
    np.testing.assert_allclose(run.times[-1], 1.0752575, rtol=1e-5)
