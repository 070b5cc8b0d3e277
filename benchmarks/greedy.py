"""Algorithm 1 on the toy attention task (p = 100, 1000 samples): the default policy beside its specification.

First both policies over the first stages of one seed, then the whole staircase of several seeds: CPU time on one
thread, compilation included in the first row of each table, and the distance of the last saddle from the teacher.

    python benchmarks/greedy.py
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and JAX are loaded
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_ENABLE_X64"] = "1"

import time

import numpy as np

from saddlescope.models import attention_teacher_task
from saddlescope.theory import FlowThenNewton, FlowToRest, IncrementalLearning, Transition, incremental_learning

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
    specified, its_cost, _ = timed(1, FlowToRest(), STAGES)
    off = max(
        float(np.max(np.abs(one.beta - other.beta))) for one, other in zip(fast.stages, specified.stages, strict=True)
    )
    print(f"first {STAGES} stages of seed 1")
    print(f"  FlowThenNewton  {cost:6.1f} s")
    print(f"  FlowToRest      {its_cost:6.1f} s, {its_cost / cost:.1f} times as long; saddles differ by {off:.1e}")
    print("whole staircases")
    for seed in SEEDS:
        learned, cost, teacher = timed(seed, FlowThenNewton())
        off = float(np.max(np.abs(learned.stages[-1].beta - teacher)))
        leaving = sum(len(stage.left) for stage in learned.stages)
        count = len(learned.stages) - 1
        print(f"  seed {seed}: {count} stages in {cost:.1f} s, {leaving} leave, off the teacher by {off:.1e}")


if __name__ == "__main__":
    main()
