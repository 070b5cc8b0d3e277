"""The flow of full factors by its laws: diagonal problems in any basis, foreign solvers, conservation, alpha to 0."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from tests import problems, tolerances
from tests.problems import fit

from saddlescope.flow import DiagonalInit, FactorInit, factored_flow, gradient_flow
from saddlescope.models import full_attention_teacher_task


class Quadratic(eqx.Module):
    """mean((X (diag(P^T B Q) - teacher))^2) + penalty |what is off the diagonal of P^T B Q|^2."""

    X: jax.Array
    teacher: jax.Array
    P: jax.Array
    Q: jax.Array
    penalty: float = 0.0

    def __call__(self, products):
        inside = self.P.T @ products[0] @ self.Q
        diagonal = jnp.diag(inside)
        off = inside - jnp.diag(diagonal)
        return jnp.mean((self.X @ (diagonal - self.teacher)) ** 2) + self.penalty * jnp.sum(off**2)

    def along(self, beta):
        return jnp.mean((self.X @ (beta - self.teacher)) ** 2)


def rotations(size, seed=5):
    rng = np.random.default_rng(seed)
    return [np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(3)]


def returning(bases, penalty):
    return Quadratic(
        jnp.asarray(problems.RETURNING_FEATURES), jnp.asarray(problems.RETURNING_TEACHER), *bases[:2], penalty
    )


def embedded(loss, u, v, log_scale, third):
    pairs = ((np.asarray(loss.P) @ np.diag(u) @ third, np.asarray(loss.Q) @ np.diag(v) @ third),)
    return FactorInit(pairs=pairs, log_scale=log_scale)


def time_errors(trajectory, loss, reference):
    """Relative errors of the times at which entries of P^T B Q pass the reference's level."""
    P, Q = np.asarray(loss.P), np.asarray(loss.Q)

    def above(time, i):
        return abs((P.T @ trajectory(np.array([time]))[0][0] @ Q)[i, i]) - reference.level

    return [
        brentq(above, 0.99 * c.time, 1.01 * c.time, args=(c.index,), xtol=1e-15) / c.time - 1
        for c in reference.crossings
    ]


@pytest.mark.parametrize(("power", "tolerance"), [(-1, 1e-6), (-32, 1e-3), (-32, 1e-6), (-1024, 1e-6)])
def test_diagonal_weights_are_followed_as_by_the_diagonal_flow(power, tolerance):
    rng = np.random.default_rng(1)
    X, teacher = jnp.asarray(rng.standard_normal((12, 4))), jnp.asarray([2.0, -1.0, 0.5, 1.3])
    loss = Quadratic(X, teacher, jnp.eye(4), jnp.eye(4))
    u, v = np.random.default_rng(3).standard_normal((2, 4))
    log_scale = power * np.log(10)
    reference = gradient_flow(loss.along, DiagonalInit(u, v, log_scale), until=3.0, tolerance=1e-8, level=0.05)
    assert len(reference.crossings) == 4
    trajectory = factored_flow(loss, embedded(loss, u, v, log_scale, np.eye(4)), until=3.0, tolerance=tolerance)
    assert np.max(np.abs(time_errors(trajectory, loss, reference))) < tolerances.FLOW_STAGE_TIME * tolerance
    assert trajectory.conserved < 1e-10
    assert trajectory.times[-1] == 3.0


@pytest.mark.slow
def test_a_direction_that_leaves_and_returns_with_the_other_sign_in_a_rotated_problem():
    bases = rotations(3)
    loss = returning([jnp.asarray(Q) for Q in bases], 2.0)
    u, v = np.random.default_rng(4).standard_normal((2, 3))
    log_scale = -12 * np.log(10)
    reference = gradient_flow(loss.along, DiagonalInit(u, v, log_scale), until=22.0, tolerance=1e-8, level=0.05)
    passages = [(c.index, c.rising, c.sign) for c in reference.crossings]
    assert (0, True, 1) in passages
    assert (0, True, -1) in passages
    trajectory = factored_flow(loss, embedded(loss, u, v, log_scale, bases[2]), until=22.0, tolerance=1e-3)
    assert np.max(np.abs(time_errors(trajectory, loss, reference))) < tolerances.FLOW_STAGE_TIME * 1e-3
    end = bases[0].T @ trajectory(trajectory.times[-1:])[0][0] @ bases[1]
    np.testing.assert_allclose(np.diag(end), reference.beta[-1], atol=5e-3)


def whitened(sizes):
    P, Q, S = rotations(len(sizes))
    return fit(P @ np.diag(sizes) @ Q.T), (P, Q, S)


def test_a_linear_network_on_whitened_data_has_the_times_of_its_closed_form():
    """A two-layer linear network on whitened data: beta_i' = 2 |beta_i| (s_i - beta_i) from alpha^2, in closed form."""
    sizes = np.array([3.0, 1.0, 0.3])
    loss, (P, Q, S) = whitened(sizes)
    log = 32 * np.log(10)
    start = FactorInit(pairs=((P @ S, Q @ S),), log_scale=-log)  # u = v = alpha: balanced
    until, level = 4.5, sizes / 2
    exact = (np.log(level / (sizes - level)) + np.log(sizes) + 2 * log) / (2 * sizes) / log
    trajectory = factored_flow(loss, start, until=until, tolerance=1e-6)
    np.testing.assert_allclose(trajectory.rises(level[None]), exact[None], rtol=tolerances.FLOW_STAGE_TIME * 1e-6)


