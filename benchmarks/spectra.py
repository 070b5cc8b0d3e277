"""Spectra of the updates of W_K W_Q^T and W_V W_O^T, all heads of a model of GPT-2 small's size, against dense SVDs.

12 layers x 12 heads, d = 768, head width 64, float32 weights. CPU time on one thread, or wall time on more; rounds in
turn, so that both sides of each ratio met the same machine. A dense SVD takes the same time for every head and is timed
on a few, and so is WeightWatcher 0.7, which is given the same 768 x 768 updates as linear layers: its spectra alone
(`get_ESD`), and its whole analysis, which fits a power law besides.

usage: benchmarks/spectra.py [--quick] [threads]
"""

import os
import sys

os.environ["OMP_NUM_THREADS"] = next((word for word in sys.argv[1:] if word.isdigit()), "1")  # read by what follows
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]
os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]

import logging
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from board import Board, play

from saddlescope.measure import product_update_spectrum

THREADS = int(os.environ["OMP_NUM_THREADS"])
LAYERS, HEADS, D, WIDTH = 12, 12, 768, 64
ROUNDS, DENSE_HEADS = 5, 6
Factors = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def factors(relative: float, heads: tuple[int, ...], seed: int = 0) -> Factors:
    """(L, R, L0, R0) in float32: GPT-2's initial scale and a random update of that relative size."""
    draw = np.random.default_rng(seed).standard_normal
    before = [(0.02 * draw((*heads, D, WIDTH))).astype(np.float32) for _ in range(2)]
    after = [(W + relative * 0.02 * draw(W.shape)).astype(np.float32) for W in before]
    return after[0], after[1], before[0], before[1]


def dense_numpy(L: np.ndarray, R: np.ndarray, L0: np.ndarray, R0: np.ndarray) -> np.ndarray:
    """Compute the spectra with plain NumPy."""
    return np.linalg.svd(L @ np.swapaxes(R, -1, -2) - L0 @ np.swapaxes(R0, -1, -2), compute_uv=False)


def dense_torch(L: torch.Tensor, R: torch.Tensor, L0: torch.Tensor, R0: torch.Tensor) -> torch.Tensor:
    """Compute the spectra with plain PyTorch."""
    return torch.linalg.svdvals(L @ R.mT - L0 @ R0.mT)


