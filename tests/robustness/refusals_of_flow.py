"""Arguments that flows and descents refuse, each with words of the sentence that says why; see `test_refusals`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from valid_calls import calls

from saddlescope import flow as f
from saddlescope.models import LayeredLoss, TokenData, diagonal_linear_network, gaussian_tokens
from saddlescope.models.deep import layered_weights
from saddlescope.studies import implicit_bias, predict, simulate

LOGS = dict.fromkeys(("log_sum", "log_difference", "sum_sign", "difference_sign"), np.ones(2)) | {"log_scale": -1.0}
SMOOTH = "twice continuously differentiable"
MUST = r"^[\w\[\]().,' ]+ must "  # an argument, of a wrong shape, and what it must be


class _DoubleRate(f.AbstractLearningRate):
    def at(self, step: Any, weights: Any) -> Any:
        return jnp.asarray(0.1)


def _unseen(beta: Any) -> Any:
    return jax.pure_callback(lambda b: np.sum(b**2), jax.ShapeDtypeStruct((), jnp.float64), beta)


def _of_a_pair(weights: Any) -> Any:
    return jnp.sum(weights[0] @ weights[1])


def _separate(beta: Any) -> Any:
    return jnp.sum((beta - jnp.array([1.0, 2.0, 3.0])) ** 2)


def _linear(theta: Any, x: Any) -> Any:
    return theta[0] * (theta[1:] @ x)


def _sampled(weights: tuple[int, ...] = (3, 2), dtype: Any = jnp.float64) -> tuple[LayeredLoss, Any]:
    rng = np.random.default_rng(0)
    data = (jnp.asarray(rng.standard_normal((20, size)), dtype) for size in (weights[0], weights[-1]))
    return LayeredLoss(*data), layered_weights((weights[0], 4, weights[-1]), seed=0, dtype=dtype)


def flow() -> tuple[dict[str, list[tuple[dict[str, Any], str]]], list[tuple[Any, str]]]:
    """Return the refused changes of valid calls by function, and further calls that are refused."""
    valid = {name: call.arguments for name, call in calls("flow").items()}
    start, eye, pair = valid["gradient_flow"]["start"], np.eye(2), valid["key_query_margin_flow"]["start"]
    features, queries = valid["diagonal_margin_flow"]["features"], valid["matrix_margin_flow"]["queries"]
    K, Q = pair
    kinks = (lambda b: jnp.sum(jnp.abs(b)), lambda b: jnp.sum((jax.nn.relu(b) - 1) ** 2),
             lambda b: jnp.sum(jnp.abs(b) ** 1.5))  # fmt: skip
    wide = diagonal_linear_network(np.eye(3), np.ones(3))
    noisy = diagonal_linear_network(np.eye(20, 2), np.ones(20))
    loss, weights = _sampled()
    single, in_single = _sampled(dtype=jnp.float32)
    several = jax.tree.map(lambda w: jnp.stack([w] * 3), weights)
    batched = {"loss": loss, "weights": several, "batch": 4, "seeds": (0, 1, 0)}
    one_loss, other_loss = diagonal_linear_network(np.eye(3, 2), np.ones(3)), noisy
    rows = {
        "gradient_flow": [
            *(({"loss": kink}, f"{SMOOTH} at beta = 0") for kink in kinks),
            ({"loss": lambda beta: jnp.sum(beta) / 0.0}, "loss must be finite"),
            ({"loss": lambda beta: beta}, "one float64 number"),
            ({"loss": lambda beta: float(np.asarray(beta).sum())}, r"jax\.numpy"),
            ({"loss": lambda beta: jnp.sum(beta.astype(jnp.float32))}, "one float64 number"),
            ({"loss": _unseen}, "that JAX can differentiate"),
            ({"until": -1.0}, "until must be"),
            ({"until": float("nan")}, "until must be"),
            ({"tolerance": 0.0}, "tolerance must be"),
            ({"level": -0.1}, "level must be"),
            ({"record": np.array([2.0])}, "record must be"),
            ({"max_evaluations": 0}, "max_evaluations must be"),
            ({"start": np.ones(2)}, r"DiagonalInit, ParameterInit .* Pass ParameterInit\(weights\)"),
            ({"start": f.DiagonalInit(np.ones(4), np.ones(4), -4.0)}, MUST),
            ({"record": np.ones((2, 2))}, MUST),
            *(({"loss": bad}, MUST) for bad in (wide, lambda: 1.0, _of_a_pair)),
        ],
        "DiagonalInit": [
            ({"v": np.ones(3)}, "one length"),
            ({"u": np.ones((2, 2)), "v": np.ones((2, 2))}, "one length"),
            ({"u": np.ones(2, np.float32)}, "u must be float64"),
            ({"v": np.array([1.0, np.nan])}, "v must be finite"),
            ({"log_scale": 0.0}, "log_scale must be"),
            ({"log_scale": -np.inf}, "log_scale must be"),
        ],
        "ParameterInit": [
            ({"params": {}}, "at least one entry"),
            ({"params": {"w": np.ones(2, np.float32)}}, "params must be float64"),
        ],
        "gradient_flow_batched": [
            ({"starts": []}, "starts must be a sequence"),
            ({"starts": [f.ParameterInit(np.ones(2))]}, "Call gradient_flow for other starts"),
            (
                {"starts": [start, f.DiagonalInit(np.ones(3), np.ones(3), -4.0)]},
                "equally many coordinates; got 3 for flow 1",
            ),
            ({"starts": [f.DiagonalInit(np.ones(4), np.ones(4), -4.0)] * 2}, MUST),
            ({"loss": [one_loss]}, "one for each of the 2 runs, .* got 1"),
            ({"loss": [one_loss, other_loss]}, "one structure.* run 1"),
            ({"loss": [one_loss, lambda beta: jnp.sum(beta**2)]}, "one structure.* run 1"),
            ({"tolerance": 0.0}, "tolerance must be"),
            ({"loss": lambda beta: jnp.sum(jnp.abs(beta))}, SMOOTH),
            ({"loss": lambda beta: jnp.sum(beta) / 0.0}, "Flow 0: loss must be finite"),
        ],
        "escape_flow": [
            ({"degree": 1}, "degree must be at least 2"),
            ({"weights": (np.ones((4, 2)), np.ones((2, 3)))}, MUST),
            ({"degree": 4}, "degree must be the degree of homogeneity of the output"),
            ({"until": 0.0}, "until must be"),
            ({"log_norm": float("nan")}, "log_norm must be"),
            ({"record": np.array([0.0, 11.0])}, "record must be a vector of times between 0 and until=0.5"),
            ({"log_norm": -3.0, "stop": -4.0}, "stop must be above the initial log norm"),
            ({"weights": (np.zeros((2, 2)), np.zeros((1, 2)))}, "weights must be finite and not"),
            ({"cost": lambda outputs: jnp.sum(outputs**2)}, "cost must have a gradient at output 0"),
            ({"cost": lambda outputs: jnp.sum(outputs) * jnp.nan}, "must be finite"),
        ],
        "gradient_descent": [
            ({"steps": -1}, "steps must be"),
            ({"learning_rate": -0.1}, "learning_rate must be positive"),
            ({"learning_rate": "fast"}, "learning_rate must be a number or a function"),
            ({"record": np.array([4])}, "record must be"),
            ({"level": 0.0}, "level must be"),
            ({"loss": lambda b: jnp.sum(b) / 0.0}, "loss must be finite"),
            ({"loss": noisy, "batch": 0}, "batch must be an integer between 1 and the 20 samples"),
            ({"loss": noisy, "batch": 21}, "batch must be"),
            ({"loss": noisy, "batch": 4, "seed": -1}, "seed must be"),
            ({"loss": jnp.sum, "batch": 2}, "DiagonalNetwork"),
            ({"start": f.DiagonalInit(np.ones(4), np.ones(4), -4.0)}, MUST),
        ],
        "geometric_steps": [({name: bad}, "must be at least") for name, bad in
                            (("steps", -1), ("every", 0), ("per_doubling", 0))],
        "homogeneous_rate": [
            ({"rate": 0.0}, "rate must be"),
            ({"rate": float("nan")}, "rate must be"),
            ({"degree": 1}, "degree must be"),
        ],
        "sgd": [
            ({"steps": -1}, "steps must be"),
            ({"record": np.array([4])}, "record must be a vector of step numbers between 0 and steps=3"),
            ({"loss": loss, "weights": weights, "batch": 21}, "batch must be an integer between 1 and the 20 samples"),
            ({"loss": loss, "weights": weights, "batch": 6, "seed": -1}, "seed must be"),
            ({"batch": 2}, "loss must have `samples`"),
            ({"loss": lambda w: w[0], "weights": in_single}, "loss must give one float32 number"),
            ({"loss": lambda w: jnp.sum(w[0]) * jnp.nan}, "loss must be finite at the start"),
            (
                {"loss": single, "weights": in_single, "learning_rate": _DoubleRate()},
                "learning_rate must give one float32 number",
            ),
            ({"learning_rate": 0.0}, "learning_rate must be positive and finite"),
            ({"learning_rate": "fast"}, "learning_rate must be a number or a function"),
            ({"loss": _separate, "weights": np.ones(4)}, MUST),
            ({"loss": _separate, "weights": np.ones(3), "observe": _of_a_pair}, MUST),
            ({"weights": [np.array([1, 2])]}, "weights must be arrays of one floating-point type"),
            (
                {"loss": single, "weights": [1e-20 * w for w in in_single],
                 "learning_rate": f.homogeneous_rate(10.0, 6)},
                "too small or too large for float32",
            ),
        ],
        "sgd_batched": [(batched | changed, words) for changed, words in (
            ({"loss": _separate, "weights": np.ones((2, 4)), "batch": None, "seeds": None}, MUST),
            ({"steps": -1}, "steps must be"),
            ({"record": np.array([12])}, "record must be a vector"),
            ({"batch": 31}, "batch must be an integer between 1 and the 20 samples"),
            ({"batch": None}, "seeds must not be given"),
            ({"seeds": None}, "seeds must be given with a batch"),
            ({"seeds": (0, 1)}, "seeds must be given with a batch"),
            ({"seeds": (0, -1, 0)}, "seed must be an integer of at least 0"),
            ({"learning_rate": 0.0}, "learning_rate must be positive"),
            ({"learning_rate": (0.1, 0.2)}, "learning_rate must be positive"),
            ({"observe": [lambda w: w] * 2}, "observe must be one for all runs"),
            ({"loss": [loss] * 2}, "loss must be one for all runs"),
            ({"loss": [loss, loss, loss.batch(jnp.arange(4))]}, "loss must be one for all runs"),
            ({"weights": (jnp.ones(3), jnp.ones(2))}, "leading axis of the same length"),
            ({"weights": jnp.ones(3, int)}, "one floating-point type"),
            ({"loss": lambda w: w[0], "batch": None, "seeds": None}, "loss must give one float64 number"),
            ({"weights": jax.tree.map(lambda w: jnp.nan * w, several)}, "loss must be finite at the start"),
        )],
        "FactorInit": [
            ({"pairs": ()}, "at least one"),
            ({"pairs": ((eye, np.eye(3)),)}, "as many columns left as right"),
            ({"pairs": ((np.ones(2), np.ones(2)),)}, "must hold matrices"),
            ({"pairs": ((eye, np.full((2, 2), np.nan)),)}, "pairs must be finite"),
            ({"pairs": ((eye, np.eye(2, dtype=np.float32)),)}, "pairs must be float64"),
            ({"log_scale": 0.0}, "log_scale must be finite and negative"),
        ],
        "factored_flow": [
            ({"loss": lambda B: jnp.sum((B[0] - 1) ** 2) + jnp.sum(jnp.abs(B[0]))}, f"{SMOOTH} at B = 0"),
            ({"start": f.FactorInit([(np.ones((4, 2)), np.ones((4, 2)))], -5.0)}, MUST),
        ],
        "diagonal_margin_flow": [
            ({"start": 0.0}, "start must have a gradient other than 0"),
            ({"start": np.ones(3)}, "omega_0; got shape"),
            ({"start": 1e200}, "start must give finite margins"),
            ({"start": np.nan}, r"start\.plus must be finite"),
            ({"start": "small"}, "start must be .* a DiagonalMarginInit"),
            ({"features": np.ones((3, 0, 4))}, r"\(at least 1, at least 1, at least 1\); got shape \(3, 0, 4\)"),
            ({"features": np.full((3, 3, 6), np.inf)}, r"features must be finite; got inf at \[0, 0, 0\]"),
            ({"features": np.ones((2, *features.shape[1:]))}, r"loss must be one of margins of shape \(2, 3\)"),
            ({"record": [2.0, 6.0]}, r"record must be a vector of ln t, at most log_until=1\.0"),
            ({"record": "late"}, "record must be"),
            ({"log_until": 2e9}, "log_until must be finite and at most 1e"),
            ({"log_until": -np.inf}, "log_until must be"),
        ],
        "key_query_margin_flow": [
            ({"start": K}, r"start must be a pair \(K, Q\)"),
            ({"start": (K[:, :1], Q)}, r"Q must have shape \(6, 1\)"),
            ({"start": (K[:5], Q[:5])}, r"K must have shape \(6, at least 1\)"),
            ({"start": (0 * K, 0 * Q)}, "start must have a gradient other than 0"),
            ({"start": (K * np.nan, Q)}, "K must be finite"),
        ],
        "matrix_margin_flow": [
            ({"start": np.ones((6, 2))}, r"start must have shape \(6, 6\)"),
            ({"queries": queries[:2]}, r"queries must have shape \(3, 6\)"),
        ],
        "find_start": [({name: bad}, name) for name, bad in
                       (("descents", 0), ("least", 1.0), ("bound", 0.0), ("num_starts", 0))],
        "symmetric_flows": [
            ({"moment": np.array([1.0, -1.0])}, "positive semidefinite"),
            ({"moment": np.zeros(2)}, "not 0"),
            ({"moment": np.array([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
            ({"moment": np.array([1.0, np.nan])}, "finite"),
            ({"moment": np.array(["a"] * 2)}, "numbers"),
            ({"starts": eye}, "shape"),
            ({"starts": np.ones((2, 4, 4))}, "shape"),
            ({"starts": np.full((2, 2, 2), np.inf)}, "finite"),
            ({"starts": np.full((2, 2, 2), 1e4)}, "at most 1000"),
            ({"test_point": np.zeros(2)}, "test_point"),
            ({"test_point": np.ones(3)}, "test_point"),
            ({"until": -1.0}, "until"),
            ({"tolerance": 1e-16}, "tolerance"),
            ({"record": np.array([50.0])}, "record"),
        ],
        "symmetric_path": [
            ({"strengths": [1.0, -1.0]}, "at least 0"),
            ({"strengths": np.zeros(2)}, "not all 0"),
            ({"strengths": eye}, "shape"),
            ({"strengths": [1.0, np.nan]}, "finite"),
            ({"strengths": ["a", "b"]}, "strengths must be an array of real numbers"),
            ({"start": np.ones((3, 3))}, "shape"),
            ({"start": np.ones((4, 2, 2))}, "shape"),
        ],
        "unit_flow": [
            ({"degree": 1.0}, "degree must be at least 2"),
            ({"log_scale": 1.0}, "log_scale must be"),
            ({"kinds": np.arange(3)}, "one number per unit"),
            ({"unit": _linear, "data": (np.ones((8, 3)), np.ones(8)), "kinds": None, "weights": np.ones((5, 3))}, MUST),
            ({"level": 0.0}, "level must be positive"),
            ({"weights": np.array([[0.0, 0.0], [1.0, 1.0]])}, "not all 0"),
            *(({"unit": unit, "degree": given}, f"degree must be that of the unit at the origin, {at} .*; got {given}")
              for unit, given, at in (
                  (lambda w, x, k: w[0] * jax.nn.gelu(w[1] * x[k]), 3.0, "2.00"),
                  (lambda w, x, k: w[0] * (w[1] * x[k]) ** 3, 2.0, "4.00"),
                  (lambda w, x, k: w[0] * jax.nn.sigmoid(w[1] * x[k]), 2.0, "1.00"),
                  (lambda w, x, k: w[0] * w[1] * x[k] + 1.0, 2.0, "0.00"),
              )),
        ],
    }  # fmt: skip
    bad_logs = [
        ({"log_sum": np.array([np.nan, 0.0])}, "log_sum must be finite or -inf"),
        ({"log_difference": np.array([np.inf, 0.0])}, "log_difference must be finite or -inf"),
        ({"sum_sign": np.array([0.0, 1.0])}, "sum_sign must be \\+1 or -1"),
        ({"difference_sign": np.ones(3)}, "difference_sign must be a vector as long as log_sum"),
        ({"log_scale": 0.0}, "log_scale must be finite and negative"),
    ]
    small = f.LogDiagonalInit.at_weights(np.array([1e-200]), np.array([1e-201]), log_scale=-1.0)
    path, run = calls("flow")["symmetric_path"](), calls("flow")["gradient_flow"]()
    return rows, [
        *((lambda bad=bad: f.LogDiagonalInit(**(LOGS | bad)), words) for bad, words in bad_logs),
        (lambda: f.LogDiagonalInit.of(f.ParameterInit(np.ones(2))), "products of weights"),
        (small.parameters, "products above 1e-307"),
        (lambda: path([2.0]), r"between 0 and 1\.0"),
        *((lambda bad=bad: run(bad), "times must be") for bad in (np.array([1.5]), np.ones((2, 2)) / 2)),
    ]


def studies() -> tuple[dict[str, list[tuple[dict[str, Any], str]]], list[tuple[Any, str]]]:
    """Return the same for studies."""
    data, x = gaussian_tokens(3, 4, 6, seed=1), np.eye(2)
    against = TokenData(
        np.concatenate([data.X, data.X[:, ::-1]]), np.concatenate([data.z, -data.z]), np.tile(data.y, 2), data.v
    )
    square = lambda beta: jnp.sum(beta**2)  # noqa: E731
    rows = {
        "implicit_bias": [
            ({"log_until": 0.5}, "log_until must be above 1"),
            ({"record": [2e6]}, "record must be a vector of ln t, at most log_until"),
            ({"log_scale": -np.inf}, "log_scale must be between"),
            ({"seed": -1}, "seed must be at least 0"),
            ({"loss": "hinge"}, "There is no loss 'hinge'"),
            ({"tolerance": 1.0}, "tolerance must be between"),
            ({"data": against}, "separable"),
        ],
    }
    return rows, [
        (lambda: implicit_bias("none.npz"), "path must be an existing .npz file"),
        (lambda: predict(square), "got none"),
        (lambda: predict(square, size=2, shapes=[(2, 2)]), "got size and shapes"),
        (lambda: predict(square, parameters=np.zeros(2)), "data and loss must be given with parameters"),
        (lambda: predict(square, size=2, data=(x, x)), "and only then; got size"),
        (lambda: predict(square, widths=(3, 3)), "must be a LayeredLoss where widths are given; got function"),
        (lambda: predict(LayeredLoss(jnp.eye(2), jnp.eye(2), relu=False), widths=(3,)), "must have ReLU"),
        (lambda: simulate(predict(square, size=2), log_scale=-10.0), "until must be a time"),
    ]
