"""The initial scale: when it matters where the diagonal flow ends; smaller is not better.

Theorem 4.1 allows any omega_0 that is not 0 and any global solution as the limit. Three kinds of data are followed:

    conditioned  the l1 solution is unique: the limit must not depend on omega_0
    degenerate   a segment of l1 solutions; omega_0 differs between coordinates, at random
    raw          Gaussian, from scales of 1 to 1e-8: how far the direction is from the l1 solution at t = 1e300

On degenerate data the flow ends at the solution of least entropy sum_j |beta_j| (ln(|beta_j| / omega_0,j^2) - 1), so a
common factor of omega_0 does not matter, and ratios do (this package's own derivation, in `degenerate_tokens`).
A smaller scale makes the flow learn coordinates one after the other: late ones wait for mu to grow by powers of
1 / omega_0.
"""

from functools import partial
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.initial_scale.claims import ASTRONOMICAL, LATE, claims
from saddlescope.papers.softmax_attention.initial_scale.figures import figures
from saddlescope.papers.softmax_attention.initial_scale.metrics import metrics
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Instances and scales."""

    samples: int = param(4, "n", ge=1)
    tokens: int = param(5, "L", ge=2)
    dim: int = param(8, "d, without the added coordinate of degenerate data", ge=4)
    conditioned: int = param(4, "conditioned data sets", ge=1)
    degenerate: int = param(4, "degenerate data sets", ge=1)
    starts: int = param(5, "omega_0 drawn for each of them; the last is the first times 1/30", ge=3)
    raw: int = param(12, "Gaussian data sets", ge=2)
    scales: tuple[float, ...] = param(
        (1.0, 0.3, 0.1, 1e-2, 1e-4, 1e-8), "omega_0 for conditioned and raw data, descending"
    )
    marks: int = param(25, "times to look at, from ln t = 3 to 1e6", ge=3)
    seed: int = param(300, "of the first data set of each kind; the others follow", ge=1)

    def check(self) -> None:
        scales = self.scales
        if len(scales) < 2 or not all(1e-100 <= b < a <= 10 for a, b in pairwise(scales)):
            raise InputError(f"scales must be two or more, descending, from 10 to 1e-100; got {scales!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow all flows of the three kinds."""
    times = np.unique([*np.geomspace(3, LATE, params.marks), ASTRONOMICAL])
    kinds = {"conditioned": params.conditioned, "degenerate": params.degenerate, "raw": params.raw}
    jobs = [(kind, params.seed + k) for kind, count in kinds.items() for k in range(count)]
    parts: dict[str, list[xr.Dataset]] = {kind: [] for kind in kinds}
    for k, (kind, seed) in enumerate(jobs):
        context.report(k / len(jobs), f"{kind} data, seed {seed}")
        follow = _follow_degenerate if kind == "degenerate" else _follow_scales
        parts[kind].append(context.cached(f"{kind}-{seed}", partial(follow, kind, seed, times, params)))
    context.report(1.0, "done")
    joined = [
        xr.concat(of, f"{kind}_seed", data_vars="all", coords="minimal", compat="equals", join="exact")
        for kind, of in parts.items()
    ]
    return xr.merge(joined, compat="equals", join="exact")


def _follow_scales(kind: str, seed: int, times: np.ndarray, params: Params) -> xr.Dataset:
    """Follow one data set from every scale, the same for all coordinates."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.generators import conditioned_tokens
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens
    from saddlescope.theory.attention.svm import l1_svm

    make = conditioned_tokens if kind == "conditioned" else separable_gaussian_tokens
    data = make(params.samples, params.tokens, params.dim, seed=seed)
    loss, beta = SelectionLoss(data.optimal_scores, data.gaps), l1_svm(data).beta
    flows = [
        diagonal_margin_flow(loss, data.features, scale, log_until=times[-1], record=times, tolerance=1e-7)
        for scale in params.scales
    ]
    directions = np.array([flow.direction for flow in flows])
    size = np.linalg.norm(beta)
    found = {
        f"{kind}_error": (("scale", "time"), np.linalg.norm(directions - beta, axis=-1) / size),
        f"{kind}_evaluations": ("scale", [flow.evaluations for flow in flows]),
    }
    if kind == "conditioned":
        apart = directions[:, None] - directions[None]
        found[f"{kind}_apart"] = (("scale", "scale_too", "time"), np.linalg.norm(apart, axis=-1) / size)
    return xr.Dataset(found, coords={"scale": list(params.scales), "log_time": ("time", times), f"{kind}_seed": seed})


def _follow_degenerate(kind: str, seed: int, times: np.ndarray, params: Params) -> xr.Dataset:
    """Follow one degenerate data set from several omega_0, the last a multiple of the first."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.initial_scale.degenerate_tokens import degenerate_tokens, least_entropy

    of = degenerate_tokens(params.samples, params.tokens, params.dim, seed)
    loss, rng = SelectionLoss(of.data.optimal_scores, of.data.gaps), np.random.default_rng((seed, 1))
    scales = 0.3 * np.exp(rng.uniform(-1, 1, (params.starts, of.data.dim)))
    scales[-1] = scales[0] / 30
    flows = [
        diagonal_margin_flow(loss, of.data.features, scale, log_until=times[-1], record=times, tolerance=1e-7)
        for scale in scales
    ]
    limits = np.array([least_entropy(of, scale) for scale in scales])
    directions, size = np.array([flow.direction for flow in flows]), np.linalg.norm(of.beta)
    axes = ("start", "time")
    return xr.Dataset(
        {
            "entropy_error": (axes, np.linalg.norm(directions - limits[:, None], axis=-1) / size),
            "objective": (axes, np.abs(directions).sum(axis=-1) / np.abs(of.beta).sum() - 1),
            "taken": (axes, directions[:, :, -1] / np.abs(of.beta).sum()),
            "taken_limit": ("start", limits[:, -1] / np.abs(of.beta).sum()),
            "spread": ("time", np.linalg.norm(directions[:, None] - directions[None], axis=-1).max(axis=(0, 1)) / size),
            "rescaled": ("time", np.linalg.norm(directions[0] - directions[-1], axis=-1) / size),
        },
        coords={"log_time": ("time", times), f"{kind}_seed": seed},
    )


entry = Entry(
    "softmax-attention/initial-scale",
    "The initial scale: when it matters where the diagonal flow ends; smaller is not better",
    citation=CITATION,
    source="Theorem 4.1, equation 5",
    params=Params,
    quick=dict(conditioned=1, degenerate=1, starts=3, raw=2, scales=(0.3, 0.1), marks=7),
    paper=dict(conditioned=20, degenerate=20, raw=100),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
