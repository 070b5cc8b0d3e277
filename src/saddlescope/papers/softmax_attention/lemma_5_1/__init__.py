"""Alignment of K and Q is preserved by the flow, but does not attract it.

The residual of Definition 5.1 (`models.tokens.assumptions.alignment_residual`), 0 for aligned K and Q, is measured
along flows of all of K and Q that do not use it:

    aligned      starts with U_K and U_Q in full, all of whose columns take part. The end of appendix A.6 has those
                 beyond the n-th be zero vectors, against the orthogonality of U_K; they are not, and never move
    perturbed    the same starts with normal noise of eta times the scale of K and Q added to both
    without      aligned starts on data that break one part of Assumption 4: (iii) is needed, (ii) is not

Alignment neither attracts nor repels: the residual of a perturbed start tends to a number of the order of eta, for in
some directions of misalignment the solution of the nuclear-norm problem is not unique (Theorem 5.1), and nothing pulls
there. The direction tends to a solution all the same, to another one.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.lemma_5_1.claims import claims
from saddlescope.papers.softmax_attention.lemma_5_1.figures import figures
from saddlescope.papers.softmax_attention.shared.aligned_params import KINDS, AlignedParams
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData
    from saddlescope.papers.softmax_attention.shared.aligned_instances import AlignedStart


class Params(AlignedParams):
    """Instances at random, each followed from an aligned start and from perturbed ones."""

    instances: int = param(8, "of each kind")
    etas: tuple[float, ...] = param((1e-6, 1e-3, 1e-1, 1.0), "sizes of the perturbations, ascending, up to 1")
    scale: float = param(0.1, "omega of the starts", gt=0)
    times: int = param(25, "recorded times from ln t = 1 to 1e6")
    tolerance: float = param(1e-10, "of the flows")
    seed: int = param(0, "of the first instance")

    def check(self) -> None:
        super().check()
        if not self.etas or list(self.etas) != sorted(set(self.etas)) or not 0 < self.etas[0] <= self.etas[-1] <= 1:
            raise InputError(f"etas must be one or more positive numbers up to 1, ascending; got {self.etas!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow aligned flows of all kinds, then the perturbed ones."""
    aligned: list[xr.Dataset] = []
    for k, kind in enumerate(KINDS):
        report = context.part(k / 6, (k + 1) / 6)
        aligned.append(context.cached(f"aligned-{k}", partial(_follow_aligned, kind, params, report)))
    perturbed = context.cached("perturbed", partial(_follow_perturbed, params, context.part(0.5, 1.0)))
    context.report(1.0, "done")
    return xr.merge([xr.concat(aligned, "kind"), perturbed], join="exact")


def _log_times(params: Params) -> np.ndarray:
    """Return ln t of the start and of the recorded times."""
    return np.concatenate([[-np.inf], np.geomspace(1.0, 1e6, params.times)])


def _draw(kind: str, params: Params, seed: int) -> "tuple[TokenData, AlignedStart]":
    from saddlescope.papers.softmax_attention.shared.aligned_instances import draw_aligned_start, draw_instance

    data = draw_instance(kind, params.samples, params.tokens, params.dim, seed)
    return data, draw_aligned_start(data, params.columns, (params.scale, params.scale), seed)


def _follow(data: "TokenData", start: tuple[np.ndarray, np.ndarray], params: Params) -> list:
    """Return K, Q and the smallest margin at the recorded times."""
    from saddlescope.flow import key_query_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss

    loss, log_times = SelectionLoss(data.optimal_scores, data.gaps), _log_times(params)
    flow = key_query_margin_flow(
        loss, data.differences, data.z, start, log_until=log_times[-1], record=log_times, tolerance=params.tolerance
    )
    return [(flow.keys(k), flow.queries(k), float(mu)) for k, mu in enumerate(flow.margin)]


def _follow_aligned(kind: str, params: Params, report: Report) -> xr.Dataset:
    from saddlescope.models.tokens.assumptions import alignment_residual

    residuals = np.zeros((params.instances, params.times + 1))
    across, resting = np.zeros_like(residuals), np.zeros_like(residuals)
    for n in range(params.instances):
        report(n / params.instances, f"{kind}, instance {n + 1}")
        data, start = _draw(kind, params, params.seed + n)
        first = start.coordinates(*start.weights)
        for k, (K, Q, _) in enumerate(_follow(data, start.weights, params)):
            residuals[n, k] = alignment_residual(data, K, Q)
            for now, before in zip(start.coordinates(K, Q), first, strict=True):
                off = now - np.eye(*now.shape) * now
                across[n, k] = max(across[n, k], np.linalg.norm(off) / np.linalg.norm(now))
                moved = np.diag(now - before)[data.samples :]
                resting[n, k] = max(resting[n, k], np.abs(moved).max(initial=0.0) / params.scale)
    return xr.Dataset(
        {
            "alignment": (("instance", "log_time"), residuals),
            "across": (("instance", "log_time"), across),
            "resting": (("instance", "log_time"), resting),
        },
        coords={"kind": kind, "log_time": _log_times(params)},
    )


def _follow_perturbed(params: Params, report: Report) -> xr.Dataset:
    from saddlescope.models.tokens.assumptions import alignment_residual
    from saddlescope.theory.attention.svm import nuclear_svm

    shape = (params.instances, len(params.etas), params.times + 1)
    residuals, excess = np.zeros(shape), np.full(shape, np.nan)
    for n in range(params.instances):
        data, start = _draw(KINDS[0], params, params.seed + n)
        least = nuclear_svm(data).certificate.primal
        noise = np.random.default_rng((params.seed + n, 3)).standard_normal((2, params.dim, params.columns))
        noise *= params.scale / params.columns**0.5  # columns of K, as rows, then have lengths of about the scale
        for e, eta in enumerate(params.etas):
            report((n + e / len(params.etas)) / params.instances, f"instance {n + 1}, perturbed by {eta:g}")
            K0, Q0 = (of + eta * by for of, by in zip(start.weights, noise, strict=True))
            for k, (K, Q, mu) in enumerate(_follow(data, (K0, Q0), params)):
                residuals[n, e, k] = alignment_residual(data, K, Q)
                if mu > 0:
                    excess[n, e, k] = np.linalg.norm(K @ Q.T, "nuc") / mu / least - 1
    return xr.Dataset(
        {
            "perturbed_alignment": (("instance", "eta", "log_time"), residuals),
            "excess": (("instance", "eta", "log_time"), excess),
        },
        coords={"eta": list(params.etas), "log_time": _log_times(params)},
    )


entry = Entry(
    "softmax-attention/lemma-5-1",
    "Alignment of K and Q is preserved by the flow, but does not attract it",
    citation=CITATION,
    source="Lemma 5.1",
    params=Params,
    quick=dict(samples=2, tokens=3, dim=3, columns=3, instances=1, etas=(1.0,), times=4, tolerance=1e-6),
    paper=dict(samples=8, tokens=9, dim=16, columns=16, instances=30),
    run=run,
    claims=claims,
    figures=figures,
)
