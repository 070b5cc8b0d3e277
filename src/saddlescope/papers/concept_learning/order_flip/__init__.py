"""Which of two concepts is learned first, and the diversity at which the order flips   (Sections 3.1 and 4)

The theory's order is that of a_p = sigma_p^2 + mu_p^2 / c, with c clusters: a weak signal mu_1 < mu_2 comes first from

    sigma_1*^2 = sigma_2^2 + (mu_2^2 - mu_1^2) / c

on. Here sigma_1 is swept across it, told by the ratio a_1 / a_2, and it is measured where the order really flips.

    T_k        when concept k is half learned: w_kk = 1/2, or output k at the test point is mu_k / 2
    two-layer  symmetric, gradient flow from random U. Flip at log(1/w_11 - 1) / a_1 = log(1/w_22 - 1) / a_2, w at time
               0: at a_1 / a_2 = 1 in the limit of small starts, with a spread between starts as 1 / log(1/scale)
    one-layer  SGD at d = 64 in the authors' conventions from PyTorch's default start, with the cluster at the origin
               (c = 3) and without; flip predicted by Theorem 4.1 from the actual start and the samples' A
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.order_flip.figures import pictures
from saddlescope.papers.concept_learning.shared.perceptron_training import Training, one_layer_prediction, train
from saddlescope.plot import Figure
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

_PICTURED = 7  # values of sigma_1 whose trajectories are drawn
_SGD_RATIOS = 9  # values of the sweep of SGD
_EPOCHS = 10  # of SGD: both concepts are half learned by then


@dataclass(frozen=True, kw_only=True)
class Params:
    """Figure 2's signals, and a sweep of the weaker one's diversity."""

    mu: tuple[float, ...] = (1.0, 2.0)  # distances of the two means, the weaker signal first
    sigma: float = 0.05  # standard deviation along the second concept
    ratios: int = 25  # values of a_1 / a_2 in the sweep of flows, evenly from .35 to 2.2
    scales: tuple[float, ...] = (0.1, 0.01, 1e-4)  # standard deviations of U, decreasing
    starts: int = 60  # starts U of each scale
    clusters: tuple[int, ...] = (2, 3)  # numbers of clusters of SGD's data: 2, and 3 with that at the origin
    runs: int = 64  # SGD runs at each of 9 values of the sweep
    samples: int = 5000  # of each cluster, of SGD
    seed: int = 0  # of the starts, and of the first SGD run

    def __post_init__(self) -> None:
        parameter_checks.positive(self, "sigma")
        parameter_checks.at_least(5, self, "ratios")
        parameter_checks.at_least(2, self, "starts", "runs")
        parameter_checks.at_least(64, self, "samples")
        parameter_checks.at_least(0, self, "seed")
        if not self.clusters or not set(self.clusters) <= {2, 3} or len(set(self.clusters)) < len(self.clusters):
            raise InputError(f"clusters must be 2, 3 or both; got {self.clusters!r}.")
        if len(self.mu) != 2 or not 0 < self.mu[0] < self.mu[1] or 0.35 * self._strongest <= self.mu[0] ** 2 / 2:
            raise InputError(
                f"mu must be two positive numbers, the first below .8 of the second, to be ahead at no sigma_1 of the "
                f"sweep already; got {self.mu!r}."
            )
        if len(self.scales) < 2 or sorted(set(self.scales), reverse=True) != list(self.scales) or self.scales[-1] <= 0:
            raise InputError(f"scales must be two or more, positive and decreasing; got {self.scales!r}.")

    @property
    def _strongest(self) -> float:
        return self.sigma**2 + self.mu[1] ** 2 / 2

    @classmethod
    def quick(cls) -> "Params":
        """Seconds."""
        return cls(ratios=7, scales=(0.1, 1e-3), starts=20, clusters=(2,), runs=2, samples=1000)

    @classmethod
    def paper(cls) -> "Params":
        """The default has the paper's size; more starts and runs."""
        return cls(starts=500, runs=64)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """The symmetric network's flows, then SGD of one layer."""
    flows = context.cached("flows", lambda: _flows(params, context.part(0.0, 0.5)))
    sgd = [
        context.cached(
            f"sgd-{clusters}",
            lambda clusters=clusters: _sgd(params, clusters, context.part(clusters / 4, clusters / 4 + 0.25)),
        )
        for clusters in params.clusters
    ]
    context.report(1.0, "done")
    together = xr.concat(sgd, dim="clusters")
    return xr.merge([flows, together]).assign_attrs(mu=list(params.mu), sigma=params.sigma)


