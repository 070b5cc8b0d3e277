"""Theorem 5.1: the flow of aligned K and Q solves the nuclear-norm problem.

Under Assumptions 2 to 4 and from an aligned start each sample is one scalar: W = Σ_i b_i p_i q_iᵀ, with p_i and q_i
along x_i,opt and z_i, and b_i(t) is a quadrature (`theory.attention.aligned_flow`). It is compared with the flow of
full K and Q, which does not use alignment. Half of the queries point against their tokens, as equation 7 allows.

Σ_i p_i q_iᵀ / h_i with h_i = |z_i| (1 - c_i) |x_i,opt| has the least nuclear and the least Frobenius norm. Only the
nuclear norm has other solutions, such as P (diag(1 / h) + s (a aᵀ - diag(a)²)) Qᵀ with a_i = p_i.v, for small s, if v
is in the span of the optimal tokens: the theorem states "a global solution".
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.shared.aligned import KINDS, AlignedParams, draw_aligned_start, draw_instance
from saddlescope.papers.softmax_attention.shared.curves import flow_panel
from saddlescope.plot import Axis, Figure, Figures
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_DECADES = (1e3, 1e4, 1e5, 1e6)  # ln t

_EARLY = 3.0  # ln t until which attention to other tokens is large enough to judge equations 40 to 44


class Params(AlignedParams):
    """Random instances with aligned starts."""

    instances: int = param(10, "number of instances", ge=1)
    smallest: float = param(0.03, "smallest initial scale ω of K and Q", gt=0, scale="log")
    largest: float = param(0.3, "largest initial scale ω of K and Q", gt=0, scale="log")
    times: int = param(31, "number of recorded times from ln t = 0 to 1e6", ge=2)
    tolerance: float = param(1e-11, "relative tolerance of the flows", ge=1e-11, le=1e-4, scale="log")

    def check(self) -> None:
        super().check()
        if self.smallest > self.largest:
            raise InputError(f"smallest must be at most largest={self.largest!r}; got {self.smallest!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Compute flows, quadratures and solutions of all instances."""
    return context.over({"instance": range(params.instances)}, partial(_compare_instance, params))


def _compare_instance(params: Params, instance: int, step: RunContext) -> xr.Dataset:
    """Compare both flows of one instance with the solution, and that of K and Q with its quadrature."""
    from saddlescope.models import check_token_assumptions
    from saddlescope.papers.softmax_attention.shared.flows import key_query_flow
    from saddlescope.theory.attention.aligned_flow import aligned_product_flow
    from saddlescope.theory.attention.svm import nuclear_svm

    n, seed = params.samples, params.seed + instance
    data = draw_instance(KINDS[0], n, params.tokens, params.dim, seed)
    start = draw_aligned_start(data, params.columns, (params.smallest, params.largest), seed)
    log_times = np.union1d(np.concatenate([[0.0], np.geomspace(1.0, 1e6, params.times)]), _DECADES)
    flow = key_query_flow(data, start.weights, log_times, params.tolerance)
    products = [flow.keys(k) @ flow.queries(k).T for k in range(len(log_times))]
    predicted = aligned_product_flow(data, start.keys[:n], start.queries[:n])
    expected = [predicted.matrix(row) for row in predicted.weights(log_times)]
    errors = [np.linalg.norm(W - V) / np.linalg.norm(V) for W, V in zip(products, expected, strict=True)]
    norms = np.array([np.linalg.norm(W, "nuc") for W in products])
    excess = norms / np.where(flow.margin > 0, flow.margin, np.nan) / nuclear_svm(data).certificate.dual - 1
    answers = check_token_assumptions(data, start.weights)
    aligned = answers.aligned is not None and answers.aligned.holds
    early = [W for W, time in zip(products, log_times, strict=True) if time <= _EARLY]
    return xr.Dataset(
        {
            "error": ("log_time", errors),
            "excess": ("log_time", excess),
            "identities": max(identity_error(data, W, (start.left, start.right)) for W in early),
            "assumptions": all((answers.equal_scores.holds, answers.small_initial_loss.holds, answers.fourth, aligned)),
        },
        coords={"log_time": log_times},
    )


