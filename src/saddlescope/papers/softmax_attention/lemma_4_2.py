"""Lemma 4.2: the weights diverge if diagonal weights can separate the data.

The lemma is stated under Assumption 2; by Assumption 1, some W separates the data. Its proof uses a point of the
ℓ1-SVM, so a diagonal W that separates them. That is a stronger assumption: without such a W, the flow of diagonal
weights can end at a finite strict minimum of the loss. In the smallest example, tokens (0, 1) and (0, 0) with the query
(1, 0), W_21 separates the tokens, but B = 0.

The proof shows ∫ |∇L|² dt < ∞ and concludes lim |∇L| = 0, which follows for the lower limit only: |β| is unbounded, but
might return. It cannot: between the spheres of radius R and 2R the path has a length of R at least, along which |∇L| is
at least some c_R > 0, so that each crossing lowers the loss by a positive amount.

    as printed  instances that some W separates but no diagonal one: number of flows that end at a strict minimum
    corrected   instances that diagonal weights separate, with large gaps and with a gap of 1, where flows lose samples
                and |β| tends to infinity all the same
    slowness    2 t ln t |∇L|∞: near 1 if β grows like ln t, and arcsinh(β / ω₀²) like ln ln t
"""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.shared.curves import flow_curves
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models import SelectionLoss, TokenData

_KINDS = ("some W separates, no diagonal one", "diagonal weights separate", "the same, with a small gap")

_SETTLED = 2.0  # log10 t until which a flow that stays finite is followed; Newton's method then finds its minimum

_RANDOM_WEIGHTS = 100  # random weights of each instance at which the inequality of the proof is checked

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
    parts = []
    for (number, kind), of_kind in context.steps(enumerate(_KINDS)):
        for (k, data), step in of_kind.steps(enumerate(_draw_instances(params, number))):
            step.report(0.0, f"{kind}, instance {k}")
            parts.append(step.cached(f"{number}-{k}", partial(_follow, data, params, kind)))
    context.report(1.0, "done")
    return xr.concat(parts, "instance").assign_coords(log10_time=("time", np.array(params.log10_times)))


def _draw_instances(params: Params, kind: int) -> "list[TokenData]":
    """Return the first instances of a kind, in the order of their seeds."""
    from saddlescope.models import gaussian_tokens, separability

    dim, gap = (params.dim, params.small_gap if kind == 2 else None) if kind else (params.low_dim, None)
    found, seed = [], params.seed
    while len(found) < params.instances:
        data = gaussian_tokens(params.samples, params.tokens, dim, seed=seed, gap=gap)
        seed += 1
        if separability(data).separable and separability(data, diagonal=True).separable == bool(kind):
            found.append(data)
    return found


