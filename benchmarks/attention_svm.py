"""The attention SVMs beside the tool users would pick, CVXPY with the solvers behind it, in one run.

Each problem is given to CVXPY as one would write it down, over a d x d matrix; "reduced" is fairer to it, over the span
of the differences and queries, as ours solves it. "Default" is the solver that CVXPY takes when none is named: Clarabel
or HiGHS, for the nuclear norm SCS. For every solver: CPU seconds on one thread, the median of some turns for ours; the
relative duality gap that `certify_svm` leaves of its weights and multipliers, so that nobody is taken at his word; and
the rank, read off its weights with a tolerance of 1e-7 as scripts do, against the certified one. At full size CVXPY has
the reduced problem, in processes of their own (start-up included) with a time limit: the other lacks memory.

    python benchmarks/attention_svm.py [--quick] [seconds that CVXPY may take at full size, 60 by default]
"""

import one_core

one_core.take()

import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
from board import Board, play

from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import aligned_tokens, gaussian_tokens
from saddlescope.theory.attention.svm import SvmCertificate, certify_svm, frobenius_svm, l1_svm, nuclear_svm

TURNS, LIMIT = 3, 60.0
SMALL, MIDDLE, FULL, LARGE = (4, 5, 8), (10, 5, 50), (20, 10, 200), (80, 10, 200)
PEERS = {  # whether over the span, and the solver named, if any
    "CVXPY, default": (False, None),
    "CVXPY, default, reduced": (True, None),
    "CVXPY, Clarabel": (False, cp.CLARABEL),
    "CVXPY, Clarabel, reduced": (True, cp.CLARABEL),
}
TOLERANCE = 1e-7  # of the scripts that read a rank off a solution, relative to its largest singular value


def timed(solve: Callable[[], Any], turns: int = TURNS) -> tuple[list[float], Any]:
    """The CPU seconds of each turn, and the answer."""
    seconds, answer = [], None
    for _ in range(turns):
        start = time.process_time()
        answer = solve()
        seconds.append(time.process_time() - start)
    return seconds, answer


