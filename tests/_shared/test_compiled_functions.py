"""Compiled code: which constants share it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared import compiled_functions
from saddlescope._shared.compiled_functions import (
    bound,
    compilations,
    compiled,
    compiled_for_constants,
    compiled_in_place,
    forget,
    quickly_compiled,
)


def _filled(constant, x):
    return (
        x + jnp.full(2, constant).astype(x.dtype) / 2 if isinstance(constant, float) else x * str(constant).count("1")
    )


def _signed(constant, x):
    return jnp.copysign(x, constant)


@pytest.mark.parametrize("decorate", [compiled, quickly_compiled, compiled_in_place, compiled_for_constants(1)])
@pytest.mark.parametrize(("function", "constants"), [(_filled, (1, 1.0, True)), (_signed, (0.0, -0.0))])
def test_constants_that_are_equal_and_no_less_different_have_their_own_code(decorate, function, constants):
    made, x = decorate(function), jnp.ones(2)
    for constant in constants:
        np.testing.assert_array_equal(made(constant, x), function(constant, x))


def test_equal_constants_share_their_code():
    made, x = compiled(_signed), jnp.ones(2)
    for _ in range(3):
        made(float("2.5"), x)
    assert compilations(made) == 1


def test_a_bound_function_is_the_function_for_its_first_arguments():
    made, x = compiled(lambda constants, x, y: constants[0] * x + constants[1] - y), jnp.arange(3.0)
    one = (2.0, jnp.ones(3))
    fast = bound(made, one, count=2)
    np.testing.assert_array_equal(fast(x, x + 1), made(one, x, x + 1))
    assert compilations(made) == 1
    np.testing.assert_array_equal(fast(np.asarray(x), np.asarray(x + 1)), made(one, x, x + 1))
    forget()
    np.testing.assert_array_equal(fast(x, x + 1), made(one, x, x + 1))


@pytest.mark.parametrize("name", ["_QUICK", "_IN_PLACE"])
@pytest.mark.parametrize("known", [True, False])
def test_options_that_this_version_of_xla_has_not_are_left_out(monkeypatch, name, known):
    options = getattr(compiled_functions, name) if known else {"xla_cpu_no_such_option": True}
    monkeypatch.setattr(compiled_functions, name, options)
    decorate = {"_QUICK": quickly_compiled, "_IN_PLACE": compiled_in_place}[name]
    made, x = decorate(_signed), jnp.ones(2)
    for _ in range(3):
        np.testing.assert_array_equal(made(-1.0, x), -x)
    assert compilations(made) == 1


def test_another_error_of_xla_is_raised(monkeypatch):
    monkeypatch.setattr(compiled_functions, "_QUICK", {"xla_backend_optimization_level": "high"})
    with pytest.raises(jax.errors.JaxRuntimeError, match="not a valid"):
        quickly_compiled(_signed)(-1.0, jnp.ones(2))
