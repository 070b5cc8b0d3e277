"""Steps of SGD with the paper's learning rate on a deep ReLU network, beside loops in PyTorch on one thread.

Depth 6 on the embedded digits, minibatches of 32, learning rate 10 / |theta|^4, single precision, in turns; CPU
microseconds a step, after compilation and a warm-up. All take the same arithmetic; PyTorch draws its minibatches by
index from a permutation, as ours does. Its peers are a plain loop, and the whole step by `torch.compile`, which updates
the weights in place. One floor is the FLOP of a step over the speed of a large product, measured beside. The other is
the time of the step's products alone, in their own shapes and order, by NumPy or PyTorch, whichever is faster.

    python benchmarks/descent.py [--quick]
"""

import one_core

one_core.take()

import itertools
import statistics
import time
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import torch
from board import Board, play
from peak import peak

from saddlescope.flow import homogeneous_rate, sgd
from saddlescope.models import LayeredLoss, cross_entropy, layered_weights
from saddlescope.training import load

BATCH, DEPTH, RATE = 32, 6, 10.0
TURNS = 3
STEPS = {50: (10_000, 500), 100: (8000, 400), 200: (3000, 200), 1000: (200, 40)}  # by width: ours and peers', in a turn


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The training images, standardised, and their labels."""
    data = load("digits")
    pixels = data.train_images.reshape(len(data.train_images), -1) / data.white
    return ((pixels - data.mean) / data.deviation).astype(np.float32), data.train_labels


def first_weight(weights: tuple) -> jnp.ndarray:
    """One weight, to record; a new function in each call would be compiled again."""
    return weights[0][0, 0]


def ours(loss: LayeredLoss, weights: tuple, steps: int) -> tuple[np.ndarray, ...]:
    """The weights after some steps."""
    run = sgd(
        loss,
        weights,
        steps=steps,
        learning_rate=homogeneous_rate(RATE, DEPTH),
        batch=BATCH,
        record=np.array([0, steps]),
        observe=first_weight,
    )
    return run.weights


def loss_of(weights: list[torch.Tensor], inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of a minibatch."""
    hidden = inputs
    for weight in weights[:-1]:
        hidden = torch.relu(hidden @ weight.T)
    return torch.nn.functional.cross_entropy(hidden @ weights[-1].T, labels)


def eager_step(weights: list[torch.Tensor], inputs: torch.Tensor, labels: torch.Tensor) -> None:
    """A step by automatic differentiation."""
    gradients = torch.autograd.grad(loss_of(weights, inputs, labels), weights)
    with torch.no_grad():
        rate = RATE * sum(torch.sum(weight**2) for weight in weights) ** ((2 - DEPTH) / 2)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight -= rate * gradient


@torch.compile(dynamic=False)
def compiled_step(weights: list[torch.Tensor], inputs: torch.Tensor, labels: torch.Tensor) -> None:
    """The same, in one compiled function."""
    gradients = torch.func.grad(loss_of)(weights, inputs, labels)
    rate = RATE * sum(torch.sum(weight**2) for weight in weights) ** ((2 - DEPTH) / 2)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.sub_(rate * gradient)


Step = Callable[[list[torch.Tensor], torch.Tensor, torch.Tensor], None]


def peer(step: Step, inputs: torch.Tensor, labels: torch.Tensor, weights: list[torch.Tensor], steps: int) -> None:
    """The same steps in PyTorch, on the weights themselves."""
    order, place = torch.randperm(len(inputs)), 0
    for _ in range(steps):
        if place + BATCH > len(inputs):
            order, place = torch.randperm(len(inputs)), 0
        chosen = order[place : place + BATCH]
        place += BATCH
        step(weights, inputs[chosen], labels[chosen])


def flop(widths: tuple[int, ...]) -> int:
    """FLOP of the products of a step: forward, of the weights' gradient, and of the gradient passed on."""
    sizes = [into * out for into, out in itertools.pairwise(widths)]
    return 2 * BATCH * (3 * sum(sizes) - sizes[0])


