"""The loss as the theory sees it: its Hessian by columns, and what is no loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models import DiagonalNetwork, attention_teacher_task, diagonal_linear_network
from saddlescope.theory import AlgorithmStatus, incremental_learning
from saddlescope.theory.incremental.loss_oracle import LossOracle


def _losses():
    """The same loss with columns of its own, with a full Hessian of its own, and as a bare function."""
    network = attention_teacher_task(0, samples=7, tokens=3, dim=4).network

    class Full:
        def __call__(self, beta):
            return network(beta)

        def hessian(self, beta):
            return network.hessian(beta)

    return network, Full(), lambda beta: network(beta)


@pytest.mark.slow
@pytest.mark.parametrize("which", range(3))
def test_a_block_of_the_hessian_is_the_one_asked_for_whatever_was_asked_before(which):
    network, rng = _losses()[0], np.random.default_rng(0)
    oracle = LossOracle(_losses()[which], 8)
    for point in (rng.standard_normal(8), rng.standard_normal(8)):
        whole = np.asarray(jax.hessian(lambda beta: DiagonalNetwork.__call__(network, beta))(jnp.asarray(point)))
        for among in ([5], [2, 5, 7], [0, 2, 7], [], [7, 5, 2], list(range(8))):
            block = oracle.hessian(point, np.array(among, dtype=np.int64))
            np.testing.assert_allclose(block, whole[np.ix_(among, among)], atol=1e-12)


@pytest.mark.parametrize("generic", [False, True])
def test_a_hundred_thousand_coordinates_need_no_matrix_of_their_square(generic):
    rng, p = np.random.default_rng(0), 100_000  # p x p float64 numbers would be 80 GB
    x, beta = rng.standard_normal((20, p)), np.zeros(p)
    beta[[7, 99_000]] = 3.0, -2.0
    network = diagonal_linear_network(x, x @ beta)
    if generic:
        network = DiagonalNetwork(h=lambda one, b: one @ b, inputs=network.inputs, targets=network.targets)
    learned = incremental_learning(network, p)
    assert learned.status is AlgorithmStatus.CONVERGED
    assert np.max(np.abs(learned.stages[-1].beta - beta)) < 1e-10
    first = learned.stages[1]  # the largest correlation enters first, and learns its least-squares value
    (i,) = first.entered
    assert i == np.argmax(np.abs(x.T @ (x @ beta)))
    assert first.beta[i] == pytest.approx(x[:, i] @ (x @ beta) / (x[:, i] @ x[:, i]), rel=1e-10)


@pytest.mark.parametrize(
    "loss",
    [
        lambda b: jax.pure_callback(lambda b: np.sum(b**2), jax.ShapeDtypeStruct((), jnp.float64), b),
        lambda b: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + jnp.sum(b * b)), (0, 0.0))[1],
    ],
)
def test_what_jax_cannot_differentiate_is_refused(loss):
    with pytest.raises(InputError, match="loss must be a function that JAX can differentiate twice"):
        incremental_learning(loss, 3)