def cvxpy_svm(
    data: TokenData, norm: str, *, reduced: bool = False, solver: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and multipliers, W or beta, from CVXPY with a solver at its defaults, its own choice by default."""
    D, z, d = data.differences, data.z, data.dim
    bases = (np.eye(d), np.eye(d))
    if reduced:
        bases = np.linalg.qr(D.reshape(-1, d).T)[0], np.linalg.qr(z.T)[0]
    if norm == "l1":
        variable = cp.Variable(d)
        margins, objective = data.features.reshape(-1, d) @ variable, cp.norm1(variable)
    else:
        variable = cp.Variable((bases[0].shape[1], bases[1].shape[1]))
        left, right = D @ bases[0], z @ bases[1]
        margins = cp.hstack([left[i] @ variable @ right[i] for i in range(data.samples)])
        objective = cp.normNuc(variable) if norm == "nuclear" else cp.norm(variable, "fro")
    constraint = margins >= 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cp.Problem(cp.Minimize(objective), [constraint]).solve(solver=solver)
    multipliers = np.maximum(constraint.dual_value, 0).reshape(data.gaps.shape)
    value = variable.value
    return (value if norm == "l1" else bases[0] @ value @ bases[1].T), multipliers


def certified(data: TokenData, weights: np.ndarray, multipliers: np.ndarray, norm: str) -> SvmCertificate:
    """The certificate of another solver's answer."""
    return certify_svm(data, weights if norm == "l1" else (weights, np.eye(data.dim)), multipliers, norm=norm)


def read_rank(weights: np.ndarray) -> int:
    """The rank, or size of the support, at the tolerance of scripts."""
    s = np.abs(weights) if weights.ndim == 1 else np.linalg.svd(weights, compute_uv=False)
    return int(np.sum(s > TOLERANCE * s.max()))


def compared(board: Board, size: tuple[int, int, int], *, peers: bool, seed: int = 0) -> None:
    """A line for each problem and solver."""
    data = gaussian_tokens(*size, seed=seed)
    print(f"\n(n, L, d) = {size}")
    for norm, solver in (("l1", l1_svm), ("frobenius", frobenius_svm), ("nuclear", nuclear_svm)):
        turns, ours = timed(lambda solver=solver: solver(data))
        seconds, c = statistics.median(turns), ours.certificate
        print(
            f"  {norm:9s} {'ours':25s} {seconds:9.4f} s  gap {max(c.gap, 0.0):.0e}  rank {c.rank},"
            f" {'certified' if c.rank_certified else 'not certified'}"
        )
        times: dict[str, list[float]] = {solver.__name__: turns}
        notes = {solver.__name__: f"gap {max(c.gap, 0.0):.0e}"}
        for peer, (reduced, chosen) in PEERS.items() if peers else ():
            if (norm == "l1" and reduced) or (norm != "nuclear" and chosen):
                continue
            theirs, (weights, multipliers) = timed(
                lambda norm=norm, reduced=reduced, chosen=chosen: cvxpy_svm(data, norm, reduced=reduced, solver=chosen),
                1,
            )
            gap = certified(data, weights, multipliers, norm).gap
            times[peer], notes[peer] = theirs, f"gap {max(gap, 0.0):.0e}"
            print(
                f"  {'':9s} {peer:25s} {theirs[0]:9.4f} s  gap {max(gap, 0.0):.0e}  rank {read_rank(weights)} read;"
                f" {theirs[0] / seconds:,.0f} times as long"
            )
        board.compare(f"{norm}, (n, L, d) = {size}", "CPU time", "s", times, notes)


def ranks(board: Board, name: str, draws: list[TokenData]) -> None:
    """Compare the ranks read off nuclear solutions of CVXPY with the certified ones."""
    ours = [nuclear_svm(data).certificate for data in draws]
    assert all(certificate.rank_certified for certificate in ours)
    true = [certificate.rank for certificate in ours]
    for solver in (cp.SCS, cp.CLARABEL):
        answers = [cvxpy_svm(data, "nuclear", reduced=True, solver=solver) for data in draws]
        read = [read_rank(weights) for weights, _ in answers]
        gaps = [certified(data, *answer, "nuclear").gap for data, answer in zip(draws, answers, strict=True)]
        right = sum(one == other for one, other in zip(read, true, strict=True))
        problem = f"nuclear, {name}, rank read at {TOLERANCE:g}"
        board.report(problem, f"CVXPY, {solver}, reduced", "certified rank found", 100 * right / len(draws), "%")
        print(
            f"  {name}, {solver:8s} right in {right} of {len(draws)} draws; read {min(read)} to {max(read)}, certified"
            f" {min(true)} to {max(true)}; largest gap {max(gaps):.0e}, ours {max(c.gap for c in ours):.0e}"
        )


def _at_full_size(solver: str | None) -> None:
    data = gaussian_tokens(*FULL, seed=0)
    weights, multipliers = cvxpy_svm(data, "nuclear", reduced=True, solver=solver)
    gap = certified(data, weights, multipliers, "nuclear").gap
    print(f"  nuclear   gap {max(gap, 0.0):.0e}  rank {read_rank(weights)} read, of the next line:", flush=True)


def limited(board: Board, limit: float, ours: list[float]) -> None:
    """CVXPY on the reduced nuclear problem at full size, for so many seconds at most."""
    times, notes = {"nuclear_svm": ours}, {}
    for peer, (reduced, solver) in PEERS.items():
        if not reduced:
            continue
        process = multiprocessing.get_context("spawn").Process(target=_at_full_size, args=(solver,))
        start = time.perf_counter()
        process.start()
        process.join(limit)
        seconds = time.perf_counter() - start
        if process.is_alive():
            process.kill()
            reported = (
                f"not done after {seconds:.0f} s: more than {seconds / statistics.median(ours):,.0f} times as long"
            )
            times[peer], notes[peer] = [seconds], "not done: a lower bound"
        elif process.exitcode:
            reported = f"failed after {seconds:.0f} s"
        else:
            reported = f"{seconds:9.1f} s, {seconds / statistics.median(ours):,.0f} times as long"
            times[peer] = [seconds]
        print(f"  nuclear   {peer:25s} {reported}", flush=True)
    board.compare(f"nuclear, (n, L, d) = {FULL}", "wall time", "s", times, notes)


def main(board: Board) -> None:
    """Small and middle size side by side, then ranks, then full size."""
    limit = float(board.words[0]) if board.words else LIMIT
    for size in (SMALL,) if board.quick else (SMALL, MIDDLE):
        compared(board, size, peers=True)
    print(f"\nRank of the nuclear solution, read off CVXPY's with a tolerance of {TOLERANCE:g}")
    for size, draws in ((SMALL, 2),) if board.quick else ((SMALL, 20), (MIDDLE, 10)):
        ranks(board, f"Gaussian {size}", [gaussian_tokens(*size, seed=seed) for seed in range(draws)])
    if board.quick:
        return
    ranks(board, "aligned (4, 5, 8)", [aligned_tokens(4, 5, 8, seed=seed) for seed in range(20)])
    for size in (FULL, LARGE):
        compared(board, size, peers=False)
    data, ours = gaussian_tokens(*FULL, seed=0), []
    print(f"\n(n, L, d) = {FULL}, wall seconds, CVXPY for at most {limit:g}")
    for _ in range(TURNS):
        start = time.perf_counter()
        nuclear_svm(data)
        ours.append(time.perf_counter() - start)
    limited(board, limit, ours)


if __name__ == "__main__":
    play(main)
