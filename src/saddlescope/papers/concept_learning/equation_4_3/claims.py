"""Claims of the entry `equation_4_3`."""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.shared.two_layer_runs import EXACT_LAW, stored_error
from saddlescope.reproduction.claim import Claim, Claims, Estimate, Kind


def largest_value(run: xr.Dataset, *, name: str) -> Estimate:
    """Return the largest value of a stored variable."""
    return Estimate(float(run[name].max()), remark=f"{run[name].size} cases" if run[name].size > 1 else "")


def stage_time_error(run: xr.Dataset, *, predicted: str, scale: int) -> Estimate:
    """Return the median over starts of the largest error of a stage time."""
    one = run.isel(scale=scale)
    errors = abs(one.found_time - one[predicted]).max("concept").values
    remark = f"scale {float(one.scale):g}; mean {errors.mean():.3g}, largest {errors.max():.3g}"
    return Estimate(float(np.median(errors)), remark=remark)


_EXACT, _CLOSED, _LATE, _SCHUR = 1e-12, 1e-9, 0.02, 1e-3  # this project's bars

claims = Claims()

claims.add(
    "identity",
    "Corrected: gradient flow of equation 4.1 is dW/dt = 2 (G - S - N)",
    quantity="largest relative difference from autodiff",
    kind="own",
    source="The gradient of the loss, exact; this project's bar",
    high=_EXACT,
)(partial(largest_value, name="identity_error"))


@claims.add(
    "printed",
    "Printed: it is dW/dt = G - S - N",
    quantity="the same difference",
    kind="printed",
    source="Equation 4.3 and D.2 (D.1, with the gradient of the same loss, is twice D.2)",
    high=_EXACT,
)
def printed_error(run: xr.Dataset) -> Estimate:
    """Return the largest difference of dW/dt from the printed equation."""
    return Estimate(float(run.printed_error.max()), remark=f"from {float(run.printed_error.min()):.15g} on")


@claims.add(
    "log-det",
    "d/dt log det W = 4 tr(A (1 - W)) from every start of every scale",
    quantity="largest error over the run",
    kind="own",
    source="Jacobi's formula, exact; this project's bar",
    high=EXACT_LAW,
)
def log_det_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of the law of log det W."""
    inner, gauss = float(run.drift.max()), float(run.log_det_error.max())
    return Estimate(max(inner, gauss), remark=f"by the flow's own series {inner:.2g}, by Gauss's formula {gauss:.2g}")


claims.extend(
    (
        Claim(
            name=name.replace("_", "-"),
            statement=f"The closed form for {says} is the flow",
            quantity="largest difference of an entry of W",
            kind=Kind.OWN,
            source="theory.concepts; this project's bar",
            high=_CLOSED,
            statistic=partial(stored_error, name=f"{name}_error"),
        )
        for name, says in (
            ("rank_one", "a W of rank one, by a quadrature,"),
            ("diagonal", "a diagonal W, logistic,"),
            ("proportional", "equal strengths, logistic in the eigenvalues,"),
        )
    )
)

claims.add(
    "noise-omitted",
    "Printed: the noise is never too large and may be left out",
    quantity="error that this makes in the time of the last stage to be wrong, at the smallest scale; median over starts",
    kind="own",
    source=f"Section 4.2, Lemma D.8; {_LATE} is this project's bar for stage times",
    high=_LATE,
    unit="t",
)(partial(stage_time_error, predicted="bare_time", scale=-1))


@claims.add(
    "noise-lasting",
    "Corrected: the error without noise is the same at every small scale",
    quantity="its ratio at the two smallest",
    kind="printed",
    source="log(w_kk(0) / s_k) / (4 a_k), with the Schur complement s_k: the scale cancels",
    low=0.95,
    high=1.05,
)
def error_ratio(run: xr.Dataset) -> Estimate:
    """Return the median error without noise at the smallest scale over that at the scale before."""
    late = [stage_time_error(run, predicted="bare_time", scale=n).value for n in (-2, -1)]
    return Estimate(late[1] / late[0], remark=f"{late[0]:.4f} and {late[1]:.4f}")


@claims.add(
    "noise-size",
    "Corrected: the noise is as large as the growth it works against",
    quantity="largest N_kk / G_kk over the run for the weakest concept, at the smallest scale; median over starts",
    kind="printed",
    source="Two entries of size w make one of size w^2 in N; half for 'as large as', before the run",
    low=0.5,
)
def noise_share(run: xr.Dataset) -> Estimate:
    """Return the largest N_kk / G_kk of the weakest concept at the smallest scale, median over starts."""
    weak = int(np.argmin(run.strength.values))
    shares = run.noise_share.isel(scale=-1, concept=weak).values
    return Estimate(float(np.median(shares)), remark=f"smallest {shares.min():.3f}, largest {shares.max():.3f}")


claims.add(
    "schur",
    "With the noise, by Schur complements, the stage times are right",
    quantity="largest error, at the smallest scale; median over starts",
    kind="own",
    source="theory.concepts.concept_stages; this project's bar at scale 1e-5",
    high=_SCHUR,
    unit="t",
)(partial(stage_time_error, predicted="schur_time", scale=-1))
