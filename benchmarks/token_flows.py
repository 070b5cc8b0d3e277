"""Diagonal flow of softmax attention to t = 1e10, 1e100, 1e300: right-hand sides and CPU time, beside SciPy, Diffrax.

All follow xi_k, xi_q from omega_0 = 0.1 (xi_q = 0) on Gaussian data and are asked for the direction beta / mu at the
end, to 1e-6 of its largest entry: each solver gets the loosest relative tolerance of a ladder with which it is that
near to the reference, this package's run at tolerance 1e-10, which other coordinates confirm (tests/flow):

    diagonal_margin_flow   implicit steps, in NumPy; its CPU time is that of the whole call
    stable, raw t          SciPy's RK45, DOP853, LSODA and Diffrax's Dopri8, Kvaerno5 in t, with rates from logarithms
    naive, raw t           the same with the gradient of the loss by automatic differentiation

"rhs" are evaluations of the right-hand side: for LSODA with those of its differenced Jacobians, for Kvaerno5 without
(each of its steps has 7 stages, and Newton iterations that Diffrax does not count), so that ours is at a disadvantage.
"says" is the status that the solver returned: "ok" beside an error above 1e-6 is a wrong answer returned as a success.
CPU seconds on one thread, compiled beforehand, all methods in turn, five times; what takes a second or more, once. The
seconds of a first call, to compile and to run, are noted beside them.

    python benchmarks/token_flows.py [--quick]
"""

import one_core

one_core.take(float64=True)

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from board import Board, play
from scipy.integrate import solve_ivp

from saddlescope.flow import diagonal_margin_flow
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.models.tokens.losses import SelectionLoss, attention_loss

SIZES = ((4, 5, 8), (20, 10, 200))
LOG10_TIMES = (10, 100, 300)
TURNS, SLOW = 5, 1.0  # a method that takes as many seconds has one turn
SCALE, WANTED = 0.1, 1e-6
LADDER = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
MOST = 20_000  # evaluations (SciPy) or steps (Diffrax) a run may take

Slope = Callable[[jax.Array], jax.Array]


class TooManyError(Exception):
    """A run has used up what it may."""


@dataclass
class Found:
    """One run: the state at its end, its cost, and what the solver said."""

    state: np.ndarray
    evaluations: int
    seconds: float
    says: str


Run = Callable[[float], Found]  # from a tolerance


def stable_slope(data: TokenData) -> Slope:
    """d(xi_k, xi_q)/dt with rates whose logarithms are summed first (equal gaps, exponential loss)."""
    B, gaps, n = jnp.asarray(data.features), jnp.asarray(data.gaps), data.samples

    def slope(state: jax.Array) -> jax.Array:
        keys, queries = state
        u = B @ (keys * queries)
        log_optimal = -jnp.logaddexp(0.0, jax.nn.logsumexp(-u, axis=1))
        log_sigma = log_optimal[:, None] - u
        f = jnp.asarray(data.optimal_scores) - jnp.sum(gaps * jnp.exp(log_sigma), axis=1)
        force = jnp.einsum("nm,nmd->d", jnp.exp(log_sigma + (log_optimal - f)[:, None] + jnp.log(gaps / n)), B)
        return jnp.stack([force * queries, force * keys])

    return slope


def naive_slope(data: TokenData) -> Slope:
    """Minus the gradient of the loss as the paper writes it."""
    gradient = jax.grad(lambda state: attention_loss(data)(state[0] * state[1]))
    return lambda state: -gradient(state)


def scipy_run(slope: Slope, method: str, start: np.ndarray, until: float, rtol: float) -> Found:
    """SciPy's solver in raw time."""
    compiled, count = jax.jit(slope), 0

    def right(_: float, y: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        if count > MOST:
            raise TooManyError
        return np.asarray(compiled(y.reshape(start.shape))).ravel()

    right(0.0, start.ravel())
    count, began = 0, time.process_time()
    try:
        solution = solve_ivp(right, (0, until), start.ravel(), method, rtol=rtol, atol=rtol * SCALE)
        state, says = solution.y[:, -1].reshape(start.shape), "ok" if solution.success else "failed"
    except TooManyError:
        state, says = np.full_like(start, np.nan), f"> {MOST}"
    return Found(state, count, time.process_time() - began, says)


def diffrax_runs(slope: Slope, solver: diffrax.AbstractSolver, start: np.ndarray, until: float) -> Run:
    """Diffrax's solver in raw time, compiled once for all tolerances."""

    @jax.jit
    def solve(begin: jax.Array, rtol: jax.Array) -> diffrax.Solution:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: slope(y)), solver, 0.0, until, None, begin, max_steps=MOST // 10,
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * SCALE), throw=False,
        )  # fmt: skip

    def run(rtol: float) -> Found:
        began = time.process_time()
        solution = solve(jnp.asarray(start), jnp.asarray(rtol))
        state = np.asarray(solution.ys)[-1]
        seconds = time.process_time() - began
        stages = 14 if isinstance(solver, diffrax.Dopri8) else 7
        says = "ok" if solution.result == diffrax.RESULTS.successful else "failed"
        return Found(state, stages * int(solution.stats["num_steps"]), seconds, says)

    return run


