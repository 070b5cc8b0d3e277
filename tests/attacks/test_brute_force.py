"""Problems in corners of scale and rank, solved by brute force as well: CVXPY, NNLS, enumeration and 50 digits."""

import warnings
from fractions import Fraction

import cvxpy as cp
import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.optimize import linprog, nnls
from tests.references import greedy_exact

from saddlescope import measure
from saddlescope._shared.errors import InputError
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.separability import separability
from saddlescope.theory import deep_linear_stages, incremental_learning, low_rank_learning
from saddlescope.theory.attention.svm import frobenius_svm, l1_svm, nuclear_svm

SOLVERS = {"l1": l1_svm, "nuclear": nuclear_svm, "frobenius": frobenius_svm}
KINDS = (
    "units", "tiny", "samples", "queries", "far apart", "coordinates", "one query", "one plane", "near tokens",
    "near lines", "many samples",
)  # fmt: skip
SEEDS = range(2)


class Quadratic(eqx.Module):
    """(x - minimum)^T A (x - minimum) / 2 of the entries of x; compiled once for all arrays."""

    A: jax.Array
    minimum: jax.Array

    def __call__(self, x):
        away = jnp.ravel(x[0] if isinstance(x, tuple) else x) - self.minimum
        return away @ self.A @ away / 2


@pytest.fixture(autouse=True)
def _quickly(types_unchecked):
    with types_unchecked():
        yield


