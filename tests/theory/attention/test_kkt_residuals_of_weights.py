"""The KKT residuals of appendix A.5: exact at solutions, and the two multipliers against an integrated flow."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import linprog

from saddlescope.models.tokens.generators import conditioned_tokens
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.theory.attention.kkt_residuals import averaged_multipliers, incremental_multipliers, kkt_residuals

OMEGA = 0.3


@pytest.fixture(scope="module")
def data():
    return conditioned_tokens(3, 4, 8, seed=5)


def l1_solution(data):
    B = data.features.reshape(-1, data.dim)
    found = linprog(np.ones(2 * data.dim), A_ub=np.hstack([-B, B]), b_ub=-np.ones(len(B)), method="highs")
    return found.x[: data.dim] - found.x[data.dim :], -found.ineqlin.marginals.reshape(data.gaps.shape)


def flow(data, times):
    """phi, beta and the rates of Lemma A.1 at times t, by brute force in ln(1 + t)."""
    B, loss = data.features, SelectionLoss(data.optimal_scores, data.gaps)

    def beta_of(phi):
        return OMEGA**2 * np.sinh(np.einsum("im,imd->d", phi.reshape(data.gaps.shape), B))

    def slope(tau, phi):
        return 2 * np.exp(loss.log_rates(B @ beta_of(phi))[0] + tau).ravel()

    taus = np.log1p(times)
    phis = solve_ivp(slope, (0, taus[-1]), np.zeros(data.gaps.size), "LSODA", taus, rtol=1e-11, atol=1e-12).y.T
    betas = np.array([beta_of(phi) for phi in phis])
    return phis.reshape(-1, *data.gaps.shape), betas, [np.exp(loss.log_rates(B @ beta)[0]) for beta in betas]


def test_a_solution_with_its_multipliers_has_no_residual(data):
    beta, lambdas = l1_solution(data)
    found = kkt_residuals(data.features, 7 * beta, lambdas, beta != 0)
    assert found.stationarity < 1e-9
    assert found.slackness < 1e-9
    assert found.distance == 0
    assert found.least_margin == pytest.approx(1, abs=1e-12)


def test_each_condition_has_its_residual(data):
    beta, lambdas = l1_solution(data)
    B, inside = data.features, beta != 0
    doubled = kkt_residuals(B, beta, 2 * lambdas, inside)
    outside = np.abs(np.einsum("im,imd->d", 2 * lambdas, B))[~inside]
    assert doubled.stationarity == pytest.approx(np.hypot(np.sqrt(inside.sum()), np.linalg.norm(outside.clip(1) - 1)))
    assert doubled.slackness < 1e-9
    nudged = beta + np.where(inside, 0, 1e-3 * np.sign(beta[inside][0]))
    moved = kkt_residuals(B, nudged, lambdas, inside)
    assert moved.distance == pytest.approx(np.linalg.norm(nudged[~inside]) / (B @ nudged).min(), rel=1e-12)
    assert moved.stationarity < 1e-9
    assert moved.slackness == pytest.approx(np.max(lambdas * ((B @ nudged) / (B @ nudged).min() - 1)), rel=1e-9)
    assert kkt_residuals(B, beta, 0 * lambdas, inside).stationarity == pytest.approx(np.sqrt(inside.sum()))
    # entries of the support's wrong sign are as far off as can be
    assert kkt_residuals(-B, -beta, lambdas, inside).stationarity < 1e-9


def test_the_incremental_multiplier_is_the_derivative_by_the_logarithm_of_the_margin(data):
    times = np.array([1e3, 1e3 * (1 - 1e-3), 1e3 * (1 + 1e-3)])
    order = np.argsort(times)
    phi, beta, rates = (np.array(each)[np.argsort(order)] for each in flow(data, times[order]))
    log_mu = np.log((beta @ data.features.reshape(-1, data.dim).T).min(axis=1))
    expected = (phi[2] - phi[1]) / (log_mu[2] - log_mu[1])
    found = incremental_multipliers(data.features, beta[0], rates[0], offsets=OMEGA**2)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert incremental_multipliers(
        data.features, beta[0], 1e-200 * rates[0], offsets=np.full(8, OMEGA**2)
    ) == pytest.approx(found, rel=1e-12)
    assert averaged_multipliers(phi[0], log_mu[0]) == pytest.approx(phi[0] / log_mu[0])


def test_the_papers_multiplier_is_off_by_the_logarithm_of_the_scale(data):
    """Large beta: |sum phi B|_j = ln(2 |beta_j| / w0^2), and the residual is that over ln mu, less 1."""
    solution, _ = l1_solution(data)
    inside = solution != 0
    (phi,), (beta,), (rates,) = flow(data, np.array([1e8]))
    mu = (data.features @ beta).min()
    paper = kkt_residuals(data.features, beta, averaged_multipliers(phi, np.log(mu)), inside)
    on_support = np.log(2 * np.abs(beta[inside]) / OMEGA**2) / np.log(mu) - 1
    beyond = np.abs(np.arcsinh(beta[~inside] / OMEGA**2)).clip(np.log(mu)) / np.log(mu) - 1
    assert paper.stationarity == pytest.approx(np.hypot(np.linalg.norm(on_support), np.linalg.norm(beyond)), rel=1e-4)
    assert paper.stationarity > 1
    ours = kkt_residuals(data.features, beta, incremental_multipliers(data.features, beta, rates), inside)
    assert ours.stationarity < 0.1
