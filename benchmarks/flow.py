"""Stage times of the toy attention task to rescaled time 100: ours beside what one would use instead.

Errors are those of the times at which |beta| first passes 0.05, relative: the largest, and the median. Explicit methods
run in float64 weights (u, v), the absolute tolerance scaled with alpha, as a careful user would have it; each relative
tolerance is the loosest of 1e-4, 3e-5, 1e-5 whose errors are below about 1e-4. A method's cost is its evaluations of
the gradient over all samples; a column of a Hessian by a product counts 1.6 of them, a whole Hessian 11, as measured.
CPU time is that of one thread, after a short run that compiles; ours runs three times, the others once.

Three tables: all methods at alpha = 1e-4; ours and the best of the others at all six scales of Figure 2; and what
becomes of float64 weights where a coordinate returns to 0 and leaves with the other sign. About three minutes; to
time 1000, as Figure 2 goes, about ten.

    python benchmarks/flow.py [--quick] [rescaled time of the end]
"""

import one_core

one_core.take(float64=True)

import time
from collections.abc import Callable
from dataclasses import dataclass

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from board import Board, play
from scipy.integrate import DOP853, LSODA, RK45, OdeSolver, solve_ivp
from scipy.optimize import brentq

from saddlescope.flow import DiagonalInit, gradient_descent, gradient_flow
from saddlescope.loss.compiled import CompiledLoss
from saddlescope.models import attention_teacher_task, diagonal_linear_network

DIGITS, UNTIL, LEVEL, TURNS = (1, 2, 4, 8, 16, 32), 100.0, 0.05, 3
WARM = 60.0  # end of the run that compiles: the first coordinates have passed by then
TASK = attention_teacher_task(1)
P = len(TASK.u0)
Times = dict[int, float]  # when each coordinate first passes the level
Beta = Callable[[np.ndarray], np.ndarray]  # times to products


@dataclass
class Run:
    """Result of a method, and the number of its gradients."""

    times: Times
    gradients: float


asked: list[int] = []  # columns of the Hessian, call by call, since many at once cost less
evaluate_columns = CompiledLoss.hessian_columns


