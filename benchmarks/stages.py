"""The finder of stages beside what one would write without it: synthetic staircases whose stages are known.

Right means: as many stages as there are, each drop within its middle 80 % or a sample beside it. (Levels and ranks are
not asked of the others; `find_plateaus` must have them right, too, in the last column.) The thresholds of the others
are the best of a grid, chosen on these very staircases; `find_plateaus` has its defaults, made on other seeds.

    threshold on the derivative   losses smoothed over a window, drops where -dy/dt exceeds a part of its largest value
    find_peaks                    SciPy's, on the logarithm of -dy/dt, by prominence

    python benchmarks/stages.py [--quick]
"""

import one_core

one_core.take()

import itertools
import time
from collections.abc import Callable

import numpy as np
from board import Board, play
from scipy.ndimage import label, uniform_filter1d
from scipy.signal import find_peaks
from synthetic_staircases import SyntheticRun, synthetic_run

from saddlescope.measure import find_plateaus

FIRST, COUNT = 30_000, 100  # seeds: neither the finder's nor the entry's
NOISES = (0.0, 1e-4, 1e-3, 1e-2)
WINDOWS = (1, 5, 11, 21)
PARTS = (0.01, 0.03, 0.1, 0.3)
PROMINENCES = (1.0, 2.0, 4.0, 8.0)
Finder = Callable[[SyntheticRun], np.ndarray]


def speed(run: SyntheticRun, window: int) -> np.ndarray:
    """-dy/dt of the smoothed loss."""
    return -np.gradient(uniform_filter1d(run.losses, window, mode="nearest"), run.times)


def by_threshold(window: int, part: float) -> Finder:
    """One drop for each stretch in which the speed exceeds a part of its maximum, where it is largest."""

    def find(run: SyntheticRun) -> np.ndarray:
        v = speed(run, window)
        stretches, number = label(v > part * v.max())
        return np.array([run.times[np.argmax(np.where(stretches == k, v, -np.inf))] for k in range(1, number + 1)])

    return find


def by_peaks(window: int, prominence: float) -> Finder:
    """SciPy's peaks of the log speed; what does not fall has the least positive speed."""

    def find(run: SyntheticRun) -> np.ndarray:
        v = speed(run, window)
        peaks, _ = find_peaks(np.log(np.maximum(v, v[v > 0].min())), prominence=prominence)
        return run.times[peaks]

    return find


def by_plateaus(run: SyntheticRun) -> np.ndarray:
    """The times of ours."""
    return np.array([drop.step for drop in find_plateaus(run.losses, steps=run.times).drops])


def right(run: SyntheticRun, times: np.ndarray) -> bool:
    """Return true where the drops were found at their places."""
    return len(times) == len(run.drops) and bool(np.all((run.early <= times) & (times <= run.late)))


def share(find: Finder, runs: list[SyntheticRun]) -> float:
    """Return the share of runs found right."""
    return sum(right(run, find(run)) for run in runs) / len(runs)


def main(board: Board) -> None:
    """Prints the table."""
    count = 4 if board.quick else COUNT
    names = ("noise", "sampling", "find_plateaus", "threshold", "find_peaks", "with levels and ranks", "ms, ours")
    print(*(f"{name:>22}" for name in names))
    for noise, geometric in itertools.product(NOISES, (False, True)):
        runs = [synthetic_run(seed, noise=noise, geometric=geometric) for seed in range(FIRST, FIRST + count)]
        start = time.process_time()
        ours = share(by_plateaus, runs)
        milliseconds = 1e3 * (time.process_time() - start) / count
        staircases = (
            find_plateaus(run.losses, steps=run.times, singular_values=run.singular_values).staircase for run in runs
        )
        whole = sum(run.matches(found) for run, found in zip(runs, staircases, strict=True)) / count
        threshold = max(share(by_threshold(*grid), runs) for grid in itertools.product(WINDOWS, PARTS))
        peaks = max(share(by_peaks(*grid), runs) for grid in itertools.product(WINDOWS, PROMINENCES))
        sampling = "geometric" if geometric else "linear"
        problem = f"noise {noise:g} of the range, {sampling} sampling, {count} staircases"
        for method, value in (
            ("find_plateaus", ours),
            ("threshold on the smoothed derivative, best of a grid", threshold),
            ("SciPy find_peaks, best of a grid", peaks),
        ):
            board.report(problem, method, "found right", 100 * value, "%")
        board.report(problem, "find_plateaus", "CPU time of a staircase", milliseconds, "ms")
        cells = (f"{noise:g}", sampling, *(f"{value:.0%}" for value in (ours, threshold, peaks, whole)))
        print(*(f"{cell:>22}" for cell in cells), f"{milliseconds:>22.1f}")


if __name__ == "__main__":
    play(main)
