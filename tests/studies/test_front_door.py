"""predict and simulate: each kind of network goes to its own theorem and flow, and both agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saddlescope as ss
from saddlescope._shared.errors import InputError

TARGET = np.diag([2.0, 1.0])


@pytest.fixture(autouse=True)
def _in_the_mode_of_users():
    with jax.enable_x64(False):
        yield


def diagonal(**more):
    return ss.predict(lambda beta: jnp.sum((beta - jnp.array([2.0, 1.0])) ** 2) / 2, size=2, **more)


def factors():
    return ss.predict(lambda B: jnp.sum((B[0] - TARGET) ** 2) / 2, shapes=[(2, 2)])


def units():
    def unit(theta, x):
        return theta["a"] * (theta["w"] @ x)

    shapes = {"a": np.zeros(2), "w": np.zeros(2)}
    data = np.eye(2) * np.sqrt(2), TARGET * np.sqrt(2)
    return ss.predict(unit, data, lambda f, y: jnp.sum((f - y) ** 2) / 2, parameters=shapes, width=6)


@pytest.mark.parametrize("make", [diagonal, factors, units])
def test_stages_of_two_modes_are_found_in_the_simulation(make):
    predicted = make()
    run = ss.simulate(predicted, log_scale=-300.0)
    times = [stage.start for stage in predicted.staircase.stages]
    assert times == pytest.approx([0.0, 0.5, 1.0], rel=1e-6)  # 1 / s_k
    levels = [float(run.losses[np.searchsorted(run.times, time)]) for time in (0.25, 0.75, 1.15)]
    assert levels == pytest.approx([2.5, 0.5, 0.0], abs=1e-3)
    assert ss.plot_staircase(predicted, run) is not None
    assert len(predicted.to_dataframe()) == 3


def test_layers_escape_along_a_direction():
    x = np.linspace(-1.0, 1.0, 7)[:, None]
    loss = ss.LayeredLoss(x, np.abs(x))
    predicted = ss.predict(loss, widths=(6, 6), num_starts=8)
    run = ss.simulate(predicted, log_scale=-50.0, tolerance=1e-4)
    assert run.losses[-1] < run.losses[0]
    with pytest.raises(InputError, match="escape directions, which have none"):
        _ = predicted.staircase


def test_given_weights_are_those_of_both():
    u, v = np.array([1.0, 0.5]), np.array([0.2, -0.3])
    predicted = diagonal(weights=(u, v))
    run = ss.simulate(predicted, log_scale=-300.0, level=0.5)
    crossed = [one.time for one in run.crossings]
    assert predicted.result.times_at(-300.0)[1:] == pytest.approx(crossed, rel=2e-3)


def test_given_weights_bound_what_can_be_learned():
    def loss(products):
        return jnp.sum((products[0] - TARGET) ** 2) / 2

    pair = np.ones((2, 1)), np.ones((2, 1))
    assert ss.predict(loss, shapes=[(2, 2)], weights=[pair]).result.stages[-1].ranks == (1,)
    one = {"a": np.ones((1, 2)), "w": np.ones((1, 2))}
    predicted = ss.predict(
        lambda theta, x: theta["a"] * (theta["w"] @ x),
        (np.eye(2), TARGET),
        lambda f, y: jnp.sum((f - y) ** 2) / 2,
        parameters={"a": np.zeros(2), "w": np.zeros(2)},
        weights=one,
    )
    assert predicted.result.stages[-1].active == 1
