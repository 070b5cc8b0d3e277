"""Steps of SGD with the paper's learning rate on a deep ReLU network, beside a plain PyTorch loop on one thread.

Depth 6 on the embedded digits, minibatches of 32, learning rate 10 / |theta|^4, single precision, in turns; CPU
microseconds a step, after compilation and a warm-up. Both take the same arithmetic; PyTorch draws its minibatches by
index from a permutation, as ours does.

    python benchmarks/descent.py [--quick]
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy, JAX and PyTorch are loaded
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import statistics
import time
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import torch
from board import Board, play

from saddlescope.flow import homogeneous_rate, sgd
from saddlescope.models import LayeredLoss, cross_entropy, layered_weights
from saddlescope.train import load

BATCH, DEPTH, RATE = 32, 6, 10.0
OURS, PEERS, TURNS = 20_000, 500, 3  # steps in a turn
WIDTHS = (50, 100, 200)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The training images, standardised, and their labels."""
    data = load("digits")
    pixels = data.train_images.reshape(len(data.train_images), -1) / data.white
    return ((pixels - data.mean) / data.deviation).astype(np.float32), data.train_labels


def ours(loss: LayeredLoss, weights: tuple, steps: int) -> tuple[np.ndarray, ...]:
    """The weights after some steps."""
    run = sgd(
        loss,
        weights,
        steps=steps,
        learning_rate=homogeneous_rate(RATE, DEPTH),
        batch=BATCH,
        record=np.array([0, steps]),
        observe=lambda weights: weights[0][0, 0],
    )
    return run.weights


def peer(inputs: torch.Tensor, labels: torch.Tensor, weights: list[torch.Tensor], steps: int) -> None:
    """The same steps in PyTorch, on the weights themselves."""
    order, place = torch.randperm(len(inputs)), 0
    for _ in range(steps):
        if place + BATCH > len(inputs):
            order, place = torch.randperm(len(inputs)), 0
        chosen = order[place : place + BATCH]
        place += BATCH
        hidden = inputs[chosen]
        for weight in weights[:-1]:
            hidden = torch.relu(hidden @ weight.T)
        loss = torch.nn.functional.cross_entropy(hidden @ weights[-1].T, labels[chosen])
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            rate = RATE * sum(torch.sum(weight**2) for weight in weights) ** ((2 - DEPTH) / 2)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= rate * gradient


def cost(steps: int, method: Callable[..., object], *arguments: object) -> float:
    """CPU microseconds a step."""
    start = time.process_time()
    method(*arguments, steps)
    return 1e6 * (time.process_time() - start) / steps


def main(board: Board) -> None:
    """Prints the table."""
    ours_steps, peer_steps, turns, sizes = (500, 50, 1, WIDTHS[:1]) if board.quick else (OURS, PEERS, TURNS, WIDTHS)
    torch.set_num_threads(1)
    images, labels = digits()
    loss = LayeredLoss(jnp.asarray(images), jnp.asarray(np.eye(10, dtype=np.float32)[labels]), cross_entropy)
    tensors = torch.from_numpy(images), torch.from_numpy(labels)
    print(f"CPU microseconds a step of SGD, depth {DEPTH}, batch {BATCH}, median of {turns} turns")
    print(f"{'width':>5}{'ours':>10}{'PyTorch':>10}{'ratio':>8}")
    for width in sizes:
        widths = (images.shape[1], *[width] * (DEPTH - 1), 10)
        start = layered_weights(widths, seed=0, deviation=0.05, dtype=jnp.float32)
        weights = [torch.from_numpy(np.array(weight)).requires_grad_() for weight in start]
        ours(loss, start, 100)
        peer(*tensors, weights, 20)
        both = [(cost(ours_steps, ours, loss, start), cost(peer_steps, peer, *tensors, weights)) for _ in range(turns)]
        our_turns, their_turns = map(list, zip(*both, strict=True))
        board.compare(
            f"depth {DEPTH}, width {width}, batch {BATCH}",
            "CPU time of a step",
            "µs",
            {"sgd": our_turns, "PyTorch loop": their_turns},
        )
        mine, theirs = statistics.median(our_turns), statistics.median(their_turns)
        print(f"{width:>5}{mine:>10.0f}{theirs:>10.0f}{theirs / mine:>8.1f}")


if __name__ == "__main__":
    play(main)
