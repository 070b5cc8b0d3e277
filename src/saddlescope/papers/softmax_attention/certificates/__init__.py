"""The attention SVMs with proofs: gaps, ranks and uniqueness, and what other solvers' answers are worth.

The norms that the flows are said to minimise are minimised for Gaussian data, with certificates: bounds from both
sides, of the data alone. At a smaller size the optima are compared with independent solvers, HiGHS on the dual linear
programme and Clarabel on a cone programme and a semidefinite one; and the rank of W_*, which decides whether attention
becomes low rank, is read off the semidefinite solution as scripts do, by singular values above 1e-7 of the largest: at
Clarabel's accuracy of 1e-8, and at 1e-4, that of the first-order solver that CVXPY uses by default for nuclear norms.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.certificates.claims import NORMS, claims
from saddlescope.papers.softmax_attention.certificates.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

ACCURACIES = {"1e-8": None, "1e-4": 1e-4}  # of Clarabel; its own is 1e-8

TOLERANCE = 1e-7  # of a singular value that scripts count, relative to the largest


class Params(EntryParams):
    """Two sizes: one to certify at, one that the other solvers can do."""

    samples: int = param(20, "n", ge=2)
    tokens: int = param(10, "L", ge=2)
    dim: int = param(200, "d", ge=2)
    draws: int = param(20, "of the data", ge=1)
    small_samples: int = param(6, "n beside other solvers", ge=2)
    small_tokens: int = param(5, "L beside other solvers", ge=2)
    small_dim: int = param(24, "d beside other solvers", ge=2)
    small_draws: int = param(100, "of the data beside other solvers", ge=1)
    seed: int = param(0, "of the first draw of both", ge=0)

    def check(self) -> None:
        for prefix in ("", "small_"):
            least = getattr(self, f"{prefix}samples") * (getattr(self, f"{prefix}tokens") - 1)
            if getattr(self, f"{prefix}dim") < least:
                raise InputError(
                    f"{prefix}dim must be at least {least}, the number of constraints, for diagonal weights to separate"
                    f" all draws; got {getattr(self, f'{prefix}dim')!r}."
                )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Certify the solutions at full size, then compare with other solvers."""
    certified, compared = [], []
    for k in range(params.draws):
        context.report(0.5 * k / params.draws, f"draw {k + 1} of {params.draws}")
        certified.append(context.cached(f"draw-{k}", partial(_certify_draw, params, params.seed + k)))
    for k in range(params.small_draws):
        context.report(0.5 + 0.5 * k / params.small_draws, f"beside other solvers, draw {k + 1}")
        compared.append(context.cached(f"small-{k}", partial(_compare_solvers, params, params.seed + k)))
    context.report(1.0, "done")
    joined = xr.merge([xr.concat(certified, "draw"), xr.concat(compared, "small_draw")])
    return joined.assign_coords(norm=list(NORMS), accuracy=list(ACCURACIES))


def _certify_draw(params: Params, seed: int) -> xr.Dataset:
    from saddlescope.models.tokens.generators import gaussian_tokens
    from saddlescope.theory import frobenius_svm, l1_svm, nuclear_svm

    data = gaussian_tokens(params.samples, params.tokens, params.dim, seed=seed)
    found = [solve(data).certificate for solve in (l1_svm, frobenius_svm, nuclear_svm)]
    return xr.Dataset(
        {
            "gap": ("norm", [each.gap for each in found]),
            "stationarity": ("norm", [each.stationarity for each in found]),
            "complementarity": ("norm", [each.complementarity for each in found]),
            "unique": ("norm", [each.unique for each in found]),
            "rank": ("norm", [each.rank for each in found]),
            "rank_certified": ("norm", [each.rank_certified for each in found]),
        }
    )


def _compare_solvers(params: Params, seed: int) -> xr.Dataset:
    from scipy.optimize import linprog

    from saddlescope.models.tokens.generators import gaussian_tokens
    from saddlescope.papers.softmax_attention.certificates.cone_solvers import (
        conic_frobenius_norm,
        semidefinite_nuclear_svm,
    )
    from saddlescope.theory import certify_svm, frobenius_svm, l1_svm, nuclear_svm

    data = gaussian_tokens(params.small_samples, params.small_tokens, params.small_dim, seed=seed)
    B = data.features.reshape(-1, params.small_dim)
    dual = linprog(-np.ones(len(B)), A_ub=np.concatenate([B.T, -B.T]), b_ub=np.ones(2 * B.shape[1]), method="highs-ipm")
    ours = {"l1": l1_svm(data), "frobenius": frobenius_svm(data), "nuclear": nuclear_svm(data)}
    theirs = {"l1": -float(dual.fun), "frobenius": conic_frobenius_norm(data)}
    read, gaps, reported, vouched = [], [], [], []
    for accuracy in ACCURACIES.values():
        factors, multipliers = semidefinite_nuclear_svm(data, accuracy)
        s = np.linalg.svd(factors[0] @ factors[1].T, compute_uv=False)
        theirs.setdefault("nuclear", float(s.sum()))
        certificate = certify_svm(data, factors, multipliers, norm="nuclear")
        read.append(int(np.sum(s > TOLERANCE * s[0])))
        gaps.append(certificate.gap)
        reported.append(certificate.rank)
        vouched.append(certificate.rank_certified)
    return xr.Dataset(
        {
            "difference": ("norm", [abs(theirs[norm] / ours[norm].certificate.primal - 1) for norm in NORMS]),
            "true_rank": ours["nuclear"].certificate.rank,
            "true_rank_certified": ours["nuclear"].certificate.rank_certified,
            "read_rank": ("accuracy", read),
            "their_gap": ("accuracy", gaps),
            "told_rank": ("accuracy", reported),
            "vouched": ("accuracy", vouched),
        }
    )


entry = Entry(
    "softmax-attention/certificates",
    "The attention SVMs with proofs: gaps, ranks and uniqueness, and what other solvers' answers are worth",
    citation=CITATION,
    source="Section 3.2",
    params=Params,
    quick=dict(samples=10, tokens=5, dim=50, draws=6, small_samples=4, small_tokens=4, small_dim=12, small_draws=12),
    paper=dict(samples=80, dim=720),
    run=run,
    claims=claims,
    figures=figures,
)
