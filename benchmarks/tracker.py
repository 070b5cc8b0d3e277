"""Cost of the tracker: runs with and without it, alternating, in one process, in CPU time of one thread.

digits      the ViT of the digits experiment (depth 4, embedding 128, 8 heads of width 32) at a fifth of its 40 epochs:
            unkind to the default schedule, which measures ever more rarely, so that longer runs pay less
gpt2        GPT-2 small from scratch (12 layers of 12 heads of width 64, 124 million weights) with Adam, in batches of
            8 x 256 tokens as in the paper's appendix B.2: a few steps are timed, and each of the first ones is measured
            by the default schedule; the share of longer runs follows from the number of records it makes in them
layer       a record of one layer of a model with 7 billion weights: 32 heads of width 128 on 4096 inputs
memory      resident memory that the tracker adds to GPT-2 small at its peak, over the size of the tracked weights, in
            a fresh process for each type, whose allocator returns free memory to the system at once
gpu         on a GPU, in wall time and only if named: training of a model with a billion weights (of the shape of Llama
            3.2 1B) in steps with and without the tracker; a record of the 7B model's layer, and its error against the
            processor's

The tracker's own share is what the bar is about; the ratio of whole runs says little on a busy machine. Trained weights
must be the same to the last bit with and without it.

usage: benchmarks/tracker.py [--quick] [digits [EPOCHS [PAIRS]] | gpt2 [STEPS [SEQUENCES [TOKENS]]] | layer [WIDTH] |
       memory [DEPTH] | gpu [STEPS [SEQUENCES [DEPTH [WIDTH [LAYER]]]]]], all but the last by default
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and PyTorch are loaded
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products on a GPU

import copy
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from board import Board, play
from torch.nn.attention import SDPBackend, sdpa_kernel

from saddlescope.ranks import Geometric, RankTracker
from saddlescope.training import Adam, ImageData, TrainConfig, ViT, ViTConfig, fit, load

if TYPE_CHECKING:
    from transformers import LlamaConfig

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
    problem = f"GPT-2 small, {sequences} x {tokens} tokens a step"
    report_shares(board, problem, (100, 1000, 10_000), making=tracker.making, record=record, step=step)


def report_shares(
    board: Board, problem: str, lengths: tuple[int, ...], *, making: float, record: float, step: float
) -> None:
    """The tracker's part of runs of several lengths, from the seconds of its making, of a record and of a step."""
    for length in lengths:
        records = sum(map(Geometric(), range(1, length + 1)))
        share, of_length = (making + records * record) / (length * step), f"{problem}, {length} steps"
        board.report(of_length, "RankTracker", "its part of the training time", 100 * share, "%", f"{records} records")
        print(f"{length:7d} steps, {records} records: the tracker takes {share:.3%} of the training time")


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


def synchronized() -> float:
    """Wall time after all work on the GPU is done."""
    torch.cuda.synchronize()
    return time.perf_counter()


class ClockedTracker(RankTracker):
    """A tracker that knows the wall time of its making and of each record, and the memory of the GPU they took."""

    def __init__(self, model: torch.nn.Module) -> None:
        start = synchronized()
        super().__init__(model)
        self.making, self.record_seconds, self.memory = synchronized() - start, list[float](), 0

    def step(self) -> None:  # noqa: D102
        records, start, before = len(self.steps), synchronized(), torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        super().step()
        if len(self.steps) > records:
            self.record_seconds.append(synchronized() - start)
            self.memory = max(self.memory, torch.cuda.max_memory_allocated() - before)


def train_llama(model: torch.nn.Module, steps: int, sequences: int, tracker: RankTracker | None) -> float:
    """Wall seconds of a step of training in bfloat16 with fused AdamW, in blocks of 1024 tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    generator = torch.Generator("cuda").manual_seed(0)
    start = synchronized()
    for step in range(steps):
        if step == 3:
            start = synchronized()  # kernels are chosen, and the optimiser has its memory
        batch = torch.randint(0, model.config.vocab_size, (sequences, 1024), generator=generator, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if tracker is not None:
            tracker.step()
    return (synchronized() - start) / (steps - 3)


def run_llama(
    config: "LlamaConfig", steps: int, sequences: int, make: Callable[[torch.nn.Module], ClockedTracker | None]
) -> tuple[float, ClockedTracker | None, list[torch.Tensor]]:
    """Wall seconds of a step, the tracker, and the trained weights on the host."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    tracker = make(model)
    seconds = train_llama(model, steps, sequences, tracker)
    return seconds, tracker, [weight.detach().cpu() for weight in model.parameters()]