def awkward_tokens(kind, seed):
    """Return token data of a kind that is hard for float64."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    n, L, d = (7, 2, 3) if kind == "many samples" else (3, 3, 4)
    X, z, v = rng.standard_normal((n, L, d)), rng.standard_normal((n, d)), rng.standard_normal(d)
    match kind:
        case "units":
            X, z = X * 1e60, z * 1e-60
        case "tiny":
            X, z = X * 1e-70, z * 1e-60
        case "samples":
            X = X * 10.0 ** rng.uniform(-5, 5, (n, 1, 1))
        case "queries":
            z = z * 10.0 ** rng.uniform(-5, 5, (n, 1))
        case "far apart":
            X, z = X * 10.0 ** np.linspace(-10, 10, n)[:, None, None], z * 10.0 ** rng.uniform(-10, 10, (n, 1))
        case "coordinates":
            scales = 10.0 ** rng.uniform(-2, 2, d)
            X, z, v = X * scales, z / scales, v / scales
        case "one query":
            z = np.tile(z[0], (n, 1))
        case "one plane":
            X = X[:, :, :2] @ rng.standard_normal((2, d))
        case "near tokens":
            X = X + 1e6 * rng.standard_normal((n, 1, d))
        case "near lines":
            X = rng.standard_normal((n, L, 1)) * rng.standard_normal(d) + 1e-3 * X
    return TokenData(X=X, z=z, y=np.ones(n), v=v)


def stated(data, norm):
    """Return the constraints by the definition: rows of length 1 and right-hand sides of mean 1, with their unit."""
    D, z = data.differences, data.z
    long, wide = (np.abs(a).max(axis=-1, keepdims=True) for a in (D, z))
    rows = np.einsum("imd,ie->imde", D / long, z / wide)
    if norm == "l1":
        rows = np.einsum("imdd->imd", rows)
    rows = rows.reshape(data.samples * (data.tokens - 1), -1)
    length = np.linalg.norm(rows, axis=1)
    least = 1 / length / (long * wide[:, None]).ravel()
    return rows / length[:, None], least / least.mean(), least.mean()


def separates(rows):
    """Decide by a linear program whether some weights have positive products with all rows."""
    k, p = rows.shape
    answer = linprog(
        np.append(np.zeros(p), -1.0),
        A_ub=np.hstack([-rows, np.ones((k, 1))]),
        b_ub=np.zeros(k),
        bounds=[(-1, 1)] * p + [(None, None)],
    )
    return -answer.fun > 1e-9


def optimum(data, norm):
    """Return the least norm by CVXPY, from the definition; None where no weights separate the data."""
    rows, least, unit = stated(data, norm)
    if not separates(rows):
        return None
    shape = data.dim if norm == "l1" else (data.dim, data.dim)
    W = cp.Variable(shape)
    size = {"l1": cp.norm1, "nuclear": cp.normNuc, "frobenius": lambda W: cp.norm(W, "fro")}[norm](W)
    problem = cp.Problem(cp.Minimize(size), [rows @ (W if norm == "l1" else cp.vec(W, order="C")) >= least])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")  # to 1e-10; 1e-6 is enough
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(np.asarray(problem.value)) * unit


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", SOLVERS)
def test_cvxpy_finds_the_same_least_norm(norm, kind, seed):
    data = awkward_tokens(kind, seed)
    expected = optimum(data, norm)
    assert separability(data, diagonal=norm == "l1").separable == (expected is not None)
    if expected is None:
        with pytest.raises(InputError, match="data must be separable"):
            SOLVERS[norm](data)
        return
    found = SOLVERS[norm](data)
    assert found.certificate.primal == pytest.approx(expected, rel=2e-6)
    assert found.certificate.gap < 1e-7
    assert found.margins.min() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_nnls_finds_the_same_frobenius_weights_and_multipliers(kind, seed):
    """Least distance programming by Lawson and Hanson, chapter 23: min |E u - f|, u >= 0, with E = [rows^T; least]."""
    data = awkward_tokens(kind, seed)
    rows, least, unit = stated(data, "frobenius")
    if not separates(rows):
        return
    E, f = np.vstack([rows.T, least]), np.append(np.zeros(rows.shape[1]), 1.0)
    u, _ = nnls(E, f, maxiter=1000)
    r = E @ u - f
    W = -r[:-1] / r[-1]
    found = frobenius_svm(data)
    np.testing.assert_allclose(
        found.weights / unit, W.reshape(data.dim, data.dim), atol=1e-6 * float(np.linalg.norm(W))
    )
    D, z = data.differences, data.z
    pulled = np.einsum("im,imd,ie->de", found.multipliers, D, z)
    np.testing.assert_allclose(pulled, W.reshape(pulled.shape) / np.linalg.norm(W), atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_ranks_of_spectra_over_three_hundred_orders(seed):
    rng = np.random.default_rng(seed)
    spread, centre = rng.choice([1, 10, 150]), rng.uniform(-150, 150)
    values = 10.0 ** (centre + spread * rng.uniform(-1, 1, rng.integers(1, 7)))
    values = np.append(values, np.zeros(rng.integers(0, 3)))
    rng.shuffle(values)
    with mpmath.workdps(50):
        s = sorted((mpmath.mpf(float(value)) for value in values), reverse=True)
        squares, total = [x**2 for x in s], mpmath.fsum(s)
        energy = mpmath.fsum(squares)
        entropy = -mpmath.fsum(x / total * mpmath.log(x / total) for x in s if x > 0)
        expected = {
            "stable_rank": energy / squares[0],
            "effective_rank": mpmath.exp(entropy),
            "second_ratio": s[1] / s[0] if len(s) > 1 else 0,
        }
        fraction = float(rng.uniform(0.5, 0.999))
        held = next(k for k in range(1, len(s) + 1) if mpmath.fsum(squares[:k]) >= mpmath.mpf(fraction) * energy)
    for name, exact in expected.items():
        found = getattr(measure, name)(values).item()
        assert found == pytest.approx(float(exact), rel=1e-13, abs=1e-290), name
    assert measure.energy_rank(values, fraction=fraction).item() == held
    assert measure.energy_rank(values, fraction=1.0).item() == np.count_nonzero(values)
    level = float(np.median(values))
    assert measure.numerical_rank(values, level=level).item() == sum(value > level for value in values.tolist())


@pytest.mark.parametrize("exponent", range(0, 16, 2))
@pytest.mark.parametrize("seed", range(2))
def test_angles_between_subspaces_that_are_nearly_the_same(seed, exponent):
    rng = np.random.default_rng([seed, exponent])
    X = np.linalg.qr(rng.standard_normal((5, 2)))[0]
    Y = np.linalg.qr(X + 10.0**-exponent * rng.standard_normal((5, 2)))[0]
    with mpmath.workdps(50):
        bases = [mpmath.qr(mpmath.matrix(basis.tolist()), mode="skinny")[0] for basis in (X, Y)]
        cosines = mpmath.svd_r(bases[0].T * bases[1], compute_uv=False)
        exact = sorted(float(mpmath.acos(min(mpmath.mpf(1), cosine))) for cosine in cosines)
        overlap = float(mpmath.fsum(cosine**2 for cosine in cosines) / 2)
    np.testing.assert_allclose(measure.principal_angles(X, Y), exact, atol=3e-15)
    assert measure.subspace_overlap(X, Y) == pytest.approx(overlap, abs=1e-14)


@pytest.mark.parametrize("seed", range(12))
def test_incremental_learning_of_badly_scaled_quadratics(seed):
    rng = np.random.default_rng(seed)
    p = 3
    G, scales = rng.standard_normal((p, p)), 10.0 ** rng.uniform(-2, 2, p)
    A = scales[:, None] * (G @ G.T + 0.1 * np.eye(p)) * scales
    A, b = (A + A.T) / 2, rng.standard_normal(p) / scales
    H, minimum = [list(map(Fraction, row)) for row in A.tolist()], list(map(Fraction, b.tolist()))
    (_, *exact), _ = greedy_exact(H, [sum(h * x for h, x in zip(row, minimum, strict=True)) for row in H])
    with jax.enable_x64(True):
        learned = incremental_learning(Quadratic(jnp.asarray(A), jnp.asarray(b)), p)
    assert learned.status == "converged", learned.message
    assert [stage.entered for stage in learned.stages[1:]] == [(first,) for _, first, _ in exact]
    for stage, (time, _, beta) in zip(learned.stages[1:], exact, strict=True):
        assert stage.time == pytest.approx(float(time), rel=1e-8)
        np.testing.assert_allclose(stage.beta * scales, np.array(beta, float) * scales, atol=1e-8)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 4, 5))])
def test_low_rank_learning_of_singular_values_over_six_orders(seed):
    rng = np.random.default_rng(seed)
    values = (
        10.0 ** np.sort(rng.uniform(-6, 0, 3))[::-1] if seed % 3 else np.array([1.0, 1.0 - 10.0 ** -(seed + 1), 1e-3])
    )
    values = np.append(values, 0.0)[: 3 + seed % 2]
    U, V = (np.linalg.qr(rng.standard_normal((5, len(values))))[0] for _ in range(2))
    target = (U * values) @ V.T
    with mpmath.workdps(40):
        exact = [float(1 / s) for s in mpmath.svd_r(mpmath.matrix(target.tolist()), compute_uv=False) if s > 1e-12]
    with jax.enable_x64(True):
        learned = low_rank_learning(Quadratic(jnp.eye(25), jnp.asarray(target.ravel())), [(5, 5)])
    assert [stage.ranks for stage in learned.stages] == [(k,) for k in range(len(exact) + 1)]
    np.testing.assert_allclose([stage.time for stage in learned.stages[1:]], exact, rtol=1e-8)


@pytest.mark.parametrize("seed", range(12))
def test_deep_linear_stages_of_inputs_of_any_unit_and_condition(seed):
    rng = np.random.default_rng(seed)
    n, d, k = 6, 4, 3
    unit, other = 10.0 ** rng.choice([-100, -30, 0, 30, 100], 2)
    X = unit * rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-2, 2, d)
    T = other * rng.standard_normal((n, k)) @ np.diag(10.0 ** rng.uniform(-3, 0, k))
    found = deep_linear_stages(X, T)
    with mpmath.workdps(60):
        Q = mpmath.qr(mpmath.matrix(X.tolist()), mode="skinny")[0]
        targets = mpmath.matrix(T.tolist())
        M = targets.T * Q
        fitted = sorted((s**2 for s in mpmath.svd_r(M, compute_uv=False)), reverse=True)
        whole = mpmath.fsum(x**2 for x in targets)
        losses = [float((whole - mpmath.fsum(fitted[:r])) / (2 * n)) for r in range(k + 1)]
    np.testing.assert_allclose(found.losses, losses, rtol=1e-10)