class WeightWatcher:
    """Spectra by WeightWatcher, with the updates as the weights of a model."""

    def __init__(self, updates: np.ndarray) -> None:
        logging.disable(logging.WARNING)  # it speaks while it is imported
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import weightwatcher
        logging.disable(logging.NOTSET)
        model = torch.nn.Sequential(*(torch.nn.Linear(D, D, bias=False) for _ in updates))
        for layer, update in zip(model, updates, strict=True):
            layer.weight.data = torch.from_numpy(update)
        self.watcher = weightwatcher.WeightWatcher(model=model, log_level=logging.ERROR)
        self.layers = [int(number) for number in self.watcher.describe().layer_id]

    def spectra(self) -> list[np.ndarray]:
        """The singular values of all layers; it gives their squares."""
        return [np.sqrt(np.sort(self.watcher.get_ESD(layer=number)))[::-1] for number in self.layers]

    def analysis(self) -> object:
        """Its table of metrics."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.watcher.analyze()


def seconds(call: Callable[[], object]) -> float:
    """CPU time of one call, or wall time on several threads."""
    clock = time.process_time if THREADS == 1 else time.perf_counter
    start = clock()
    call()
    return clock() - start


def times(board: Board) -> None:
    """Prints the table of times and ratios: median, and range over rounds."""
    layers, dense, turns = (1, 1, 1) if board.quick else (LAYERS, DENSE_HEADS, ROUNDS)
    products = 2 * layers * HEADS
    attention = [factors(1e-3, (layers, HEADS), seed) for seed in (0, 1)]  # key with query, value with output
    attention_torch = [tuple(map(torch.from_numpy, product)) for product in attention]
    few = factors(1e-3, (dense,))
    few_torch, few_double = tuple(map(torch.from_numpy, few)), tuple(X.astype(np.float64) for X in few)
    watcher = WeightWatcher(few[0] @ np.swapaxes(few[1], -1, -2) - few[2] @ np.swapaxes(few[3], -1, -2))
    calls = {
        "saddlescope, NumPy arrays": (lambda: [product_update_spectrum(*x) for x in attention], products),
        "saddlescope, PyTorch tensors": (lambda: [product_update_spectrum(*x) for x in attention_torch], products),
        "numpy.linalg.svd, float32": (lambda: dense_numpy(*few), dense),
        "torch.linalg.svdvals, float32": (lambda: dense_torch(*few_torch), dense),
        "numpy.linalg.svd, float64": (lambda: dense_numpy(*few_double), dense),
        "WeightWatcher, get_ESD": (watcher.spectra, dense),
        "WeightWatcher, analyze": (watcher.analysis, dense),
    }
    rounds = [{name: seconds(call) / count for name, (call, count) in calls.items()} for _ in range(turns + 1)][
        1:
    ]  # the first warms up
    board.compare(
        f"{products} products of a GPT-2-small-sized model, float32, threads: {THREADS}",
        "CPU time of a product" if THREADS == 1 else "wall time of a product",
        "ms",
        {name: [1e3 * one[name] for one in rounds] for name in calls},
        own=[name for name in calls if name.startswith("saddlescope")],
    )
    ours = {"NumPy": "saddlescope, NumPy arrays", "PyTorch": "saddlescope, PyTorch tensors"}
    print(
        f"{'':32}{'ms a product':>14}{f's for all {products}':>16}", *(f"{'over ours, ' + name:>28}" for name in ours)
    )
    for name in calls:
        milliseconds = 1e3 * statistics.median(one[name] for one in rounds)
        columns = []
        for mine in ours.values():
            ratios = [one[name] / one[mine] for one in rounds]
            columns.append(f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")
        print(f"{name:32}{milliseconds:14.2f}{milliseconds * products / 1e3:16.2f}", *(f"{c:>28}" for c in columns))


def errors(board: Board) -> None:
    """Prints the table of errors against the difference of the products in long double."""
    print("\nlargest error of a singular value, in units of the largest one; noise floor likewise")
    columns = ("saddlescope", "its floor", "numpy, f32", "torch, f32", "WeightWatcher")
    print(f"{'relative update':32}", *(f"{column:>13}" for column in columns))
    for relative in (1e-4,) if board.quick else (1e-2, 1e-4, 1e-6):
        L, R, L0, R0 = single = factors(relative, ())
        wide = [X.astype(np.longdouble) for X in single]
        exact = np.linalg.svd((wide[0] @ wide[1].T - wide[2] @ wide[3].T).astype(np.float64), compute_uv=False)
        ours = product_update_spectrum(L, R, L0, R0)
        watched = WeightWatcher((L @ R.T - L0 @ R0.T)[None]).spectra()[0]
        found = (ours.values, dense_numpy(*single), dense_torch(*map(torch.from_numpy, single)).numpy(), watched)
        worst = [np.max(np.abs(values - exact[: len(values)])) / exact[0] for values in found]
        floor = ours.noise_floor / exact[0]
        methods = ("saddlescope", "numpy.linalg.svd, float32", "torch.linalg.svdvals, float32", "WeightWatcher")
        for method, off in zip(methods, worst, strict=True):
            quantity = "largest error of a singular value over the largest one"
            board.report(f"one product, relative update {relative:.0e}", method, quantity, float(off))
        print(f"{relative:<32.0e}", *(f"{value:13.1e}" for value in (worst[0], floor, *worst[1:])))


def main(board: Board) -> None:
    """Prints both tables."""
    times(board)
    errors(board)


if __name__ == "__main__":
    play(main)
