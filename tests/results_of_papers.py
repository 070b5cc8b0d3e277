"""Results of other papers: each computed by the package and by other means, for `test_results_of_papers.py` and a page.

Expected values are closed forms, exact fractions, or those of SciPy; never the package's own.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import quad, solve_ivp
from scipy.linalg import expm
from scipy.optimize import linprog, minimize, minimize_scalar
from scipy.special import erf
from tests.problems import RETURNING_FEATURES, RETURNING_TEACHER, fit
from tests.references import greedy_exact

import saddlescope as ss
from saddlescope.flow import DiagonalInit, FactorInit
from saddlescope.models import diagonal_linear_network
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.papers.beyond.shared.units import half_square, relu_neuron
from saddlescope.theory import deep_linear_stages, escape_time, frobenius_svm


@dataclass(frozen=True)
class Result:
    """A result of a paper.

    Attributes:
        paper: authors, year and arXiv number or journal.
        problem: what is computed.
        by: means by which the expected value is computed.
        within: relative error allowed, of the largest entry.
        compute: returns the expected value and that of the package.
    """

    paper: str
    problem: str
    by: str
    within: float
    compute: Callable[[], tuple[np.ndarray, np.ndarray]]

    def run(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the expected value, that of the package, and the error relative to the largest entry."""
        with jax.enable_x64(True):
            expected, got = (np.asarray(each, float) for each in self.compute())
        if expected.shape != got.shape:
            return expected, got, np.inf
        return expected, got, float(np.max(np.abs(got - expected)) / np.max(np.abs(expected)))


RESULTS: list[Result] = []


def result(paper: str, problem: str, by: str = "closed form", within: float = 1e-8):
    def keep(compute):
        RESULTS.append(Result(paper, problem, by, within, compute))
        return compute

    return keep


def times(predicted):
    return predicted.staircase.times


def quadratic(H, d):
    H, d = (np.array(each, float) for each in (H, d))
    return ss.incremental_learning(lambda beta: beta @ H @ beta / 2 - d @ beta, len(d))


def least_l1(X, y):
    """Return the interpolator of least l1 norm, by linear programming."""
    found = linprog(np.ones(2 * X.shape[1]), A_eq=np.hstack([X, -X]), b_eq=y)
    return found.x[: X.shape[1]] - found.x[X.shape[1] :]


def symmetric_matrix(seed, values):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values),) * 2))[0]
    return (Q * np.array(values)) @ Q.T


# diagonal weights

PESME = "Pesme and Flammarion 2023, arXiv 2304.00488"
ZHAO = "Zhao et al. 2026, arXiv 2607.12332"


@result(PESME, "limit with more weights than samples: the interpolator of least l1 norm", "linear programming (SciPy)")
def interpolator():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3, 6)), rng.standard_normal(3)
    return least_l1(X, y), ss.incremental_learning(diagonal_linear_network(X, y), 6).stages[-1].beta


@functools.cache
def leaving():
    X, n = np.array(RETURNING_FEATURES, int), 3
    y = X @ np.array(RETURNING_TEACHER, int)
    H = [[Fraction(2 * int(e), n) for e in row] for row in X.T @ X]
    exact, _ = greedy_exact(H, [Fraction(2 * int(e), n) for e in X.T @ y])
    return exact, ss.incremental_learning(diagonal_linear_network(X.astype(float), y.astype(float)), 3)


@result(PESME, "times where a coordinate leaves and returns with the other sign", "exact fractions")
def leaving_times():
    exact, predicted = leaving()
    return [float(T) for T, _, _ in exact[1:]], times(predicted)


@result(PESME, "saddles of the same problem", "exact fractions")
def leaving_saddles():
    exact, predicted = leaving()
    return np.array([beta for _, _, beta in exact], float), [stage.beta for stage in predicted.stages]


