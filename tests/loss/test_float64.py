"""Predictions and flows compute in float64 whichever mode JAX is in, and refuse losses of lower precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.robustness.closures import GIVEN, given

import saddlescope as ss
from saddlescope._shared.errors import InputError
from saddlescope.models import symmetric_weights

TARGET = np.array([2.0, 1.0])


def numbers(result):
    """Return the losses of a flow or a ladder, or the times of stages."""
    return result.losses if hasattr(result, "losses") else [stage.time for stage in result.stages]


@pytest.mark.parametrize("name", GIVEN)
def test_a_call_in_float32_mode_gives_the_numbers_of_float64(name):
    expected = numbers(given(name, TARGET))  # which makes the valid call in the mode of this process
    with jax.enable_x64(False):
        assert np.array_equal(numbers(given(name, TARGET)), expected)


@pytest.mark.parametrize("name", GIVEN)
def test_arrays_of_jax_that_lost_their_digits_are_refused(name):
    target = jnp.asarray(TARGET, jnp.float32)
    with (
        jax.numpy_dtype_promotion("standard"),
        pytest.raises(InputError, match=r"must compute in float64; got float32 values of shape .*Compute"),
    ):
        given(name, target)


def test_a_prediction_leaves_the_callers_own_programs_as_they_are():
    """JAX would hand the float64 array that a kept program has closed over to programs in float32 mode."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 2)), rng.standard_normal(20)

    def loss(beta):
        return jnp.mean((x @ beta - y) ** 2)

    with jax.enable_x64(False):
        ss.incremental_learning(loss, 2)
        assert jax.jit(jax.grad(loss))(jnp.ones(2)).dtype == jnp.float32
        assert jnp.asarray(x).dtype == jnp.float32


def test_a_program_of_the_caller_that_holds_rounded_data_costs_a_copy_and_no_digits():
    """JAX would hand the float32 array of a kept program to the prediction; the advice of the error works."""
    x, y = np.random.default_rng(1).standard_normal((2, 20, 2))

    def of(x, y):
        return lambda beta: jnp.mean((x @ beta - y[:, 0]) ** 2)

    with jax.enable_x64(False):
        kept = jax.jit(of(x, y))
        kept(jnp.ones(2))
        try:
            found = ss.incremental_learning(of(x, y), 2)
        except InputError:
            found = ss.incremental_learning(of(np.array(x), np.array(y)), 2)
    wanted = ss.incremental_learning(of(np.array(x), np.array(y)), 2)
    assert [stage.time for stage in found.stages] == [stage.time for stage in wanted.stages]


@jax.custom_vjp
def _rough_backwards(beta):
    return jnp.sum((beta - 1) ** 2)


_rough_backwards.defvjp(
    lambda beta: (_rough_backwards(beta), beta),
    lambda beta, g: ((g * 2 * (beta - 1)).astype(jnp.float32).astype(beta.dtype),),
)


def test_a_gradient_of_lower_precision_is_refused():
    with pytest.raises(InputError, match="must compute in float64; got float32"):
        ss.incremental_learning(_rough_backwards, 2)


def test_weights_of_a_tiny_scale_do_not_vanish():
    with jax.enable_x64(False):
        assert np.all(np.asarray(symmetric_weights(2, 2, seed=0, log_scale=-200.0)) != 0)
