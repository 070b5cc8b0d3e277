"""The SIM theory's trajectories for a diffusion model: against another integrator, closed forms, planted fits."""

import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp

from saddlescope.papers.concept_learning.figure_6.theory import LAYERS, SCALES, predict_family, predict_trajectories
from saddlescope.theory.concepts import one_layer_output

STRONG_COLOUR = np.array([8.4, 5.5]), np.array([0.7, 1.0])  # mu, sigma
STRONG_SIZE = np.array([2.4, 4.0]), np.array([0.5, 0.8])
STEPS = np.geomspace(50, 4000, 40)


@pytest.mark.parametrize("scale", [5, 20])
def test_two_layers_follow_gradient_flow(scale):
    """Against the flow of |(U U^T - 1) A^(1/2)|^2 / 2 by SciPy; one of the three clusters is at the origin."""
    found = predict_family(*STRONG_COLOUR, "two", starts=1, seed=3)
    A, mu = np.diag([0.49 + 8.4**2 / 3, 1.0 + 5.5**2 / 3]), STRONG_COLOUR[0]

    def velocity(_, u):
        U = u.reshape(2, 2)
        E = U @ U.T - np.eye(2)
        return -(A @ E @ U + E @ A @ U).ravel()

    some, start = np.arange(0, len(found.times), 20), SCALES[scale] * np.random.default_rng(3).standard_normal(4)
    at = {"t_eval": found.times[some], "method": "LSODA", "rtol": 1e-10, "atol": 1e-12}
    exact = solve_ivp(velocity, (0, found.times[-1]), start, **at)
    C = [u.reshape(2, 2) @ u.reshape(2, 2).T @ mu / mu for u in exact.y.T]
    np.testing.assert_allclose(found.paths[scale, some], C, atol=2e-5)


def test_one_layer_is_theorem_4_1():
    found, (mu, sigma) = predict_family(*STRONG_SIZE, "one", starts=1, seed=0), STRONG_SIZE
    for scale in (0, 12, 24):
        A = np.diag(sigma**2 + mu**2 / 3)
        theorem = one_layer_output(A, SCALES[scale] * np.eye(2), mu, found.times).total
        np.testing.assert_allclose(found.paths[scale], theorem / mu, atol=1e-12)


@pytest.mark.parametrize(("images", "ahead"), [(STRONG_COLOUR, 1), (STRONG_SIZE, -1)])
def test_stronger_concept_leads(images, ahead):
    path = predict_family(*images, "two", starts=16, seed=0).paths[10]
    lead = path[:, 0] - path[:, 1]
    assert ahead * lead[np.argmax(abs(lead))] > 0.3


@pytest.mark.parametrize("layers", LAYERS)
def test_fit_finds_what_was_planted_and_the_size_of_noise(layers):
    predicted = predict_family(*STRONG_COLOUR, layers, starts=8, seed=0)
    measured = predicted.at(20, 9000.0, STEPS)
    measured[:3] = np.nan  # records without positions
    found = predicted.fit(measured, STEPS)
    assert (found.scale, found.pace) == (20, pytest.approx(9000.0, rel=1e-3))
    assert found.error < 1e-4
    noise = 0.05 * np.random.default_rng(1).standard_normal((len(STEPS), 2))
    noisy = predicted.fit(predicted.at(18, 9000.0, STEPS) + noise, STEPS)
    assert noisy.error == pytest.approx(np.sqrt(np.mean(noise**2)), rel=0.05)


def test_trajectories_are_predicted_for_seeds_with_records_in_the_order_of_the_signals():
    paths = np.stack(
        [predict_family(*of, "two", starts=4, seed=0).at(10, 9000.0, STEPS) for of in (STRONG_COLOUR, STRONG_SIZE)]
    )
    position = np.zeros((2, 2, len(STEPS), 4, 3, 2))  # signal, seed, step, class, image, concept
    position[..., 3, :, :] = paths[:, None, :, None]
    position[1, 1] = np.nan
    image = ("signal", "seed", "step", "class", "image")
    mu, sigma = (np.array(values) for values in zip(STRONG_COLOUR, STRONG_SIZE, strict=True))
    run = xr.Dataset(
        {
            "position": ((*image, "concept"), position),
            "blank": (image, np.isnan(position[..., 0])),
            "mu": (("signal", "concept"), mu),
            "sigma": (("signal", "concept"), sigma),
        },
        coords={"step": STEPS},
        attrs={"first_record": 50},
    )
    found = predict_trajectories(run, starts=4)
    assert np.isnan(found.theory_error.values[:, 1, 1]).all()
    assert found.theory_error.sel(layers="two").values[0].max() < 1e-3
    times = found.theory_learned.values[:, 0]
    assert times[0, 0] < times[0, 1]
    assert times[1, 0] > times[1, 1]