@functools.cache
def anticorrelated():
    H, d = ((3, -1, 0), (-1, 3, -1), (0, -1, 2)), (Fraction(1), Fraction(2), Fraction(1, 2))
    exact, _ = greedy_exact([[Fraction(e) for e in row] for row in H], list(d))
    return exact, quadratic(H, d)


@result("Berthier 2023, JMLR 24(171)", "times with anti-correlated features", "exact fractions")
def anticorrelated_times():
    exact, predicted = anticorrelated()
    return [float(T) for T, _, _ in exact[1:]], times(predicted)


@result("Berthier 2023, JMLR 24(171)", "number of active coordinates with anti-correlated features: it only grows")
def anticorrelated_supports():
    return [0, 1, 2, 3], anticorrelated()[1].staircase.ranks


@result("Vaškevičius, Kanade and Rebeschini 2019, arXiv 1909.05122", "coordinate that enters first, and when")
def first_coordinate():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 12))
    y = X @ np.eye(12)[3] + 0.1 * rng.standard_normal(30)
    correlation = np.abs(X.T @ y) * 2 / 30
    first = ss.incremental_learning(diagonal_linear_network(X, y), 12, max_stages=1).stages[1]
    return [np.argmax(correlation), 1 / np.max(correlation)], [first.entered[0], first.time]


@result(ZHAO, "times of Algorithm 1, depth 2, correlated features", "exact fractions")
def correlated_times():
    H, d = [[Fraction(5, 4), Fraction(1)], [Fraction(1), Fraction(5, 4)]], [Fraction(1), Fraction(1, 2)]
    exact, _ = greedy_exact(H, d)
    return [float(T) for T, _, _ in exact[1:]], times(quadratic(H, d))


@result(ZHAO, "limit for the data of the appendix, depth 2", "linear programming (SciPy)")
def appendix_limit():
    X, y = np.array([[1, 0.5, 0.7, 0], [0.5, 1, 0.1, 0.7]]), np.array([1.0, 0])
    return least_l1(X, y), ss.incremental_learning(diagonal_linear_network(X, y), 4).stages[-1].beta


@result("Jacobs and Burkholz 2025, arXiv 2408.09966", "weight decay 0.5 of u and v: times and end, a soft threshold")
def soft_threshold():
    target = np.array([3.0, -1.0, 0.3])
    predicted = ss.incremental_learning(lambda beta: jnp.sum((beta - target) ** 2) / 2, 3, weight_decay=0.5)
    return [1 / 2.5, 1 / 0.5, 2.5, -0.5, 0.0], [*times(predicted), *predicted.stages[-1].beta]


def one_coordinate(s):
    return lambda beta: jnp.sum((beta - s) ** 2) / 2


@result("Saxe, McClelland and Ganguli 2014, arXiv 1312.6120", "order-1 part of the time to half a mode", within=1e-5)
def half_time():
    s, u, v = 3.0, 1.3, 0.4
    predicted = ss.incremental_learning(one_coordinate(s), 1, weights=([u], [v]))
    return [(np.log(s) - 2 * np.log((u + v) / 2)) / (2 * s)], predicted.corrections[1:]


@result("Saxe, McClelland and Ganguli 2014, arXiv 1312.6120", "the same in gradient flow from 1e-100", within=1e-5)
def half_time_of_flow():
    s, u, v, log = 3.0, 1.3, 0.4, 100 * np.log(10)
    start = DiagonalInit(np.array([u]), np.array([v]), log_scale=-log)
    run = ss.gradient_flow(one_coordinate(s), start, until=1.0, tolerance=1e-7, level=s / 2)
    return [1 / s + (np.log(s) - 2 * np.log((u + v) / 2)) / (2 * s * log)], [run.crossings[0].time]


