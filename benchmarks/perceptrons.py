"""The 29 runs of perceptrons in the third paper's figures, beside a PyTorch loop that does the same, on one thread.

Four and four one-layer networks of Figure 2 (a, b), two four-layer ones of 2 (c), eight two-layer ones of Figure 11,
eight with ReLU of Figure 12, two three-layer ones of Figure 13, one with ReLU and four concepts of Figure 7: 40 epochs
of SGD, batch 128, learning rate 0.1, 5000 samples a cluster, the output at the test point recorded at every step. Both
sides have their data in memory and single precision. CPU seconds of the whole, of ours all that a user waits for: the
import of JAX and compilation are timed separately. PyTorch takes a share of the epochs, and its time is scaled to 40.

    python benchmarks/perceptrons.py [--quick] [epochs of PyTorch, by default 2]
"""

import one_core

one_core.take()

import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import torch
from board import Board, play

from saddlescope.flow import sgd_batched
from saddlescope.models import (
    StructuredIdentityTask,
    perceptron_loss,
    perceptron_output,
    perceptron_weights,
    random_rotation,
    weights_in_span,
)

BATCH, RATE, EPOCHS, SAMPLES, TURNS = 128, 0.1, 40, 5000, 3
SIGNALS, DIVERSITIES = (1.0, 1.5, 2.5, 3.0), (0.05, 0.5, 1.5, 2.0)  # variances

Concepts = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Group:
    """Runs of one shape, which ours takes together."""

    name: str
    widths: tuple[int, ...]
    relu: bool
    tasks: tuple[Concepts, ...]
    rotated: bool = True


def panels() -> tuple[Concepts, ...]:
    """Four signals and four diversities."""
    return tuple(((mu, 2.0), (0.05, 0.05)) for mu in SIGNALS) + tuple(((1.0, 2.0), (v, 0.05)) for v in DIVERSITIES)


ONE = (((1.0, 2.0), (0.05, 0.05)),)
GROUPS = (
    Group("Figure 2 (a, b), depth 1, d = 64", (64, 64), False, panels()),
    Group("Figure 2 (c), depth 4, d = 64", (64,) * 5, False, ONE),
    Group("Figure 2 (c), depth 4, d = 2", (2,) * 5, False, ONE),
    Group("Figure 11, depth 2, d = 64", (64,) * 3, False, panels()),
    Group("Figure 12, depth 2, d = 64, ReLU", (64,) * 3, True, panels()),
    Group("Figure 13, depth 3, d = 3", (3,) * 4, False, (*ONE, ((2.0, 4.0), (0.05, 0.05))), rotated=False),
    Group("Figure 7, depth 2, d = 64, ReLU, s = 4", (64,) * 3, True, (((1.0, 2.0, 3.0, 4.0), (0.5,) * 4),)),
)


def laws(group: Group) -> list[StructuredIdentityTask]:
    """The tasks of a group, each with a rotation of its own."""
    d = group.widths[0]
    return [
        StructuredIdentityTask(
            mu, tuple(np.sqrt(variances)), SAMPLES, d, True, random_rotation(d, seed=n) if group.rotated else None
        )
        for n, (mu, variances) in enumerate(group.tasks)
    ]


def observe(points: jax.Array, relu: bool, weights: tuple) -> jax.Array:
    """The output at the test point."""
    return perceptron_output(weights, points, relu=relu)[0]


