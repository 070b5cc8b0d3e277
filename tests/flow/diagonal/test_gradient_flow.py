"""Gradient flow against closed forms, invariances, other implementations and its documented accuracy."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from tests import problems, tolerances
from tests.problems import LOG10, Separate

from saddlescope.flow import DiagonalInit, FlowError, ParameterInit, gradient_flow
from saddlescope.models import DiagonalNetwork, attention_teacher_task, diagonal_linear_network


def _random_weights(size, seed=0):
    u, v = np.random.default_rng(seed).standard_normal((2, size))
    return u, v


def _returning():
    features, teacher = np.array(problems.RETURNING_FEATURES), np.array(problems.RETURNING_TEACHER)
    return diagonal_linear_network(features, features @ teacher), teacher


def test_tightening_the_tolerance_brings_the_flow_to_the_integral_of_dop853():
    """At a moderate scale the weights themselves give an independent implementation."""
    task = attention_teacher_task(4, samples=60, tokens=4, dim=3)
    alpha, until = 1e-2, 12.0
    unit = -np.log(alpha)
    gradient = eqx.filter_jit(jax.grad(DiagonalNetwork.__call__, argnums=1))

    def slope(_, w):
        u, v = w[:6], w[6:]
        g = -np.asarray(gradient(task.network, jnp.asarray(u * v)))
        return unit * np.concatenate([v * g, u * g])

    times = np.linspace(0, until, 25)
    start = alpha * np.concatenate([task.u0, task.v0])
    foreign = solve_ivp(slope, (0, until), start, method="DOP853", rtol=1e-10, atol=1e-14, t_eval=times).y.T
    errors = []
    for tolerance in (1e-3, 1e-5, 1e-7):
        flow = gradient_flow(
            task.network, DiagonalInit(task.u0, task.v0, np.log(alpha)), until=until, tolerance=tolerance, record=times
        )
        errors.append(float(np.abs(flow(times) - foreign[:, :6] * foreign[:, 6:]).max()))
        u, v = flow.parameters(times)
        np.testing.assert_allclose(u**2 - v**2, np.tile(start[:6] ** 2 - start[6:] ** 2, (25, 1)), atol=1e-15)
    assert errors[0] > 1e-6  # something moved, and tolerance matters
    assert errors[1] < errors[0] / 5
    assert errors[2] < 2e-6
    np.testing.assert_allclose(np.concatenate([u, v], 1), foreign, atol=1e-5)


def test_plain_parameters_and_products_are_the_same_flow():
    task = attention_teacher_task(4, samples=60, tokens=4, dim=3)
    alpha = 0.1
    until = 5.0
    products = gradient_flow(
        task.network, DiagonalInit(task.u0, task.v0, np.log(alpha)), until=until, tolerance=1e-5, level=0.1
    )

    class OfWeights(eqx.Module):
        network: eqx.Module

        def __call__(self, weights):
            return self.network(weights["u"] * weights["v"])  # pyright: ignore

    start = ParameterInit({"u": alpha * task.u0, "v": alpha * task.v0})
    plain = gradient_flow(OfWeights(task.network), start, until=until * -np.log(alpha), tolerance=1e-5)
    assert (products.time_unit, plain.time_unit) == ("t / log(1/alpha)", "t")
    times = np.linspace(0, until, 9)
    weights = plain.parameters(times * -np.log(alpha))
    np.testing.assert_allclose(weights["u"] * weights["v"], products(times), atol=5e-6)
    np.testing.assert_allclose(weights["u"], products.parameters(times)[0], atol=5e-6)
    assert plain.conserved is None


def test_permuted_and_reflected_coordinates_take_permuted_and_reflected_paths():
    rng = np.random.default_rng(5)
    features, targets = rng.standard_normal((8, 4)), rng.standard_normal(8)
    u, v = _random_weights(4, seed=6)
    order, signs = rng.permutation(4), np.array([1.0, -1.0, -1.0, 1.0])
    times = np.linspace(0, 20, 15)

    def run(x, left, right):
        start = DiagonalInit(left, right, -16 * LOG10)
        return gradient_flow(diagonal_linear_network(x, targets), start, until=20.0, tolerance=1e-6)(times)

    straight = run(features, u, v)
    assert np.abs(straight).max() > 0.1
    np.testing.assert_allclose(run(features[:, order], u[order], v[order]), straight[:, order], atol=1e-6)
    np.testing.assert_allclose(run(features * signs, u * signs, v), straight * signs, atol=1e-6)
    np.testing.assert_allclose(run(features, v, u), straight, atol=1e-6)


def test_continuing_equals_going_straight_there():
    loss, _ = _returning()
    u, v = _random_weights(3)
    start = DiagonalInit(u, v, -1000 * LOG10)
    straight = gradient_flow(loss, start, until=30.0, tolerance=1e-6, level=0.05)
    first = gradient_flow(loss, start, until=2.2, tolerance=1e-6, level=0.05)
    second = gradient_flow(loss, first.end, until=27.8, tolerance=1e-6, level=0.05)
    joined = [(c.index, c.rising, c.sign) for c in (*first.crossings, *second.crossings)]
    assert joined == [(c.index, c.rising, c.sign) for c in straight.crossings]
    together = [c.time for c in first.crossings] + [2.2 + c.time for c in second.crossings]
    np.testing.assert_allclose(together, [c.time for c in straight.crossings], rtol=1e-6)
    np.testing.assert_allclose(second.beta[-1], straight.beta[-1], atol=1e-9)
    np.testing.assert_array_equal(second.beta[0], first.beta[-1])


@pytest.mark.parametrize("target", [1e-12, 1e6])
def test_parameters_that_start_at_0_have_errors_relative_to_their_own_size(target):
    loss = lambda p: 0.5 * (p[0] - target) ** 2 + 0.5 * (p[1] + 3 * target) ** 2  # noqa: E731
    flow = gradient_flow(loss, ParameterInit(np.zeros(2)), until=1.0, tolerance=1e-6)
    np.testing.assert_allclose(flow.values[-1] / target, np.array([1.0, -3.0]) * (1 - np.exp(-1)), atol=1e-5)


@pytest.mark.parametrize(("large", "small", "until"), [(1e2, 1e-4, 0.0898), (1e3, 1e-3, 0.006), (1e4, 1e-4, 1e-3)])
@pytest.mark.parametrize("tolerance", [1e-4, pytest.param(1e-6, marks=pytest.mark.slow), 1e-8])
def test_small_parameters_beside_a_large_one_are_not_lost(large, small, until, tolerance):
    """The product of (large, small, small) grows as a logistic curve, in a time much shorter than large is long."""
    run = partial(
        gradient_flow, lambda p: (jnp.prod(p) - 1) ** 2 / 2, ParameterInit(np.array([large, small, small])),
        tolerance=tolerance,
    )  # fmt: skip
    product = large * small**2
    logit = 2 * large * until + np.log(product / (1 - product))
    found = np.prod(run(until=until).values[-1])
    assert abs(np.log(found / (1 - found)) - logit) < 0.02 * 2 * large * until
    rest = run(until=100.0)  # where rounding beside a stale Hessian would grow
    np.testing.assert_allclose(np.prod(rest.values[-1]), 1.0, rtol=1e-10)


def test_a_flow_rests_at_zero():
    rest = gradient_flow(
        lambda p: jnp.sum((p[0] @ p[1] - jnp.eye(2)) ** 2),
        ParameterInit(np.zeros((2, 2, 2))),
        until=9.0,
        tolerance=1e-6,
    )
    np.testing.assert_array_equal(rest.values[-1], 0.0)


def test_nothing_happens_in_no_time():
    u, v = _random_weights(3)
    flow = gradient_flow(_returning()[0], DiagonalInit(u, v, -2.0), until=0.0, tolerance=1e-6)
    np.testing.assert_array_equal(flow.times, [0.0])
    np.testing.assert_allclose(flow.beta, [np.exp(-4.0) * u * v], rtol=1e-12)
    assert flow.status.ok


def test_equal_weights_keep_their_sign_and_zeros_stay():
    loss = Separate(jnp.ones(5), jnp.array([1.0, -1.0, -1.0, 1.0, 1.0]))
    start = DiagonalInit(np.array([1.0, 1.0, 1.0, 0.0, 0.5]), np.array([1.0, 1.0, -1.0, 0.0, -0.4]), -32 * LOG10)
    flow = gradient_flow(loss, start, until=6.0, tolerance=1e-6)
    np.testing.assert_allclose(flow.beta[-1], [1, 0, -1, 0, 1], atol=1e-12)
    assert start.degenerate == (0, 1, 2, 3)


def test_the_record_holds_what_was_asked_for_and_every_crossing():
    loss, _ = _returning()
    u, v = _random_weights(3)
    asked = np.array([1.0, 7.0])
    flow = gradient_flow(loss, DiagonalInit(u, v, -8 * LOG10), until=40.0, tolerance=1e-6, record=asked, level=0.05)
    np.testing.assert_array_equal(flow.times, np.unique([0, 1, 7, 40, *(c.time for c in flow.crossings)]))
    np.testing.assert_array_equal(flow.beta, flow(flow.times))
    np.testing.assert_allclose(flow.losses, [float(loss(jnp.asarray(b))) for b in flow.beta], rtol=1e-13)
    for c in flow.crossings:
        np.testing.assert_allclose(flow(np.array([c.time]))[0, c.index], c.sign * 0.05, rtol=1e-6)
        before, after = np.abs(flow(np.array([c.time - 1e-3, c.time + 1e-3]))[:, c.index])
        assert (after > before) == c.rising
    assert flow.evaluations.values == len(flow.times)


def test_weights_are_reported_below_what_their_product_can_hold():
    flow = gradient_flow(
        Separate(jnp.ones(1), jnp.ones(1)), DiagonalInit(np.ones(1), np.ones(1), -1e4), until=0.5, tolerance=1e-6
    )
    np.testing.assert_allclose(flow.log_abs(np.array([0.0, 0.5])), [[-2e4], [-1e4]], rtol=1e-9)
    assert flow.beta[-1] == 0


def test_the_reported_accuracy_bounds_the_error():
    loss, _ = _returning()
    u, v = _random_weights(3)
    start = DiagonalInit(u, v, -32 * LOG10)
    tight = gradient_flow(loss, start, until=40.0, tolerance=1e-7, level=0.05)
    for tolerance in (1e-3, 1e-5):
        flow = gradient_flow(loss, start, until=40.0, tolerance=tolerance, level=0.05, verify=True)
        error = max(abs(a.time - b.time) / b.time for a, b in zip(flow.crossings, tight.crossings, strict=True))
        assert flow.accuracy is not None
        assert error < tolerances.FLOW_STAGE_TIME * tolerance
        assert error < flow.accuracy.crossing_times < 20 * tolerances.FLOW_STAGE_TIME * tolerance
        assert flow.accuracy.values > 0
        assert flow.conserved == 0


@pytest.mark.slow
def test_six_scales_of_the_paper_within_1e_5():
    """The full toy task: the first passage of |beta| = 0.05 of each coordinate to rescaled time 1000.

    Rounding may decide whether a second run follows the first: each has its own bound.
    """
    task = attention_teacher_task(1)
    gradients = []
    for digits in (1, 2, 4, 8, 16, 32):
        start = DiagonalInit(task.u0, task.v0, -digits * LOG10)
        follow = partial(gradient_flow, task.network, start, until=1000.0, level=0.05, record=np.linspace(0, 1000, 101))
        tight, flow = follow(tolerance=1e-8, verify=False), follow(tolerance=2e-6)
        exact, found = ({c.index: c.time for c in reversed(run.crossings) if c.rising} for run in (tight, flow))
        assert found.keys() == exact.keys()
        assert max(abs(found[i] / exact[i] - 1) for i in exact) < 1e-5
        assert np.all(np.diff(flow.losses) < 1e-14)  # on plateaus it falls by less than rounding
        once = follow(tolerance=2e-6, verify=False)
        gradients.append([run.evaluations.gradients for run in (once, flow, tight)])
    once, whole, tight = np.transpose(gradients)
    assert (whole < 3 * once).all()  # a second run, at a tenth of the tolerance, costs less than twice the first
    assert (tight < 3 * once).all()  # a hundredth of the tolerance costs about twice the gradients


def _wall(beta):
    return -jnp.sum(beta) + 0 * jnp.sum(jnp.sqrt(0.5 - beta))  # the gradient is NaN beyond 0.5


def test_a_loss_that_turns_nan_ends_the_run_and_keeps_what_was_computed():
    start = DiagonalInit(np.ones(2), np.ones(2), -8 * LOG10)
    flow = gradient_flow(_wall, start, until=5.0, tolerance=1e-6, throw=False)
    assert not flow.status.ok
    assert "NaN or infinite just after" in flow.status.sentence
    # beta = e^(p + 2t) reaches 0.5 when 2 t = log(0.5) - 2 log(alpha)
    np.testing.assert_allclose(flow.times[-1], 1 + np.log(0.5) / 2 / (8 * LOG10), rtol=1e-3)
    assert np.all(flow.beta < 0.5)
    with pytest.raises(FlowError, match="NaN or infinite") as failure:
        gradient_flow(_wall, start, until=5.0, tolerance=1e-6)
    np.testing.assert_array_equal(failure.value.result.times, flow.times)


def test_a_run_continues_from_where_its_evaluations_were_used_up():
    loss, _ = _returning()
    start = DiagonalInit(*_random_weights(3), -8 * LOG10)
    short = gradient_flow(loss, start, until=40.0, tolerance=1e-6, max_evaluations=15, throw=False)
    rest = gradient_flow(loss, short.end, until=40.0 - float(short.times[-1]), tolerance=1e-6)
    straight = gradient_flow(loss, start, until=40.0, tolerance=1e-6)
    np.testing.assert_allclose(rest.beta[-1], straight.beta[-1], atol=1e-6)


GOOD = DiagonalInit(np.ones(2), np.ones(2), -1.0)


def test_smooth_losses_pass_the_probe_for_kinks():
    for loss in (lambda b: jnp.sum(1e6 * b**2 + b), lambda b: jnp.sum(jnp.exp(-3 * b)), lambda b: jnp.sum(b**4)):
        gradient_flow(loss, GOOD, until=0.0, tolerance=1e-6)


def test_a_loss_that_turns_nan_behind_a_finite_gradient_is_not_called_a_success():
    start = DiagonalInit(np.array([1.0]), np.array([0.5]), log_scale=-20.0)

    def loss(beta):
        return jnp.sum((beta - 1) ** 2) + jnp.where(beta[0] > 0.5, jnp.nan, 0.0)

    run = gradient_flow(loss, start, until=5.0, tolerance=1e-5, throw=False)
    assert not run.status.ok
    assert "NaN" in run.status.sentence
    assert np.isfinite(run.losses[run.times < 0.4]).all()


def test_progress_of_a_verified_run_rises_once_from_0_to_1():
    reported = []
    start = DiagonalInit(np.array([1.0, 0.3]), np.array([0.5, 0.2]), log_scale=-200.0)
    gradient_flow(
        lambda beta: jnp.sum((beta - 1) ** 2), start, until=5.0, tolerance=1e-9, verify=True,
        report=lambda fraction, note: reported.append(fraction),
    )  # fmt: skip
    assert len(reported) > 4
    assert reported == sorted(reported)
    assert reported[-1] <= 1


def test_only_parameters_that_grow_are_said_to_grow_beyond_all_bounds():
    """To the pole of 1/w at 0 they move ever faster, but become small; w' = w² leaves every bound."""
    run = partial(gradient_flow, until=2.0, tolerance=1e-5, throw=False)
    pole, growing = (
        run(lambda w: -1 / w[0], ParameterInit(np.ones(1))),
        run(lambda w: -(w[0] ** 3) / 3, ParameterInit(np.ones(1))),
    )
    assert (pole.status.code, growing.status.code) == ("stuck", "diverged")
    assert "ever faster" in pole.status.sentence
    assert pole.losses[-1] == pole.losses.min()


