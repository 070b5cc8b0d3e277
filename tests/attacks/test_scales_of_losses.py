"""The prediction or flow for c L is that for L in other units, whatever c."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.flow import DiagonalInit, FactorInit, factored_flow, gradient_flow
from saddlescope.theory import (
    AlgorithmStatus,
    LadderStatus,
    incremental_learning,
    low_rank_learning,
    unit_learning,
    width_ladder,
)

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
    rates = [rate / c for stage in learned.stages[1:] for rate in (stage.curvature, stage.convergence_rate)]
    times = [stage.time * c for stage in learned.stages] + [tie.efolds for tie in learned.near_ties(-20.0, efolds=1e9)]
    return times + rates, [stage.loss / c for stage in learned.stages]


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


def _linear(theta, x):
    return theta[0] * (theta[1:] @ x)


def _squared(output, pair):
    scale, target = pair
    return scale * (output - target) ** 2


UNITS = {"inputs": np.random.default_rng(0).standard_normal((6, 2)), "targets": np.arange(6.0)}


def _units(c):
    data = UNITS["inputs"], (np.full(6, c), UNITS["targets"])
    learned = unit_learning(_linear, data, _squared, parameters=np.zeros(3))
    assert learned.status is AlgorithmStatus.CONVERGED
    stage = learned.stages[-1]
    times = [stage.time * c, stage.utility / c, stage.curvature / c, learned.stages[0].runner_up_rate / c]
    return times, [one.loss / c for one in learned.stages]


def _ladder(c):
    data = UNITS["inputs"], (np.full(6, c), UNITS["targets"])
    climbed = width_ladder(_linear, data, _squared, (0, 1), parameters=np.zeros(3), num_starts=2)
    assert climbed.status is LadderStatus.COMPLETE
    return [climbed.rungs[0].utility / c, climbed.initial_loss / c], [rung.loss / c for rung in climbed.rungs]


@pytest.mark.parametrize(
    "solve", [_low_rank, _incremental, _factored, _gradient, _units, pytest.param(_ladder, marks=pytest.mark.slow)]
)
def test_the_scale_of_a_loss_changes_its_units_alone(solve):
    with jax.enable_x64(True):
        times, losses = solve(1.0)
        for c in SCALES if solve not in (_factored, _units, _ladder) else SCALES[1::5]:  # slower
            scaled_times, scaled_losses = solve(c)
            np.testing.assert_allclose(scaled_times, times, rtol=1e-9, atol=1e-12, err_msg=str(c))
            np.testing.assert_allclose(scaled_losses, losses, rtol=1e-3, atol=1e-6, err_msg=str(c))


@cache
def _factored_of_targets(scale):
    start = FactorInit([tuple(np.sqrt(scale) * factor for factor in FACTORS[0])], log_scale=-40.0)
    loss, times = Squares(jnp.array(1.0), jnp.array(scale * TARGET), True), np.array([0.2, 0.4, 0.6])
    return factored_flow(loss, start, until=0.6 / scale, tolerance=1e-4, record=times / scale).losses / scale**2


@pytest.mark.parametrize("c", [1e-30, 1e-16, 1e-8, 1e8, 1e30])
def test_the_scale_of_targets_changes_units_of_factored_flow_alone(c):
    with jax.enable_x64(True):
        np.testing.assert_allclose(_factored_of_targets(c), _factored_of_targets(1.0), rtol=1e-4)
