"""Plateaus of Algorithm 1 in flows of an attention head: many flows of one kind at once.

Flows that share a kind differ in seed and initial scale. The results of one do not depend on the others.
"""

from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report

if TYPE_CHECKING:
    from saddlescope.theory import IncrementalLearning

_STILL = 0.02  # of the largest |beta_i|

_SPACING = 0.003  # of the records, in log t

_AT_ONCE = 96  # flows: of their records, some 100 MB


class Kind(NamedTuple):
    """Properties that the flows of one batch share."""

    dim: int
    samples: int
    tokens: int
    tolerance: float


class Flow(NamedTuple):
    """Properties in which flows of one kind differ, and the level at which plateaus are judged."""

    seed: int
    log10_scale: float
    level: float


def followed(kind: Kind, flows: list[Flow], report: Report) -> xr.Dataset:
    """Run Algorithm 1 for every seed, and all flows, over `flow`."""
    from saddlescope.flow import DiagonalInit, gradient_flow_batched
    from saddlescope.models import attention_teacher_task
    from saddlescope.theory import incremental_learning

    dim, tasks, learned = kind.dim, {}, {}
    seeds = sorted({flow.seed for flow in flows})
    for n, seed in enumerate(seeds):
        report(0.5 * n / len(seeds), f"dimension {dim}, seed {seed}: Algorithm 1")
        tasks[seed] = attention_teacher_task(seed, samples=kind.samples, tokens=kind.tokens, dim=dim)
        learned[seed] = incremental_learning(tasks[seed].network, 2 * dim, max_stages=3 * dim)
    looks = []
    for first in range(0, len(flows), _AT_ONCE):
        some = flows[first : first + _AT_ONCE]
        times = _records([learned[flow.seed] for flow in some])
        start, stop = (0.5 + 0.5 * at / len(flows) for at in (first, first + len(some)))
        paths = gradient_flow_batched(
            [tasks[flow.seed].network for flow in some],
            [
                DiagonalInit(task.u0, task.v0, log_scale=flow.log10_scale * log(10))
                for flow, task in ((flow, tasks[flow.seed]) for flow in some)
            ],
            until=float(times[-1]),
            tolerance=kind.tolerance,
            record=times,
            report=lambda done, note, start=start, stop=stop: report(
                start + (stop - start) * done, f"dimension {dim}: {note}"
            ),
        )
        looks += [
            _look(learned[flow.seed], flow, paths.times, beta) for flow, beta in zip(some, paths.beta, strict=True)
        ]
    stages = 3 * dim
    told = {name: np.full((len(flows), stages), np.nan) for name in ("efolds", "found", "least")}
    for n, look in enumerate(looks):
        for name, values in told.items():
            values[n, : len(look.found)] = getattr(look, name)
    return xr.Dataset(
        {
            **{name: (("flow", "plateau"), values) for name, values in told.items()},
            "held": ("flow", np.array([look.held for look in looks], float)),
            "plateaus": ("flow", np.array([len(look.found) for look in looks])),
        },
        coords={"plateau": np.arange(1, stages + 1)},
    )


def _end(learned: "IncrementalLearning") -> float:
    return 1.1 * learned.stages[-1].time


def _records(learned: "list[IncrementalLearning]") -> np.ndarray:
    """Return times to record at, on one grid for all runs, whatever flows are followed together."""
    first = log(0.5 * min(one.stages[1].time for one in learned)) // _SPACING
    last = log(max(_end(one) for one in learned)) // _SPACING + 1
    return np.exp(_SPACING * np.arange(first, last + 1))


class _Look(NamedTuple):
    """Measurements on the plateaus of a flow."""

    efolds: np.ndarray
    found: np.ndarray
    least: np.ndarray
    held: int


def _look(learned: "IncrementalLearning", flow: Flow, times: np.ndarray, beta: np.ndarray) -> _Look:
    middles, betas = _plateaus(learned)
    at = np.abs(beta[np.searchsorted(times, middles)]) > flow.level
    own = (times >= 0.5 * learned.stages[1].time) & (times <= _end(learned))
    return _Look(
        _efolds(learned, flow.log10_scale * log(10)),
        (at == (betas != 0)).all(axis=1),
        np.where(betas != 0, np.abs(betas), np.inf).min(axis=1),
        _held(times[own], beta[own], flow.level),
    )


def _plateaus(learned: "IncrementalLearning") -> tuple[np.ndarray, np.ndarray]:
    """Return the middles of all plateaus between two stages, (plateaus,), and beta on each, (plateaus, p)."""
    times = np.array([stage.time for stage in learned.stages[1:]])
    return (times[1:] + times[:-1]) / 2, np.stack([stage.beta for stage in learned.stages[1:-1]])


def _efolds(learned: "IncrementalLearning", log_alpha: float) -> np.ndarray:
    """Return the e-folds by which each plateau between two stages is separated at alpha, (plateaus,)."""
    least = np.full(len(learned.stages), np.inf)
    for tie in learned.near_ties(log_alpha, efolds=1e300):
        least[tie.stage] = min(least[tie.stage], tie.efolds)
    return least[1:-1]


def _held(times: np.ndarray, beta: np.ndarray, level: float) -> int:
    """Count the spans of one set of learned coordinates that settle, the first and the last left out."""
    learned = np.abs(beta) > level
    edges = np.flatnonzero((learned[1:] != learned[:-1]).any(axis=1)) + 1
    count = 0
    for first, after in pairwise(edges):
        middle = np.searchsorted(times, (times[first] + times[after - 1]) / 2)
        moved = np.abs(beta[after - 1] - beta[middle])[learned[first]]
        count += bool(learned[first].any() and moved.max() <= _STILL * np.abs(beta[after - 1]).max())
    return count
