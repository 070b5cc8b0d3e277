"""The prediction of stages from one unit beside flows of all units until the last of these stages, from alpha = 1e-32.

    T          limit of the last stage's time / log(1/alpha), by `unit_learning`
    t          time at which a flow's loss passes the middle between the last two levels; that of Tsit5 at a relative
               tolerance of 1e-11 is the reference
    error      of t, relative; of the prediction, T log(1/alpha) stands for t

Flows run until 1.01 of the reference. `unit_flow` follows norms and directions; the others follow the weights
themselves, with an absolute tolerance of alpha times the relative one. Each runs at the loosest tolerance of 1e-2,
1e-3, ..., 1e-6 at which its error is at most that of the prediction; implicit ones run on up to 300 weights. All are
timed once compiled, in turns; the first call of the prediction, with compilation, is a row of its own.

    python benchmarks/units.py [--quick] [WORD ...]
"""

import one_core

one_core.take()

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from board import Board, play
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

import saddlescope as ss
from saddlescope.papers.beyond.shared.units import half_square, linear_neuron, relu_neuron

LOG_ALPHA = -32 * math.log(10)
LABELS = np.array([1.2, -0.5, 0.7, -1.0, 0.9, -0.3, 0.4, -0.8])
TOLERANCES = [10.0**-k for k in range(2, 7)]
_MAX_STEPS = 1_000_000


@dataclass
class Problem:
    """Units, data, initial weights before they are scaled by alpha, and whether the prediction takes these weights."""

    name: str
    unit: Callable[..., Any]
    data: tuple[np.ndarray, np.ndarray]
    weights: dict[str, np.ndarray]
    given: bool

    def predict(self) -> Any:
        """Return the predicted stages."""
        one = {name: np.zeros(leaf.shape[1:]) for name, leaf in self.weights.items()}
        return ss.unit_learning(
            self.unit, self.data, half_square, parameters=one, weights=self.weights if self.given else None
        )

    def loss(self, weights: Any) -> Any:
        """Return the mean loss of all units."""
        output = lambda x: jnp.sum(jax.vmap(self.unit, (0, None))(weights, x), axis=0)  # noqa: E731
        return jnp.mean(jax.vmap(lambda x, y: half_square(output(x), y))(*map(jnp.asarray, self.data)))


def relu(width: int) -> Problem:
    """Return ReLU neurons on eight orthogonal samples with labels of both signs: two stages."""
    into = np.abs(np.random.default_rng(0).standard_normal((width, len(LABELS))))
    signs = np.where(np.arange(width) % 2 == 0, 1, -1)  # a balanced neuron keeps the sign of its output
    start = {"w": into, "a": signs * np.linalg.norm(into, axis=1)}
    return Problem(f"{width} ReLU neurons, 8 orthogonal samples", relu_neuron, (np.eye(8), LABELS), start, given=True)


def linear(width: int) -> Problem:
    """Return linear neurons on 50 random samples: three stages, in closed form where inputs are white."""
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((50, 20)))[0] * np.sqrt(50)
    U, V = (np.linalg.qr(rng.standard_normal((d, 3)))[0] for d in (20, 5))
    start = {"in": rng.standard_normal((width, 20)), "out": rng.standard_normal((width, 5))}
    data = X, X @ (U * [2.0, 1.5, 1.0]) @ V.T
    return Problem(f"{width} linear neurons, 50 samples in 20 dimensions", linear_neuron, data, start, given=False)


