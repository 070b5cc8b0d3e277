"""Gradient flow dtheta/dt = -dL/dtheta, at any initial scale, by a stiff solver in well-scaled coordinates."""

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope.flow.diagonal.coordinates import AbstractFlowCoordinates, MirrorCoordinates, ParameterCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, DiagonalInit, ResumeFrom, require_start
from saddlescope.flow.diagonal.surrogate_stepper import SurrogateStepper
from saddlescope.flow.diagonal.trajectory import Accuracy, DensePath, LevelEvent, Trajectory
from saddlescope.flow.status import (
    GROWN,
    LOCAL_SHARE,
    REACHED,
    FlowError,
    Status,
    diverged,
    exhausted,
    hidden_nan,
    require_run,
    stuck,
    too_sudden,
    undecided,
)
from saddlescope.loss.checks import require_finite, require_float64_loss, require_smooth_at_zero
from saddlescope.loss.compiled import CompiledLoss, Loss
from saddlescope.numerics.ndf import Interpolant, StepError
from saddlescope.numerics.step_roots import root_along


@dataclass(frozen=True)
class Verification:
    """Policy of a second run.

    Attributes:
        promised: of the tolerance: errors of times that need no second run.
        propagated: factor of propagated errors, where these are small, that bounds those of times.
        apart: ratio of two runs' tolerances.
        tightest: of the tolerance: no run at a smaller one follows another.
        lost: error of the state, relative to its size or to its move in so long a time at its present speed, that ends
            a run; where a path has left an unstable manifold too late or too early, it is about 0.1.
        regained: ratio of the tolerances of a run that ended so and of the next; each later one is the square of it.
        least: the least tolerance of any run.
    """

    promised: float = 3.0
    propagated: float = 3.0
    apart: float = 10.0
    tightest: float = 1.1e-2
    lost: float = 1e-2
    regained: float = 100.0
    least: float = 1e-11


_VERIFICATION = Verification()


