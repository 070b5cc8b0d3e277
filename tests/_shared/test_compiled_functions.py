"""Compiled code: which constants share it."""

import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared.compiled_functions import compilations, compiled, compiled_for_constants


def _filled(constant, x):
    return (
        x + jnp.full(2, constant).astype(x.dtype) / 2 if isinstance(constant, float) else x * str(constant).count("1")
    )


def _signed(constant, x):
    return jnp.copysign(x, constant)


@pytest.mark.parametrize("decorate", [compiled, compiled_for_constants(1)])
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
