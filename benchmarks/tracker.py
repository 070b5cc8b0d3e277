"""Cost of the tracker: runs with and without it, alternating, in one process, in CPU time of one thread.

digits      the ViT of the digits experiment (depth 4, embedding 128, 8 heads of width 32) at a fifth of its 40 epochs:
            unkind to the default schedule, which measures ever more rarely, so that longer runs pay less
gpt2        GPT-2 small from scratch (12 layers of 12 heads of width 64, 124 million weights) with Adam, in batches of
            8 x 256 tokens as in the paper's appendix B.2: a few steps are timed, and each of the first ones is measured
            by the default schedule; the share of longer runs follows from the number of records it makes in them
layer       a record of one layer of a model with 7 billion weights: 32 heads of width 128 on 4096 inputs
memory      resident memory that the tracker adds to GPT-2 small at its peak, over the size of the tracked weights, in
            a fresh process for each type, whose allocator returns free memory to the system at once

The tracker's own share is what the bar is about; the ratio of whole runs says little on a busy machine. Trained weights
must be the same to the last bit with and without it.

usage: benchmarks/tracker.py [--quick] [digits [EPOCHS [PAIRS]] | gpt2 [STEPS [SEQUENCES [TOKENS]]] | layer [WIDTH] |
       memory [DEPTH]], all by default
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and PyTorch are loaded

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from board import Board, play

from saddlescope.train import Adam, Geometric, ImageData, RankTracker, TrainConfig, ViT, ViTConfig, fit, load

SIZES = ViTConfig(image_size=8, channels=1, patch=2, embedding=128, depth=4, heads=8, head_width=32, mlp_width=128)


class TimedTracker(RankTracker):
    """A tracker that knows its own CPU time."""

    def __init__(self, model: torch.nn.Module) -> None:
        start = time.process_time()
        super().__init__(model)
        self.making = time.process_time() - start
        self.seconds = self.making

    def step(self) -> None:  # noqa: D102
        start = time.process_time()
        super().step()
        self.seconds += time.process_time() - start


def require_same(without: Iterable[torch.Tensor], tracked: Iterable[torch.Tensor]) -> None:
    """Ends the benchmark where the tracker has changed the run."""
    if not all(map(torch.equal, without, tracked)):
        sys.exit("The tracker changed the run.")


def run_digits(data: ImageData, epochs: int, tracked: bool) -> tuple[float, TimedTracker | None, list[torch.Tensor]]:
    """CPU seconds of one training run, its tracker, and the trained weights."""
    model = ViT(SIZES)
    config = TrainConfig(optimizer=Adam(learning_rate=1e-3), epochs=epochs, warmup_epochs=1, batch=128)
    start = time.process_time()
    tracker = TimedTracker(model) if tracked else None
    fit(model, data, config, tracker=tracker)
    return time.process_time() - start, tracker, list(model.state_dict().values())


def digits(board: Board, epochs: int = 8, pairs: int = 3) -> None:
    """Whole runs in pairs."""
    data = load("digits")
    run_digits(data, 1, tracked=True)  # warm up
    shares, ratios = [], []
    totals: dict[str, list[float]] = {"training with RankTracker": [], "training without": []}
    for k in range(pairs):
        order = (False, True) if k % 2 else (True, False)
        runs = {tracked: run_digits(data, epochs, tracked) for tracked in order}
        (without, _, weights), (total, tracker, tracked_weights) = runs[False], runs[True]
        assert tracker is not None
        require_same(weights, tracked_weights)
        shares.append(tracker.seconds / (total - tracker.seconds))
        ratios.append(total / without)
        for times, seconds in zip(totals.values(), (total, without), strict=True):
            times.append(seconds)
        print(
            f"with {total:6.2f} s   without {without:6.2f} s   ratio {ratios[-1]:.3f}   tracker {tracker.seconds:.3f} s"
            f" ({shares[-1]:.1%} of the run) for {len(tracker.steps)} records   weights bit-identical"
        )
    steps = epochs * (len(data.train_images) // 128)
    board.compare(f"ViT on digits, {steps} steps", "CPU time", "s", totals, own=("training without",))
    share = statistics.mean(shares)
    board.report(f"ViT on digits, {steps} steps", "RankTracker", "its own part of the run", 100 * share, "%")
    spread = statistics.stdev(ratios) if pairs > 1 else float("nan")
    print(
        f"{steps} steps: the tracker takes {share:.1%} of the run; "
        f"ratio {statistics.mean(ratios):.3f}, standard deviation {spread:.3f} over {pairs} pairs"
    )


def run_gpt2(
    steps: int, shape: tuple[int, int], make: Callable[[torch.nn.Module], RankTracker | None]
) -> tuple[list[float], RankTracker | None, list[torch.Tensor]]:
    """CPU seconds of each training step without the tracker's part, the tracker, and the trained weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config())
    tracker = make(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    batches = torch.randint(0, model.config.vocab_size, (steps, *shape))
    seconds: list[float] = []
    for batch in batches:
        start = time.process_time()
        optimizer.zero_grad()
        loss = model(batch, labels=batch).loss
        assert loss is not None
        loss.backward()
        optimizer.step()
        seconds.append(time.process_time() - start)
        if tracker is not None:
            tracker.step()
    return seconds, tracker, list(model.state_dict().values())


def gpt2(board: Board, steps: int = 2, sequences: int = 8, tokens: int = 256) -> None:
    """Seconds of a step and of a record, and the share of the tracker in runs of several lengths."""
    shape = (sequences, tokens)
    without, _, weights = run_gpt2(steps, shape, lambda model: None)
    with_tracker, tracker, tracked_weights = run_gpt2(steps, shape, TimedTracker)
    require_same(weights, tracked_weights)
    assert isinstance(tracker, TimedTracker)
    record = (tracker.seconds - tracker.making) / len(tracker.steps)
    steps_taken = without + with_tracker
    step = statistics.median(steps_taken)
    print(
        f"a step on {sequences} x {tokens} tokens {step:.2f} s ({min(steps_taken):.2f} to {max(steps_taken):.2f}); "
        f"making the tracker {tracker.making:.2f} s; a record of its 288 updates {record:.2f} s; weights bit-identical"
    )
    for length in (100, 1000, 10_000):
        records = sum(map(Geometric(), range(1, length + 1)))
        share = (tracker.making + records * record) / (length * step)
        problem = f"GPT-2 small, {sequences} x {tokens} tokens a step, {length} steps"
        board.report(problem, "RankTracker", "its part of the training time", 100 * share, "%", f"{records} records")
        print(f"{length:6d} steps, {records} records: the tracker takes {share:.3%} of the training time")


class Attention(torch.nn.Module):
    """Attention of a decoder, as far as the tracker reads it."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_heads = width // 128
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, torch.nn.Linear(width, width, bias=False, dtype=dtype))


def move(model: torch.nn.Module) -> None:
    """Move all weights a little, a few rows at a time: it must need no memory."""
    with torch.no_grad():
        for parameter in model.parameters():
            for rows in parameter.split(64):
                rows.add_(1e-3 * torch.randn_like(rows))


def layer(board: Board, width: int = 4096) -> None:
    """CPU seconds of records of one wide layer."""
    for dtype in (torch.float32, torch.bfloat16):
        model = Attention(width, dtype)
        tracker, seconds = RankTracker(model, schedule=lambda _: True), []
        for _ in range(3):
            move(model)
            start = time.process_time()
            tracker.step()
            seconds.append(time.process_time() - start)
        kind = str(dtype).removeprefix("torch.")
        problem = f"one layer of {model.num_heads} heads on {width} inputs, {kind}"
        board.report(problem, "RankTracker", "CPU time of a record", statistics.median(seconds), "s")
        print(f"{problem}: a record {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")


def resident(kind: str) -> float:
    """MB of resident memory now (VmRSS), or at its largest (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(kind))


def measure_memory(kind: str, depth: str) -> None:
    """Print the MB of the tracked weights and those that a tracker and a record add; run in a fresh process."""
    from transformers import GPT2Config, GPT2LMHeadModel

    dtype = getattr(torch, kind)
    model = GPT2LMHeadModel(GPT2Config(n_layer=int(depth))).to(dtype)
    RankTracker(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=64, n_head=2)).to(dtype)).measure()  # loads all code
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the largest memory counts from here
    tracker = RankTracker(model)
    move(model)
    tracker.measure()
    tracked = sum(weight.numel() * weight.element_size() for weight in tracker.state_dict()["weights"].values())
    print(tracked / 2**20, resident("VmHWM") - before)


def memory(board: Board, depth: int = 12) -> None:
    """Peak of the memory beyond the model."""
    for kind in ("float32", "bfloat16"):
        command = [sys.executable, __file__, "memory-of", kind, str(depth)]
        answer = subprocess.run(
            command, env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "0"}, capture_output=True, text=True, check=True
        )
        tracked, added = map(float, answer.stdout.split())
        problem = f"GPT-2 of {depth} layers, {kind}"
        board.report(problem, "RankTracker", "memory over that of the tracked weights", added / tracked, "")
        print(
            f"{problem}: {added:.1f} MB beyond the model for {tracked:.1f} MB of tracked weights: {added / tracked:.3f}"
        )


def main(board: Board) -> None:
    """Run the requested comparison, or all."""
    name, *numbers = board.words or ("",)
    sizes = {"digits": (1, 1), "gpt2": (1, 1, 8), "layer": (512,), "memory": (2,)} if board.quick else {}
    for one, measure in {"digits": digits, "gpt2": gpt2, "layer": layer, "memory": memory}.items():
        if name in ("", one):
            measure(board, *(map(int, numbers) if numbers else sizes.get(one, ())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["memory-of"]:
        measure_memory(*sys.argv[2:])
    else:
        play(main)
