"""Checks of Algorithm 1 on one problem against solvers that know no dynamics, and against the flow."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    from saddlescope.flow import DiagonalInit
    from saddlescope.models.diagonal.linear import DiagonalLinearNetwork
    from saddlescope.theory import IncrementalLearning


class PosedProblem(NamedTuple):
    """A problem, Algorithm 1's result, and the flow to compare with it."""

    features: np.ndarray
    targets: np.ndarray
    network: "DiagonalLinearNetwork"
    learned: "IncrementalLearning"
    start: "DiagonalInit"
    until: float


def compare(posed: PosedProblem, end: np.ndarray, left: float, gradients: int) -> xr.Dataset:
    """Compare Algorithm 1 with the exact solution, and with the flow's end and the part of the loss left there."""
    learned, last = posed.learned, posed.learned.stages[-1]
    shortest = least_l1_interpolator(posed.features, posed.targets)
    return xr.Dataset(
        {
            **stage_checks(learned, posed.features, posed.targets),
            "converged": learned.status.value == "converged",
            "norm": np.abs(last.beta).sum(),
            "least_norm": np.abs(shortest).sum(),
            "difference": np.abs(last.beta - shortest).max(),
            "flow_norm": np.abs(end).sum(),
            "flow_loss": left,
            "flow_gradients": gradients,
        },
        coords={"stage": np.arange(1, len(learned.stages))},
    )


def path_over_time(learned: "IncrementalLearning", times: np.ndarray, flow_beta: np.ndarray) -> dict[str, tuple]:
    """Return the coordinates of one problem over time: of the flow, of Algorithm 1, and its slopes xi."""
    begun = np.searchsorted([stage.time for stage in learned.stages], times, side="right") - 1
    stages = [learned.stages[k] for k in begun]
    slope = [
        stage.slope + (time - stage.time) * np.where(stage.beta == 0, stage.gradient, 0)
        for stage, time in zip(stages, times, strict=True)
    ]
    return {
        "time": ("moment", times),
        "flow_beta": (("moment", "coordinate"), flow_beta),
        "predicted_beta": (("moment", "coordinate"), np.stack([stage.beta for stage in stages])),
        "predicted_slope": (("moment", "coordinate"), np.stack(slope)),
    }


def stage_checks(learned: "IncrementalLearning", features: np.ndarray, targets: np.ndarray) -> dict[str, tuple]:
    """Return Algorithm 1's errors over `stage` 1, 2, ..., with g, xi and nu computed independently.

    - least_squares: difference of theta^k from non-negative least squares on the active coordinates;
    - subgradient: how far xi(T_k) is from the subgradients of the l1 norm at theta^k, and from +-1 where one enters.
    """
    from scipy.optimize import nnls

    n = len(targets)
    nu, rows = np.zeros(n), []
    before = learned.stages[0]
    for stage in learned.stages[1:]:
        rate = 2 / n * (targets - features @ before.beta)
        nu += (stage.time - before.time) * rate
        xi = features.T @ nu
        (entered,) = stage.entered
        signs = np.sign(before.beta)
        signs[entered] = np.sign(rate @ features[:, entered])
        active = np.flatnonzero(signs)
        exact = np.zeros_like(xi)
        exact[active] = signs[active] * nnls(features[:, active] * signs[active], targets)[0]
        subgradient = max(
            np.abs(xi - np.sign(exact))[exact != 0].max(initial=0.0),
            (np.abs(xi) - 1).max(initial=0.0),
            abs(xi[entered] - signs[entered]),
        )
        rows.append((stage.time, len(stage.left), np.abs(stage.beta - exact).max(), subgradient))
        before = stage
    time, left, least_squares, subgradient = np.array(rows).T
    return {
        "stage_time": ("stage", time),
        "left": ("stage", left),
        "least_squares": ("stage", least_squares),
        "subgradient": ("stage", subgradient),
        "residual": ((), np.abs(features @ before.beta - targets).max()),
        "duality_gap": ((), abs(np.abs(before.beta).sum() - nu @ targets)),
    }


def least_l1_interpolator(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the beta of least l1 norm with X beta = y, by HiGHS."""
    from scipy.optimize import linprog

    p = features.shape[1]
    found = linprog(
        np.ones(2 * p),
        A_eq=np.hstack([features, -features]),
        b_eq=targets,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not found.success:
        raise RuntimeError(f"The linear programme was not solved: {found.message}")
    return found.x[:p] - found.x[p:]
