"""Many gradient flows at once: CPU time for one flow of 64, beside the same code one flow at a time, and other solvers.

Diagonal linear networks on 2 p samples of a realisable regression, followed to rescaled time 10 at tolerance 1e-4 with
crossings of |beta| = 0.05. Two tables: 64 seeds (data, teacher, start) at alpha = 1e-32, and 64 initial scales from
1e-1 to 1e-4096 of one of them. Everything is compiled beforehand and runs on one thread. "One at a time" is a loop
over `gradient_flow_batched` with one flow, timed on eight flows evenly spread over the batch; so is the loop over
`gradient_flow`. Ratios compare the sample with what the same flows cost in the batch, by their share of its gradients.

    python benchmarks/batch.py [--quick]
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and JAX are loaded
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_ENABLE_X64"] = "1"

import time
from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from board import Board, play

from saddlescope.flow import DiagonalInit, Trajectory, gradient_flow, gradient_flow_batched
from saddlescope.models import diagonal_linear_network

FLOWS, SAMPLE = 64, 8
TURNS = 3  # of a batch, which is cheap
UNTIL, TOLERANCE, LEVEL = 10.0, 1e-4, 0.05
RECORD = np.linspace(0, UNTIL, 101)
SETTINGS: dict[str, Any] = {"until": UNTIL, "tolerance": TOLERANCE, "level": LEVEL, "record": RECORD}
LOG10 = float(np.log(10))


def problem(seed: int, p: int, digits: float):
    """A loss and a start."""
    rng = np.random.default_rng(seed)
    features, teacher = rng.standard_normal((2 * p, p)), rng.standard_normal(p)
    u, v = rng.standard_normal((2, p))
    return diagonal_linear_network(features, features @ teacher), DiagonalInit(u, v, -digits * LOG10)


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of a run in which nothing is compiled, the less of two, and what it made."""
    work()
    return min((timed(work) for _ in range(2)), key=lambda run: run[0])


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of one run, and what it made."""
    began = time.process_time()
    made = work()
    return time.process_time() - began, made


def largest_difference(ours: Trajectory, theirs: Trajectory) -> float:
    """Return the largest relative difference of crossing times; infinite where the crossings differ."""
    times: list[dict[tuple[int, bool, int], list[float]]] = [{}, {}]
    for of, trajectory in zip(times, (ours, theirs), strict=True):
        for c in trajectory.crossings:
            of.setdefault((c.index, c.rising, c.sign), []).append(c.time)
    a, b = times
    if {kind: len(of) for kind, of in a.items()} != {kind: len(of) for kind, of in b.items()}:
        return np.inf
    return max(abs(x / y - 1) for kind in b for x, y in zip(a[kind], b[kind], strict=True))


def row(board: Board, problem: str, p: int, loss: Any, starts: Sequence[DiagonalInit]) -> None:
    """One line of a table, for one loss or one for each start."""
    work = lambda: gradient_flow_batched(loss, starts, **SETTINGS)  # noqa: E731
    first, flows = seconds(work)
    batches = [first, *(timed(work)[0] for _ in range(TURNS - 1))]
    together = float(np.median(batches))
    losses = loss if isinstance(loss, Sequence) else [loss] * len(starts)
    picked = np.linspace(0, len(starts) - 1, min(SAMPLE, len(starts))).astype(int)

    def alone(i: int) -> Any:
        return gradient_flow_batched(losses[i], [starts[i]], **SETTINGS)

    def single(i: int) -> Trajectory:
        return gradient_flow(losses[i], starts[i], **SETTINGS)

    alone(0), single(0)
    began = time.process_time()
    for i in picked:
        alone(i)
    middle = time.process_time()
    others = [single(i) for i in picked]
    end = time.process_time()
    gradients = np.array([flow.evaluations.gradients for flow in flows])
    part = gradients[picked].sum() / gradients.sum()
    share = part * together
    of_sample = [1e3 * part * batch / len(picked) for batch in batches]
    board.compare(
        f"{problem}, p = {p}",
        "CPU time of a flow",
        "ms",
        {
            f"gradient_flow_batched, {len(starts)} at once": of_sample,
            "gradient_flow_batched, one at a time": 1e3 * (middle - began) / len(picked),
            "gradient_flow, one at a time": 1e3 * (end - middle) / len(picked),
        },
        own=("gradient_flow_batched, one at a time", "gradient_flow, one at a time"),
    )
    difference = max(largest_difference(flows[i], other) for i, other in zip(picked, others, strict=True))
    print(
        f"{p:4}{1e3 * together / len(starts):>12.1f}{1e3 * (middle - began) / len(picked):>16.0f}"
        f"{(middle - began) / share:>8.1f}"
        f"{1e3 * (end - middle) / len(picked):>16.0f}{(end - middle) / share:>8.1f}{difference:>14.1e}"
        f"{gradients.mean():>12.0f}",
        flush=True,
    )


def tsit5(p: int, digits: float, flows: int) -> tuple[float, float]:
    """CPU time of Diffrax's Tsit5 in mirror coordinates, vmapped, at the same error of a step; mean number of steps."""
    losses, starts = zip(*(problem(seed, p, digits) for seed in range(flows)), strict=True)
    coordinates = [start.flow_coordinates() for start in starts]
    data = [
        np.stack([loss.inputs for loss in losses]),
        np.stack([loss.targets for loss in losses]),
        np.stack([each.p for each in coordinates]),
        np.stack([each.q for each in coordinates]),
    ]

    def capped_exp(x):
        return jnp.exp(jnp.minimum(x, 60.0)) * (1 + jnp.maximum(x - 60, 0))

    def slope(_, y, of):
        features, targets, rise, fall = of
        beta = capped_exp(rise + 2 * y) - capped_exp(fall - 2 * y)
        return -digits * LOG10 * 2 / len(targets) * (features.T @ (features @ beta - targets))

    def solve(*of):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(slope),
            diffrax.Tsit5(),
            0.0,
            UNTIL,
            1e-5,
            jnp.zeros(p),
            args=of,
            stepsize_controller=diffrax.PIDController(rtol=TOLERANCE / 50, atol=TOLERANCE / 50),
            saveat=diffrax.SaveAt(ts=jnp.asarray(RECORD)),
            max_steps=1_000_000,
        )
        return solution.ys, solution.stats["num_steps"]

    run = jax.jit(jax.vmap(solve))
    taken, (_, steps) = seconds(lambda: jax.block_until_ready(run(*data)))
    return taken, float(np.mean(steps))


