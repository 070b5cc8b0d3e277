"""Margin flows: against quadrature, laws, the flow in the weights, finite differences, and invalid input."""

import mpmath
import numpy as np
import pytest
from scipy.stats import ortho_group

from saddlescope._shared.errors import InputError
from saddlescope.flow import (
    DiagonalMarginInit,
    FlowError,
    diagonal_margin_flow,
    key_query_margin_flow,
    matrix_margin_flow,
)
from saddlescope.flow.margin.key_query_system import KeyQuerySystem, Reduction
from saddlescope.flow.margin.systems import IntegralSystem
from saddlescope.models.tokens.generators import conditioned_tokens, gaussian_tokens
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.theory.attention.svm import frobenius_svm, l1_svm
from weight_flow import weight_flow

LN10 = np.log(10)
DATA = gaussian_tokens(4, 5, 8, seed=1)


def _loss(data, kind="exponential"):
    return SelectionLoss(data.optimal_scores, data.gaps, kind)


def _pair(d, columns, seed=0, scale=0.1):
    return tuple(scale * np.random.default_rng(seed).standard_normal((2, d, columns)))


def _log_time(u, gap, kind):
    """ln of the time at which the flow of W for one sample with one other token, D = z = 1, score 0, has margin u."""

    def slowness(s):  # dt/du = 1/r
        sigma = 1 / (1 + mpmath.exp(s))
        f = -gap * sigma
        push = mpmath.exp(-f) if kind == "exponential" else 1 / (1 + mpmath.exp(f))
        return 1 / (push * gap * sigma * (1 - sigma))

    pieces = [max(0, u - 40), max(0, u - 10), u]  # what is left out is below e^-40
    return float(mpmath.log(mpmath.quad(slowness, sorted(set(pieces)))))


@pytest.mark.parametrize("kind", ["exponential", "logistic"])
def test_one_margin_follows_the_quadrature_of_its_rate(kind):
    gap, levels = 3.0, [0.5, 30.0, 600.0]
    loss = SelectionLoss(np.zeros(1), np.full((1, 1), gap), kind)
    times = [_log_time(u, gap, kind) for u in levels]
    flow = matrix_margin_flow(
        loss, np.ones((1, 1, 1)), np.ones((1, 1)), log_until=times[-1], record=times, tolerance=1e-9
    )
    np.testing.assert_allclose(flow.margins[:, 0, 0], levels, rtol=1e-8)
    # W = K Q with K(0) = Q(0) = b, and beta = omega^2 sinh(phi): d beta/dt is r times K^2 + Q^2, or 2 beta'(psi)
    b = 0.3
    pair = (np.full((1, 1), b), np.full((1, 1), b))
    factored = key_query_margin_flow(
        loss, np.ones((1, 1, 1)), np.ones((1, 1)), pair, log_until=50.0, record=[2.0, 50.0], tolerance=1e-9
    )
    diagonal = diagonal_margin_flow(
        loss,
        np.ones((1, 1, 1)),
        DiagonalMarginInit(np.array([2**0.5 * b]), np.zeros(1)),
        log_until=50.0,
        record=[2.0, 50.0],
        tolerance=1e-9,
    )
    np.testing.assert_allclose(factored.margins, diagonal.margins, rtol=1e-8)
    psi = np.log(diagonal.beta[:, 0] / b**2)  # beta = b^2 e^psi here, since w_- = 0
    np.testing.assert_allclose(diagonal.psi[:, 0], psi, rtol=1e-12)


@pytest.mark.parametrize("kind", ["exponential", "logistic"])
def test_conditioned_data_end_at_the_l1_solution_within_2000_right_hand_sides(kind):
    data = conditioned_tokens(4, 5, 8, seed=11)
    beta = l1_svm(data).beta
    flow = diagonal_margin_flow(
        _loss(data, kind), data.features, 0.3, log_until=1e7, record=[1e3, 1e4, 1e7], tolerance=1e-7
    )
    errors = np.linalg.norm(flow.direction - beta, axis=1) / np.linalg.norm(beta)
    assert np.all(errors < [1e-3, 1e-4, 1e-6])
    assert flow.evaluations <= 2000
    law = np.exp(flow.log_times + flow.log_excess) * flow.margin  # t mu (L - L*) -> |beta*|_1 / 2
    np.testing.assert_allclose(law[1:], np.abs(beta).sum() / 2, rtol=3e-4)


