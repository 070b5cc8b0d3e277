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
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle, depth_three_optimum, rank_one_optimum
from saddlescope.plot import Axis, Figure, Line, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

ROUNDING = 1e-12


class Params(EntryParams):
    """Circle of the example, and circles with other numbers of points."""

    samples: tuple[int, ...] = param(
        (4, 6, 8, 10, 12, 14, 16), "numbers of points N of the circles, 8 among them", ge=4, multiple_of=2,
        order="increasing",
    )  # fmt: skip
    curve: int = param(721, "angles at which the networks' outputs are drawn", ge=9)

    def check(self) -> None:
        if 8 not in self.samples:
            raise InputError(f"samples must contain 8; got {self.samples!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Certify the circles, one after the other, and evaluate the two networks of the example."""
    parts: list[xr.Dataset] = []
    for samples, step in context.steps(params.samples):
        step.report(0.0, f"circle of {samples} points")
        parts.append(step.cached(f"circle-{samples}", partial(_certify_circle, samples)))
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


def _evaluate_networks(angles: int) -> xr.Dataset:
    """Evaluate the network (2) with either sign of W_3, its ranks, and its output beside that of the certified one."""
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed
    from saddlescope.theory.escape.speed import escape_speed

    X, G = alternating_circle(8)
    W1 = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]) / 2  # the weights (2) of the paper
    W2, W3 = np.array([[1.0, -1.0, 1.0, -1.0]]) / 2, np.array([[1.0]])
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


# The bounds. Known values are held to 1e-8, the agreement of the bounds that this project set itself; where the paper's
# statement is wrong, both its own words and the corrected statement are judged.
claims = Claims()


def _middle_of_bounds(run: xr.Dataset, lower: str, upper: str) -> Estimate:
    """Return the middle of the bounds at N = 8, with half their distance."""
    low, high = (float(run[name].sel(samples=8)) for name in (lower, upper))
    return Estimate((low + high) / 2, (high - low) / 2 + ROUNDING, remark=f"between {low!r} and {high!r}")


claims.add(
    "optimum", "For 8 points on a circle, the largest escape speed from the origin of depth-3 ReLU networks is 1/2",
    quantity="certified largest escape speed from the origin of depth-3 ReLU networks of any width, midpoint of "
        "its lower and upper bounds", kind="own",
    source="Example 1, footnote 2, which leaves it open; held to this project's 1e-8", low=0.5 - 1e-8,
    high=0.5 + 1e-8, evidence="identity", over="data sets",
    why="No network is faster than the upper bound and one attains the lower, so their middle is the optimum to within "
        "half the gap",
    doubt="Both bounds are from one program; the lower is a network's speed, the upper rests on its dual formula",
)(partial(_middle_of_bounds, lower="lower", upper="upper"))  # fmt: skip


@claims.add(
    "bounds-meet",
    "For points on a circle, certified bounds on the largest escape speed of depth-3 ReLU networks agree to 1e-8",
    quantity="largest difference of the upper and lower bounds on the largest escape speed, over circles of 4 to "
        "16 points", kind="own", source="this project's bar: 1e-8 for N up to 16", high=1e-8,
    evidence="cases", over="data sets",
    why="The gap of the bounds is the largest error that the optimum can have, on every circle",
    doubt="An upper bound that is wrong and too low by chance would make the gap small as well",
)  # fmt: skip
def _largest_gap(run: xr.Dataset) -> Estimate:
    return Estimate.largest(run.upper - run.lower, f"N = {', '.join(map(str, run.samples.values))}")


claims.add(
    "printed-weights",
    "The paper's example network for 8 points on a circle, as printed (W₃ = 1), has escape speed 1/2",
    quantity="escape speed -Tr[GᵀY] from the origin of the weights printed in equation 2, with loss gradients G "
        "and network outputs Y", kind="printed", source="Example 1, equation 2 as printed; Tr[GᵀY] is +1/2 there",
    low=0.5 - 1e-9, high=0.5 + 1e-9, evidence="identity", over="data sets",
    why="The printed matrices, data and gradients are put into the paper's own definition of the speed",
    doubt="It is a sign: a reader who takes G for its negative finds the printed speed",
)(lambda run: Estimate(float(run.printed_speed), ROUNDING))  # fmt: skip