def ours(group: Group, tasks: list[StructuredIdentityTask], data: list[np.ndarray]) -> np.ndarray:
    """The outputs at the test points, (runs, steps + 1, d)."""
    losses, observers, starts = [], [], []
    for n, (task, samples) in enumerate(zip(tasks, data, strict=True)):
        R = task.directions[:, : task.concepts]
        losses.append(perceptron_loss(samples, R, relu=group.relu, mean_over_dimensions=True, dtype=jnp.float32))
        point = jnp.asarray([task.mu], jnp.float32)
        observers.append(jax.tree_util.Partial(observe, point, group.relu))
        start = perceptron_weights(group.widths, seed=n, dtype=jnp.float32)
        starts.append(weights_in_span(jax.tree.map(np.asarray, start), R))
    steps = EPOCHS * (len(data[0]) // BATCH)
    run = sgd_batched(
        losses,
        jax.tree.map(lambda *leaves: np.stack(leaves), *starts),
        steps=steps,
        learning_rate=RATE,
        batch=BATCH,
        seeds=range(len(tasks)),
        record=np.arange(steps),
        observe=observers,
    )
    return run.observed


def peer(group: Group, task: StructuredIdentityTask, samples: torch.Tensor, seed: int, epochs: int) -> torch.Tensor:
    """One run in PyTorch, on its own layers and optimiser."""
    torch.manual_seed(seed)
    layers: list[torch.nn.Module] = []
    for n, (into, out) in enumerate(zip(group.widths[:-1], group.widths[1:], strict=True)):
        layers += [torch.nn.ReLU()] if group.relu and n else []
        layers.append(torch.nn.Linear(into, out))
    model = torch.nn.Sequential(*layers)
    optimiser = torch.optim.SGD(model.parameters(), RATE)
    point = torch.tensor(task.test_point, dtype=torch.float32)
    per_epoch, outputs = len(samples) // BATCH, []
    for _ in range(epochs):
        order = torch.randperm(len(samples))
        for place in range(per_epoch):
            batch = samples[order[BATCH * place : BATCH * (place + 1)]]
            loss = torch.nn.functional.mse_loss(model(batch), batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                outputs.append(model(point))
    return torch.stack(outputs)


def main(board: Board) -> None:
    """Prints the table."""
    epochs = int(board.words[0]) if board.words else 2
    repeats, groups = (1, GROUPS[5:6]) if board.quick else (TURNS, GROUPS)
    torch.set_num_threads(1)
    warm = laws(GROUPS[0])[0]
    peer(GROUPS[0], warm, torch.tensor(warm.draw(0), dtype=torch.float32), 0, 1)
    print(f"CPU seconds a run of {EPOCHS} epochs, batch {BATCH}, output recorded at every step; PyTorch from {epochs}")
    print(f"{'':<40}{'runs':>5}{'compiling':>11}{'ours':>9}{'PyTorch':>9}{'ratio':>7}{'with':>7}")
    totals = np.zeros(4)
    for group in groups:
        tasks = laws(group)
        data = [task.draw(n) for n, task in enumerate(tasks)]
        before = time.process_time()
        first = ours(group, tasks, data)
        both = time.process_time() - before
        turns = []
        for _ in range(repeats):
            before = time.process_time()
            again = ours(group, tasks, data)
            turns.append(time.process_time() - before)
            np.testing.assert_array_equal(first, again)
        mine = float(np.median(turns))
        tensors = [torch.tensor(samples, dtype=torch.float32) for samples in data]
        before = time.process_time()
        for n, (task, samples) in enumerate(zip(tasks, tensors, strict=True)):
            peer(group, task, samples, n, epochs)
        theirs = (time.process_time() - before) * EPOCHS / epochs
        runs = len(tasks)
        board.compare(
            f"{group.name}, {runs} run{'s' if runs > 1 else ''} of {EPOCHS} epochs",
            "CPU time of a run",
            "s",
            {"sgd_batched": [turn / runs for turn in turns], "PyTorch loop": theirs / runs},
            {
                "sgd_batched": f"{both - mine:.1f} s of compiling not counted",
                "PyTorch loop": f"scaled from {epochs} epochs",
            },
        )
        totals += (runs, both - mine, mine, theirs)
        print(
            f"{group.name:<40}{runs:>5}{(both - mine):>11.2f}{mine / runs:>9.3f}{theirs / runs:>9.2f}"
            f"{theirs / mine:>7.0f}{theirs / both:>7.1f}"
        )
    runs, compiling, mine, theirs = totals
    print(
        f"{'all':<40}{int(runs):>5}{compiling:>11.2f}{mine / runs:>9.3f}{theirs / runs:>9.2f}"
        f"{theirs / mine:>7.0f}{theirs / (mine + compiling):>7.1f}"
    )
    print(f"all {int(runs)} runs: ours {mine:.1f} s and {compiling:.1f} s of compiling; PyTorch {theirs:.1f} s")
    board.compare(
        f"all {int(runs)} runs, first call with compiling",
        "CPU time",
        "s",
        {"sgd_batched": mine + compiling, "PyTorch loop": theirs},
    )
    print("ratio: without compiling, whose total is beside; with: the whole first call")


if __name__ == "__main__":
    play(main)
