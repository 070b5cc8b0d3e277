"""The nuclear SVM with at most d_e columns of K and Q, where the convex problem's solution has a larger rank.

The rank bound makes the problem nonconvex. The result is a local solution (`bilinear`), the best of several starts: a
feasible point, so an upper bound, with the convex problem's dual as the lower one.

Feasibility is decided for d_e = 1 only: k q^T separates where the signs s_i of q.z_i leave all s_i D_il in an open
half-space, which a search over signs with a linear program per node decides, if it ends.
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.models.tokens.data import TokenData
from saddlescope.theory.attention.svm.bilinear import BilinearProblem
from saddlescope.theory.attention.svm.certificate import certify_svm
from saddlescope.theory.attention.svm.constraints import MatrixConstraints
from saddlescope.theory.attention.svm.solution import LocalSolution, MatrixSvm

_SAME = 1e-5  # relative difference of values that count as one local solution
_NODES = 4000  # linear programs of the search over signs


def check_search(rank_bound: int | None, num_starts: int, seed: int) -> None:
    """Raise for an invalid rank bound, number of starts or seed.

    Raises:
        InputError: one of the first two is no integer of at least 1, or the seed is negative.
    """
    if rank_bound is not None and not (isinstance(rank_bound, int | np.integer) and rank_bound >= 1):
        raise InputError(f"rank_bound must be at least 1, an integer, or None; got {rank_bound!r}.")
    if num_starts < 1:
        raise InputError(f"num_starts must be at least 1; got {num_starts!r}.")
    if seed < 0:
        raise InputError(f"seed must be at least 0; got {seed!r}.")


def rank_bounded_svm(
    data: TokenData, convex: MatrixSvm, rank_bound: int | None, *, num_starts: int, seed: int, report: Report
) -> MatrixSvm:
    """Return the convex solution, where its rank is within the bound, else the best local solution found.

    Args:
        data: the data of `convex`.
        convex: the solution without a bound.
        rank_bound: d_e; None for no bound.
        num_starts: number of random starts, besides the truncated convex solution.
        seed: of the starts.
        report: called with the finished fraction after each start.

    Raises:
        InputError: no weights of that rank separate the data, or none were found.
    """
    if rank_bound is None or convex.K.shape[1] <= rank_bound:
        report(1.0, "solved")
        return convex
    within = MatrixConstraints.of(data)
    rng = np.random.default_rng(seed)
    first = [np.linalg.qr(within.right_basis.T @ convex.Q)[0][:, :rank_bound]]
    if rank_bound == 1:
        first += _separating_queries(data, within)
    first += [rng.standard_normal((within.right.shape[1], rank_bound)) for _ in range(num_starts)]
    scaled = within.scaled(convex.multipliers)
    problem = BilinearProblem(within, convex.certificate.primal / within.unit)
    found = []
    for number, right in enumerate(first, 1):
        found.append(problem.solve(right, scaled))
        report(0.5 + 0.5 * number / len(first), f"start {number} of {len(first)}")
    values = np.array([problem.value(each) for each in found])
    if not np.isfinite(values).any():
        raise InputError(
            f"rank_bound must leave the data separable; no W of rank {rank_bound} was found to separate them from"
            f" {len(first)} starts; the problem is not convex, so its feasibility is undecided. A rank of"
            f" {convex.K.shape[1]} is enough."
        )
    best = problem.refine(found[int(np.argmin(values))])
    value = problem.value(best)
    K, Q = within.lifted(best.left, best.right)
    margins = data.margins((K, Q))
    root = margins.min() ** 0.5
    K, Q, margins = K / root, Q / root, margins / root**2
    return MatrixSvm(
        K=K,
        Q=Q,
        multipliers=convex.multipliers,
        margins=margins,
        certificate=certify_svm(data, (K, Q), convex.multipliers, norm="nuclear"),
        local=LocalSolution(
            rank_bound=rank_bound,
            multipliers=within.multipliers(best.multipliers) * (value / (within.exact @ best.multipliers)),
            stationarity=problem.stationarity(best),
            num_starts=len(first),
            num_feasible=int(np.isfinite(values).sum()),
            num_best=int(np.sum(values <= value * (1 + _SAME))),
        ),
    )


def _separating_queries(data: TokenData, within: MatrixConstraints) -> list[Float[np.ndarray, "q 1"]]:
    """Return the q of some separating k q^T, in reduced coordinates; none where the search did not end.

    Raises:
        InputError: no k q^T separates the data.
    """
    n, m = within.shape
    tokens = within.left.reshape(n, m, -1)
    queries = within.right.reshape(n, m, -1)[:, 0]
    open_nodes, solved = [np.ones(1)], 0
    while open_nodes:
        signs = open_nodes.pop()
        many = len(signs)
        q = _inside(signs[:, None] * queries[:many])
        k = None if q is None else _inside((signs[:, None, None] * tokens[:many]).reshape(many * m, -1))
        solved += 2
        if k is not None and many == n:
            assert q is not None
            return [q[:, None]]
        if k is not None:
            open_nodes += [np.append(signs, -1.0), np.append(signs, 1.0)]
        if solved > _NODES:
            return []
    raise InputError(
        "rank_bound must leave the data separable; no W = k q^T of rank 1 separates them: for no signs s_i that some q"
        " gives to the queries do all s_i (x_opt - x_l) lie in one open half-space. Give rank_bound=2 or more."
    )


def _inside(rows: Float[np.ndarray, "k p"]) -> Float[np.ndarray, "p"] | None:
    """Return a vector with positive products with all rows, if one exists to a margin of 1e-9."""
    p = rows.shape[1]
    answer = linprog(
        np.append(np.zeros(p), -1.0),
        A_ub=np.concatenate([-rows, np.ones((len(rows), 1))], axis=1),
        b_ub=np.zeros(len(rows)),
        bounds=[(-1, 1)] * p + [(None, 1)],
        method="highs",
    )
    return answer.x[:p] if answer.status == 0 and answer.x[p] > 1e-9 else None
