"""Theorem 4.1: the direction of diagonal weights ends at a solution of the l1 problem.

The diagonal flow from w_+ = w_- = omega_0 is followed to ln t = 1e7 and compared with the certified solution beta* of
the l1 problem, with multipliers lambda. The error of the direction beta / mu falls like 1 / ln t at best, so the data
matter: conditioned instances have a sparse, well separated solution; raw Gaussian data have not. Both meet the
theorem's assumptions 2 and 3.

    error      |beta / mu - beta*| / |beta*|
    objective  |beta / mu|_1 over the dual bound, less 1: how far from a global solution, whether that is unique or not
    margins    u_k - [ln t + ln mu + ln(C_k / lambda_k)] where lambda_k > 0, C = (2/n) (-l'(gamma)) gap
    loss       2 t mu (L - L*) / |beta*|_1, less 1

The last two are laws that the proof implies: phi = lambda ln mu makes the rates 2 r = lambda / (t mu).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.theorem_4_1.claims import ASTRONOMICAL, LATE, claims
from saddlescope.papers.softmax_attention.theorem_4_1.figures import figures
from saddlescope.papers.softmax_attention.theorem_4_1.metrics import metrics
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_KINDS = ("exponential", "logistic")


class Params(EntryParams):
    """Instances and initial scale."""

    samples: tuple[int, ...] = param((4, 10, 20), "n of each size")
    tokens: tuple[int, ...] = param((5, 5, 10), "L of each size")
    dims: tuple[int, ...] = param((8, 50, 200), "d of each size")
    instances: int = param(4, "conditioned data sets of each size, each with both losses", ge=1)
    raw: int = param(10, "Gaussian data sets of each size but the largest", ge=2)
    scale: float = param(0.3, "omega_0", gt=0)
    marks: int = param(33, "times to look at, from ln t = 1 to 1e7", ge=9)
    seed: int = param(100, "of the first data set; the others follow", ge=0)

    def check(self) -> None:
        parameter_checks.require_token_sizes(self)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow all flows, and solve their l1 problems."""
    from saddlescope.models.tokens.generators import conditioned_tokens
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens

    times = np.unique([*np.geomspace(1, LATE, params.marks), 1e3, 1e4, ASTRONOMICAL])
    sizes = list(zip(params.samples, params.tokens, params.dims, strict=True))
    jobs: list[tuple[str, str, Callable[[], TokenData], str]] = []
    for size in sizes:
        for k in range(params.instances):
            make = partial(conditioned_tokens, *size, seed=params.seed + k)
            jobs += [(f"conditioned {size} {k}, {kind}", "conditioned", make, kind) for kind in _KINDS]
    for size in sizes[: max(1, len(sizes) - 1)]:
        for k in range(params.raw):
            make = partial(separable_gaussian_tokens, *size, seed=params.seed + k)
            jobs.append((f"Gaussian {size} {k}", "raw", make, "exponential"))
    parts: list[xr.Dataset] = []
    for k, (name, group, make, kind) in enumerate(jobs):
        context.report(k / len(jobs), name)
        parts.append(context.cached(f"flow-{k}", partial(_follow, name, group, make, kind, times, params.scale)))
    example = _follow_examples(sizes[0], params, times)
    context.report(1.0, "done")
    flows = xr.concat(parts, "case", data_vars="all", coords="minimal", compat="equals", join="exact")
    return xr.merge([flows, example]).assign_attrs(scale=params.scale)


def _follow(
    name: str, group: str, make: "Callable[[], TokenData]", kind: str, times: np.ndarray, scale: float
) -> xr.Dataset:
    """Follow one flow and compare it with its l1 solution."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.assumptions import check_token_assumptions
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.theory.attention.svm import l1_svm

    data = make()
    svm = l1_svm(data)
    flow = diagonal_margin_flow(
        SelectionLoss(data.optimal_scores, data.gaps, kind),
        data.features,
        scale,
        log_until=times[-1],
        record=times,
        tolerance=1e-7,
    )
    direction, mu = flow.direction, flow.margin
    push = -data.optimal_scores if kind == "exponential" else -np.logaddexp(0.0, data.optimal_scores)
    active = svm.multipliers > 1e-9 * svm.multipliers.max()
    with np.errstate(divide="ignore", invalid="ignore"):
        law = np.log(2 / data.samples) + push[:, None] + np.log(data.gaps / svm.multipliers)
        off = flow.margins - (flow.log_times + np.log(mu))[:, None, None] - law
        of_loss = 2 * np.exp(flow.log_times + flow.log_excess) * mu / np.abs(svm.beta).sum() - 1
    assumptions = check_token_assumptions(data, np.zeros(data.dim))
    large = np.abs(direction[-1]) > 1e-3 * np.abs(direction[-1]).max()
    return xr.Dataset(
        {
            "group": group,
            "error": ("time", np.linalg.norm(direction - svm.beta, axis=1) / np.linalg.norm(svm.beta)),
            "objective": ("time", np.abs(direction).sum(axis=1) / svm.certificate.dual - 1),
            "margin_law": ("time", np.where(mu > 0, np.abs(np.where(active, off, 0.0)).max(axis=(1, 2)), np.nan)),
            "loss_law": ("time", np.where(mu > 0, of_loss, np.nan)),
            "assumptions_hold": bool(assumptions.equal_scores.holds and assumptions.small_initial_loss.holds),
            "support": int(svm.support.sum()),
            "same_support": bool(np.array_equal(large, svm.support)),
            "gap": svm.certificate.gap,
            "evaluations": flow.evaluations,
            "energy_defect": float(flow.energy_defects.max()),
        },
        coords={"log_time": ("time", flow.log_times), "case": name},
    )


def _follow_examples(size: tuple[int, int, int], params: Params, times: np.ndarray) -> xr.Dataset:
    """Return the directions of one conditioned and one raw instance, for the figure."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.generators import conditioned_tokens
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens
    from saddlescope.theory.attention.svm import l1_svm

    found = {}
    for name, make in (("conditioned", conditioned_tokens), ("raw", separable_gaussian_tokens)):
        data = make(*size, seed=params.seed)
        loss = SelectionLoss(data.optimal_scores, data.gaps)
        flow = diagonal_margin_flow(
            loss, data.features, params.scale, log_until=times[-1], record=times, tolerance=1e-7
        )
        found[f"{name}_direction"] = (("time", "entry"), flow.direction)
        found[f"{name}_beta"] = ("entry", l1_svm(data).beta)
    return xr.Dataset(found)


entry = Entry(
    "softmax-attention/theorem-4-1",
    "Theorem 4.1: the direction of diagonal weights ends at a solution of the l1 problem",
    citation=CITATION,
    source="Theorem 4.1, section 4.1",
    params=Params,
    quick=dict(samples=(4,), tokens=(5,), dims=(8,), instances=1, raw=3, marks=17),
    paper=dict(instances=20, raw=50),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