@in_float64
@validate_arguments
def gradient_flow(
    loss: Loss,
    start: AbstractInit,
    *,
    until: float,
    tolerance: float,
    record: Float[np.ndarray, "k"] | None = None,
    level: float | None = None,
    verify: bool | None = None,
    throw: bool = True,
    max_evaluations: int = 1_000_000,
    report: Report = silent,
) -> Trajectory:
    """Follow gradient flow from a start to a time.

    From `DiagonalInit` the flow is integrated in the coordinates of `saddlescope.flow.diagonal.coordinates`, in which
    plateaus are straight lines, u^2 - v^2 is conserved by construction, and any initial scale is possible. In float64
    weights (u, v), by contrast, a coordinate that leaves the support and returns with the other sign is lost below
    alpha = 1e-8, at any tolerance, because u^2 - v^2 is lost in rounding errors.

    Errors of the steps and of rounding are carried along the flow to first order. Where they have grown to a hundredth
    of the state, or in the loss to a hundredth of its fall, as on an unstable manifold or where a small direction
    drowns beside a large one, the run is repeated at smaller tolerances, and ends with the status `undecided` there if
    rounding or the tolerance of 1e-11 decides.

    Args:
        loss: the loss, a function of beta for `DiagonalInit`, of the params for `ParameterInit`; twice continuously
            differentiable by JAX, or a `saddlescope.loss.AbstractLoss`, which computes its derivatives itself. Pass
            data as fields of an Equinox module, not in a closure: every new closure is compiled again.
        start: `DiagonalInit`, `ParameterInit`, or another trajectory's `end`.
        until: the last time, at least 0, in the start's unit: t / log(1/alpha) for `DiagonalInit`, t for
            `ParameterInit`.
        tolerance: the relative error of stage times to aim for. A surrogate of the gradient is integrated, and replaced
            by a better one where the two integrations differ by more than about the tolerance, relative to 1 + |y|
            for `DiagonalInit`, where y is the integral of the gradient in e-folds, and to the parameters' size for
            `ParameterInit`, at the start or now, whichever is larger; from 0, to their largest size, which takes a run
            more if it is below 1/2. Where parameters have become much smaller than at the start, begin a new run. As y
            grows to about log(1/alpha), such errors shift times by as much, to first order. On tasks with known times
            the error is 0.05 to 3 times the tolerance. It is no bound: where the gradient nearly vanishes for a while,
            as of a saturated tanh, or an entry grazes the level, times of a single run have been off by 20 % at 1e-4;
            see `verify`. `Trajectory.time_error` estimates the error reached. There is no default, since only you know
            which times you need to distinguish. A hundredth of the tolerance costs about twice the gradients.
        record: times at which loss and values are recorded; by default the solver's own steps (every other one where
            there are more than 1000, and so on), which are densest where most happens. Time 0, the last time and all
            crossings are always recorded.
        level: a positive level at which to find crossings of |beta| (or of the parameters); None: find none. Two
            crossings of one entry within one step of the solver are not found.
        verify: None: while the errors of the run's steps and windows, propagated to the crossings to first order,
            exceed three times the tolerance, or those of the state exceed it, run again at a tenth of the last run's,
            at most twice; the last run is returned, and its difference from the one before as `Trajectory.accuracy`.
            True: do the same, and where one run is enough, compare it with another at ten times the tolerance. False:
            one run, whatever its errors; where these decide, it ends.
        throw: True: raise if the run ends early. False: return it; check `Trajectory.status`.
        max_evaluations: end early after so many evaluations of the gradient.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used; the loss is not finite at the start, or
            has a kink at 0.
        FlowError: the run ended early and `throw` is true; `FlowError.result` is the trajectory until then.
    """
    require_run(until=until, tolerance=tolerance, record=record, level=level, max_evaluations=max_evaluations)
    coordinates = require_start(start).flow_coordinates()
    require_float64_loss(loss, coordinates.layout.build(coordinates.point(start.origin())))
    compiled = CompiledLoss(loss, coordinates.layout)
    first_loss, gradient = compiled.value_and_gradient(coordinates.point(start.origin()))
    require_finite(first_loss, gradient)
    if isinstance(start, DiagonalInit):
        require_smooth_at_zero(lambda point: compiled.value_and_gradient(point)[1], len(gradient))
    promised, done = _VERIFICATION.promised * tolerance, 0.0  # the share of the progress

    def integrate(aim: float) -> _Run:
        nonlocal done
        first, done = done, 1.0 if verify is False else (1 + done) / 2  # how many runs follow is not known
        again = "" if first == 0 else f", again at tolerance {aim:.2g}"
        return _integrate(
            *(compiled, coordinates, start, until, aim, max(_VERIFICATION.lost, promised), level, max_evaluations),
            lambda fraction, note: report(first + (done - first) * fraction, note + again),
        )

    run, compared, aim = integrate(tolerance), None, tolerance
    # The size of parameters that start at 0, to which their errors are relative, is known after a run.
    while (
        isinstance(coordinates, ParameterCoordinates)
        and (run.status.ok or run.lost)
        and 0 < run.largest < coordinates.scale / 2
    ):
        coordinates = replace(coordinates, scale=run.largest)
        run = integrate(tolerance)
    ratio = _VERIFICATION.regained
    while verify is not False and run.lost and not run.of_rounding and aim > _VERIFICATION.least:
        aim, ratio = max(aim / ratio, _VERIFICATION.least), ratio**2
        run = integrate(aim)
    if verify is not False and run.status.ok:
        tightest = _VERIFICATION.tightest * tolerance
        while max(run.time_error, _VERIFICATION.propagated * run.error) > promised and aim > tightest:
            aim /= _VERIFICATION.apart
            tighter = integrate(aim)
            run, compared = (tighter, run) if tighter.status.ok or tighter.lost else (run, tighter)
            if run is not tighter or not run.status.ok:
                break
        if verify and compared is None:
            coarser = integrate(_VERIFICATION.apart * tolerance)
            compared = None if coarser.lost else coarser
    times = run.record(record)
    states = run.path(times)
    losses = compiled.at(coordinates.point(states))
    if run.status.ok and not np.isfinite(losses).all():
        run.status = hidden_nan(times[~np.isfinite(losses)][0], coordinates.time_unit)
    accuracy = None if compared is None else _accuracy(compiled, coordinates, run, compared, times, losses)
    if run.status.ok:
        report(1.0, f"{coordinates.time_unit} = {run.last:.4g} of {until:.4g}")
    trajectory = Trajectory(
        times=times,
        time_unit=coordinates.time_unit,
        losses=losses,
        values=coordinates.point(states),
        crossings=run.crossings,
        level=level,
        conserved=0.0 if isinstance(coordinates, MirrorCoordinates) else None,
        accuracy=accuracy,
        time_error=_time_error(run, accuracy, tolerance),
        evaluations=compiled.evaluations,
        status=run.status,
        end=ResumeFrom(start, states[-1], run.samples),
        coordinates=coordinates,
        path=run.path,
    )
    if throw and not run.status.ok:
        raise FlowError(trajectory)
    return trajectory


