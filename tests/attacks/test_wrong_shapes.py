"""Arguments of wrong shapes: each is refused in one sentence of ours, not in the words of JAX or NumPy."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saddlescope as ss
from saddlescope import models, theory
from saddlescope.flow import DiagonalInit, FactorInit, ParameterInit

TWO, THREE, FOUR = (np.ones(n) for n in (2, 3, 4))
RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 3))
Y = RNG.standard_normal((8, 2))
RUN: dict[str, Any] = {"until": 1.0, "tolerance": 1e-4}
LOG: dict[str, Any] = {"log_until": 3.0, "tolerance": 1e-4}
DESCENT: dict[str, Any] = {"steps": 3, "learning_rate": 0.1}


def separate(beta):
    """Loss of three coordinates, and of no other number."""
    return jnp.sum((beta - jnp.array([1.0, 2.0, 3.0])) ** 2)


def constant():
    return 1.0


def vector(beta):
    return (beta - 1.0) ** 2


def linear(x, beta):
    return x @ beta


def network(inputs=X, targets=X[:, 0], h=linear):
    return ss.DiagonalNetwork(h, jnp.asarray(inputs), jnp.asarray(targets))


def product(factors):
    return jnp.sum((factors[0] @ jnp.ones((3, 2)) - 1.0) ** 2)


def unit(theta, x):
    return theta["out"] * jnp.maximum(theta["in"] @ x, 0.0)


def squared(y, z):
    return 0.5 * jnp.sum((y - z) ** 2)


def unit_weights(into=3, units=5, out=None):
    return {"in": RNG.standard_normal((units, into)), "out": RNG.standard_normal(out or units)}


def tokens(X=(4, 3, 2), z=(4, 2), y=(4,), v=(2,)):
    signs = np.sign(RNG.standard_normal(y))
    return ss.TokenData(RNG.standard_normal(X), RNG.standard_normal(z), signs, np.ones(v))


def start(n=3):
    return DiagonalInit(np.ones(n), 0.5 * np.ones(n), log_scale=-5.0)


def pair() -> Any:
    return np.ones((3, 3))


def parameters(n=3):
    return ParameterInit(np.ones(n))


def layers(*shapes):
    return tuple(RNG.standard_normal(shape) for shape in shapes)


def outputs(weights):
    return (weights[1] @ (weights[0] @ jnp.asarray(X.T))).T


SELECTION = models.SelectionLoss(np.ones(4), np.ones((4, 2)))
CALLS = {
    "gradient_flow: start of another length": lambda: ss.gradient_flow(separate, start(4), **RUN),
    "gradient_flow: vector loss": lambda: ss.gradient_flow(vector, start(), **RUN),
    "gradient_flow: network of wider data": lambda: ss.gradient_flow(network(), start(4), **RUN),
    "gradient_flow: matrix of times": lambda: ss.gradient_flow(separate, start(), record=np.ones((2, 2)), **RUN),
    "gradient_flow: loss without argument": lambda: ss.gradient_flow(constant, start(), **RUN),  # type: ignore[arg-type]
    "gradient_flow: loss of a pair": lambda: ss.gradient_flow(lambda w: jnp.sum(w[0] @ w[1]), start(), **RUN),
    "DiagonalInit: u and v differ": lambda: ss.gradient_flow(separate, DiagonalInit(THREE, FOUR, -5.0), **RUN),
    "DiagonalInit: a matrix": lambda: ss.gradient_flow(separate, DiagonalInit(X, X, -5.0), **RUN),
    "gradient_flow: times of the trajectory": lambda: ss.gradient_flow(separate, start(), **RUN)(np.ones((2, 2)) / 2),
    "gradient_flow_batched: starts differ": lambda: ss.gradient_flow_batched(separate, [start(), start(4)], **RUN),
    "gradient_flow_batched: another length": lambda: ss.gradient_flow_batched(separate, [start(4)] * 2, **RUN),
    "gradient_descent: another length": lambda: ss.gradient_descent(separate, start(4), **DESCENT),
    "sgd: another length": lambda: ss.sgd(separate, FOUR, observe=lambda w: w, **DESCENT),
    "sgd: observer of a pair": lambda: ss.sgd(separate, THREE, observe=lambda w: w[0] @ w[1], **DESCENT),
    "sgd_batched: another length": lambda: ss.sgd_batched(
        separate, np.ones((2, 4)), observe=lambda w: w, **DESCENT
    ),
    "sgd_batched: rates": lambda: ss.sgd_batched(
        separate, np.ones((2, 3)), observe=lambda w: w, steps=3, learning_rate=[0.1, 0.1, 0.1]
    ),
    "incremental_learning: size": lambda: ss.incremental_learning(separate, 4),
    "incremental_learning: vector loss": lambda: ss.incremental_learning(vector, 3),
    "incremental_learning: network": lambda: ss.incremental_learning(network(), 4),
    "incremental_learning: u0": lambda: ss.incremental_learning(separate, 3, weights=(FOUR, FOUR)),
    "incremental_learning: one array": lambda: ss.incremental_learning(separate, 3, weights=pair()),
    "DiagonalNetwork: samples": lambda: ss.incremental_learning(network(targets=X[:5, 0]), 3),
    "DiagonalNetwork: vector output": lambda: ss.incremental_learning(network(h=lambda x, b: x * b), 3),
    "diagonal_linear_network: samples": lambda: models.diagonal_linear_network(X, X[:5, 0]),
    "low_rank_learning: shape": lambda: ss.low_rank_learning(product, [(4, 4)]),
    "low_rank_learning: vector loss": lambda: ss.low_rank_learning(lambda w: w[0].sum(0), [(3, 3)]),
    "low_rank_learning: two of one": lambda: ss.low_rank_learning(lambda w: jnp.sum(w[1] ** 2), [(3, 3)]),
    "factored_flow: shape": lambda: ss.factored_flow(product, FactorInit([layers((4, 2), (2, 4))], -5.0), **RUN),
    "factored_flow: factors": lambda: ss.factored_flow(product, FactorInit([layers((3, 2), (3, 3))], -5.0), **RUN),
    "unit_learning: width of data": lambda: ss.unit_learning(
        unit, (jnp.asarray(X), jnp.asarray(X[:, 0])), squared, parameters={"in": np.ones(4), "out": np.ones(())}
    ),
    "unit_learning: samples": lambda: ss.unit_learning(
        unit, (jnp.asarray(X), jnp.asarray(X[:5, 0])), squared, parameters={"in": THREE, "out": np.ones(())}
    ),
    "unit_learning: weights": lambda: ss.unit_learning(
        unit, (jnp.asarray(X), jnp.asarray(X[:, 0])), squared, parameters={"in": THREE, "out": np.ones(())},
        weights=unit_weights(4), width=5,
    ),
    "unit_flow: width of data": lambda: ss.unit_flow(
        unit, (jnp.asarray(X), jnp.asarray(X[:, 0])), squared, unit_weights(4), degree=2.0, log_scale=-5.0, **RUN
    ),
    "unit_flow: kinds": lambda: ss.unit_flow(
        unit, (jnp.asarray(X), jnp.asarray(X[:, 0])), squared, unit_weights(), degree=2.0, log_scale=-5.0,
        kinds=np.zeros(3, int), **RUN,
    ),
    "escape_flow: shapes of layers": lambda: ss.escape_flow(
        outputs, lambda z: jnp.sum(z**2), layers((4, 2), (2, 4)), degree=2, **RUN
    ),
    "escape_directions: samples": lambda: ss.escape_directions(X, Y[:5], depth=3, widths=4, num_starts=2, steps=3),
    "escape_directions: widths": lambda: ss.escape_directions(X, Y, depth=3, widths=(), num_starts=2, steps=3),
    "certified_escape_speed: samples": lambda: ss.certified_escape_speed(X, Y[:5]),
    "escape_speed: layers": lambda: theory.escape_speed(layers((4, 4), (2, 4)), X, Y),
    "deep_linear_stages: samples": lambda: theory.deep_linear_stages(X, Y[:5]),
    "LayeredLoss: samples": lambda: ss.LayeredLoss(X, Y[:5])(layers((4, 3), (2, 4))),
    "TokenData: queries": lambda: ss.l1_svm(tokens(z=(4, 3))),
    "implicit_bias: head": lambda: ss.implicit_bias(tokens(v=(1,))),
    "nuclear_svm: rank bound": lambda: ss.nuclear_svm(tokens(), rank_bound=0),
    "certify_svm: weights": lambda: theory.certify_svm(
        tokens(), layers((3, 3), (3, 3)), np.ones((4, 2)), norm="nuclear"
    ),
    "kkt_residuals: beta": lambda: theory.kkt_residuals(np.ones((4, 2, 3)), FOUR, np.ones((4, 2)), np.ones(3, bool)),
    "diagonal_margin_flow: start": lambda: ss.diagonal_margin_flow(SELECTION, np.ones((4, 2, 5)), THREE, **LOG),
    "matrix_margin_flow: start": lambda: ss.matrix_margin_flow(
        SELECTION, np.ones((4, 2, 3)), np.ones((4, 3)), np.ones((2, 2)), **LOG
    ),
    "key_query_margin_flow: start": lambda: ss.key_query_margin_flow(
        SELECTION, np.ones((4, 2, 3)), np.ones((4, 3)), layers((2, 2), (3, 2)), **LOG
    ),
    "symmetric_flows: starts": lambda: ss.symmetric_flows(THREE, np.ones((2, 4, 4)), test_point=THREE, **RUN),
    "symmetric_flows: test point": lambda: ss.symmetric_flows(
        THREE, 0.1 * np.ones((2, 3, 3)), test_point=FOUR, until=1.0, tolerance=1e-8
    ),
    "symmetric_path: start": lambda: ss.symmetric_path(THREE, np.ones((2, 2)), until=1.0, tolerance=1e-8),
    "StructuredIdentityTask: rotation": lambda: models.StructuredIdentityTask(
        mu=(1.0, 2.0), sigma=(0.1, 0.1), samples_per_cluster=2, dim=4, rotation=np.eye(3)
    ),
    "spectrum: a vector": lambda: ss.spectrum(THREE),
    "product_update_spectrum: shapes": lambda: ss.product_update_spectrum(X, Y, X, Y),
    "find_stages: times": lambda: ss.find_stages(np.arange(3.0), FOUR, np.ones((4, 2)), level=0.1, time_unit="t"),
    "find_plateaus: singular values": lambda: ss.find_plateaus(
        np.ones(6), singular_values=[np.ones((3, 2))]
    ),
    "rank_staircases: values": lambda: ss.rank_staircases(
        np.arange(6.0), np.ones((3, 2, 2)), np.ones((3, 2)), time_unit="t"
    ),
    "principal_angles: rows": lambda: ss.principal_angles(X, Y.T),
    "compare: a trajectory": lambda: ss.compare(X, X),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_wrong_shapes_are_refused_in_one_sentence_of_ours(name, types_unchecked):
    users = jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard")
    with types_unchecked(), users[0], users[1], pytest.raises(ss.InputError) as refused:
        CALLS[name]()
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert len(sentence) < 500
    assert re.match(r"[\w\[\]().,' ]+ must ", sentence), sentence
    assert "ShapeDtypeStruct" not in sentence