@result(
    "Tarmoun et al. 2021, ICML", "time to half the target, unbalanced start of size 1/100", "quadrature (SciPy)", 1e-5
)
def unbalanced_time():
    s, a = 2.0, 1e-2
    start = DiagonalInit(np.array([2.0]), np.array([1.0]), log_scale=np.log(a))
    run = ss.gradient_flow(one_coordinate(s), start, until=2.0, tolerance=1e-7, level=s / 2)
    whole = quad(
        lambda b: 1 / (np.hypot(2 * b, 3 * a**2) * (s - b)), 2 * a**2, s / 2, epsabs=0, epsrel=1e-11, limit=500
    )
    return [whole[0] / np.log(1 / a)], [run.crossings[0].time]


def finite_scale(a):
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((2, 4)), np.array([1.0, -0.5])
    dual = minimize(  # convex
        lambda nu: a**2 / 4 * np.sum(np.cosh(2 * X.T @ nu)) - y @ nu,
        np.zeros(2),
        jac=lambda nu: a**2 / 2 * X @ np.sinh(2 * X.T @ nu) - y,
        options={"gtol": 1e-11},
    )
    start = DiagonalInit(np.ones(4), np.zeros(4), log_scale=np.log(a))
    run = ss.gradient_flow(diagonal_linear_network(X, y), start, until=60 / np.log(1 / a), tolerance=1e-8)
    return a**2 / 2 * np.sinh(2 * X.T @ dual.x), run.beta[-1]


@result("Woodworth et al. 2020, arXiv 2002.09277", "limit from a start of size 0.1", "convex dual (SciPy)", 1e-5)
def rich_limit():
    return finite_scale(0.1)


@result("Woodworth et al. 2020, arXiv 2002.09277", "limit from a start of size 0.7", "convex dual (SciPy)", 1e-5)
def kernel_limit():
    return finite_scale(0.7)


@result("Gissin, Shalev-Shwartz and Daniely 2020, arXiv 1909.12051", "stages of depth 3, in units of 1/alpha: 1/(3 s)")
def depth_three():
    return power_times(3)


@result(
    "Gissin, Shalev-Shwartz and Daniely 2020, arXiv 1909.12051", "stages of depth 4, in units of 1/alpha^2: 1/(8 s)"
)
def depth_four():
    return power_times(4)


def power_times(depth):
    s, data = np.array([12.0, 6, 4, 3]), (np.eye(4), np.array([12.0, 6, 4, 3]))

    def loss(f, y):
        return 2 * (f - y) ** 2

    predicted = ss.unit_learning(
        lambda t, x, k: t**depth * x[k], data, loss, parameters=jnp.zeros(()), kinds=4, weights=np.ones(4)
    )
    return 1 / (depth * (depth - 2) * s), times(predicted)


# symmetric factors

LYU = "Li, Luo and Lyu 2021, arXiv 2012.09839"
KARKADA = "Karkada et al. 2025, arXiv 2502.09863"
VALUES = (4.0, 2.5, 1.0, -1.5, -3.0)


@functools.cache
def factorisation():
    M = symmetric_matrix(0, VALUES)
    return M, ss.low_rank_learning(fit(M), [(5, 5)], symmetric=True)


@result(LYU, "times of U U^T towards a symmetric matrix: 1 / positive eigenvalue")
def eigenvalue_times():
    return [1 / 4, 1 / 2.5, 1.0], times(factorisation()[1])


@result(KARKADA, "Gram matrix of the embeddings at the end: the positive part", "eigendecomposition (NumPy)")
def positive_part():
    M, predicted = factorisation()
    values, vectors = np.linalg.eigh(M)
    return (vectors * np.maximum(values, 0)) @ vectors.T, predicted.stages[-1].products[0]


@result("Jin et al. 2023, arXiv 2301.11500", "losses of the plateaus: best approximations of rank 0, 1, 2, 3")
def best_approximations():
    squares = np.array(VALUES) ** 2
    return [squares[k:].sum() / 2 for k in range(4)], factorisation()[1].staircase.losses


