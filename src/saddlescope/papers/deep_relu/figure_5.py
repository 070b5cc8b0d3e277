"""Figure 5: escape speed of a rank-one network against the angle of its first weights.

The circle of Example 1, N = 8. A network of one neuron per layer with W_1 = (cos phi, sin phi), W_2 = 1 and W_3 = +-1
has the speed |sum_j G_j relu(W_1 x_j)|, which equation 6 gives in closed form.
"""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.plot import Axis, Figure, Figures, Mark, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

BEST = 2**0.5 - 1


class Params(EntryParams):
    """Parameters of the paper's figure."""

    angles: int = param(1441, "angles φ from 0 to 2π, both included", ge=17)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Evaluate equation 6, and the networks themselves."""
    from saddlescope.theory.escape.speed import escape_speed

    X, G = alternating_circle(8)
    angle, speeds = np.linspace(0, 2 * np.pi, params.angles), []
    for k, phi in enumerate(angle):
        speeds.append(abs(escape_speed((np.array([[np.cos(phi), np.sin(phi)]]), np.eye(1), np.eye(1)), X, G)))
        if k % 100 == 0:
            context.report(k / params.angles, f"angle {phi:.2f}")
    curves = {"speed": ("angle", np.array(speeds)), "equation_6": ("angle", _equation_6(angle))}
    return xr.Dataset(curves, {"angle": ("angle", angle, {"units": "rad"})})


def _equation_6(angle: np.ndarray) -> np.ndarray:
    xi, eighth = np.mod(angle, np.pi / 4), np.pi / 4
    return np.abs(np.cos(xi + eighth) - np.cos(xi) + np.cos(xi - eighth) - np.cos(xi - 2 * eighth))


claims = Claims(limits="Equation 6 is periodic: 1441 angles hold a few hundred different ones, and multiples of π/4.")


@claims.printed(
    "equation-6",
    "On the circle of Example 1, equation 6 is the speed of one neuron per layer at every angle",
    "Equation 6; 1e-12 for rounding",
    high=1e-12,
)
def largest_deviation(run: xr.Dataset) -> Estimate:
    """Largest absolute difference of equation 6 and the speed of the network, evaluated layer by layer."""
    return Estimate.largest(abs(run.speed - run.equation_6), over="angles")


@claims.printed(
    "where", "Equation 6 is largest, √2 - 1, at multiples of π/4", "Appendix C.1; 1e-6 for rounding", high=1e-6
)
def distance_from_multiples(run: xr.Dataset) -> Estimate:
    """Largest distance of an angle of largest speed, √2 - 1, from a multiple of π/4, in units of π/4."""
    at = run.angle.values[run.speed.values > BEST - 1e-9] / (np.pi / 4)
    if not len(at):
        return Estimate.unresolved("No angle of the run is near a maximum; make angles - 1 a multiple of 8.")
    return Estimate.largest(abs(at - np.rint(at)), over="angles of largest speed")


def figures(run: xr.Dataset) -> Figures:
    """Draw the figure of the paper."""
    turns = run.assign_coords(angle=run.angle.values / np.pi)
    curves = (
        *lines(turns.speed, x="angle", label="speed of the network", width=4.0, opacity=0.35),
        *lines(turns.equation_6, x="angle", label="equation 6", color=1, width=1.2),
        Mark(at=BEST, label="√2 − 1", axis="y"),
    )
    yield Figure(
        name="angle",
        title="Escape speed of a one-neuron network by angle",
        caption="The speed on the circle of Example 1 of a network of one neuron per layer, against the angle of "
        "its first weights, and equation 6.",
        panels=(Panel(x=Axis("angle φ / π"), y=Axis("speed"), marks=curves),),
    )


entry = Entry(
    "deep-relu/figure-5",
    "Figure 5: escape speed of one neuron by angle",
    source="Appendix C.1, equation 6",
    quick=dict(angles=361),
)
