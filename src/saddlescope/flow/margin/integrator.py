"""Integration of a margin system through the recorded times, with its energy balance."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saddlescope._shared.progress import Report
from saddlescope.flow.margin.systems import AbstractMarginSystem
from saddlescope.flow.status import REACHED, Status, exhausted
from saddlescope.numerics.ndf import Interpolant, StepError, Stepper
from saddlescope.numerics.ndf_coefficients import ALPHA

_LATE = 5.0  # ln(t / ts) from which margins of data that can be separated are positive as a rule
_LOST = -30.0  # a margin below which a sample counts as lost to a wrong token: its rates are below 1e-13


@dataclass(frozen=True)
class Policies:
    """Policies of a run.

    Attributes:
        rtol: relative error of a step.
        atol: absolute error of a step, in the coordinates.
        max_evaluations: of the right-hand side.
        report: called with the finished fraction and a note.
    """

    rtol: float
    atol: float
    max_evaluations: int
    report: Report


@dataclass(frozen=True, eq=False)
class MarginPath:
    """States at the recorded times, or until the run ended early, and its last state then.

    Attributes:
        log_times: ln t, (k,).
        states: [x, E, coordinates], (k, N + 2).
        defects: |E - ln(L - L*)| at each, over 1 or the change of |E|, whichever is larger, (k,).
        steps: of the solver.
        status: termination status.
    """

    log_times: Float[np.ndarray, "k"]
    states: Float[np.ndarray, "k N2"]
    defects: Float[np.ndarray, "k"]
    steps: int
    status: Status


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


def follow(
    system: AbstractMarginSystem,
    start: Float[np.ndarray, "N"],
    log_times: Float[np.ndarray, "K"],
    policies: Policies,
) -> MarginPath:
    """Integrate from time 0 through the times to record.

    Args:
        system: the right-hand side.
        start: the coordinates at time 0.
        log_times: ln t to record, ascending, the last finite.
        policies: of the run.
    """
    coordinate = system.time_coordinate
    recorded = coordinate.at(log_times)
    until = float(recorded[-1])
    y = system.start(start)
    tolerances = np.concatenate([[policies.rtol] * 2, np.full(len(start), policies.atol)])
    stepper = Stepper(system, y, until, rtol=policies.rtol, atol=tolerances)
    states, steps, status = [y] * int(np.sum(recorded <= 0)), 0, REACHED
    while len(states) < len(recorded):
        if system.evaluations >= policies.max_evaluations:
            status = _exhausted(system, stepper.y, policies.max_evaluations)
            break
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # a trial state may overflow: it is rejected
                step = stepper.step()
        except StepError as error:
            status = _no_step(system, stepper.y, finite=error.finite)
            break
        steps += 1
        while len(states) < len(recorded) and recorded[len(states)] <= step.end:
            states.append(_settled(system, step, float(recorded[len(states)])))
        policies.report(step.end / until, f"ln t = {coordinate.log_time(step.end):.4g}")
    times = log_times[: len(states)]
    if not status.ok:
        states, times = [*states, stepper.y], np.append(times, coordinate.log_time(stepper.t))
    energies = np.array([system.loss.log_excess(system.margins(state[2:])) for state in states])
    carried = np.array([state[1] for state in states])
    defects = np.abs(carried - energies) / np.maximum(1.0, np.abs(carried - y[1]))
    return MarginPath(times, np.array(states), defects, steps, status)


def _no_step(system: AbstractMarginSystem, y: np.ndarray, *, finite: bool) -> Status:
    """Return the status of a run in which no step was short enough."""
    margins = system.margins(y[2:])
    sample, least = int(np.argmin(margins.min(axis=1))), float(margins.min())
    where = f"No step could be taken at ln t = {system.time_coordinate.log_time(y[0]):.6g}, however short"
    if finite and least < _LOST:
        return Status(
            False,
            f"{where}: sample {sample} attends to a wrong token, with a margin of {least:.4g}, and returns too "
            "suddenly for float64.",
            "Lower log_until; with larger score gaps, or another start, no sample is lost.",
        )
    if not finite:
        return Status(False, f"{where}: the rates are not finite.", "Evaluate them at the last of the flow's margins.")
    return Status(False, f"{where}.", "Lower tolerance: the solver has lost the slow path that late margins follow.")


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