@functools.cache
def sensing():
    rng = np.random.default_rng(3)
    A = rng.standard_normal((60, 4, 4))
    A, M = A + A.transpose(0, 2, 1), symmetric_matrix(4, (3.0, 2.0, 1.0, 0.0))
    return (
        A,
        M,
        ss.low_rank_learning(
            lambda B: jnp.mean(jnp.einsum("nij,ij->n", A, B[0] - M) ** 2) / 4, [(4, 4)], symmetric=True
        ),
    )


@result(
    "Jin et al. 2023, arXiv 2301.11500",
    "matrix sensing: least losses of rank 1 and 2",
    "BFGS from 20 starts (SciPy)",
    1e-7,
)
def sensing_losses():
    A, M, predicted = sensing()

    def least(rank):
        def loss(flat):
            U = flat.reshape(4, rank)
            misses = np.einsum("nij,ij->n", A, U @ U.T - M)
            return np.mean(misses**2) / 4, np.ravel(np.einsum("n,nij->ij", misses, A) @ U / len(A))

        starts = np.random.default_rng(5).standard_normal((20, 4 * rank))
        return min(minimize(loss, start, jac=True, options={"gtol": 1e-10}).fun for start in starts)

    return [least(1), least(2)], predicted.staircase.losses[1:3]


@result(LYU, "matrix completion: end of the first stage", "integration of U' = G U from 1e-4 (SciPy)", 1e-6)
def completion_stage():
    M, seen = symmetric_matrix(6, (3.0, 1.0, -0.5)), np.array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]])

    def loss(B):
        return jnp.sum(seen * (B[0] - M) ** 2) / 2

    predicted = ss.low_rank_learning(loss, [(3, 3)], symmetric=True, max_stages=1)
    top = np.linalg.eigh(seen * M)[1][:, -1]
    run = solve_ivp(lambda _, u: seen * (M - np.outer(u, u)) @ u, (0, 60), 1e-4 * top, rtol=1e-11, atol=1e-13)
    return np.outer(run.y[:, -1], run.y[:, -1]), predicted.stages[1].products[0]


@result(
    "Chen, Chi, Fan and Ma 2019, arXiv 1803.07726", "phase retrieval, Gaussian population: time, first and last loss"
)
def phase_retrieval():
    w = np.array([1.0, 0, 0])

    def loss(B):  # E (x^T B x - (w x)^2)^2 / 4
        D = B[0] - np.outer(w, w)
        return (2 * jnp.sum(D**2) + jnp.trace(D) ** 2) / 4

    predicted = ss.low_rank_learning(loss, [(3, 3)], symmetric=True, width=1)
    return [2 / 3, 0.75, 0.0], [*times(predicted), *predicted.staircase.losses]


@result("Barak et al. 2022, arXiv 2207.08799", "parity of 2 of 3 bits by squares: time 1, losses 1/2 and 1/4")
def parity():
    X = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)], float)

    def loss(B):
        return jnp.mean((jnp.einsum("ni,ij,nj->n", X, B[0], X) - X[:, 0] * X[:, 1]) ** 2) / 2

    predicted = ss.low_rank_learning(loss, [(3, 3)], symmetric=True)
    return [1.0, 0.5, 0.25], [*times(predicted), *predicted.staircase.losses]


@result(
    "Yan, Helmke and Moore 1994, Math. Control Signals Systems 7",
    "U U^T under U' = 2 (1 - U U^T) U at t = 3",
    within=1e-9,
)
def oja_flow():
    U = 0.05 * np.random.default_rng(7).standard_normal((3, 2))
    grown = np.exp(12.0)
    expected = grown * U @ np.linalg.solve(np.eye(2) + (grown - 1) * U.T @ U, U.T)
    return expected, ss.flow.symmetric_path(np.ones(3), U, until=3.0, tolerance=1e-11)([3.0])[0]


# full matrices

SAXE = "Saxe, McClelland and Ganguli 2014, arXiv 1312.6120"


