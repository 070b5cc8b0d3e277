"""The quadrature of aligned flows, against brute force, a case in closed form, and mpmath."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope._shared.errors import InputError
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.theory.attention.aligned_flow import aligned_product_flow


def paired(n=3, pairs=2, d=8, seed=0, *, along=True):
    """Data of Assumptions 2 and 4; `along=False` breaks 4 (ii) alone, turning the queries away from the tokens."""
    rng = np.random.default_rng(seed)
    optimal = np.linalg.qr(rng.normal(size=(d, d)))[0][:n] * rng.uniform(0.8, 1.5, (n, 1))
    queries = optimal if along else np.linalg.qr(rng.normal(size=(d, d)))[0][:n]
    z = queries * rng.choice([-1.0, 1.0], (n, 1)) * rng.uniform(0.7, 1.3, (n, 1))
    c = rng.uniform(-0.5, 0.5, n)
    y = rng.choice([-1.0, 1.0], n)
    scores = rng.uniform(1, 2, n)
    v = np.sum((y * scores / np.sum(optimal**2, axis=1))[:, None] * optimal, axis=0)
    tokens = [optimal]
    for _ in range(pairs):
        beside = rng.normal(size=(n, d))
        for row, own in zip(beside, optimal, strict=True):
            plane = np.stack([own, v])
            row -= plane.T @ np.linalg.lstsq(plane.T, row, rcond=None)[0]
        tokens += [c[:, None] * optimal + beside, c[:, None] * optimal - beside]
    return TokenData(np.stack(tokens, axis=1), z, y, v)


def brute_force(data, kind, until, KQ):
    """W = K Q^T at a time, from the flow of all entries."""
    loss, d = SelectionLoss(data.optimal_scores, data.gaps, kind), data.dim

    def slope(_, state):
        weights = tuple(state.reshape(2, d, d))
        log_rates, signs = loss.log_rates(data.margins(weights))
        A = np.einsum("im,imd,ie->de", signs * np.exp(log_rates), data.differences, data.z)
        return np.concatenate([(A @ weights[1]).ravel(), (A.T @ weights[0]).ravel()])

    start = np.ravel(KQ)
    end = solve_ivp(slope, (0, until), start, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    return end.reshape(2, d, d)[0] @ end.reshape(2, d, d)[1].T


@pytest.mark.parametrize("kind", ["exponential", "logistic"])
@pytest.mark.parametrize("along", [True, False])
def test_products_against_the_flow_of_all_entries(kind, along):
    data = paired(along=along)
    xi_k, xi_q = np.array([0.3, 0.5, 0.2]), np.array([0.0, -0.4, 0.2])
    columns = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))[0][:3]
    flow = aligned_product_flow(data, xi_k, xi_q, kind=kind)
    p, q = flow.directions
    times = np.array([0.01, 3.0, 1e3])
    for time, b in zip(times, flow.weights(np.log(times)), strict=True):
        W = brute_force(data, kind, time, np.stack([(p.T * xi_k) @ columns, (q.T * xi_q) @ columns]))
        assert np.abs(W - flow.matrix(b)).max() < 1e-11
        assert flow.margins(b) == pytest.approx(data.margins(W), abs=1e-10)


@pytest.mark.parametrize("log10_scale", [-0.3, -8.0, -150.0])
def test_products_against_mpmath(log10_scale):
    data = paired(n=1, pairs=1, d=4)
    omega = 10.0**log10_scale
    flow = aligned_product_flow(data, np.sqrt(2) * omega, 0.0)
    h, gap, best = float(flow.steepness[0]), float(data.gaps[0, 0]), float(data.optimal_scores[0])
    for u in (1e-3, 3.0, 80.0):
        with mpmath.workdps(30):
            scale = mpmath.mpf(omega) ** 2

            def pace(phi, scale=scale, h=h, gap=gap, best=best):
                e = mpmath.exp(-h * scale * mpmath.sinh(phi))
                return (1 + 2 * e) ** 2 / e * mpmath.exp(best - gap * 2 * e / (1 + 2 * e)) / (4 * h * gap)

            end = mpmath.asinh(mpmath.mpf(u) / (h * scale))
            time = mpmath.quad(pace, mpmath.linspace(0, end, 80 if u > 3 else 20))
            expected = float(mpmath.log(time))
        assert flow.log_times(np.array([u / h]))[0] == pytest.approx(expected, abs=1e-11)


def test_times_and_weights_are_inverse_to_each_other_far_out():
    flow = aligned_product_flow(paired(), np.array([1e-3, 0.0, 1e-30]), np.array([0.0, 0.1, 1e-30]))
    log_times = np.array([-3.0, 0.0, 5.0, 230.0, 690.0, 1e6])
    b = flow.weights(log_times)
    assert np.all(np.diff(b, axis=0) > 0)
    for log_time, row in zip(log_times, b, strict=True):
        assert flow.log_times(row) == pytest.approx(np.full(3, log_time), rel=1e-14, abs=1e-11)
    u = flow.steepness * b[-1]
    assert np.abs(u - 1e6 - np.log(1e6)).max() < 10
    assert np.all(flow.log_times(flow.start) == -np.inf)


def test_the_limit_solves_both_problems():
    data = paired()
    flow = aligned_product_flow(data, 0.3, 0.1)
    W, h, m = flow.matrix(flow.limit), flow.steepness, data.tokens - 1
    assert data.margins(W) == pytest.approx(np.ones((3, m)), abs=1e-12)
    for power in (1, 2):
        lambdas = np.broadcast_to(1 / (m * h**power)[:, None], (3, m))
        combined = np.einsum("im,imd,ie->de", lambdas, data.differences, data.z)
        if power == 1:
            assert np.linalg.norm(combined, 2) == pytest.approx(1, abs=1e-12)
            assert lambdas.sum() == pytest.approx(np.linalg.norm(W, "nuc"), rel=1e-12)
        else:
            assert combined == pytest.approx(W, abs=1e-12)


def test_data_that_do_not_split_are_refused():
    data = paired()
    X, z, y, v = data.X, data.z, data.y, data.v
    turned = np.random.default_rng(0).normal(size=(8, 8))
    uneven = X.copy()
    uneven[0, 1] += 0.1 * np.cross([1.0, 0, 0], [0, 1.0, 0]).sum() * (v / (v @ v))
    for other, message in (
        (TokenData(X, z @ turned, y, v), "queries to each other"),
        (TokenData(np.delete(X, 1, axis=1), z, y, v), "the sum of each sample's tokens"),
        (TokenData(uneven, z, y, v), "data must have"),
    ):
        with pytest.raises(InputError, match=message):
            aligned_product_flow(other, 0.3, 0.1)


def test_starts_and_times_that_cannot_be_used_are_refused():
    data = paired()
    flow = aligned_product_flow(data, 0.3, 0.1)
    for call, message in (
        (lambda: aligned_product_flow(data, 0.1, -0.1), "keys must differ from -queries"),
        (lambda: aligned_product_flow(data, np.ones(2), 0.0), "keys must be finite, one number or one for each of 3"),
        (lambda: aligned_product_flow(data, np.nan, 0.0), "keys must be finite"),
        (lambda: aligned_product_flow(data, 0.3, 0.1, kind="hinge"), "There is no loss 'hinge'"),
        (lambda: flow.weights([np.inf]), "log_times must be a sequence of numbers"),
        (lambda: flow.log_times(np.array([1.0, -1.0, 1.0])), "at least those of the start"),
    ):
        with pytest.raises(InputError, match=message):
            call()
