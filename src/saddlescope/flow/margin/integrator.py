"""Integration of a margin system through the recorded times, with its energy balance."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from saddlescope._shared.errors import InputError
from saddlescope.flow.margin.records import MarginFlow, MarginRun, balanced
from saddlescope.flow.margin.systems import AbstractMarginSystem
from saddlescope.flow.status import REACHED, FlowError, Status, exhausted, undecided
from saddlescope.numerics.ndf import ALPHA, Interpolant, StepError, Stepper

# Our own NDF, not Diffrax on the same rates: Dopri8 needs steps that grow with ln t (249 at ln t = 690, and more than
# 20,000 at 1e6), Kvaerno5 in ln ln t was not done after 3000, and both take longer than a whole run here to compile. A
# second Dopri8 of one shape, to t = 1e300 at most, is 2.6 to 260 times as fast; but a loss here may be one in NumPy.

_LOCAL_SHARE = 0.1  # of the tolerance, for the error of one step: directions then end within the tolerance, about
_LATE = 5.0  # ln(t / ts) from which margins of data that can be separated are positive as a rule
_DROWNED = 1e-2  # rounding errors, relative to the coordinates, that end a run
_LOST = -30.0  # a margin below which a sample counts as lost to a wrong token: its rates are below 1e-13


def _exhausted(system: AbstractMarginSystem, y: np.ndarray, max_evaluations: int) -> Status:
    """Return the status of a run that has used up its evaluations, as all do on data that cannot be separated."""
    coordinate, margins = system.time_coordinate, system.margins(y[2:])
    sample, least = int(np.argmin(margins.min(axis=1))), float(margins.min())
    log_time = coordinate.log_time(y[0])
    cure = "Raise max_evaluations or tolerance, or lower log_until."
    if log_time - coordinate.log_unit > _LATE and least < 0:
        cure = (
            f"Sample {sample} still has a margin of {least:.3g}: lower log_until if no weights make all margins "
            "positive, which l1_svm, frobenius_svm and nuclear_svm check; else raise max_evaluations or tolerance."
        )
    return exhausted(max_evaluations, log_time, "ln t", cure)


_Flow = TypeVar("_Flow", bound=MarginFlow)


def follow(
    kind: type[_Flow],
    system: AbstractMarginSystem,
    run: MarginRun,
    own: Callable[[Float[np.ndarray, "k N"]], dict[str, Any]],
) -> _Flow:
    """Integrate from time 0 through the times to record.

    Args:
        kind: class of the result.
        system: the right-hand side; its unit of time is set here.
        run: arguments of the flow.
        own: from the recorded coordinates to the fields of the class beyond those of `MarginFlow`.

    Raises:
        InputError: the flow never moves from the start, or its margins overflow there; or a time cannot be used.
        FlowError: the status is not ok and `run.throw` is true.
    """
    _set_time_unit(system)
    coordinate = system.time_coordinate
    until = float(coordinate.at(np.array([run.log_until]))[0])
    times = run.times(coordinate.log_time, until)
    recorded, y, local = coordinate.at(times), system.start(), run.tolerance * _LOCAL_SHARE
    tolerances = np.concatenate([[local] * 2, np.full(len(system.origin), local * system.scale)])
    stepper = Stepper(system, y, until, rtol=local, atol=tolerances)
    states, steps, status = [y] * int(np.sum(recorded <= 0)), 0, REACHED
    while len(states) < len(recorded):
        if system.evaluations >= run.max_evaluations:
            status = _exhausted(system, stepper.y, run.max_evaluations)
            break
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # a trial state may overflow: it is rejected
                step = stepper.step()
        except StepError as error:
            status = _no_step(system, stepper.y, finite=error.finite)
            break
        if not system.rounding(step) <= _DROWNED:
            cure = "Stop there, or perturb a start such as K = -Q, which lacks the direction that grows."
            status = undecided(coordinate.log_time(step.start), "ln t", "rounding errors", cure)
            break
        steps += 1
        while len(states) < len(recorded) and recorded[len(states)] <= step.end:
            states.append(_settled(system, step, float(recorded[len(states)])))
        run.report(step.end / until, f"ln t = {coordinate.log_time(step.end):.4g}")
    times = times[: len(states)]
    if not status.ok:
        states, times = [*states, stepper.y], np.append(times, coordinate.log_time(stepper.t))
    energies, coordinates = np.array(states)[:, 1], np.array(states)[:, 2:]
    margins = np.array([system.margins(each) for each in coordinates])
    log_rates, signs = (np.array(each) for each in zip(*map(system.loss.log_rates, margins), strict=True))
    log_excess = np.array([system.loss.log_excess(each) for each in margins])
    defects = np.abs(energies - log_excess) / np.maximum(1.0, np.abs(energies - y[1]))
    flow = kind(
        log_times=times,
        margins=margins,
        log_excess=log_excess,
        log_rates=log_rates,
        rate_signs=signs,
        margin_speeds=np.array([system.margin_speeds(*each) for each in zip(coordinates, times, strict=True)]),
        energy_defects=defects,
        evaluations=system.evaluations,
        steps=steps,
        status=balanced(status, defects, run.tolerance),
        **own(coordinates),
    )
    if run.throw and not flow.status.ok:
        raise FlowError(flow)
    return flow


def _set_time_unit(system: AbstractMarginSystem) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        margins = system.margins(system.origin)
    if not np.all(np.isfinite(margins)):
        raise InputError("start must give finite margins; got weights that overflow. Start from smaller ones.")
    try:
        moves = system.set_time_unit()
    except ValueError as error:
        raise InputError(f"loss must be one of margins of shape {margins.shape!r}; got {system.loss!r}.") from error
    if not moves:
        raise InputError("start must have a gradient other than 0; got 0. Start from other weights.")


def _no_step(system: AbstractMarginSystem, y: np.ndarray, *, finite: bool) -> Status:
    """Return the status of a run in which no step was short enough."""
    margins = system.margins(y[2:])
    sample, least = int(np.argmin(margins.min(axis=1))), float(margins.min())
    where = f"No step could be taken at ln t = {system.time_coordinate.log_time(y[0]):.6g}, however short"
    if finite and least < _LOST:
        return Status(
            False,
            "stuck",
            f"{where}: sample {sample} attends to a wrong token, with a margin of {least:.4g}, and returns too "
            "suddenly for float64.",
            "Lower log_until; with larger score gaps, or another start, no sample is lost.",
        )
    if not finite:
        return Status(
            False,
            "not_finite",
            f"{where}: the rates are not finite.",
            "Evaluate them at the last of the flow's margins.",
        )
    return Status(
        False, "stuck", f"{where}.", "Lower tolerance: the solver has lost the slow path that late margins follow."
    )


def _settled(system: AbstractMarginSystem, step: Interpolant, x: float) -> np.ndarray:
    """Return the interpolated state, with its stiff part corrected so that its slope is that of the interpolation.

    Late margins are ln t times a function of the coordinates: an error of 1e-9 of these is one of 1e-3 in a margin at
    ln t = 1e6, unless the fast relaxation that ties the margins to their rates is compensated.
    """
    y = step(x)
    slope = step.slopes(np.array([x]))[0]
    c = step.step / ALPHA[len(step.differences) - 1]
    for _ in range(2):
        change = system.newton(y, c)(c * (system.slope(y) - slope))
        if not np.all(np.isfinite(change)):
            return y
        y = y + change
    y[0] = x
    return y