def full_problem():
    """Stages at 1.45, 1.67, 2.03 and 3.13."""
    return full_attention_teacher_task(3, samples=40, tokens=4, dim=4, rank=2)


@pytest.mark.slow
def test_full_attention_against_an_explicit_solver():
    task = full_problem()
    log = 3 * np.log(10)

    @jax.jit
    def slope(theta):
        k, q, v, o = theta.reshape(4, 4, 4)
        _, (of_A, of_B) = task.network.value_and_gradient((k @ q.T, v @ o.T))
        return -jnp.ravel(jnp.stack([of_A @ q, of_A.T @ k, of_B @ o, of_B.T @ v]))

    theta = 1e-3 * np.ravel([factor for pair in task.pairs for factor in pair])
    until = 2.0
    reference = solve_ivp(
        lambda t, y: np.asarray(slope(y)), (0, until * log), theta, "DOP853", rtol=1e-10, atol=1e-13, dense_output=True
    )
    trajectory = factored_flow(task.network, FactorInit(pairs=task.pairs, log_scale=-log), until=until, tolerance=1e-6)
    times = np.linspace(0.3, until, 7)
    k, q, v, o = np.moveaxis(reference.sol(times * log).T.reshape(-1, 4, 4, 4), 1, 0)
    A, B = trajectory(times)
    np.testing.assert_allclose(A, k @ np.swapaxes(q, 1, 2), atol=3e-4)
    np.testing.assert_allclose(B, v @ np.swapaxes(o, 1, 2), atol=3e-4)
    assert B[-1].max() > 0.3


@pytest.mark.slow
def test_loss_falls_conservation_holds_and_loss_is_the_energy_that_was_lost():
    task = full_problem()
    log = 32 * np.log(10)
    trajectory = factored_flow(task.network, FactorInit(pairs=task.pairs, log_scale=-log), until=2.0, tolerance=1e-4)
    assert trajectory.plateaus
    assert np.diff(trajectory.losses).max() <= 1e-12 * trajectory.losses[0]
    assert trajectory.losses[-1] < 0.5 * trajectory.losses[0]
    assert trajectory.conserved < 1e-10
    nodes, weights = np.polynomial.legendre.leggauss(2)
    ends = trajectory.path.steps()
    half = np.diff(ends) / 2
    times = (ends[:-1, None] + half[:, None] * (1 + nodes)).ravel()
    factors, products = trajectory.factors(times), trajectory(times)
    slopes = [task.network.value_and_gradient(tuple(map(jnp.asarray, at)))[1] for at in zip(*products, strict=True)]
    speed = sum(
        np.sum((np.array([s[p] for s in slopes]) @ right) ** 2, (1, 2))
        + np.sum((np.swapaxes([s[p] for s in slopes], 1, 2) @ left) ** 2, (1, 2))
        for p, (left, right) in enumerate(factors)
    )
    lost = trajectory.losses[0] - trajectory.losses[-1]
    assert abs(log * np.sum((half[:, None] * weights).ravel() * speed) / lost - 1) < 1e-3


def test_narrow_factors_of_a_product_that_is_not_square():
    rng = np.random.default_rng(0)
    target = rng.standard_normal((4, 3))
    left, right = rng.standard_normal((4, 2)), rng.standard_normal((3, 2))
    start = FactorInit(pairs=((left, right),), log_scale=-200.0)
    trajectory = factored_flow(fit(target), start, until=3.0, tolerance=1e-5)
    U, s, Vt = np.linalg.svd(target, full_matrices=False)
    np.testing.assert_allclose(trajectory(trajectory.times[-1:])[0][0], (U[:, :2] * s[:2]) @ Vt[:2], atol=1e-6)
    assert np.all(np.isneginf(trajectory.log_singular_values[:, 0, 2]))
    assert trajectory.conserved < 1e-10


def test_records_are_where_they_were_asked_for():
    loss, (P, Q, S) = whitened(np.array([2.0, 1.0]))
    start = FactorInit(pairs=((P @ S, Q @ S),), log_scale=-40.0)
    whole = factored_flow(loss, start, until=2.0, tolerance=1e-6)
    some = factored_flow(loss, start, until=2.0, tolerance=1e-6, record=np.array([0.25, 0.8]))
    np.testing.assert_array_equal(some.times, [0.0, 0.25, 0.8, 2.0])
    np.testing.assert_allclose(some(some.times)[0], whole(some.times)[0], atol=1e-12)
    np.testing.assert_allclose(some.losses[2], loss((jnp.asarray(whole(some.times)[0][2]),)), rtol=1e-9)
    # on the first plateau the second direction has grown by exp(s t) from alpha^2
    np.testing.assert_allclose(
        some.log_singular_values[1, 0], [-80 + 2 * 0.25 * 40 * 2, -80 + 2 * 0.25 * 40], rtol=1e-4
    )
    assert not np.isfinite(whole.rises(5.0)).any()
    assert factored_flow(loss, start, until=0.0, tolerance=1e-6).times.tolist() == [0.0]