def evaluate_and_count(self: CompiledLoss, point: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Columns of the Hessian; how many is noted."""
    asked.append(len(columns))
    return evaluate_columns(self, point, columns)


CompiledLoss.hessian_columns = evaluate_and_count

gradient_of = eqx.filter_jit(lambda network, beta: network.value_and_gradient(beta)[1])


def unit(digits: int) -> float:
    """Time of the flow in one unit of rescaled time, log(1/alpha)."""
    return digits * np.log(10)


def passages(beta: Beta, grid: np.ndarray) -> Times:
    """The first time at which each coordinate passes the level, from a dense solution."""
    above = np.abs(beta(grid)) > LEVEL
    found = {}
    for i in np.flatnonzero(above.any(0)):
        k = int(np.argmax(above[:, i]))
        if k:
            level = lambda t, i=i: float(np.abs(beta(np.array([t]))[0, i])) - LEVEL  # noqa: E731
            found[int(i)] = float(brentq(level, grid[k - 1], grid[k], xtol=1e-12))  # type: ignore[arg-type]
    return found


def ours(digits: int, until: float, tolerance: float) -> Run:
    """Slope coordinates, windows."""
    asked.clear()
    start = DiagonalInit(TASK.u0, TASK.v0, -unit(digits))
    flow = gradient_flow(TASK.network, start, until=until, tolerance=tolerance, level=LEVEL, record=np.zeros(1))
    times = {c.index: c.time for c in reversed(flow.crossings) if c.rising}
    return Run(times, flow.evaluations.gradients + sum(min(1.6 * columns, 11.0) for columns in asked))


def descent(digits: int, until: float, rate: float) -> Run:
    """Fixed steps in float64 weights, compiled."""
    steps = int(np.ceil(until * unit(digits) / rate))
    start = DiagonalInit(TASK.u0, TASK.v0, -unit(digits))
    run = gradient_descent(TASK.network, start, steps=steps, learning_rate=rate, record=np.arange(steps))
    return Run(passages(lambda t: run(np.minimum(t, run.times[-1])), run.times), steps)


def torch_descent(digits: int, until: float, rate: float) -> Run:
    """The loop one would write in PyTorch."""
    x, y = (torch.from_numpy(np.array(data)) for data in (TASK.network.inputs, TASK.network.targets))
    u, v = (torch.from_numpy(10.0**-digits * w).requires_grad_() for w in (TASK.u0, TASK.v0))
    optimiser = torch.optim.SGD([u, v], lr=rate)
    steps = int(np.ceil(until * unit(digits) / rate))
    path = np.empty((steps + 1, P))
    for step in range(steps):
        a, b = (u * v).split(P // 2)
        path[step] = (u * v).detach().numpy()
        loss = (((x * a) @ x.mT).softmax(-1) @ x * b - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    path[steps] = (u * v).detach().numpy()
    times = np.arange(steps + 1) * rate / unit(digits)
    return Run(passages(lambda t: np.stack([np.interp(t, times, beta) for beta in path.T], 1), times), steps)


def scipy_weights(method: type[OdeSolver], digits: int, until: float, rtol: float) -> Run:
    """A SciPy solver in float64 weights, its steps examined as they come: a dense solution would fill the memory."""

    def slope(_: float, w: np.ndarray) -> np.ndarray:
        nonlocal gradients
        gradients += 1
        g = -unit(digits) * np.asarray(gradient_of(TASK.network, jnp.asarray(w[:P] * w[P:])))
        return np.concatenate([w[P:] * g, w[:P] * g])

    gradients, times, below, alpha = 0, {}, np.ones(P, bool), 10.0**-digits
    start = alpha * np.concatenate([TASK.u0, TASK.v0])
    solver = method(slope, 0.0, start, until, rtol=rtol, atol=rtol * alpha)  # pyright: ignore[reportCallIssue]
    while solver.status == "running":
        solver.step()
        new = np.flatnonzero(below & (np.abs(solver.y[:P] * solver.y[P:]) > LEVEL))
        below[new] = False
        if new.size:
            dense = solver.dense_output()
            for i in new:
                level = lambda t, i=i, at=dense: float(np.abs(at(t)[i] * at(t)[P + i])) - LEVEL  # noqa: E731
                inside = (
                    level(solver.t_old) < 0 < level(solver.t)
                )  # else the interpolation puts it just outside the step
                times[int(i)] = float(brentq(level, solver.t_old, solver.t, xtol=1e-12)) if inside else float(solver.t)  # type: ignore[arg-type]
    return Run(times, gradients)


def weights_slope(_, w, args):
    """The flow of (u, v) in rescaled time, for Diffrax: one function for all runs, so that it is compiled once."""
    network, unit_of_time = args
    g = -unit_of_time * network.value_and_gradient(w[0] * w[1])[1]
    return w[1] * g, w[0] * g


@eqx.filter_jit
def evaluated(solution: diffrax.Solution, t: jax.Array):
    """A dense solution at some times."""
    return jax.vmap(solution.evaluate)(t)


def diffrax_weights(digits: int, until: float, rtol: float) -> Run:
    """Diffrax's Tsit5 in float64 weights."""
    alpha = 10.0**-digits
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(weights_slope),
        diffrax.Tsit5(),
        0.0,
        until,
        1e-4,
        (jnp.asarray(alpha * TASK.u0), jnp.asarray(alpha * TASK.v0)),
        args=(TASK.network, unit(digits)),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * alpha),
        saveat=diffrax.SaveAt(dense=True),
        max_steps=16384,
    )

    def beta(t: np.ndarray) -> np.ndarray:
        u, v = evaluated(solution, jnp.asarray(t))
        return np.asarray(u * v)

    return Run(passages(beta, np.linspace(0, until, 8001)), 6 * int(solution.stats["num_steps"]))


def compared(
    board: Board,
    title: str,
    reference: list[Times],
    methods: dict[str, Callable[[int, float], Run]],
    scales: list[int],
    until: float,
    turns: int,
) -> None:
    """Prints one table; costs are sums over the scales and, in the last columns, multiples of the first method's.

    Only the first method is run more than once, and its CPU time is the median.
    """
    print(f"\n{title}\n")
    print(f"{'':42}{'max error':>11}{'median':>10}{'missed':>8}{'gradients':>11}{'CPU s':>8}{'ratios':>16}")
    base = None
    gradients: dict[str, float] = {}
    seconds: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    for name, method in methods.items():
        taken, runs = [], []
        method(scales[0], WARM)
        for _ in range(1 if seconds else turns):
            began, runs = time.process_time(), [method(digits, until) for digits in scales]
            taken.append(time.process_time() - began)
        cost = sum(run.gradients for run in runs), float(np.median(taken))
        gradients[name], seconds[name] = cost[0], taken
        base = base or cost
        pairs = [
            (run.times.get(i), exact) for run, times in zip(runs, reference, strict=True) for i, exact in times.items()
        ]
        errors = [abs(t / exact - 1) for t, exact in pairs if t is not None]
        ratios = f"{cost[0] / base[0]:.1f}, {cost[1] / base[1]:.1f}"
        notes[name] = f"stage times to {max(errors):.0e}, {len(pairs) - len(errors)} missed"
        print(
            f"{name:42}{max(errors):>11.1e}{np.median(errors):>10.1e}{len(pairs) - len(errors):>8}"
            f"{cost[0]:>11.0f}{cost[1]:>8.1f}{ratios:>16}",
            flush=True,
        )
    problem = title.partition(";")[0]
    own = [name for name in seconds if name.startswith("gradient_flow")]
    board.compare(problem, "gradients over all samples", "", gradients, notes, own=own)
    board.compare(problem, "CPU time", "s", seconds, own=own)


