"""Gradient flow dtheta/dt = -dL/dtheta, at any initial scale, by a stiff solver in well-scaled coordinates."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from saddlescope._shared.arguments import validate_arguments
from saddlescope.flow.diagonal.coordinates import AbstractFlowCoordinates, MirrorCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, DiagonalInit, ResumeFrom, checked_start
from saddlescope.flow.diagonal.surrogate_stepper import SurrogateStepper
from saddlescope.flow.diagonal.trajectory import Accuracy, DensePath, FlowError, LevelEvent, Status, Trajectory
from saddlescope.flow.losses.compiled import CompiledLoss, Loss, require_finite, require_float64, require_smooth_at_zero
from saddlescope.flow.solvers.ndf import Piece, StepError
from saddlescope.flow.status import LOCAL_SHARE, REACHED, diverged, exhausted, hidden_nan, require_run, silent, stuck


@validate_arguments
def gradient_flow(
    loss: Loss,
    start: AbstractInit,
    *,
    until: float,
    tolerance: float,
    record: Float[np.ndarray, "k"] | None = None,
    level: float | None = None,
    verify: bool = False,
    throw: bool = True,
    max_gradients: int = 1_000_000,
    report: Callable[[float, str], None] = silent,
) -> Trajectory:
    """Follows gradient flow from a start to a time.

    A start at `DiagonalInit` is followed in the coordinates of `saddlescope.flow.diagonal.coordinates`, in which plateaus are straight
    lines, u^2 - v^2 is conserved by construction, and any initial scale is possible. In float64 weights (u, v), by
    contrast, a coordinate that leaves the support and returns with the other sign is lost below alpha = 1e-8, silently
    and at any tolerance, because u^2 - v^2 drowns in rounding errors.

    Args:
        loss: the loss, a function of beta for Products, of the params for Plain; twice continuously differentiable by
            JAX. Its methods `value_and_gradient(argument)` and `hessian_columns(argument, columns)` are used where it
            has them. Give data as fields of an Equinox module, not in a closure: a closure is compiled anew each time
            it is made.
        start: `DiagonalInit`, `ParameterInit`, or another trajectory's `end`.
        until: the last time, in the start's unit: t / log(1/alpha) for Products, t for Plain. 0 is allowed.
        tolerance: the relative error of stage times to aim for. A model of the gradient is integrated, and replaced
            by a better one where the two integrations differ by more than about the tolerance, relative to 1 + |y|
            for Products, where y is the integral of the gradient in e-folds, and to the parameters' size for Plain.
            As y grows to about log(1/alpha), such errors shift times by as much, to first order. On tasks with
            known times the error is 0.05 to 3 times the tolerance; where an entry grazes the level it is larger, so
            ask `verify`. There is no default, since only you know which times you want to tell apart. A hundredth
            of the tolerance costs about twice the gradients.
        record: times at which loss and values are kept; by default the solver's own steps (every other one where
            there are more than 1000, and so on), which lie densest where most happens. Time 0, the last time and all
            crossings are kept in any case.
        level: where to look for crossings of |beta| (or of the parameters), positive; None: nowhere. Two crossings
            of one entry within one step of the solver are not seen.
        verify: whether to run once more at ten times the tolerance and report `Trajectory.accuracy`.
        throw: whether to raise when the run ends early; otherwise look at `Trajectory.status`.
        max_gradients: end early after so many evaluations of the gradient.
        report: called now and then with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used; JAX is not in float64 mode; the loss is not finite at the start, or
            has a kink at 0.
        FlowError: the run ended early and `throw` is true; the error holds what was computed.
    """
    require_run(until=until, tolerance=tolerance, record=record, level=level, max_gradients=max_gradients)
    coordinates = checked_start(start).flow_coordinates()
    require_float64(loss, coordinates.layout.build(coordinates.point(start.origin())))
    compiled = CompiledLoss(loss, coordinates.layout)
    first_loss, gradient = compiled.value_and_gradient(coordinates.point(start.origin()))
    require_finite(first_loss, gradient)
    if isinstance(start, DiagonalInit):
        require_smooth_at_zero(lambda point: compiled.value_and_gradient(point)[1], len(gradient))
    share = _RUN_SHARE if verify else 1.0

    def first_part(fraction: float, note: str) -> None:
        report(share * fraction, note)

    def second_part(fraction: float, note: str) -> None:
        report(share + (1 - share) * fraction, f"{note}, again at ten times the tolerance")

    run = _integrate(compiled, coordinates, start.origin(), until, tolerance, level, max_gradients, first_part)
    times = run.record(record)
    states = run.path(times)
    losses = compiled.at(coordinates.point(states))
    if run.status.ok and not np.isfinite(losses).all():
        run.status = hidden_nan(times[~np.isfinite(losses)][0], coordinates.time_unit)
    accuracy = None
    if verify:
        companion = _integrate(
            compiled, coordinates, start.origin(), run.last, 10 * tolerance, level, max_gradients, second_part
        )
        accuracy = _accuracy(compiled, coordinates, run, companion, times, losses)
    trajectory = Trajectory(
        times=times,
        time_unit=coordinates.time_unit,
        losses=losses,
        values=coordinates.point(states),
        crossings=run.crossings,
        level=level,
        conserved=0.0 if isinstance(coordinates, MirrorCoordinates) else None,
        energy_error=_energy_error(coordinates, run.pieces, float(losses[0] - losses[-1])),
        accuracy=accuracy,
        evaluations=compiled.evaluations,
        status=run.status,
        end=ResumeFrom(start, states[-1]),
        coordinates=coordinates,
        path=run.path,
    )
    if throw and not run.status.ok:
        raise FlowError(trajectory)
    return trajectory


_RUN_SHARE = 0.6  # of the progress that a run with a companion makes; the companion is cheaper


@dataclass
class _Run:
    """One integration: its steps and crossings, and how it ended."""

    origin: np.ndarray
    pieces: list[Piece] = field(default_factory=list)
    crossings: tuple[LevelEvent, ...] = ()
    status: Status = REACHED

    @property
    def last(self) -> float:
        """The time it reached."""
        return self.pieces[-1].end if self.pieces else 0.0

    @property
    def path(self) -> DensePath:
        """Its states at any time."""
        return DensePath(self.origin, self.pieces)

    def record(self, times: np.ndarray | None) -> np.ndarray:
        """The times to keep: those asked for, or the ends of steps; with both ends and all crossings."""
        every = max(1, len(self.pieces) // _RECORDS)
        asked = [piece.end for piece in self.pieces[::every]] if times is None else times[times <= self.last]
        return np.unique(np.concatenate([[0.0], asked, [c.time for c in self.crossings], [self.last]]))


_RECORDS = 500  # at least so many steps are kept where there are more; each costs a loss


def _integrate(
    loss: CompiledLoss,
    coordinates: AbstractFlowCoordinates,
    origin: np.ndarray,
    until: float,
    tolerance: float,
    level: float | None,
    max_gradients: int,
    report: Callable[[float, str], None],
) -> _Run:
    run = _Run(origin)
    if until == 0:
        return run
    limit = loss.gradients + max_gradients
    local = tolerance * LOCAL_SHARE
    stepper = SurrogateStepper(loss, coordinates, origin, until, tolerance=tolerance, local=local)
    band = coordinates.band(level) if level is not None else None
    crossings: list[LevelEvent] = []
    while stepper.t < until:
        before = stepper.y
        try:
            pieces = stepper.step()
        except StepError as failure:
            run.status = stuck(stepper.t, coordinates.time_unit, finite=failure.finite)
            break
        for piece in pieces:
            after = piece.differences[0]
            if band is not None:
                crossings += _crossings(piece, before, after, *band)
            before = after
        run.pieces += pieces
        if coordinates.diverged(stepper.y):
            run.status = diverged(stepper.t, coordinates.time_unit)
            break
        if loss.gradients >= limit and stepper.t < until:
            run.status = exhausted(max_gradients, stepper.t, coordinates.time_unit)
            break
        if len(run.pieces) // 16 > (len(run.pieces) - len(pieces)) // 16:
            report(stepper.t / until, f"{coordinates.time_unit} = {stepper.t:.4g} of {until:.4g}")
    run.crossings = tuple(sorted(crossings))
    return run


def _crossings(
    piece: Piece, before: np.ndarray, after: np.ndarray, low: np.ndarray, high: np.ndarray
) -> list[LevelEvent]:
    """The crossings within one step. An entry of the point passes the level where its state leaves or enters a band."""
    found = []
    for edge, sign in ((high, 1), (low, -1)):
        for i in np.flatnonzero((sign * before < sign * edge) != (sign * after < sign * edge)):
            threshold = float(edge[i])

            def offset(time: float, i: int = int(i), threshold: float = threshold) -> float:
                return float(piece(time)[i]) - threshold

            ends = offset(piece.start), offset(piece.end)
            if ends[0] * ends[1] < 0:
                time = float(brentq(offset, piece.start, piece.end, xtol=1e-300, rtol=1e-15))  # type: ignore[arg-type]
            else:  # rounding of the interpolation puts the edge just outside the step
                time = piece.start if abs(ends[0]) < abs(ends[1]) else piece.end
            found.append(LevelEvent(time, int(i), bool(sign * after[i] >= sign * threshold), sign))
    return found


def _accuracy(
    loss: CompiledLoss,
    coordinates: AbstractFlowCoordinates,
    run: _Run,
    companion: _Run,
    times: np.ndarray,
    losses: np.ndarray,
) -> Accuracy:
    if companion.last < run.last:
        return Accuracy(np.inf, np.inf, np.inf)
    points, others = coordinates.point(run.path(times)), coordinates.point(companion.path(times))
    ours, theirs = sorted(run.crossings, key=_kind), sorted(companion.crossings, key=_kind)
    crossing_times = np.inf
    if [_kind(c)[:3] for c in ours] == [_kind(c)[:3] for c in theirs]:
        shifts = [abs(a.time - b.time) / a.time for a, b in zip(ours, theirs, strict=True)]
        crossing_times = max(shifts, default=np.nan)
    return Accuracy(
        crossing_times=float(crossing_times),
        values=float(np.max(np.abs(points - others))),
        losses=float(np.max(np.abs(losses - loss.at(others)))),
    )


def _kind(crossing: LevelEvent) -> tuple[int, int, bool, float]:
    """What must agree for two crossings to be the same one, and the time that orders repeated ones."""
    return crossing.index, crossing.sign, crossing.rising, crossing.time


def _energy_error(coordinates: AbstractFlowCoordinates, pieces: list[Piece], lost: float) -> float | None:
    """Compares the loss that was lost with the integral of |dtheta/dt|^2 along the path, by Gauss quadrature."""
    if not lost > 0:
        return None
    nodes, weights = np.polynomial.legendre.leggauss(4)
    total = 0.0
    for piece in pieces:
        half = (piece.end - piece.start) / 2
        times = piece.start + half * (1 + nodes)
        squares = np.sum(coordinates.metric(piece.states(times)) * piece.slopes(times) ** 2, axis=1)
        total += half * float(weights @ squares) / coordinates.rate
    return abs(1 - total / lost)
