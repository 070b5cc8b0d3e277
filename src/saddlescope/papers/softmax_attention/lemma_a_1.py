"""Lemma A.1: the flow of diagonal weights in closed form, and the fall of its loss.

The parameters w_+ and w_- are followed from w_+ = w_- = omega_0, which differs from coordinate to coordinate (the paper
proves equal ones and says the others are similar), and phi = 2 int r dt beside them, by an explicit solver of high
order. The data are Gaussian; besides the paper's exponential loss the logistic one is used.

    closed form   |beta - omega_0^2 sinh(B phi)| / |beta|, largest entries (equation 19)
    speed         the same for d beta/dt = 2 sqrt(beta^2 + omega_0^4) * (-grad L), the second half of the lemma
    fall          the measured dL/dt over -<grad L, c sqrt(beta^2 + omega_0^4) * grad L>, c = 2

Where a sample is lost (the logistic loss does not meet Assumption 3 here) the loss hardly falls, and no ratio is
reported. Equation 27 has c = 2/n in that place, though grad L holds a 1/n already: it is off by a factor of n.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.shared.parameter_flow_entries import ParameterFlowParams, largest, run_cases
from saddlescope.plot import Axis, Figure, Line, Mark, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.papers.softmax_attention.shared.parameter_flow_cases import Case

_VISIBLE = 1e-4  # fall of ln(L - L*) with ln t below which differences of times do not resolve it: a sample is lost

_APART = 0.01  # in ln t, between the five times that dL/dt and d beta/dt are taken from


class Params(ParameterFlowParams):
    """Sizes, instances and times."""

    scale: float = param(0.3, "typical omega_0")
    log10_times: tuple[float, ...] = param((1.0, 3.0, 6.0, 10.0, 20.0, 40.0, 70.0, 100.0), "log10 t")
    seed: int = param(100, "of everything")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow every case: beta and phi, and the loss at times around each recorded one."""
    parts = run_cases(params, context, partial(_measure, log10_times=np.array(params.log10_times)), from_zero=True)
    return xr.concat(parts, "case").assign_coords(log10_time=("time", np.array(params.log10_times)))


def _measure(_number: int, case: "Case", *, log10_times: np.ndarray) -> xr.Dataset:
    from saddlescope.papers.softmax_attention.shared.parameter_flow import SQUARES, parameter_flow

    log_times = log10_times * np.log(10)
    around = (log_times[:, None] + _APART * np.arange(-2, 3)).ravel()
    flow = parameter_flow(case.data, case.loss, SQUARES, case.squares, around, with_phi=True)
    B, omega = case.data.features, case.squares[0]
    assert flow.phi is not None
    closed = omega**2 * np.sinh(np.einsum("knm,nmd->kd", flow.phi, B))
    betas = flow.beta.reshape(-1, 5, case.data.dim)
    losses = np.array([case.loss.log_excess(B @ beta) for beta in flow.beta]).reshape(-1, 5)
    beta = betas[:, 2]
    log_rates, signs = zip(*(case.loss.log_rates(B @ each) for each in beta), strict=True)
    pulls = np.einsum("knm,nmd->kd", np.array(signs) * np.exp(np.array(log_rates) + log_times[:, None, None]), B)
    speeds = 2 * np.hypot(beta, omega**2) * pulls  # d beta / d ln t by the lemma
    powers = np.sum(pulls * speeds, axis=1)  # -t^2 dL/dt by equation 27, with its constant mended
    slope = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / (12 * _APART)  # d/d ln t from five times
    measured_speeds = np.einsum("kad,a->kd", betas, slope)
    falls = -(losses @ slope)  # -d ln(L - L*) / d ln t
    fall = np.where(falls > _VISIBLE, falls * np.exp(losses[:, 2] + log_times), np.nan)
    largest = np.abs(flow.beta).max(axis=1)
    return xr.Dataset(
        {
            "closed_form": ("time", (np.abs(closed - flow.beta).max(axis=1) / largest)[2::5]),
            "speed": ("time", np.abs(speeds - measured_speeds).max(axis=1) / np.abs(measured_speeds).max(axis=1)),
            "fall": ("time", fall / powers),
            "samples": case.data.samples,
        },
        coords={"case": case.name},
    )