@functools.cache
def whitened():
    M = np.random.default_rng(0).standard_normal((5, 3))
    return np.linalg.svd(M, compute_uv=False), ss.low_rank_learning(fit(M), [(5, 3)])


@result(SAXE, "times of singular modes with white inputs: 1/s", "SVD (NumPy)")
def mode_times():
    s, predicted = whitened()
    return 1 / s, times(predicted)


@result("Arora, Cohen, Hu and Luo 2019, arXiv 1905.13655", "depth 3 from equal aligned weights a: times 1 / (s a)")
def deep_mode_times():
    turned, s, a = np.linalg.qr(np.random.default_rng(1).standard_normal((2, 3, 3)))[0], np.array([3.0, 2.0, 1.5]), 0.3
    chain = [a * turned[0].T, a * np.eye(3), a * turned[1]]
    target = (turned[1] * s) @ turned[0].T
    return 1 / (s * a), times(ss.low_rank_learning(fit(target), [(3, 3)], depth=3, weights=[chain]))


@result(
    "Eckart and Young 1936; Gidel, Bach and Lacoste-Julien 2019, arXiv 1904.13262",
    "losses of these plateaus",
    "SVD (NumPy)",
)
def mode_losses():
    s, predicted = whitened()
    return [np.sum(s[k:] ** 2) / 2 for k in range(4)], predicted.staircase.losses


@result(
    "Srebro, Rennie and Jaakkola 2005, NIPS 17",
    "weight decay 0.5 of factors: the nuclear norm's minimiser",
    "SVD (NumPy)",
)
def nuclear_norm():
    M = np.random.default_rng(14).standard_normal((4, 3)) * 1.5
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    predicted = ss.low_rank_learning(fit(M), [(4, 3)], weight_decay=0.5)
    return (U * np.maximum(s - 0.5, 0)) @ Vt, predicted.stages[-1].products[0]


@result(
    "Gidel, Bach and Lacoste-Julien 2019, arXiv 1904.13262", "times where inputs are not white: 1 / cross-correlation"
)
def correlated_modes():
    inputs, targets = np.array([0.5, 2.0, 1.0]), np.array([3.0, 0.5, 0.7])
    predicted = ss.low_rank_learning(
        lambda B: jnp.sum(inputs * jnp.sum((B[0] - jnp.diag(targets)) ** 2, axis=0)) / 2, [(3, 3)]
    )
    return np.sort(1 / (inputs * targets)), times(predicted)


@result(
    "Atanasov, Bordelon and Pehlevan 2022, arXiv 2111.00034", "first time with inputs of any covariance", "SVD (NumPy)"
)
def silent_alignment():
    rng = np.random.default_rng(8)
    X, Y = rng.standard_normal((20, 4)) @ np.diag([1.0, 2, 0.5, 1]), rng.standard_normal((20, 3))
    predicted = ss.low_rank_learning(lambda B: jnp.sum((X @ B[0].T - Y) ** 2) / 40, [(3, 4)], max_stages=1)
    return [20 / np.linalg.norm(Y.T @ X, 2)], times(predicted)


@result(
    "Saxe, McClelland and Ganguli 2019, PNAS 116(23)", "binary tree of four items: 1/sqrt 7, 1/sqrt 3, then two at once"
)
def hierarchy():
    tree = np.concatenate([np.ones((1, 4)), np.kron(np.eye(2), np.ones((1, 2))), np.eye(4)])
    predicted = ss.low_rank_learning(fit(tree), [(7, 4)])
    return [7**-0.5, 3**-0.5, 1.0], [*times(predicted), predicted.end]


@result(SAXE, "time from 1e-3 per layer to half of s = 2, depth 2")
def sigmoid():
    s, a = 2.0, 1e-6
    time = np.log((s / 2) * (s - a) / (a * s / 2)) / (2 * s)
    return [time], [ss.theory.aligned_time(s, depth=2, initial=1e-3, share=0.5)]