claims.add(
    "corrected-weights",
    "The paper's example network for 8 points on a circle, with W₃ corrected to -1, has escape speed 1/2",
    quantity="escape speed -Tr[GᵀY] from the origin of the corrected weights of equation 2, with loss gradients G "
        "and network outputs Y", kind="own", source="Example 1, corrected: the speed is -Tr[GᵀY]", low=0.5 - 1e-9,
    high=0.5 + 1e-9, evidence="identity", over="data sets",
    why="With the sign of the last matrix turned, the same sum has the value that the paper states",
    doubt="Turning the sign of G or of the labels would be another correction, with the same value",
)(lambda run: Estimate(float(run.corrected_speed), ROUNDING))  # fmt: skip

claims.add(
    "rank-one",
    "For 8 points on a circle, the largest escape speed of networks with rank-one weight matrices is √2 - 1",
    quantity="largest escape speed from the origin of ReLU networks with rank-one weight matrices, midpoint of its "
        "lower and upper bounds", kind="printed", source="Example 1; exact, at any depth", low=2**0.5 - 1 - 1e-9,
    high=2**0.5 - 1 + 1e-9, evidence="identity", over="data sets",
    why="The closed form maximises over all directions arc by arc, so the bounds enclose the best rank-one network",
    doubt="That mixtures of two opposite neurons are no faster is this project's proof; the paper's own step is wrong",
)(partial(_middle_of_bounds, lower="rank_one", upper="rank_one_upper"))  # fmt: skip


def _layer_rank(run: xr.Dataset, *, name: str, layer: int) -> Estimate:
    at = run[name] if name == "printed_ranks" else run[name].sel(samples=8)
    return Estimate(float(at.sel(layer=layer)), remark="ranks " + ", ".join(str(int(rank)) for rank in at.values))


claims.add(
    "first-layer",
    "For 8 points on a circle, the certified fastest-escaping depth-3 ReLU network has a first weight matrix of "
        "rank two",
    quantity="rank of the first weight matrix of the depth-3 network with the certified largest escape speed from "
        "the origin", kind="printed", source="Section 4: the optimal escape direction is rank two in the first layer",
    low=2.0, high=2.0, evidence="identity", over="data sets", needs=("optimum",),
    why="The network attains the certified optimum, so its first matrix is that of an optimal escape direction",
    doubt="Optima are not unique; rank one is excluded by the best rank-one speed, a rank above two by the plane",
)(partial(_layer_rank, name="ranks", layer=1))  # fmt: skip

claims.add(
    "printed-second-layer",
    "The second weight matrix of the paper's example network for 8 points on a circle has rank two",
    quantity="rank of the second weight matrix of the depth-3 network printed in equation 2", kind="printed",
    source="Section 1.3: 'The first two weight matrices are rank 2'", low=2.0, high=2.0, evidence="identity",
    over="data sets",
    why="The matrix is printed in equation 2, and its rank is a matter of counting: it has one row",
    doubt="The introduction may mean another optimum of the example, in which the second matrix has more rows",
)(partial(_layer_rank, name="printed_ranks", layer=2))  # fmt: skip

claims.add(
    "second-layer",
    "For 8 points on a circle, the certified fastest-escaping depth-3 ReLU network has a second weight matrix of "
        "rank one",
    quantity="rank of the second weight matrix of the depth-3 network with the certified largest escape speed from "
        "the origin", kind="own",
    source="corrected: the ranks are 2, 1, 1, since one neuron of the second layer is active", low=1.0, high=1.0,
    evidence="identity", over="data sets", needs=("optimum",),
    why="An optimum whose second matrix has rank one shows that rank two is not needed there",
    doubt="The certificate's network has one neuron there by construction, and other optima could have rank two",
)(partial(_layer_rank, name="ranks", layer=2))  # fmt: skip


@claims.add(
    "rank-one-circles",
    "The largest escape speed of rank-one networks on N circle points is tan(π/N) if 4 divides N, else 0",
    quantity="largest absolute deviation of a bound on the largest escape speed of rank-one networks from the "
        "formula, over N", kind="own", source="exact (a geometric series); the paper has N = 8", high=1e-9,
    evidence="cases", over="data sets",
    why="Both bounds are compared with the formula, so that an error of either on some circle counts",
    doubt="Formula and bounds were derived by the same people from the same symmetry; N ends at 16",
)  # fmt: skip
def _rank_one_error(run: xr.Dataset) -> Estimate:
    exact = [rank_one_optimum(int(n)) for n in run.samples.values]
    away = np.maximum(abs(run.rank_one.values - exact), abs(run.rank_one_upper.values - exact))
    return Estimate(float(away.max()), ROUNDING, n=away.size)


