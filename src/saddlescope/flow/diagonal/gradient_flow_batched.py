"""Many gradient flows from small weights in one call: seeds, initial scales, or data sets of one small problem.

A flow of a small problem is bound not by arithmetic but by what each of its thousand steps costs besides. Here all
flows share one compiled gradient and one pass through the solver's logic; each keeps its own step size and order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.diagonal.batched_records import BatchRecords
from saddlescope.flow.diagonal.batched_system import MirrorSystems, stacked
from saddlescope.flow.diagonal.coordinates import MirrorCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, ResumeFrom
from saddlescope.flow.diagonal.trajectory import LevelEvent, SampledPath, Status, Trajectory
from saddlescope.flow.losses.batched import LossBatch
from saddlescope.flow.losses.compiled import Evaluations, Loss, require_finite, require_float64, require_smooth_at_zero
from saddlescope.flow.solvers.ndf_batched import BatchStepper
from saddlescope.flow.status import LOCAL_SHARE, REACHED, diverged, exhausted, hidden_nan, require_run, silent, stuck

_RECORDS = 201
_LOOK = 16  # evaluations between two looks at what diverges, and at progress


class BatchedFlowError(RuntimeError):
    """Some of many flows did not reach the time asked for.

    Attributes:
        trajectories: all of them, as far as they came.
    """

    def __init__(self, trajectories: "BatchedTrajectory") -> None:
        failed = list(trajectories.failed)
        named = ", ".join(map(str, failed[:10])) + (", ..." if len(failed) > 10 else "")
        super().__init__(
            f"{len(failed)} of {len(trajectories)} flows ended early: {named}. "
            f"Flow {failed[0]}: {trajectories[failed[0]].status}"
        )
        self.trajectories = trajectories


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatchedTrajectory(ReprMixin):
    """Runs of many gradient flows. `trajectories[i]` is the `Trajectory` of one; iterating gives all.

    Between its records and crossings, one of these is a straight line in the integral of the gradient, so it is exact
    on plateaus and rough between two records in a transition; `gradient_flow` keeps the solver's own interpolation.

    Attributes:
        times: recorded times common to all flows, ascending from 0, shape (k,).
        time_unit: what they are told in, "t / log(1/alpha)" with each flow's own alpha.
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

    @property
    def crossings(self) -> tuple[tuple[LevelEvent, ...], ...]:
        """For each flow, passages of |beta| through the level, in the order of time."""
        return tuple(trajectory.crossings for trajectory in self.each)

    @property
    def statuses(self) -> tuple[Status, ...]:
        """How each flow ended."""
        return tuple(trajectory.status for trajectory in self.each)

    @property
    def failed(self) -> tuple[int, ...]:
        """The numbers of the flows that ended early."""
        return tuple(flow for flow, status in enumerate(self.statuses) if not status.ok)

    @property
    def evaluations(self) -> Evaluations:
        """What was asked of the losses, for all flows together."""
        counts = [(e.gradients, e.hessians, e.values) for e in (trajectory.evaluations for trajectory in self.each)]
        return Evaluations(*(sum(count) for count in zip(*counts, strict=True)))


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
    max_gradients: int = 1_000_000,
    report: Callable[[float, str], None] = silent,
) -> BatchedTrajectory:
    """Follows many gradient flows from small weights at once, each as `gradient_flow` does and to its accuracy.

    For problems of up to about a hundred coordinates; on larger ones arithmetic takes the time, and little is gained.
    Flows do not depend on each other: each takes the steps it would take alone, but for rounding.

    Args:
        loss: one loss for all flows, or a sequence with one for each: modules of one class with the same functions and
            shapes, and different numbers in their arrays. Otherwise as for `gradient_flow`.
        starts: where the flows start: `DiagonalInit`, or the ends of such flows, of equally many coordinates. Initial
            scales may differ.
        until: the last time of all flows, in units of each one's log(1/alpha). 0 is allowed.
        tolerance: as for `gradient_flow`.
        record: times at which losses and values are kept, besides 0; by default 201 evenly spaced ones to `until`.
        level: where to look for crossings of |beta|, positive; None: nowhere.
        throw: whether to raise when a flow ends early; otherwise look at `BatchedTrajectory.failed`.
        max_gradients: end a flow early after so many evaluations of its gradient.
        report: called now and then with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used; JAX is not in float64 mode; a loss is not finite at its start, or has a
            kink at 0.
        BatchedFlowError: a flow ended early and `throw` is true; the error holds what was computed.
    """
    require_run(until=until, tolerance=tolerance, record=record, level=level, max_gradients=max_gradients)
    charts = _charts(starts)
    origin = np.stack([start.origin() for start in starts])
    losses = LossBatch(loss, len(starts))
    require_float64(loss[0] if isinstance(loss, Sequence) else loss, charts[0].point(origin[0]))
    records = BatchRecords.begin(
        stacked(charts),
        np.unique(np.linspace(0, until, _RECORDS) if record is None else np.append(record, 0.0)),
        origin,
        level,
    )
    systems = MirrorSystems(losses, charts)
    _check_losses(losses, records.charts.point(origin))
    statuses = [REACHED] * len(starts)
    if until > 0:
        _run(systems, records, statuses, until, tolerance, max_gradients, report)
    trajectories = _assemble(starts, charts, records, systems, statuses)
    if throw and trajectories.failed:
        raise BatchedFlowError(trajectories)
    return trajectories


