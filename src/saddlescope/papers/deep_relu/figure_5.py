"""Figure 5: the speed of a network of rank one against the angle it looks in.

The circle of Example 1, N = 8. A network of one neuron per layer with W_1 = (cos phi, sin phi), W_2 = 1 and W_3 = +-1
has the speed |sum_j G_j relu(W_1 x_j)|, which equation 6 gives in closed form. No other network whose layers all have
rank one is faster, though not all of them are one neuron: W_1 = (v, -v)/sqrt 2 gives |v.x|/2.
"""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.plot import Axis, Figure, Line, Mark, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

BEST = 2**0.5 - 1


class Params(EntryParams):
    """The paper's figure, and networks of rank one at random."""

    angles: int = param(1441, "angles phi from 0 to 2 pi, both included", ge=17)
    networks: int = param(20_000, "random networks of rank-one layers, to be compared with the maximum", ge=1)
    depth: int = param(4, "of the random networks", ge=2)
    seed: int = param(0, "of the random networks", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Evaluate equation 6, the speeds of the networks themselves, and of random ones of rank one."""
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed
    from saddlescope.theory.escape.speed import escape_speed

    X, G = alternating_circle(8)
    angle = np.linspace(0, 2 * np.pi, params.angles)
    speeds = []
    for k, phi in enumerate(angle):
        weights = (np.array([[np.cos(phi), np.sin(phi)]]), np.eye(1), np.eye(1))
        speeds.append(abs(escape_speed(weights, X, G)))
        if k % 100 == 0:
            context.report(0.8 * k / len(angle), f"angle {phi:.2f}")
    best = rank_one_escape_speed(X, G, depth=params.depth)
    context.report(0.8, "random networks of rank one")
    mixed = _random_speeds(X.T, G.T, params)
    context.report(1.0, "done")
    return xr.Dataset(
        {
            "speed": ("angle", np.array(speeds)),
            "equation_6": ("angle", _equation_6(angle)),
            "best": best.lower,
            "best_upper": best.upper,
            "random_speed": ("network", mixed),
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
    "Equation 6 is the speed of the network with W_1 = (cos phi, sin phi)",
    quantity="largest deviation",
    kind="printed",
    source="Equation 6, exact",
    high=1e-12,
)
def _deviation(run: xr.Dataset) -> Estimate:
    return Estimate(float(abs(run.speed - run.equation_6).max()), remark=f"{run.sizes['angle']} angles")


@claims.add(
    "maximum",
    "Its maximum is sqrt 2 - 1",
    quantity="value",
    kind="printed",
    source="Appendix C.1, exact",
    low=BEST - 1e-9,
    high=BEST + 1e-9,
)
def _maximum(run: xr.Dataset) -> Estimate:
    low, high = float(run.best), float(run.best_upper)
    return Estimate((low + high) / 2, (high - low) / 2)


@claims.add(
    "where",
    "The maxima are at multiples of pi/4",
    quantity="largest distance, in units of pi/4",
    kind="printed",
    source="Appendix C.1, exact",
    high=1e-6,
)
def _distance_from_multiples(run: xr.Dataset) -> Estimate:
    """Return the distance from a multiple of pi/4 of the angles whose speed is within 1e-9 of the largest."""
    at = run.angle.values[run.speed.values > float(run.best) - 1e-9]
    if not len(at):
        return Estimate.unresolved("No angle of the run comes near the maximum; 8 must divide angles - 1.")
    return Estimate(float(np.max(abs(at / (np.pi / 4) - np.rint(at / (np.pi / 4))))), remark=f"at {len(at)} angles")


@claims.add(
    "all-of-rank-one",
    "No network of rank-one layers is faster, those that are not one neuron included",
    quantity="fastest over the bound",
    kind="printed",
    source="Example 1; its reason, that such networks are one neuron, is wrong, the statement holds",
    high=1.0,
)
def _random_maximum(run: xr.Dataset) -> Estimate:
    most = float(run.random_speed.max())
    return Estimate(most / float(run.best_upper), remark=f"{run.sizes['network']} networks of depth {run.depth}")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the figure of the paper, and the speeds of random networks."""
    angle = run.angle.values / np.pi
    counts, edges = np.histogram(run.random_speed.values, bins=60, range=(0, float(run.best)))
    curves = (
        Line(x=angle, y=run.speed.values, label="speed of the network", color=0, width=4.0, opacity=0.35),
        Line(x=angle, y=run.equation_6.values, label="equation 6", color=1, width=1.2),
        Mark(at=float(run.best), label="√2 − 1", axis="y"),
    )
    return [
        Figure(
            name="angle",
            title="One neuron is fastest when it looks at a data point",
            caption="Left: the speed on the circle of Example 1 of a network of one neuron a layer, against the angle "
            "of its first weights, and equation 6. Right: speeds of random networks whose layers have rank one but "
            "two neurons each, half of them with both signs of one direction in the first layer: none is faster.",
            panels=(
                Panel(title="one neuron", x=Axis("angle φ / π"), y=Axis("speed"), marks=curves),
                Panel(
                    title=f"random, rank one, depth {run.depth}",
                    x=Axis("speed"),
                    y=Axis("networks", scale="log"),
                    marks=(
                        Line(x=edges[:-1], y=counts, style="steps", color=2),
                        Mark(at=float(run.best), label="√2 − 1"),
                    ),
                ),
            ),
        )
    ]


entry = Entry(
    "deep-relu/figure-5",
    "Figure 5: the speed of a network of rank one against the angle it looks in",
    citation=CITATION,
    source="Appendix C.1, equation 6",
    params=Params,
    quick=dict(angles=361, networks=2000),
    run=run,
    claims=claims,
    figures=figures,
)
