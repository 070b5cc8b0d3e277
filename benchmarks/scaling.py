"""Cost against size: how long each method takes as its problem grows, with the exponent of the best power law.

    initial scale    gradient_flow to rescaled time 10 on 16 coordinates, against log10(1/alpha); beside it SciPy's RK45
                     in float64 weights, as far as they reach
    coordinates      gradient_flow at alpha = 1e-32 and all stages of Algorithm 1, against p, on 2 p samples
    width            the spectrum of the update of a product of width 64, against d; beside it NumPy's dense SVD;
                     and the nuclear-norm SVM of 10 samples of 5 tokens
    heads            the spectra of all heads of a layer with d = 768
    data             the three attention SVMs, against n L d: 5 tokens, n = d / 5

CPU time on one thread, the least of three turns, compiled beforehand. The exponent is the slope of log(time) against
log(size) by least squares over all points; its standard error measures the distance from a power law, and the
slope between the last two where it is going.

    python benchmarks/scaling.py [--quick]
"""

import one_core

one_core.take(float64=True)

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from board import Board, play
from scipy.integrate import solve_ivp

from saddlescope.flow import DiagonalInit, gradient_flow
from saddlescope.measure import product_update_spectrum
from saddlescope.models import diagonal_linear_network
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.theory import incremental_learning
from saddlescope.theory.attention.svm import frobenius_svm, l1_svm, nuclear_svm

TURNS, UNTIL, LOG10 = 3, 10.0, float(np.log(10))
WIDTH = 64  # of a head
Prepared = Callable[[float], Callable[[], Any]]  # a size to the work at that size


def data_of(p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features and targets of a realisable regression, and a start, for p coordinates on 2 p samples."""
    rng = np.random.default_rng(p)
    features, teacher = rng.standard_normal((2 * p, p)) / np.sqrt(2 * p), rng.standard_normal(p)
    return features, features @ teacher, *rng.standard_normal((2, p))


def flow(p: int, digits: float) -> Callable[[], Any]:
    """Gradient flow from alpha = 10^-digits."""
    features, targets, u, v = data_of(p)
    network, start = diagonal_linear_network(features, targets), DiagonalInit(u, v, -digits * LOG10)
    until = UNTIL * 2 * p  # features of unit columns: a coordinate is learned in time proportional to the samples
    return lambda: gradient_flow(network, start, until=until, tolerance=1e-4, record=np.zeros(1))


def weights(p: int, digits: float) -> Callable[[], Any]:
    """The same flow by SciPy's RK45 in float64 weights, its absolute tolerance scaled with alpha."""
    features, targets, u, v = data_of(p)
    start, until = 10.0**-digits * np.concatenate([u, v]), UNTIL * 2 * p

    def slope(_: float, w: np.ndarray) -> np.ndarray:
        u, v = w[:p], w[p:]
        g = digits * LOG10 * 2 / len(targets) * (features.T @ (targets - features @ (u * v)))
        return np.concatenate([v * g, u * g])

    return lambda: solve_ivp(slope, (0, until), start, "RK45", rtol=1e-4, atol=10.0 ** (-digits - 4))


def stages(p: float) -> Callable[[], Any]:
    """All stages of Algorithm 1."""
    features, targets, *_ = data_of(int(p))
    network = diagonal_linear_network(features, targets)
    return lambda: incremental_learning(network, int(p))


def spectrum(d: int, heads: int, dense: bool) -> Callable[[], Any]:
    """The spectra of the updates of the products of all heads, in float32."""
    draw = np.random.default_rng(0).standard_normal
    L0, R0 = ((0.02 * draw((heads, d, WIDTH))).astype(np.float32) for _ in range(2))
    L, R = (W + (2e-5 * draw(W.shape)).astype(np.float32) for W in (L0, R0))
    if dense:
        return lambda: np.linalg.svd(L @ R.mT - L0 @ R0.mT, compute_uv=False)
    return lambda: product_update_spectrum(L, R, L0, R0)


def svm(solver: Callable[..., Any], n: int, tokens: int, d: int) -> Callable[[], Any]:
    """One attention SVM on Gaussian data."""
    data = gaussian_tokens(n, tokens, d, seed=0)
    return lambda: solver(data)


def least_seconds(work: Callable[[], Any], turns: int) -> float:
    """CPU time, the least over turns, after one that compiles."""
    work()
    seconds = []
    for _ in range(turns):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def measure(board: Board, problem: str, method: str, size: str, sizes: Sequence[float], prepare: Prepared) -> None:
    """One curve, point by point."""
    turns, chosen = (1, sizes[:3]) if board.quick else (TURNS, sizes)
    points: dict[float, float] = {}
    for one in chosen:
        points[one] = least_seconds(prepare(one), turns)
        print(f"  {method:28} {size} = {one:<8g} {1e3 * points[one]:12.2f} ms", flush=True)
    curve = board.curve(problem, method, size, points, "CPU time", "s")
    reported = f"{curve.exponent:.2f} ± {curve.error:.2f}, at the end {curve.end:.2f}"
    print(f"{problem}, {method}: time as {size} to the {reported}\n", flush=True)


def main(board: Board) -> None:
    """Measures and prints all curves."""
    scale = f"diagonal linear network, p = 16, to rescaled time {UNTIL * 32:g}"
    measure(
        board, scale, "gradient_flow", "log10(1/alpha)", (2, 8, 32, 128, 512, 2048), lambda digits: flow(16, digits)
    )
    measure(
        board, scale, "SciPy RK45 in (u, v)", "log10(1/alpha)", (2, 4, 8, 16, 32), lambda digits: weights(16, digits)
    )
    sizes = (8, 16, 32, 64, 128)
    measure(
        board,
        "diagonal linear network, alpha = 1e-32, to rescaled time 20 p",
        "gradient_flow",
        "p",
        sizes,
        lambda p: flow(int(p), 32.0),
    )
    measure(board, "diagonal linear network, all stages", "incremental_learning", "p", (*sizes, 256), stages)
    update = f"update of a product of width {WIDTH}, one head"
    widths = (128, 256, 512, 1024, 2048, 4096)
    measure(board, update, "product_update_spectrum", "d", widths, lambda d: spectrum(int(d), 1, dense=False))
    measure(board, update, "NumPy, dense SVD", "d", widths[:4], lambda d: spectrum(int(d), 1, dense=True))
    measure(
        board,
        f"updates of the products of a layer, d = 768, width {WIDTH}",
        "product_update_spectrum",
        "heads",
        (1, 2, 4, 8, 16, 32, 64),
        lambda heads: spectrum(768, int(heads), dense=False),
    )
    solvers = {"l1_svm": l1_svm, "frobenius_svm": frobenius_svm, "nuclear_svm": nuclear_svm}
    measure(
        board,
        "attention SVM, (n, L) = (10, 5)",
        "nuclear_svm",
        "d",
        (25, 50, 100, 200, 400, 800, 1600),
        lambda d: svm(nuclear_svm, 10, 5, int(d)),
    )
    for name, solver in solvers.items():
        at = partial(_svm_of_entries, solver)
        measure(board, "attention SVMs, L = 5, n = d / 5", name, "n L d", (625, 2500, 10_000, 40_000, 160_000), at)


def _svm_of_entries(solver: Callable[..., Any], entries: float) -> Callable[[], Any]:
    n = round(float(np.sqrt(entries / 25)))
    return svm(solver, n, 5, 5 * n)


if __name__ == "__main__":
    play(main)
