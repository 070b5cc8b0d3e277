"""Many gradient flows from small weights in one call: seeds, initial scales, or data sets of one small problem.

The time of a small flow is not that of its arithmetic but the overhead of its thousand steps. Here all flows share one
compiled loop of explicit steps; each has its own step size. Where stability or a tight tolerance costs more evaluations
than a flow is worth, it is followed alone by `gradient_flow`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Axis, Panel, several_lines
from saddlescope.figures.time_axes import time_label
from saddlescope.flow.diagonal.batched_chebyshev import ChebyshevFlows
from saddlescope.flow.diagonal.batched_records import BatchRecords, part, stacked
from saddlescope.flow.diagonal.coordinates import MirrorCoordinates
from saddlescope.flow.diagonal.gradient_flow import gradient_flow
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, ResumeFrom
from saddlescope.flow.diagonal.trajectory import LevelEvent, SampledPath, Trajectory
from saddlescope.flow.status import (
    REACHED,
    BatchedFlowError,
    Status,
    diverged,
    exhausted,
    hidden_nan,
    require_run,
    stuck,
)
from saddlescope.loss.abstract_loss import as_loss
from saddlescope.loss.batched import gradients, values
from saddlescope.loss.checks import (
    require_finite,
    require_float64_loss,
    require_smooth_at_zero,
)
from saddlescope.loss.compiled import Evaluations, Loss
from saddlescope.loss.stacked import StackedRuns

_RECORDS = 201


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatchedTrajectory(TableMixin, PlotMixin):
    """Runs of many gradient flows. `trajectories[i]` is the `Trajectory` of one; iterating gives all.

    Between records and crossings, those of explicit steps are linear in the integral of the gradient: exact on plateaus
    and rough between two records in a transition; `gradient_flow` stores the solver's own interpolation.

    Attributes:
        times: recorded times common to all flows, ascending from 0, shape (k,).
        time_unit: "t / log(1/alpha)", with each flow's own alpha.
        losses: the losses at the recorded times, shape (flows, k); NaN where a flow ended earlier.
        beta: the products u * v at the recorded times, shape (flows, k, p); NaN where a flow ended earlier.
        each: the trajectories.
    """

    times: Float[np.ndarray, "k"]
    time_unit: str
    losses: Float[np.ndarray, "flows k"]
    beta: Float[np.ndarray, "flows k p"]
    each: tuple[Trajectory, ...]

    def __len__(self) -> int:
        return len(self.each)

    def __getitem__(self, flow: int) -> Trajectory:
        return self.each[flow]

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.each)

    def __repr__(self) -> str:
        return (
            f"BatchedTrajectory({len(self)} flows to {self.times[-1]:.6g} in {self.time_unit!r}, "
            f"{sum(map(len, self.crossings))} crossings, {self.evaluations.gradients} gradients; "
            f"{len(self.failed) or 'none'} ended early)"
        )

    def _table(self) -> Table:
        rows = (
            (
                flow,
                float(one.times[-1]),
                float(one.losses[-1]),
                len(one.crossings),
                one.evaluations.gradients,
                one.status.ok,
            )
            for flow, one in enumerate(self)
        )
        return ("flow", "end", "loss", "crossings", "gradients", "complete"), rows

    def panel(self) -> Panel:
        """Return the loss of every flow over time."""
        marks = several_lines((f"flow {flow}", one.times, one.losses) for flow, one in enumerate(self))
        return Panel(x=Axis(time_label(self.time_unit)), y=Axis("loss"), marks=marks)

    @property
    def crossings(self) -> tuple[tuple[LevelEvent, ...], ...]:
        """Passages of |beta| through the level for each flow, in the order of time."""
        return tuple(trajectory.crossings for trajectory in self.each)

    @property
    def statuses(self) -> tuple[Status, ...]:
        """Termination status of each flow."""
        return tuple(trajectory.status for trajectory in self.each)

    @property
    def failed(self) -> tuple[int, ...]:
        """Numbers of the flows that ended early."""
        return tuple(flow for flow, status in enumerate(self.statuses) if not status.ok)

    @property
    def evaluations(self) -> Evaluations:
        """Numbers of evaluations of the losses, for all flows together."""
        every = [trajectory.evaluations for trajectory in self.each]
        return Evaluations(**{f.name: sum(getattr(one, f.name) for one in every) for f in fields(Evaluations)})


@in_float64
@validate_arguments
def gradient_flow_batched(
    loss: Loss | Sequence[Loss],
    starts: Sequence[AbstractInit],
    *,
    until: float,
    tolerance: float,
    record: Float[np.ndarray, "k"] | None = None,
    level: float | None = None,
    throw: bool = True,
    max_evaluations: int = 1_000_000,
    report: Report = silent,
) -> BatchedTrajectory:
    """Follow many gradient flows from small weights at once, with the accuracy of `gradient_flow`.

    For problems of up to about a hundred coordinates; on larger ones arithmetic takes most of the time, and little is
    gained. Flows are independent: each takes the steps it would take alone, but for rounding.

    Args:
        loss: one loss for all flows, or a sequence with one for each: modules of one class with the same functions and
            shapes, and different numbers in their arrays. Otherwise as for `gradient_flow`.
        starts: initial conditions: `DiagonalInit`, or the ends of such flows, of equally many coordinates. Initial
            scales may differ.
        until: the last time of all flows, in units of each one's log(1/alpha). 0 is allowed.
        tolerance: as for `gradient_flow`.
        record: times at which losses and values are recorded, besides 0; by default 201 evenly spaced ones to `until`.
        level: a positive level at which to find crossings of |beta|; None: find none.
        throw: True: raise if a flow ends early. False: return all; check `BatchedTrajectory.failed`.
        max_evaluations: end a flow early after so many evaluations of its gradient.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used; a loss is not finite at its start, or has a
            kink at 0.
        BatchedFlowError: a flow ended early and `throw` is true; its `result` holds all trajectories.
    """
    require_run(until=until, tolerance=tolerance, record=record, level=level, max_evaluations=max_evaluations)
    coordinates = _coordinates(starts)
    origin = np.stack([start.origin() for start in starts])
    given = list(map(as_loss, loss)) if isinstance(loss, Sequence) else as_loss(loss)
    losses = StackedRuns.of("loss", given, len(starts))
    first = loss[0] if isinstance(loss, Sequence) else loss
    records = BatchRecords.begin(
        stacked(coordinates),
        np.unique(np.linspace(0, until, _RECORDS) if record is None else np.append(record, 0.0)),
        origin,
        level,
    )
    _check_losses(first, losses, records.coordinates.point(origin))
    rates = np.array([each.rate for each in coordinates])
    explicit, furthest = ChebyshevFlows(losses, records, rates, until, tolerance), 0.0

    def onward(fraction: float, note: str) -> None:
        """Report; a flow that begins again does not take the progress back."""
        nonlocal furthest
        furthest = max(furthest, fraction)
        report(furthest, note)

    if until > 0:
        explicit.run(max_evaluations, onward)
    statuses = [_end_of(flow, explicit, records, until, max_evaluations) for flow in range(len(starts))]
    each = _explicit_trajectories(starts, coordinates, records, losses, statuses, explicit)
    left = [int(flow) for flow in explicit.left if until > 0 and explicit.evaluations[flow] < max_evaluations]
    for done, flow in enumerate(left):
        before = 1 - (len(left) - done) / len(starts)
        spent = int(explicit.evaluations[flow])
        again = gradient_flow(
            loss[flow] if isinstance(loss, Sequence) else loss,
            starts[flow],
            until=until,
            tolerance=tolerance,
            record=records.times,
            level=level,
            throw=False,
            max_evaluations=max_evaluations - spent,
            report=lambda fraction, note, before=before: onward(before + fraction / len(starts), note),
        )
        counted = replace(again.evaluations, gradients=again.evaluations.gradients + spent)
        status = again.status
        if status.code == "exhausted":
            status = exhausted(max_evaluations, float(again.times[-1]), again.time_unit)
        each[flow] = replace(again, evaluations=counted, status=status)
    tables = [_at_records(trajectory, records.times) for trajectory in each]
    trajectories = BatchedTrajectory(
        times=records.times,
        time_unit=coordinates[0].time_unit,
        losses=np.stack([losses for losses, _ in tables]),
        beta=np.stack([beta for _, beta in tables]),
        each=tuple(each),
    )
    if throw and trajectories.failed:
        raise BatchedFlowError(trajectories)
    return trajectories


def _coordinates(starts: Sequence[AbstractInit]) -> list[MirrorCoordinates]:
    if not isinstance(starts, Sequence) or len(starts) == 0:
        raise InputError(f"starts must be a sequence of at least one start; got {starts!r}.")
    coordinates = []
    for flow, start in enumerate(starts):
        each = start.flow_coordinates() if isinstance(start, AbstractInit) else None
        if not isinstance(each, MirrorCoordinates):
            raise InputError(
                f"starts must be at products of weights, such as DiagonalInit(u, v, log_scale); got {start!r} "
                f"for flow {flow}. Call gradient_flow for other starts."
            )
        coordinates.append(each)
        if each.layout != coordinates[0].layout:
            raise InputError(
                f"starts must have equally many coordinates; got {each.p.size} for flow {flow} and "
                f"{coordinates[0].p.size} for flow 0."
            )
    return coordinates


def _check_losses(first: Loss, losses: StackedRuns, points: np.ndarray) -> None:
    require_float64_loss(first, points[0])
    at_start, slopes = values(losses, points[:, None])[:, 0], gradients(losses, points)
    bad = np.flatnonzero(~(np.isfinite(at_start) & np.isfinite(slopes).all(axis=1)))
    if len(bad):
        try:
            require_finite(float(at_start[bad[0]]), slopes[bad[0]])
        except InputError as error:
            raise InputError(f"Flow {bad[0]}: {error}") from None
    require_smooth_at_zero(lambda point: gradients(losses, np.tile(point, (len(points), 1))), points.shape[1])


def _end_of(flow: int, explicit: ChebyshevFlows, records: BatchRecords, until: float, max_evaluations: int) -> Status:
    """Return the status of a flow that explicit steps have followed."""
    unit, last = records.coordinates.time_unit, float(records.last_time[flow])
    if np.any(part(records.coordinates, np.array([flow])).diverged(records.last_state[[flow]])):
        return diverged(last, unit)
    if last >= until:
        return REACHED
    if explicit.evaluations[flow] >= max_evaluations:
        return exhausted(max_evaluations, last, unit)
    return stuck(last, unit, finite=explicit.stuck.get(flow, True))


def _explicit_trajectories(
    starts: Sequence[AbstractInit],
    coordinates: list[MirrorCoordinates],
    records: BatchRecords,
    losses: StackedRuns,
    statuses: list[Status],
    explicit: ChebyshevFlows,
) -> list[Trajectory]:
    """Evaluate the losses at all records and crossings, and assemble the trajectories."""
    flows = len(starts)
    crossings, crossed = records.crossings()
    room = max(map(len, crossings)) + 1
    more_times = np.tile(records.last_time[:, None], (1, room))
    more = np.tile(records.last_state[:, None], (1, room, 1))
    for flow, found in enumerate(crossings):
        more_times[flow, : len(found)], more[flow, : len(found)] = [each.time for each in found], crossed[flow]
    times = np.concatenate([np.tile(records.times, (flows, 1)), more_times], axis=1)
    states = np.concatenate([records.states, more], axis=1)
    points = np.stack([each.point(state) for each, state in zip(coordinates, states, strict=True)])
    at_points = values(losses, points)
    trajectories = []
    for flow, mirror in enumerate(coordinates):
        ours, first = np.unique(times[flow], return_index=True)
        first = first[ours <= records.last_time[flow]]
        ours, status, own = times[flow, first], statuses[flow], at_points[flow, first]
        if status.ok and not np.isfinite(own).all():
            status = hidden_nan(float(ours[~np.isfinite(own)][0]), mirror.time_unit)
        trajectories.append(
            Trajectory(
                times=ours,
                time_unit=mirror.time_unit,
                losses=own,
                values=points[flow, first],
                crossings=tuple(crossings[flow]),
                level=records.level,
                conserved=0.0,
                accuracy=None,
                evaluations=Evaluations(
                    gradients=int(explicit.evaluations[flow]),
                    columns=int(explicit.products[flow]),
                    values=len(first),
                ),
                status=status,
                end=ResumeFrom(starts[flow], records.last_state[flow]),
                coordinates=mirror,
                path=SampledPath(ours, states[flow, first]),
            )
        )
    return trajectories


def _at_records(trajectory: Trajectory, times: Float[np.ndarray, "k"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the losses and beta at common times; NaN where the flow ended earlier."""
    losses, beta = np.full(len(times), np.nan), np.full((len(times), trajectory.values.shape[1]), np.nan)
    reached = times <= trajectory.times[-1]
    at = np.searchsorted(trajectory.times, times[reached])
    losses[reached], beta[reached] = trajectory.losses[at], trajectory.values[at]
    return losses, beta
