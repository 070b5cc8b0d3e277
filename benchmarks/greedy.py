"""Algorithm 1 on the toy attention task (p = 100, 1000 samples): the default policy beside the two others.

First all policies over the first stages of one seed, then the whole staircase of several seeds: CPU time on one
thread, compilation included in the first row of each table, and the distance of the last saddle from the teacher.
Last, time and memory of fifty stages of a diagonal linear network of 2000 coordinates on 1000 samples.

    python benchmarks/greedy.py
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and JAX are loaded
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_ENABLE_X64"] = "1"

import resource
import time

import jax.numpy as jnp
import numpy as np

from saddlescope.models import DiagonalNetwork, attention_teacher_task, diagonal_linear_network
from saddlescope.theory import (
    FlowThenNewton,
    FlowToRest,
    IncrementalLearning,
    TimedFlow,
    Transition,
    incremental_learning,
)

STAGES, SEEDS = 6, (0, 1, 2)


def timed(
    seed: int, transition: Transition, max_stages: int | None = None
) -> tuple[IncrementalLearning, float, np.ndarray]:
    """The stages, the CPU seconds they took, and the teacher."""
    task = attention_teacher_task(seed)
    start = time.process_time()
    learned = incremental_learning(task.network, len(task.teacher), transition=transition, max_stages=max_stages)
    return learned, time.process_time() - start, task.teacher


def main() -> None:
    """Prints both tables."""
    timed(1, FlowThenNewton(), 1)  # both policies use the same compiled loss
    fast, cost, _ = timed(1, FlowThenNewton(), STAGES)
    _, with_times, _ = timed(1, TimedFlow(), STAGES)
    specified, its_cost, _ = timed(1, FlowToRest(), STAGES)
    off = max(
        float(np.max(np.abs(one.beta - other.beta))) for one, other in zip(fast.stages, specified.stages, strict=True)
    )
    print(f"first {STAGES} stages of seed 1")
    print(f"  FlowThenNewton  {cost:6.1f} s")
    print(f"  FlowToRest      {its_cost:6.1f} s, {its_cost / cost:.1f} times as long; saddles differ by {off:.1e}")
    print(f"  TimedFlow       {with_times:6.1f} s, {with_times / cost:.1f} times as long, with corrections of order 1")
    print("whole staircases")
    for seed in SEEDS:
        learned, cost, teacher = timed(seed, FlowThenNewton())
        off = float(np.max(np.abs(learned.stages[-1].beta - teacher)))
        leaving = sum(len(stage.left) for stage in learned.stages)
        count = len(learned.stages) - 1
        print(f"  seed {seed}: {count} stages in {cost:.1f} s, {leaving} leave, off the teacher by {off:.1e}")
    many_coordinates()


def many_coordinates() -> None:
    """Prints time and memory of fifty stages among 2000 coordinates."""
    rng = np.random.default_rng(0)
    x, beta = rng.standard_normal((1000, 2000)), np.zeros(2000)
    beta[rng.choice(2000, 100, replace=False)] = 3 * rng.standard_normal(100)
    y = x @ beta + 0.1 * rng.standard_normal(1000)
    written = diagonal_linear_network(x, y)
    generic = DiagonalNetwork(h=lambda one, b: one @ b, inputs=jnp.asarray(x), targets=jnp.asarray(y))
    print(
        "fifty stages among 2000 coordinates, 1000 samples (the data are 16 MB, a 2000 x 2000 Hessian would be 32 MB)"
    )
    for name, network in (("Hessian's columns by hand", written), ("by differentiation", generic)):
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        learned = incremental_learning(network, 2000, max_stages=50)
        cost, grown = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"  {name:26} {cost:6.1f} s, peak memory grows by {grown / 1024:.0f} MB, {learned.status.value}")


if __name__ == "__main__":
    main()
