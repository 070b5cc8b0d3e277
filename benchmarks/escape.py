"""Starts a second of the descent on the sphere, Example 1 at depth 3, beside PyTorch on one thread.

The peer runs the same update rule by automatic differentiation: one start at a time, as one would write it down, and
for fairness all starts at once with batched matrix products. Rates are in CPU seconds, after compilation and a warm-up;
the peers run fewer steps (their cost is the same at every step), in turns with ours. Last, the cost of refinement.

    python benchmarks/escape.py [--quick]
"""

import one_core

one_core.take()

import statistics
import time
from itertools import pairwise

import numpy as np
import torch
from board import Board, play

from saddlescope.theory.escape.newton import refined
from saddlescope.theory.escape.sphere_descent import DECAY, MOMENTUM, sphere_descent

DEPTH, STEPS, RATE, STARTS = 3, 4000, 0.03, 64
PEER_STEPS, TURNS, WIDTHS = 200, 3, (4, 8, 16, 32, 64)
ANGLES = 2 * np.pi * np.arange(1, 9) / 8
X, G = np.stack([np.sin(ANGLES), np.cos(ANGLES)], axis=1), ((-1.0) ** np.arange(1, 9))[:, None]


def drawn(width: int, starts: int) -> tuple[np.ndarray, ...]:
    """Normal weights, a start along the first axis."""
    rng, widths = np.random.default_rng(0), [2, width, width, 1]
    return tuple(rng.normal(size=(starts, out, into)) for into, out in pairwise(widths))


def torch_descent(weights: tuple[np.ndarray, ...], steps: int, shown: int) -> torch.Tensor:
    """The speeds after the first `shown` of `steps` steps; with a leading axis of starts, all at once."""
    inputs, gradients = torch.from_numpy(X.T.copy()), torch.from_numpy(G.T.copy())
    batched = weights[0].ndim == 3
    axes = (1, 2) if batched else (0, 1)
    theta = [torch.from_numpy(weight) for weight in weights]

    def dot(a: list[torch.Tensor], b: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([(x * y).sum(axes, keepdim=True) for x, y in zip(a, b, strict=True)]).sum(0)

    theta = [weight * torch.sqrt(DEPTH / dot(theta, theta)) for weight in theta]
    velocity = [torch.zeros_like(weight) for weight in theta]
    loss = torch.zeros(())
    for k in range(shown):
        theta = [weight.requires_grad_() for weight in theta]
        hidden = inputs
        for weight in theta[:-1]:
            hidden = torch.relu(weight @ hidden)
        loss = (gradients * (theta[-1] @ hidden)).sum(axes)
        slope = list(torch.autograd.grad(loss.sum(), theta))
        with torch.no_grad():
            theta = [weight.detach() for weight in theta]
            speed = -dot(slope, theta) / DEPTH
            norm = torch.sqrt(dot(slope, slope) / DEPTH)
            velocity = [
                MOMENTUM * m - torch.where(norm > 0, (g + speed * t) / norm, 0.0)
                for m, g, t in zip(velocity, slope, theta, strict=True)
            ]
            along = dot(velocity, theta) / DEPTH
            velocity = [m - along * t for m, t in zip(velocity, theta, strict=True)]
            rate = RATE * DECAY ** (k / steps)
            theta = [t + rate * m for t, m in zip(theta, velocity, strict=True)]
            size = torch.sqrt(DEPTH / dot(theta, theta))
            theta = [size * t for t in theta]
    return -loss.detach()


def main(board: Board) -> None:
    """Prints the table."""
    peer_steps, turns, sizes = (20, 1, WIDTHS[:1]) if board.quick else (PEER_STEPS, TURNS, WIDTHS)
    torch.set_num_threads(1)
    print(f"starts a second of {STEPS} steps, CPU time on one thread, median of {turns} turns")
    print("width      ours   loop of one   ratio    batched   ratio   refine")
    for width in sizes:
        weights = drawn(width, STARTS)
        one = tuple(weight[0] for weight in weights)
        sphere_descent(weights, X, G, steps=STEPS, learning_rate=RATE, record=np.array([STEPS]))
        torch_descent(one, STEPS, 20)
        rates: dict[str, list[float]] = {"ours": [], "loop": [], "batched": []}
        found = weights
        for _ in range(turns):
            start = time.process_time()
            found, _ = sphere_descent(weights, X, G, steps=STEPS, learning_rate=RATE, record=np.array([STEPS]))
            rates["ours"].append(STARTS / (time.process_time() - start))
            start = time.process_time()
            torch_descent(one, STEPS, peer_steps)
            rates["loop"].append(peer_steps / STEPS / (time.process_time() - start))
            start = time.process_time()
            torch_descent(weights, STEPS, peer_steps)
            rates["batched"].append(STARTS * peer_steps / STEPS / (time.process_time() - start))
        start = time.process_time()
        for n in range(16):
            refined(tuple(weight[n] for weight in found), X.T, G.T)
        refining = 1e3 * (time.process_time() - start) / 16
        ours, loop, batched = (statistics.median(rates[name]) for name in ("ours", "loop", "batched"))
        problem = f"Example 1, depth {DEPTH}, width {width}, {STEPS} steps"
        names = {
            "ours": f"sphere_descent, {STARTS} starts",
            "loop": "PyTorch loop, one start",
            "batched": f"PyTorch, {STARTS} starts in batched products",
        }
        board.compare(
            problem, "CPU time of a start", "ms", {names[k]: [1e3 / rate for rate in rates[k]] for k in names}
        )
        board.report(problem, "escape_directions", "CPU time of a start", refining, "ms")
        print(
            f"{width:5} {ours:9.1f} {loop:13.2f} {ours / loop:7.0f} {batched:10.1f} {ours / batched:7.1f} "
            f"{refining:5.1f} ms",
            flush=True,
        )
    same, _ = sphere_descent(drawn(8, 4), X, G, steps=100, learning_rate=RATE, record=np.array([100]))
    off = max(
        abs(float(torch_descent(tuple(w[n] for w in drawn(8, 4)), 100, 101)) - _speed(tuple(w[n] for w in same)))
        for n in range(4)
    )
    print(f"speeds of both after 100 steps differ by {off:.1e}")
    assert off < 1e-9


def _speed(weights: tuple[np.ndarray, ...]) -> float:
    hidden = X.T
    for weight in weights[:-1]:
        hidden = np.maximum(weight @ hidden, 0)
    return -float((G.T * (weights[-1] @ hidden)).sum())


if __name__ == "__main__":
    play(main)
