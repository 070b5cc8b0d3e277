"""Lemma 4.1: keys times queries and a difference of squares are one flow.

The flows beta = xi_k * xi_q and w = (w_+^2 - w_-^2)/2 are followed separately, in their parameters, by an explicit
solver of high order. The starts agree in beta(0) = w(0) and in the sums of squares (equation 4), as the lemma asks, and
in nothing else: beta(0) is not 0, and the signs and the order of xi_k and xi_q are drawn at random. The data are
Gaussian; besides the paper's exponential loss the logistic one is used, to which the proof extends.

    difference  |beta - w| / |w|, largest entries
    drifts      of xi_k^2 - xi_q^2, relative to xi_k^2 + xi_q^2 at the start, and of w_+ w_-, relative to itself:
                both are conserved
    control     |beta - w| / |w| where xi_k and xi_q start from the same beta(0) but other sums of squares
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.shared.parameter_flow_entries import (
    JUDGED_FROM,
    ParameterFlowParams,
    largest,
    run_cases,
)
from saddlescope.plot import Axis, Figure, Line, Mark, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.papers.softmax_attention.shared.parameter_flow_cases import Case


class Params(ParameterFlowParams):
    """Sizes, instances and times."""

    scale: float = param(0.3, "typical w_+ and w_- at the start")
    log10_times: tuple[float, ...] = param(
        (
            0.0,
            1.0,
            2.0,
            3.0,
            4.0,
            6.0,
            8.0,
            10.0,
            15.0,
            20.0,
            30.0,
            50.0,
            70.0,
            100.0,
        ),
        "log10 t",
    )
    seed: int = param(0, "of everything")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow every case in both parametrisations, and once from a start against equation 4."""
    log_times = np.array(params.log10_times) * np.log(10)
    parts = run_cases(params, context, partial(_compare_parametrisations, log_times=log_times), from_zero=False)
    example = parts[0][["beta", "w", "other_beta"]]
    compared = xr.concat([part.drop_dims("entry", errors="ignore") for part in parts], "case")
    return xr.merge([compared, example]).assign_coords(log10_time=("time", np.array(params.log10_times)))


def _compare_parametrisations(number: int, case: "Case", *, log_times: np.ndarray) -> xr.Dataset:
    from saddlescope.papers.softmax_attention.shared.parameter_flow import KEYS_AND_QUERIES, SQUARES, parameter_flow

    follow = partial(parameter_flow, case.data, case.loss)
    keys = follow(KEYS_AND_QUERIES, case.keys, log_times=log_times)
    squares = follow(SQUARES, case.squares, log_times=log_times)
    k, q = case.keys
    early = log_times <= JUDGED_FROM * np.log(10)
    other = np.full_like(keys.beta, np.nan)  # from the same beta(0)
    other[early] = follow(KEYS_AND_QUERIES, (2 * k, q / 2), log_times=log_times[early], tolerance=1e-11).beta
    sizes = np.abs(squares.beta).max(axis=1)

    def drift(moved: np.ndarray, start: np.ndarray, unit: np.ndarray) -> np.ndarray:
        return np.max(np.abs(moved - start) / unit, axis=1)

    plus, minus = case.squares
    found = {
        "difference": ("time", np.abs(keys.beta - squares.beta).max(axis=1) / sizes),
        "control": ("time", np.abs(other - squares.beta).max(axis=1) / sizes),
        "drift_of_keys": ("time", drift(keys.first**2 - keys.second**2, k**2 - q**2, k**2 + q**2)),
        "drift_of_squares": ("time", drift(squares.first * squares.second, plus * minus, plus * minus)),
        "size": ("time", sizes),
        "evaluations": keys.evaluations + squares.evaluations,
    }
    if number == 0:
        found |= {"beta": (("time", "entry"), keys.beta), "w": (("time", "entry"), squares.beta)}
        found |= {"other_beta": (("time", "entry"), other)}
    return xr.Dataset(found, coords={"case": case.name})


claims = Claims()

