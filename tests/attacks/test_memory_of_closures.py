"""Compiled code of functions no longer used is released, however many closures are passed."""

import gc
from collections.abc import Callable
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared import compiled_functions
from saddlescope.flow import (
    DiagonalInit,
    FactorInit,
    escape_flow,
    factored_flow,
    gradient_descent,
    gradient_flow,
    gradient_flow_batched,
    sgd,
    unit_flow,
)
from saddlescope.models import DiagonalNetwork
from saddlescope.theory import gradient_at_zero, incremental_learning, low_rank_learning, unit_learning

RNG = np.random.default_rng(0)
SIDES = RNG.standard_normal(2), RNG.standard_normal(2)
START = DiagonalInit(*SIDES, log_scale=-20.0)
FACTORS = FactorInit([(RNG.standard_normal((2, 2)), RNG.standard_normal((2, 2)))], log_scale=-20.0)
INPUTS = RNG.standard_normal((6, 2))


def quadratic(k: int) -> Callable[..., Any]:
    """Return a new closure."""
    minimum = jnp.array([2.0, 1.0 + k / 1e6])
    return lambda beta: jnp.sum((beta - minimum) ** 2) / 2


def of_products(k: int) -> Callable[..., Any]:
    """Return a new closure over a tuple of matrices."""
    target = jnp.diag(jnp.array([2.0, 1.0 + k / 1e6]))
    return lambda products: jnp.sum((products[0] - target) ** 2) / 2


def unit(k: int) -> Callable[..., Any]:
    """Return a new closure of one unit."""
    factor = 1.0 + k / 1e6
    return lambda theta, x: factor * theta[0] * (theta[1:] @ x)


def cubic_unit(k: int) -> Callable[..., Any]:
    """Return a new closure of one unit of degree 3."""
    factor = 1.0 + k / 1e6
    return lambda theta, x: factor * theta[0] * (theta[1:] @ x) ** 2


def squared(k: int) -> Callable[..., Any]:
    """Return a new closure of an output and a target."""
    factor = 1.0 + k / 1e6
    return lambda output, target: factor * (output - target) ** 2 / 2


def network(k: int) -> Any:
    """Return a network of a new closure."""
    factor = 1.0 + k / 1e6
    x = jnp.asarray(INPUTS)
    return DiagonalNetwork(lambda x, beta: factor * (x @ beta), x, x @ jnp.array([1.0, 0.5]))


def _homogeneous(k: int) -> object:
    factor = 1.0 + k / 1e6
    weights = [np.ones((2, 2)), np.ones((1, 2))]
    return escape_flow(
        lambda W: factor * (W[1] @ (W[0] @ INPUTS.T)), lambda Y: jnp.sum((Y - 1) ** 2), weights, degree=2,
        until=0.1, log_norm=-10.0, tolerance=1e-4,
    )  # fmt: skip


CUBIC = RNG.standard_normal((3, 3))
DATA = INPUTS, INPUTS @ np.array([1.0, 0.5])
CALLS: dict[str, Callable[[int], object]] = {
    "incremental_learning": lambda k: incremental_learning(quadratic(k), 2),
    "incremental_learning with weights": lambda k: incremental_learning(quadratic(k), 2, weights=SIDES),
    "gradient_flow": lambda k: gradient_flow(quadratic(k), START, until=0.5, tolerance=1e-3),
    "gradient_flow of a network": lambda k: gradient_flow(network(k), START, until=0.5, tolerance=1e-3),
    "gradient_flow_batched": lambda k: gradient_flow_batched(quadratic(k), [START] * 2, until=0.5, tolerance=1e-3),
    "gradient_descent": lambda k: gradient_descent(quadratic(k), START, steps=5, learning_rate=0.01),
    "sgd": lambda k: sgd(
        quadratic(k), jnp.ones(2), steps=5, learning_rate=lambda step: jnp.where(step < 0, 0.0, 0.01),
        observe=lambda beta: beta[0] * k,
    ),
    "factored_flow": lambda k: factored_flow(of_products(k), FACTORS, until=0.2, tolerance=1e-3),
    "low_rank_learning": lambda k: low_rank_learning(of_products(k), [(2, 2)]),
    "unit_learning": lambda k: unit_learning(unit(k), DATA, squared(k), parameters=np.zeros(3), width=2, max_stages=1),
    "unit_learning of degree 3": lambda k: unit_learning(
        cubic_unit(k), DATA, squared(k), parameters=np.zeros(3), weights=CUBIC, max_stages=1
    ),
    "unit_flow": lambda k: unit_flow(
        unit(k), DATA, squared(k), np.ones((2, 3)), degree=2.0, log_scale=-10.0, until=0.1, tolerance=1e-3
    ),
    "escape_flow": _homogeneous,
    "gradient_at_zero": lambda k: gradient_at_zero(lambda Y: jnp.sum((Y - k) ** 2), samples=3, outputs=2),
}  # fmt: skip


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
    """Return the closures of this module that are alive."""
    gc.collect()
    functions = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__closure__]
    return [one for one in functions if one.__module__ == __name__]


FAST = {"gradient_flow of a network", "gradient_flow_batched", "escape_flow"}


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CALLS]
)
def test_closures_are_released_with_their_compiled_code(name):
    """JAX's caches would keep thousands of closures, with all data that they close over."""
    before = closures()
    with jax.enable_x64(True):
        CALLS[name](1)
    compiled_functions.forget()
    assert len(closures()) == len(before)
