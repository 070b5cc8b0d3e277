"""Measurements on one transformer: stage times in their windows, and the dependence on products of weights alone.

window   of stage k: between the points half-way to the predicted times of the stages before and after it
"""

from typing import TYPE_CHECKING

import numpy as np

from saddlescope.papers.gradual_rank.shared.stage_times import passings

if TYPE_CHECKING:
    from saddlescope.flow import Trajectory
    from saddlescope.models import TransformerTeacherTask
    from saddlescope.theory import IncrementalLearning


def times_in_windows(trajectory: "Trajectory", learned: "IncrementalLearning", predicted: np.ndarray) -> np.ndarray:
    """Return t_k of each stage k = 1, 2, ..., if it is in the window around predicted[k]; else NaN."""
    found = np.full(len(learned.stages) - 1, np.nan)
    windows = (predicted[1:] + predicted[:-1]) / 2
    for k, stage in enumerate(learned.stages[1:]):
        for i in stage.entered:
            times = passings(trajectory, lambda beta, i=i, half=stage.beta[i] / 2: beta[:, i] / half)
            inside = times[(times > windows[k]) & (times < windows[k + 1])]
            found[k] = np.fmin(found[k], inside[0] if inside.size else np.nan)
    return found


def product_error(task: "TransformerTeacherTask") -> float:
    """Return the largest relative change of the output of Example 3.2 when weights change but not their products.

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