def _ratios(count: int) -> np.ndarray:

    return np.linspace(0.35, 2.2, count)


def _diversity(ratio: Any, mu: Sequence[float], sigma: float, clusters: int) -> Any:
    """sigma_1^2 at these ratios a_1 / a_2."""
    return ratio * (sigma**2 + mu[1] ** 2 / clusters) - mu[0] ** 2 / clusters


def _flows(params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """Both times of every start and ratio; trajectories of one start."""
    import jax

    from saddlescope.flow import symmetric_flows
    from saddlescope.models import StructuredIdentityTask, symmetric_weights

    ratios, shape = _ratios(params.ratios), (len(params.scales), params.starts)
    half, entries = np.zeros((*shape, len(ratios), 2)), np.zeros((*shape, 2))
    pictured = np.unique(np.linspace(0, len(ratios) - 1, _PICTURED).round().astype(int))
    paths = np.zeros((len(pictured), 200, 2))
    for n, scale in enumerate(params.scales):
        with jax.enable_x64(True):
            U = np.asarray(symmetric_weights(2, 2, seed=params.seed, scale=scale, starts=params.starts))
        entries[n] = np.sum(U**2, axis=-1)
        for m, variance in enumerate(_diversity(ratios, params.mu, params.sigma, 2)):
            task = StructuredIdentityTask(params.mu, (float(variance) ** 0.5, params.sigma), 1, 2)
            # Until the slower concept of nearly every start is learned: e^(4 a t) makes up for the start's size.
            until = (10 - 2 * np.log(scale)) / (4 * float(task.strengths.min()))
            flows = symmetric_flows(
                task.second_moment, U, test_point=task.test_point, until=until, tolerance=1e-8,
                record=np.linspace(0.0, until, 400),
            )  # fmt: skip
            half[n, :, m] = _first_half(flows.times, np.einsum("nkii->nki", flows.W))
            if n == 1 and m in pictured:
                marks = np.linspace(0, len(flows.times) - 1, 200).round().astype(int)
                paths[list(pictured).index(m)] = (flows.W[0] @ task.test_point)[marks]
            report((n * len(ratios) + m + 1) / (len(params.scales) * len(ratios)), f"scale {scale:g}")
    logs = np.log(1 / entries - 1)
    return xr.Dataset(
        {
            "half": (("scale", "start", "ratio", "concept"), half, {"units": "t"}),
            "expected": (("scale", "start"), logs[..., 0] / logs[..., 1]),
            "path": (("pictured", "mark", "concept"), paths),
        },
        coords={"scale": list(params.scales), "ratio": ratios, "concept": [1, 2], "pictured": ratios[pictured]},
    )


def _first_half(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """When values (..., times, concepts) first pass 1/2, by interpolation; NaN where they do not."""
    above = values > 0.5
    place = np.argmax(above, axis=-2)[..., None, :]
    after, before = np.maximum(place, 1), np.maximum(place, 1) - 1
    low, high = (np.take_along_axis(values, at, axis=-2)[..., 0, :] for at in (before, after))
    start, stop = times[before[..., 0, :]], times[after[..., 0, :]]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = start + (stop - start) * (0.5 - low) / (high - low)
    return np.where(above.any(axis=-2) & ~above[..., 0, :], found, np.nan)


def _sgd(params: Params, clusters: int, report: Callable[[float, str], None]) -> xr.Dataset:
    """Both times of every run and ratio by SGD and by Theorem 4.1."""
    ratios = _ratios(_SGD_RATIOS)
    training = Training(origin=clusters == 3, samples=params.samples, epochs=_EPOCHS * 5000 // params.samples, every=5)
    variances = _diversity(ratios, params.mu, params.sigma, clusters)
    tasks = [(params.mu, (float(variance), params.sigma**2)) for variance in variances]
    seeds = range(params.seed, params.seed + params.runs)
    trained = train(training, tasks, seeds, report=report)
    steps = trained.step.values
    by_theorem = [
        [one_layer_prediction(training, task, seed, steps, empirical=True) for seed in seeds] for task in tasks
    ]
    share = 1 / np.array(params.mu)
    dims = ("sgd_ratio", "seed", "concept")
    return xr.Dataset(
        {
            "sgd_half": (dims, _first_half(steps, trained.output.values * share)),
            "theorem_half": (dims, _first_half(steps, np.array(by_theorem) * share)),
        },
        coords={"sgd_ratio": ratios, "seed": list(seeds), "clusters": clusters, "concept": [1, 2]},
    )


def _flip(half: xr.DataArray) -> xr.DataArray:
    """The ratio at which T_1 - T_2 passes from above 0 to below; NaN where it does not.

    By interpolation in 1 / ratio, in which T_1 is linear where the concepts are learned on their own.
    """
    swept = "ratio" if "ratio" in half.dims else "sgd_ratio"
    inverse = 1 / half[swept].values

    def one(late: np.ndarray) -> float:
        falls = np.flatnonzero((late[:-1] > 0) & (late[1:] <= 0))
        if not len(falls):
            return float("nan")
        i = int(falls[0])
        return float(1 / (inverse[i] + (inverse[i + 1] - inverse[i]) * late[i] / (late[i] - late[i + 1])))

    return xr.apply_ufunc(
        one,
        half.sel(concept=1) - half.sel(concept=2),
        input_core_dims=[[swept]],
        vectorize=True,
        output_dtypes=[float],
    )


def _mean(values: np.ndarray) -> Estimate:
    """The mean of those that are resolved; unresolved if a tenth is not."""
    resolved = values[np.isfinite(values)]
    if len(resolved) < 0.9 * values.size:
        return Estimate.unresolved(f"Only {len(resolved)} of {values.size} flip within the sweep.")
    return Estimate.mean(resolved, f"{len(resolved)} of {values.size} flip within the sweep")


# The bounds. A pilot on starts of seed 1000 and runs of seeds 100 to 107 had: flips of single starts off their
# prediction by .0013 in the median at scales .01 and .0001 (interpolation over the sweep included), quartiles .16 apart
# at scale .01 and half of that at .0001; SGD off the theorem by .012 at most, and means of 1.036 and 1.042 over runs.
def _two_layers(run: xr.Dataset) -> Estimate:
    """sigma_1 at the flip over sigma_1*, smallest scale, without the cluster at the origin."""
    expected = float(_diversity(1.0, run.mu, run.sigma, 2) ** 0.5)
    found = _mean(_diversity(_flip(run.half.isel(scale=-1)).values, run.mu, run.sigma, 2) ** 0.5 / expected)
    told = f"sigma_1* = {expected:.4f}, found {found.value * expected:.3f}; {found.remark}"
    return Estimate(found.value, found.uncertainty, remark=told)


def _single_starts(run: xr.Dataset) -> Estimate:

    errors = abs(_flip(run.half) - run.expected).isel(scale=-1).values
    resolved = errors[np.isfinite(errors)]
    if not len(resolved):
        return Estimate.unresolved("No start flips within the sweep.")
    return Estimate(float(np.median(resolved)), remark=f"largest {float(resolved.max()):.2g}, {len(resolved)} starts")


def _narrowing(run: xr.Dataset) -> Estimate:
    """The interquartile range at the smallest scale over that at the one before, over the ratio of 1 / log(1/scale)."""
    flips, scales = _flip(run.half), run.scale.values[-2:]
    widths = np.nanquantile(flips.values[-2:], 0.75, axis=1) - np.nanquantile(flips.values[-2:], 0.25, axis=1)
    expected = np.log(scales[0]) / np.log(scales[1])
    return Estimate(
        float(widths[1] / widths[0] / expected), remark=f"quartiles {widths[0]:.3f}, then {widths[1]:.3f} apart"
    )


def _one_layer(run: xr.Dataset, clusters: int) -> Estimate:
    if clusters not in run.clusters:
        return Estimate.unresolved(f"There was no run with {clusters} clusters.")
    return _mean(_flip(run.sgd_half.sel(clusters=clusters)).values)


def _by_theorem(run: xr.Dataset) -> Estimate:
    return _mean(abs(_flip(run.sgd_half) - _flip(run.theorem_half)).values.ravel())


def _every_run(run: xr.Dataset) -> Estimate:

    errors = abs(_flip(run.sgd_half) - _flip(run.theorem_half)).values
    resolved = errors[np.isfinite(errors)]
    if not len(resolved):
        return Estimate.unresolved("No run flips within the sweep.")
    return Estimate(float(resolved.max()), remark=f"{len(resolved)} runs, {int((resolved > 0.04).sum())} beyond .04")


def _without_origin(run: xr.Dataset) -> Estimate:
    return _one_layer(run, 2)


def _with_origin(run: xr.Dataset) -> Estimate:
    return _one_layer(run, 3)


claims = (
    Claim(
        name="two-layers",
        says="The symmetric network learns the weaker signal first from sigma_1* on, two clusters: mean flip over it",
        source="Section 4, a_1 = a_2; a twentieth for the starts at a finite scale",
        statistic=_two_layers,
        low=0.95,
        high=1.05,
    ),
    Claim(
        name="single-starts",
        says="Each start flips where log(1/w_11 - 1)/a_1 = log(1/w_22 - 1)/a_2: median error of a_1/a_2",
        source="this project's prediction; .0013 in a pilot on another seed",
        statistic=_single_starts,
        high=0.005,
    ),
    Claim(
        name="narrowing",
        says="The spread between starts falls as 1/log(1/scale): its fall over that, from the last scale but one",
        source="this project's prediction; 1.03 in a pilot on another seed, quartiles of 60 starts are good to a third",
        statistic=_narrowing,
        low=0.67,
        high=1.5,
    ),
    Claim(
        name="one-layer",
        says="SGD of one layer flips at a_1 = a_2, two clusters: mean a_1/a_2 over runs",
        source="Section 3.1, Figure 2 (b), and Theorem 4.1; .15 for the noise of default starts",
        statistic=_without_origin,
        low=0.85,
        high=1.15,
    ),
    Claim(
        name="one-layer-origin",
        says="The same with the cluster at the origin, three clusters, where sigma_1* = 1.0012",
        source="the same, as the authors' programs have it",
        statistic=_with_origin,
        low=0.85,
        high=1.15,
    ),
    Claim(
        name="theorem",
        says="SGD runs flip where Theorem 4.1 has it from their actual starts: mean error of a_1/a_2",
        source="Theorem 4.1; .005 in a pilot of 16 runs on other seeds",
        statistic=_by_theorem,
        high=0.02,
    ),
    Claim(
        name="theorem-every-run",
        says="The same: largest error, to which minibatches add",
        source="Theorem 4.1; .012 in that pilot",
        statistic=_every_run,
        high=0.04,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Output trajectories across the flip; both times; where starts and runs flip."""
    sigmas = _diversity(run.pictured.values, run.mu, run.sigma, 2) ** 0.5
    return pictures(run, sigmas, _flip(run.half), _flip(run.sgd_half), _flip(run.theorem_half))
