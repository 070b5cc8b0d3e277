"""Lemma 4.2: diagonal weights diverge if they can separate the data.

The lemma is stated under Assumption 2; by Assumption 1, some W separates the data. Its proof uses a point of the
ℓ1-SVM, so a diagonal W that separates them, which is a stronger assumption: where B = z ⊙ (x_opt - x) = 0, β does not
move. The proof concludes lim |∇L| = 0 from ∫ |∇L|² dt < ∞, which follows for the lower limit only: |β| is unbounded,
but might return. It cannot: a path from |β| = R to 2R lowers the loss by a positive amount, since |∇L| is at least some
c_R there.

    as printed  Gaussian instances that some W separates but no diagonal one: flows that end at a strict minimum
    corrected   instances that diagonal weights separate, with large gaps and with a gap of 1, where flows lose samples
    slowness    2 t ln t |∇L|∞: near 1 if β grows like ln t, and arcsinh(β / ω₀²) like ln ln t
"""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.shared.curves import flow_panel
from saddlescope.papers.softmax_attention.shared.first_seeds import first_seeds
from saddlescope.plot import Axis, Figure, Figures, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.models import SelectionLoss, TokenData

_KINDS = ("some W separates, no diagonal one", "diagonal weights separate", "the same, with a small gap")

_SETTLED = 2.0  # log10 t until which a flow that stays finite is followed; Newton's method then finds its minimum

_NEWTON_STEPS = 20

_NEAR = 1e-4  # relative distance of the minimum within which a flow has reached it

_TIMES = (
    *(-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 2.0, 4.0, 7.0, 10.0),
    *(15.0, 20.0, 30.0, 50.0, 70.0, 100.0, 150.0, 200.0, 300.0),
)


