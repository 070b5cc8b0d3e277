"""Early alignment of two-layer ReLU networks, against the network's own gradient and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from saddlescope.models import StructuredIdentityTask, identity_loss, layered_weights
from saddlescope.theory import rank_one_escape_speed
from saddlescope.theory.concepts import early_alignment

TASK = StructuredIdentityTask((1.0, 2.0), (0.3, 0.3), 40, 2)
X = TASK.draw(0)


def _start(scale, seed, neurons=8):
    return [np.asarray(weight) for weight in layered_weights((2, neurons, 2), seed=seed, deviation=scale)]


def test_it_is_the_flow_of_the_whole_network_from_small_weights():
    W, V = _start(1e-4, 1)
    gradient = jax.jit(jax.grad(identity_loss(X, relu=True)))

    def velocity(_, flat):
        slopes = gradient((jnp.asarray(flat[:16].reshape(8, 2)), jnp.asarray(flat[16:].reshape(2, 8))))
        return -np.concatenate([np.asarray(slope).ravel() for slope in slopes])

    predicted = early_alignment(X, (W, V), drop=1e-4)
    whole = solve_ivp(velocity, (0.0, predicted.time), np.concatenate([W.ravel(), V.ravel()]), rtol=1e-7, atol=1e-11)
    np.testing.assert_allclose(whole.y[:16, -1].reshape(8, 2), predicted.first, atol=1e-5, rtol=1e-3)
    np.testing.assert_allclose(whole.y[16:, -1].reshape(2, 8).T, predicted.second, atol=1e-5, rtol=1e-3)


def test_one_positive_neuron_among_positive_data_is_linear():
    data = np.abs(X)
    A = data.T @ data / len(data)
    w, v = np.array([[0.01, 0.02]]), np.array([[0.03], [0.01]])
    found = early_alignment(data, (w, v), drop=0.05)
    values, basis = np.linalg.eigh(A)
    total, rest = basis.T @ (w[0] + v[:, 0]), basis.T @ (w[0] - v[:, 0])
    up, down = np.exp(values * found.time), np.exp(-values * found.time)
    np.testing.assert_allclose(found.first[0], basis @ (total * up + rest * down) / 2, rtol=1e-4)
    np.testing.assert_allclose(found.second[0], basis @ (total * up - rest * down) / 2, rtol=1e-4)
    share = found.second[0] @ A @ found.first[0] / (np.trace(A) / 2)
    np.testing.assert_allclose(share, 0.05, rtol=1e-4)


def test_the_network_turns_to_the_fastest_neuron_as_the_scale_falls():
    best = rank_one_escape_speed(X, -X / len(X), depth=2)
    top = best.weights[0][0] / np.linalg.norm(best.weights[0][0])
    missed = []
    for scale in (1e-2, 1e-5):
        found = early_alignment(X, _start(scale, 3), drop=0.02)
        missed.append(1 - float(found.shares @ (found.directions @ top)))
        np.testing.assert_allclose(found.rates[np.argmax(found.shares)], best.upper, rtol=0.03)
    assert missed[1] < 0.01 * missed[0]
    np.testing.assert_allclose(np.sum(found.shares), 1.0)
    np.testing.assert_allclose(np.linalg.norm(found.directions, axis=1), 1.0)


def test_the_time_follows_the_scale():
    one, other = (early_alignment(X, _start(scale, 4), drop=0.02) for scale in (1e-6, 1e-7))
    np.testing.assert_allclose(other.time - one.time, np.log(10) / one.rates.max(), rtol=1e-3)
