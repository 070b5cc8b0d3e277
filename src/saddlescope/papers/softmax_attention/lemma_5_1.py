"""Lemma 5.1: the flow preserves alignment of K and Q, but alignment does not attract it.

The residual of Definition 5.1 (`models.tokens.assumptions.alignment_residual`) is 0 for aligned K and Q. It is measured
along flows of full K and Q that do not use alignment:

    aligned      starts with full U_K and U_Q, all of whose columns take part. The end of appendix A.6 sets those beyond
                 the n-th to zero vectors, against the orthogonality of U_K; here they are not zero, and never move
    perturbed    the same starts plus normal noise of η times the scale of K and Q
    without      aligned starts on data that break one part of Assumption 4: (iii) is needed, (ii) is not

Alignment neither attracts nor repels: the residual of a perturbed start tends to a number of the order of η, since the
solution of the nuclear-norm problem is not unique in some directions of misalignment (Theorem 5.1), which have no
gradient. The direction approaches a solution all the same, a different one.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.shared.aligned import (
    KINDS,
    AlignedParams,
    draw_aligned_start,
    draw_instance,
)
from saddlescope.papers.softmax_attention.shared.curves import flow_curves
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

_START = float("-inf")  # ln t


class Params(AlignedParams):
    """Random instances, each followed from an aligned start and from perturbed ones."""

    instances: int = param(8, "number of instances of each kind", ge=1)
    etas: tuple[float, ...] = param(
        (1e-6, 1e-3, 1e-1, 1.0),
        "sizes of the perturbations, relative to K and Q",
        gt=0,
        le=1,
        order="increasing",
        scale="log",
    )
    scale: float = param(0.1, "initial scale ω of K and Q", gt=0, scale="log")
    times: int = param(25, "number of recorded times from ln t = 1 to 1e6", ge=2)
    tolerance: float = param(1e-10, "relative tolerance of the flows", ge=1e-11, le=1e-4, scale="log")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow aligned flows of all kinds, then the perturbed ones."""
    first, second = context.split(1, 1)
    aligned = [
        step.cached(f"aligned-{k}", partial(_follow_aligned, kind, params, step))
        for (k, kind), step in first.steps(enumerate(KINDS))
    ]
    perturbed = second.cached("perturbed", partial(_follow_perturbed, params, second))
    context.report(1.0, "done")
    return xr.merge([xr.concat(aligned, "kind"), perturbed], join="exact")


def _log_times(params: Params) -> np.ndarray:
    """Return ln t of the start and of the recorded times."""
    return np.concatenate([[_START], np.geomspace(1.0, 1e6, params.times)])


def _draw(kind: str, params: Params, seed: int):
    """Return data of a kind and an aligned start."""
    data = draw_instance(kind, params.samples, params.tokens, params.dim, seed)
    return data, draw_aligned_start(data, params.columns, (params.scale, params.scale), seed)


