"""Compiled epochs of many runs of gradient descent: steps, and observations at some of them.

All runs are a leading axis of every array. Compilation takes longer than many runs, so the program is small: the step
is compiled once, and the loops are outside the map over runs.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from saddlescope._shared.compiled_functions import quickly_compiled
from saddlescope.flow.descent.learning_rates import AbstractLearningRate
from saddlescope.loss.compiled import loss_and_gradient
from saddlescope.loss.stacked import StackedRuns


@quickly_compiled
def epoch(
    losses: StackedRuns,
    observers: StackedRuns,
    rates: Float[Array, "runs"] | AbstractLearningRate,
    weights: PyTree,
    orders: Int[Array, "runs steps batch"] | None,
    edges: Int[Array, "segments"],
    count: Int[Array, ""],
    first: Int[Array, ""],
    checked: bool,
) -> tuple[PyTree, PyTree, Float[Array, "runs"]]:
    """Take the steps of an epoch, and observe the weights at edges[1], ..., edges[count] of them.

    Args:
        losses: of the runs.
        observers: of the runs.
        rates: one for each run, or a rule.
        weights: at the beginning.
        orders: samples of the minibatches; None: each step sees all.
        edges: 0, the steps to observe at, and the number of steps; equal or ascending.
        count: number of observations; edges[count + 1] ends the epoch.
        first: number of steps taken before.
        checked: True to observe if the weights of each run are finite, False to call the observers.

    Returns:
        The weights at the end; the observations, with leading axes (records, runs), of which the first `count` are
        filled; and the losses at the beginning if no steps were taken before, else 0.
    """
    each = None if isinstance(rates, AbstractLearningRate) else rates
    kind = jax.tree.leaves(weights)[0].dtype

    def step(place: Array, weights: PyTree) -> PyTree:
        def one(arrays: Any, order: Any, rate: Any, weights: PyTree) -> PyTree:
            loss = losses.built(arrays)
            _, gradient = loss_and_gradient(loss if order is None else loss.batch(_item(order, place)), weights)
            eta = rates.at(first + place, weights) if isinstance(rates, AbstractLearningRate) else rate
            return jax.tree.map(lambda leaf, slope: leaf - eta * slope, weights, gradient)

        return jax.vmap(one)(losses.arrays, orders, each, weights)

    def observed(weights: PyTree) -> PyTree:
        if checked:
            return _finite(weights)
        return jax.vmap(lambda arrays, weights: observers.built(arrays)(weights))(observers.arrays, weights)

    shapes = jax.eval_shape(observed, weights)

    def to_record(record: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        weights, seen = carry
        start, stop = (_item(edges, record + k) for k in range(2))
        weights = jax.lax.fori_loop(start, stop, step, weights)
        found = jax.lax.cond(record < count, observed, lambda _: _zeros(shapes), weights)
        return weights, jax.tree.map(
            lambda values, leaf: jax.lax.dynamic_update_index_in_dim(
                values, leaf, record, 0, allow_negative_indices=False
            ),
            seen,
            found,
        )

    values = jax.lax.cond(
        first == 0,
        lambda weights: jax.vmap(lambda arrays, weights: losses.built(arrays)(weights))(losses.arrays, weights),
        lambda weights: jnp.zeros(len(jax.tree.leaves(weights)[0]), kind),
        weights,
    )
    seen = jax.tree.map(lambda shape: jnp.zeros((len(edges) - 1, *shape.shape), shape.dtype), shapes)
    return *jax.lax.fori_loop(0, count + 1, to_record, (weights, seen)), values


def _item(values: Array, place: Array) -> Array:
    """Return values[place] for a place that is in range."""
    return jax.lax.dynamic_index_in_dim(values, place, 0, keepdims=False, allow_negative_indices=False)


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)


def _finite(weights: PyTree) -> Bool[Array, "runs"]:
    """Return True for each run with finite weights."""
    leaves = jax.tree.leaves(weights)
    return jnp.stack([jnp.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves]).all(axis=0)