class Params(EntryParams):
    """Instances and times."""

    instances: int = param(24, "number of instances of each of the three kinds", ge=1)
    samples: int = param(4, "number of samples n", ge=1)
    tokens: int = param(5, "number of tokens per sample L", ge=2)
    dim: int = param(8, "dimension d of data that diagonal weights separate", ge=2)
    low_dim: int = param(3, "dimension d of data that only other W separate", ge=1)
    small_gap: float = param(1.0, "gap of the scores at which flows lose samples", gt=0)
    scale: float = param(0.3, "initial scale ω₀ of the weights", gt=0, scale="log")
    log10_times: tuple[float, ...] = param(
        _TIMES, "log10 of the recorded times, with 2, 30 and 300 among them", order="increasing"
    )
    seed: int = param(200, "first seed of the data", ge=0)

    def check(self) -> None:
        if self.dim <= self.low_dim:
            raise InputError(f"dim must be above low_dim={self.low_dim!r}; got {self.dim!r}.")
        if not {_SETTLED, 30.0, 300.0} <= set(self.log10_times):
            raise InputError(f"log10_times must contain {_SETTLED:g}, 30 and 300; got {self.log10_times!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the flows of all three kinds of instances."""
    data = {kind: _draw_instances(params, number) for number, kind in enumerate(_KINDS)}

    def follow(kind: str, instance: int, step: RunContext) -> xr.Dataset:
        return _follow(data[kind][instance], params).assign_coords(kind=kind)

    parts = context.cells({"kind": _KINDS, "instance": range(params.instances)}, follow)
    return xr.concat(parts, "instance").assign_coords(log10_time=("time", np.array(params.log10_times)))


def _draw_instances(params: Params, kind: int) -> "list[TokenData]":
    """Return the first instances of a kind, in the order of their seeds."""
    from saddlescope.models import gaussian_tokens, separability

    dim, gap = (params.dim, params.small_gap if kind == 2 else None) if kind else (params.low_dim, None)
    draw = partial(gaussian_tokens, params.samples, params.tokens, dim, gap=gap)

    def fits(seed: int) -> bool:
        data = draw(seed=seed)
        return separability(data).separable and separability(data, diagonal=True).separable == bool(kind)

    return [draw(seed=seed) for seed in first_seeds(params.instances, params.seed, fits)]


def _follow(data: "TokenData", params: Params) -> xr.Dataset:
    """Return the size and the slowness of one flow; values at times that it does not reach are NaN, and undecided."""
    from saddlescope.flow import FlowError
    from saddlescope.papers.softmax_attention.shared.flows import diagonal_flow, selection_loss

    times = np.array(params.log10_times)
    log_times = times * np.log(10)
    sizes, slowness = np.full((2, len(times)), np.nan)
    limit, log_excess = None, np.nan
    with suppress(FlowError):
        flow = diagonal_flow(data, params.scale, log_times[times <= _SETTLED])
        limit = strict_minimum(selection_loss(data), data.features, flow.beta[-1])
        sizes[: len(flow.beta)] = np.linalg.norm(flow.beta, axis=1)
        if limit is None:
            flow = diagonal_flow(data, params.scale, log_times, most=5000)
            sizes[:] = np.linalg.norm(flow.beta, axis=1)
            pulls = np.einsum("knm,nmd->kd", flow.scaled_rates, data.features)
            slowness[:] = 2 * log_times * np.abs(pulls).max(axis=1)
        log_excess = flow.log_excess[-1]
    return xr.Dataset(
        {
            "size": ("time", sizes),
            "slowness": ("time", slowness),
            "limit": np.nan if limit is None else np.linalg.norm(limit),
            "log_excess": log_excess,
        }
    )


def strict_minimum(loss: "SelectionLoss", features: np.ndarray, beta: np.ndarray) -> np.ndarray | None:
    """Return the strict local minimum of L(Bβ) near β, by Newton's method; None if it does not exist.

    Its Hessian is positive definite at every step, and its relative distance from β is at most 1e-4. A flow that
    starts there does not leave it, since it only lowers the loss.
    """
    point = beta
    for _ in range(_NEWTON_STEPS):
        rates, jacobian = loss.rate_jacobian(features @ point)
        gradient = -np.einsum("nm,nmd->d", rates, features)
        hessian = -np.einsum("nmd,nmk,nke->de", features, jacobian, features)
        if np.linalg.eigvalsh(hessian)[0] <= 0:
            return None
        step = np.linalg.solve(hessian, gradient)
        point = point - step
        size = np.linalg.norm(point)
        if np.linalg.norm(step) <= 1e-12 * size:
            return point if np.linalg.norm(point - beta) <= _NEAR * size else None
    return None


def _select_instances(run: xr.Dataset, diagonal: bool) -> xr.Dataset:
    """Return the instances that diagonal weights separate, or the others."""
    return run.isel(instance=[("no diagonal" not in kind) == diagonal for kind in run.kind.values.tolist()])


def _values_at(values: xr.DataArray, log10_time: float) -> np.ndarray:
    return values.values[:, values.log10_time.values.tolist().index(log10_time)]


def flows_arrive(run: xr.Dataset) -> bool:
    """Every flow on data that diagonal weights separate reaches t = 1e300"""
    return bool(_select_instances(run, diagonal=True)["size"].isel(time=-1).notnull().all())


claims = Claims(
    limits="The authors may mean diagonal separability throughout; then only the stated assumption is wrong. Readings "
    "have one size and two gaps. Growth from t = 1e30 to 1e300 is no proof of divergence: |β| grows like ln t, "
    "tenfold, and doubling is asked for; the gradient times t falls like 1 / ln t. Two late times cannot exclude a "
    "return, which the argument on the page of the paper does."
)


@claims.printed(
    "as-printed",
    "Under Assumptions 1 and 2, from a start of equation 5, the norm of diagonal weights tends to infinity",
    "Lemma 4.2 as printed, with Assumption 1 of section 3.1: some W separates; no exception is allowed",
    high=0.0,
)
def _finite_flows(run: xr.Dataset) -> Estimate:
    """Number of flows that end at a finite strict minimum of the loss, on data that W separates but no diagonal W."""
    chosen = _select_instances(run, diagonal=False)
    finite = chosen.limit.notnull().values
    undecided = int((chosen.limit.isnull() & chosen["size"].isel(time=-1).isnull()).sum())
    remark = f"of {finite.size}, {undecided} of which were not decided"
    return Estimate.number(finite, remark, over="data sets")


@claims.reading(
    "with-diagonal-separability",
    "On Gaussian data with Assumption 2 that diagonal weights can separate, their norm tends to infinity",
    "Lemma 4.2 with the assumption that its proof uses; doubling, no exception: this project",
    high=0.0,
    requires=[flows_arrive],
)
def _flows_that_do_not_double(run: xr.Dataset) -> Estimate:
    """Number of flows whose weight norm does not double from t = 1e30 to t = 1e300."""
    chosen = _select_instances(run, diagonal=True)
    ratio = _values_at(chosen["size"], 300.0) / _values_at(chosen["size"], 30.0)
    lost = int((chosen.log_excess > -10).sum())
    remark = f"of {ratio.size}, {lost} of which have lost samples; least ratio {ratio.min():.3g}"
    return Estimate.number(ratio < 2, remark, over="data sets")


@claims.reading(
    "gradient-vanishes",
    "On Gaussian data with Assumption 2 that diagonal weights can separate, the gradient tends to 0",
    "Lemma 4.2's proof, appendix A.4; faster than 1/t, no exception: this project",
    high=0.0,
    requires=[flows_arrive],
)
def _gradients_that_do_not_fall(run: xr.Dataset) -> Estimate:
    """Number of flows whose largest gradient entry times t does not fall from t = 1e30 to t = 1e300."""
    slowness = _select_instances(run, diagonal=True).slowness
    ratio = _values_at(slowness, 300.0) / _values_at(slowness, 30.0) / 10
    return Estimate.number(ratio >= 1, f"of {ratio.size}; largest ratio {ratio.max():.3g}", over="data sets")


def figures(run: xr.Dataset) -> Figures:
    """Draw the size of β over time, for the three kinds of instances."""

    def panel(title: str, part: xr.Dataset, until: float) -> Panel:
        part = part.isel(time=part.log10_time.values <= until)
        kinds = {kind: part["size"].values[part.kind.values == kind] for kind in sorted(set(part.kind.values.tolist()))}
        x, y = Axis("time, log10 t"), Axis("|β|", scale="log")
        return flow_panel(title, x, y, part.log10_time.values, kinds, width=1.2, opacity=0.7)

    others = _select_instances(run, diagonal=False)
    finite = int(others.limit.notnull().sum())
    yield Figure(
        name="sizes",
        title="Size of diagonal weights over time",
        caption="Left: |β| against time on data that diagonal weights separate, with large gaps of the scores and "
        f"with a small gap. Right: |β| on data that some W separates but no diagonal one; {finite} of "
        f"{others.sizes['instance']} flows end at a strict minimum of the loss.",
        panels=(
            panel("separable by diagonal weights", _select_instances(run, diagonal=True), 300.0),
            panel("separable by others only", others, _SETTLED),
        ),
    )


entry = Entry(
    "softmax-attention/lemma-4-2",
    "Lemma 4.2: diagonal weights diverge if they can separate the data",
    source="Lemma 4.2, appendix A.4",
    quick=dict(instances=2, log10_times=(0.0, 2.0, 30.0, 300.0)),
    paper=dict(instances=100),
)