claims = Claims()

claims.add(
    "closed-form",
    "beta(t) = omega_0^2 * sinh(B phi(t)) for t of 1e3 or more",
    quantity="largest deviation over the largest entry",
    kind="own",
    source="Lemma A.1, equation 19; the bound is this project's bar for an identity followed numerically",
    high=1e-10,
)(partial(largest, "closed_form"))

claims.add(
    "speed",
    "d beta/dt = 2 sqrt(beta^2 + omega_0^4) * (-grad L) for t of 1e3 or more",
    quantity="largest relative deviation",
    kind="printed",
    source="Lemma A.1, second half; the bound is that of differences of five times 1 % apart",
    high=1e-6,
)(partial(largest, "speed"))


@claims.add(
    "equation-27-as-printed",
    "dL/dt = -<grad L, (2/n) sqrt(beta^2 + omega_0^4) * grad L>",
    quantity="smallest relative deviation",
    kind="printed",
    source="Equation 27 as printed; its 1/n is in grad L already. The bound is that of differences of times",
    high=1e-6,
)
def _printed_fall_error(run: xr.Dataset) -> Estimate:
    """Return the smallest relative deviation of dL/dt from equation 27 as printed."""
    ratio = run.fall * run.samples
    return Estimate(
        float(abs(ratio - 1).min()), remark=f"dL/dt is {float(ratio.min()):.4g} to {float(ratio.max()):.4g} of it"
    )


@claims.add(
    "equation-27-corrected",
    "dL/dt = -<grad L, 2 sqrt(beta^2 + omega_0^4) * grad L>",
    quantity="largest relative deviation",
    kind="printed",
    source="Equation 27 without its second 1/n; the bound is that of differences of times",
    high=1e-6,
)
def _fall_error(run: xr.Dataset) -> Estimate:
    seen = int(run.fall.notnull().sum())
    return Estimate(float(abs(run.fall - 1).max()), remark=f"{seen} of {run.fall.size} times resolve the fall")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the error of the closed form, and the measured fall over that of equation 27."""
    time = run.log10_time.values
    kinds = {"closed_form": "closed form", "speed": "speed"}
    errors = [
        Line(x=time, y=np.maximum(row, 1e-17), group=label, color=color, width=1.2, opacity=0.7)
        for color, (name, label) in enumerate(kinds.items())
        for row in run[name].values
    ]
    sizes = sorted({int(n) for n in run.samples.values})
    falls = []
    for color, n in enumerate(sizes):
        for row in run.fall.values[run.samples.values == n]:
            falls.append(Line(x=time, y=row * n, group=f"as printed, n = {n}", color=2 + color, width=1.4))
            falls.append(Line(x=time, y=row, group="with its constant mended", color=5, width=1.4))
    late = Axis("time, log10 t")
    return [
        Figure(
            name="closed-form",
            title="The closed form holds; equation 27 counts 1/n twice",
            caption="Left: relative deviations of the flow from omega_0^2 sinh(B phi), and of its speed, measured by "
            "differences of times, from the lemma's. Right: the measured dL/dt over that of equation 27, as printed "
            "and with 2 in place of 2/n.",
            panels=(
                Panel(
                    title="relative deviations",
                    x=late,
                    y=Axis("relative deviation", scale="log"),
                    marks=(*errors, Mark(at=1e-10, label="bar", axis="y")),
                ),
                Panel(title="equation 27", x=late, y=Axis("dL/dt over the equation's"), marks=tuple(falls)),
            ),
        )
    ]


entry = Entry(
    "softmax-attention/lemma-a-1",
    "Lemma A.1: the flow of diagonal weights in closed form, and the fall of its loss",
    citation=CITATION,
    source="Lemma A.1, equations 19 and 27",
    params=Params,
    quick=dict(samples=(4,), tokens=(5,), dims=(8,), instances=1, log10_times=(1.0, 3.0, 10.0), seed=2),
    paper=dict(instances=20),
    run=run,
    claims=claims,
    figures=figures,
)
