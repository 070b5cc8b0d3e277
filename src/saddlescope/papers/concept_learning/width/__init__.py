"""Width: it is the width d' that makes the loss fall evenly, not the dimension d   (Section 3.3, appendix E.2)

The symmetric two-layer network on two concepts, Figure 5's data, with normal entries of U, (d, d'), of deviation tau.
Directions beyond the second have no data. As W_0 = U U^T has w_ii near d' tau^2 but w_ij near sqrt(d') tau^2 (E.1),
minor entries of a wide network start small against the major ones, and suppression hardly makes the loss rise. And
three descents found by gradient flow are there in minibatch SGD on U, too.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.width.simulations import BATCH, RATE, descended, sampled
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.grid import in_grid
from saddlescope.reproduction.metric import Metric


@dataclass(frozen=True, kw_only=True)
class Params:
    """Widths, dimensions and scales."""

    widths: tuple[int, ...] = (2, 4, 8, 16, 64)  # d', ascending
    scales: tuple[float, ...] = (0.001, 0.03, 0.1)  # tau, ascending
    high: int = 8  # d of the other sample; the first has d = 2
    starts: int = 12_000  # for every width and scale, d = 2
    high_starts: int = 400  # and at the high dimension
    samples: int = 5000  # of each cluster, for SGD
    runs: int = 8  # of SGD, from one start
    pool: int = 3000  # random starts, of which SGD takes the one with the clearest three descents
    seed: int = 0  # of everything

    def __post_init__(self) -> None:
        parameter_checks.at_least(16, self, "starts", "high_starts", "samples", "pool")
        parameter_checks.at_least(3, self, "high")
        parameter_checks.at_least(1, self, "runs")
        parameter_checks.at_least(0, self, "seed")
        for name in ("widths", "scales"):
            values = getattr(self, name)
            if len(values) < 2 or list(values) != sorted(set(values)) or not values[0] > 0:
                raise InputError(f"{name} must be two or more, positive and ascending; got {values!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: the smallest width and a large one."""
        return cls(
            widths=(2, 16), scales=(0.001, 0.03), high=4, starts=400, high_starts=48, samples=200, runs=1, pool=400
        )

    @classmethod
    def paper(cls) -> "Params":
        """The width and dimension of the paper's wide networks; slow, and with fewer starts there."""
        return cls(high=64, high_starts=100, runs=32)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """A sample for every dimension, scale and width, then SGD."""
    axes = {"dim": (2, params.high), "scale": params.scales, "width": params.widths}
    grid = list(itertools.product(*axes.values()))
    shares = np.cumsum([0.0, *(1.0 if d == 2 else 2.0 for d, _, _ in grid)])
    shares *= 0.8 / shares[-1]
    made = []
    for k, (d, scale, width) in enumerate(grid):
        context.report(shares[k], f"dimension {d}, scale {scale:g}, width {width}")
        starts = params.starts if d == 2 else params.high_starts
        make = partial(sampled, d, width, scale, starts, (params.seed, k))
        made.append(context.cached(f"sample-{k}", make))
    descent = context.cached("sgd", partial(descended, params, context.part(0.8, 1.0)))
    context.report(1.0, "done")
    return xr.merge([in_grid(made, axes), descent], join="exact")


def _several(run: xr.Dataset, width: int, scale: int, *, dim: int = 0, of: str = "several") -> Estimate:
    """P(two or more descents); width, scale and dim are places in the run's lists."""
    one = run.isel(width=width, scale=scale, dim=dim)
    return Estimate.share(float(one[of]), float(one.starts))


def _wide(run: xr.Dataset) -> Estimate:
    narrow, wide = (_several(run, k, 1) for k in (0, -1))
    told = f"d' = {int(run.width[0])}: {narrow.value:.4f}, {int(run.width[-1])}: {wide.value:.4f}"
    return Estimate(wide.value, wide.uncertainty, f"{told}, tau = {float(run.scale[1]):g}")


def _dimension(run: xr.Dataset) -> Estimate:
    """P(two or more) at d = 2 less that at the high dimension, mean over all widths, at the smallest scale."""
    pairs = [(_several(run, k, 0), _several(run, k, 0, dim=1)) for k in range(run.sizes["width"])]
    told = ", ".join(f"{one.value:.3f} and {other.value:.3f}" for one, other in pairs)
    errors = [one.uncertainty**2 + other.uncertainty**2 for one, other in pairs]
    mean = sum(one.value - other.value for one, other in pairs) / len(pairs)
    return Estimate(mean, sum(errors) ** 0.5 / len(pairs), f"d = {int(run.dim[0])} and {int(run.dim[1])}: {told}")


def _small_scale(run: xr.Dataset) -> Estimate:
    """P(two or more) at width 16, or the nearest, and the smallest scale."""
    place = int(abs(run.width.values - 16).argmin())
    told = f"with rises above 0.1 %: {_several(run, place, 0, of='visible').value:.4f}"
    one = _several(run, place, 0)
    return Estimate(one.value, one.uncertainty, f"d' = {int(run.width[place])}, tau = {float(run.scale[0]):g}; {told}")


