"""Many gradient flows from small weights in one call: seeds, initial scales, or data sets of one small problem.

The time of a small flow is not that of its arithmetic but the overhead of its thousand steps. Here all flows share one
pass through the solver's logic; each has its own step size. Compiled explicit steps are faster where the evaluations
that stability costs are some thousands; implicit steps of variable order, by far fewer evaluations, are the faster ones
at tight tolerances and below alpha = 1e-1000 or so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Axis, Panel, several_lines
from saddlescope.figures.time_axes import time_label
from saddlescope.flow.diagonal.batched_chebyshev import LEAST_TOLERANCE, ChebyshevFlows
from saddlescope.flow.diagonal.batched_records import BatchRecords
from saddlescope.flow.diagonal.batched_system import MirrorSystems, stacked
from saddlescope.flow.diagonal.coordinates import MirrorCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, ResumeFrom
from saddlescope.flow.diagonal.trajectory import LevelEvent, SampledPath, Trajectory
from saddlescope.flow.solvers.ndf_batched import BatchStepper
from saddlescope.flow.status import (
    LOCAL_SHARE,
    REACHED,
    BatchedFlowError,
    Status,
    diverged,
    exhausted,
    hidden_nan,
    require_run,
    stuck,
)
from saddlescope.loss.batched import LossBatch
from saddlescope.loss.checks import (
    require_finite,
    require_float64_arrays,
    require_float64_loss,
    require_smooth_at_zero,
)
from saddlescope.loss.compiled import Evaluations, Loss

_RECORDS = 201
_CHECK_EVERY = 16  # evaluations between two checks for divergence and two reports


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatchedTrajectory(TableMixin, PlotMixin):
    """Runs of many gradient flows. `trajectories[i]` is the `Trajectory` of one; iterating gives all.

    Between records and crossings, each is linear in the integral of the gradient: exact on plateaus and rough between
    two records in a transition; `gradient_flow` stores the solver's own interpolation.

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
        InputError: an argument cannot be used; JAX is not in float64 mode; a loss is not finite at its start, or has a
            kink at 0.
        BatchedFlowError: a flow ended early and `throw` is true; its `result` holds all trajectories.
    """
    require_run(until=until, tolerance=tolerance, record=record, level=level, max_evaluations=max_evaluations)
    coordinates = _coordinates(starts)
    origin = np.stack([start.origin() for start in starts])
    losses = LossBatch(loss, len(starts))
    first = loss[0] if isinstance(loss, Sequence) else loss
    require_float64_arrays(first)
    records = BatchRecords.begin(
        stacked(coordinates),
        np.unique(np.linspace(0, until, _RECORDS) if record is None else np.append(record, 0.0)),
        origin,
        level,
    )
    systems = MirrorSystems(losses, coordinates)
    _check_losses(first, losses, records.coordinates.point(origin))
    statuses = [REACHED] * len(starts)
    if until > 0:
        _run(systems, records, statuses, until, tolerance, max_evaluations, report)
    trajectories = _assemble(starts, coordinates, records, systems, statuses)
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


def _check_losses(first: Loss, losses: LossBatch, points: np.ndarray) -> None:
    try:
        values, gradients = losses.values(points[:, None]), losses.gradients(points)
    except Exception:
        require_float64_loss(first, points[0])  # says in words what is wrong, as a rule
        raise
    if values.dtype != np.float64 or values.shape != (len(points), 1):
        require_float64_loss(first, points[0])
    values = values[:, 0]
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
    max_evaluations: int,
    report: Report,
) -> None:
    """Take all steps, explicit ones as long as they are faster; enter the statuses of flows that end early."""
    unit, left, is_stuck = records.coordinates.time_unit, np.arange(len(statuses)), {}
    if tolerance >= LEAST_TOLERANCE:
        explicit = ChebyshevFlows(systems.losses, records, systems.rates, until)
        explicit.run(tolerance, max_evaluations, report)
        records.process()
        systems.gradients += explicit.evaluations
        systems.products += explicit.products
        left, is_stuck = explicit.left, explicit.stuck
    if len(left):
        is_stuck |= _implicit_steps(systems, records, left, until, tolerance, max_evaluations, report)
        records.process()
    unfinished = records.last_time < until
    for flow in np.flatnonzero(unfinished & (systems.gradients >= max_evaluations)):
        statuses[flow] = exhausted(max_evaluations, float(records.last_time[flow]), unit)
    ended = {flow for flow in np.flatnonzero(unfinished).tolist() if statuses[flow].ok}
    for flow, finite in (dict.fromkeys(ended, True) | is_stuck).items():
        statuses[flow] = stuck(float(records.last_time[flow]), unit, finite=finite)
    for flow in np.flatnonzero(records.coordinates.diverged(records.last_state)):
        statuses[flow] = diverged(float(records.last_time[flow]), unit)


def _implicit_steps(
    systems: MirrorSystems,
    records: BatchRecords,
    rows: np.ndarray,
    until: float,
    tolerance: float,
    max_evaluations: int,
    report: Report,
) -> dict[int, bool]:
    """Take the flows in these rows from where they are to the end; return those that got stuck."""
    local, flows = tolerance * LOCAL_SHARE, len(records.last_time)
    rows = rows[systems.gradients[rows] < max_evaluations]
    systems.keep(rows)
    if len(rows) == 0:
        return {}
    stepper = BatchStepper(
        systems,
        records.last_state[rows],
        until,
        rtol=local,
        atol=local,
        t=records.last_time[rows],
        numbers=rows,
    )
    tick = 0
    while len(stepper.running):
        steps = stepper.tick()
        records.reach(steps.system, steps.end, steps.after)
        records.add(steps)
        tick += 1
        if tick % _CHECK_EVERY == 0:
            stepper.stop(np.flatnonzero(records.coordinates.diverged(records.last_state)))
            ended = flows - len(stepper.running)
            report(float(np.mean(records.last_time)) / until, f"{ended} of {flows} flows finished")
        stepper.stop(np.flatnonzero(systems.gradients >= max_evaluations))
    return stepper.stuck


def _assemble(
    starts: Sequence[AbstractInit],
    coordinates: list[MirrorCoordinates],
    records: BatchRecords,
    systems: MirrorSystems,
    statuses: list[Status],
) -> BatchedTrajectory:
    """Evaluate the losses at all records and crossings, and assemble the trajectories."""
    flows, count, _ = records.states.shape
    crossings, crossed = records.crossings()
    room = max(map(len, crossings)) + 1
    more_times, more = (
        np.tile(records.last_time[:, None], (1, room)),
        np.tile(records.last_state[:, None], (1, room, 1)),
    )
    for flow, found in enumerate(crossings):
        more_times[flow, : len(found)], more[flow, : len(found)] = [each.time for each in found], crossed[flow]
    times = np.concatenate([np.tile(records.times, (flows, 1)), more_times], axis=1)
    states = np.concatenate([records.states, more], axis=1)
    points = np.stack([each.point(state) for each, state in zip(coordinates, states, strict=True)])
    losses = systems.losses.values(points)
    trajectories = []
    for flow, mirror in enumerate(coordinates):
        ours, first = np.unique(times[flow], return_index=True)
        first = first[ours <= records.last_time[flow]]
        ours, status, own = times[flow, first], statuses[flow], losses[flow, first]
        if status.ok and not np.isfinite(own).all():
            status = hidden_nan(float(ours[~np.isfinite(own)][0]), mirror.time_unit)
        lost = float(own[0] - own[-1])
        trajectories.append(
            Trajectory(
                times=ours,
                time_unit=mirror.time_unit,
                losses=own,
                values=points[flow, first],
                crossings=tuple(crossings[flow]),
                level=records.level,
                conserved=0.0,
                energy_error=abs(1 - records.dissipated[flow] / mirror.rate / lost) if lost > 0 else None,
                accuracy=None,
                evaluations=Evaluations(
                    gradients=int(systems.gradients[flow]),
                    hessians=int(systems.hessians[flow]),
                    columns=int(systems.hessians[flow]) * mirror.p.size + int(systems.products[flow]),
                    values=len(first),
                ),
                status=status,
                end=ResumeFrom(starts[flow], records.last_state[flow]),
                coordinates=mirror,
                path=SampledPath(ours, states[flow, first]),
            )
        )
    return BatchedTrajectory(
        times=records.times,
        time_unit=coordinates[0].time_unit,
        losses=losses[:, :count],
        beta=points[:, :count],
        each=tuple(trajectories),
    )
