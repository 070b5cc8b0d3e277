"""Nuclear against Frobenius: the norms that two parametrisations of one attention head minimise on the same data.

W alone goes to the separating direction of least Frobenius norm; W = K Q^T to that of least nuclear norm, of lower
rank (Sheen et al. 2024, section 4.2).
"""

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Figures, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param
from saddlescope.reproduction.catalogue import TOYS

_FLOWS = ("W alone", "keys and queries")
_NORMS = ("nuclear", "Frobenius")
_RECORDS = 30
_TOLERANCE = 1e-6


class Params(EntryParams):
    """One softmax attention head learns, once with a single matrix W and once with keys and queries, W = K Qᵀ.

    Both separate the same tokens, but each minimises another norm. Directions converge with the logarithm of time.
    Theory: Sheen et al., arXiv:2403.08699.
    """

    samples: int = param(4, "samples", ge=2, le=8)
    tokens: int = param(3, "tokens per sample", ge=2, le=5)
    dim: int = param(6, "dimension of the tokens", ge=3, le=12)
    log10_time: float = param(1000.0, "end of the flows: log₁₀ t", ge=5.0, le=1e5, scale="log")
    scale: float = param(0.1, "initial scale of K and Q", ge=1e-3, le=1.0, scale="log")
    seed: int = param(0, "seed of the data and of K and Q", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow both flows and solve both problems."""
    from saddlescope.flow import key_query_margin_flow, matrix_margin_flow
    from saddlescope.models.tokens.generators import gaussian_tokens
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.theory import frobenius_svm, nuclear_svm

    data = gaussian_tokens(params.samples, params.tokens, params.dim, seed=params.seed)
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    nuclear, frobenius = nuclear_svm(data), frobenius_svm(data)
    context.report(0.2, "W alone")
    times = np.geomspace(2.0, params.log10_time, _RECORDS) * np.log(10)
    policies = {"log_until": times[-1], "record": times, "tolerance": _TOLERANCE, "throw": False}
    alone = matrix_margin_flow(loss, data.differences, data.z, **policies)
    context.report(0.5, "keys and queries")
    draw = np.random.default_rng((params.seed, 1)).normal(size=(2, params.dim, params.dim))
    K, Q = params.scale / params.dim**0.5 * draw
    pairs = key_query_margin_flow(loss, data.differences, data.z, (K, Q), **policies)
    spectra = np.full((2, _RECORDS, params.dim), np.nan)  # a flow that ends early has no later ones
    for n, (margin, spectrum) in enumerate(
        ((alone.margin, lambda k: np.linalg.svd(alone.weights(k), compute_uv=False)), (pairs.margin, pairs.spectrum))
    ):
        for k in np.flatnonzero(margin > 0):
            values = spectrum(int(k)) / margin[k]
            spectra[n, k] = np.append(values, np.zeros(params.dim - len(values)))
    least = np.array([nuclear.certificate.dual, frobenius.certificate.dual])
    norms = np.stack([spectra.sum(axis=-1), np.sqrt((spectra**2).sum(axis=-1))], axis=-1)
    return xr.Dataset(
        {
            "excess": (("flow", "time", "norm"), norms / least - 1),
            "spectrum": (("flow", "time", "index"), spectra),
            "solution_rank": ("norm", [nuclear.certificate.rank, frobenius.certificate.rank]),
            "status": ("flow", [str(alone.status), str(pairs.status)]),
        },
        coords={
            "flow": list(_FLOWS),
            "norm": list(_NORMS),
            "time": times / np.log(10),
            "index": np.arange(1, params.dim + 1),
        },
    )


claims = Claims(
    limits="One draw at one time: at early times, or where both solutions are near, the order may be another. The "
    "excess over the certified least norm is 0 at the solution alone."
)

_SOURCE = "Section 4.2 of Sheen et al.; any smaller excess counts"


@claims.extension(
    "nuclear", f"The flow of {_FLOWS[1]} ends nearer to the least nuclear norm than the other", _SOURCE, high=1.0
)
def _nearer_nuclear(run: xr.Dataset) -> Estimate:
    """Excess of its nuclear norm over the least one, over that of the other flow, at the last time."""
    return _smaller(run, "nuclear", _FLOWS[1])


@claims.extension(
    "frobenius", f"The flow of {_FLOWS[0]} ends nearer to the least Frobenius norm than the other", _SOURCE, high=1.0
)
def _nearer_frobenius(run: xr.Dataset) -> Estimate:
    """Excess of its Frobenius norm over the least one, over that of the other flow, at the last time."""
    return _smaller(run, "Frobenius", _FLOWS[0])


def _smaller(run: xr.Dataset, norm: str, flow: str) -> Estimate:
    last = run.excess.sel(norm=norm).isel(time=-1)
    other = next(name for name in _FLOWS if name != flow)
    if not np.isfinite(last.values).all():
        return Estimate.unresolved("A flow does not separate the data, or ended early.")
    own, others = (max(float(last.sel(flow=name)), 0.0) for name in (flow, other))
    if others == 0:
        return Estimate.unresolved("Both flows have the least norm to rounding.")
    return Estimate(own / others, remark=f"excess {own:.2g} against {others:.2g}")


def _found(run: xr.Dataset) -> str:
    """Return which flow is nearer to each least norm at the end."""
    last = run.excess.isel(time=-1)
    if not np.isfinite(last.values).all():
        return "A flow has not separated the tokens"
    near = [_FLOWS[int(np.abs(last.sel(norm=norm).values).argmin())] for norm in _NORMS]
    if near[0] == near[1]:
        return f"The flow of {near[0]} is nearer to both least norms"
    return f"The flow of {near[0]} is nearer to the least nuclear norm, that of {near[1]} to the least Frobenius norm"


def figures(run: xr.Dataset) -> Figures:
    """Draw the excesses of both norms and the final spectra."""

    def excess(norm: str) -> Panel:
        marks = lines(abs(run.excess.sel(norm=norm)), x="time", hue="flow", grouped=True, width=2.4)
        time = Axis("log₁₀ t", scale="log")
        return Panel(title=f"{norm} norm", x=time, y=Axis("excess over the least", scale="log"), marks=marks)

    yield Figure(
        name="norms",
        title=_found(run),
        caption="Relative excess of the norm of W / margin over the least one among all separating W, certified. "
        f"The solution of least nuclear norm has rank {int(run.solution_rank[0])}, that of least Frobenius norm "
        f"rank {int(run.solution_rank[1])}.",
        panels=(excess("nuclear"), excess("Frobenius")),
    )
    last = run.spectrum.isel(time=-1)
    points = lines(last.where(last > 1e-12), x="index", hue="flow", grouped=True, style="points", width=3.0)
    yield Figure(
        name="spectra",
        title=f"Singular values at t = 10^{float(run.time[-1]):g}",
        caption="Singular values of W / margin, the largest first.",
        panels=(Panel(x=Axis("index"), y=Axis("singular value", scale="log"), marks=points),),
    )


entry = Entry(
    "toys/attention",
    "Nuclear or Frobenius: what attention minimises",
    citation=TOYS,
    source="Attention",
    quick={"log10_time": 100.0},
)