@pytest.mark.parametrize("w", [1e-6, 1e-9])
def test_a_loss_that_rises_by_errors_alone_ends_no_flow(w):
    """Beside a large parameter that rests, errors of the tolerance exceed all that a small one moves."""
    start = ParameterInit(np.array([1.0, w]))
    run = gradient_flow(lambda x: jnp.sum((x - jnp.array([1.0, 0.0])) ** 2 * 1e3), start, until=5.0, tolerance=1e-4)
    assert run.losses[-1] < 1e-6


@pytest.mark.parametrize("start", [ParameterInit(np.array([0.9])), DiagonalInit(np.ones(1), np.ones(1), -2.0)])
def test_a_loss_that_rises_by_rounding_alone_ends_no_flow(start):
    assert gradient_flow(lambda x: 1e6 + jnp.sum((x - 1) ** 2), start, until=50.0, tolerance=1e-9).status.ok


@pytest.mark.parametrize("start", [1.0, 0.7, 3.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4, 1e-6])
def test_no_step_leads_past_a_pole(start, tolerance):
    """Where a step is made is decided by rounding: some settings would pass it at some of these."""
    run = gradient_flow(
        lambda w: -1 / w[0], ParameterInit(np.array([start])), until=start**3, tolerance=tolerance, throw=False
    )
    assert run.status.code == "stuck"
    assert run.values.min() > 0
    np.testing.assert_allclose(run.times[-1], start**3 / 3, rtol=10 * tolerance)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6])
