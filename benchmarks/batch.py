"""Many gradient flows at once: CPU time for one flow of 64, beside the same code one flow at a time, and other solvers.

Diagonal linear networks on 2 p samples of a realisable regression, followed to rescaled time 10 at tolerance 1e-4 with
crossings of |beta| = 0.05. Two tables: 64 seeds (data, teacher, start) at alpha = 1e-32, and 64 initial scales from
1e-1 to 1e-4096 of one of them. Everything is compiled beforehand and runs on one thread. "One at a time" is a loop
over `gradient_flow_batched` with one flow, timed on eight flows evenly spread over the batch; so is the loop over
`gradient_flow`. Ratios compare the sample with what the same flows cost in the batch, by their share of its gradients.

Diffrax's Tsit5 is compared at equal error: each method has the loosest tolerance of a ladder of half decades with which
beta is within 1e-3 of its largest entry, at all recorded times of eight flows. It takes the gradient as the model is
written, or as the quadratic form that `gradient_flow_batched` makes of it; it finds no crossings and keeps no energy.

    python benchmarks/batch.py [--quick]
"""

import one_core

one_core.take(float64=True)

import time
from collections.abc import Callable, Sequence
from functools import partial
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
ERROR, EXACT, CHECKED = 1e-3, 1e-9, 8  # wanted; tolerance of the reference, for so many flows
LADDER = tuple(10 ** (-exponent / 2) for exponent in range(6, 17))  # 1e-3 to 1e-8
SETTINGS: dict[str, Any] = {"until": UNTIL, "tolerance": TOLERANCE, "level": LEVEL, "record": RECORD}
LOG10 = float(np.log(10))

Method = Callable[[float], tuple[np.ndarray, str]]  # from a tolerance: beta at the recorded times, and what it took


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


def tsit5(losses: Sequence[Any], starts: Sequence[DiagonalInit], digits: float, *, quadratic: bool) -> Method:
    """Diffrax's Tsit5 in mirror coordinates, vmapped: beta at the recorded times and the mean number of steps."""
    coordinates = [start.flow_coordinates() for start in starts]
    features, targets = jnp.stack([loss.inputs for loss in losses]), jnp.stack([loss.targets for loss in losses])
    rise, fall = np.stack([each.p for each in coordinates]), np.stack([each.q for each in coordinates])
    samples, p = features.shape[1:]
    if quadratic:  # the gradient by fewer products, as gradient_flow_batched forms it
        targets = 2 / samples * jnp.einsum("fnp,fn->fp", features, targets)
        features = 2 / samples * jnp.einsum("fnp,fnq->fpq", features, features)

    def capped_exp(x):
        return jnp.exp(jnp.minimum(x, 60.0)) * (1 + jnp.maximum(x - 60, 0))

    def slope(_, y, of):
        features, targets, rise, fall = of
        beta = capped_exp(rise + 2 * y) - capped_exp(fall - 2 * y)
        residual = features @ beta - targets
        return -digits * LOG10 * (residual if quadratic else 2 / samples * (features.T @ residual))

    def solve(tolerance, *of):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(slope),
            diffrax.Tsit5(),
            0.0,
            UNTIL,
            1e-5,
            jnp.zeros(p),
            args=of,
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            saveat=diffrax.SaveAt(ts=jnp.asarray(RECORD)),
            max_steps=1_000_000,
        )
        _, _, rise, fall = of
        return capped_exp(rise + 2 * solution.ys) - capped_exp(fall - 2 * solution.ys), solution.stats["num_steps"]

    run = jax.jit(jax.vmap(solve, in_axes=(None, 0, 0, 0, 0)))

    def follow(tolerance: float) -> tuple[np.ndarray, str]:
        beta, steps = jax.block_until_ready(run(tolerance, features, targets, rise, fall))
        return np.asarray(beta), f"{np.mean(steps):.0f} steps"

    return follow


def at_equal_error(losses: Sequence[Any], starts: Sequence[DiagonalInit], digits: float) -> dict[str, Method]:
    """The methods that are compared at equal error, by their names."""

    def ours(tolerance: float) -> tuple[np.ndarray, str]:
        made = gradient_flow_batched(losses, starts, **{**SETTINGS, "tolerance": tolerance})
        return made.beta, f"{np.mean([flow.evaluations.gradients for flow in made]):.0f} gradients"

    return {
        "gradient_flow_batched": ours,
        "Diffrax Tsit5, vmapped, no crossings": tsit5(losses, starts, digits, quadratic=False),
        "Diffrax Tsit5, vmapped, no crossings, quadratic form": tsit5(losses, starts, digits, quadratic=True),
    }


def against_peers(board: Board, p: int, digits: float, flows: int) -> None:
    """Compare with Tsit5 at equal error: each method takes the loosest tolerance that is accurate enough."""
    losses, starts = zip(*(problem(seed, p, digits) for seed in range(flows)), strict=True)
    few = losses[:CHECKED], starts[:CHECKED]
    exact = gradient_flow_batched(*few, **{**SETTINGS, "tolerance": EXACT}).beta

    def error(beta: np.ndarray) -> float:
        away = np.abs(beta[:CHECKED] - exact).max(axis=(1, 2))
        return float((away / np.abs(exact).max(axis=(1, 2))).max())

    settings = {
        name: next((each for each in LADDER if error(method(each)[0]) <= ERROR), LADDER[-1])
        for name, method in at_equal_error(*few, digits).items()
    }
    methods = at_equal_error(losses, starts, digits)
    for name, method in methods.items():
        method(settings[name])  # compiles
    taken: dict[str, list[float]] = {name: [] for name in methods}
    notes = {}
    for _ in range(2 * TURNS):
        for name, method in methods.items():
            used, (beta, note) = timed(partial(method, settings[name]))
            taken[name].append(1e3 * used / flows)
            notes[name] = f"tolerance {settings[name]:.0e}, error {error(beta):.0e}, {note}"
    board.compare(f"{flows} seeds at alpha = 1e-{digits}, p = {p}", "CPU time of a flow", "ms", taken, notes)
    for name in methods:
        print(f"{p:4}{f'1e-{digits}':>10}{np.median(taken[name]):>12.1f}  {name}: {notes[name]}", flush=True)


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
    print(
        f"\nDiffrax Tsit5, vmapped over {flows} seeds, at errors up to {ERROR}\n{'p':>4}{'alpha':>10}{'ms a flow':>12}"
    )
    for p, digits in ((8, 8),) if board.quick else ((16, 8), (16, 32), (16, 128), (64, 32)):
        against_peers(board, p, digits, flows)


if __name__ == "__main__":
    play(main)
