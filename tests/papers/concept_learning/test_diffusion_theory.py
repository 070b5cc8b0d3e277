"""The SIM theory's trajectories for a diffusion model: against another integrator, closed forms, planted fits."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.papers.concept_learning.figure_6.theory import LAYERS, SCALES, Concepts, Fitted, fit, predict_family
from saddlescope.theory.concepts import one_layer_output

STRONG_COLOUR = Concepts(mu=(8.4, 5.5), sigma=(0.7, 1.0))
STRONG_SIZE = Concepts(mu=(2.4, 4.0), sigma=(0.5, 0.8))
STEPS = np.geomspace(50, 4000, 40)


@pytest.mark.parametrize("scale", [5, 20])
def test_two_layers_follow_gradient_flow(scale):
    """Against the flow of |(U U^T - 1) A^(1/2)|^2 / 2 by SciPy; one of the three clusters is at the origin."""
    found = predict_family(STRONG_COLOUR, "two", starts=2, seed=3)
    A, mu = np.diag([0.49 + 8.4**2 / 3, 1.0 + 5.5**2 / 3]), np.array([8.4, 5.5])
    np.testing.assert_allclose(np.diag(A), STRONG_COLOUR.strengths, rtol=1e-14)

    def velocity(_, u):
        U = u.reshape(2, 2)
        E = U @ U.T - np.eye(2)
        return -(A @ E @ U + E @ A @ U).ravel()

    some = np.arange(0, len(found.times), 20)
    starts = SCALES[scale] * np.random.default_rng(3).standard_normal((2, 2, 2))
    for start, path in zip(starts, found.paths[scale], strict=True):
        exact = solve_ivp(
            velocity,
            (0, found.times[-1]),
            start.ravel(),
            method="LSODA",
            t_eval=found.times[some],
            rtol=1e-10,
            atol=1e-12,
        )
        C = [u.reshape(2, 2) @ u.reshape(2, 2).T @ mu / mu for u in exact.y.T]
        np.testing.assert_allclose(path[some], C, atol=2e-5)


def test_one_layer_is_theorem_4_1():
    found = predict_family(STRONG_SIZE, "one", starts=1, seed=0)
    mu = np.array(STRONG_SIZE.mu)
    for scale in (0, 12, 24):
        theorem = one_layer_output(np.diag(STRONG_SIZE.strengths), SCALES[scale] * np.eye(2), mu, found.times).total
        np.testing.assert_allclose(found.paths[scale, 0], theorem / mu, atol=1e-12)


def test_stronger_concept_leads():
    for concepts, ahead in ((STRONG_COLOUR, 1), (STRONG_SIZE, -1)):
        path = predict_family(concepts, "two", starts=16, seed=0).paths[10].mean(axis=0)
        lead = path[:, 0] - path[:, 1]
        assert ahead * lead[np.argmax(abs(lead))] > 0.3


@pytest.mark.parametrize("layers", LAYERS)
def test_fit_finds_what_was_planted(layers):
    predicted = predict_family(STRONG_COLOUR, layers, starts=8, seed=0)
    measured = predicted.at(Fitted(20, 9000.0, 0.0), STEPS)
    measured[:3] = np.nan  # records without positions
    found = fit(measured, STEPS, predicted)
    assert found.scale == 20
    assert found.pace == pytest.approx(9000.0, rel=1e-3)
    assert found.error < 1e-4


def test_error_of_a_fit_is_the_root_of_the_mean_square():
    predicted = predict_family(STRONG_COLOUR, "two", starts=8, seed=0)
    noise = 0.05 * np.random.default_rng(1).standard_normal((len(STEPS), 2))
    found = fit(predicted.at(Fitted(18, 9000.0, 0.0), STEPS) + noise, STEPS, predicted)
    assert found.error == pytest.approx(np.sqrt(np.mean(noise**2)), rel=0.05)


def test_path_stays_at_its_end_beyond_the_flow():
    predicted = predict_family(STRONG_SIZE, "two", starts=2, seed=0)
    late = predicted.at(Fitted(10, 1.0, 0.0), np.array([0.0, 1e9]))
    np.testing.assert_allclose(late, predicted.paths[10][:, [0, -1]].mean(axis=0))
