"""Arguments of wrong shapes: each is refused in one sentence of ours, not in the words of JAX or NumPy."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from valid_calls import SUBPACKAGES, calls

import saddlescope as ss
from saddlescope.flow import DiagonalInit, FactorInit
from saddlescope.models import DiagonalNetwork

TWO, THREE, FOUR = (np.ones(n) for n in (2, 3, 4))
RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 3))
Y = RNG.standard_normal((8, 2))
DATA = jnp.asarray(X), jnp.asarray(X[:, 0])
OF_THREE = {"in": THREE, "out": np.ones(())}


def separate(beta):
    return jnp.sum((beta - jnp.array([1.0, 2.0, 3.0])) ** 2)


def constant():
    return 1.0


def vector(beta):
    return (beta - 1.0) ** 2


def of_a_pair(weights):
    return jnp.sum(weights[0] @ weights[1])


def network(targets=X[:, 0], h=lambda x, beta: x @ beta):
    return DiagonalNetwork(h, jnp.asarray(X), jnp.asarray(targets))


def unit(theta, x):
    return theta["out"] * jnp.maximum(theta["in"] @ x, 0.0)


def start(n):
    return DiagonalInit(np.ones(n), 0.5 * np.ones(n), log_scale=-5.0)


def layers(*shapes):
    return tuple(RNG.standard_normal(shape) for shape in shapes)


def units(into):
    return {"in": RNG.standard_normal((5, into)), "out": RNG.standard_normal(5)}


# The arguments that change in a valid call of the function, by the function and what is wrong.
CHANGES = {
    "gradient_flow: start of another length": lambda: {"start": start(4)},
    "gradient_flow: vector loss": lambda: {"loss": vector},
    "gradient_flow: network of wider data": lambda: {"loss": network()},
    "gradient_flow: matrix of times": lambda: {"record": np.ones((2, 2))},
    "gradient_flow: loss without argument": lambda: {"loss": constant},
    "gradient_flow: loss of a pair": lambda: {"loss": of_a_pair},
    "DiagonalInit: u and v differ": lambda: {"v": FOUR},
    "DiagonalInit: a matrix": lambda: {"u": X, "v": X},
    "gradient_flow_batched: starts differ": lambda: {"starts": [start(2), start(4)]},
    "gradient_flow_batched: another length": lambda: {"starts": [start(4)] * 2},
    "gradient_descent: another length": lambda: {"start": start(4)},
    "sgd: another length": lambda: {"loss": separate, "weights": FOUR},
    "sgd: observer of a pair": lambda: {"loss": separate, "weights": THREE, "observe": of_a_pair},
    "sgd_batched: another length": lambda: {"loss": separate, "weights": np.ones((2, 4))},
    "sgd_batched: rates": lambda: {"learning_rate": [0.1, 0.1, 0.1]},
    "incremental_learning: size": lambda: {"size": 4},
    "incremental_learning: vector loss": lambda: {"loss": vector},
    "incremental_learning: network": lambda: {"loss": network(), "size": 4},
    "incremental_learning: u0": lambda: {"weights": (FOUR, FOUR)},
    "incremental_learning: one array": lambda: {"weights": np.ones((3, 3))},
    "incremental_learning: samples of a network": lambda: {"loss": network(targets=X[:5, 0]), "size": 3},
    "incremental_learning: vector output": lambda: {"loss": network(h=lambda x, beta: x * beta), "size": 3},
    "diagonal_linear_network: samples": lambda: {"features": X},
    "low_rank_learning: shape": lambda: {"shapes": [(4, 4)]},
    "low_rank_learning: vector loss": lambda: {"loss": lambda w: w[0].sum(0)},
    "low_rank_learning: two of one": lambda: {"loss": lambda w: jnp.sum(w[1] ** 2)},
    "factored_flow: shape": lambda: {"start": FactorInit([layers((4, 2), (2, 4))], -5.0)},
    "factored_flow: factors": lambda: {"start": FactorInit([layers((3, 2), (3, 3))], -5.0)},
    "unit_learning: width": lambda: {"unit": unit, "data": DATA, "parameters": OF_THREE | {"in": FOUR}, "kinds": 1},
    "unit_learning: samples": lambda: {"data": (X, X[:5, 0])},
    "unit_learning: weights": lambda: {
        "unit": unit, "data": DATA, "parameters": OF_THREE, "kinds": 1, "weights": units(4), "width": 5,
    },
    "unit_flow: width of data": lambda: {"unit": unit, "data": DATA, "weights": units(4), "kinds": None},
    "unit_flow: kinds": lambda: {"kinds": np.zeros(3, int)},
    "escape_flow: shapes of layers": lambda: {"weights": layers((4, 2), (2, 3))},
    "escape_directions: samples": lambda: {"inputs": X, "gradients": Y[:5]},
    "escape_directions: widths": lambda: {"widths": ()},
    "certified_escape_speed: samples": lambda: {"inputs": X, "gradients": Y[:5]},
    "escape_speed: layers": lambda: {"weights": layers((4, 4), (2, 4))},
    "deep_linear_stages: samples": lambda: {"inputs": X, "targets": Y[:5]},
    "LayeredLoss: samples": lambda: {"inputs": X, "targets": Y[:5]},
    "TokenData: queries": lambda: {"z": np.ones((4, 3))},
    "TokenData: head": lambda: {"v": np.ones(1)},
    "nuclear_svm: rank bound": lambda: {"rank_bound": 0},
    "certify_svm: weights": lambda: {"weights": layers((3, 3), (3, 3))},
    "kkt_residuals: beta": lambda: {"beta": FOUR},
    "diagonal_margin_flow: start": lambda: {"start": THREE},
    "matrix_margin_flow: start": lambda: {"start": np.ones((2, 2))},
    "key_query_margin_flow: start": lambda: {"start": layers((2, 2), (6, 2))},
    "symmetric_flows: starts": lambda: {"starts": np.ones((2, 4, 4))},
    "symmetric_flows: test point": lambda: {"test_point": FOUR},
    "symmetric_path: start": lambda: {"start": np.ones((3, 3))},
    "StructuredIdentityTask: rotation": lambda: {"rotation": np.eye(3)},
    "spectrum: a vector": lambda: {"matrix": THREE},
    "product_update_spectrum: shapes": lambda: {"right": X, "right0": X},
    "find_stages: times": lambda: {"times": np.arange(3.0)},
    "find_plateaus: singular values": lambda: {"singular_values": [np.ones((3, 2))]},
    "rank_staircases: values": lambda: {"values": np.ones((3, 2, 2)), "noise_floors": np.ones((3, 2))},
    "principal_angles: rows": lambda: {"second": Y.T},
}  # fmt: skip


def valid(name):
    """Return the valid call of the function that a name begins with."""
    function = name.partition(":")[0]
    return next(calls(each)[function] for each in SUBPACKAGES if function in calls(each))


CALLS = {name: lambda name=name: valid(name)(**CHANGES[name]()) for name in CHANGES} | {
    "gradient_flow: times of the trajectory": lambda: valid("gradient_flow")()(np.ones((2, 2)) / 2),
    "compare: a trajectory": lambda: ss.compare(X, X),  # type: ignore[arg-type]
}


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
