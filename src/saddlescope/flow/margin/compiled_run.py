"""A whole margin flow in one compiled call: integration, corrected states at the recorded times, and their tables."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from saddlescope._shared.compiled_functions import compiled_by_shape
from saddlescope.flow.margin.compiled_systems import AbstractCompiledMargins
from saddlescope.flow.solvers.dop853_compiled import explicit_steps
from saddlescope.flow.solvers.ndf_compiled import Plan, Position, Records, at_start, integrate

_SMALLEST_TABLE = 8  # records that a run has room for, or this times a power of _GROWTH: each size is compiled once
_GROWTH = 32


class Tables(NamedTuple):
    """States of a run at its recorded times and, last, at its end, with the tables of a `MarginFlow`.

    Attributes:
        states: [x, E, coordinates], (K + 1, N + 2).
        margins, log_rates, rate_signs, margin_speeds: (K + 1, n, m).
        log_excess: (K + 1,).
    """

    states: Float[Array, "K1 N2"]
    margins: Float[Array, "K1 n m"]
    log_rates: Float[Array, "K1 n m"]
    rate_signs: Float[Array, "K1 n m"]
    margin_speeds: Float[Array, "K1 n m"]
    log_excess: Float[Array, "K1"]


class Ending(NamedTuple):
    """End of a run: recorded times that it reached, and the fields of `Position` of the same names."""

    reached: Int[Array, ""]
    time: Float[Array, ""]
    steps: Int[Array, ""]
    evaluations: Int[Array, ""]
    code: Int[Array, ""]
    finite: Bool[Array, ""]


def room(records: int) -> int:
    """Return the records that the tables of a run have room for."""
    size = _SMALLEST_TABLE
    while size < records:
        size *= _GROWTH
    return size


def padded(times: Float[np.ndarray, "k"]) -> Float[np.ndarray, "K"]:
    """Return the times, with infinity up to the room that their tables have."""
    return np.concatenate([times, np.full(room(len(times)) - len(times), np.inf)])


@compiled_by_shape
def compiled_run(
    system: AbstractCompiledMargins,
    coordinates: Float[Array, "N"],
    recorded: Float[Array, "K"],
    log_times: Float[Array, "K"],
    until: Float[Array, ""],
    rtol: Float[Array, ""],
    atol: Float[Array, ""],
    max_evaluations: Int[Array, ""],
) -> tuple[Tables, Ending]:
    """Integrate a system from time 0 through the times to record.

    Args:
        system: the right-hand side.
        coordinates: at time 0.
        recorded: times x to record, ascending, the last finite one `until`.
        log_times: the same as ln t.
        until: the last time x.
        rtol: relative error of a step.
        atol: absolute error of a step, in the coordinates.
        max_evaluations: of the right-hand side.
    """
    first = system.loss.log_excess(system.margins(coordinates))
    start = jnp.concatenate([jnp.stack([jnp.zeros(()), first]), coordinates])
    tolerances = jnp.concatenate([jnp.stack([rtol, rtol]), jnp.broadcast_to(atol, coordinates.shape)])
    plan = Plan(recorded, until, rtol, tolerances, max_evaluations)
    records, position = explicit_steps(system, *at_start(system, start, plan), plan)
    records, end = integrate(system, records, position, plan)
    tables = _tables(system, records, end, recorded, log_times)
    moved = 2 * jnp.sum(records.spacings > 0)
    return tables, Ending(records.reached, end.time, end.steps, end.evaluations + moved, end.code, end.finite)


def _tables(
    system: AbstractCompiledMargins,
    records: Records,
    end: Position,
    recorded: Float[Array, "K"],
    log_times: Float[Array, "K"],
) -> Tables:
    """Return the tables of the records that were reached and of the end; all others are 0."""
    size = recorded.shape[0]
    last = end.differences[0]
    log_last = system.log_unit + jnp.expm1(end.time) + jnp.log(-jnp.expm1(-jnp.expm1(end.time)))
    shape = system.margins(last[2:]).shape

    def of(row: Int[Array, ""], state: Float[Array, "N2"], log_time: Float[Array, ""], tables: Tables) -> Tables:
        margins = system.margins(state[2:])
        log_rates, signs = system.loss.log_rates(margins)
        motion = system.moved(state[2:], signs * jnp.exp(log_rates + log_time))
        speeds = system.margins_jvp(state[2:], motion)
        found = Tables(state, margins, log_rates, signs, speeds, system.loss.log_excess(margins))
        return Tables(*(table.at[row].set(value) for table, value in zip(tables, found, strict=True)))

    def row(k: Int[Array, ""], tables: Tables) -> Tables:
        at_end = k == records.reached
        at = jnp.minimum(k, size - 1)
        y, c = jnp.where(at_end, last, records.states[at]), jnp.where(at_end, 0.0, records.spacings[at])
        settled = _settled(system, y, records.slopes[at], c, recorded[at])
        return of(jnp.where(at_end, size, k), settled, jnp.where(at_end, log_last, log_times[at]), tables)

    tokens = jnp.zeros((size + 1, *shape))
    empty = Tables(jnp.zeros((size + 1, last.shape[0])), tokens, tokens, tokens, tokens, jnp.zeros(size + 1))
    return lax.fori_loop(0, records.reached + 1, row, empty)


def _settled(
    system: AbstractCompiledMargins,
    y: Float[Array, "N2"],
    slope: Float[Array, "N2"],
    c: Float[Array, ""],
    x: Float[Array, ""],
) -> Float[Array, "N2"]:
    """Return an interpolated state, with its stiff part corrected so that its slope is that of the interpolation.

    Late margins are ln t times a function of the coordinates: an error of 1e-9 of these is one of 1e-3 in a margin at
    ln t = 1e6, unless the fast relaxation that ties the margins to their rates is compensated. A state at the start is
    exact; its c is 0.
    """

    def correct(factors: Any, y: Float[Array, "N2"]) -> Float[Array, "N2"]:
        change = system.solve(factors, c * (system.slope(y) - slope))
        return jnp.where(jnp.all(jnp.isfinite(change)), y + change, y)

    def corrected() -> Float[Array, "N2"]:
        factors = system.newton(y, c)
        return lax.fori_loop(0, 2, lambda _, now: correct(factors, now), y).at[0].set(x)

    return lax.cond(c > 0, corrected, lambda: y)