claims.add(
    "equivalence",
    "beta(t) = w(t) for t of 1e3 or more, from starts that agree in (4) alone",
    quantity="largest |beta - w| / |w|",
    kind="own",
    source="Lemma 4.1; the bound is this project's bar for an identity followed numerically",
    high=1e-10,
)(partial(largest, "difference"))

claims.add(
    "keys-and-queries-conserve",
    "xi_k^2 - xi_q^2 stays",
    quantity="largest drift over xi_k^2 + xi_q^2 at the start, t of 1e3 or more",
    kind="own",
    source="Equations 10 and 14 give it; the bound is this project's bar",
    high=1e-10,
)(partial(largest, "drift_of_keys"))

claims.add(
    "squares-conserve",
    "w_+ w_- stays",
    quantity="largest relative drift, t of 1e3 or more",
    kind="own",
    source="Equations 11 and 12 give it; the bound is this project's bar",
    high=1e-10,
)(partial(largest, "drift_of_squares"))


@claims.add(
    "sums-of-squares-matter",
    "(4) needs its sums of squares",
    quantity="with beta(0) = w(0) alone the flows part, |beta - w| / |w| by t = 1e3",
    kind="own",
    source="Equations 10 and 13, whose right-hand sides differ; the bound is this project's, far above rounding",
    low=1e-3,
)
def _smallest_control(run: xr.Dataset) -> Estimate:
    last = int((run.log10_time <= JUDGED_FROM).sum()) - 1
    at = run.control.values[:, last]
    when = run.log10_time.values[last]
    return Estimate(float(at.min()), remark=f"the nearest of {run.sizes['case']} cases, at t = 1e{when:g}")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the entries of beta in both parametrisations, and their distance."""
    time = run.log10_time.values
    entries = np.argsort(-np.abs(run.w.values[-1]))[:4]
    curves, early = [], time <= 10
    for color, j in enumerate(entries):
        drawn = {"x": time[early], "group": f"w_{j}", "color": color}
        curves += [
            Line(y=run.w.values[early, j], width=5.0, opacity=0.35, **drawn),
            Line(y=run.beta.values[early, j], width=1.4, **drawn),
            Line(y=run.other_beta.values[early, j], width=1.4, style="dotted", **drawn),
        ]
    kinds = {
        "difference": "β − w",
        "drift_of_keys": "ξ_k² − ξ_q²",
        "drift_of_squares": "w₊ w₋",
        "control": "β − w, against (4)",
    }
    errors = [
        Line(x=time, y=row, group=label, color=4 + color, width=1.0, opacity=0.7)
        for color, (name, label) in enumerate(kinds.items())
        for row in np.maximum(run[name].values, 1e-17)
    ]
    late = Axis("time, log10 t")
    return [
        Figure(
            name="equivalence",
            title="Two parametrisations, one flow",
            caption="Left: the four largest entries of the first case, as a difference of squares (wide) and as keys "
            "times queries (thin, on top); dotted, keys times queries from the same beta(0) but other sums of "
            "squares, against equation 4, to t = 1e3. Right, all cases: how far they are apart, and by how much what "
            "they conserve drifts.",
            panels=(
                Panel(title="entries of β", x=late, y=Axis("β and w"), marks=tuple(curves)),
                Panel(
                    title="relative deviations",
                    x=late,
                    y=Axis("relative deviation", scale="log"),
                    marks=(*errors, Mark(at=1e-10, label="bar", axis="y")),
                ),
            ),
        )
    ]


entry = Entry(
    "softmax-attention/lemma-4-1",
    "Lemma 4.1: keys times queries and a difference of squares are one flow",
    citation=CITATION,
    source="Lemma 4.1, appendix A.2",
    params=Params,
    quick=dict(samples=(4,), tokens=(5,), dims=(8,), instances=1, log10_times=(1.0, 3.0, 6.0, 10.0), seed=2),
    paper=dict(instances=20),
    run=run,
    claims=claims,
    figures=figures,
)