def _expectation(kind: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        one = run.isel(dim=0)
        cells = one.starts.size
        if kind == "major":
            return Estimate(float(one.major_mean.mean()), 1.96 * float((one.major_error**2).mean() / cells) ** 0.5)
        error = 1.96 * float((1 / one.starts).mean() / cells) ** 0.5
        if kind == "minor":
            return Estimate(float(one.minor_mean.mean()), error)
        return Estimate(float(one.minor_size.mean()), 1.5 * error)  # the fourth moment of w_ij is at most 9 squares

    return statistic


def _kept(run: xr.Dataset) -> Estimate:
    if int(run.flow_descents) != 3:
        return Estimate.unresolved("No start with three clear descents was drawn; raise pool.")
    counts = run.sgd_descents.values
    off = float(abs(run.sgd_loss - run.flow_loss).max())
    return Estimate(float((counts == 3).mean()), remark=f"{len(counts)} runs, up to {off:.2g} |x|^2 / 2 off the flow")


claims = (
    Claim(
        name="wide",
        says="Transient memorization dies out with the width: P(two or more descents) at the largest width, d = 2",
        source="appendix E.2; the bound from trial runs on other seeds, at scales near 0.05",
        statistic=_wide,
        high=0.05,
    ),
    Claim(
        name="dimension",
        says="It does not with the dimension, the width kept: P(two or more) at d = 2 less that at a higher d, mean "
        "over all widths, at the smallest scale",
        source="this project's, against sections 3.3 and E.2; the bound from trial runs on other seeds",
        statistic=_dimension,
        low=-0.04,
        high=0.04,
    ),
    Claim(
        name="low-dimension",
        says="As printed: it is strongest when the dimensionality of the data is low: the same difference",
        source="section 3.3, where d' = d in all runs, taken for the dimension alone; the bound this project's",
        statistic=_dimension,
        low=0.05,
    ),
    Claim(
        name="any-scale",
        says="As printed, for the small starts of the theory: a width of 16 is high, too: P(two or more) at the "
        "smallest scale",
        source="appendix E.2, which has no scale in it; the bound this project's",
        statistic=_small_scale,
        high=0.05,
    ),
    Claim(
        name="major-entries",
        says="w_ii(0) is d' tau^2 in the mean: over it",
        source="equation E.1; exact, the bound for the sample",
        statistic=_expectation("major"),
        low=0.98,
        high=1.02,
    ),
    Claim(
        name="minor-entries",
        says="w_ij(0) is 0 in the mean: over sqrt(d') tau^2",
        source="equation E.1; exact, the bound for the sample",
        statistic=_expectation("minor"),
        low=-0.02,
        high=0.02,
    ),
    Claim(
        name="sqrt-width",
        says="Minor entries have the size sqrt(d') tau^2, so that major ones are sqrt(d') times as large: root of "
        "their mean square, over it",
        source="what E.1 leaves out; exact, the bound for the sample",
        statistic=_expectation("size"),
        low=0.97,
        high=1.03,
    ),
    Claim(
        name="sgd",
        says="Minibatch SGD on U keeps three descents: part of the runs with three above a hysteresis of 0.5 %",
        source="section 4.2's flow against training; the bound this project's",
        statistic=_kept,
        low=0.99,
    ),
)

metrics = (
    Metric(
        name="several",
        says="share of starts with two or more descents, over all widths and scales",
        statistic=lambda run: float(run.several.sum() / run.starts.sum()),
    ),
    Metric(
        name="visible",
        says="share of starts with two or more visible descents, over all widths and scales",
        statistic=lambda run: float(run.visible.sum() / run.starts.sum()),
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """P(two or more) against the width, and the loss of SGD beside the flow's."""
    curves: dict[str, list[Line]] = {"several": [], "visible": []}
    for (k, scale), dim in itertools.product(enumerate(run.scale.values), (0, 1)):
        one = run.isel(dim=dim, scale=k)
        label = f"τ = {scale:g}, d = {int(one.dim)}"
        for name, lines in curves.items():
            lines.append(
                Line(
                    x=np.log2(run.width.values), y=(one[name] / one.starts).values, group=label, color=k,
                    style="dashed" if dim else "solid",
                )
            )  # fmt: skip
    x, y = Axis("log₂ of the width d'"), Axis("P(two or more descents)")
    loss = Axis("loss / (|x|²/2)")
    sgd = [
        Line(x=run.time.values, y=run.sgd_loss.values[n], group="SGD", color=0, width=0.8, opacity=0.6)
        for n in range(run.sizes["run"])
    ]
    sgd.append(Line(x=run.time.values, y=run.flow_loss.values, group="gradient flow", color=1, style="dashed"))
    return [
        Figure(
            name="width",
            title="The wider the network, the fewer starts have a second descent; of large ones, the higher d, too",
            caption="Part of normal starts with two or more descents, two concepts, for scales τ and dimensions "
            "d; the second panel counts rises of more than 0.1 % of the first loss alone. The smaller the "
            "start, the wider a network must be.",
            panels=(
                Panel(title="any rise", x=x, y=y, marks=tuple(curves["several"])),
                Panel(title="visible rises", x=x, y=y, marks=tuple(curves["visible"])),
            ),
        ),
        Figure(
            name="sgd",
            title="Minibatch SGD on U keeps three descents",
            caption=f"Loss out of distribution over |x|²/2, Figure 8's data, batches of {BATCH}, learning rate "
            f"{RATE}, against time, steps times the rate; and gradient flow from the same start, on infinitely many "
            "samples.",
            panels=(Panel(title="three descents", x=Axis("time", "t", range=(0.0, 20.0)), y=loss, marks=tuple(sgd)),),
        ),
    ]
