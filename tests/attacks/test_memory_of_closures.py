"""Compiled code of functions no longer used is released, however many closures are passed."""

import gc
from types import FunctionType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.robustness.closures import GIVEN, OTHERS, given

from saddlescope._shared import compiled_functions
from saddlescope.flow import DiagonalInit, gradient_flow


def test_compiled_code_of_a_few_losses_is_kept():
    start = DiagonalInit(np.ones(1), np.full(1, 0.1), log_scale=-5.0)
    with jax.enable_x64(True):
        for k in range(compiled_functions.MOST + 3):
            gradient_flow(lambda beta, k=k: jnp.sum((beta - 1 - k) ** 2), start, until=0.01, tolerance=1e-2)
    assert len(compiled_functions._known) <= compiled_functions.MOST
    assert all(run._cache_size() <= 4 * compiled_functions.MOST for run in compiled_functions._compiled)


class Quadratic:
    """Loss whose class is not hashable."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __call__(self, beta):
        return jnp.sum((beta - 1) ** 2)


def test_losses_that_are_not_hashable_are_compared_by_identity():
    start = DiagonalInit(np.ones(1), np.full(1, 0.1), log_scale=-5.0)
    with jax.enable_x64(True):
        plain, ours = (
            gradient_flow(loss, start, until=1.0, tolerance=1e-4)
            for loss in (lambda beta: jnp.sum((beta - 1) ** 2), Quadratic())
        )
    np.testing.assert_array_equal(plain.losses, ours.losses)


def closures():
    """Return the closures over arrays that are alive."""
    gc.collect()
    functions = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__closure__]
    return [one for one in functions if one.__module__ == given.__module__]


FAST = {"gradient_flow of a network", "gradient_flow_batched", "escape_flow"}


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in GIVEN | OTHERS]
)
def test_closures_are_released_with_their_compiled_code(name):
    """JAX's caches would keep thousands of closures, with all data that they close over."""
    before = closures()
    with jax.enable_x64(True):
        given(name, jnp.array([2.0, 1.0]))
    compiled_functions.forget()
    assert len(closures()) == len(before)