def of_eigenvalues(*values):
    Q = rotations(len(values))[0]
    return Q, (Q * np.array(values)) @ Q.T


@pytest.mark.parametrize(("power", "sign"), [(-2, 1.0), (-28, -1.0), (-300, 1.0)])
def test_symmetric_factors_cannot_learn_a_negative_eigenvalue(power, sign):
    """L = R stays so: what they leave of a target with eigenvalues 1 and -2 costs 2, from every scale."""
    Q, target = of_eigenvalues(sign, -2 * sign)
    left = Q @ np.array([[0.6], [1.1]])
    start = FactorInit([(left, sign * left)], log_scale=power * np.log(10))
    flow = factored_flow(fit(target), start, until=6.0, tolerance=1e-4)
    assert flow.losses[-1] == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("until", [1.2, 6.0])
def test_symmetric_factors_of_full_rank_are_followed_as_by_a_foreign_solver(until):
    """U' = (M - U U^T) U at 1e-2; the eigenvalue -1.5 is never learned, though U V^T would learn it from rounding."""
    _, target = of_eigenvalues(2.0, 0.7, -1.5)
    U = np.random.default_rng(6).standard_normal((3, 2))

    def slope(_, flat):
        W = flat.reshape(3, 2)
        return ((target - W @ W.T) @ W).ravel()

    last = until * np.log(100)
    exact = solve_ivp(slope, (0, last), 1e-2 * U.ravel(), method="DOP853", rtol=1e-12, atol=1e-30).y[:, -1]
    flow = factored_flow(fit(target), FactorInit([(U, U)], np.log(1e-2)), until=until, tolerance=1e-7)
    np.testing.assert_allclose(flow(flow.times[-1:])[0][0], exact.reshape(3, 2) @ exact.reshape(3, 2).T, atol=1e-5)


def test_a_symmetric_start_of_a_loss_that_is_not_leaves_the_symmetric_products():
    target = np.array([[1.0, 0.5], [-0.5, 0.8]])
    start = FactorInit([(np.eye(2), np.eye(2))], log_scale=-20.0)
    flow = factored_flow(fit(target), start, until=6.0, tolerance=1e-5)
    np.testing.assert_allclose(flow(flow.times[-1:])[0][0], target, atol=1e-3)


def test_equal_pairs_of_a_loss_that_exchanges_them_stay_equal():
    """Their difference would grow from rounding; on the way of equal pairs the loss ends at 0."""
    _, target = of_eigenvalues(2.0, 1.0)
    pair = tuple(np.random.default_rng(7).standard_normal((2, 2, 2)))

    def loss(B):
        apart = jnp.sum((B[0] - B[1]) ** 2)
        return 0.5 * jnp.sum((B[0] + B[1] - target) ** 2) - apart / 2 + apart**2

    flow = factored_flow(loss, FactorInit([pair, pair], log_scale=-30.0), until=8.0, tolerance=1e-4)
    assert flow.losses[-1] == pytest.approx(0.0, abs=1e-8)
    one, two = flow(flow.times[-1:])
    np.testing.assert_array_equal(one, two)


def test_factors_that_blow_up_in_finite_time_are_called_so():
    start = FactorInit([(np.ones((1, 1)), np.ones((1, 1)))], log_scale=-3.0)
    flow = factored_flow(lambda B: -(B[0][0, 0] + B[0][0, 0] ** 3), start, until=9.0, tolerance=1e-4, throw=False)
    assert flow.status.code == "diverged"


@pytest.mark.parametrize("kind", ["permuted", "eigenvectors"])
def test_a_direction_that_only_rounding_gives_a_start_is_not_learned(kind):
    """L = -P R for ever if the target has the same symmetry; U = V in the span of two eigenvectors stays in it."""
    u = np.array([[0.6], [0.8]])
    if kind == "permuted":
        target, pair = u @ u[::-1].T, (u, -u[::-1])
    else:
        turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
        target = turn @ np.diag([2.0, 1.0, 0.5]) @ turn.T
        factor = turn[:, 1:] @ np.array([[1.0, 0.5], [0.3, -0.7]])
        pair = factor, factor
    loss = fit(target)
    flow = factored_flow(loss, FactorInit([pair], log_scale=-40.0), until=6.0, tolerance=1e-6, throw=False)
    assert flow.status.code == "undecided"
    assert flow.losses[-1] > (0.49 if kind == "permuted" else 2.1)  # 1/2 or 2.125 without it
    perturbed = factored_flow(loss, FactorInit([(pair[0] + 0.01, pair[1])], log_scale=-40.0), until=6.0, tolerance=1e-4)
    assert perturbed.losses[-1] < 0.13
