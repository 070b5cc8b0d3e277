"""Figure 5: escape speed of a rank-one network against the angle of its first weights.

The circle of Example 1, N = 8. A network of one neuron per layer with W_1 = (cos phi, sin phi), W_2 = 1 and W_3 = +-1
has the speed |sum_j G_j relu(W_1 x_j)|, which equation 6 gives in closed form. No other network whose layers all have
rank one is faster, though not all of them are one neuron: W_1 = (v, -v)/sqrt 2 gives |v.x|/2.
"""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

BEST = 2**0.5 - 1


class Params(EntryParams):
    """Parameters of the paper's figure and of random networks of rank one."""

    angles: int = param(1441, "angles φ from 0 to 2π, both included", ge=17)
    networks: int = param(20_000, "random networks of rank-one layers", ge=1, scale="log")
    depth: int = param(4, "depth of the random networks", ge=2)
    seed: int = param(0, "seed of the random networks", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Evaluate equation 6, the speeds of the networks themselves, and of random ones of rank one."""
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed
    from saddlescope.theory.escape.speed import escape_speed

    X, G = alternating_circle(8)
    angle, speeds = np.linspace(0, 2 * np.pi, params.angles), []
    single, mixed = context.split(0.8, 0.2)
    for (k, phi), step in single.steps(enumerate(angle)):
        weights = (np.array([[np.cos(phi), np.sin(phi)]]), np.eye(1), np.eye(1))
        speeds.append(abs(escape_speed(weights, X, G)))
        if k % 100 == 0:
            step.report(0.0, f"angle {phi:.2f}")
    best = rank_one_escape_speed(X, G, depth=params.depth)
    mixed.report(0.0, "random networks of rank one")
    random = _random_speeds(X.T, G.T, params)
    context.report(1.0, "done")
    return xr.Dataset(
        {
            "speed": ("angle", np.array(speeds)),
            "equation_6": ("angle", _equation_6(angle)),
            "best": best.lower,
            "best_upper": best.upper,
            "random_speed": ("network", random),
        },
        coords={"angle": ("angle", angle, {"units": "rad"})},
        attrs={"depth": params.depth},
    )


def _equation_6(angle: np.ndarray) -> np.ndarray:
    xi, eighth = np.mod(angle, np.pi / 4), np.pi / 4
    return np.abs(np.cos(xi + eighth) - np.cos(xi) + np.cos(xi - eighth) - np.cos(xi - 2 * eighth))


def _random_speeds(X: np.ndarray, G: np.ndarray, params: Params) -> np.ndarray:
    """Return |Tr[G^T Y]| of networks W_l = p q^T with unit vectors, of width 2, half with W_1 near (v, -v)/sqrt 2."""
    rng = np.random.default_rng(params.seed)

    def units(size: int) -> np.ndarray:
        vectors = rng.normal(size=(params.networks, size))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    hidden = np.broadcast_to(X, (params.networks, *X.shape))
    for layer in range(params.depth):
        last = layer == params.depth - 1
        out, into = units(1 if last else 2), units(hidden.shape[1])
        if layer == 0:
            out[::2] = np.array([1.0, -1.0]) / np.sqrt(2)
        hidden = out[:, :, None] * np.einsum("ni,nij->nj", into, hidden)[:, None]
        hidden = hidden if last else np.maximum(hidden, 0)
    return np.abs(np.einsum("oj,noj->n", G, hidden))


claims = Claims()


# The bounds: what is exact is held to 1e-12. The maxima are searched at the angles of the run.
@claims.add(
    "equation-6",
    "On 8 circle points, the paper's closed formula gives the escape speed of one-neuron networks at every weight "
        "angle",
    quantity="largest absolute difference of equation 6 and the computed escape speed, over angles φ of first "
        "weights (cos φ, sin φ)", kind="printed", source="Equation 6, exact", high=1e-12,
    evidence="identity", over="angles",
    why="The network is evaluated layer by layer, so a formula that is wrong at any angle differs from it",
    doubt="The formula is periodic by construction, so 1441 angles hold only a few hundred different ones",
)  # fmt: skip
def _deviation(run: xr.Dataset) -> Estimate:
    return Estimate.largest(abs(run.speed - run.equation_6).values, f"{run.sizes['angle']} angles")


@claims.add(
    "maximum",
    "On 8 circle points, the largest escape speed of ReLU networks with rank-one weight matrices is √2 - 1",
    quantity="largest escape speed from the origin of networks with rank-one weight matrices, midpoint of its "
        "lower and upper bounds", kind="printed", source="Appendix C.1, exact", low=BEST - 1e-9, high=BEST + 1e-9,
    evidence="identity",
    why="The bounds hold for all such networks, in closed form on each arc, and they meet",
    doubt="The reduction to one neuron is our proof, since the paper's reason for it is wrong",
)  # fmt: skip
def _maximum(run: xr.Dataset) -> Estimate:
    low, high = float(run.best), float(run.best_upper)
    return Estimate((low + high) / 2, (high - low) / 2)


@claims.add(
    "where",
    "On 8 circle points, one-neuron networks escape fastest at first-weight angles that are multiples of π/4",
    quantity="largest distance of a fastest first-weight angle from a multiple of π/4, in units of π/4",
    kind="printed", source="Appendix C.1, exact", high=1e-6, evidence="identity", over="angles",
    why="The maxima of the curve are the optima that the appendix names",
    doubt="Only the angles of the grid are seen, and the grid contains the multiples of π/4",
)  # fmt: skip
def _distance_from_multiples(run: xr.Dataset) -> Estimate:
    at = run.angle.values[run.speed.values > float(run.best) - 1e-9]  # the angles whose speed is the largest
    if not len(at):
        return Estimate.unresolved("No angle of the run is near a maximum; make angles - 1 a multiple of 8.")
    return Estimate(float(np.max(abs(at / (np.pi / 4) - np.rint(at / (np.pi / 4))))), remark=f"at {len(at)} angles")


@claims.add(
    "all-of-rank-one",
    "On 8 circle points, no random network with rank-one layers escapes faster than the fastest one-neuron network",
    quantity="largest escape speed of random networks with rank-one layers over the largest escape speed of "
        "one-neuron networks", kind="printed",
    source="Example 1; its reason, that such networks are one neuron, is wrong, but the statement holds", high=1.0,
    evidence="cases", over="random networks",
    why="A network of rank one that were faster than one neuron would refute the example's reduction",
    doubt="Random networks come no nearer than 0.9 of the optimum, so a rare faster one would be missed",
)  # fmt: skip
def _random_maximum(run: xr.Dataset) -> Estimate:
    ratios = run.random_speed.values / float(run.best_upper)
    return Estimate.largest(ratios, f"{run.sizes['network']} networks of depth {run.depth}")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the figure of the paper, and the speeds of random networks."""
    counts, edges = np.histogram(run.random_speed.values, bins=60, range=(0, float(run.best)))
    turns = run.assign_coords(angle=run.angle.values / np.pi)
    best, label = float(run.best), "√2 − 1"
    curves = (
        *lines(turns.speed, x="angle", label="speed of the network", width=4.0, opacity=0.35),
        *lines(turns.equation_6, x="angle", label="equation 6", color=1, width=1.2),
        Mark(at=best, label=label, axis="y"),
    )
    histogram = (Line(x=edges[:-1], y=counts, style="steps", color=2), Mark(at=best, label=label))
    speed, networks = Axis("speed"), Axis("networks", scale="log")
    return [
        Figure(
            name="angle",
            title="Escape speed of a one-neuron network by angle, and of random networks of rank one",
            caption="Left: the speed on the circle of Example 1 of a network of one neuron per layer, against the "
            "angle of its first weights, and equation 6. Right: speeds of random networks whose layers have rank one "
            "but two neurons each, half of them with both signs of one direction in the first layer; the fastest has "
            f"{float(run.random_speed.max()) / best:.3f} of the largest one-neuron speed.",
            panels=(
                Panel(title="one neuron", x=Axis("angle φ / π"), y=speed, marks=curves),
                Panel(title=f"random, rank one, depth {run.depth}", x=speed, y=networks, marks=histogram),
            ),
        )
    ]


entry = Entry(
    "deep-relu/figure-5", "Figure 5: escape speed of a rank-one network against the angle of its first weights",
    citation=CITATION, source="Appendix C.1, equation 6", params=Params, quick=dict(angles=361, networks=2000),
    run=run, claims=claims, figures=figures,
)  # fmt: skip
