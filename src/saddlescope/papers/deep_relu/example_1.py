"""Example 1: an optimal escape direction that is not rank one, certified.

N points on the unit circle with loss gradients of alternating sign; the example has N = 8, depth 3 and one output. The
paper gives a network faster than all of rank one, and leaves open whether a still faster one exists. Here the largest
speed s* of all networks of depth 3 is between a lower bound, the speed of a network, and an upper one from a dual
solution, which meet. The largest speed with every layer of rank one is exact in the plane, and the same at any depth.
"""

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle, depth_three_optimum
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, Table, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

ROUNDING = 1e-12


class Params(EntryParams):
    """Circle of the example, and circles with other numbers of points."""

    samples: tuple[int, ...] = param(
        (4, 6, 8, 10, 12, 14, 16),
        "numbers of points N of the circles, 8 among them",
        ge=4,
        multiple_of=2,
        order="increasing",
    )
    curve: int = param(721, "angles at which the networks' outputs are drawn", ge=9)

    def check(self) -> None:
        if 8 not in self.samples:
            raise InputError(f"samples must contain 8; got {self.samples!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Certify the circles, one after the other, and evaluate the networks of the example."""
    circles = context.over({"samples": params.samples}, _certify_circle)
    return circles.merge(_evaluate_networks(params.curve))


def _certify_circle(samples: int, step: RunContext) -> xr.Dataset:
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed

    X, G = alternating_circle(samples)
    best, rank_one = certified_escape_speed(X, G), rank_one_escape_speed(X, G)
    ranks = [int(np.linalg.matrix_rank(weight, tol=1e-9)) for weight in best.weights]
    speeds = {"lower": best.lower, "upper": best.upper, "rank_one": rank_one.lower, "rank_one_upper": rank_one.upper}
    return xr.Dataset({**speeds, "ranks": ("layer", ranks)}, {"layer": [1, 2, 3]})


def _evaluate_networks(angles: int) -> xr.Dataset:
    """Evaluate the network (2) with W_3 = -1, and its output beside that of the certified and the rank-one optimum."""
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed
    from saddlescope.theory.escape.speed import escape_speed

    X, G = alternating_circle(8)
    W1 = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]) / 2  # the weights (2) of the paper
    paper = W1, np.array([[1.0, -1.0, 1.0, -1.0]]) / 2, -np.eye(1)
    angle = np.linspace(0, 2 * np.pi, angles)
    points = np.stack([np.sin(angle), np.cos(angle)])
    shown = {
        "the paper's, with W₃ = −1": paper,
        "certified": certified_escape_speed(X, G).weights,
        "rank one": rank_one_escape_speed(X, G).weights,
    }
    outputs = [(c @ np.maximum(b @ np.maximum(a @ points, 0), 0))[0] for a, b, c in shown.values()]
    data = {"data_angle": np.arctan2(X[:, 0], X[:, 1]) % (2 * np.pi), "data_gradient": G[:, 0]}
    return xr.Dataset(
        {name: ("point", values) for name, values in data.items()}
        | {"corrected_speed": escape_speed(paper, X, G), "output": (("network", "angle"), np.stack(outputs))},
        coords={"angle": angle, "network": list(shown)},
    )


claims = Claims(
    limits="The printed W₃ = 1 has speed -1/2, a slip of a sign, and the reason given why rank-one networks are one "
    "neuron is wrong, its conclusion right (errata). Inputs are at kinks of the network of equation 2; it is an "
    "escape direction because it attains the optimum. Both bounds on that are from one program; the lower is a "
    "network's speed, the upper rests on its dual formula. Optima are not unique, but all have rank two in the first "
    "layer: with rank one the output is a relu(v·x) + b relu(-v·x), and its speed, linear in a and b, at most √2 - 1."
)


def _middle_of_bounds(run: xr.Dataset, lower: str, upper: str) -> Estimate:
    """Return the middle of the bounds at N = 8, with half their distance."""
    low, high = (float(run[name].sel(samples=8)) for name in (lower, upper))
    return Estimate((low + high) / 2, (high - low) / 2 + ROUNDING, remark=f"between {low!r} and {high!r}")


@claims.printed(
    "rank-one",
    "On the 8 points of Example 1, the optimal rank-one escape direction has speed √2 - 1",
    "Example 1; 1e-9 for rounding",
    low=2**0.5 - 1 - 1e-9,
    high=2**0.5 - 1 + 1e-9,
)
def largest_rank_one_speed(run: xr.Dataset) -> Estimate:
    """Largest speed with weight matrices of rank one, midpoint of its lower and upper bounds."""
    return _middle_of_bounds(run, "rank_one", "rank_one_upper")