def our_runs(data: TokenData, power: int) -> Run:
    """This package's flow; the seconds are those of the whole call."""
    loss, log_time = SelectionLoss(data.optimal_scores, data.gaps), power * np.log(10)

    def run(tolerance: float) -> Found:
        began = time.process_time()
        flow = diagonal_margin_flow(
            loss, data.features, SCALE, log_until=log_time, record=[log_time], tolerance=tolerance
        )
        seconds = time.process_time() - began
        return Found(np.stack([flow.beta[-1], np.ones(data.dim)]), flow.evaluations, seconds, "ok")

    return run


def error(data: TokenData, wanted: np.ndarray, state: np.ndarray) -> float:
    """Return the error of the direction in units of its largest entry; infinite where the direction does not exist."""
    beta = state[0] * state[1]
    margin = float((data.features @ beta).min())
    return float(np.abs(beta / margin - wanted).max() / np.abs(wanted).max()) if margin > 0 else np.inf


def compare(board: Board, data: TokenData, power: int, turns: int) -> None:
    """Prints one table: to t = 10^power."""
    start, until = np.zeros((2, data.dim)), 10.0**power
    start[0] = SCALE * 2**0.5
    log_time, loss = power * np.log(10), SelectionLoss(data.optimal_scores, data.gaps)
    exact = diagonal_margin_flow(
        loss, data.features, SCALE, log_until=log_time, record=[log_time], tolerance=1e-10
    ).direction[0]
    off = partial(error, data, exact)
    runs = {"diagonal_margin_flow": our_runs(data, power)}
    for kind, slope in {"stable": stable_slope(data), "naive": naive_slope(data)}.items():
        runs |= {
            f"SciPy {name}, {kind} rates": partial(scipy_run, slope, name, start, until)
            for name in ("RK45", "DOP853", "LSODA")
        }
        runs[f"Diffrax Dopri8, {kind} rates"] = diffrax_runs(slope, diffrax.Dopri8(), start, until)
        if data.dim < 50:  # beyond, a dense Newton matrix of 2 d is too slow
            runs[f"Diffrax Kvaerno5, {kind} rates"] = diffrax_runs(slope, diffrax.Kvaerno5(), start, until)
    first = {name: run(LADDER[0]).seconds for name, run in runs.items()}
    settings = {name: loosest(run, off) for name, run in runs.items()}
    found = {name: [run(settings[name])] for name, run in runs.items()}
    for _ in range(turns - 1):
        for name, run in runs.items():
            if found[name][0].seconds < SLOW:
                found[name].append(run(settings[name]))
    seconds = {name: [one.seconds for one in each] for name, each in found.items()}
    evaluations = {name: each[0].evaluations for name, each in found.items()}
    notes = {
        name: f"says {each[0].says}, "
        + (f"error {away:.0e}" if np.isfinite(away := off(each[0].state)) else "no direction")
        + f"; the first call {first[name]:.1f} s"
        for name, each in found.items()
    }
    problem = f"(n, L, d) = {(data.samples, data.tokens, data.dim)} to t = 1e{power}"
    print(f"\n{problem}\n{'':34}{'rtol':>7}{'rhs':>8}{'seconds':>10}{'ratio':>8}")
    ours_taken = np.median(seconds["diagonal_margin_flow"])
    for name in runs:
        taken = np.median(seconds[name])
        ratio = taken / ours_taken
        print(
            f"{name:34}{settings[name]:7.0e}{evaluations[name]:8}{taken:10.4f}{ratio:8.2f}  {notes[name]}", flush=True
        )
    board.compare(problem, "right-hand sides", "", evaluations, notes, own=("diagonal_margin_flow",))
    board.compare(problem, "CPU time", "s", seconds, notes, own=("diagonal_margin_flow",))


def loosest(run: Run, off: Callable[[np.ndarray], float]) -> float:
    """The loosest tolerance that is near enough, or the best that was tried."""
    best = (np.inf, LADDER[0])
    for rtol in LADDER:
        found = run(rtol)
        here = off(found.state)
        if here < best[0]:
            best = (here, rtol)
        if here <= WANTED:
            return rtol
        if found.says != "ok":
            break
    return best[1]


def main(board: Board) -> None:
    """Prints all tables."""
    warnings.simplefilter("ignore")  # the tables have LSODA's complaints
    for size in SIZES[: 1 if board.quick else None]:
        for power in LOG10_TIMES[: 1 if board.quick else None]:
            compare(board, gaussian_tokens(*size, seed=1), power, 1 if board.quick else TURNS)


if __name__ == "__main__":
    play(main)
