"""Units of which the network is no sum: products of two weights, inside the loss of softmax heads."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from saddlescope.models import DiagonalNetwork, attention_head
from saddlescope.theory import incremental_learning, unit_learning


class Heads(eqx.Module):
    """Sum of two heads with diagonal weights, each in an orthonormal basis of its own, in which they do not tie."""

    bases: Array

    def __call__(self, x, products):
        each = products.reshape(len(self.bases), -1)
        return jnp.sum(jax.vmap(lambda R, beta: attention_head(x @ R, beta) @ R.T)(self.bases, each), axis=0)


class HeadsNetwork(DiagonalNetwork):
    h: Heads  # pyright: ignore[reportIncompatibleMethodOverride]


def test_products_that_fall_dormant_return_as_in_algorithm_1():
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        heads = Heads(jnp.asarray(np.linalg.qr(rng.standard_normal((2, 2, 2)))[0]))
        x = jnp.asarray(rng.standard_normal((50, 4, 2)))
        keys = rng.choice([-1.0, 1.0], (2, 2)) * rng.uniform(1.0, 3.0, (2, 2))
        values = rng.choice([-1.0, 1.0], (2, 2)) * 1.6 ** -np.arange(4.0).reshape(2, 2)
        teacher = jnp.asarray(np.stack([keys, values], axis=1).ravel())
        network = HeadsNetwork(heads, x, jax.vmap(heads, (0, None))(x, teacher))
        learned = unit_learning(
            lambda theta, zeros, kind: zeros.at[kind].set(theta[0] * theta[1]),
            (np.zeros((network.samples, 8)), {"x": network.inputs, "y": network.targets}),
            lambda products, sample: jnp.mean((heads(sample["x"], products) - sample["y"]) ** 2),
            parameters=np.zeros(2),
            kinds=8,
            width=1,
            max_stages=9,
        )
        greedy = incremental_learning(network, 8, max_stages=9)
    assert [stage.left for stage in learned.stages[8:]] == [1, 2]  # the product that left is the next to enter
    assert learned.staircase.supports == greedy.staircase.supports
    np.testing.assert_allclose(learned.staircase.times, greedy.staircase.times, rtol=1e-9)
    np.testing.assert_allclose(learned.staircase.losses, greedy.staircase.losses, rtol=1e-9)