def _follow(data, start: tuple[np.ndarray, np.ndarray], params: Params) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Return K, Q and the smallest margin at the recorded times."""
    from saddlescope.flow import key_query_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss

    loss, log_times = SelectionLoss(data.optimal_scores, data.gaps), _log_times(params)
    flow = key_query_margin_flow(
        loss, data.differences, data.z, start, log_until=log_times[-1], record=log_times, tolerance=params.tolerance
    )
    return [(flow.keys(k), flow.queries(k), float(mu)) for k, mu in enumerate(flow.margin)]


def _follow_aligned(kind: str, params: Params, context: RunContext) -> xr.Dataset:
    from saddlescope.models.tokens.assumptions import alignment_residual

    residuals = np.zeros((params.instances, params.times + 1))
    across, resting = np.zeros_like(residuals), np.zeros_like(residuals)
    for n, step in context.steps(range(params.instances)):
        step.report(0.0, f"{kind}, instance {n + 1}")
        data, start = _draw(kind, params, params.seed + n)
        first = start.coordinates(*start.weights)
        for k, (K, Q, _) in enumerate(_follow(data, start.weights, params)):
            residuals[n, k] = alignment_residual(data, K, Q)
            for now, before in zip(start.coordinates(K, Q), first, strict=True):
                off = now - np.eye(*now.shape) * now
                across[n, k] = max(across[n, k], np.linalg.norm(off) / np.linalg.norm(now))
                moved = np.diag(now - before)[data.samples :]
                resting[n, k] = max(resting[n, k], np.abs(moved).max(initial=0.0) / params.scale)
    found = {"alignment": residuals, "across": across, "resting": resting}
    return xr.Dataset(
        {name: (("instance", "log_time"), values) for name, values in found.items()},
        coords={"kind": kind, "log_time": _log_times(params)},
    )


def _follow_perturbed(params: Params, context: RunContext) -> xr.Dataset:
    from saddlescope.models.tokens.assumptions import alignment_residual
    from saddlescope.theory.attention.svm import nuclear_svm

    shape = (params.instances, len(params.etas), params.times + 1)
    residuals, excess = np.zeros(shape), np.full(shape, np.nan)
    for n, instance in context.steps(range(params.instances)):
        data, start = _draw(KINDS[0], params, params.seed + n)
        least = nuclear_svm(data).certificate.primal
        noise = np.random.default_rng((params.seed + n, 3)).standard_normal((2, params.dim, params.columns))
        noise *= params.scale / params.columns**0.5  # the rows of the noise in K then have lengths of about the scale
        for (e, eta), step in instance.steps(enumerate(params.etas)):
            step.report(0.0, f"instance {n + 1}, perturbed by {eta:g}")
            K0, Q0 = (of + eta * by for of, by in zip(start.weights, noise, strict=True))
            for k, (K, Q, mu) in enumerate(_follow(data, (K0, Q0), params)):
                residuals[n, e, k] = alignment_residual(data, K, Q)
                if mu > 0:
                    excess[n, e, k] = np.linalg.norm(K @ Q.T, "nuc") / mu / least - 1
    found = {"perturbed_alignment": residuals, "excess": excess}
    return xr.Dataset(
        {name: (("instance", "eta", "log_time"), values) for name, values in found.items()},
        coords={"eta": list(params.etas), "log_time": _log_times(params)},
    )


def _largest(name: str, kind: str, run: xr.Dataset) -> Estimate:
    """Return the largest value of a variable along the aligned flows of a kind."""
    of = run[name].sel(kind=kind)
    return Estimate.largest(of.max("log_time"), f"{of.sizes['instance']} flows to ln t = 1e6")


def _change(run: xr.Dataset, since: float) -> xr.DataArray:
    """Return the residual of perturbed starts at the end over that at an earlier time."""
    residual = run.perturbed_alignment
    k = 0 if since < 0 else int(abs(run.log_time.values - since).argmin())
    return residual.isel(log_time=-1) / residual.isel(log_time=k)


def _least_change(since: float, run: xr.Dataset) -> Estimate:
    change = _change(run, since)
    return Estimate.smallest(change.min("eta"), f"{change.size} flows; median {float(change.median()):.2g}")


# The bounds were written down before the run. Trial runs: instances of seeds 100 and 101, with L = 3, 5 and 9.
claims = Claims()

claims.add(
    "preserved",
    "On orthogonal paired tokens, the gradient flow keeps key and query weights aligned that start aligned with the "
        "data",
    quantity="largest residual of alignment of K's and Q's singular vectors with optimal tokens and queries, over "
        "recorded times and flows",
    kind="printed", source="Lemma 5.1, exact; the bound is for the solver and rounding", high=1e-9,
    evidence="identity", over="data sets",
    why="The residual of Definition 5.1 is zero exactly for aligned weights, and the flow is of full K and Q without "
        "using alignment",
    doubt="An exact symmetry survives any consistent solver, and all data are drawn from one law",
)(partial(_largest, "alignment", KINDS[0]))  # fmt: skip

claims.add(
    "same-bases",
    "From starts aligned with the tokens, key and query weights stay diagonal in the singular bases of the start",
    quantity="largest norm of the off-diagonal part of K or Q in these bases, relative to its norm, over recorded "
        "times and flows", kind="printed",
    source="Lemma 5.1, with full U_K and U_Q: A.6 sets the other columns of U_K to 0; bound as for alignment",
    high=1e-9,
    evidence="identity", over="data sets",
    why="Alignment with fixed bases means that both weights stay diagonal in them, which is stronger than staying "
        "aligned",
    doubt="The bases beyond the n-th column are our completion, since the appendix sets those columns to zero",
)(partial(_largest, "across", KINDS[0]))  # fmt: skip

claims.add(
    "resting",
    "From starts aligned with n samples, singular values of key and query weights beyond the n-th keep their initial "
        "values",
    quantity="largest change of such a singular value (signed, in the start's bases), in units of the initial scale, "
        "over times and flows", kind="own", source="A.6, whose sums end at n; bound as for alignment", high=1e-9,
    evidence="identity", over="data sets",
    why="The sums of appendix A.6 end at n, so singular values beyond the n-th must not move",
    doubt="The appendix calls these columns zero, so this extends its sentence to full bases",
)(partial(_largest, "resting", KINDS[0]))  # fmt: skip

claims.add(
    "without-ii",
    "Key and query weights aligned with the data stay aligned even if queries are not parallel to their optimal "
        "tokens",
    quantity="largest residual of alignment of K's and Q's singular vectors with optimal tokens and queries, over "
        "recorded times and flows",
    kind="own", source="This project's: the proof of Lemma 5.1 never uses (ii); bound as for alignment", high=1e-9,
    evidence="identity", over="data sets",
    why="If alignment survives when queries are turned, part (ii) of Assumption 4 is not needed for the lemma",
    doubt="One kind of violation, a common rotation of all queries, is tried",
)(partial(_largest, "alignment", KINDS[1]))  # fmt: skip


@claims.add(
    "without-iii",
    "Key and query weights aligned with the data lose alignment if non-optimal tokens do not form mirror pairs",
    quantity="smallest residual of alignment with optimal tokens and queries at ln t = 1e6, over flows with tokens "
        "moved by a tenth",
    kind="own", source="Equation 40, which needs the pairs; the bound is this project's control", low=1e-3,
    evidence="cases", over="data sets",
    why="A residual that becomes visible when the mirror pairs are broken shows that part (iii) is needed",
    doubt="One size of the move is tried, and the control's bar is ours",
)  # fmt: skip
def _smallest_broken_alignment(run: xr.Dataset) -> Estimate:
    of = run.alignment.sel(kind=KINDS[2]).isel(log_time=-1)
    return Estimate.smallest(of, f"{of.sizes['instance']} flows, up to {float(of.max()):.2g}")


claims.add(
    "not-attracting",
    "From perturbed aligned starts, the alignment residual of key and query weights ends above 3 % of its initial "
        "value",
    quantity="smallest ratio of the residual of alignment with tokens and queries at ln t = 1e6 to its initial "
        "value, over perturbed flows",
    kind="own", source="This project's, from a trial run on other seeds (0.13)", low=0.03,
    evidence="cases", over="data sets",
    why="If alignment attracted, the residual of a perturbed start would tend to zero",
    doubt="It does fall several-fold, so the bar of 3 percent decides what counts as attraction",
)(partial(_least_change, _START))  # fmt: skip

claims.add(
    "settled",
    "From perturbed starts, the alignment residual of keys and queries falls by under 20 % after ln t = 1e4",
    quantity="smallest ratio of the residual of alignment with tokens and queries at ln t = 1e6 to that at 1e4, over "
        "perturbed flows", kind="own", source="This project's, from a trial run on other seeds (0.95)", low=0.8,
    evidence="cases", over="data sets",
    why="A residual that hardly changes over two decades of ln t has reached its limit above zero",
    doubt="One slow flow decides, and the time from which we look is ours",
)(partial(_least_change, 1e4))  # fmt: skip


@claims.add(
    "not-repelling",
    "From perturbed aligned starts, the alignment residual of key and query weights at most doubles by ln t = 1e6",
    quantity="largest ratio of the residual of alignment with tokens and queries at ln t = 1e6 to its initial value, "
        "over perturbed flows", kind="own", source="This project's, from a trial run on other seeds (0.8)", high=2.0,
    evidence="cases", over="data sets",
    why="A residual that never grows much shows that misalignment is neutral, not amplified",
    doubt="Four sizes of one random perturbation per data set are few directions",
)  # fmt: skip
def _most_change(run: xr.Dataset) -> Estimate:
    change = _change(run, _START)
    return Estimate.largest(change.max("eta"), f"{change.size} flows; median {float(change.median()):.2g}")


@claims.add(
    "misaligned",
    "From misaligned key and query weights, the direction of K Qᵀ still approaches a max-margin solution of least "
        "nuclear norm",
    quantity="largest relative excess of the nuclear norm per smallest margin of K Qᵀ over its minimum at ln t = "
        "1e6, most perturbed flows", kind="own",
    source="Beyond Theorem 5.1, which assumes an aligned start; the bound from a trial run on other seeds (8e-5)",
    high=1e-3,
    evidence="cases", over="data sets",
    why="The excess over the certified least nuclear norm is zero at any solution, unique or not",
    doubt="Perturbations are of the size of the start at most, and the bar is from trial runs",
)  # fmt: skip
def _largest_excess(run: xr.Dataset) -> Estimate:
    last = run.excess.isel(log_time=-1, eta=-1)
    if bool(last.isnull().any()):
        return Estimate.unresolved("A margin of a flow is not positive at its end; use another seed.")
    return Estimate.largest(last, f"{last.size} flows, perturbed by {float(last.eta):g}")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the residual of alignment over time, and the nuclear-norm excess."""
    later = run.isel(log_time=np.isfinite(run.log_time.values))

    def panel(title: str, label: str, variable: str, over: str, names: list[str], first: int) -> Panel:
        values = np.maximum(later[variable].transpose(over, "instance", "log_time").values, 1e-17)
        marks: list[Line] = []
        for k, (name, rows) in enumerate(zip(names, values, strict=True)):
            marks += flow_curves(later.log_time.values, rows, name, first + k, opacity=0.5)
        return Panel(title=title, x=Axis("ln t", scale="log"), y=Axis(label, scale="log"), marks=tuple(marks))

    etas = [f"η = {eta:g}" for eta in run.eta.values]
    return [
        Figure(
            name="alignment",
            title="Residual of alignment along flows of K and Q",
            caption="Residual of Definition 5.1 against time. Left: aligned starts, on data that meet Assumption 4 or "
            "break (ii) or (iii). Middle: aligned starts plus noise of relative size η. Right: relative excess of the "
            "nuclear norm of the direction over its least value, from the starts with noise. Each line is one flow.",
            panels=(
                panel("aligned starts", "residual", "alignment", "kind", run.kind.values.tolist(), 0),
                panel("perturbed starts", "residual", "perturbed_alignment", "eta", etas, 3),
                panel("directions from perturbed starts", "nuclear-norm excess", "excess", "eta", etas, 3),
            ),
            columns=3,
        )
    ]


entry = Entry(
    "softmax-attention/lemma-5-1",
    "Lemma 5.1: the flow preserves alignment of K and Q, but alignment does not attract it", citation=CITATION,
    source="Lemma 5.1", params=Params,
    quick=dict(samples=2, tokens=3, dim=3, columns=3, instances=2, etas=(1.0,), times=4, tolerance=1e-6),
    paper=dict(samples=8, tokens=9, dim=16, columns=16, instances=30), run=run, claims=claims, figures=figures,
)  # fmt: skip