def products_alone(widths: tuple[int, ...], steps: int) -> float:
    """CPU microseconds of the products of a step in turn: forward, then back with those of the weights' gradients."""
    draw = np.random.default_rng(0)
    numbers = [draw.standard_normal((out, into), dtype=np.float32) for into, out in itertools.pairwise(widths)]
    values = [draw.standard_normal((BATCH, width), dtype=np.float32) for width in widths]

    outputs, back = [np.empty_like(one) for one in values[1:]], [np.empty_like(one) for one in values]
    arrays = (numbers, values, outputs, [np.empty_like(weight) for weight in numbers], back)
    tensors = [[torch.from_numpy(one) for one in kind] for kind in arrays]

    def once(
        multiply: Callable[..., object], weights: list, values: list, outputs: list, slopes: list, back: list
    ) -> None:
        for k, weight in enumerate(weights):
            multiply(values[k], weight.T, out=outputs[k])
        for k in reversed(range(len(weights))):
            multiply(values[k + 1].T, values[k], out=slopes[k])
            if k:
                multiply(values[k + 1], weights[k], out=back[k])

    found = []
    for multiply, operands in ((np.matmul, arrays), (torch.mm, tensors)):
        once(multiply, *operands)
        start = time.process_time()
        for _ in range(steps):
            once(multiply, *operands)
        found.append(1e6 * (time.process_time() - start) / steps)
    return min(found)


def cost(steps: int, method: Callable[..., object], *arguments: object) -> float:
    """CPU microseconds a step."""
    start = time.process_time()
    method(*arguments, steps)
    return 1e6 * (time.process_time() - start) / steps


def main(board: Board) -> None:
    """Prints the table."""
    turns, sizes = (1, {50: (500, 50)}) if board.quick else (TURNS, STEPS)
    torch.set_num_threads(1)
    images, labels = digits()
    loss = LayeredLoss(jnp.asarray(images), jnp.asarray(np.eye(10, dtype=np.float32)[labels]), cross_entropy)
    tensors = torch.from_numpy(images), torch.from_numpy(labels)
    print(f"CPU microseconds a step of SGD, depth {DEPTH}, batch {BATCH}, median of {turns} turns")
    print(
        f"width{'ours':>10}{'PyTorch':>10}{'compiled':>10}{'floor':>10}{'ratio':>8}{'compiled':>10}{'over floor':>12}"
        f"{'over products':>15}"
    )
    for width, (ours_steps, peer_steps) in sizes.items():
        widths = (images.shape[1], *[width] * (DEPTH - 1), 10)
        start = layered_weights(widths, seed=0, deviation=0.05, dtype=jnp.float32)
        weights = [torch.from_numpy(np.array(weight)).requires_grad_() for weight in start]
        others = [torch.from_numpy(np.array(weight)) for weight in start]
        calls: dict[str, tuple[int, Callable[..., object], tuple[object, ...]]] = {
            "sgd": (ours_steps, ours, (loss, start)),
            "PyTorch loop": (peer_steps, peer, (eager_step, *tensors, weights)),
            "PyTorch loop, torch.compile": (peer_steps, peer, (compiled_step, *tensors, others)),
        }
        ours(loss, start, 20)
        for step, given in ((eager_step, weights), (compiled_step, others)):
            peer(step, *tensors, given, 5)
        same(weights, others)
        found: dict[str, list[float]] = {name: [] for name in calls}
        speeds, alone = [], []
        for _ in range(turns):
            speeds.append(peak())
            alone.append(products_alone(widths, peer_steps))
            for name, (steps, method, arguments) in calls.items():
                found[name].append(cost(steps, method, *arguments))
        problem = f"depth {DEPTH}, width {width}, batch {BATCH}"
        board.compare(problem, "CPU time of a step", "µs", found)
        mine, eager, compiled = (statistics.median(found[name]) for name in calls)
        floor = flop(widths) / max(speeds) / 1e3
        speed = f"{flop(widths) / 1e6:.1f} MFLOP at {max(speeds):.0f} GFLOP/s"
        board.report(problem, "floor", "FLOP of a step over the peak", floor, "µs", speed)
        board.report(problem, "sgd", "CPU time over the floor", mine / floor)
        least = statistics.median(alone)
        board.report(problem, "products alone", "CPU time of a step", least, "µs", "in their own shapes")
        board.report(problem, "sgd", "CPU time over that of the products alone", mine / least)
        print(
            f"{width:>5}{mine:>10.0f}{eager:>10.0f}{compiled:>10.0f}{floor:>10.0f}{eager / mine:>8.1f}"
            f"{compiled / mine:>10.1f}{mine / floor:>12.1f}{mine / least:>15.2f}",
            flush=True,
        )


def same(weights: list[torch.Tensor], others: list[torch.Tensor]) -> None:
    """Check that both loops have changed the same weights by about as much: their minibatches differ."""
    for one, other in zip(weights, others, strict=True):
        torch.testing.assert_close(one.detach().norm(), other.norm(), rtol=1e-2, atol=0.0)


if __name__ == "__main__":
    play(main)
