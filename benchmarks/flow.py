"""Stage times of the toy attention task, at alpha = 1e-8 to rescaled time 105: ours beside what one would use instead.

Each method runs once, compilation included, on one thread; CPU time. Errors are those of the times at which |beta|
first passes 0.05, relative, against DOP853 in float64 weights at rtol 1e-11: at this scale, and where no coordinate
returns to 0, those weights are still good. A second table shows what becomes of them where one does.

    python benchmarks/flow.py
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy, JAX and PyTorch are loaded
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_ENABLE_X64"] = "1"

import time
from collections.abc import Callable
from dataclasses import dataclass

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from saddlescope.flow import Products, gradient_descent, gradient_flow
from saddlescope.models import attention_teacher_task, diagonal_linear_network

ALPHA, UNTIL, LEVEL = 1e-8, 105.0, 0.05
UNIT = -np.log(ALPHA)
TASK = attention_teacher_task(1)
START = Products(TASK.u0, TASK.v0, -UNIT)
P = len(TASK.u0)
Beta = Callable[[np.ndarray], np.ndarray]  # times to products


@dataclass
class Run:
    """What a method found, and what it cost."""

    stages: list[tuple[float, int]]  # time and coordinate
    gradients: int


gradient_of = eqx.filter_jit(lambda network, beta: network.value_and_gradient(beta)[1])


def stages(beta: Beta) -> list[tuple[float, int]]:
    """The first time at which each coordinate passes the level, from a dense solution."""
    grid = np.linspace(0, UNTIL, 2001)
    above = np.abs(beta(grid)) > LEVEL
    found = []
    for i in np.flatnonzero(above.any(0)):
        k = int(np.argmax(above[:, i]))
        if k:
            level = lambda t, i=i: float(np.abs(beta(np.array([t]))[0, i])) - LEVEL  # noqa: E731
            found.append((float(brentq(level, grid[k - 1], grid[k], xtol=1e-12)), int(i)))  # type: ignore[arg-type]
    return sorted(found)


def ours(tolerance: float) -> Run:
    """Slope coordinates, stiff solver."""
    flow = gradient_flow(TASK.network, START, until=UNTIL, tolerance=tolerance, record=np.zeros(1))
    return Run(stages(flow), flow.evaluations.gradients + 16 * flow.evaluations.hessians)


def descent(rate: float) -> Run:
    """Fixed steps in float64 weights, compiled."""
    steps = int(np.ceil(UNTIL * UNIT / rate))
    run = gradient_descent(TASK.network, START, steps=steps, learning_rate=rate, record=np.arange(steps))
    return Run(stages(lambda t: run(np.minimum(t, run.times[-1]))), steps)


def torch_descent(rate: float) -> Run:
    """The loop one would write in PyTorch."""
    x, y = (torch.from_numpy(np.array(data)) for data in (TASK.network.inputs, TASK.network.targets))
    u, v = (torch.from_numpy(ALPHA * w).requires_grad_() for w in (TASK.u0, TASK.v0))
    optimiser = torch.optim.SGD([u, v], lr=rate)
    steps = int(np.ceil(UNTIL * UNIT / rate))
    path = np.empty((steps + 1, P))
    for step in range(steps):
        a, b = (u * v).split(P // 2)
        path[step] = (u * v).detach().numpy()
        loss = (((x * a) @ x.mT).softmax(-1) @ x * b - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    path[steps] = (u * v).detach().numpy()
    times = np.arange(steps + 1) * rate / UNIT
    return Run(stages(lambda t: np.stack([np.interp(t, times, beta) for beta in path.T], 1)), steps)


def scipy_weights(method: str, rtol: float, atol: float) -> Run:
    """A SciPy solver in float64 weights."""

    def slope(_: float, w: np.ndarray) -> np.ndarray:
        g = -UNIT * np.asarray(gradient_of(TASK.network, jnp.asarray(w[:P] * w[P:])))
        return np.concatenate([w[P:] * g, w[:P] * g])

    start = ALPHA * np.concatenate([TASK.u0, TASK.v0])
    solution = solve_ivp(slope, (0, UNTIL), start, method=method, rtol=rtol, atol=atol, dense_output=True)
    return Run(stages(lambda t: (solution.sol(t)[:P] * solution.sol(t)[P:]).T), solution.nfev)


def diffrax_weights(rtol: float, atol: float) -> Run:
    """Diffrax's Tsit5 in float64 weights."""

    def slope(_, w, network):
        g = -UNIT * network.value_and_gradient(w[0] * w[1])[1]
        return w[1] * g, w[0] * g

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(slope),
        diffrax.Tsit5(),
        0.0,
        UNTIL,
        1e-4,
        (jnp.asarray(ALPHA * TASK.u0), jnp.asarray(ALPHA * TASK.v0)),
        args=TASK.network,
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        saveat=diffrax.SaveAt(dense=True),
        max_steps=16384,
    )
    at = jax.jit(jax.vmap(solution.evaluate))

    def beta(t: np.ndarray) -> np.ndarray:
        u, v = at(jnp.asarray(t))
        return np.asarray(u * v)

    return Run(stages(beta), 6 * int(solution.stats["num_steps"]))