def _follow(data: "TokenData", params: Params, kind: str) -> xr.Dataset:
    from saddlescope.flow import FlowError, diagonal_margin_flow
    from saddlescope.models import SelectionLoss

    loss, B = SelectionLoss(data.optimal_scores, data.gaps), data.features
    times = np.array(params.log10_times)
    log_times = times * np.log(10)
    settled = log_times[times <= _SETTLED]
    sizes, slowness = np.full(len(times), np.nan), np.full(len(times), np.nan)
    limit, log_excess = None, np.nan
    with suppress(FlowError):  # values at times that a flow does not reach stay NaN, and are undecided
        flow = diagonal_margin_flow(loss, B, params.scale, log_until=settled[-1], record=settled, tolerance=1e-7)
        limit = strict_minimum(loss, B, flow.beta[-1])
        sizes[: len(flow.beta)] = np.linalg.norm(flow.beta, axis=1)
        if limit is None:
            flow = diagonal_margin_flow(
                loss, B, params.scale, log_until=log_times[-1], record=log_times, max_evaluations=5000, tolerance=1e-7
            )
            sizes[:] = np.linalg.norm(flow.beta, axis=1)
            pulls = np.einsum("knm,nmd->kd", flow.scaled_rates, B)
            slowness[:] = 2 * log_times * np.abs(pulls).max(axis=1)
        log_excess = flow.log_excess[-1]
    return xr.Dataset(
        {
            "size": ("time", sizes),
            "slowness": ("time", slowness),
            "limit": np.nan if limit is None else np.linalg.norm(limit),
            "log_excess": log_excess,
            "violations": _count_violations(data, loss, params.seed),
        },
        coords={"kind": kind},
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


def _count_violations(data: "TokenData", loss: "SelectionLoss", seed: int) -> int:
    """Return the number of random weights with ⟨-∇L, β_f⟩ < Σ r for a feasible β_f, against the proof."""
    from saddlescope.models import separability

    feasible = separability(data, diagonal=True).weights
    if feasible is None:
        return 0
    rng, B, count = np.random.default_rng(seed), data.features, 0
    margins = B @ feasible
    for exponent in rng.uniform(-2, 6, _RANDOM_WEIGHTS):
        log_rates, signs = loss.log_rates(B @ (10.0**exponent * rng.normal(size=data.dim)))
        rates = signs * np.exp(log_rates - log_rates.max())
        count += not (np.sum(rates * margins) >= np.sum(rates) * (1 - 1e-9) > 0)
    return count


def _select_instances(run: xr.Dataset, diagonal: bool) -> xr.Dataset:
    """Return the instances that diagonal weights separate, or the others."""
    return run.isel(instance=[("no diagonal" not in kind) == diagonal for kind in run.kind.values.tolist()])


def _values_at(values: xr.DataArray, log10_time: float) -> np.ndarray:
    return values.values[:, values.log10_time.values.tolist().index(log10_time)]


_SHORT = Estimate.unresolved("A flow did not reach t = 1e300; use another seed.")

claims = Claims()


@claims.add(
    "as-printed",
    "If some attention matrix W separates the tokens, the norm of diagonal attention weights tends to infinity "
        "along gradient flow",
    quantity="number of flows that end at a finite strict minimum of the loss, on data that W separates but no "
        "diagonal W",
    kind="printed", source="Lemma 4.2 under Assumptions 1 and 2 as printed; no exception is allowed", high=0.0,
    evidence="cases", over="data sets",
    why="A strict minimum with a positive definite Hessian that the flow has reached contradicts a norm that tends to "
        "infinity",
    doubt="The authors may mean diagonal separability throughout; then only the stated assumption is wrong",
)  # fmt: skip
def _finite_flows(run: xr.Dataset) -> Estimate:
    chosen = _select_instances(run, diagonal=False)
    finite = int(chosen.limit.notnull().sum())
    open_ends = int((chosen.limit.isnull() & chosen.size.isel(time=-1).isnull()).sum())
    return Estimate(
        float(finite),
        remark=f"{finite} of {chosen.sizes['instance']} end at a strict minimum; {open_ends} were not decided",
        n=chosen.sizes["instance"],
    )


@claims.add(
    "with-diagonal-separability",
    "If diagonal attention weights can separate the tokens, their norm tends to infinity along the gradient flow",
    quantity="number of flows whose weight norm does not double from t = 1e30 to t = 1e300", kind="reading",
    source="Lemma 4.2 with the assumption that its proof uses; |β| grows like ln t, tenfold. No exception is allowed",
    high=0.0,
    evidence="cases", over="data sets",
    why="A norm that grows like ln t is ten times larger at t = 1e300 than at 1e30, so one that does not double has "
        "stopped",
    doubt="Growth between two times is no proof of divergence, and the doubling is our number",
)  # fmt: skip
def _flows_that_do_not_double(run: xr.Dataset) -> Estimate:
    chosen = _select_instances(run, diagonal=True)
    late, later = _values_at(chosen["size"], 30.0), _values_at(chosen["size"], 300.0)
    if np.isnan(later).any():
        return _SHORT
    lost = int((chosen.log_excess > -10).sum())
    return Estimate(
        float(sum(later < 2 * late)),
        remark=f"of {len(late)}, {lost} of which have lost samples; least ratio {min(later / late):.3g}",
        n=len(late),
    )


@claims.add(
    "gradient-vanishes",
    "If diagonal attention weights can separate the tokens, the loss gradient along their flow tends to 0",
    quantity="number of flows whose largest gradient entry times t does not fall from t = 1e30 to t = 1e300",
    kind="reading",
    source="Lemma 4.2's proof; t |∇L| falls like 1 / ln t, tenfold. No exception is allowed", high=0.0,
    evidence="cases", over="data sets",
    why="A product of t and gradient that falls means that the gradient falls faster than 1/t, along the whole flow "
        "at late times",
    doubt="Two late times cannot exclude a return, and the times are ours",
)  # fmt: skip
def _gradients_that_do_not_fall(run: xr.Dataset) -> Estimate:
    slowness = _select_instances(run, diagonal=True).slowness
    late, later = _values_at(slowness, 30.0) / 30, _values_at(slowness, 300.0) / 300
    if np.isnan(later).any():
        return _SHORT
    return Estimate.number(later >= late, f"of {len(late)}; largest ratio {max(later / late):.3g}")


@claims.add(
    "gradient-law",
    "At t = 1e300, the largest gradient entry of separating diagonal attention weights is 1/(2t ln t) within 10 %",
    quantity="largest deviation of 2 t ln t times the largest gradient entry from 1 at t = 1e300, over flows",
    kind="own",
    source="The law for β that grows like ln t; the bound is this project's, for corrections of ln ln t / ln t",
    high=0.1,
    evidence="cases", over="data sets",
    why="If the weights grow like ln t, the gradient must be 1/(2t ln t), so the law tests the rate of divergence",
    doubt="Corrections of ln ln t over ln t are large even at t = 1e300",
)  # fmt: skip
def _slowness_error(run: xr.Dataset) -> Estimate:
    values = _values_at(_select_instances(run, diagonal=True).slowness, 300.0)
    if np.isnan(values).any():
        return _SHORT
    return Estimate.largest(abs(values - 1), f"2 t ln t |∇L|∞ is {min(values):.4g} to {max(values):.4g}")


@claims.add(
    "no-stationary-point",
    "At any attention weights, the inner product of −∇L and separating diagonal weights is at least the summed "
        "margin derivatives",
    quantity="number of random diagonal weights with ⟨−∇L, weights of margins ≥ 1⟩ below the sum of −∂L/∂margin, on "
        "separable token data",
    kind="printed", source="Appendix A.4, below equation 29, exact; so the loss has no stationary point", high=0.0,
    evidence="cases", over="data sets",
    why="The inequality gives a positive slope at all weights, which is what excludes stationary points in the proof",
    doubt="Random weights test an inequality that three lines of algebra prove",
)  # fmt: skip
def _violations(run: xr.Dataset) -> Estimate:
    chosen = _select_instances(run, diagonal=True)
    instances = chosen.sizes["instance"]
    remark = f"of {_RANDOM_WEIGHTS * instances} weights, up to 1e6"
    return Estimate(float(chosen.violations.sum()), remark=remark, n=instances)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the size of β over time, for the three kinds of instances."""

    def panel(title: str, part: xr.Dataset, until: float) -> Panel:
        time = part.log10_time.values
        kinds = sorted(set(part.kind.values.tolist()))
        marks: list[Line] = []
        for color, kind in enumerate(kinds):
            rows = part["size"].values[part.kind.values == kind][:, time <= until]
            marks += flow_curves(time[time <= until], rows, kind, color, width=1.2, opacity=0.7)
        return Panel(title=title, x=Axis("time, log10 t"), y=Axis("|β|", scale="log"), marks=tuple(marks))

    others = _select_instances(run, diagonal=False)
    finite = int(others.limit.notnull().sum())
    return [
        Figure(
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
    ]


entry = Entry(
    "softmax-attention/lemma-4-2", "Lemma 4.2: the weights diverge if diagonal weights can separate the data",
    citation=CITATION, source="Lemma 4.2, appendix A.4", params=Params,
    quick=dict(instances=2, log10_times=(0.0, 2.0, 30.0, 300.0)), paper=dict(instances=100), run=run, claims=claims,
    figures=figures,
)  # fmt: skip
