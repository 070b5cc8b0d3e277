"""One run of the symmetric two-layer model, as in the figures of section 4.2 and appendix E, and its statistics.

piece   of the loss out of distribution between two of its turns: a fall or a rise
push    contribution of an entry w_ij to the change of the loss over a piece: the integral of dL/dw_ij dw_ij, for w_ij
        and w_ji together, split into the times at which |w_ij| grows and those at which it shrinks. All pushes add up
        to the change of the loss.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.shared.authors_programs import Program
from saddlescope.reproduction import EntryParams, Metric, param

_SAMPLES = 4001  # of a piece, for the integrals of its pushes

_SHOWN = 500  # times at which W is stored, evenly spaced in log time

_FIRST = 1e-3  # first stored time after 0, over the last time


class TwoLayerParams(EntryParams):
    """Data of the symmetric two-layer model; the defaults are those of Figure 8."""

    mu: tuple[float, ...] = param((1.0, 1.5, 2.2), "distance of each cluster from the origin", gt=0, least=2, most=6)
    sigma: tuple[float, ...] = param(
        (0.05, 0.05, 0.05), "standard deviation of the clusters along each concept", ge=0, least=2
    )
    until: float = param(40.0, "end of the gradient flow", unit="t", gt=0)

    def check(self) -> None:
        if len(self.sigma) != len(self.mu):
            raise InputError(f"sigma must be {len(self.mu)} numbers, one for each mu; got {self.sigma!r}.")


def strengths_and_test_point(mu: tuple[float, ...], sigma: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return strengths a and the test point, for infinitely many samples, no cluster at the origin, d = s."""
    from saddlescope.models import StructuredIdentityTask

    task = StructuredIdentityTask(mu, sigma, samples_per_cluster=1, dim=len(mu))
    return task.strengths, task.test_point


def follow_start(a: np.ndarray, x: np.ndarray, start: np.ndarray, until: float) -> xr.Dataset:
    """Follow one start; return W, loss and output, turns of the loss, and histories and pushes of all entries."""
    from saddlescope.flow import symmetric_flows, symmetric_path
    from saddlescope.measure import entry_histories
    from saddlescope.theory.concepts import concept_stages

    path = symmetric_path(a, start, until=until, tolerance=1e-11)
    flow = symmetric_flows(a, start[None], test_point=x, until=until, tolerance=1e-11)
    entries, stages = entry_histories(path, a).entries, concept_stages(a, start)
    turning = flow.turning_times[0, : flow.turns[0] + 2]
    times = np.concatenate([[0.0], np.geomspace(_FIRST * until, until, _SHOWN)])
    W = path(times)
    names = {"entry_row": "row", "entry_column": "column"} | {n: n for n in ("grows", "top", "height", "settles")}
    return xr.Dataset(
        {
            "W": (("time", "row", "column"), W),
            "loss": ("time", np.sum((W @ x - x) ** 2, axis=1) / 2),
            "output": (("time", "row"), W @ x),
            "turning_time": ("turn", turning),
            "turning_loss": ("turn", flow.turning_losses[0, : len(turning)]),
            "turning_W": (("turn", "row", "column"), path(turning)),
            **{name: ("entry", [getattr(one, of) for one in entries]) for name, of in names.items()},
            "push": (("piece", "entry", "phase"), _integrate_pushes(path, x, turning)),
            "predicted_time": ("row", stages.times),
            "predicted_peak_time": (("row", "column"), stages.peak_times),
            "strength": ("row", a),
            "test_point": ("row", x),
        },
        coords={"time": times, "phase": ["grows", "shrinks"]},
    )


_AUTHORS = "authors_"  # prefix of the variables and dimensions of a run of their program


def authors_run(program: Program) -> xr.Dataset:
    """Follow the flow with A² that an authors' program approximates, from its start to its end; names have a prefix."""
    one = follow_start(program.strengths**2, program.test_point, program.start, program.end)
    return one.rename({name: _AUTHORS + str(name) for name in (*one.variables, *one.dims)})


def of_authors(run: xr.Dataset) -> xr.Dataset:
    """Return the run of the authors' program among others, as `follow_start` does."""
    names = [str(name) for name in run.variables if str(name).startswith(_AUTHORS)]
    one = run[names].drop_vars([name for name in run.coords if name not in names], errors="ignore")
    return one.rename({name: name.removeprefix(_AUTHORS) for name in map(str, (*one.variables, *one.dims))})


def _integrate_pushes(path: Callable[[np.ndarray], np.ndarray], x: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the pushes of every piece, entry i <= j and phase, shape (pieces, entries, 2)."""
    rows, columns = np.triu_indices(len(x))
    pushes = []
    for first, last in pairwise(edges):
        W = path(np.linspace(first, last, _SAMPLES))
        slope = (W @ x - x)[:, :, None] * x  # dL/dW
        slope = slope + slope.swapaxes(1, 2) * (1 - np.eye(len(x)))
        change = np.diff(W, axis=0)
        push = (slope[1:] + slope[:-1]) / 2 * change
        grows = np.diff(np.abs(W), axis=0) > 0
        both = np.stack([np.sum(push * grows, axis=0), np.sum(push * ~grows, axis=0)], axis=-1)
        pushes.append(both[rows, columns])
    return np.array(pushes)


def half_times(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return when values (..., times, d) first pass 1/2, interpolated, (..., d); NaN where they do not."""
    after = np.argmax(values > 0.5, axis=-2)
    before = np.maximum(after - 1, 0)
    high, low = (np.take_along_axis(values, at[..., None, :], axis=-2)[..., 0, :] for at in (after, before))
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(after > 0, (0.5 - low) / (high - low), 0.0)
    return np.where(high > 0.5, times[before] + part * (times[after] - times[before]), np.nan)


def push_share(one: xr.Dataset, of: xr.DataArray, *, rising: bool) -> np.ndarray:
    """Return the share of some entries' pushes in all that drive each rise, or each fall.

    The pushes that drive a piece have the sign of its change. A rise before the first fall is left out.

    Args:
        one: a followed start.
        of: True for the pushes asked for, over entry or phase or both.
        rising: True for the rises, False for the falls.
    """
    way = np.sign(one.turning_loss.diff("turn").values)
    chosen = way > 0 if rising else way < 0
    chosen[:1] &= not rising
    drive = (one.push * way[:, None, None]).clip(0.0)[chosen]
    return ((drive * of).sum(("entry", "phase")) / drive.sum(("entry", "phase"))).values


def entry_index(one: xr.Dataset, i: int, j: int) -> int:
    """Return the index of w_ij among the entries."""
    low, high = sorted((i, j))
    return int(np.flatnonzero((one.entry_row.values == low) & (one.entry_column.values == high))[0])


METRICS = (
    Metric(
        "descents",
        "descents of the loss out of distribution",
        lambda run: float((run.turning_loss.diff("turn") < 0).sum()),
    ),
    Metric(
        "rise",
        "largest rise of the loss between neighbouring turns, over the first loss",
        lambda run: float(run.turning_loss.diff("turn").max().clip(0.0) / run.turning_loss[0]),
    ),
    Metric("final_loss", "final loss out of distribution", lambda run: float(run.loss.isel(time=-1)), scale="log"),
)
"""Metrics of one followed start."""