def gpu_training(board: Board, steps: int, sequences: int, depth: int, width: int) -> None:
    """Training with and without the tracker, and its share of longer runs."""
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=32_000, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=depth,
        num_attention_heads=width // 64, num_key_value_heads=max(1, width // 256), tie_word_embeddings=True,
    )  # fmt: skip
    without, _, weights = run_llama(config, steps, sequences, lambda model: None)
    tracked, tracker, tracked_weights = run_llama(config, steps, sequences, ClockedTracker)
    require_same(weights, tracked_weights)
    assert tracker is not None
    size, record = sum(weight.numel() for weight in weights) / 1e9, statistics.median(tracker.record_seconds)
    print(
        f"{size:.2f} billion weights, {sequences} x 1024 tokens: a step {without:.4f} s without, {tracked:.4f} s with "
        f"{len(tracker.steps)} records in {steps} steps; making the tracker {tracker.making:.2f} s; a record "
        f"{record:.3f} s (the first {tracker.record_seconds[0]:.2f}) and {tracker.memory / 2**20:.0f} MiB; weights "
        "bit-identical"
    )
    problem = f"{size:.2f} billion weights, {sequences} x 1024 tokens a step, {torch.cuda.get_device_name()}"
    board.report(problem, "RankTracker", "wall time of a record", record, "s", f"a step takes {without:.3f} s")
    board.report(problem, "RankTracker", "memory of the GPU for a record", tracker.memory / 2**20, "MiB")
    report_shares(board, problem, (1000, 10_000, 100_000), making=tracker.making, record=record, step=without)


def gpu_layer(board: Board, width: int) -> None:
    """Wall time of records of a wide layer on the GPU, and their error against the processor's."""
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        on_host = Attention(width, dtype)
        on_gpu = copy.deepcopy(on_host).cuda()
        trackers = [RankTracker(model, schedule=lambda _: True) for model in (on_host, on_gpu)]
        move(on_host)
        on_gpu.load_state_dict(on_host.state_dict())
        seconds = []
        for _ in range(4):
            start = synchronized()
            trackers[1].step()
            seconds.append(synchronized() - start)
        trackers[0].step()
        wanted, found = (tracker.records.products.update.values[0] for tracker in trackers)
        error = float(np.max(np.abs(found - wanted) / wanted.max(axis=-1, keepdims=True)))
        kind = str(dtype).removeprefix("torch.")
        problem = f"one layer of {on_gpu.num_heads} heads on {width} inputs, {kind}, {torch.cuda.get_device_name()}"
        quantity, note = "wall time of a record", f"error {error:.1e} of the largest value, against the processor"
        board.report(problem, "RankTracker", quantity, statistics.median(seconds), "s", note)
        print(f"{problem}: a record {statistics.median(seconds):.3f} s (the first {seconds[0]:.2f}); {note}")


def gpu(
    board: Board, steps: int = 60, sequences: int = 8, depth: int = 16, width: int = 2048, layer_width: int = 4096
) -> None:
    """What the tracker costs on a GPU."""
    if not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU.")
    torch.use_deterministic_algorithms(True)
    gpu_layer(board, layer_width)
    gpu_training(board, steps, sequences, depth, width)


def main(board: Board) -> None:
    """Run the requested comparison, or all."""
    name, *numbers = board.words or ("",)
    small = {"digits": (1, 1), "gpt2": (1, 1, 8), "layer": (512,), "memory": (2,), "gpu": (5, 1, 2, 256, 512)}
    sizes = small if board.quick else {}
    for one, measure in {"digits": digits, "gpt2": gpt2, "layer": layer, "memory": memory, "gpu": gpu}.items():
        if name == one or (name == "" and one != "gpu"):
            measure(board, *(map(int, numbers) if numbers else sizes.get(one, ())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["memory-of"]:
        measure_memory(*sys.argv[2:])
    else:
        play(main)
