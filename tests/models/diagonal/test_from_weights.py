"""Networks given by their weights: functions of u * v are accepted, others rejected with the coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models import attention_head, network_of_weights


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.standard_normal((9, 5, 3))), jnp.asarray(rng.standard_normal((9, 5, 3)))


def _head(x, u, v):
    """Attention head written with its four matrices."""
    k, o = jnp.split(u, 2)
    q, w = jnp.split(v, 2)
    return jax.nn.softmax((x * k[None]) @ (x * q[None]).T, axis=-1) @ (x * o[None]) * w[None]


def test_a_head_written_with_its_weights_is_the_head_of_its_products(data):
    inputs, targets = data
    beta = jnp.asarray(np.random.default_rng(1).standard_normal(6))
    network = network_of_weights(_head, 6, inputs, targets)
    expected = np.mean((np.stack([attention_head(x, beta) for x in inputs]) - targets) ** 2)
    np.testing.assert_allclose(network(beta), expected, rtol=1e-13)


def test_other_functions_of_the_weights_raise_with_the_coordinates(data):
    def decayed(x, u, v):
        return _head(x, u, v) + 1e-3 * u[4] ** 2 + 1e-3 * jnp.abs(v[1])

    with pytest.raises(InputError, match="i = 1, 4"):
        network_of_weights(decayed, 6, *data)


def test_signs_count(data):
    with pytest.raises(InputError, match="i = 2"):  # visible only if u and v both change sign
        network_of_weights(lambda x, u, v: _head(x, u, v) + jnp.sign(u[2]) * jnp.abs(u[2] * v[2]), 6, *data)


@pytest.mark.parametrize(
    ("f", "size", "sentence"),
    [
        (_head, 0, "size must be an integer"),
        (_head, 4, "f must accept"),
        (lambda x, u, v: np.asarray(u * v), 6, "f must accept"),
        (lambda x, u, v: jnp.log(-u * v), 6, "f must be finite"),
    ],
)
def test_invalid_networks_raise(data, f, size, sentence):
    with pytest.raises(InputError, match=sentence):
        network_of_weights(f, size, *data)