METHODS = {
    "saddlescope, tolerance 1e-3": lambda: ours(1e-3),
    "saddlescope, tolerance 5e-5": lambda: ours(5e-5),
    "gradient descent in JAX, step 1": lambda: descent(1.0),
    "gradient descent in JAX, step 0.25": lambda: descent(0.25),
    "gradient descent in PyTorch, step 1": lambda: torch_descent(1.0),
    "SciPy RK45, rtol 1e-6, atol 1e-9": lambda: scipy_weights("RK45", 1e-6, 1e-9),
    "SciPy RK45, rtol 1e-6, atol 1e-6 alpha": lambda: scipy_weights("RK45", 1e-6, 1e-6 * ALPHA),
    "SciPy LSODA, rtol 1e-6, atol 1e-6 alpha": lambda: scipy_weights("LSODA", 1e-6, 1e-6 * ALPHA),
    "Diffrax Tsit5, rtol 1e-6, atol 1e-6 alpha": lambda: diffrax_weights(1e-6, 1e-6 * ALPHA),
}


def main() -> None:
    """Prints the table."""
    exact = {i: t for t, i in scipy_weights("DOP853", 1e-11, 1e-11 * ALPHA).stages}
    print(f"{len(exact)} stages. A Hessian counts as 16 gradients.\n")
    print(f"{'':44}{'max error':>14}{'missed':>8}{'gradients':>12}{'CPU s':>8}{'CPU over ours (5e-5)':>22}")
    rows = {}
    for name, method in METHODS.items():
        began = time.process_time()
        run = method()
        rows[name] = run, time.process_time() - began
    base = rows["saddlescope, tolerance 5e-5"][1]
    for name, (run, seconds) in rows.items():
        error = max(abs(t / exact[i] - 1) for t, i in run.stages)
        missed = len(exact) - len(run.stages)
        print(f"{name:44}{error:>14.1e}{missed:>8}{run.gradients:>12}{seconds:>8.1f}{seconds / base:>22.1f}")
    returning()


def returning() -> None:
    """Prints where solvers end when a coordinate must return to 0 and leave with the other sign, at alpha = 1e-16."""
    features, teacher = np.array([[3.0, -2, 0], [0, 0, 2], [-1, 1, 1]]), np.array([-1.0, -2, -2])
    curvature, unit = 2 * features.T @ features / 3, 16 * np.log(10)
    u, v = np.random.default_rng(0).standard_normal((2, 3))

    def slope(_: float, w: np.ndarray) -> np.ndarray:
        g = unit * curvature @ (teacher - w[:3] * w[3:])
        return np.concatenate([w[3:] * g, w[:3] * g])

    print("\nThree coordinates, one returns with the other sign; alpha = 1e-16, time 60. Exact end: -1 -2 -2\n")
    network = diagonal_linear_network(features, features @ teacher)
    flow = gradient_flow(network, Products(u, v, -unit), until=60.0, tolerance=1e-4)
    print(f"{'saddlescope, tolerance 1e-4':44}{np.round(flow.beta[-1], 6)!s:>32}   {flow.status}")
    for method in ("RK45", "DOP853", "LSODA", "Radau"):
        start = 1e-16 * np.concatenate([u, v])
        end = solve_ivp(slope, (0, 60), start, method=method, rtol=1e-10, atol=1e-38)
        beta = np.round(end.y[:3, -1] * end.y[3:, -1], 6)
        print(f"{f'SciPy {method} in (u, v), rtol 1e-10':44}{beta!s:>32}   {end.message}")


if __name__ == "__main__":
    main()
