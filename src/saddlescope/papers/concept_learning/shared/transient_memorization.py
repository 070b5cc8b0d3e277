"""Transient memorization of many networks: descents of the loss out of distribution, outputs at its highest rise.

A network is transient if its loss falls, rises, and falls again, each by more than 5 % of its start: two descents. The
peak is the point at which the loss is highest above its lowest value before.
"""

from collections.abc import Iterable, Sequence
from typing import SupportsFloat

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.shared.perceptron_training import PerceptronTraining, PrintedConcepts, train
from saddlescope.plot import Axis, Line, Panel
from saddlescope.reproduction import Estimate, Evidence, RunContext
from saddlescope.reproduction.claim import wilson_interval

# A reader sees a rise of 5 % of the first loss in the paper's figures. The noise of SGD makes smaller ones: networks of
# width 64 at d = 2 have two descents in .6 of the runs with minibatches at a level of 1 %, in .06 without; .03 at 5 %.
HYSTERESIS = 0.05  # of the loss at the start: a descent exceeds it


def least(estimates: Iterable[Estimate]) -> Estimate:
    """Return the estimate with the smallest lower end of its interval; an unresolved one comes first."""
    return min(estimates, key=lambda one: one.value - one.uncertainty if np.isfinite(one.value) else -np.inf)


def difference_of_shares(
    first: tuple[SupportsFloat, int], second: tuple[SupportsFloat, int], remark: str = ""
) -> Estimate:
    """Return the first share less the second with Newcombe's 95 % interval, made symmetric; a share is (hits, trials).

    Unlike Wald's interval it has a width where a share is 0 or 1.
    """
    (p, *one), (q, *two) = ((float(hits) / of, *wilson_interval(hits, of)) for hits, of in (first, second))
    low, high = ((p - one[0]) ** 2 + (two[1] - q) ** 2) ** 0.5, ((one[1] - p) ** 2 + (q - two[0]) ** 2) ** 0.5
    n = first[1] + second[1]
    return Estimate(p - q, max(low, high), remark, n, evidence=Evidence.SAMPLE, over="seeds")


def train_kind(
    kind: str, training: PerceptronTraining, tasks: Sequence[PrintedConcepts], seeds: Sequence[int], context: RunContext
) -> xr.Dataset:
    """Train networks of a named kind; return their output, test loss and `loss_descents`, over (task, seed)."""
    found = train(training, tasks, seeds, report=context.report)
    found = found[["output", "test_loss", "mu"]].drop_vars("time")
    return found.assign(loss_descents(found, "task", "seed").data_vars).assign_coords(kind=kind, depth=training.depth)


def loss_descents(found: xr.Dataset, *network: str) -> xr.Dataset:
    """Return `descents`, the largest `rise` of the loss over its start, and `peak_output` there, for each network.

    Args:
        found: training runs, with `test_loss` and `output` over the networks and `step`.
        *network: names of the dimensions that number the networks.
    """
    from saddlescope.measure import find_descents

    losses = found.test_loss.transpose(*network, "step").values.astype(float)
    above = losses - np.minimum.accumulate(losses, axis=-1)
    peak = xr.DataArray(np.argmax(above, axis=-1), dims=network)
    counts = find_descents(losses.reshape(-1, losses.shape[-1]), hysteresis=HYSTERESIS).counts
    return xr.Dataset(
        {
            "descents": (network, counts.reshape(losses.shape[:-1])),
            "rise": (network, above.max(axis=-1) / losses[..., 0]),
            "peak_output": found.output.isel(step=peak).drop_vars("step"),
        }
    )


def near_cluster(outputs: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """Return whether outputs (..., concept) are nearer to the cluster of the strongest signal than to the target mu."""
    cluster = np.where(mu == mu.max(axis=-1, keepdims=True), mu, 0.0)
    return np.linalg.norm(outputs - cluster, axis=-1) < np.linalg.norm(outputs - mu, axis=-1)


def output_plane(title: str, mu: np.ndarray, paths: Iterable[Line]) -> Panel:
    """Draw paths of the output of two concepts, with the training clusters and the test point mu."""
    clusters = np.array([[mu[0], 0.0], [0.0, mu[1]], [0.0, 0.0]])
    marks = (
        *paths,
        Line(x=clusters[:, 0], y=clusters[:, 1], style="points", group="training clusters", color=2, width=5.0),
        Line(x=mu[:1], y=mu[1:], style="points", group="test point", color=3, width=5.0),
    )
    return Panel(title=title, x=Axis("output along concept 1"), y=Axis("output along concept 2"), marks=marks)
