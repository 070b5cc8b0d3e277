"""Loss as a function of margins: against the softmax of the paper, and against long arithmetic where that fails."""

import jax
import mpmath
import numpy as np
import pytest

from saddlescope.models import SelectionLoss, attention_loss, gaussian_tokens

KINDS = ("exponential", "logistic")


def case(kind, spread, seed=1):
    data = gaussian_tokens(4, 5, 6, seed=seed, gap=2.0, spread=spread)
    return data, SelectionLoss(data.optimal_scores, data.gaps, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_value_and_gradient_are_those_of_the_softmax(kind, spread):
    data, loss = case(kind, spread)
    rng = np.random.default_rng(0)
    W, K, Q, beta = (rng.normal(size=shape) for shape in ((6, 6), (6, 3), (6, 3), 6))
    naive = attention_loss(data, kind)
    for weights in (W, (K, Q), beta):
        u = data.margins(weights)
        assert loss.value(u) == pytest.approx(float(naive(weights)), rel=1e-13)
        assert loss.log_excess(u) == pytest.approx(np.log(loss.value(u) - loss.least), abs=1e-12)
        log_rates, signs = loss.log_rates(u)
        pull = np.einsum("im,imd,ie->de", signs * np.exp(log_rates), data.differences, data.z)  # -grad_W
        if isinstance(weights, tuple):
            expected = (pull @ Q, pull.T @ K)
        else:
            expected = np.diag(pull) if weights.ndim == 1 else pull
        gradient = jax.grad(naive)(weights)
        for ours, theirs in zip(jax.tree.leaves(expected), jax.tree.leaves(gradient), strict=True):
            np.testing.assert_allclose(-ours, np.asarray(theirs), atol=2e-13 * np.abs(ours).max())
    assert np.all(signs > 0) == (spread == 0)


def in_long_arithmetic(loss, u, i):
    """Compute rates and loss excess of a sample by definition, with 60 digits beyond those that cancel."""
    with mpmath.workdps(60 + int(np.abs(u).max() / 2)):
        gaps = [mpmath.mpf(float(gap)) for gap in loss.gaps[i]]
        weights = [mpmath.exp(-mpmath.mpf(float(each))) for each in u[i]]
        sigma = [weight / (1 + sum(weights)) for weight in weights]
        s = sum(gap * share for gap, share in zip(gaps, sigma, strict=True))
        best = mpmath.mpf(float(loss.optimal_scores[i]))
        if loss.kind == "exponential":
            slope, excess = mpmath.exp(s - best), mpmath.exp(s - best) - mpmath.exp(-best)
        else:
            slope = 1 / (1 + mpmath.exp(best - s))
            excess = mpmath.log(1 + mpmath.exp(s - best)) - mpmath.log(1 + mpmath.exp(-best))
        rates = [slope * share * (gap - s) / len(loss.gaps) for gap, share in zip(gaps, sigma, strict=True)]
        return [float(mpmath.log(abs(r))) for r in rates], [int(mpmath.sign(r)) for r in rates], mpmath.log(excess)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [0.0, 0.6])
@pytest.mark.parametrize("shift", [0.0, 30.0, 500.0, -500.0])
def test_rates_and_excess_in_long_arithmetic(kind, spread, shift):
    _, loss = case(kind, spread)
    u = np.random.default_rng(3).normal(size=(4, 4)) * 5 + shift
    log_rates, signs = loss.log_rates(u)
    excess = []
    for i in range(4):
        expected, expected_signs, log_excess = in_long_arithmetic(loss, u, i)
        np.testing.assert_allclose(log_rates[i], expected, rtol=1e-14, atol=3e-14)
        np.testing.assert_array_equal(signs[i], expected_signs)
        excess.append(log_excess)
    with mpmath.workdps(30):
        expected = float(mpmath.log(sum(mpmath.exp(each) for each in excess) / 4))
    assert loss.log_excess(u) == pytest.approx(expected, rel=1e-14, abs=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_margins_of_ten_millions_leave_logarithms_exact(kind):
    _, loss = case(kind, 0.0)
    u = np.random.default_rng(5).normal(size=(4, 4))
    slope = -loss.optimal_scores if kind == "exponential" else -np.logaddexp(0, loss.optimal_scores)
    log_rates, _ = loss.log_rates(1e7 + u)
    expected = slope[:, None] + np.log(loss.gaps) - (1e7 + u) - np.log(4)
    np.testing.assert_allclose(log_rates, expected, rtol=1e-15)
    assert loss.log_excess(1e7 + u) == pytest.approx(np.logaddexp.reduce(expected.ravel()), rel=1e-15)
    rates, jacobian = loss.rate_jacobian(1e7 + u, 1e7)  # in units of e^-1e7
    np.testing.assert_allclose(rates, np.exp(expected + 1e7), rtol=1e-8)
    for i in range(4):
        np.testing.assert_allclose(jacobian[i], -np.diag(rates[i]), atol=1e-300)
    stuck = np.array([-1e7, 0.0, 1.0, 2.0]) + np.zeros((4, 1))  # all attention on the first token that is not optimal
    log_rates, _ = loss.log_rates(stuck)
    np.testing.assert_allclose(log_rates[:, 0], -1e7, rtol=1e-6)
    np.testing.assert_allclose(log_rates[:, 1:], -2e7, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_jacobians_are_derivatives(kind, spread):
    _, loss = case(kind, spread)
    u, h = np.random.default_rng(8).normal(size=(4, 4)), 1e-5
    rates, jacobian = loss.rate_jacobian(u, 0.7)
    log_rates, signs = loss.log_rates(u)
    np.testing.assert_allclose(rates, signs * np.exp(log_rates + 0.7), rtol=1e-13)
    np.testing.assert_allclose(jacobian, jacobian.transpose(0, 2, 1), rtol=1e-12, atol=1e-17)  # a Hessian
    for k in range(4):
        step = h * (np.arange(4) == k)
        (up, up_signs), (down, down_signs) = loss.log_rates(u + step), loss.log_rates(u - step)
        difference = (up_signs * np.exp(up + 0.7) - down_signs * np.exp(down + 0.7)) / (2 * h)
        np.testing.assert_allclose(jacobian[:, :, k], difference, atol=1e-8)


def test_a_rate_that_vanishes_has_the_sign_0_and_a_finite_derivative():
    loss = SelectionLoss(np.zeros(1), np.array([[1.0, 3.0]]))  # b_1 = sigma_opt - 2 sigma_2 is 0 at u_2 = ln 2
    u = np.array([[0.0, np.log(2.0)]])
    log_rates, signs = loss.log_rates(u)
    assert log_rates[0, 0] < -35
    assert signs[0, 1] == 1
    _, jacobian = loss.rate_jacobian(u)
    (up, up_sign), (down, down_sign) = (loss.log_rates(u + np.array([0.0, step])) for step in (1e-5, -1e-5))
    assert (up_sign[0, 0], down_sign[0, 0]) == (1, -1)
    assert jacobian[0, 0, 1] == pytest.approx((np.exp(up[0, 0]) + np.exp(down[0, 0])) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_missing_one_sample(kind):
    data, loss = case(kind, 0.6)
    value = (lambda f: np.exp(-f)) if kind == "exponential" else (lambda f: np.log1p(np.exp(-f)))
    for j in range(4):
        second = np.sort(data.scores[j])[-2]
        expected = (value(second) - value(data.optimal_scores[j])) / 4
        assert np.exp(loss.log_excess_missing()[j]) == pytest.approx(expected, rel=1e-12)
