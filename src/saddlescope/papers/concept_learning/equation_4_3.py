"""Equation 4.3: growth, suppression and noise make up the gradient flow, but for a factor 2   (Section 4.2)

    G, S, N   growth, suppression and noise of every entry of W = U U^T; `theory.concepts.update_terms`
    dW/dt     under gradient flow of equation 4.1 in U: -(g U^T + U g^T) with g the loss's gradient in U

Automatic differentiation of the loss tells whether dW/dt is G - S - N, as printed, or twice that: the appendix has the
gradient of the same loss in D.1, and half of it in D.2. Then what the text says of the noise is put to the test:
section 4.2 leaves N out as "never too large". Without it the diagonal is logistic, w_kk' = 4 a_k w_kk (1 - w_kk).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.shared.two_layer_runs import EXACT_LAW, check_data, data, exactness
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.flow import SymmetricPath

_SHAPES = ((2, 2), (3, 1), (3, 3), (4, 8), (6, 4))  # d, d' of the random weights
_NODES = 12  # of Gauss's formula in each of _PANELS pieces of time
_PANELS = 240
_EXACT, _CLOSED, _LATE, _SCHUR = 1e-12, 1e-9, 0.02, 1e-3  # this project's bars


@dataclass(frozen=True, kw_only=True)
class Params:
    """Random weights of several shapes, and small starts on the data of Figure 8."""

    mu: tuple[float, ...] = (1.0, 1.5, 2.2)  # distance of each cluster from the origin
    sigma: tuple[float, ...] = (0.05, 0.05, 0.05)  # standard deviation of the clusters along each concept
    until: float = 60.0  # the last time of gradient flow
    weights: int = 100  # random U of each shape, at which equation 4.3 is held against autodiff
    scales: tuple[float, ...] = (1e-1, 1e-3, 1e-5)  # standard deviations of small starts
    starts: int = 100  # small starts, the same at each scale but for the factor
    seed: int = 0  # of everything random

    def __post_init__(self) -> None:
        check_data(self)
        parameter_checks.at_least(1, self, "weights", "starts")
        parameter_checks.at_least(0, self, "seed")
        if len(self.scales) < 2 or not all(1e-7 <= b < a <= 0.1 for a, b in pairwise(self.scales)):
            raise InputError(f"scales must be two or more, decreasing, between 0.1 and 1e-7; got {self.scales!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds."""
        return cls(weights=10, starts=10)

    @classmethod
    def paper(cls) -> "Params":
        """The default: an identity needs no larger size."""
        return cls()


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Autodiff, laws and closed forms, then small starts with noise and without."""
    a, x = data(params.mu, params.sigma)
    rng = np.random.default_rng(params.seed)
    context.report(0.0, "autodiff")
    identity, printed = _against_autodiff(params.weights, rng)
    context.report(0.4, "closed forms")
    closed = _closed_forms(a, x, rng)
    units = rng.standard_normal((params.starts, len(a), len(a)))
    stages = []
    for n, scale in enumerate(params.scales):
        context.report(0.5 + 0.5 * n / len(params.scales), f"starts of scale {scale:g}")
        stages.append(_stages(a, x, scale * units, params.until))
    largest = int(np.argmax(np.median(stages[-1].noise_share, axis=1)))
    terms = _terms(a, params.scales[-1] * units[largest], params.until)
    context.report(1.0, "done")
    return xr.concat(stages, dim="scale").assign_coords(scale=list(params.scales)).merge(terms).assign(
        identity_error=("weight", identity), printed_error=("weight", printed), strength=("concept", a), **closed
    )  # fmt: skip


def _against_autodiff(weights: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Relative distances of dW/dt from 2 (G - S - N) and from G - S - N, over all shapes, (weights,)."""
    import jax

    from saddlescope.models import PopulationLoss
    from saddlescope.theory.concepts import update_terms

    twice, once = [], []
    for d, width in _SHAPES:
        a = rng.uniform(0.1, 3.0, d)
        U = rng.standard_normal((weights, d, width))
        with jax.enable_x64(True):
            slope = jax.jit(jax.vmap(jax.grad(PopulationLoss(np.diag(a)).symmetric)))
            gradients = np.asarray(slope(U))
        for one, gradient in zip(U, gradients, strict=True):
            velocity = -(gradient @ one.T + one @ gradient.T)
            terms = update_terms(a, one @ one.T)
            size = np.abs(velocity).max()
            twice.append(np.abs(velocity - terms.velocity).max() / size)
            once.append(np.abs(velocity - terms.velocity / 2).max() / size)
    return np.array(twice), np.array(once)


