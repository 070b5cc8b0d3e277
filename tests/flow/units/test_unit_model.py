"""The Jacobian of the flow of units, put together from units, against that of the whole slope."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.flow.units.unit_model import UnitModel
from saddlescope.numerics.tree_layout import TreeLayout
from saddlescope.papers.beyond.shared.units import half_square


def cross_entropy(f, y):
    return jax.nn.logsumexp(f) - f @ y


def cubic(theta, x):
    return theta["a"] * (theta["w"] @ x) ** 2


def of_two_kinds(theta, x, kind):
    return theta["a"] * (theta["w"] @ x) ** 2 * jnp.eye(2)[kind]


@pytest.mark.parametrize(
    ("unit", "loss", "samples", "outputs", "kinds", "conserved"),
    [
        pytest.param(cubic, cross_entropy, 30, 3, None, True, id="fewer outputs than weights of a unit"),
        pytest.param(cubic, half_square, 7, 40, None, False, id="more outputs"),
        pytest.param(of_two_kinds, half_square, 30, 2, np.array([0, 1, 0]), True, id="kinds"),
        pytest.param(cubic, half_square, 200_000, 2, None, False, id="in two stretches"),
    ],
)
def test_units_meet_in_the_loss_alone(unit, loss, samples, outputs, kinds, conserved):
    rng = np.random.default_rng(0)
    count, shape = 3, (outputs,) if kinds is None else ()
    layout = TreeLayout.of({"a": np.zeros(shape), "w": np.zeros(2)})
    log_norms = np.array([-2.0, 0.3, -400.0])  # the gradient of the last is taken at larger weights
    u = rng.standard_normal((count, layout.size))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    targets = jnp.asarray(rng.standard_normal((samples, outputs)))
    inputs = jnp.asarray(rng.standard_normal((samples, 2)))
    numbers = None if kinds is None else jnp.asarray(kinds)
    model = UnitModel(unit, loss, inputs, targets, layout, numbers, count, degree=3.0)
    if conserved:
        model = model.with_conserved(log_norms, u)
    state, log_unit = jnp.asarray(np.concatenate([log_norms, 1.1 * u.ravel()])), jnp.asarray(2.0)
    whole = jax.jit(jax.jacfwd(lambda at: model.slope(at, log_unit)))(state)
    found = jax.jit(lambda at: model.jacobian(at, log_unit))(state)
    np.testing.assert_allclose(found, whole, rtol=1e-11, atol=1e-13 * np.abs(whole).max())