def main(board: Board) -> None:
    """Prints the tables."""
    flows, sizes = (4, (8,)) if board.quick else (FLOWS, (8, 16, 32, 64))
    heading = (
        f"{'p':>4}{'ms a flow':>12}{'one at a time':>16}{'ratio':>8}{'gradient_flow':>16}{'ratio':>8}"
        f"{'stage times':>14}{'gradients':>12}"
    )
    print(f"{flows} seeds at alpha = 1e-32\n{heading}")
    for p in sizes:
        losses, starts = zip(*(problem(seed, p, 32) for seed in range(flows)), strict=True)
        row(board, f"{flows} seeds at alpha = 1e-32", p, losses, starts)
    print(f"\n{flows} initial scales, 1e-1 to 1e-4096\n{heading}")
    for p in sizes:
        loss, start = problem(0, p, 32)
        scales = -LOG10 * np.geomspace(1, 4096, flows)
        row(
            board,
            f"{flows} scales, 1e-1 to 1e-4096",
            p,
            loss,
            [DiagonalInit(start.u, start.v, float(scale)) for scale in scales],
        )
    print(f"\nDiffrax Tsit5, vmapped over {flows} seeds\n{'p':>4}{'alpha':>10}{'ms a flow':>12}{'steps':>10}")
    for p, digits in ((8, 8),) if board.quick else ((16, 8), (16, 32), (16, 128), (64, 32)):
        losses, starts = zip(*(problem(seed, p, digits) for seed in range(flows)), strict=True)
        ours, _ = seconds(lambda: gradient_flow_batched(losses, starts, **SETTINGS))  # noqa: B023
        taken, steps = tsit5(p, digits, flows)
        board.compare(
            f"{flows} seeds at alpha = 1e-{digits}, p = {p}",
            "CPU time of a flow",
            "ms",
            {"gradient_flow_batched": 1e3 * ours / flows, "Diffrax Tsit5, vmapped, no crossings": 1e3 * taken / flows},
            {"Diffrax Tsit5, vmapped, no crossings": f"{steps:.0f} steps"},
        )
        print(f"{p:4}{f'1e-{digits}':>10}{1e3 * taken / flows:>12.1f}{steps:>10.0f}", flush=True)


if __name__ == "__main__":
    play(main)