@dataclass
class _Run:
    """One integration: its steps, crossings, the largest relative error of their times, and termination status."""

    origin: np.ndarray
    interpolants: list[Interpolant] = field(default_factory=list)
    losses: list[tuple[float, float, float]] = field(default_factory=list)  # `SurrogateStepper.loss` of all windows
    crossings: tuple[LevelEvent, ...] = ()
    time_error: float = 0.0
    error: float = 0.0  # largest one of the state, relative to its size or to its move
    samples: np.ndarray | None = None  # of the error of the last state
    lost: bool = False  # errors have grown to the size of the state
    of_rounding: bool = False  # and are due to rounding
    status: Status = REACHED

    @property
    def last(self) -> float:
        """The last time reached."""
        return self.interpolants[-1].end if self.interpolants else 0.0

    @property
    def largest(self) -> float:
        """The largest entry of a state in absolute value."""
        states = [self.origin, *(step.differences[0] for step in self.interpolants)]
        return max(float(np.max(np.abs(state))) for state in states)

    @property
    def path(self) -> DensePath:
        """States at any time."""
        return DensePath(self.origin, self.interpolants)

    def record(self, times: np.ndarray | None) -> np.ndarray:
        """Return the times to record: those given, or the ends of steps; with both ends and all crossings."""
        every = max(1, len(self.interpolants) // _RECORDS)
        given = [step.end for step in self.interpolants[::every]] if times is None else times[times <= self.last]
        return np.unique(np.concatenate([[0.0], given, [c.time for c in self.crossings], [self.last]]))


_TINY = float(np.finfo(float).tiny)
_RISE = 10.0  # times the error of the state, for a rise of the loss that it does not explain
_RECORDS = 500  # at least so many steps are recorded where there are more; each costs a loss


def _integrate(
    loss: CompiledLoss,
    coordinates: AbstractFlowCoordinates,
    start: AbstractInit,
    until: float,
    tolerance: float,
    lost: float,
    level: float | None,
    max_evaluations: int,
    report: Report,
) -> _Run:
    origin = start.origin()
    samples = start.samples if isinstance(start, ResumeFrom) else None
    run = _Run(origin, samples=samples)
    if until == 0:
        return run
    limit = loss.gradients + max_evaluations
    local = tolerance * LOCAL_SHARE
    stepper = SurrogateStepper(loss, coordinates, origin, until, tolerance=tolerance, local=local, samples=samples)
    band = coordinates.band(level) if level is not None else None
    crossings: list[LevelEvent] = []
    error, growth = np.zeros_like(origin), 0.0  # of the state; its move in so long a time as until now, in its sizes
    run.losses.append(stepper.loss)
    while stepper.t < until:
        before = stepper.y
        try:
            steps = stepper.step()
        except StepError as failure:
            before, after = np.max(np.abs(coordinates.point(run.path(run.last * np.array([0.999, 1.0])))), axis=1)
            grown = float(after / max(before, np.finfo(float).tiny))
            run.status = stuck(stepper.t, coordinates.time_unit, finite=failure.finite, growth=growth, grown=grown)
            if run.status.code == "diverged":
                duration = 10 * stepper.t / growth  # of a blow-up, by far: it takes less than its present size takes
                follow = SurrogateStepper(loss, coordinates, stepper.y, duration, tolerance=tolerance, local=local)
                if not _blows_up(follow, coordinates):
                    run.status = too_sudden(stepper.t, coordinates.time_unit)
            break
        fall = run.losses[0][1] - stepper.loss[1]
        errors = zip(steps, stepper.errors, stepper.rounding, stepper.loss_errors, strict=True)
        for step, of_steps, of_rounding, (of_loss, speed) in errors:
            after, error_after = step.differences[0], of_steps + of_rounding
            size = coordinates.scale + float(np.max(np.abs(after)))
            move = float(np.max(np.abs(after - before))) * step.end / (step.end - step.start)
            growth, relative = move / size, float(np.max(error_after)) / max(size, move)
            relative = max(relative, of_loss / max(fall, speed * step.end, _TINY))
            if not relative <= lost:
                run.lost, run.of_rounding = True, not float(np.max(of_rounding)) <= np.max(error_after) / 2
                run.status = _undecided(step.start, coordinates, tolerance, of_rounding=run.of_rounding)
                break
            run.error = max(run.error, relative)
            if band is not None:
                found = _crossings(step, before, after, *band)
                shifts = [_shift(step, crossing, error, error_after) / crossing.time for crossing in found]
                run.time_error = max([run.time_error, *shifts])
                crossings += found
            before, error = after, error_after
            run.interpolants.append(step)
        if run.lost:
            break
        run.samples = stepper.samples
        run.losses.append(stepper.loss)
        if coordinates.diverged(stepper.y):
            run.status = diverged(stepper.t, coordinates.time_unit)
            break
        if loss.gradients >= limit and stepper.t < until:
            run.status = exhausted(max_evaluations, stepper.t, coordinates.time_unit)
            break
        if len(run.interpolants) // 16 > (len(run.interpolants) - len(steps)) // 16:
            report(stepper.t / until, f"{coordinates.time_unit} = {stepper.t:.4g} of {until:.4g}")
    if run.status.ok or run.lost:
        _end_before_a_rise(run, coordinates, tolerance)
    run.crossings = tuple(sorted(one for one in crossings if one.time <= run.last))
    return run


def _end_before_a_rise(run: _Run, coordinates: AbstractFlowCoordinates, tolerance: float) -> None:
    """End a run before a window past a pole, known by a loss that rises for good, by more than errors explain.

    No loss rises along its gradient flow. An error e of the state is one of about |gradient| e of the loss; at the end
    of a window in a transition it may be larger, but such a rise is gone a window later.
    """
    times, losses, slopes = np.transpose(sorted(run.losses))
    of_state = max(tolerance, run.error) * max(coordinates.scale, run.largest) * slopes
    rounding = np.finfo(float).eps * np.max(np.abs(losses))
    slack = _RISE * (of_state + rounding) + tolerance * np.ptp(losses)
    before, after = np.minimum.accumulate(losses + slack), np.minimum.accumulate((losses - slack)[::-1])[::-1]
    if (risen := np.flatnonzero(after[1:] > before[:-1])).size:
        least = np.argmin(losses[: risen[0] + 1])
        rises = losses[least:] - losses[least] > _RISE * rounding + tolerance * np.ptp(losses[: least + 1])
        last = times[max(least + np.flatnonzero(rises)[0] - 2, 0)]  # the window before has steps beyond the pole, too
        run.interpolants = [step for step in run.interpolants if step.end <= last]
        run.status, run.lost = stuck(run.last, coordinates.time_unit, finite=True, growth=np.inf), False


def _blows_up(stepper: SurrogateStepper, coordinates: AbstractFlowCoordinates) -> bool:
    """Return True if the point grows until its own clock, which starts at 0, is too coarse, too, or beyond e^60."""
    begin = float(np.max(np.abs(coordinates.point(stepper.y))))
    try:
        while stepper.t < stepper.until and not coordinates.diverged(stepper.y):
            stepper.step()
    except StepError:
        pass
    grown = float(np.max(np.abs(coordinates.point(stepper.y)))) > GROWN * begin
    return stepper.t < stepper.until and grown


def _crossings(
    step: Interpolant, before: np.ndarray, after: np.ndarray, low: np.ndarray, high: np.ndarray
) -> list[LevelEvent]:
    """Find the crossings within one step: an entry passes the level where its state crosses an edge of a band."""
    found = []
    for edge, sign in ((high, 1), (low, -1)):
        for i in np.flatnonzero((sign * before < sign * edge) != (sign * after < sign * edge)):
            time = root_along(lambda at, i=i, edge=edge: float(step(at)[i] - edge[i]), step.start, step.end)
            found.append(LevelEvent(time, int(i), bool(sign * after[i] >= sign * edge[i]), sign))
    return found


def _undecided(time: float, coordinates: AbstractFlowCoordinates, tolerance: float, *, of_rounding: bool) -> Status:
    """Return the status of a run whose further path errors decide."""
    cures = ["perturb a start that is symmetric"] if of_rounding else []
    if not of_rounding and tolerance > _VERIFICATION.least:
        cures = ["use a smaller tolerance"]
    if not isinstance(coordinates, MirrorCoordinates):
        cures += [
            "use DiagonalInit for products of weights or factored_flow for products of matrices, which store small "
            "directions by their own size"
        ]
    source = "rounding errors" if of_rounding else "errors of the steps"
    return undecided(time, coordinates.time_unit, source, f"{', or '.join(['Stop there', *cures])}.")


def _shift(step: Interpolant, crossing: LevelEvent, error: np.ndarray, error_after: np.ndarray) -> float:
    """Return the error of a crossing's time, given those of the state at both ends of the step."""
    i, share = crossing.index, (crossing.time - step.start) / (step.end - step.start)
    of_state = (1 - share) * error[i] + share * error_after[i]
    speed = abs(step.slopes(np.array([crossing.time]))[0, i])
    return float(of_state / speed) if speed > 0 else np.inf


def _time_error(run: _Run, accuracy: Accuracy | None, tolerance: float) -> float | None:
    if not run.crossings:
        estimate = _VERIFICATION.propagated * run.error
        return estimate if estimate > _VERIFICATION.promised * tolerance else None
    measured = _VERIFICATION.propagated * run.time_error if accuracy is None else accuracy.crossing_times
    return max(measured, tolerance)


def _accuracy(
    loss: CompiledLoss,
    coordinates: AbstractFlowCoordinates,
    run: _Run,
    second: _Run,
    times: np.ndarray,
    losses: np.ndarray,
) -> Accuracy:
    if second.last < run.last:
        return Accuracy(np.inf, np.inf, np.inf)
    points, others = coordinates.point(run.path(times)), coordinates.point(second.path(times))
    ours, theirs = sorted(run.crossings, key=_kind), sorted(second.crossings, key=_kind)
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
    """Return the sort key of a crossing: its identity, and the time that orders repeated ones."""
    return crossing.index, crossing.sign, crossing.rising, crossing.time
