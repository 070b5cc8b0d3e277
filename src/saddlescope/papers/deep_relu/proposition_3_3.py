"""Proposition 3.3: inputs near rank one have optimal escape directions near rank one.

Inputs are u v^T + E with u, v >= 0, |u| = |v| = 1 and |E|_F = eps, in the plane with one output, where the optimal
network of depth 3 is certified. The layers are compared with the bound 8 t / (1 - t), t = |G| eps / s*. G is random.
The condition v >= 0 is necessary: with v of both signs ReLU must cut even at eps = 0; u >= 0 is not used.

    ratios    tail(W_l), tail(Zs_l) and |Zs_l - Z_l|^2 / |Z_l|^2, tail(A) = 1 - |A|_op^2 / |A|_F^2
    s*        the largest speed at depth 3

The bound is below 1 for t < 1/9. Already for t < sqrt 2 - 1 an optimum is one neuron per layer, at any depth, so that
the ratios of its weights and deeper activations are 0. Proof: the last layer reads one neuron, so that the speed is
sum_j c_j relu(P_j - N_j), with c = -q.G for its weights q, and with P and N of masses a + b = 1 from the positive and
the negative weights before it. P / a alone is a network, whose speed is at most s*: hence b s* <= -sum_j c_j m_j,
m = min(P, N). With D = P(u) - N(u) and c.v, positive as s* <= D c.v + |c| eps, the m_j differ from N(u) v_j by at most
b |E_j| / D: so b s* <= b |c| eps / D, while D >= (1 - t) / (1 + t), since a neuron along u has speed c.v - |c| eps. If
b > 0 then t >= sqrt 2 - 1. If b = 0 the speed is linear in the networks that P mixes: one of them is as fast, with a
layer less. What is left are the tail of the input and what the first ReLU removes, both at most t^2.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.network_ensembles import network_points
from saddlescope.plot import Axis, Figure, Figures, Line, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

_KINDS = ("v ≥ 0", "v of both signs")
_RATIOS = {"weights": "tail(W)", "activations": "tail(Zσ)", "relu": "|Zσ − Z|²/|Z|²"}
_NOTHING = 1e-16  # ratios below are rounding


class Params(EntryParams):
    """Random data sets; the paper proves the proposition without experiments."""

    log10_distances: tuple[float, ...] = param(
        (-5.0, -4.0, -3.0, -2.0, -1.5, -1.0),
        "log10 of the distances eps from rank one",
        ge=-7,
        le=0,
        least=2,
        order="increasing",
    )
    count: int = param(40, "data sets of each kind at each distance", ge=1)
    points: int = param(8, "inputs of each data set", ge=2)
    seed: int = param(1, "seed of the data sets", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Certify data sets, distance by distance."""
    return context.over({"log10_distance": params.log10_distances}, partial(_certify_at_distance, params))


def _certify_at_distance(params: Params, log10: float, step: RunContext) -> xr.Dataset:
    rng, rows = np.random.default_rng([params.seed, step.cell]), []
    eps = 10.0**log10
    for k, kind in enumerate(_KINDS):
        for _ in range(params.count):
            v = np.abs(rng.normal(size=params.points)) * (1 if k == 0 else (-1) ** np.arange(1, params.points + 1))
            v[0] *= k  # v >= 0 may have zeros: there ReLU has something to cut
            u, E = np.abs(rng.normal(size=2)), rng.normal(size=(2, params.points))
            X = (np.outer(u, v) / np.linalg.norm(u) / np.linalg.norm(v) + eps * E / np.linalg.norm(E)).T
            rows.append(_measure(X, rng.normal(size=(params.points, 1)), eps))
        step.report((k + 1) / len(_KINDS), kind)
    found = xr.concat(rows, dim="row").coarsen(row=params.count).construct(row=("kind", "case"))
    return found.assign_coords(kind=list(_KINDS))


def _measure(X: np.ndarray, G: np.ndarray, eps: float) -> xr.Dataset:
    from saddlescope.theory.escape.bounds import layer_ratios, nearly_rank_one_bound
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed

    best = certified_escape_speed(X, G)
    ratios = layer_ratios(best.weights, X, G)
    return xr.Dataset(
        {
            "ratio": ("name", [np.max(getattr(ratios, name)) for name in _RATIOS]),
            "bound": nearly_rank_one_bound(G, speed=best.lower, distance=eps),
            "share": np.linalg.norm(G) * eps / best.lower,
            "excess": best.upper / rank_one_escape_speed(X, G).lower - 1,
        },
        {"name": list(_RATIOS)},
    )