@result(SAXE, "time from 1e-2 per layer to half of s = 2, depth 5", "quadrature (SciPy)", 1e-7)
def deep_sigmoid():
    s, a, end = 2.0, 1e-2, 1.0 ** (1 / 5)
    whole = quad(lambda a: 1 / (a**4 * (s - a**5)), a, end, epsabs=0, epsrel=1e-12, limit=500)[0]
    return [whole], [ss.theory.aligned_time(s, depth=5, initial=a, share=0.5)]


@result("Jacot et al. 2021, arXiv 2106.15933", "losses of deep linear networks: reduced-rank regression", "SVD (NumPy)")
def reduced_rank():
    rng = np.random.default_rng(9)
    X, Y = rng.standard_normal((20, 4)), rng.standard_normal((20, 3))
    fit = X @ np.linalg.lstsq(X, Y, rcond=None)[0]
    U, s, Vt = np.linalg.svd(fit, full_matrices=False)
    losses = [np.sum((Y - (U[:, :k] * s[:k]) @ Vt[:k]) ** 2) / 40 for k in range(4)]
    return losses, deep_linear_stages(X, Y).losses


@result(
    "Arora et al. 2019, arXiv 1905.13655",
    "matrix completion: end of the first stage",
    "integration from 1e-4 (SciPy)",
    1e-6,
)
def completion_of_factors():
    rng = np.random.default_rng(10)
    M, seen = rng.standard_normal((4, 3)) * 2, (rng.random((4, 3)) < 0.8).astype(float)
    predicted = ss.low_rank_learning(lambda B: jnp.sum(seen * (B[0] - M) ** 2) / 2, [(4, 3)], max_stages=1)
    U, s, Vt = np.linalg.svd(seen * M)

    def slope(_, uv):
        G = seen * (M - np.outer(uv[:4], uv[4:]))
        return np.concatenate([G @ uv[4:], G.T @ uv[:4]])

    run = solve_ivp(slope, (0, 100 / s[0]), 1e-4 * np.append(U[:, 0], Vt[0]), rtol=1e-11, atol=1e-13)
    return np.outer(run.y[:4, -1], run.y[4:, -1]), predicted.stages[1].products[0]


@result(
    "Razin and Cohen 2020, arXiv 2005.06398",
    "completion with det W > 0: the unseen entry at T = 8",
    "integration (SciPy)",
    1e-3,
)
def unseen_entry():
    A, turn, a = np.eye(2) + 0.3 * np.random.default_rng(0).standard_normal((2, 2)), 0.5, 1e-2
    B = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) @ A
    seen, M = np.array([[0.0, 1], [1, 1]]), np.array([[0.0, 1], [1, 0]])

    def slope(_, flat):
        L, R = flat.reshape(2, 2, 2)
        G = seen * (M - L @ R.T)
        return np.ravel([G @ R, G.T @ L])

    span = (0, 8 * np.log(1 / a))
    run = solve_ivp(slope, span, a * np.ravel([A, B]), method="DOP853", rtol=1e-12, atol=1e-15)
    L, R = run.y[:, -1].reshape(2, 2, 2)
    start = FactorInit([(A, B)], log_scale=np.log(a))
    flow = ss.factored_flow(lambda P: jnp.sum(seen * (P[0] - M) ** 2) / 2, start, until=8.0, tolerance=1e-5)
    return [(L @ R.T)[0, 0]], [flow([8.0])[0][0][0, 0]]


@result(
    "Fukumizu 1998; Braun et al. 2022, NeurIPS",
    "balanced factors at T = 2: a matrix Riccati equation",
    "matrix exponential (SciPy)",
    1e-4,
)
def riccati():
    rng = np.random.default_rng(11)
    M, R, log = np.diag([2.0, 1.0]), rng.standard_normal((2, 2)), 3.0
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    F, Q = np.block([[np.zeros((2, 2)), M], [M.T, np.zeros((2, 2))]]), np.exp(-log) * np.concatenate([turn @ R, R])
    grown, inverse = expm(F * 2 * log), np.linalg.inv(F)
    middle = np.eye(2) + Q.T @ (grown @ inverse @ grown - inverse) @ Q / 2
    W = (grown @ Q @ np.linalg.solve(middle, Q.T @ grown))[:2, 2:]
    start = FactorInit([(turn @ R, R)], log_scale=-log)
    flow = ss.factored_flow(fit(M), start, until=2.0, tolerance=1e-6)
    return W, flow([2.0])[0][0]


