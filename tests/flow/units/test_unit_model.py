"""The Jacobian of the flow of units is the derivative of its slope, whatever the unit, the loss and the samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saddlescope.flow.units.unit_model as unit_model
from saddlescope.flow.units.unit_model import UnitModel
from saddlescope.numerics.tree_layout import TreeLayout

RNG = np.random.default_rng(4)
SIGNS = np.sign(RNG.standard_normal(13))
CASES = {
    "neurons": (
        lambda theta, x: theta["a"] * jax.nn.softplus(theta["w"] @ x),
        lambda f, y: jnp.log1p(jnp.exp(-f * y)),
        (RNG.standard_normal((13, 3)), SIGNS),
        {"a": RNG.standard_normal(4), "w": RNG.standard_normal((4, 3))},
        None,
        2.0,
    ),
    "kinds": (
        lambda theta, x, kind: theta[0] * theta[1] * x[kind],
        lambda f, y: 0.5 * (f - y) ** 2,
        (RNG.standard_normal((9, 5)), RNG.standard_normal(9)),
        RNG.standard_normal((5, 2)),
        np.arange(5),
        2.0,
    ),
    "matrices": (
        lambda theta, x: theta["v"] * theta["q"][:, None] * theta["k"][None, :] + 0 * x[0],
        lambda F, Y: jnp.sum((F - Y) ** 2) + jnp.sum(jnp.tanh(F)),
        (np.zeros((1, 1)), RNG.standard_normal((1, 3, 3))),
        {"v": RNG.standard_normal(2), "q": RNG.standard_normal((2, 3)), "k": RNG.standard_normal((2, 3))},
        None,
        3.0,
    ),
}


@pytest.mark.parametrize(("case", "block"), [*((case, unit_model._DERIVATIVES) for case in CASES), ("neurons", 30)])
def test_the_jacobian_is_that_of_automatic_differentiation(case, block, monkeypatch):
    monkeypatch.setattr(unit_model, "_DERIVATIVES", block)
    unit, loss, data, weights, kinds, degree = CASES[case]
    leaves = jax.tree.leaves(weights)
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
    layout = TreeLayout.of(jax.tree.map(lambda leaf: leaf[0], weights))
    inputs, targets = map(jnp.asarray, data)
    numbers = None if kinds is None else jnp.asarray(kinds)
    model = UnitModel(unit, loss, inputs, targets, layout, numbers, len(flat), degree)
    by_parts = jax.jit(lambda at, log_unit: model.jacobian(at, log_unit))
    automatic = jax.jit(jax.jacfwd(lambda at, log_unit: model.slope(at, log_unit)))
    for log_scale in (-1.0, -300.0, -2000.0):
        log_norms = np.log(np.linalg.norm(flat, axis=1)) + log_scale * np.arange(1, len(flat) + 1) / len(flat)
        state = np.concatenate([log_norms, flat.ravel()])  # directions count up to their norm
        found, expected = (np.asarray(each(state, -log_scale)) for each in (by_parts, automatic))
        largest = np.max(np.abs(expected), axis=1, keepdims=True)
        np.testing.assert_allclose(found / largest, expected / largest, rtol=1e-9, atol=1e-12)
