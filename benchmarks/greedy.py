"""Algorithm 1 on the toy attention task (p = 100, 1000 samples): alone, and with corrections of order 1.

First both over the first stages of one seed, then the whole staircase of several seeds: CPU time on one thread,
compilation included in the first row of each table, and the distance of the last saddle from the teacher.
Last, time and memory of fifty stages of a diagonal linear network of 2000 coordinates on 1000 samples.

    python benchmarks/greedy.py [--quick]
"""

import one_core

one_core.take(float64=True)

import resource
import time

import jax.numpy as jnp
import numpy as np
from board import Board, play

from saddlescope.models import DiagonalNetwork, attention_teacher_task, diagonal_linear_network
from saddlescope.theory import IncrementalLearning, incremental_learning

STAGES, SEEDS = 6, (0, 1, 2)


def timed(
    seed: int, max_stages: int | None = None, *, weights: bool = False
) -> tuple[IncrementalLearning, float, np.ndarray]:
    """The stages, the CPU seconds they took, and the teacher."""
    task = attention_teacher_task(seed)
    given = (task.u0, task.v0) if weights else None
    start = time.process_time()
    learned = incremental_learning(task.network, len(task.teacher), weights=given, max_stages=max_stages)
    return learned, time.process_time() - start, task.teacher


def main(board: Board) -> None:
    """Prints both tables."""
    stages, seeds = (2, ()) if board.quick else (STAGES, SEEDS)
    timed(1, 1)  # both use the same compiled loss
    fast, cost, _ = timed(1, stages)
    costs = [cost, *(timed(1, stages)[1] for _ in range(1 if board.quick else 4))]
    cost = float(np.median(costs))
    orbits, with_times, _ = timed(1, stages, weights=True)
    board.compare(
        f"p = 100, 1000 samples, the first {stages} stages",
        "CPU time",
        "s",
        {
            "incremental_learning": costs,
            "incremental_learning, with corrections of order 1": with_times,
        },
        own=("incremental_learning, with corrections of order 1",),
    )
    off = max(
        float(np.max(np.abs(one.beta - other.beta))) for one, other in zip(fast.stages, orbits.stages, strict=True)
    )
    print(f"first {stages} stages of seed 1")
    print(f"  {cost:6.1f} s; with corrections {with_times:.1f} s; saddles differ by {off:.1e}")
    print("whole staircases")
    for seed in seeds:
        learned, cost, teacher = timed(seed)
        off = float(np.max(np.abs(learned.stages[-1].beta - teacher)))
        leaving = sum(len(stage.left) for stage in learned.stages)
        count = len(learned.stages) - 1
        board.report(
            f"p = 100, 1000 samples, seed {seed}, all {count} stages",
            "incremental_learning",
            "CPU time",
            cost,
            "s",
            f"off the teacher by {off:.0e}",
        )
        print(f"  seed {seed}: {count} stages in {cost:.1f} s, {leaving} leave, off the teacher by {off:.1e}")
    many_coordinates(board, *((100, 5) if board.quick else (2000, 50)))


def many_coordinates(board: Board, p: int, stages: int) -> None:
    """Prints time and memory of fifty stages among 2000 coordinates."""
    rng = np.random.default_rng(0)
    x, beta = rng.standard_normal((p // 2, p)), np.zeros(p)
    beta[rng.choice(p, p // 20, replace=False)] = 3 * rng.standard_normal(p // 20)
    y = x @ beta + 0.1 * rng.standard_normal(p // 2)
    written = diagonal_linear_network(x, y)
    generic = DiagonalNetwork(h=lambda one, b: one @ b, inputs=jnp.asarray(x), targets=jnp.asarray(y))
    print(f"{stages} stages among {p} coordinates, {p // 2} samples (a Hessian would be {8 * p**2 / 1e6:.2g} MB)")
    costs: dict[str, float] = {}
    notes: dict[str, str] = {}
    for name, network in (("Hessian's columns by hand", written), ("by differentiation", generic)):
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        learned = incremental_learning(network, p, max_stages=stages)
        cost, grown = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        costs[name], notes[name] = cost, f"peak memory grows by {grown / 1024:.0f} MB"
        print(f"  {name:26} {cost:6.1f} s, peak memory grows by {grown / 1024:.0f} MB, {learned.status.value}")
    problem = f"p = {p}, {p // 2} samples, {stages} stages, with compilation"
    board.compare(
        problem,
        "CPU time",
        "s",
        {f"incremental_learning, {name}": cost for name, cost in costs.items()},
        {f"incremental_learning, {name}": note for name, note in notes.items()},
        own=[f"incremental_learning, {name}" for name in costs],
    )


if __name__ == "__main__":
    play(main)