def test_no_step_of_diagonal_weights_leads_past_a_pole(tolerance):
    """The time is by quadrature of beta' = (u^2 + v^2) / (1 - beta)^2."""
    start = DiagonalInit(np.array([1.0]), np.array([0.1]), log_scale=-20.0)
    run = gradient_flow(lambda beta: -1 / (1 - beta[0]), start, until=3.0, tolerance=tolerance, throw=False)
    assert run.status.code == "stuck"
    assert run.losses[-1] == run.losses.min()
    np.testing.assert_allclose(run.times[-1], 0.99239185, rtol=10 * tolerance)


def test_a_rise_that_is_shorter_than_the_rounding_of_time_is_no_divergence():
    """From 1e-13, w' = w² - w³ comes near 1 at 1e13, and its steps there are too short to add to that time."""
    run = partial(gradient_flow, lambda w: -(w[0] ** 3) / 3 + w[0] ** 4 / 4, tolerance=1e-6, throw=False)
    flow = run(ParameterInit(np.array([1e-13])), until=2e13)
    assert flow.status.code == "stuck"
    assert "less than the rounding of that time" in flow.status.sentence
    further = run(ParameterInit(flow.parameters(flow.times[-1:])[0]), until=1e4)
    assert further.status.ok
    np.testing.assert_allclose(further.values[-1], [1.0], rtol=1e-5)
