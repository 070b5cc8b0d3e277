"""What each flow conserves stays, relative to the largest term of the moment, from any scale, or the flow ends."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.flow import (
    DiagonalInit,
    FactorInit,
    LogDiagonalInit,
    ParameterInit,
    escape_flow,
    factored_flow,
    gradient_flow,
    gradient_flow_batched,
    key_query_margin_flow,
    unit_flow,
)
from saddlescope.models.tokens.losses import SelectionLoss

TOLERANCE = 1e-6
U, V = np.random.default_rng(2).standard_normal((2, 3, 2))
TARGET = np.diag([2.0, 1.0, 0.5])
UNITS = {"a": np.random.default_rng(3).standard_normal((3, 2)), "b": np.array([1.0, -0.5, 0.7])}


def vector_loss(beta):
    return jnp.sum((beta - jnp.array([1.0, -0.5])) ** 2) / 2


def product_loss(product):
    return jnp.sum((product - TARGET) ** 2) / 2


def drift(first, last, terms):
    """Return the change of something that is conserved in units of the largest of its terms."""
    return float(np.max(np.abs(last - first)) / np.max(np.abs(terms)))


def of_products(end, log):
    """u^2 - v^2 = (u + v) (u - v), in logarithms of alpha^2."""
    u, v = (side[:2, 0] for side in (U, V))
    at_end = LogDiagonalInit.of(end)
    signs = at_end.sum_sign * at_end.difference_sign
    return drift(u**2 - v**2, signs * np.exp(at_end.log_sum + at_end.log_difference - 2 * log), u**2 - v**2)


def diagonal(log):
    flow = gradient_flow(
        vector_loss, DiagonalInit(U[:2, 0], V[:2, 0], log), until=3.0, tolerance=TOLERANCE, throw=False
    )
    return flow.status, of_products(flow.end, log)


def diagonal_batched(log):
    start = DiagonalInit(U[:2, 0], V[:2, 0], log)
    flows = gradient_flow_batched(vector_loss, [start, start], until=3.0, tolerance=TOLERANCE, throw=False)
    return flows[1].status, of_products(flows[1].end, log)


def parameters(log):
    start, until = ParameterInit((np.exp(log) * U, np.exp(log) * V)), -1.5 * log
    flow = gradient_flow(lambda p: product_loss(p[0] @ p[1].T), start, until=until, tolerance=TOLERANCE, throw=False)
    left, right = (part[0] for part in flow.parameters(flow.times[-1:]))
    first = np.exp(2 * log) * (U.T @ U - V.T @ V)
    return flow.status, drift(first, left.T @ left - right.T @ right, left.T @ left)


def factored(log):
    flow = factored_flow(
        lambda products: product_loss(products[0]),
        FactorInit([(U, V)], log_scale=log),
        until=1.5,
        tolerance=TOLERANCE,
        throw=False,
    )
    ((left, right),) = flow.factors(flow.times[-1:])
    assert flow.conserved < TOLERANCE * np.max(np.abs(U.T @ U))  # in units of alpha^2: nothing is lost in the largest
    first = np.exp(2 * log) * (U.T @ U - V.T @ V)
    return flow.status, drift(first, left[0].T @ left[0] - right[0].T @ right[0], left[0].T @ left[0])


def units(log):
    data = np.eye(2), np.array([2.0, 1.0])
    flow = unit_flow(
        lambda theta, x: theta["b"] * (theta["a"] @ x),
        data,
        lambda f, y: (f - y) ** 2,
        UNITS,
        degree=2.0,
        log_scale=log,
        until=2.0,
        tolerance=TOLERANCE,
        throw=False,
    )
    first, last = np.concatenate([UNITS["a"], UNITS["b"][:, None]], axis=1), flow.directions[-1]
    sizes = np.exp(2 * (flow.log_norms[-1] - log))
    before, after = (w[:, 2] ** 2 - w[:, 0] ** 2 - w[:, 1] ** 2 for w in (first, last))
    return flow.status, drift(before, after * sizes, sizes)


def escape(log):
    weights = [np.random.default_rng(k).standard_normal((2, 2)) for k in range(3)]
    flow = escape_flow(
        lambda w: w[2] @ w[1] @ w[0],
        lambda f: jnp.sum((f - TARGET[:2, :2]) ** 2) / 2,
        weights,
        degree=3,
        until=4.0,
        tolerance=TOLERANCE,
        log_norm=log,
        throw=False,
    )
    size = np.linalg.norm(np.concatenate([np.ravel(w) for w in weights]))
    grown = np.exp(2 * (flow.log_norms[-1] - flow.log_norms[0]))

    def balance(w):
        return np.stack([w[k + 1].T @ w[k + 1] - w[k] @ w[k].T for k in range(2)])

    last = [np.asarray(w)[-1] for w in flow.directions]
    return flow.status, drift(balance(weights) / size**2, grown * balance(last), [grown])


def keys_and_queries(log):
    rng = np.random.default_rng(4)
    D, z = rng.standard_normal((4, 3, 8)), rng.standard_normal((4, 8))
    loss = SelectionLoss(np.zeros(4), np.ones((4, 3)))
    K, Q = np.exp(log) * rng.standard_normal((2, 8, 2))
    flow = key_query_margin_flow(loss, D, z, (K, Q), log_until=20.0, tolerance=TOLERANCE, throw=False)
    return flow.status, float(flow.conservation_defects[-1])


@pytest.mark.parametrize("scale", [1e-2, pytest.param(1e-8, marks=pytest.mark.slow), 1e-100])
@pytest.mark.parametrize("follow", [diagonal, diagonal_batched, parameters, factored, units, escape, keys_and_queries])
def test_what_is_conserved_stays_or_the_flow_ends(follow: Callable, scale: float):
    status, change = follow(float(np.log(scale)))
    assert change < TOLERANCE or not status.ok