# sums of units


def relu_units(X, y, loss, count, seed, **more):
    """Predict ReLU units from random weights."""
    rng, dim = np.random.default_rng(seed), X.shape[1]
    weights = {"a": rng.standard_normal(count), "w": rng.standard_normal((count, dim))}
    shapes = {"a": jnp.zeros(()), "w": jnp.zeros(dim)}
    return ss.unit_learning(relu_neuron, (X, y), loss, parameters=shapes, weights=weights, **more)


@result("Boursier, Pillaud-Vivien and Flammarion 2022, arXiv 2206.00939", "ReLU, orthogonal inputs: times and losses")
def orthogonal_inputs():
    y = np.array([2.0, 1.0, -1.0, -0.5])
    predicted = relu_units(np.eye(4), y, half_square, 24, 0)
    sums = [np.linalg.norm(y[y > 0]) / 4, np.linalg.norm(y[y < 0]) / 4]
    losses = [np.sum(y**2) / 8, np.sum(y[y < 0] ** 2) / 8, 0.0]
    return [*(1 / np.array(sums)), *losses], [*times(predicted), *predicted.staircase.losses]


@result("Phuong and Lampert 2021, ICLR", "ReLU, orthogonally separable data, logistic loss: first time, no minimum")
def orthogonally_separable():
    X, y = np.array([[1.0, 0.3, 0], [0.8, 0.5, 0.1], [0, -0.2, -1.0]]), np.array([1.0, 1, -1])
    predicted = relu_units(X, y, lambda f, y: jax.nn.softplus(-y * f), 16, 1)
    assert predicted.status.value == "no_minimum"
    return [6 / np.linalg.norm(X[0] + X[1])], [predicted.end]


@result(
    "Maennel, Bousquet and Gelly 2018, arXiv 1803.08367",
    "ReLU in the plane: first time",
    "search over angles (SciPy)",
    1e-7,
)
def first_neuron():
    rng = np.random.default_rng(12)
    X, y = rng.standard_normal((6, 2)), rng.standard_normal(6)

    def growth(angle, sign):
        return sign * np.mean(y * np.maximum(X @ np.array([np.cos(angle), np.sin(angle)]), 0))

    grid = np.linspace(0, 2 * np.pi, 400)
    found = [
        minimize_scalar(lambda t, s=s: -growth(t, s), bounds=(at - 0.02, at + 0.02), options={"xatol": 1e-12}).fun
        for s in (1, -1)
        for at in grid[np.argsort([-growth(t, s) for t in grid])[:3]]
    ]
    predicted = relu_units(X, y, half_square, 16, 2, max_stages=1)
    return [-1 / min(found)], times(predicted)[:1]


@result("Zhang, Saxe and Latham 2025, arXiv 2512.20607", "linear units, white inputs: times n/s", "SVD (NumPy)")
def linear_units():
    Y = np.random.default_rng(13).standard_normal((3, 3))
    predicted = ss.unit_learning(
        lambda theta, x: theta["out"] * (theta["in"] @ x),
        (np.eye(3), Y),
        half_square,
        parameters={"in": jnp.zeros(3), "out": jnp.zeros(3)},
    )
    return 3 / np.linalg.svd(Y, compute_uv=False), times(predicted)


