"""One transformer: what Algorithm 1 predicts, at its initial weights, and what the gradient flow does.

window   of stage k: between the points half-way to the predicted times of the stages before and after it
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.head_stages import passings, predicted_stages, resolved_stages

if TYPE_CHECKING:
    from saddlescope.flow import Trajectory
    from saddlescope.models import TransformerTeacherTask
    from saddlescope.papers.gradual_rank.example_3_2 import Params
    from saddlescope.theory import IncrementalLearning

ORDERS = ("limit", "finite")
"""The two predictions of a stage's time: T_k, and T_k + C_k / log(1/alpha)."""


def stages_and_flows(
    task: "TransformerTeacherTask", params: "Params", report: Callable[[float, str], None]
) -> xr.Dataset:
    """Algorithm 1's stages with both predictions of their times, and the flow from each scale held against them."""
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(
        task.network,
        task.network.h.size,
        weights=(task.u0, task.v0),
        max_stages=params.stages,
        report=lambda fraction, note: report(0.6 * fraction, f"Algorithm 1, {note}"),
    )
    first = learned.stages[1].time
    stages = predicted_stages(learned, until=params.horizon * first)
    time = np.linspace(0, 1.05 * params.horizon, params.points)  # in units of T_1
    begun = np.searchsorted(stages.predicted_time, time * first, side="right")
    told = time * first < learned.end  # nothing is predicted after the end, where there is one
    flows = []
    for n, log10_scale in enumerate(params.log10_scales):
        report(0.6 + 0.4 * n / len(params.log10_scales), f"gradient flow from alpha = 1e{log10_scale:g}")
        flows.append(_simulate(task, learned, params, time * first, log10_scale))
    together = xr.concat(flows, dim="scale").assign_coords(scale=list(params.log10_scales), order=list(ORDERS))
    return xr.merge([stages, together]).assign(
        time=("time", time, {"units": "T_1"}),
        entering=("stage", np.array([len(stage.entered) for stage in learned.stages[1:]])),
        held=("stage", stages.predicted_time.values < params.horizon * first),
        predicted_loss_curve=(
            "time",
            np.where(told, np.append(learned.stages[0].loss, stages.predicted_loss)[begun], np.nan),
        ),
        product_error=product_error(task),
        converged=learned.status.value == "converged",
        theory_message=learned.message,
    )


def _simulate(
    task: "TransformerTeacherTask",
    learned: "IncrementalLearning",
    params: "Params",
    times: np.ndarray,
    log10_scale: float,
) -> xr.Dataset:
    """Gradient flow from one scale: curves, stage times in the windows of both predictions, and plateaus."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    log_alpha = log10_scale * np.log(10)
    trajectory = gradient_flow(
        task.network,
        DiagonalInit(task.u0, task.v0, log_scale=log_alpha),
        until=float(times[-1]),
        tolerance=params.tolerance,
    )
    limit = np.array([stage.time for stage in learned.stages])
    predicted = [np.append(order, learned.end) for order in (limit, learned.times_at(log_alpha))]
    middle = (predicted[1][1:-1] + np.minimum(predicted[1][2:], times[-1])) / 2
    seen = (middle > 0) & (middle < times[-1])
    plateau = np.full((len(middle), task.network.h.size), np.nan)
    plateau[seen] = trajectory(middle[seen])
    return xr.Dataset(
        {
            "told_time": (("order", "stage"), np.stack([order[1:-1] for order in predicted])),
            "found_time": (("order", "stage"), np.stack([_in_windows(trajectory, learned, o) for o in predicted])),
            "plateau_beta": (("stage", "coordinate"), plateau),
            "resolved": ("stage", seen & resolved_stages(learned, log_alpha, efolds=-np.log(params.level))),
            "loss": ("time", np.interp(times, trajectory.times, trajectory.losses)),
            "beta": (("time", "coordinate"), trajectory(times)),
            "gradients": trajectory.evaluations.gradients,
        }
    )


def _in_windows(trajectory: "Trajectory", learned: "IncrementalLearning", predicted: np.ndarray) -> np.ndarray:
    """t_k of each stage k = 1, 2, ..., if it lies in the window around predicted[k]; else NaN."""
    found = np.full(len(learned.stages) - 1, np.nan)
    windows = (predicted[1:] + predicted[:-1]) / 2
    for k, stage in enumerate(learned.stages[1:]):
        for i in stage.entered:
            times = passings(trajectory, lambda beta, i=i, half=stage.beta[i] / 2: beta[:, i] / half)
            inside = times[(times > windows[k]) & (times < windows[k + 1])]
            found[k] = np.fmin(found[k], inside[0] if inside.size else np.nan)
    return found


def product_error(task: "TransformerTeacherTask") -> float:
    """How much the output of Example 3.2, as printed, changes when W_K, W_Q, W_V and W_O change but not their products.

    Random diagonals w_K, w_Q, w_V, w_O are written into full matrices; then each w_K and w_V is multiplied by a random
    number c of either sign, entry by entry, and w_Q and w_O are divided by it. The output's largest change, and its
    largest distance from h(X; u * v), are taken relative to its largest entry.
    """
    import jax.numpy as jnp

    h, rng = task.network.h, np.random.default_rng(0)
    x = np.asarray(task.network.inputs[0])
    u, v = rng.standard_normal((2, h.size))
    c = np.exp(rng.standard_normal(h.size)) * rng.choice([-1.0, 1.0], h.size)

    def output(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        z = x
        shape = (h.layers, h.heads, 2, h.dim)
        for layer, heads in enumerate(zip(u.reshape(shape), v.reshape(shape), strict=True)):
            attended = np.zeros_like(z)
            for (w_k, w_v), (w_q, w_o) in zip(*heads, strict=True):
                scores = np.exp(z @ np.diag(w_k) @ np.diag(w_q).T @ z.T)
                attended += scores / scores.sum(1, keepdims=True) @ z @ np.diag(w_v) @ np.diag(w_o).T
            z = z + attended
            if h.W_A is not None and h.W_B is not None:
                inner = np.asarray(h.activation(jnp.asarray(z @ np.asarray(h.W_A[layer]))))
                z = z + inner @ np.asarray(h.W_B[layer]).T
        return z

    printed = output(u, v)
    changed = output(c * u, v / c)
    products = np.asarray(h(jnp.asarray(x), jnp.asarray(u * v)))
    return float(max(np.abs(changed - printed).max(), np.abs(products - printed).max()) / np.abs(printed).max())
