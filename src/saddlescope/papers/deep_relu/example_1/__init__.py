"""Example 1: an optimal escape direction that is not rank one, certified.

N points on the unit circle with loss gradients of alternating sign; the example has N = 8, depth 3 and one output. The
paper gives a network faster than all of rank one, and leaves open whether a still faster one exists. Here the largest
speed of all networks of depth 3 is between two bounds that meet.

    s*        largest escape speed at depth 3, over all widths
    lower     the speed of a network, evaluated on the data
    upper     from a dual solution, evaluated in closed form: no network is faster
    rank one  largest speed with every layer of rank one, the same at any depth, exact in the plane
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.example_1.claims import claims
from saddlescope.papers.deep_relu.example_1.figures import figures
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Circle of the example, and circles with other numbers of points."""

    samples: tuple[int, ...] = param((4, 6, 8, 10, 12, 14, 16), "numbers N of points, even, increasing, 8 among them")
    curve: int = param(721, "angles at which the networks' outputs are drawn", ge=9)

    def check(self) -> None:
        given = self.samples
        if 8 not in given or any(n < 4 or n % 2 for n in given) or tuple(sorted(set(given))) != given:
            raise InputError(
                f"samples must be even numbers of at least 4, increasing, 8 among them, such as 4,8,12; got {given!r}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Certify the circles, one after the other, and evaluate the two networks of the example."""
    parts: list[xr.Dataset] = []
    for k, samples in enumerate(params.samples):
        context.report(k / len(params.samples), f"circle of {samples} points")
        parts.append(context.cached(f"circle-{samples}", partial(_certify_circle, samples)))
    context.report(1.0, "done")
    return xr.merge([xr.concat(parts, dim="samples"), _evaluate_networks(params.curve)])


def _certify_circle(samples: int) -> xr.Dataset:
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed

    X, G = alternating_circle(samples)
    best, rank_one = certified_escape_speed(X, G), rank_one_escape_speed(X, G)
    return xr.Dataset(
        {
            "lower": best.lower,
            "upper": best.upper,
            "rank_one": rank_one.lower,
            "rank_one_upper": rank_one.upper,
            "programmes": best.programs,
            "neurons": len(best.weights[0]),
            "ranks": ("layer", [int(np.linalg.matrix_rank(weight, tol=1e-9)) for weight in best.weights]),
        },
        coords={"samples": samples, "layer": [1, 2, 3]},
    )


def _printed_weights() -> tuple[np.ndarray, ...]:
    """Return the weights (2) of the paper."""
    W1 = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]) / 2
    return W1, np.array([[1.0, -1.0, 1.0, -1.0]]) / 2, np.array([[1.0]])


def _evaluate_networks(angles: int) -> xr.Dataset:
    """Evaluate the network (2) with either sign of W_3, its ranks, and its output beside that of the certified one."""
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed
    from saddlescope.theory.escape.speed import escape_speed

    X, G = alternating_circle(8)
    W1, W2, W3 = _printed_weights()
    angle = np.linspace(0, 2 * np.pi, angles)
    points = np.stack([np.sin(angle), np.cos(angle)])
    shown = {
        "the paper's, with W₃ = −1": (W1, W2, -W3),
        "certified": certified_escape_speed(X, G).weights,
        "rank one": rank_one_escape_speed(X, G).weights,
    }
    outputs = [(c @ np.maximum(b @ np.maximum(a @ points, 0), 0))[0] for a, b, c in shown.values()]
    return xr.Dataset(
        {
            "printed_speed": escape_speed((W1, W2, W3), X, G),
            "corrected_speed": escape_speed((W1, W2, -W3), X, G),
            "printed_ranks": ("layer", [int(np.linalg.matrix_rank(weight)) for weight in (W1, W2, W3)]),
            "output": (("network", "angle"), np.stack(outputs)),
            "data_angle": ("point", np.arctan2(X[:, 0], X[:, 1]) % (2 * np.pi)),
            "data_gradient": ("point", G[:, 0]),
        },
        coords={"layer": [1, 2, 3], "angle": angle, "network": list(shown)},
    )


entry = Entry(
    "deep-relu/example-1",
    "Example 1: an optimal escape direction that is not rank one, certified",
    citation=CITATION,
    source="Section 4, Example 1",
    params=Params,
    quick=dict(samples=(4, 6, 8, 12), curve=181),
    run=run,
    claims=claims,
    figures=figures,
)