claims = Claims(
    limits="tail(A) = 1 - |A|_op²/|A|_F². Depth 3, the plane and one output, where the minimizer is certified. Where "
    "the bound is below 1 an optimum is one neuron per layer, at any depth (proof in the module), so that only the "
    "input and the first ReLU have ratios above 0, at most (|G|ε/s*)²."
)


@claims.printed(
    "holds",
    "At a minimizer for inputs uvᵀ + E with u, v ≥ 0, |E|_F ≤ ε and |G|ε < s*, tail(W_l), tail(Zσ_l) and "
    "|Zσ_l - Z_l|²/|Z_l|² of every layer are at most 8|G|ε/(s* - |G|ε)",
    "Proposition 3.3, judged where the bound is below 1",
    high=0.0,
)
def count_violations(run: xr.Dataset) -> Estimate:
    """Number of data sets with a layer's share of energy beyond rank one or removed by ReLU above the bound."""
    one = run.sel(kind=_KINDS[0])
    one = one.where(one.share < 1 / 9)
    seen, most = one.bound.notnull().values, one.ratio.max("name")
    if not seen.any():
        return Estimate.unresolved("The bound was below 1 on no data set; lower the distances.")
    remark = f"of {seen.sum()}; a ratio is at most {float((most / one.bound).max()):.2g} of the bound"
    return Estimate.number((most > one.bound + _NOTHING).values[seen], remark, over="data sets")


@claims.extension(
    "one-neuron",
    "For inputs as in Proposition 3.3 with |G|ε below 0.41 s*, one neuron per layer is optimal at depth 3",
    "this project's theorem; 1e-9 for rounding",
    high=1e-9,
)
def largest_excess(run: xr.Dataset) -> Estimate:
    """Largest relative excess of the certified optimum of depth 3 over that of one neuron per layer."""
    plane = run.sel(kind=_KINDS[0])
    excess = plane.excess.values[plane.share.values < 2**0.5 - 1]
    return Estimate.largest(excess[np.isfinite(excess)], over="data sets")


def figures(run: xr.Dataset) -> Figures:
    """Draw ratios and bounds against eps, for both kinds of v."""
    eps, panels = 10.0**run.log10_distance.values, []
    x, y = Axis("distance ε from rank one", scale="log"), Axis("largest over layers", scale="log")
    for kind in run.kind.values:
        one = run.sel(kind=kind).transpose("log10_distance", "case", "name", ...)
        groups = {
            label: (np.repeat(eps * 10 ** (0.05 * (k - 1)), one.sizes["case"]), one.ratio.sel(name=name).values)
            for k, (name, label) in enumerate(_RATIOS.items())
        }
        marks = network_points(groups, floor=_NOTHING, opacity=0.6)
        bound = np.median(np.minimum(one.bound.values, 1e3), axis=1)
        marks.append(Line(x=eps, y=bound, group="bound, median", color=4, style="dashed"))
        panels.append(Panel(title=str(kind), x=x, y=y, marks=tuple(marks)))
    yield Figure(
        name="distance",
        title="Ratios of optimal networks against the distance of the inputs from rank one",
        caption="Each point is the certified optimum of one data set u vᵀ + E: the largest tail of its weights, of "
        "its activations (the input included), and the largest part that ReLU removes, against |E| = ε. Dashed: "
        "the bound of Proposition 3.3, which has content only below 1. There the optimum for v ≥ 0 is one neuron, "
        "and the ratios above 0 are the input's and the first ReLU's. Exact zeros are drawn at 1e-16.",
        panels=tuple(panels),
    )


entry = Entry(
    "deep-relu/proposition-3-3",
    "Proposition 3.3: inputs near rank one have optimal escape directions near rank one",
    source="Proposition 3.3",
    quick=dict(log10_distances=(-4.0, -2.0, -1.0), count=6),
    paper=dict(count=400),
)
