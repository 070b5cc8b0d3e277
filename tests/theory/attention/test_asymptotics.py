"""The laws of large times, against integrated flows, the loss itself, and cases that can be solved."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope._shared.errors import InputError
from saddlescope.flow import matrix_margin_flow
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.theory.attention.asymptotics import ProductLaw, log_rate_coefficients, matrix_law, product_law
from saddlescope.theory.attention.svm import frobenius_svm


def drawn(seed, n=2, L=3, d=6):
    rng = np.random.default_rng(seed)
    X, z, v = rng.normal(size=(n, L, d)), rng.normal(size=(n, d)), rng.normal(size=d)
    return TokenData(X, z, np.array([1.0, -1.0] * n)[:n], v)


def features(data):
    return np.einsum("imd,ie->imde", data.differences, data.z).reshape(-1, data.dim**2)


def frobenius_multipliers(data):
    """By nonnegative least squares: max sum(lambda) - |lambda G|^2 / 2."""
    from scipy.optimize import nnls

    G = features(data)
    # stationarity of the dual is that of |G^T lambda - w|^2 / 2 for any w with G w = 1
    w = np.linalg.lstsq(G, np.ones(len(G)), rcond=None)[0]
    lambdas, _ = nnls(G.T, w)
    return lambdas.reshape(data.gaps.shape)


def matrix_flow(data, kind, start, until):
    """W at t = e^until - 1, by brute force in ln(1 + t)."""
    loss = SelectionLoss(data.optimal_scores, data.gaps, kind)

    def slope(tau, W):
        log_rates, signs = loss.log_rates(data.margins(W.reshape(data.dim, data.dim)))
        return np.einsum("im,imd,ie->de", signs * np.exp(log_rates + tau), data.differences, data.z).ravel()

    run = solve_ivp(slope, (0, until), start.ravel(), method="DOP853", rtol=1e-12, atol=1e-12)
    return run.y[:, -1].reshape(data.dim, data.dim)


@pytest.mark.parametrize("kind", ["exponential", "logistic"])
def test_the_coefficients_are_those_of_rates_and_loss(kind):
    data = drawn(0)
    log_c = log_rate_coefficients(data, kind=kind)
    loss = SelectionLoss(data.optimal_scores, data.gaps, kind)
    margins = 60.0 + np.random.default_rng(1).uniform(0, 3, data.gaps.shape)
    assert loss.log_rates(margins)[0] == pytest.approx(log_c - margins, abs=1e-12)
    assert loss.log_excess(margins) == pytest.approx(np.logaddexp.reduce((log_c - margins).ravel()), abs=1e-12)


@pytest.mark.parametrize("kind", ["exponential", "logistic"])
def test_one_matrix_from_a_start_of_its_own(kind):
    data = drawn(13)  # features nearly orthogonal: what the law leaves out falls like t^-0.8
    lambdas = frobenius_multipliers(data)
    assert np.all(lambdas > 0)  # so that all of W~ is known
    start = np.random.default_rng(2).normal(size=(data.dim, data.dim))
    law = matrix_law(data, lambdas, kind=kind, start=start)
    W = matrix_flow(data, kind, start, 30.0)
    assert law.remembered == 0
    assert law.multipliers == pytest.approx(lambdas, rel=1e-9)
    assert np.abs(W - law.weights(30.0)).max() < 1e-8
    assert data.margins(W) == pytest.approx(law.margins(30.0), abs=1e-8)
    excess = SelectionLoss(data.optimal_scores, data.gaps, kind).log_excess(data.margins(W))
    assert excess == pytest.approx(law.log_excess(30.0), abs=1e-8)


def test_one_matrix_where_the_run_is_remembered():
    data = drawn(18, d=4)
    lambdas = frobenius_multipliers(data)
    active = lambdas > 0
    assert 0 < active.sum() < active.size
    law = matrix_law(data, 0.3 * lambdas)  # a factor of all makes no difference
    W = matrix_flow(data, "exponential", np.zeros((data.dim, data.dim)), 40.0)
    assert law.remembered == (~active).sum()
    assert data.margins(W)[active] == pytest.approx(law.margins(40.0)[active], abs=1e-8)
    assert np.all(law.margins(40.0)[~active] == np.inf)
    assert np.abs(W - law.weights(40.0)).max() > 1e-2


def test_one_matrix_at_astronomical_times():
    data = gaussian_tokens(3, 4, 12, seed=1)
    flow = matrix_margin_flow(
        SelectionLoss(data.optimal_scores, data.gaps),
        data.differences,
        data.z,
        log_until=1e6,
        record=[1e3, 1e6],
        tolerance=1e-8,
    )
    law = matrix_law(data, frobenius_svm(data).multipliers)
    active = np.isfinite(law.offsets)
    assert 0 < active.sum() < active.size
    for k, log_time in enumerate((1e3, 1e6)):
        assert flow.margins[k][active] == pytest.approx(law.margins(log_time)[active], abs=1e-6)
        assert flow.log_excess[k] == pytest.approx(law.log_excess(log_time), abs=1e-6)


def test_multipliers_that_are_not_unique_are_shared_as_the_coefficients_say():
    x, other = np.array([1.0, 2.0, 0.0]), np.array([0.0, 0.0, 1.0])
    X = np.stack([x, other, other])[None]
    data = TokenData(X, np.array([[1.0, -1.0, 0.5]]), np.ones(1), np.array([1.0, 0.0, 0.2]))
    size = float(np.sum(features(data)[0] ** 2))
    law = matrix_law(data, np.array([[0.9, 0.1]]) / size)
    c = float(np.exp(log_rate_coefficients(data)[0, 0]))
    assert law.multipliers == pytest.approx(np.full((1, 2), 0.5 / size), rel=1e-12)
    assert law.offsets == pytest.approx(np.full((1, 2), np.log(2 * c * size)), abs=1e-12)
    assert data.margins(law.offset) == pytest.approx(law.offsets, abs=1e-12)


def test_products_against_the_scalar_equation():
    """One token, B = h: t = (lambda / 2c) int e^u / u du, so that the law is off by -1/u."""
    from mpmath import ei, mp

    data = TokenData(np.array([[[2.0], [-1.0]]]), np.array([[0.5]]), np.ones(1), np.ones(1))
    h = float(data.features[0, 0, 0])
    law = product_law(data, [[1 / h]])
    half_ratio = float(np.exp(law.offsets[0, 0]))
    assert half_ratio == pytest.approx(2 * 3.0 * np.exp(-2.0) * h, rel=1e-12)
    for u in (1e2, 1e4):
        with mp.workdps(30):
            log_time = float(mp.log(ei(mp.mpf(u)) / half_ratio))
        assert (law.margins(log_time, np.log(u))[0, 0] - u) * u == pytest.approx(1.0, rel=3 / u)
        assert (law.margin(log_time) - u) * u == pytest.approx(1.0, rel=4 / u)
        assert law.margins(log_time)[0, 0] == pytest.approx(law.margin(log_time), rel=1e-14)
        excess = SelectionLoss(data.optimal_scores, data.gaps).log_excess(np.array([[u]]))
        assert (excess - law.log_excess(log_time, np.log(u))) * u == pytest.approx(1.0, rel=3 / u)
    assert law.norm == pytest.approx(1 / h)


def test_the_margin_of_the_law_at_astronomical_times():
    law = ProductLaw(np.log([[0.3, 0.2]]), np.array([[2.0, 0.0]]))
    for log_time in (3.0, 230.0, 1e6, 1e300):
        mu = law.margin(log_time)
        assert mu - np.log(mu) == pytest.approx(log_time + np.log(0.3), rel=1e-14)
        assert mu > 1
    assert law.margins(1e3)[0, 1] == np.inf


def test_what_cannot_be_used_is_refused():
    data = drawn(0)
    ones = np.ones(data.gaps.shape)
    for call, message in (
        (lambda: log_rate_coefficients(data, kind="hinge"), "There is no loss 'hinge'"),
        (lambda: product_law(data, ones[:1]), "multipliers must have shape"),
        (lambda: product_law(data, -ones), "multipliers must be at least 0"),
        (lambda: product_law(data, 0 * ones), "one of them positive"),
        (lambda: product_law(data, ones).margin(-50.0), "log_time must be finite and above"),
        (lambda: product_law(data, ones).margin(np.inf), "log_time must be finite and above"),
        (lambda: matrix_law(data, ones[0]), "multipliers must have shape"),
        (lambda: matrix_law(data, np.nan * ones), "multipliers must be at least 0"),
        (lambda: matrix_law(data, ones, start=np.ones(3)), "start must be finite, of shape"),
    ):
        with pytest.raises(InputError, match=message):
            call()
