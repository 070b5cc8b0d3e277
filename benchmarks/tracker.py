"""Cost of the tracker: runs with and without it, alternating, in one process, in CPU time of one thread.

digits      the ViT of the digits experiment (depth 4, embedding 128, 8 heads of width 32) at a fifth of its 40 epochs:
            unkind to the default schedule, which measures ever more rarely, so that longer runs pay less
gpt2        GPT-2 small from scratch (12 layers of 12 heads of width 64, 124 million weights) with Adam, in batches of
            8 x 256 tokens as in the paper's appendix B.2: a few steps are timed, and each of the first ones is measured
            by the default schedule; the share of longer runs follows from the number of records it makes in them

The tracker's own share is what the bar is about; the ratio of whole runs says little on a busy machine. Trained weights
must be the same to the last bit with and without it.

usage: benchmarks/tracker.py [--quick] [digits [EPOCHS [PAIRS]] | gpt2 [STEPS [SEQUENCES [TOKENS]]]], both by default
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and PyTorch are loaded

import statistics
import sys
import time
from collections.abc import Callable, Iterable

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
    board.compare(f"ViT on digits, {steps} steps", "CPU time", "s", totals)
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


def main(board: Board) -> None:
    """Run the requested comparison, or both."""
    name, *numbers = board.words or ("",)
    sizes = {"digits": (1, 1), "gpt2": (1, 1, 8)} if board.quick else {}
    for one, measure in {"digits": digits, "gpt2": gpt2}.items():
        if name in ("", one):
            measure(board, *(map(int, numbers) if numbers else sizes.get(one, ())))


if __name__ == "__main__":
    play(main)