def identity_error(data: "TokenData", W: np.ndarray, bases: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the largest relative error of equations 40, 41 and 44 at aligned weights, with U_K and U_Q as bases.

    The multipliers of equation 44 are the rates, which are equal for the two tokens of a pair.
    """
    rows = np.arange(data.samples)
    attention = np.exp(np.einsum("ild,de,ie->il", data.X, W, data.z))
    attention /= attention.sum(axis=1, keepdims=True)
    best, z, at_best = data.X[rows, data.optimal], data.z, attention[rows, data.optimal]
    centred = data.scores - np.sum(attention * data.scores, axis=1, keepdims=True)
    psi = np.einsum("ild,il->id", data.X, attention * centred)
    lengths = np.linalg.norm(psi, axis=1)
    of_40 = np.abs(psi / lengths[:, None] - best / np.linalg.norm(best, axis=1)[:, None]).max()
    rates = at_best[:, None] * np.take_along_axis(attention, data.others, axis=1) * data.gaps
    B = np.sign(np.sum(best * z, axis=1))[:, None] * np.einsum("imd,id->im", data.differences, z)  # along e_π(i)
    left = lengths * np.linalg.norm(z, axis=1)
    of_41 = np.abs(np.sum(rates * B, axis=1) / left - 1).max()
    n = data.samples
    sum_of_B = (bases[0][:, :n] * np.sum(rates * B, axis=1)) @ bases[1][:, :n].T
    sum_of_tokens = np.einsum("im,imd,ie->de", rates, data.differences, z)
    return float(max(of_40, of_41, np.linalg.norm(sum_of_B - sum_of_tokens) / np.linalg.norm(sum_of_tokens)))


def assumptions_hold(run: xr.Dataset) -> bool:
    """Every instance meets Assumptions 2 to 4, and its start is aligned"""
    return bool(run.assumptions.all())


claims = Claims(
    requires=[assumptions_hold],
    limits="No data of the theorem distinguish the norms: the solution of least Frobenius norm is one of least nuclear "
    "norm. The theorem has no rate; by its scalar equations the excess falls like 1 / ln t. Half of that exponent is "
    "asked for; an excess that stays has 0. All data have one size and one c. The quadrature shares no code with the "
    "flow. In equation 44 rates replace λ; after ln t = 3 other tokens have too little attention.",
)


@claims.reading(
    "theorem-5-1",
    "Under Assumptions 2 to 4, from aligned K and Q, the direction of K Qᵀ approaches one of least nuclear norm",
    "Theorem 5.1, with equation 5, on the limit, if it exists; exponent, half of that of 1 / ln t: this project",
    high=-0.5,
)
def _products_exponent(run: xr.Dataset) -> Estimate:
    """Exponent of the excess of the nuclear norm as a power of ln t, from ln t = 1e3 to 1e6, largest of all."""
    late = run.excess.sel(log_time=list(_DECADES), method="nearest").transpose("log_time", "instance").values
    slopes = np.polyfit(np.log(_DECADES), np.log(late), 1)[0]
    return Estimate.largest(slopes, f"the excess ends at {late[-1].max():.2g} at most", over="data sets")


@claims.printed(
    "quadrature",
    "Under Assumptions 2 and 4, from aligned K and Q, K Qᵀ moves in one scalar per sample, by an equation of its own",
    "Appendix A.7, the equations of ξ_k and ξ_q; the bound is for the solver",
    high=1e-8,
)
def _quadrature_error(run: xr.Dataset) -> Estimate:
    """Largest norm of the difference of K Qᵀ from the quadratures, relative to theirs, over times and instances."""
    remark = f"{run.sizes['instance']} flows, {run.sizes['log_time']} times to ln t = 1e6"
    return Estimate.largest(run.error.max("log_time"), remark, over="data sets")


@claims.printed(
    "equations-40-to-44",
    "Under Assumptions 2 and 4, sums over pairs of tokens along aligned flow are those of projections on optimal ones",
    "Equations 40, 41 and 44, exact; the bound is for rounding",
    high=1e-9,
)
def _identity_error(run: xr.Dataset) -> Estimate:
    """Largest relative error of the three equations up to ln t = 3, over instances."""
    return Estimate.largest(run.identities, over="data sets")


def figures(run: xr.Dataset) -> Figures:
    """Draw the error of the quadrature, and the nuclear-norm excess."""
    of, x = run.isel(log_time=run.log_time.values > 0), Axis("ln t", scale="log")
    draw = partial(flow_panel, x=x, time=of.log_time.values, opacity=0.5, floor=1e-17)
    difference, excess = Axis("relative difference", scale="log"), Axis("excess", scale="log")
    yield Figure(
        name="quadrature",
        title="Aligned flows against n scalar equations, and nuclear norms of their directions",
        caption="Left: relative difference of W = K Qᵀ from the quadrature of n scalar equations, against time. "
        "Right: relative excess of the nuclear norm of W / μ over its least value. Each line is one instance.",
        panels=(
            draw("flow against quadrature", y=difference, groups={"flows": of.error}),
            draw("nuclear-norm excess", y=excess, groups={"flows": of.excess}),
        ),
    )


entry = Entry(
    "softmax-attention/theorem-5-1",
    "Theorem 5.1: aligned keys and queries and the nuclear-norm problem",
    source="Theorem 5.1",
    quick=dict(samples=2, tokens=3, dim=3, columns=3, instances=2, times=5, tolerance=1e-10),
    paper=dict(samples=8, tokens=9, dim=24, columns=24, instances=30),
)