@claims.add(
    "closed-form",
    "If 4 divides N, the largest escape speed of depth-3 ReLU networks on N circle points is 1/(1 + cot(2π/N))",
    quantity="largest absolute deviation of a certified bound on the largest escape speed from the formula, over N "
        "divisible by 4", kind="own",
    source="seen in certified values of a trial run; neither proven nor in the paper", high=1e-8,
    evidence="cases", over="data sets",
    why="The formula has no free constant, so certified values on several circles can contradict it",
    doubt="It was read off trial values for these N, which are compared with it again; no circle of the run is new",
)  # fmt: skip
def _closed_form_error(run: xr.Dataset) -> Estimate:
    multiples = run.isel(samples=run.samples.values % 4 == 0)
    exact = [depth_three_optimum(int(n)) for n in multiples.samples.values]
    away = np.maximum(abs(multiples.lower.values - exact), abs(multiples.upper.values - exact))
    return Estimate(float(away.max()), ROUNDING, f"N = {', '.join(map(str, multiples.samples.values))}", away.size)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the outputs of the three networks around the circle, and the optima against N."""
    angle, output = run.angle.values, run.output.values
    paper, certified, rank_one = (str(name) for name in run.network.values)
    outputs = (
        Line(x=angle, y=output[0], label=paper, color=0, width=4.0, opacity=0.35),
        Line(x=angle, y=output[1], label=certified, color=1, width=1.4),
        Line(x=angle, y=output[2], label=rank_one, color=2, width=1.4, style="dashed"),
    )
    data = []
    for sign, name, color in ((1.0, "data with G = +1", 3), (-1.0, "data with G = −1", 5)):
        x = run.data_angle.values[run.data_gradient.values == sign]
        data.append(Line(x=x, y=np.zeros(len(x)), label=name, color=color, style="points"))
    optima = list(lines(run.rank_one_upper, x="samples", label="rank one", color=2, style="points"))
    for remainder, name, color in ((0, "s*, 4 divides N", 1), (2, "s*, other N", 4)):
        upper = run.upper.isel(samples=run.samples.values % 4 == remainder)
        optima += lines(upper, x="samples", label=name, grouped=True, color=color, style="points")
        optima += lines(upper, x="samples", label=name, grouped=True, color=color, style="dotted")
    rows = []
    for samples in run.samples.values.tolist():
        one = run.sel(samples=samples)
        exact = f"{depth_three_optimum(samples):.12f}" if samples % 4 == 0 else "–"
        gap, ranks = float(one.upper - one.lower), ", ".join(str(int(rank)) for rank in one.ranks.values)
        speeds = (f"{float(one.lower):.12f}", f"{gap:.1e}", exact, f"{float(one.rank_one):.12f}")
        rows.append((samples, *speeds, ranks, int(one.neurons), int(one.programmes)))
    columns = ("N", "s*", "upper − lower", "1/(1 + cot(2π/N))", "rank one", "ranks", "neurons in layer 1", "programmes")
    return [
        Figure(
            name="optimum",
            title="Optimal networks on the circle of Example 1, and optimal speeds on other circles",
            caption="Left: the outputs around the circle of the paper's network (sign corrected), of the certified "
            "optimum, and of the best network of rank one; the speed is minus the sum of G times the output over the "
            "points. Optima are not unique. Right: the certified largest speed at depth 3 against the number of "
            "points, and the largest with every layer of rank one. The table has both bounds.",
            panels=(
                Panel(title="N = 8", x=Axis("angle", "rad"), y=Axis("output"), marks=(*outputs, *data)),
                Panel(title="all N", x=Axis("number of points N"), y=Axis("speed"), marks=tuple(optima)),
            ),
            table=Table(columns=columns, rows=tuple(rows)),
        )
    ]


entry = Entry(
    "deep-relu/example-1", "Example 1: an optimal escape direction that is not rank one, certified",
    citation=CITATION, source="Section 4, Example 1", params=Params, quick=dict(samples=(4, 6, 8, 12), curve=181),
    run=run, claims=claims, figures=figures,
)  # fmt: skip