def test_w_alone_falls_as_the_frobenius_norm_has_it():
    flow = matrix_margin_flow(
        _loss(DATA), DATA.differences, DATA.z, log_until=100 * LN10, record=[100 * LN10], tolerance=1e-7
    )
    svm = frobenius_svm(DATA)
    squared = np.sum((svm.K.T @ svm.K) * (svm.Q.T @ svm.Q))
    assert float(np.exp(flow.log_times + flow.log_excess)[0] / squared) == pytest.approx(1, abs=1e-4)


def test_all_follow_the_flow_in_the_weights_themselves():
    loss, times, d = _loss(DATA, "logistic"), [-2.0, 0.0, 2.0], DATA.dim
    B, D, z = DATA.features, DATA.differences, DATA.z
    plus = np.linspace(0.2, 0.4, d)
    minus = plus[::-1].copy()
    twin = weight_flow(
        loss,
        lambda w: B @ ((w[0] ** 2 - w[1] ** 2) / 2),
        (plus, minus),
        record=times,
        tolerance=1e-9,
    )
    flow = diagonal_margin_flow(
        loss, B, DiagonalMarginInit(plus, minus), log_until=times[-1], record=times, tolerance=1e-9
    )
    for ours, other in zip(flow.weights, twin.weights, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(flow.margins, twin.margins, rtol=1e-6)
    np.testing.assert_allclose(flow.margin_speeds, twin.margin_speeds, rtol=1e-4, atol=1e-5)

    W = 0.1 * np.random.default_rng(1).standard_normal((d, d))
    moved = weight_flow(loss, lambda w: ((z @ w.T)[:, None] * D).sum(-1), W, record=times, tolerance=1e-9)
    alone = matrix_margin_flow(loss, D, z, log_until=times[-1], record=times, start=W, tolerance=1e-9)
    np.testing.assert_allclose([alone.weights(k) for k in range(3)], moved.weights, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(alone.log_excess, moved.log_excess, rtol=1e-7)


@pytest.mark.parametrize("columns", [3, 15])
def test_keys_and_queries_follow_the_flow_in_themselves(columns):
    loss, times, start = _loss(DATA), [-1.0, 1.0, 8.0], _pair(DATA.dim, columns)
    D, z = DATA.differences, DATA.z
    twin = weight_flow(
        loss,
        lambda w: ((z @ w[1]) @ w[0].T)[:, None, :] * D @ np.ones(8),
        start,
        record=times,
        tolerance=1e-10,
    )
    flow = key_query_margin_flow(loss, D, z, start, log_until=times[-1], record=times, tolerance=1e-9)
    for k in range(3):
        np.testing.assert_allclose(flow.keys(k), twin.weights[0][k], atol=1e-7)
        np.testing.assert_allclose(flow.queries(k), twin.weights[1][k], atol=1e-7)
        W = flow.keys(k) @ flow.queries(k).T
        np.testing.assert_allclose(flow.spectrum(k)[:3], np.linalg.svd(W, compute_uv=False)[:3], atol=1e-10)
    assert np.all(flow.conservation_defects < 1e-8)
    np.testing.assert_allclose(flow.margin_speeds, twin.margin_speeds, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_independent_formulations_agree_on_the_direction_at_astronomical_times():
    loss, times, d = _loss(DATA), [10 * LN10, 100 * LN10, 300 * LN10], DATA.dim
    B, D, z = DATA.features, DATA.differences, DATA.z
    flow = diagonal_margin_flow(loss, B, 0.1, log_until=times[-1], record=times, tolerance=1e-10)
    twin = weight_flow(
        loss,
        lambda w: B @ (w[0] * w[1]),
        (np.full(d, 0.1 * 2**0.5), np.zeros(d)),
        record=times,
        tolerance=1e-11,
    )
    other = twin.weights[0] * twin.weights[1] / twin.margin[:, None]
    assert np.abs(flow.direction - other).max() < 1e-9 * np.abs(other).max()
    start = _pair(d, d)
    pair = weight_flow(
        loss,
        lambda w: ((z @ w[1]) @ w[0].T)[:, None, :] * D @ np.ones(d),
        start,
        record=times,
        tolerance=1e-11,
    )
    flow = key_query_margin_flow(loss, D, z, start, log_until=times[-1], record=times, tolerance=1e-10)
    for k in range(3):
        other = pair.weights[0][k] @ pair.weights[1][k].T / pair.margin[k]
        K, Q = flow.direction(k)
        assert np.abs(K @ Q.T - other).max() < 1e-9 * np.abs(other).max()


def test_the_parametrisations_of_diagonal_weights_are_one():
    flow = diagonal_margin_flow(_loss(DATA), DATA.features, 0.1, log_until=300.0, record=[3.0, 300.0], tolerance=1e-7)
    plus, minus = flow.weights
    np.testing.assert_allclose(plus * minus, 0.01, rtol=1e-12)
    np.testing.assert_allclose(flow.beta, 0.01 * np.sinh(flow.psi), rtol=1e-9, atol=1e-12)


def test_a_shift_of_the_scores_shifts_the_logarithm_of_time():
    """Under the exponential loss all rates are multiplied by e^-c."""
    first = diagonal_margin_flow(
        _loss(DATA), DATA.features, 0.1, log_until=1000.0, record=[20.0, 1000.0], tolerance=1e-7
    )
    shifted = SelectionLoss(DATA.optimal_scores + 4.0, DATA.gaps)
    second = diagonal_margin_flow(shifted, DATA.features, 0.1, log_until=1004.0, record=[24.0, 1004.0], tolerance=1e-7)
    np.testing.assert_allclose(first.margins, second.margins, rtol=1e-7)
    np.testing.assert_allclose(first.log_excess, second.log_excess + 4, rtol=1e-7)


def test_rotations_of_columns_and_of_space_commute_with_the_flow():
    D, z, loss = DATA.differences, DATA.z, _loss(DATA)
    K, Q = _pair(8, 6)
    turn, wide = ortho_group.rvs(6, random_state=0), np.eye(8, 11) @ ortho_group.rvs(11, random_state=1)
    flow = key_query_margin_flow(loss, D, z, (K, Q), log_until=30.0, record=[30.0], tolerance=1e-7)
    turned = key_query_margin_flow(
        loss, D @ wide, z @ wide, (wide.T @ K @ turn, wide.T @ Q @ turn), log_until=30.0, record=[30.0], tolerance=1e-7
    )
    np.testing.assert_allclose(turned.keys(0), wide.T @ flow.keys(0) @ turn, atol=1e-5)
    rest = np.random.default_rng(5).standard_normal((11, 6))
    rest -= wide.T @ (wide @ rest)  # orthogonal to all data: stays
    moved = key_query_margin_flow(
        loss, D @ wide, z @ wide, (wide.T @ K + rest, wide.T @ Q), log_until=30.0, record=[30.0], tolerance=1e-7
    )
    np.testing.assert_allclose(moved.keys(0) - rest, wide.T @ flow.keys(0), atol=1e-5)


@pytest.mark.parametrize("signs", [(-1.0, -1.0), (1.0, -1.0)])
def test_keys_and_queries_that_lack_what_grows_do_not_learn_it_from_rounding(signs):
    """D = z = e_1 leaves K = Q S as it is for columns of signs S; margins grow with the columns of sign 1 alone."""
    loss, z, keys = (
        SelectionLoss(np.zeros(1), np.full((1, 1), 3.0)),
        np.array([[0.6, 0.8]]),
        np.array([[0.3, -0.2], [0.1, 0.4]]),
    )
    flow = key_query_margin_flow(loss, z[None], z, (keys, keys * signs), log_until=30.0, tolerance=1e-8, throw=False)
    assert flow.status.code == ("undecided" if max(signs) < 0 else "reached")
    assert (flow.margins.max() <= 1e-12) == (max(signs) < 0)


def test_every_system_solves_its_own_newton_equations():
    rng, loss = np.random.default_rng(3), _loss(gaussian_tokens(3, 4, 5, seed=0, spread=0.5))
    data = gaussian_tokens(3, 4, 5, seed=0, spread=0.5)
    reduction = Reduction.of(data.differences, data.z, *_pair(5, 4, scale=0.5))
    systems = [
        IntegralSystem.diagonal(loss, data.features, np.full(5, 0.5), np.full(5, 0.4)),
        IntegralSystem.of_matrix(loss, data.differences, data.z, np.zeros((3, 3))),
        KeyQuerySystem(loss, reduction),
    ]
    for system in systems:
        assert system.set_time_unit()
        y = system.start()
        y[0] = 0.4
        y[2:] += 0.1 * rng.random(len(y) - 2)
        steps = 1e-6 * np.eye(len(y))
        jacobian = np.array([(system.slope(y + h) - system.slope(y - h)) / 2e-6 for h in steps]).T
        jacobian[:, 0] = 0  # time is exact
        right = rng.standard_normal(len(y))
        right[0] = 0
        solved = system.newton(y, 0.7)(right)
        np.testing.assert_allclose((np.eye(len(y)) - 0.7 * jacobian) @ solved, right, atol=1e-6 * np.abs(solved).max())


def test_the_start_is_what_is_recorded_at_minus_infinity_and_time_goes_far():
    flow = diagonal_margin_flow(
        _loss(DATA), DATA.features, 1e-100, log_until=1e7, record=[-np.inf, 5.0, 1e7], tolerance=1e-7
    )
    assert not flow.phi[0].any()
    assert not flow.beta[0].any()
    np.testing.assert_array_equal(flow.scaled_rates[0], 0)
    assert flow.margin[2] > 1e6
    assert flow.energy_defects.max() < 1e-5
    assert np.all(np.diff(flow.log_excess) < 0)
    np.testing.assert_allclose(flow.log_excess[2], -1e7, rtol=1e-5)


class _OtherRates(SelectionLoss):
    """Rates that are not the derivatives of the loss: a sample's are too large by a tenth."""

    def log_rates(self, margins):
        log_rates, signs = super().log_rates(margins)
        return log_rates + np.log([1.1, 1, 1, 1])[:, None], signs


def test_rates_that_are_no_derivatives_are_found_out_by_the_energy():
    loss = _OtherRates(DATA.optimal_scores, DATA.gaps)
    for run in (
        lambda: diagonal_margin_flow(loss, DATA.features, 0.1, log_until=50.0, record=[50.0], tolerance=1e-7),
        lambda: matrix_margin_flow(loss, DATA.differences, DATA.z, log_until=50.0, record=[50.0], tolerance=1e-7),
    ):
        with pytest.raises(FlowError, match="out of balance") as raised:
            run()
        assert raised.value.result.energy_defects[-1] > 1e-3


def test_data_that_cannot_be_separated_are_named_where_evaluations_run_out():
    data = gaussian_tokens(4, 5, 8, seed=6)
    policy = {"log_until": 23.0, "record": [], "tolerance": 1e-4, "max_evaluations": 1500}
    with pytest.raises(FlowError, match=r"Sample 2 still has a margin of -0.967: .* which l1_svm, .* check;"):
        diagonal_margin_flow(_loss(data), data.features, 0.1, **policy)
    with pytest.raises(InputError, match="data must be separable"):
        l1_svm(data)


def test_the_default_records_run_from_the_start_to_the_end_without_changing_the_flow():
    """Evenly spaced in ln(1 + ln(1 + t / ts)); the same states as at the same times given."""
    flow = diagonal_margin_flow(_loss(DATA), DATA.features, 0.1, log_until=1e3, tolerance=1e-7)
    assert len(flow.log_times) == 201
    assert flow.log_times[0] == -np.inf
    assert flow.log_times[-1] == 1e3
    late = np.log(flow.log_times[150:])  # ln ln t, where t is far above ts
    np.testing.assert_allclose(np.diff(late), np.diff(late).mean(), rtol=0.05)
    one = diagonal_margin_flow(
        _loss(DATA), DATA.features, 0.1, log_until=1e3, record=flow.log_times[[50, 120]], tolerance=1e-7
    )
    np.testing.assert_array_equal(one.phi, flow.phi[[50, 120, 200]])