@result("Ge et al. 2021, arXiv 2106.06573", "orthogonal tensor of order 3: deflation at 1 / (3 lambda c)")
def deflation():
    sizes, starts = np.array([2.0, 1.0]), np.array([1.0, 0.8])
    T = np.zeros((1, 2, 2, 2))
    T[0, 0, 0, 0], T[0, 1, 1, 1] = sizes
    predicted = ss.unit_learning(
        lambda t, x: jnp.einsum("i,j,k->ijk", t, t, t),
        (np.zeros((1, 1)), T),
        half_square,
        parameters=jnp.zeros(2),
        weights=np.diag(starts),
    )
    return 1 / (3 * sizes * starts), times(predicted)


@result("Saad and Solla 1995, PRE 52", "erf, two teachers: loss of the symmetric plateau", "BFGS (SciPy)", 1e-7)
def symmetric_plateau():
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    X, p = np.array([[a, b] for a in nodes for b in nodes]), np.outer(weights, weights).ravel()
    y, p = erf(X / 2**0.5).sum(1), p / p.sum()

    def loss(theta):
        return np.sum(p * (theta[0] * erf(X @ theta[1:] / 2**0.5) - y) ** 2) / 2

    least = minimize(loss, [1.0, 0.8, 0.9], options={"gtol": 1e-9}).fun
    ladder = ss.width_ladder(
        lambda t, x: t["a"] * jax.lax.erf(t["w"] @ x / 2**0.5),
        (X, np.stack([y, p * len(p)], 1)),
        lambda f, t: t[1] * (f - t[0]) ** 2 / 2,
        range(2),
        parameters={"a": jnp.zeros(()), "w": jnp.zeros(2)},
    )
    return [least], [ladder.losses[1]]


# margins and escape


@result("Soudry et al. 2018, arXiv 1710.10345", "largest margin, Frobenius norm", "SLSQP (SciPy)", 1e-6)
def largest_margin():
    data = gaussian_tokens(3, 3, 4, seed=0)
    found = frobenius_svm(data)
    W = found.K @ found.Q.T
    scores = data.X @ data.v * data.y[:, None]
    best = np.argmax(scores, axis=1)
    D = data.X[np.arange(3), best][:, None] - data.X
    rows = np.concatenate([np.einsum("ld,e->lde", np.delete(D[i], best[i], 0), data.z[i]) for i in range(3)])
    rows = rows.reshape(len(rows), -1)
    least = minimize(
        lambda w: w @ w / 2,
        np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0],
        jac=lambda w: w,
        constraints={"type": "ineq", "fun": lambda w: rows @ w - 1, "jac": lambda w: rows},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return least.x.reshape(4, 4), W


@result("Jacot et al. 2021, arXiv 2106.15933", "time of escape from the origin, depth 3", "quadrature (SciPy)")
def escape():
    speed, depth, start, end = 0.7, 3, 1e-3, 0.5
    whole = quad(lambda r: 1 / (speed * r ** (depth - 1)), start / 3**0.5, end / 3**0.5, epsrel=1e-12, limit=500)[0]
    return [whole], [escape_time(end, norm=start, speed=speed, depth=depth)]


@functools.cache
def page() -> str:
    """Return a page with a table of all results, computed now."""
    lines = [
        "# Results of other papers",
        "",
        "Each row was computed while this page was built, by the package and by other means. Several numbers are",
        "listed in order; of long lists the first six. The error is relative to the largest of them.",
        "",
        "| paper | result | expected, by | got | error | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for one in RESULTS:
        began = time.perf_counter()
        expected, got, error = one.run()
        cells = one.paper, one.problem, f"{shown(expected)}, {one.by}", shown(got), f"{error:.0e}"
        lines.append(f"| {' | '.join(cells)} | {time.perf_counter() - began:.1f} |".replace("_", "\\_"))
    return "\n".join(lines) + "\n"


def shown(values: np.ndarray) -> str:
    return ", ".join(f"{value:.6g}" for value in np.ravel(values)[:6]) + (", ..." if np.size(values) > 6 else "")
