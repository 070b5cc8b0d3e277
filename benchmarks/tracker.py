"""What the tracker costs: the same ViT run with and without it, alternating, in one process.

The sizes are those of the digits experiment (depth 4, embedding 128, 8 heads of width 32), at a fifth of its 40 epochs:
that is unkind to the default schedule, which measures ever more rarely, so that longer runs pay less. Two figures, both
of CPU time: the tracker's own share of the run, and the ratio of the runs with and without it, with its spread (on a
busy machine the second says little). The trained weights must be the same to the last bit.

usage: benchmarks/tracker.py [epochs [pairs]]
"""

import statistics
import sys
import time

import torch

from saddlescope.train import Adam, ImageData, RankTracker, TrainConfig, ViT, ViTConfig, fit, load

SIZES = ViTConfig(image_size=8, channels=1, patch=2, embedding=128, depth=4, heads=8, head_width=32, mlp_width=128)


class TimedTracker(RankTracker):
    """A tracker that knows its own CPU time."""

    def __init__(self, model: torch.nn.Module) -> None:
        start = time.process_time()
        super().__init__(model)
        self.seconds = time.process_time() - start

    def step(self) -> None:  # noqa: D102
        start = time.process_time()
        super().step()
        self.seconds += time.process_time() - start


def run(data: ImageData, epochs: int, tracked: bool) -> tuple[float, TimedTracker | None, list[torch.Tensor]]:
    """CPU seconds of one training run, its tracker, and the trained weights."""
    model = ViT(SIZES)
    config = TrainConfig(optimizer=Adam(learning_rate=1e-3), epochs=epochs, warmup_epochs=1, batch=128)
    start = time.process_time()
    tracker = TimedTracker(model) if tracked else None
    fit(model, data, config, tracker=tracker)
    return time.process_time() - start, tracker, list(model.state_dict().values())


def main(epochs: int = 8, pairs: int = 3) -> None:
    """Prints the table."""
    data = load("digits")
    run(data, 1, tracked=True)  # warm up
    ratios, shares = [], []
    for pair in range(pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        results = {tracked: run(data, epochs, tracked) for tracked in order}
        (without, _, weights), (with_tracker, tracker, tracked_weights) = results[False], results[True]
        assert tracker is not None
        ratios.append(with_tracker / without)
        shares.append(tracker.seconds / without)
        same = all(torch.equal(one, other) for one, other in zip(weights, tracked_weights, strict=True))
        print(
            f"without {without:6.2f} s   with {with_tracker:6.2f} s   ratio {ratios[-1]:.3f}   "
            f"tracker {tracker.seconds:.2f} s = {shares[-1]:.1%} for {len(tracker.records.steps)} records   "
            f"weights {'bit-identical' if same else 'DIFFER'}"
        )
        if not same:
            sys.exit("The tracker changed the run.")
    steps = epochs * (len(data.train_images) // 128)
    spread = statistics.stdev(ratios) if pairs > 1 else float("nan")
    print(
        f"{steps} steps: the tracker takes {statistics.mean(shares):.1%} of the run; "
        f"ratio {statistics.mean(ratios):.3f}, standard deviation {spread:.3f} over {pairs} pairs"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
