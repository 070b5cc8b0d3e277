"""The generalisation map: outputs at the stop against closed forms and a plain loop."""

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from saddlescope.flow import sgd_batched, symmetric_flows
from saddlescope.models import PopulationLoss
from saddlescope.papers.concept_learning.extensions import generalisation_map as runs
from saddlescope.theory.concepts import concept_stages

ASKED = runs.entry.configure("default", {"horizon": "150"})


def logistic(start: float, rate: float, t: float) -> float:
    return start * np.exp(4 * rate * t) / (1 - start + start * np.exp(4 * rate * t))


@pytest.mark.parametrize("ratio", [2.0, 6.0])
def test_aligned_symmetric_networks_follow_the_logistic_curve(ratio):
    """With orthogonal rows W stays diagonal, and every w_kk is logistic at the rate 4 a_k."""
    a, x = runs.data_law("both", ratio, 0.05, 0.05)
    (found,) = runs.symmetric_outputs(a, x, 1e-3 * np.eye(2, 4)[None], ASKED)
    weak, strong = a

    def left(s: float) -> float:
        return sum(rate * (1 - logistic(1e-6, rate, s / strong)) ** 2 for rate in (weak, strong)) - 0.01 * a.sum()

    stop = brentq(left, 0.1, 150.0)
    assert found == pytest.approx(logistic(1e-6, weak, stop / strong), abs=2e-3)


def test_descent_is_that_of_the_packages_sgd():
    a, x = runs.data_law("strong", 2.0, 0.5, 0.05)
    start = 0.03 * np.random.default_rng(3).standard_normal((2, 2, 2, 4))
    (found,) = runs.trained_outputs([(a, x)], start[None], ASKED)
    with jax.enable_x64(True):
        loss = PopulationLoss(np.diag(a)).layered
        run = sgd_batched(
            loss,
            (start[:, 1].mT, start[:, 0]),
            steps=1500,
            learning_rate=runs.RATE / a.max(),
            record=np.arange(1500),
            observe=jax.tree_util.Partial(lambda of, weights: (of(weights), weights), loss),
        )
    losses, (V, U) = run.observed
    stops = np.argmax(losses <= 0.01 * losses[:, :1], axis=1)
    expected = [(U[n, at] @ V[n, at] @ x / x).min() for n, at in enumerate(stops)]
    np.testing.assert_allclose(found, expected, atol=0.02)  # the marks are 1.3 % apart


def test_small_weights_that_are_not_symmetric_take_twice_the_time():
    """Gradient flow of U V, integrated by SciPy, against the symmetric network from (U + V^T) / 2 at half the time."""
    a, x = runs.data_law("both", 3.0, 0.5, 0.05)
    start = 1e-5 * np.random.default_rng(4).standard_normal((2, 2, 4))
    P, last = start.mean(axis=0), concept_stages(a, start.mean(axis=0)).times.max()

    def velocity(_, flat):
        U, V = flat[:8].reshape(2, 4), flat[8:].reshape(4, 2)
        E = (U @ V - np.eye(2)) * a
        return -np.concatenate([(E @ V.T).ravel(), (U.T @ E).ravel()])

    flat = np.concatenate([start[0].ravel(), start[1].T.ravel()])
    end = solve_ivp(velocity, (0, 2 * last), flat, method="DOP853", rtol=1e-11, atol=1e-14).y[:, -1]
    symmetric = symmetric_flows(a, P[None], test_point=x, until=last, tolerance=1e-10).W[0, -1]
    np.testing.assert_allclose(end[:8].reshape(2, 4) @ end[8:].reshape(4, 2), symmetric, atol=2e-3)


def test_networks_that_do_not_reach_the_stop_have_no_output():
    a, x = runs.data_law("both", 2.0, 0.05, 0.05)
    short = runs.entry.configure("default", {"horizon": "1"})
    assert np.isnan(runs.symmetric_outputs(a, x, 1e-3 * np.eye(2)[None], short)).all()
