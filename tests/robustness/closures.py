"""Functions that close over an array, for the public functions that take one: changes of their valid calls."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from tests.robustness.valid_calls import calls

from saddlescope.models import DiagonalNetwork

X = np.random.default_rng(0).standard_normal((6, 2))
SIDES = np.array([1.0, 0.5]), np.array([0.2, -0.3])


def of_vector(t: Any) -> Callable[..., Any]:
    return lambda beta: jnp.sum((beta - t) ** 2) / 2


def of_product(t: Any) -> Callable[..., Any]:
    return lambda products: jnp.sum((products[0] - jnp.diag(t)) ** 2) / 2


def of_output(t: Any) -> Callable[..., Any]:
    return lambda output, target: (output - t[1] * target) ** 2 / 2


def network(t: Any) -> DiagonalNetwork:
    return DiagonalNetwork(lambda x, beta: t[1] * (x @ beta), jnp.asarray(X), X @ jnp.array([1.0, 0.5]))


def cubic(t: Any) -> dict[str, Any]:
    """Return units of degree 3 and their data."""
    unit = lambda theta, x: t[1] * theta[0] * (theta[1:] @ x) ** 2  # noqa: E731
    return {"unit": unit, "data": (X, X @ SIDES[0]), "parameters": np.zeros(3), "kinds": 1, "weights": np.eye(3) + 0.3}


GIVEN: dict[str, Callable[[Any], dict[str, Any]]] = {
    "incremental_learning": lambda t: {"loss": of_vector(t)},
    "low_rank_learning": lambda t: {"loss": of_product(t)},
    "unit_learning": lambda t: {"loss": of_output(t)},
    "width_ladder": lambda t: {"loss": of_output(t)},
    "unit_flow": lambda t: {"loss": of_output(t)},
    "gradient_flow": lambda t: {"loss": of_vector(t)},
    "gradient_flow_batched": lambda t: {"loss": of_vector(t)},
    "gradient_descent": lambda t: {"loss": of_vector(t)},
    "factored_flow": lambda t: {"loss": of_product(t)},
    "escape_flow": lambda t: {"output": lambda w: t[1] * (w[1] @ w[0]), "weights": (np.eye(2), np.ones((1, 2)))},
}
"""Changed arguments by function, made from an array (2,); these compute in float64."""
OTHERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "sgd": lambda t: {"loss": lambda w: t[1] * jnp.sum(w[0] ** 2), "observe": lambda w: t[1] * w[0]},
    "gradient_at_zero": lambda t: {"cost": lambda outputs: jnp.sum((outputs - t[1]) ** 2)},
    "incremental_learning with weights": lambda t: {"loss": of_vector(t), "weights": SIDES},
    "gradient_flow of a network": lambda t: {"loss": network(t)},
    "unit_learning of degree 3": lambda t: cubic(t) | {"loss": of_output(t), "width": None},
}


def given(label: str, t: Any) -> Any:
    """Return what the function of a label returns where it is given functions that close over t."""
    name = label.partition(" ")[0]
    (call,) = (calls(each)[name] for each in ("theory", "flow") if name in calls(each))
    return call(**(GIVEN | OTHERS)[label](t))
