"""Arguments that measures and models refuse, each with words of the sentence that says why; see `test_refusals`."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from valid_calls import calls

from saddlescope import flow as f
from saddlescope import measure as m
from saddlescope import models as n

RANKS = {"values": np.ones((4, 2)), "level": np.ones(3)}
MANY = {"values": np.ones((50, 2, 3)), "noise_floors": np.zeros(50)}
FEW = np.arange(6.0)
EMPTY = {"losses": FEW, "steps": None, "singular_values": None}
ENTRIES = f.symmetric_path([1.0, 0.25], 0.1 * np.eye(2), until=1.0, tolerance=1e-6)


def unordered() -> Any:
    return m.rank_stairs(FEW, m.Spectrum(np.tile([1.0, 2.0], (6, 1)), np.zeros(6)), time_unit="t")


def other_units() -> Any:
    one, two = (m.Staircase((m.Stage(0.0, 1.0, 1.0, 0),), unit) for unit in ("t", "steps"))
    return m.compare(one, two)


def measure() -> tuple[dict[str, list[tuple[dict[str, Any], str]]], list[tuple[Any, str]]]:
    """Return the refused changes of valid calls by function, and further calls that are refused."""
    valid = {name: call.arguments for name, call in calls("measure").items()}
    losses, activity = valid["find_stages"]["losses"], valid["find_stages"]["activity"]
    before, right = valid["update_spectrum"]["before"], valid["product_spectrum"]["right"]
    rows = {
        "stable_rank": [
            ({"values": np.array([1.0, -1.0])}, "values must be at least 0; got -1.0"),
            ({"values": 3.0}, "values must be an array"),
        ],
        "effective_rank": [({"values": np.array([1, 2])}, "values must be of type")],
        "energy_rank": [({"fraction": 90.0}, "fraction must be .* at most 1; got 90.0")],
        "numerical_rank": [
            ({"level": -1.0}, "level must be at least 0; got -1.0"),
            (RANKS, r"level must be .* \(4,\); got \(3,\)"),
        ],
        "second_ratio": [({"values": -np.ones(3)}, "values must be at least 0")],
        "nonlinearity": [
            ({"preactivations": np.ones(7)}, r"preactivations must have shape \(..., m, n\)"),
            ({"preactivations": np.full((4, 7), np.inf)}, "preactivations must be finite"),
        ],
        "bulk_count": [
            ({"initial": np.ones(2)}, "initial must have the shape of values"),
            ({"initial": -np.ones(3)}, "level must be at least 0|initial must be at least 0"),
            ({"margin": 0.9}, "margin must be at least 1"),
        ],
        "bottleneck_rank": [
            ({"layer_ranks": ()}, "layer_ranks must be one or more integers"),
            ({"layer_ranks": (1, -1)}, "layer_ranks must be"),
        ],
        "spectrum": [
            ({"matrix": np.ones((2, 2), int)}, "matrix must be of type .* got 'int64'"),
            ({"matrix": np.ones(3)}, r"matrix must have shape \(..., m, n\).* got \(3,\)"),
            ({"top": 0}, "top must be at least 1"),
        ],
        "update_spectrum": [
            ({"before": before[:1]}, r"before must have the shape of after, \(5, 4\); got \(1, 4\)"),
            ({"before": torch.ones(5, 4)}, "arrays of one library .* got ndarray, Tensor"),
        ],
        "product_spectrum": [
            ({"right": right[:, :1]}, r"right must have .* got \(6, 1\)"),
            ({"right": right[None]}, "right must have the batch axes"),
        ],
        "product_update_spectrum": [({"right0": right[:1]}, "right0 must have the shape of right")],
        "product_update_subspaces": [
            ({"k": 5}, "k must be from 1 to 4, the largest rank the update can have; got 5"),
            ({"k": 0}, "k must be from 1"),
            ({"left0": right[:1]}, "left0 must have the shape of left"),
        ],
        "principal_angles": [
            ({"second": np.ones((5, 1))}, "second must have orthonormal columns"),
            ({"second": np.eye(4)[:, :2]}, r"second must have the shape of first, \(5, 2\), but for the last axis"),
        ],
        "subspace_overlap": [({"first": 2 * np.eye(5)[:, :2]}, "orthonormal columns")],
        "find_stages": [
            ({"times": -FEW}, "times must be .* strictly increasing"),
            ({"losses": losses[:2]}, r"losses must have .* \(50,\); got \(2,\)"),
            ({"activity": activity[:2]}, r"activity must have shape \(50, r\).* \(2, 2\)"),
            ({"level": 0.0}, "level must be greater than 0"),
            ({"min_duration": -1.0}, "min_duration must be at least 0"),
        ],
        "find_plateaus": [
            ({"losses": FEW, "steps": FEW[::-1]}, "steps must not decrease"),
            ({"losses": FEW, "steps": FEW[:5]}, r"steps must have the shape of losses, \(6,\)"),
            (EMPTY | {"losses": FEW * np.nan}, "at least 5 finite records; got 0 of 6"),
            (EMPTY | {"steps": 0 * FEW}, "5 or more steps that differ in float64; got 1"),
            (EMPTY | {"steps": 1e18 + 10 * FEW}, "got 1. Log more often, or subtract the first step"),
            ({"singular_values": []}, "singular_values must have one array per layer; got none"),
            ({"singular_values": [activity, activity[:5]]}, r"singular_values\[1\] must have shape \(50, r\)"),
            ({"singular_values": [-np.ones((50, 2))]}, r"singular_values\[0\] must be at least 0; got -1.0"),
        ],
        "rank_stairs": [
            ({"times": -np.linspace(0.0, 1.0, 50)}, "strictly increasing"),
            ({"share": 1.5}, "share must be between 0 and 1; got 1.5"),
        ],
        "rank_staircases": [
            (MANY, r"noise_floors must have shape \(50, 2\)"),
            ({"values": np.ones((3, 2, 2)), "noise_floors": np.ones((3, 2))}, r"values must have shape \(50, r\)"),
        ],
        "Stage": [
            ({"end": -1.0}, "end must be at least start=0.0; got -1.0"),
            ({"rank": 2, "support": (3,)}, "rank must be the size of the support, 1; got 2"),
            ({"rank": 2, "support": (3, 1)}, "support must be ascending"),
            ({"layer_ranks": ()}, r"layer_ranks must be .* got \(\)"),
        ],
    }
    apart = (m.Stage(0.0, 1.0, 0.0, 0), m.Stage(2.0, 3.0, 0.0, 1))
    return rows, [
        (unordered, "descending"),
        (lambda: m.compare(MANY, MANY), "^predicted must "),
        (other_units, "found must be in the time unit of predicted, 't'; got 'steps'"),
        (lambda: m.Spectrum(np.ones((2, 3)), 0.0), r"noise_floor must have shape \(2,\).* got \(\)"),
        (lambda: m.find_plateaus(8e307 - 1e307 * FEW).plot(), r"at most 1e\+307 to be drawn; got 8e\+307"),
        (lambda: m.Staircase((), "t"), "stages must hold at least one"),
        (lambda: m.Staircase(apart, "t"), "stage 1 must start at 1.0, where stage 0 ends; got 2.0"),
        (lambda: m.entry_histories(ENTRIES, [1.0]), "strengths must be 2 finite"),
        (lambda: m.entry_histories(ENTRIES, [0.0, 0.0]), "not all 0"),
        (lambda: m.entry_histories(ENTRIES, [1.0, 1.0], level=0.5), "level must be between"),
    ]


def models() -> tuple[dict[str, list[tuple[dict[str, Any], str]]], list[tuple[Any, str]]]:
    """Return the same for models."""
    data = n.gaussian_tokens(3, 4, 6, seed=1)
    alike = np.array(data.X)
    alike[0, 1] = alike[0, 2] = 2 * alike[0, data.optimal[0]] + 2 * data.y[0] * data.v / (data.v @ data.v)
    nearly = np.array(alike)
    nearly[0, 1] *= 1 - 1e-16
    queries = np.array(data.z)
    queries[0, 1] = np.nan
    square, wide, task = np.eye(3), np.ones((2, 3, 4)), n.attention_teacher_task(0, samples=3, tokens=2, dim=2).network
    transformer = n.Transformer(layers=2, heads=2, dim=3, W_A=jnp.ones((2, 3, 5)), W_B=jnp.ones((2, 3, 5)))
    sizes = ({"samples": 0}, {"tokens": -2}, {"dim": 0}, {"seed": -3}, {"width": 0}, {"rank": 0}, {"dim": 3, "rank": 4})
    rows = {
        "layered_weights": [({"widths": (3, 2)}, "depth L of at least 2")],
        "layered_output": [({"inputs": np.ones((3, 6))}, r"shapes \(3, 6\) and .* Pass `inputs.T`")],
        "LayeredLoss": [
            (
                {"inputs": np.ones((4, 2)), "targets": np.ones((3, 1))},
                r"a row per sample, .* shapes \(3, 1\) and \(4, 2\)",
            ),
            ({"inputs": np.ones((2, 4)), "targets": np.ones((1, 4))}, "Pass `inputs.T` and `targets.T`"),
        ],
        "full_attention_teacher_task": [
            *((bad, f"{list(bad)[-1]} must be") for bad in sizes),
            ({"dim": 6, "width": 2, "rank": 3}, "or no student learns it"),
        ],
        "symmetric_factor": [
            ({"W": np.array([[1.0, 0.5], [0.4, 1.0]])}, "W must be symmetric.*differs from its transpose by 0.09"),
            ({"W": np.array([[1.0, 2.0], [2.0, 1.0]])}, "W must be positive semidefinite, .*no U.*eigenvalue -1.0"),
            ({"W": np.array([[0.0, 1e-3], [1e-3, 1.0]])}, "W must be positive semidefinite"),
        ],
        "symmetric_weights": [
            ({"log_scale": -np.inf}, "log_scale must be between"),
            ({"width": 0}, "width must be at least 1"),
        ],
        "PopulationLoss": [({"second_moment": -np.eye(2)}, "second_moment must be positive semidefinite")],
        "identity_loss": [({"inputs": np.full((2, 2), np.inf)}, "inputs must be finite")],
        "StructuredIdentityTask": [
            ({"dim": 1}, "dim must be at least the number of concepts, 2; got 1"),
            ({"mu": (1.0, -1.0)}, "mu must be"),
            ({"sigma": (0.1,)}, "sigma must have a value for each of the 2 mu"),
            ({"rotation": square}, r"rotation must have shape \(4, 4\)"),
            ({"rotation": 2 * np.eye(4)}, "rotation must be orthogonal"),
        ],
        "random_rotation": [({"dim": 0}, "dim must be at least 1")],
        "perceptron_weights": [({"widths": (3,)}, "widths must be n_0")],
        "perceptron_loss": [
            ({"inputs": np.zeros((0, 3))}, "inputs must have shape"),
            ({"inputs": square, "directions": square[:, :2]}, "inputs must be in the span"),
            ({"directions": 2 * square}, "directions must have orthonormal columns"),
        ],
        "diagonal_linear_network": [
            ({"targets": np.ones(2)}, "as many samples"),
            ({"features": np.ones(5)}, "features must have shape"),
        ],
        "TokenData": [
            ({"X": data.X[0]}, "X must have shape"),
            ({"X": data.X[:, :1]}, "two tokens or more"),
            ({"z": data.z[:1]}, r"z must have shape \(3, 6\)"),
            ({"v": np.ones(3)}, r"v must have shape \(6,\)"),
            ({"y": np.array([1.0, 0.0, 1.0])}, r"y must be 1 or -1 for every sample; got 0\.0 for sample 1"),
            ({"z": queries}, r"z must be finite; got nan at \[0, 1\]"),
            ({"X": alike}, r"the tokens 1 and 2 of sample 0 with the same score"),
            ({"X": nearly}, "the tokens 1 and 2"),
        ],
        "with_gaps": [({"gaps": bad}, "gaps must be positive") for bad in (0.0, np.ones((3, 4)), -np.ones((3, 3)))],
        "gaussian_tokens": [
            ({"samples": 0}, "samples must be at least 1"),
            ({"spread": 1.0}, "spread must be at least 0 and below 1"),
        ],
        "conditioned_tokens": [({"dim": 3, "support": 3}, "support must be at least 1 and below dim=3")],
        "aligned_tokens": [
            ({"tokens": 4}, "tokens must be odd"),
            ({"samples": 3, "tokens": 5, "dim": 2}, "dim must be at least 3"),
            ({"ratio": [0.1, 0.1, 0.1]}, "ratio must be in"),
        ],
        "check_token_assumptions": [
            ({"weights": (np.ones((3, 2)), np.ones((3, 2)))}, "K must have shape"),
            ({"weights": np.ones(5)}, "weights must have shape"),
        ],
        "attention_loss": [({"kind": "square"}, "no loss 'square'")],
        "SelectionLoss": [
            ({"gaps": np.ones((4, 2))}, "must have shapes"),
            ({"gaps": np.zeros((3, 3))}, "gaps must be positive"),
            ({"kind": "hinge"}, "no loss 'hinge'"),
        ],
    }
    feedforward = r"both have shape \(layers, dim, hidden\) = \(2, 3, hidden\)"
    places = [(2, 0, "KQ", 0), (0, 2, "KQ", 0), (0, 0, "QK", 0), (0, 0, "VO", -1)]
    return rows, [
        (lambda: n.AttentionNetwork(n.attention_head, *_data(task), lambda y, f: jnp.sum(y * f)), "DiagonalNetwork"),
        (lambda: n.FullAttention(jnp.zeros((3, 2, 2)), jnp.zeros((3, 2, 1))), "inputs and targets must have one shape"),
        *(
            (lambda shape=shape: n.Transformer(2, 1, 3, jnp.zeros(shape), jnp.zeros(shape)), feedforward)
            for shape in ((1, 3, 4), (2, 4, 4))
        ),
        (lambda: n.Transformer(2, 1, 3, jnp.zeros(wide.shape)), r"W_A and W_B .* got \(2, 3, 4\) and None"),
        *(
            (lambda at=at: transformer.index(n.Coordinate(*at)), "coordinate must be in 2 layers of 2 heads")
            for at in places
        ),
        (lambda: transformer.coordinate(24), "index must be between 0 and 23"),
        (lambda: n.StructuredIdentityTask((1.0,), (0.1,), 3, 1).draw(-1), "seed must be at least 0; got -1"),
        (lambda: data.margins(np.ones(3)), r"weights must have shape \(6,\)"),
        (lambda: data.margins(np.ones((6, 3))), r"weights must have shape \(6, 6\) for W"),
        (lambda: data.margins((np.ones((6, 1)), np.ones((6, 2)))), "K and Q must have the same shape"),
        (lambda: data.margins((np.ones((3, 1)), np.ones((3, 1)))), r"K must have shape \(6, columns\)"),
    ]


def _data(network: Any) -> tuple[Any, Any]:
    return network.inputs, network.targets
