"""A training step of the vision transformer on one core, beside every other way that PyTorch offers to take it.

The network has embedding 128, depth 6, 8 heads of width 32 and patches of 4 x 4 pixels of 32 x 32 images, as in the
reduced runs. Steps of all methods alternate; CPU milliseconds, the median of all:

    fit             the loop of `saddlescope.training.fit`, its batches and learning rates included
    plain           forward, backward and Adam alone, as the least that any loop does
    compiled        that by `torch.compile`
    one product     keys, queries and values of a block by one matrix product
    by products     attention written as matrix products and softmax, compiled
    channels last   patches by a convolution on images in the layout channels-last
    fused Adam      all weights in one kernel
    bfloat16        matrix products in bfloat16; in software, and slow, on a processor without AVX512-BF16; alone, and
                    compiled with the fused Adam

The floor of a step is its FLOP, PyTorch's own count, over the speed of a large matrix product, measured here. Then two
processes of one thread are compared with one of two, and the spectra of updates in bfloat16 with those in float32.

    python benchmarks/training.py [--quick] [turns]
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and PyTorch are loaded

import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import MethodType
from typing import Any

import numpy as np
import torch
from board import Board, play
from peak import peak
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from saddlescope.ranks import RankTracker
from saddlescope.training import Adam, ImageData, TrainConfig, ViT, ViTConfig, fit

CONFIG = ViTConfig(embedding=128, depth=6, heads=8, head_width=32, mlp_width=128)
SMALL = ViTConfig(embedding=32, depth=2, heads=2, head_width=16, mlp_width=32)
BATCH, RATE = 64, 4e-4
SLOW = 3.0  # times the cost of `fit` from which bfloat16 takes one turn
PROBLEM = f"ViT of embedding 128 and depth 6, batch {BATCH}"


def images(count: int) -> ImageData:
    """Random pixels of the shape of CIFAR-10."""
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    labels = draw.integers(0, 10, count)
    return ImageData(
        name="noise", train_images=pixels, train_labels=labels, test_images=pixels[:BATCH], test_labels=labels[:BATCH],
        classes=10, white=255, mean=np.full(3, 0.5), deviation=np.full(3, 0.3),
    )  # fmt: skip


def one_product(self: Any, x: Tensor) -> Tensor:
    """Attention with one product for keys, queries and values."""
    weight = torch.cat([self.key.weight, self.query.weight, self.value.weight])
    key, query, value = functional.linear(x, weight).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
    return self.output(functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def by_products(self: Any, x: Tensor) -> Tensor:
    """Attention written as matrix products."""
    key, query, value = (
        part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.key, self.query, self.value)
    )
    weights = (query @ key.transpose(2, 3) * key.shape[-1] ** -0.5).softmax(-1)
    return self.output((weights @ value).transpose(1, 2).flatten(2))


def channels_last(self: ViT, pixels: Tensor) -> Tensor:
    """The network with its patches embedded by a convolution."""
    kernel = self.patch_embedding.weight.unflatten(1, (self.config.channels, self.config.patch, self.config.patch))
    last = torch.channels_last
    found = functional.conv2d(
        pixels.contiguous(memory_format=last), kernel.contiguous(memory_format=last), self.patch_embedding.bias,
        stride=self.config.patch,
    )  # fmt: skip
    x = found.flatten(2).transpose(1, 2) + self.position
    for block in self.blocks:
        x = block(x)
    return self.classifier(self.norm(x).mean(dim=1))


def step_of(
    config: ViTConfig,
    data: tuple[Tensor, Tensor],
    *,
    attention: Callable[..., Tensor] | None = None,
    forward: Callable[..., Tensor] | None = None,
    compiled: bool = False,
    fused: bool | None = None,
    bfloat16: bool = False,
) -> Callable[[], None]:
    """A plain step, with some of it done in another way."""
    model, (pixels, labels) = ViT(config, seed=0), data
    if attention is not None:
        for block in model.blocks:
            block.attention.forward = MethodType(attention, block.attention)
    if forward is not None:
        model.forward = MethodType(forward, model)
    apply = torch.compile(model, dynamic=False) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=fused)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            logits = apply(pixels)
        functional.cross_entropy(logits.float(), labels).backward()
        optimizer.step()

    return step


def outputs_agree(config: ViTConfig, pixels: Tensor) -> None:
    """Check that the other ways compute the same function."""
    model = ViT(config, seed=0)
    expected = model(pixels)
    torch.testing.assert_close(channels_last(model, pixels), expected, rtol=1e-4, atol=1e-5)
    for other in (one_product, by_products):
        for block in model.blocks:
            block.attention.forward = MethodType(other, block.attention)
        torch.testing.assert_close(model(pixels), expected, rtol=1e-4, atol=1e-5)


def timed_fit(config: ViTConfig, data: ImageData) -> float:
    """CPU milliseconds of the third step of `fit`: of an epoch of one batch, which no test of the network follows."""
    epochs = 4
    training = TrainConfig(
        optimizer=Adam(learning_rate=RATE), epochs=epochs, warmup_epochs=0, batch=BATCH, threads=1, test_every=epochs
    )
    ends: list[float] = []
    fit(ViT(config, seed=0), data, training, report=lambda done, note: ends.append(time.process_time()))
    return 1e3 * (ends[2] - ends[1])


def both_cores(config: ViTConfig, steps: int, processes: int, threads: int) -> float:
    """Images a second of several processes together, by the wall clock."""
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(processes)
    with ProcessPoolExecutor(processes, spawn, initializer=_meet, initargs=(together,)) as pool:
        running = [pool.submit(_steps_together, config, steps, threads) for _ in range(processes)]
        return processes * steps * BATCH / max(one.result() for one in running)


def _meet(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _steps_together(config: ViTConfig, steps: int, threads: int) -> float:
    """Seconds of some steps, taken when all processes are ready."""
    torch.set_num_threads(threads)
    step = step_of(config, batch_of())
    step()
    _barrier.wait()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return time.perf_counter() - start


def batch_of() -> tuple[Tensor, Tensor]:
    """A batch of random pixels and labels."""
    draw = torch.Generator().manual_seed(0)
    return torch.randn(BATCH, 3, 32, 32, generator=draw), torch.randint(0, 10, (BATCH,), generator=draw)


def stable_ranks(config: ViTConfig, data: ImageData, precision: str) -> np.ndarray:
    """Stable ranks of the updates of all heads after one epoch."""
    model = ViT(config, seed=0)
    tracker = RankTracker(model)
    training = TrainConfig(
        optimizer=Adam(learning_rate=RATE), epochs=1, warmup_epochs=0, batch=BATCH, threads=1, precision=precision
    )  # fmt: skip
    fit(model, data, training, tracker=tracker)
    return np.concatenate([tracker.stable_rank(product)[-1].ravel() for product in ("KQ", "VO")])


def main(board: Board) -> None:
    """Prints milliseconds, ratios and the floor."""
    torch.set_num_threads(1)
    config, turns = (SMALL, 1) if board.quick else (CONFIG, 5)
    turns = int(board.words[0]) if board.words else turns
    data = batch_of()
    outputs_agree(config, data[0])
    calls = {
        "plain step": step_of(config, data),
        "compiled": step_of(config, data, compiled=True),
        "one product for keys, queries and values": step_of(config, data, attention=one_product),
        "attention by products, compiled": step_of(config, data, attention=by_products, compiled=True),
        "patches by a convolution, channels last": step_of(config, data, forward=channels_last),
        "fused Adam": step_of(config, data, fused=True),
        "bfloat16": step_of(config, data, bfloat16=True),
        "bfloat16, compiled, fused Adam": step_of(config, data, compiled=True, fused=True, bfloat16=True),
    }
    for call in calls.values():
        call()  # compiles, and warms up
    found: dict[str, list[float]] = {name: [] for name in ("fit", *calls)}
    lower = ("bfloat16", "bfloat16, compiled, fused Adam")  # `fit` offers these; they are no faster way in float32
    some = images(BATCH)
    for _ in range(turns):
        found["fit"].append(timed_fit(config, some))
        for name, call in calls.items():
            if name in lower and found[name] and found[name][0] > SLOW * found["fit"][0]:
                continue  # in software
            start = time.process_time()
            call()
            found[name].append(1e3 * (time.process_time() - start))
    board.compare(PROBLEM, "CPU time of a step", "ms", found, own=lower)
    with FlopCounterMode(display=False) as counter:
        calls["plain step"]()
    flop, fastest = counter.get_total_flops() / 1e9, peak()
    floor = 1e3 * flop / fastest
    board.report(PROBLEM, "floor", "FLOP of a step over the peak", floor, "ms", f"{flop:.1f} of {fastest:.0f} GFLOP/s")
    mine = statistics.median(found["fit"])
    print(f"{'CPU ms a step':<44}{'ms':>8}{'over fit':>10}{'images/s':>10}")
    for name, values in found.items():
        middle = statistics.median(values)
        print(f"{name:<44}{middle:>8.0f}{middle / mine:>10.2f}{1e3 * BATCH / middle:>10.0f}")
    print(f"{'floor':<44}{floor:>8.0f}{floor / mine:>10.2f}{1e3 * BATCH / floor:>10.0f}")
    steps = 1 if board.quick else 8
    speeds = {
        "two processes of one thread": both_cores(config, steps, 2, 1),
        "one process of two threads": both_cores(config, steps, 1, 2),
    }
    for name, speed in speeds.items():
        board.report(PROBLEM, name, "images a second on two cores", speed, "1/s")
        print(f"{name:<44}{speed:>28.0f}")
    noise = images((2 if board.quick else 8) * BATCH)
    exact, rounded = (stable_ranks(config, noise, precision) for precision in ("float32", "bf16"))
    apart = float(np.max(np.abs(rounded / exact - 1)))
    board.report(PROBLEM, "bfloat16", "largest relative change of an update's stable rank after one epoch", apart)
    print(f"stable ranks of updates, bfloat16 over float32: at most {apart:.2g} apart")


if __name__ == "__main__":
    play(main)