def _charts(starts: Sequence[AbstractInit]) -> list[MirrorCoordinates]:
    if not isinstance(starts, Sequence) or len(starts) == 0:
        raise InputError(f"starts must be a sequence of at least one start; got {starts!r}.")
    charts = []
    for flow, start in enumerate(starts):
        coordinates = start.flow_coordinates() if isinstance(start, AbstractInit) else None
        if not isinstance(coordinates, MirrorCoordinates):
            raise InputError(
                f"starts must be at products of weights, such as DiagonalInit(u, v, log_scale); got {start!r} "
                f"for flow {flow}. Call gradient_flow for each of others."
            )
        charts.append(coordinates)
        if coordinates.layout != charts[0].layout:
            raise InputError(
                f"starts must have equally many coordinates; got {coordinates.p.size} for flow {flow} and "
                f"{charts[0].p.size} for flow 0."
            )
    return charts


def _check_losses(losses: LossBatch, points: np.ndarray) -> None:
    values, gradients = losses.values(points[:, None])[:, 0], losses.gradients(points)
    bad = np.flatnonzero(~(np.isfinite(values) & np.isfinite(gradients).all(axis=1)))
    if len(bad):
        try:
            require_finite(float(values[bad[0]]), gradients[bad[0]])
        except InputError as error:
            raise InputError(f"Flow {bad[0]}: {error}") from None
    require_smooth_at_zero(lambda point: losses.gradients(np.tile(point, (len(points), 1))), points.shape[1])


def _run(
    systems: MirrorSystems,
    records: BatchRecords,
    statuses: list[Status],
    until: float,
    tolerance: float,
    max_gradients: int,
    report: Callable[[float, str], None],
) -> None:
    """Takes all steps; enters the statuses of flows that end early."""
    local, unit, flows = tolerance * LOCAL_SHARE, records.charts.time_unit, len(statuses)
    stepper = BatchStepper(systems, records.last_state, until, rtol=local, atol=local)
    for tick in range(max_gradients):
        if len(stepper.running) == 0:
            break
        records.add(stepper.tick())
        if tick % _LOOK == 0:
            stepper.stop(np.flatnonzero(records.charts.diverged(records.last_state)))
            fraction = 1 - float(np.sum(until - records.last_time[stepper.running])) / (flows * until)
            report(fraction, f"{flows - len(stepper.running)} of {flows} flows finished")
    for flow in stepper.running:
        statuses[flow] = exhausted(max_gradients, float(records.last_time[flow]), unit)
    for flow, finite in stepper.stuck.items():
        statuses[flow] = stuck(float(records.last_time[flow]), unit, finite=finite)
    for flow in np.flatnonzero(records.charts.diverged(records.last_state)):
        statuses[flow] = diverged(float(records.last_time[flow]), unit)
    records.work_off()


def _assemble(
    starts: Sequence[AbstractInit],
    charts: list[MirrorCoordinates],
    records: BatchRecords,
    systems: MirrorSystems,
    statuses: list[Status],
) -> BatchedTrajectory:
    """Evaluates the losses at all records and crossings, and hands each flow its own."""
    flows, count, _ = records.states.shape
    crossings = [sorted(found, key=lambda pair: pair[0]) for found in records.crossings]
    room = max(map(len, crossings)) + 1
    more_times, more = (
        np.tile(records.last_time[:, None], (1, room)),
        np.tile(records.last_state[:, None], (1, room, 1)),
    )
    for flow, found in enumerate(crossings):
        for j, (crossing, state) in enumerate(found):
            more_times[flow, j], more[flow, j] = crossing.time, state
    times = np.concatenate([np.tile(records.times, (flows, 1)), more_times], axis=1)
    states = np.concatenate([records.states, more], axis=1)
    points = np.stack([coordinates.point(state) for coordinates, state in zip(charts, states, strict=True)])
    losses = systems.losses.values(points)
    each = []
    for flow, coordinates in enumerate(charts):
        ours, first = np.unique(times[flow], return_index=True)
        first = first[ours <= records.last_time[flow]]
        ours, status, own = times[flow, first], statuses[flow], losses[flow, first]
        if status.ok and not np.isfinite(own).all():
            status = hidden_nan(float(ours[~np.isfinite(own)][0]), coordinates.time_unit)
        lost = float(own[0] - own[-1])
        each.append(
            Trajectory(
                times=ours,
                time_unit=coordinates.time_unit,
                losses=own,
                values=points[flow, first],
                crossings=tuple(crossing for crossing, _ in crossings[flow]),
                level=records.level,
                conserved=0.0,
                energy_error=abs(1 - records.dissipated[flow] / coordinates.rate / lost) if lost > 0 else None,
                accuracy=None,
                evaluations=Evaluations(int(systems.gradients[flow]), int(systems.hessians[flow]), len(first)),
                status=status,
                end=ResumeFrom(starts[flow], records.last_state[flow]),
                coordinates=coordinates,
                path=SampledPath(ours, states[flow, first]),
            )
        )
    return BatchedTrajectory(
        times=records.times,
        time_unit=charts[0].time_unit,
        losses=losses[:, :count],
        beta=points[:, :count],
        each=tuple(each),
    )