class Flows:
    """Flows of a problem from 1e-32 until a time, by several methods; each returns losses at given times."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.flat, self.tree = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, problem.weights))
        self.start = self.flat * math.exp(LOG_ALPHA)
        loss = lambda flat: problem.loss(self.tree(flat))  # noqa: E731
        self.slope = jax.jit(lambda flat: -jax.grad(loss)(flat))
        self.losses = jax.jit(lambda flats: jax.lax.map(loss, flats))
        self.steps = {
            "Diffrax, Tsit5": self._diffrax(diffrax.Tsit5()),
            "Diffrax, Kvaerno5": self._diffrax(diffrax.Kvaerno5()),
        }

    def _diffrax(self, solver: diffrax.AbstractSolver) -> Callable[..., Any]:
        @jax.jit
        def run(times: Any, tolerance: Any) -> Any:
            return diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, y, args: self.slope(y)), solver, 0.0, times[-1], None, self.start,
                saveat=diffrax.SaveAt(ts=times), max_steps=_MAX_STEPS, throw=False, adjoint=diffrax.ForwardMode(),
                stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance * math.exp(LOG_ALPHA)),
            ).ys  # fmt: skip

        return run

    def follow(self, method: str, times: np.ndarray, tolerance: float) -> np.ndarray:
        """Return the losses at these times; NaN where the method gives up."""
        if method == "SciPy, LSODA":
            found = solve_ivp(
                lambda t, y: np.asarray(self.slope(y)), (0.0, times[-1]), np.asarray(self.start), "LSODA",
                t_eval=times, rtol=tolerance, atol=tolerance * math.exp(LOG_ALPHA),
            )  # fmt: skip
            if not found.success:
                return np.full(len(times), np.nan)
            return np.asarray(self.losses(found.y.T))
        if method == "unit_flow":
            run = ss.unit_flow(
                self.problem.unit, self.problem.data, half_square, self.problem.weights, degree=2.0,
                log_scale=LOG_ALPHA, until=times[-1] / -LOG_ALPHA, tolerance=tolerance, record=times / -LOG_ALPHA,
                throw=False,
            )  # fmt: skip
            return run.losses[-len(times) :] if run.status.ok else np.full(len(times), np.nan)
        return np.asarray(self.losses(self.steps[method](jnp.asarray(times), jnp.asarray(tolerance))))


EXPLICIT, IMPLICIT = ("unit_flow", "Diffrax, Tsit5"), ("SciPy, LSODA", "Diffrax, Kvaerno5")
MOST = 300  # weights up to which implicit methods run, with a dense matrix of all


def passage(times: np.ndarray, losses: np.ndarray, level: float) -> float:
    """Return the time at which the loss first passes a level; NaN if it does not."""
    below = np.flatnonzero(losses < level)
    if not len(below) or below[0] == 0 or not np.isfinite(losses).all():
        return math.nan
    part = slice(max(below[0] - 8, 0), below[0] + 8)
    spline = CubicSpline(times[part], losses[part] - level)
    return float(brentq(spline, times[below[0] - 1], times[below[0]]))


def measure(problem: Problem, board: Board, turns: int) -> None:
    """Measure one problem."""
    before = time.process_time()
    learned = problem.predict()
    first = time.process_time() - before
    board.report(problem.name, "unit_learning", "CPU time of the first call, with compilation", first, "s")
    last, level = learned.stages[-1], (learned.stages[-1].loss + learned.stages[-2].loss) / 2
    predicted, flows = last.time * -LOG_ALPHA, Flows(problem)
    wide = predicted * np.linspace(0.9, 1.3, 2001)
    exact = passage(wide, flows.follow("Diffrax, Tsit5", wide, 1e-11), level)
    error = abs(predicted / exact - 1)
    board.report(problem.name, "unit_learning", "relative error of the last stage's time", error)
    print(problem.name, learned.status, "stages", len(learned.stages), "error", error, flush=True)
    near, end = exact * np.linspace(0.96, 1.02, 601), np.array([1.01 * exact])
    times: dict[str, list[float]] = {"unit_learning": []}
    notes = {}
    for method in EXPLICIT + (IMPLICIT if flows.start.size <= MOST else ()):
        errors = ((one, abs(passage(near, flows.follow(method, near, one), level) / exact - 1)) for one in TOLERANCES)
        chosen = next((one for one, off in errors if off <= error), None)
        if chosen is None:
            board.report(problem.name, method, "CPU time", None, "s", "not as close as the prediction at any tolerance")
            print("   ", method, "not as close as the prediction at any tolerance", flush=True)
            continue
        flows.follow(method, end, chosen)  # compiles
        times[method], notes[method] = [], f"tolerance {chosen:.0e}"
        for _ in range(turns):
            times["unit_learning"].append(timed(problem.predict))
            times[method].append(timed(lambda m=method, c=chosen: flows.follow(m, end, c)))
        print("   ", method, notes[method], np.median(times[method]) / np.median(times["unit_learning"]), flush=True)
    print("    unit_learning", np.median(times["unit_learning"]), flush=True)
    board.compare(problem.name, "CPU time", "s", times, notes, own={"unit_flow"} & set(times))


def timed(run: Callable[[], Any]) -> float:
    """Return the CPU time of a call."""
    before = time.process_time()
    run()
    return time.process_time() - before


def main(board: Board) -> None:
    """Measure at several widths."""
    jax.config.update("jax_enable_x64", True)
    problems = [relu(4)] if board.quick else [relu(8), relu(24), linear(64), linear(256)]
    if board.words:
        problems = [problem for problem in problems if any(word in problem.name for word in board.words)]
    for problem in problems:
        measure(problem, board, 1 if board.quick else 3)


if __name__ == "__main__":
    play(main)
