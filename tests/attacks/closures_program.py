"""Calls of one function with a new closure each time: program of `test_memory_of_closures.py`.

Prints the resident memory in MiB after each tenth of the calls.
"""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def main(name: str, calls: int) -> list[float]:
    """Return the memory after each tenth of the calls."""
    found = []
    with jax.enable_x64(True):
        for k in range(1, calls + 1):
            CALLS[name](k)
            if k % (calls // 10) == 0:
                gc.collect()
                found.append(resident())
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))  # noqa: T201