def _closed_forms(a: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Largest difference of an entry of W(t) from each closed form."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.theory.concepts import diagonal_map, proportional_map, rank_one_map

    d, times = len(a), np.linspace(0.0, 20.0, 41)
    vector, sizes, square = 0.2 * rng.standard_normal(d), rng.uniform(0.01, 0.5, d), 0.2 * rng.standard_normal((d, d))

    def flow(strengths: np.ndarray, start: np.ndarray) -> np.ndarray:
        return symmetric_flows(strengths, start[None], test_point=x, until=20.0, record=times).W[0]

    v = rank_one_map(a, vector, times)
    diagonal = diagonal_map(a, sizes**2, times)[:, :, None] * np.eye(d)
    proportional = proportional_map(0.7, square @ square.T, times)
    return {
        "rank_one_error": float(np.abs(flow(a, vector[:, None]) - v[:, :, None] * v[:, None, :]).max()),
        "diagonal_error": float(np.abs(flow(a, np.diag(sizes)) - diagonal).max()),
        "proportional_error": float(np.abs(flow(np.full(d, 0.7), square) - proportional).max()),
    }


def _stages(a: np.ndarray, x: np.ndarray, starts: np.ndarray, until: float) -> xr.Dataset:
    """Of each start when every concept is learned, in flow and prediction, with N and without; and the law's errors."""
    from saddlescope.flow import symmetric_flows, symmetric_path
    from saddlescope.theory.concepts import concept_stages

    found, schur, bare, laws, shares = [], [], [], [], []
    for start in starts:
        path = symmetric_path(a, start, until=until)
        found.append([path.crossings(k, k, 0.5).max(initial=0.0) for k in range(len(a))])
        schur.append(concept_stages(a, start).times)
        bare.append(np.log(1 / np.diag(start @ start.T) - 1) / (4 * a))
        W = path(np.linspace(0.0, until, 2000))
        weights = a + a[:, None]
        noise = np.einsum("tki,ki->ti", W**2, weights) - np.einsum("tii,ii->ti", W**2, weights)
        shares.append((noise / (2 * a * np.einsum("tii->ti", W))).max(axis=0))
        laws.append(_log_det_error(a, path, start, until))
    flows = symmetric_flows(a, starts, test_point=x, until=until)
    return xr.Dataset(
        {
            "found_time": (("start", "concept"), np.array(found)),
            "schur_time": (("start", "concept"), np.array(schur)),
            "bare_time": (("start", "concept"), np.array(bare), {"long_name": "without noise"}),
            "noise_share": (("start", "concept"), np.array(shares), {"long_name": "largest N_kk / G_kk"}),
            "drift": ("start", flows.drifts),
            "log_det_error": ("start", np.array(laws)),
        }
    )


def _log_det_error(a: np.ndarray, path: "SymmetricPath", start: np.ndarray, until: float) -> float:
    """How far log det W has grown by another amount than the integral of 4 tr(A (1 - W)), by Gauss's formula.

    Between the start, whose determinant its factor tells, and the end, where all is learned and W is well conditioned.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    edges = np.linspace(0.0, until, _PANELS + 1)
    half = np.diff(edges)[:, None] / 2
    W = path((edges[:-1, None] + half * (1 + nodes)).ravel())
    rates = 4 * np.einsum("i,tii->t", a, np.eye(len(a)) - W).reshape(_PANELS, _NODES)
    begin = 2 * np.linalg.slogdet(start)[1]
    end = np.linalg.slogdet(path(until)[0])[1]
    return float(abs(end - begin - np.sum(rates * half * weights)))


def _terms(a: np.ndarray, start: np.ndarray, until: float) -> xr.Dataset:
    """The three terms of the weakest concept's major entry against time, from one start."""
    from saddlescope.flow import symmetric_path
    from saddlescope.theory.concepts import update_terms

    times = np.linspace(0.0, until, 1500)
    weak = int(np.argmin(a))
    path = symmetric_path(a, start, until=until)
    terms = [update_terms(a, W) for W in path(times)]
    told = {
        name: ("time", np.array([getattr(one, name)[weak, weak] for one in terms]))
        for name in ("growth", "suppression", "noise")
    }
    return xr.Dataset({**told, "weakest": ("time", path(times)[:, weak, weak])}, coords={"time": times})


def _largest(name: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        return Estimate(float(run[name].max()), remark=f"{run[name].size} cases" if run[name].size > 1 else "")

    return statistic


def _printed(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.printed_error.max()), remark=f"from {float(run.printed_error.min()):.15g} on")


def _law(run: xr.Dataset) -> Estimate:
    inner, gauss = float(run.drift.max()), float(run.log_det_error.max())
    return Estimate(max(inner, gauss), remark=f"by the flow's own series {inner:.2g}, by Gauss's formula {gauss:.2g}")


def _late(run: xr.Dataset, *, predicted: str, scale: int) -> Estimate:
    """The median over starts of the largest error of a stage time."""
    one = run.isel(scale=scale)
    errors = abs(one.found_time - one[predicted]).max("concept").values
    remark = f"scale {float(one.scale):g}; mean {errors.mean():.3g}, largest {errors.max():.3g}"
    return Estimate(float(np.median(errors)), remark=remark)


def _lasting(run: xr.Dataset) -> Estimate:
    """The median error without noise at the smallest scale over that at the scale before."""
    late = [_late(run, predicted="bare_time", scale=n).value for n in (-2, -1)]
    return Estimate(late[1] / late[0], remark=f"{late[0]:.4f} and {late[1]:.4f}")


def _noise_share(run: xr.Dataset) -> Estimate:

    weak = int(np.argmin(run.strength.values))
    shares = run.noise_share.isel(scale=-1, concept=weak).values
    return Estimate(float(np.median(shares)), remark=f"smallest {shares.min():.3f}, largest {shares.max():.3f}")


claims = (
    Claim(
        name="identity",
        says="Corrected: gradient flow of equation 4.1 is dW/dt = 2 (G - S - N): largest relative difference from "
        "autodiff",
        source="The gradient of the loss, exact; this project's bar",
        statistic=_largest("identity_error"),
        high=_EXACT,
    ),
    Claim(
        name="printed",
        says="Printed: it is dW/dt = G - S - N: the same difference",
        source="Equation 4.3 and D.2 (D.1, with the gradient of the same loss, is twice D.2)",
        statistic=_printed,
        high=_EXACT,
    ),
    Claim(
        name="log-det",
        says="d/dt log det W = 4 tr(A (1 - W)) from every start of every scale: largest error over the run",
        source="Jacobi's formula, exact; this project's bar",
        statistic=_law,
        high=EXACT_LAW,
    ),
    *(
        Claim(
            name=name.replace("_", "-"),
            says=f"The closed form for {says} is the flow: largest difference of an entry of W",
            source="theory.concepts; this project's bar",
            statistic=exactness(f"{name}_error"),
            high=_CLOSED,
        )
        for name, says in (
            ("rank_one", "a W of rank one, by a quadrature,"),
            ("diagonal", "a diagonal W, logistic,"),
            ("proportional", "equal strengths, logistic in the eigenvalues,"),
        )
    ),
    Claim(
        name="noise-omitted",
        says="Printed: the noise is never too large and may be left out: error that this makes in the time of the last "
        "stage to be wrong, at the smallest scale; median over starts",
        source=f"Section 4.2, Lemma D.8; {_LATE} is this project's bar for stage times",
        statistic=partial(_late, predicted="bare_time", scale=-1),
        high=_LATE,
        unit="t",
    ),
    Claim(
        name="noise-lasting",
        says="Corrected: the error without noise is the same at every small scale: its ratio at the two smallest",
        source="log(w_kk(0) / s_k) / (4 a_k), with the Schur complement s_k: the scale cancels",
        statistic=_lasting,
        low=0.95,
        high=1.05,
    ),
    Claim(
        name="noise-size",
        says="Corrected: the noise is as large as the growth it works against: largest N_kk / G_kk over the run for "
        "the weakest concept, at the smallest scale; median over starts",
        source="Two entries of size w make one of size w^2 in N; half for 'as large as', before the run",
        statistic=_noise_share,
        low=0.5,
    ),
    Claim(
        name="schur",
        says="With the noise, by Schur complements, the stage times are right: largest error, at the smallest scale; "
        "median over starts",
        source="theory.concepts.concept_stages; this project's bar at scale 1e-5",
        statistic=partial(_late, predicted="schur_time", scale=-1),
        high=_SCHUR,
        unit="t",
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The three terms from one start; errors of stage times with noise and without."""
    time, smallest = run.time.values, float(run.growth.max()) * 1e-16
    terms = tuple(
        Line(x=time, y=np.where(run[name].values > smallest, run[name].values, np.nan), group=name, color=n)
        for n, name in enumerate(("growth", "suppression", "noise"))
    )
    lines = []
    for n, scale in enumerate(run.scale.values.tolist()):
        one = run.sel(scale=scale)
        for name, told in (("bare_time", "without noise"), ("schur_time", "by Schur complements")):
            errors = np.sort(abs(one.found_time - one[name]).max("concept").values)
            share = (1 + np.arange(len(errors))) / len(errors)
            style = "dashed" if name == "bare_time" else "solid"
            lines.append(Line(x=errors, y=share, group=f"{told}, scale {scale:g}", color=n, style=style))
    return [
        Figure(
            name="terms",
            title="The noise is not small: it holds the weakest concept back, and its stage comes late without it",
            caption="Left: the three terms of equation 4.3 for the major entry of the weakest concept, from one start: "
            "when a stronger concept is learned the noise is as large as the growth. Right: share of starts whose "
            "largest error of a stage time is below the one on the axis; without the noise the error is the same "
            "at every scale.",
            panels=(
                Panel(
                    title="w_kk of the weakest concept",
                    x=Axis("time t of gradient flow", range=(0.0, float(run.found_time.isel(scale=-1).max()))),
                    y=Axis("term of dW/dt / 2", scale="log"),
                    marks=terms,
                ),
                Panel(
                    title="stage times",
                    x=Axis("largest error of a stage time", scale="log"),
                    y=Axis("share of starts below"),
                    marks=tuple(lines),
                ),
            ),
        )
    ]