@claims.printed(
    "corrected-weights",
    "On the 8 points of Example 1, there is a rank-two escape direction of depth 3 with speed 1/2, above √2 - 1",
    "Example 1, equation 2 with W₃ = -1; 1e-9 for rounding",
    low=0.5 - 1e-9,
    high=0.5 + 1e-9,
)
def rank_two_speed(run: xr.Dataset) -> Estimate:
    """Escape speed of the network of equation 2 with W₃ = -1."""
    return Estimate(float(run.corrected_speed), ROUNDING)


@claims.printed(
    "first-layer",
    "On the 8 points of Example 1, the optimal escape direction of depth 3 has rank two in the first layer",
    "Section 4: 'a simple counterexample in which the optimal escape direction is rank two in the first layer'",
    low=2.0,
    high=2.0,
)
def first_rank(run: xr.Dataset) -> Estimate:
    """Rank of the first weight matrix of the network with the certified largest escape speed."""
    ranks = run.ranks.sel(samples=8).values
    return Estimate(float(ranks[0]), remark=f"ranks {', '.join(map(str, ranks))}")


@claims.reading(
    "optimum",
    "On the 8 points of Example 1, no network of depth 3 escapes faster than 1/2, at any width",
    "Example 1, footnote 2: 'there may exist an even faster escape direction (though we doubt it)'; to 1e-8",
    low=0.5 - 1e-8,
    high=0.5 + 1e-8,
)
def largest_speed(run: xr.Dataset) -> Estimate:
    """Largest escape speed of networks of any width, midpoint of its certified bounds."""
    return _middle_of_bounds(run, "lower", "upper")


@claims.extension(
    "closed-form",
    "On 4, 8, 12 and 16 alternating circle points, the largest escape speed at depth 3 is 1/(1 + cot(2π/N))",
    "read off these certified values; not proven, and tested at no other N",
    high=1e-8,
)
def closed_form_error(run: xr.Dataset) -> Estimate:
    """Largest absolute deviation of a certified bound from the formula."""
    multiples = run.isel(samples=run.samples.values % 4 == 0)
    exact = [depth_three_optimum(int(n)) for n in multiples.samples.values]
    away = np.maximum(abs(multiples.lower.values - exact), abs(multiples.upper.values - exact))
    remark = f"N = {', '.join(map(str, multiples.samples.values))}"
    return Estimate.largest(away, remark, over="circles", uncertainty=ROUNDING)


def figures(run: xr.Dataset) -> Figures:
    """Draw the outputs of the three networks around the circle, and the optima against N."""
    paper, certified, rank_one = (run.output.isel(network=k) for k in range(3))
    around: list[Line] = [
        *lines(paper, x="angle", label=str(paper.network.item()), width=4.0, opacity=0.35),
        *lines(certified, x="angle", label="certified", color=1, width=1.4),
        *lines(rank_one, x="angle", label="rank one", color=2, width=1.4, style="dashed"),
    ]
    for sign, name, color in ((1.0, "data with G = +1", 3), (-1.0, "data with G = −1", 5)):
        x = run.data_angle.values[run.data_gradient.values == sign]
        around.append(Line(x=x, y=np.zeros(len(x)), label=name, color=color, style="points"))
    optima = list(lines(run.rank_one_upper, x="samples", label="rank one", color=2, style="points"))
    for remainder, name, color in ((0, "s*, 4 divides N", 1), (2, "s*, other N", 4)):
        upper = run.upper.isel(samples=run.samples.values % 4 == remainder)
        for style in ("points", "dotted"):
            optima += lines(upper, x="samples", label=name, grouped=True, color=color, style=style)
    rows = []
    for samples in run.samples.values.tolist():
        one = run.sel(samples=samples)
        exact = f"{depth_three_optimum(samples):.12f}" if samples % 4 == 0 else "–"
        gap, ranks = f"{float(one.upper - one.lower):.1e}", ", ".join(str(int(rank)) for rank in one.ranks.values)
        rows.append((samples, f"{float(one.lower):.12f}", gap, exact, f"{float(one.rank_one):.12f}", ranks))
    columns = ("N", "s*", "upper − lower", "1/(1 + cot(2π/N))", "rank one", "ranks")
    yield Figure(
        name="optimum",
        title="Optimal networks on the circle of Example 1, and optimal speeds on other circles",
        caption="Left: the outputs around the circle of the paper's network (sign corrected), of the certified "
        "optimum, and of the best network of rank one; the speed is minus the sum of G times the output over the "
        "points. Optima are not unique. Right: the certified largest speed at depth 3 against the number of "
        "points, and the largest with every layer of rank one. The table has both bounds.",
        panels=(
            Panel(title="N = 8", x=Axis("angle", "rad"), y=Axis("output"), marks=tuple(around)),
            Panel(title="all N", x=Axis("number of points N"), y=Axis("speed"), marks=tuple(optima)),
        ),
        table=Table(columns=columns, rows=tuple(rows)),
    )


entry = Entry(
    "deep-relu/example-1",
    "Example 1: an optimal escape direction that is not rank one, certified",
    source="Section 4, Example 1",
    quick=dict(samples=(4, 6, 8, 12), curve=181),
)
