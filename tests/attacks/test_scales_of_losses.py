"""The prediction or flow for c L is that for L in other units, whatever c."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.flow import DiagonalInit, FactorInit, factored_flow, gradient_flow
from saddlescope.theory import incremental_learning, low_rank_learning

SCALES = [1e-290, 1e-200, 1e-120, 1e-12, 1e12, 1e120, 1e200]
RNG = np.random.default_rng(0)
TARGET = np.array([[3.0, 0.4, 0.0], [0.1, 2.0, 0.2], [0.0, 0.0, 1.0]])
FACTORS = [(RNG.standard_normal((3, 3)), RNG.standard_normal((3, 3)))]
SIDES = RNG.standard_normal(3), RNG.standard_normal(3)


class Squares(eqx.Module):
    """Half the squared distance from a target, times a number; compiled once for all numbers."""

    factor: jax.Array
    target: jax.Array
    of_products: bool = eqx.field(static=True)

    def __call__(self, x):
        x = x[0] if self.of_products else x
        return self.factor * (jnp.sum((x - self.target) ** 2) / 2)


def _low_rank(c):
    learned = low_rank_learning(Squares(jnp.array(c), jnp.array(TARGET), True), [(3, 3)])
    assert learned.status == "converged"
    return [stage.time * c for stage in learned.stages], [stage.loss / c for stage in learned.stages]


def _incremental(c):
    learned = incremental_learning(Squares(jnp.array(c), jnp.array([3.0, 2.0, 0.5]), False), 3)
    assert learned.status == "converged"
    return [stage.time * c for stage in learned.stages], [stage.loss / c for stage in learned.stages]


def _factored(c):
    start, times = FactorInit(FACTORS, log_scale=-100.0), np.array([0.2, 0.4, 0.6])
    loss = Squares(jnp.array(c), jnp.array(TARGET), True)
    flow = factored_flow(loss, start, until=0.6 / c, tolerance=1e-4, record=times / c)
    assert flow.log_scale == -100.0
    return flow.times * c, flow.losses / c


def _gradient(c):
    start, times = DiagonalInit(*SIDES, log_scale=-100.0), np.array([0.2, 0.4, 0.8, 1.5])
    loss = Squares(jnp.array(c), jnp.array([3.0, 2.0, 0.5]), False)
    flow = gradient_flow(loss, start, until=1.5 / c, tolerance=1e-4, record=times / c)
    return flow.times * c, flow.losses / c


@pytest.mark.parametrize("solve", [_low_rank, _incremental, _factored, _gradient])
def test_the_scale_of_a_loss_changes_its_units_alone(solve):
    with jax.enable_x64(True):
        times, losses = solve(1.0)
        for c in SCALES if solve is not _factored else SCALES[1::4]:  # slower
            scaled_times, scaled_losses = solve(c)
            np.testing.assert_allclose(scaled_times, times, rtol=1e-9, atol=1e-12, err_msg=str(c))
            np.testing.assert_allclose(scaled_losses, losses, rtol=1e-3, atol=1e-6, err_msg=str(c))
