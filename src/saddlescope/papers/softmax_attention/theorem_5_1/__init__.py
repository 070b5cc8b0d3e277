"""The flow of aligned K and Q solves the nuclear-norm problem, and that of W alone the same one.

Under Assumptions 2 to 4 and from an aligned start each sample is one scalar, W = sum_i b_i p_i q_i^T with p_i and q_i
along x_i,opt and z_i, and b_i(t) is a quadrature (`theory.attention.aligned_flow`). The flow of all of K and Q, which
does not use that, is compared with it; so is the flow on W alone, from 0.

    limit      sum_i p_i q_i^T / h_i, h_i = |z_i| (1 - c_i) |x_i,opt|: of least nuclear and of least Frobenius norm, so
               that these data cannot distinguish the two norms
    second     P (diag(1 / h) + s (a a^T - diag(a)^2)) Q^T with a_i = p_i.v, where v is in the span of the optimal
               tokens: other solutions of the nuclear-norm problem, which therefore has many. The theorem says "a
               global solution", and compares objectives here

Assumption 4 (ii), a query along its optimal token, is not needed: without it the same holds. Nor does equation 7 ignore
the sign that (ii) allows: U_K and U_Q are two bases, and half of the queries here point against their tokens.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.shared.aligned_params import KINDS, AlignedParams
from saddlescope.papers.softmax_attention.theorem_5_1.claims import FLOWS, T100, claims
from saddlescope.papers.softmax_attention.theorem_5_1.figures import figures
from saddlescope.papers.softmax_attention.theorem_5_1.metrics import metrics
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData
    from saddlescope.theory.attention.aligned_flow import AlignedFlow

_STUDIED = KINDS[:2]


class Params(AlignedParams):
    """Instances at random, with aligned starts."""

    instances: int = param(10, "of each kind")
    smallest: float = param(0.03, "scale omega of the starts, lower end", gt=0)
    largest: float = param(0.3, "upper end", gt=0)
    times: int = param(31, "recorded times from ln t = 0 to 1e6")
    tolerance: float = param(1e-11, "of the flows")
    seed: int = param(0, "of the first instance")

    def check(self) -> None:
        super().check()
        if self.smallest > self.largest:
            raise InputError(f"smallest must be at most largest={self.largest!r}; got {self.smallest!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Compute flows, quadratures and solutions of all instances."""
    parts: list[xr.Dataset] = []
    for k, kind in enumerate(_STUDIED):
        report = context.part(k / len(_STUDIED), (k + 1) / len(_STUDIED))
        parts.append(context.cached(f"kind-{k}", partial(_compare_kind, kind, params, report)))
    context.report(1.0, "done")
    return xr.concat(parts, "kind")


def _compare_kind(kind: str, params: Params, report: Report) -> xr.Dataset:
    held: list[xr.Dataset] = []
    for n in range(params.instances):
        report(n / params.instances, f"{kind}, instance {n + 1}")
        held.append(_compare_instance(kind, params, params.seed + n))
    return xr.concat(held, "instance").assign_coords(kind=kind)


def _compare_instance(kind: str, params: Params, seed: int) -> xr.Dataset:
    """Compare both flows of one instance with their quadratures, and with the solutions."""
    from saddlescope.flow import key_query_margin_flow, matrix_margin_flow
    from saddlescope.models.tokens.assumptions import check_token_assumptions
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.shared.aligned_instances import draw_aligned_start, draw_instance
    from saddlescope.theory.attention.aligned_flow import aligned_matrix_flow, aligned_product_flow
    from saddlescope.theory.attention.svm import frobenius_svm, nuclear_svm

    data = draw_instance(kind, params.samples, params.tokens, params.dim, seed)
    start = draw_aligned_start(data, params.columns, (params.smallest, params.largest), seed)
    log_times = np.union1d(np.concatenate([[0.0], np.geomspace(1.0, 1e6, params.times)]), [T100])
    loss, n = SelectionLoss(data.optimal_scores, data.gaps), data.samples
    both = key_query_margin_flow(
        loss,
        data.differences,
        data.z,
        start.weights,
        log_until=log_times[-1],
        record=log_times,
        tolerance=params.tolerance,
    )
    alone = matrix_margin_flow(
        loss, data.differences, data.z, log_until=log_times[-1], record=log_times, tolerance=params.tolerance
    )
    predicted = aligned_product_flow(data, start.keys[:n], start.queries[:n]), aligned_matrix_flow(data)
    weights = (
        [both.keys(k) @ both.queries(k).T for k in range(len(log_times))],
        [alone.weights(k) for k in range(len(log_times))],
    )
    nuclear, frobenius = nuclear_svm(data), frobenius_svm(data)
    best = nuclear.certificate.primal
    b = np.array([of.weights(log_times) for of in predicted])
    errors = [
        [np.linalg.norm(W - of.matrix(row)) / np.linalg.norm(of.matrix(row)) for W, row in zip(Ws, rows, strict=True)]
        for Ws, of, rows in zip(weights, predicted, b, strict=True)
    ]
    margin = np.array([both.margin, alone.margin])
    norms = np.array([[np.linalg.norm(W, "nuc") for W in Ws] for Ws in weights])
    excess = np.where(margin > 0, norms / np.where(margin > 0, margin, 1.0) / best - 1, np.nan)
    answers = check_token_assumptions(data, start.weights)
    aligned = answers.aligned is not None and answers.aligned.holds
    held = answers.equal_scores.holds and answers.small_initial_loss.holds and answers.fourth and aligned
    limit = predicted[0].matrix(predicted[0].limit)
    other, defect = _second_solution(data, predicted[0])
    return xr.Dataset(
        {
            "error": (("flow", "log_time"), np.array(errors)),
            "excess": (("flow", "log_time"), excess),
            "margins": (("flow", "log_time", "sample"), b * predicted[0].steepness),
            "loss_law": ("log_time", np.expm1(both.log_excess + log_times + np.log(both.margin) - np.log(best / 2))),
            "assumptions": held,
            "against": np.sum(np.einsum("nd,nd->n", data.X[np.arange(n), data.optimal], data.z) < 0),
            "coincidence": abs(np.linalg.norm(frobenius.weights, "nuc") / best - 1),
            "closed_form": np.linalg.norm(frobenius.weights - limit) / np.linalg.norm(limit),
            "second_distance": np.linalg.norm(other - limit) / np.linalg.norm(limit),
            "second_defect": max(defect, abs(float(np.linalg.norm(other, "nuc")) / best - 1)),
        },
        coords={"flow": list(FLOWS), "log_time": log_times},
    )


def _second_solution(data: "TokenData", flow: "AlignedFlow") -> tuple[np.ndarray, float]:
    """Return another solution of the nuclear-norm problem, and its violation of the margins."""
    p, q = flow.directions
    across = np.outer(p @ data.v, p @ data.v)
    np.fill_diagonal(across, 0.0)
    middle = np.diag(flow.limit)
    most = 1 / np.linalg.norm(across / np.sqrt(np.outer(flow.limit, flow.limit)), 2)  # beyond it, not positive
    W = p.T @ (middle + 0.5 * most * across) @ q
    return W, max(0.0, 1 - float(data.margins(W).min()))


entry = Entry(
    "softmax-attention/theorem-5-1",
    "The flow of aligned K and Q solves the nuclear-norm problem, and that of W alone the same one",
    citation=CITATION,
    source="Theorem 5.1",
    params=Params,
    quick=dict(samples=2, tokens=3, dim=3, columns=3, instances=1, times=5, tolerance=1e-10),
    paper=dict(samples=8, tokens=9, dim=24, columns=24, instances=30),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