def returning(board: Board) -> None:
    """Prints where solvers end when a coordinate must return to 0 and leave with the other sign, at alpha = 1e-16."""
    features, teacher = np.array([[3.0, -2, 0], [0, 0, 2], [-1, 1, 1]]), np.array([-1.0, -2, -2])
    curvature = 2 * features.T @ features / 3
    u, v = np.random.default_rng(0).standard_normal((2, 3))

    def slope(_: float, w: np.ndarray) -> np.ndarray:
        g = unit(16) * curvature @ (teacher - w[:3] * w[3:])
        return np.concatenate([w[3:] * g, w[:3] * g])

    print("\nThree coordinates, one returns with the other sign; alpha = 1e-16, time 60. Exact end: -1 -2 -2\n")
    network = diagonal_linear_network(features, features @ teacher)
    flow = gradient_flow(network, DiagonalInit(u, v, -unit(16)), until=60.0, tolerance=1e-4)
    print(f"{'saddlescope, tolerance 1e-4':44}{np.round(flow.beta[-1], 6)!s:>32}   {flow.status}")

    def reported(method: str, end: np.ndarray, says: str) -> None:
        off = float(np.max(np.abs(end - teacher)))
        board.report(
            "a coordinate returns with the other sign, alpha = 1e-16", method, "error of the end", off, note=says
        )

    reported("gradient_flow, tolerance 1e-4", flow.beta[-1], "says it is done" if flow.status.ok else "says it failed")
    for method in ("RK45", "DOP853", "LSODA", "Radau"):
        start = 1e-16 * np.concatenate([u, v])
        end = solve_ivp(slope, (0, 60), start, method=method, rtol=1e-10, atol=1e-38)
        beta = np.round(end.y[:3, -1] * end.y[3:, -1], 6)
        reported(
            f"SciPy {method}, rtol 1e-10",
            end.y[:3, -1] * end.y[3:, -1],
            "says success" if end.success else "says failure",
        )
        print(f"{f'SciPy {method} in (u, v), rtol 1e-10':44}{beta!s:>32}   {end.message}")


def main(board: Board) -> None:
    """Prints the three tables."""
    until = float(board.words[0]) if board.words else 60.0 if board.quick else UNTIL
    turns = 1 if board.quick else TURNS
    returning(board)
    compared(
        board,
        f"alpha = 1e-4 to time {until:g}; errors against DOP853 in (u, v) at rtol 1e-10",
        [scipy_weights(DOP853, 4, until, 1e-10).times],
        {
            "gradient_flow, tolerance 2e-5": lambda digits, until: ours(digits, until, 2e-5),
            "gradient_flow, tolerance 2e-6": lambda digits, until: ours(digits, until, 2e-6),
            "SciPy LSODA, rtol 1e-5": lambda digits, until: scipy_weights(LSODA, digits, until, 1e-5),
            "SciPy RK45, rtol 3e-5": lambda digits, until: scipy_weights(RK45, digits, until, 3e-5),
            "SciPy DOP853, rtol 1e-5": lambda digits, until: scipy_weights(DOP853, digits, until, 1e-5),
            "Diffrax Tsit5, rtol 1e-5": lambda digits, until: diffrax_weights(digits, until, 1e-5),
            "gradient descent in JAX, step 1": lambda digits, until: descent(digits, until, 1.0),
            "gradient descent in PyTorch, step 1": lambda digits, until: torch_descent(digits, until, 1.0),
        },
        [4],
        until,
        turns,
    )
    scales = [1, 4] if board.quick else list(DIGITS)
    compared(
        board,
        f"{len(scales)} scales from 1e-1 to 1e-{scales[-1]} to time {until:g}; errors against ours at tolerance 1e-8",
        [ours(digits, until, 1e-8).times for digits in scales],
        {
            "gradient_flow, tolerance 2e-5": lambda digits, until: ours(digits, until, 2e-5),
            "gradient_flow, tolerance 2e-6": lambda digits, until: ours(digits, until, 2e-6),
            "SciPy LSODA, rtol 1e-5": lambda digits, until: scipy_weights(LSODA, digits, until, 1e-5),
        },
        scales,
        until,
        turns,
    )


if __name__ == "__main__":
    play(main)
