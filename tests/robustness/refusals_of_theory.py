"""Arguments that predictions and bounds refuse, each with words of the sentence that says why; see `test_refusals`."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from valid_calls import calls

from saddlescope import theory as t
from saddlescope.models import DiagonalNetwork

MUST = r"^[\w\[\]().,' ]+ must "  # an argument, of a wrong shape, and what it must be


def _square(beta: Any) -> Any:
    return jnp.sum((beta - 1) ** 2)


def _unseen(beta: Any) -> Any:
    return jax.pure_callback(lambda b: np.sum(b**2), jax.ShapeDtypeStruct((), jnp.float64), beta)


def _looped(beta: Any) -> Any:
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + jnp.sum(beta**2)), (0, 0.0))[1]


def _network(targets: Any, h: Any = lambda x, beta: x @ beta) -> DiagonalNetwork:
    return DiagonalNetwork(h, jnp.ones((8, 3)), jnp.asarray(targets))


def _neuron(theta: Any, x: Any) -> Any:
    return theta["out"] * jnp.maximum(theta["in"] @ x, 0.0)


def _distance(products: Any) -> Any:
    return jnp.sum((products[0] - jnp.eye(2)) ** 2)


def theory() -> tuple[dict[str, list[tuple[dict[str, Any], str]]], list[tuple[Any, str]]]:
    """Return the refused changes of valid calls by function, and further calls that are refused."""
    valid = {name: call.arguments for name, call in calls("theory").items()}
    X, G = valid["escape_speed"]["inputs"], valid["escape_speed"]["gradients"]
    svm, kkt = valid["certify_svm"], valid["kkt_residuals"]
    K, Q = svm["weights"]
    beta, multipliers, eye = kkt["beta"], kkt["multipliers"], np.eye(2)
    rates = valid["incremental_multipliers"]["rates"]
    tall, texts = np.ones((1, 3)), np.full((2, 2), "x")
    separate, stages = t.incremental_learning(_square, 2), t.deep_linear_stages(np.eye(3), np.diag([3.0, 2.0, 1.0]))
    neurons = {"unit": _neuron, "data": (jnp.asarray(X), jnp.asarray(X[:, 0])), "kinds": 1,
               "parameters": {"in": np.ones(3), "out": np.ones(())}}  # fmt: skip
    smooth = "twice continuously differentiable"
    hidden = "loss must be a function that JAX can differentiate twice"
    rows = {
        "nuclear_svm": [({name: bad}, "must be at least 1")
                        for name, bad in (("rank_bound", 0), ("rank_bound", -1), ("num_starts", 0))],
        "certify_svm": [
            ({"weights": beta, "norm": "l2"}, "norm"),
            ({"weights": beta}, "pair"),
            ({"norm": "l1"}, "beta"),
            ({"multipliers": multipliers[:, :1]}, "shape"),
            ({"weights": (np.ones((3, 3)), np.ones((3, 3)))}, MUST),
            ({"weights": (0 * K, Q)}, "margin that is not 0"),
            ({"multipliers": -multipliers}, r"at least 0 and not all 0; got a smallest of -\d"),
        ],
        "averaged_multipliers": [({"log_margin": -1.0}, "log_margin must be positive")],
        "incremental_multipliers": [
            ({"rates": rates[:1]}, "rates must have shape"),
            ({"rates": -rates}, "rates must raise a positive smallest margin"),
            ({"beta": np.nan * beta}, "beta must be finite"),
        ],
        "kkt_residuals": [
            ({"beta": beta[:3]}, "features and beta must be"),
            ({"multipliers": -multipliers - 1}, "multipliers must be at least 0"),
            ({"support": np.ones(6)}, "support must be booleans"),
            ({"beta": -beta}, "beta must have positive margins"),
        ],
        "certified_escape_speed": [
            ({"gradients": G}, "gradients must have one column, one output"),
            ({"inputs": np.eye(3), "gradients": np.ones((3, 1))}, "inputs must span at most a plane"),
            ({"gradients": G[2:, :1]}, MUST),
        ],
        "rank_one_escape_speed": [
            ({"inputs": np.eye(3), "gradients": np.ones((3, 1))}, "inputs must span at most a plane"),
            ({"depth": 1}, "depth must be an integer of at least 2; got 1"),
            ({"gradients": 0 * G[:, :1]}, "gradients must not all be 0"),
        ],
        "deepen": [
            ({"depth": 2}, "depth must be at least that of the network, 3; got 2"),
            ({"gradients": -G}, "weights must have a positive speed to be deepened; got -"),
        ],
        "escape_directions": [
            ({"depth": 1}, "depth must be an integer of at least 2; got 1"),
            *(({"widths": bad}, "widths must be integers of at least 1") for bad in (0, (), (4, 0))),
            ({"num_starts": 0}, "num_starts must be at least 1"),
            ({"steps": 0}, "steps must be at least 1"),
            *(({"record": np.array(bad)}, "record must be increasing numbers of steps from 1 to steps=20")
              for bad in ([0, 1], [21], [2, 2])),
            ({"learning_rate": float("nan")}, "learning_rate must be positive"),
            ({"gradients": 0 * G}, "no saddle of this kind"),
            ({"gradients": G[2:]}, MUST),
        ],
        "escape_speed": [
            ({"gradients": 0 * G}, "gradients must not all be 0; got 8 zeros: the origin is then no saddle"),
            ({"inputs": 0 * X}, "inputs must not all be 0"),
            ({"gradients": G[:, 0]}, r"gradients must have shape \(N, d_out\), a row per sample; got \(4,\)"),
            ({"inputs": X[:0]}, r"inputs must have shape \(N, d_in\), a row per sample; got \(0, 3\)"),
            ({"gradients": G[2:]}, r"a row per sample, as many as inputs; got shapes \(2, 2\) and \(4, 3\).$"),
            ({"inputs": X.T, "gradients": G.T}, r"\(2, 4\) and \(3, 4\). Pass `inputs.T` and `gradients.T`."),
            ({"inputs": X.T}, r"got shapes \(4, 2\) and \(3, 4\). Pass `inputs.T`."),
            ({"gradients": G.T}, r"got shapes \(2, 4\) and \(4, 3\). Pass `gradients.T`."),
            ({"inputs": np.full_like(X, np.nan)}, "inputs must be finite; got"),
            ({"gradients": np.full_like(G, np.inf)}, "gradients must be finite; got"),
            ({"inputs": 1e200 * X}, "inputs must have a largest entry between 1e-140 and 1e"),
            ({"gradients": 1e-200 * G}, "gradients must have a largest entry between"),
            ({"inputs": "inputs"}, "inputs must be an array of real numbers"),
            ({"weights": [np.ones((2, 3))]}, "depth L of at least 2; got 1"),
            ({"weights": [np.ones((4, 3)), np.ones((2, 5))]}, r"shape \(n_l, n_\(l-1\)\); got shapes"),
            ({"weights": [np.ones((4, 3)), np.ones((1, 4))]}, "to d_out = 2"),
            ({"weights": [np.ones((4, 2)), np.ones((2, 4))]}, "map d_in = 3"),
            ({"weights": [np.ones((4, 3)), np.ones(4)]}, "got shapes"),
            ({"weights": [np.full((4, 3), np.nan), np.ones((2, 4))]}, "W_1 of weights must be finite"),
        ],
        "on_sphere": [({"weights": [np.zeros((2, 2))] * 2}, "weights must be finite and not all 0")],
        "incremental_learning": [
            ({"size": 0}, "size must be an integer"),
            ({"tolerance": 0.1}, "tolerance must be a number"),
            ({"max_stages": 0}, "max_stages must be an integer"),
            ({"weight_decay": -1.0}, "weight_decay must be finite and not negative"),
            ({"loss": lambda beta: beta}, r"loss must return one float64 number; got an array of shape \(2,\)"),
            ({"loss": lambda beta: jnp.sum(beta).astype(jnp.float32)}, "float32"),
            ({"loss": lambda beta: beta @ jnp.ones(3)}, "check the shapes"),
            ({"loss": lambda beta: float(beta[0]), "size": 1}, "jax.numpy"),
            ({"loss": lambda beta: jnp.sum(jnp.sqrt(beta))}, "finite gradient at beta = 0"),
            ({"loss": lambda beta: _square(beta) * jnp.nan}, "got nan"),
            ({"loss": lambda beta: jnp.sum(jnp.abs(beta - 1) + jnp.abs(beta))}, "GeLU"),
            ({"loss": lambda beta: jnp.sum((jax.nn.relu(beta) - 1) ** 2)}, smooth),
            ({"loss": lambda beta: jnp.sum(jnp.abs(beta) ** 1.5)}, smooth),
            ({"loss": _unseen}, hidden),
            ({"loss": _looped}, hidden),
            ({"weights": ([1.0, 0.5], [0.2, -0.5])}, r"u0\[1\] = 0.5 and v0\[1\] = -0.5"),
            ({"weights": ([1.0, 0.0], [0.2, 0.0])}, r"weights must have \|u0_i\| different"),
            ({"weights": ([1.0], [0.2])}, r"u0 of weights must have shape \(2,\)"),
            ({"weights": ([1.0, 2.0], [0.2])}, r"v0 of weights must have shape \(2,\)"),
            ({"weights": ([1.0, math.nan], [0.2, 1.0])}, "u0 of weights must be finite; got nan"),
            ({"weights": np.ones((3, 3))}, MUST),
            ({"loss": _network(np.ones(8)), "size": 4}, MUST),
            ({"loss": _network(np.ones(8), lambda x, beta: x * beta), "size": 3}, MUST),
        ],
        "low_rank_learning": [
            ({"shapes": []}, "shapes must hold"),
            ({"shapes": [(2, 3)]}, "loss must be a JAX function of a tuple of products, of shape"),
            ({"loss": lambda B: B[0]}, "must return one float64 number"),
            ({"loss": lambda B: jnp.sum(B[1] ** 2)}, MUST),
            ({"loss": lambda B: jnp.sum(1 / B[0])}, "finite with a finite gradient at B = 0"),
            ({"loss": lambda B: _distance(B) + jnp.linalg.norm(B[0])}, "kink at 0"),
            ({"loss": lambda B: jnp.sum(B[0]) + jnp.linalg.norm(B[0], "nuc")}, "continuously differentiable at B = 0"),
            ({"shapes": [(2, 3)], "symmetric": True}, "square"),
            ({"weights": [(eye, np.ones((2, 3)))]}, "one number of columns"),
            ({"weights": [(eye, 2 * eye)], "symmetric": True}, "equal left and right"),
            ({"weights": [(eye, 2 * eye)], "width": 1}, "number of columns of weights"),
        ],
        "deep_linear_stages": [
            ({"inputs": np.ones((3, 5)), "targets": np.ones((2, 5))}, "Pass `inputs.T` and `targets.T`"),
            ({"targets": np.zeros((5, 2))}, "targets must not all be 0.* no saddle"),
            ({"inputs": [[1.0], [0.0]], "targets": [[0.0], [1.0]]}, "targets must not be orthogonal.* no saddle"),
            ({"width": 0}, "width must be at least 1; got 0"),
            ({"targets": np.ones((3, 2))}, MUST),
        ],
        "aligned_time": [
            ({"depth": 1}, "depth must be an integer of at least 2"),
            ({"speed": 0.0}, "speed must be positive"),
            ({"initial": -0.1}, "initial must be positive"),
            ({"share": 1.0}, "share must be between"),
            ({"initial": 0.9}, "share must be between the initial one"),
            ({"curvature": 0.0}, "curvature must be positive"),
        ],
        "unit_learning": [
            ({"unit": lambda w, x, k: w[0] * jnp.tanh(w[1] * x[k]) + 1}, "must be 0 at zero weights"),
            ({"unit": lambda w, x, k: w[0] * x[k]}, "degree of at least 2"),
            ({"unit": lambda w, x, k: (w[0] ** 2 + w[1] ** 3) * x[k]}, "one degree at the origin"),
            ({"unit": lambda w, x, k: 0 * w[0] * w[1] * x[k]}, "not vanish"),
            ({"unit": lambda w, x, k: w["no"]}, "must accept one sample"),
            ({"loss": lambda f, y: jnp.stack([f, y])}, "must return one float64 number"),
            ({"loss": lambda f, y: jnp.sqrt(jnp.abs(f))}, "smooth at 0"),
            ({"parameters": 3}, "pytree of such arrays"),
            ({"data": (X, X[:3, 0])}, MUST),
            (neurons | {"parameters": {"in": np.ones(4), "out": np.ones(())}}, MUST),
            (neurons | {"weights": {"in": np.ones((5, 4)), "out": np.ones(5)}, "width": 5}, MUST),
            *(({"weights": bad}, "weights must")
              for bad in (np.ones((2, 3)), np.ones((3, 2)), np.zeros((2, 2)), np.full((2, 2), np.nan))),
        ],
        "width_ladder": [
            ({"widths": []}, "widths must be ascending"),
            ({"widths": [2, 1]}, "widths must be ascending"),
            ({"weights": tall, "num_starts": None}, "weights must be real and like parameters"),
            ({"weights": texts, "num_starts": None}, "weights must be real and like parameters"),
            ({"parameters": texts[0]}, "parameters must be an array of real numbers"),
        ],
    }  # fmt: skip
    return rows, [
        (lambda: _network(np.ones(5)), MUST),
        (lambda: stages.product(4), "rank must be between 0 and 3; got 4"),
        (lambda: separate.times_at(-10.0), "weights must be given"),
        (lambda: separate.times_at(0.5), r"math\.log"),
        *((lambda log=log: separate.near_ties(log), r"math\.log") for log in (0.0, 1e-8, math.nan, -math.inf)),
        (lambda: separate.near_ties(-1.0, efolds=0.0), "efolds must be positive"),
    ]


def concepts() -> tuple[dict[str, list[tuple[dict[str, Any], str]]], list[tuple[Any, str]]]:
    """Return the same for the learning of concepts."""
    eye, small = np.eye(2), 0.01 * np.array([[1.0, 0.0], [1.0, 1.0]])
    W, V = 0.01 * np.ones((3, 2)), 0.01 * np.ones((2, 3))
    nan = [[np.nan, 0.0], [0.0, 1.0]]
    rows = {
        "concept_stages": [
            ({"strengths": [1.0, 1.0]}, "strengths must differ"),
            ({"factor": eye}, "factor must be small"),
            ({"factor": np.eye(3) / 10}, "factor must have a row for each of the 2 strengths"),
            ({"factor": nan}, "factor must be finite; got nan"),
        ],
        "deep_stages": [
            ({"weights": [small]}, "depth L of at least 2; got 1"),
            ({"strengths": [1.0, 1.0]}, "strengths must differ"),
            ({"weights": [small[:, :1], small[:1]]}, "weights must map d_in = 2 to d_out = 2"),
            ({"weights": [0 * small, small]}, "weights must have no layer of zeros"),
            ({"weights": [eye] * 3}, "weights must be small, with w_kk below"),
        ],
        "early_alignment": [
            ({"weights": (W, V.T)}, r"weights must be W \(m, d\) and V \(d, m\)"),
            ({"weights": (W, W, V)}, "weights must be W and V"),
            ({"drop": 1.0}, "drop must be between 0 and 1"),
            ({"weights": (eye, eye)}, "weights must start with less than"),
            ({"weights": (0 * W, 0 * V)}, "weights and inputs must not be 0"),
            ({"inputs": np.full((3, 2), np.nan)}, "inputs must be finite"),
            ({"weights": (-W, V)}, "weights must grow until"),
        ],
    }
    return rows, []
