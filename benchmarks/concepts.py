"""Flows of the symmetric two-layer model from many starts: CPU time a start and errors, beside what users would write.

Data of Figures 8 and 9 of Yang et al. 2024 (three and four concepts), Gaussian starts of scale .1, to t = 40, all on
one thread and compiled beforehand. The others:

    Euler loop, PyTorch    the authors' way: one start, steps of .01, the loss out of distribution noted at each
    Euler loop, NumPy      the same without a framework
    Euler, all at once     the same in NumPy for all starts together
    Diffrax                Tsit5 or Dopri8 with step-size control in U, vmapped over the starts, the loss on a grid of
                           401 times

"error" is the largest error of an entry of W, at ten times up to t = 10, where all is moving (Euler's, from a step of
.01). "turns" is the part of the starts with another number of extrema of the loss than the reference has, this
package's run at tolerance 1e-12, which agrees with SciPy's DOP853 at rtol 3e-14 to 1e-11 (in the tests).

    python benchmarks/concepts.py [--quick]
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy, PyTorch and JAX are loaded
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_ENABLE_X64"] = "1"

import time
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import torch
from board import Board, play

from saddlescope.flow import symmetric_flows

UNTIL, STEP, SCALE = 40.0, 0.01, 0.1
MARKS = np.linspace(1, 10, 10)  # where W is compared
GRID = np.linspace(0, UNTIL, 401)
OURS, OTHERS, LOOPS = 8192, 256, 2  # starts
TURNS = 3
FIGURES = {
    "Figure 8, d = 3": (np.array([1.0, 1.5, 2.2]), np.full(3, 0.05)),
    "Figure 9, d = 4": (np.array([1.0, 1.5, 2.2, 2.7]), np.array([0.05, 0.05, 0.05, 0.5])),
}


def seconds(work: Callable[[], Any], warm: Callable[[], Any] | None = None) -> tuple[float, Any]:
    """CPU time of some work after a first run of it (or of `warm`), and what it made."""
    (warm or work)()
    began = time.process_time()
    made = work()
    return time.process_time() - began, made


def torch_loop(a: np.ndarray, x: np.ndarray, start: np.ndarray, until: float) -> tuple[np.ndarray, np.ndarray]:
    """W at the marks, and the loss after every step."""
    A, point, U, one = torch.diag(torch.tensor(a)), torch.tensor(x), torch.tensor(start), torch.eye(len(a)).double()
    kept, losses = [], []
    for _ in range(round(until / STEP)):
        W = U @ U.T
        losses.append(float(((W @ point - point) ** 2).sum() / 2))
        kept.append(W)
        E = W - one
        U = U - STEP * (A @ E + E @ A) @ U
    return np.stack([kept[round(t / STEP)].numpy() for t in MARKS if t < until]), np.array(losses)


def numpy_loop(a: np.ndarray, x: np.ndarray, starts: np.ndarray, until: float) -> tuple[np.ndarray, np.ndarray]:
    """The same for one start (d, d) or many (n, d, d)."""
    U, one, marks, kept, losses = starts, np.eye(len(a)), set(np.round(MARKS / STEP).astype(int)), [], []
    for step in range(round(until / STEP)):
        W = U @ U.mT
        losses.append(np.sum((W @ x - x) ** 2, axis=-1) / 2)
        if step in marks:
            kept.append(W)
        E = W - one
        U = U - STEP * (a[:, None] * E + E * a) @ U
    return np.stack(kept, axis=-3), np.stack(losses, axis=-1)


def diffrax_run(a: np.ndarray, x: np.ndarray, solver: Any, rtol: float) -> Callable[[np.ndarray], Any]:
    """W at the marks and the loss on the grid, for many starts."""
    save = np.unique(np.concatenate([MARKS, GRID]))
    pairs, one = jnp.asarray(a[:, None] + a), jnp.eye(len(a))

    def solve(start: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, U, args: -(pairs * (U @ U.T - one)) @ U),
            solver,
            0.0,
            UNTIL,
            1e-3,
            start,
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * 1e-3),
            saveat=diffrax.SaveAt(ts=jnp.asarray(save)),
            max_steps=100_000,
        )
        W = solution.ys @ jnp.swapaxes(solution.ys, 1, 2)
        return W[np.searchsorted(save, MARKS)], jnp.sum((W @ x - x) ** 2, axis=-1) / 2

    run = jax.jit(jax.vmap(solve))
    return lambda starts: jax.tree.map(np.asarray, run(starts))


def turns(losses: np.ndarray) -> np.ndarray:
    """The extrema one counts on a grid, without what is below 1e-9 of the first loss."""
    steps = np.diff(losses, axis=-1)
    steps = np.where(np.abs(steps) > 1e-9 * losses[..., :1], np.sign(steps), 0)
    counts = []
    for row in np.atleast_2d(steps):
        signs = row[row != 0]
        counts.append(np.sum(signs[1:] != signs[:-1]))
    return np.array(counts)


def main(board: Board) -> None:
    """Prints a table for each figure."""
    many, others, turned = (64, 8, 1) if board.quick else (OURS, OTHERS, TURNS)
    for name, (mu, sigma) in list(FIGURES.items())[: 1 if board.quick else None]:
        a, d = mu**2 / len(mu) + sigma**2, len(mu)
        starts = SCALE * np.random.default_rng(0).standard_normal((many, d, d))
        times: dict[str, list[float]] = {}
        notes: dict[str, str] = {}
        settings: dict[str, Any] = {"test_point": mu, "until": UNTIL}
        reference = symmetric_flows(a, starts, **settings, tolerance=1e-12, record=MARKS)
        at = np.searchsorted(reference.times, MARKS)
        exact, exact_turns = reference.W[:, at], reference.turns
        best = None
        print(f"\n{name}\n{'':32}{'starts':>8}{'ms a start':>12}{'ratio':>8}{'error':>10}{'turns':>8}")

        def row(label: str, turns: list[float], W: np.ndarray, counts: np.ndarray, each: float = np.nan) -> None:
            n, taken = len(W), float(np.median(turns))
            error, wrong = np.abs(W - exact[:n]).max(), np.mean(counts != exact_turns[:n])  # noqa: B023
            times[label] = [1e3 * turn / n for turn in turns]  # noqa: B023
            notes[label] = f"error in W {error:.0e}"  # noqa: B023
            print(f"{label:32}{n:8}{1e3 * taken / n:12.3f}{taken / n / each:8.0f}{error:10.1e}{wrong:8.3f}", flush=True)

        for tolerance in (1e-11, 1e-6):
            warm = lambda: symmetric_flows(a, starts[:64], **settings, tolerance=1e-11)  # noqa: B023, E731
            plain = lambda: symmetric_flows(a, starts, **settings, tolerance=tolerance)  # noqa: B023, E731
            taken, flows = seconds(plain, warm)
            turns_taken = [taken, *(seconds(plain, lambda: None)[0] for _ in range(turned - 1))]
            taken = float(np.median(turns_taken))
            again = symmetric_flows(a, starts, **settings, tolerance=tolerance, record=MARKS)
            row(
                f"symmetric_flows {tolerance:.0e}",
                turns_taken,
                again.W[:, at],
                flows.turns,
                best or taken / len(starts),
            )
            best = best or taken / len(starts)
        for label, solver, rtol in (("Tsit5", diffrax.Tsit5(), 1e-6), ("Dopri8", diffrax.Dopri8(), 1e-11)):
            run = diffrax_run(a, mu, solver, rtol)
            taken, (W, losses) = seconds(lambda: run(starts[:others]))  # noqa: B023
            turns_taken = [taken, *(seconds(lambda: run(starts[:others]), lambda: None)[0] for _ in range(turned - 1))]  # noqa: B023
            row(f"Diffrax {label}, rtol {rtol:.0e}, vmapped", turns_taken, W, turns(losses), best)
        taken, (W, losses) = seconds(lambda: numpy_loop(a, mu, starts[:others], UNTIL), lambda: None)  # noqa: B023
        row("Euler, all at once, NumPy", [taken], W, turns(losses), best)
        for label, loop in (("NumPy", numpy_loop), ("PyTorch", torch_loop)):
            work = lambda: [loop(a, mu, start, UNTIL) for start in starts[:LOOPS]]  # noqa: B023, E731
            taken, made = seconds(work, lambda: loop(a, mu, starts[0], 12.0))  # noqa: B023
            W, losses = (np.stack(parts) for parts in zip(*made, strict=True))
            row(f"Euler loop, {label}", [taken], W, turns(losses), best)
        board.compare(f"{name}, to t = {UNTIL:g}", "CPU time of a start", "ms", times, notes)


if __name__ == "__main__":
    play(main)
