"""Reference implementations: plain float64 or exact versions of the fast code. They are its specification."""

from fractions import Fraction
from itertools import combinations

import numpy as np

# measure: from the matrix, by the definitions


def product_update(left, right, left0, right0):
    """Return left right^T - left0 right0^T in long double: the cancellation of six digits leaves thirteen."""
    L, R, L0, R0 = (np.asarray(factor).astype(np.longdouble) for factor in (left, right, left0, right0))
    return (L @ np.swapaxes(R, -1, -2) - L0 @ np.swapaxes(R0, -1, -2)).astype(np.float64)


def singular_values(matrix):
    return np.linalg.svd(np.asarray(matrix, dtype=np.float64), compute_uv=False)


# theory: Algorithm 1 in rational numbers, for L(beta) = beta^T H beta / 2 - d^T beta with H positive definite


def greedy_exact(H, d):
    """Return stages (T, entered, beta) in exact arithmetic, and why they end: "converged", "tie" or "degenerate".

    Part (A) is equations 10 to 12 with b^0 = 1. In part (B), |beta| on the active coordinates follows the
    Lotka-Volterra equations x' = 2 x (s d - s H s x). With H positive definite they have a strict Lyapunov function
    for every start inside the orthant (Goh 1977), so equation 13 is the minimum of L over the orthant's closed face.
    """
    p = len(d)
    T, beta, b = Fraction(0), [Fraction(0)] * p, [Fraction(1)] * p
    stages = [(T, None, beta)]
    while True:
        g = [d[i] - sum(H[i][j] * beta[j] for j in range(p)) for i in range(p)]
        times = {i: (b[i] - 1 + (1 if g[i] > 0 else -1)) / g[i] for i in range(p) if beta[i] == 0 and g[i] != 0}
        if not times:
            return stages, "converged"
        first = min(times, key=times.get)
        if sum(time == times[first] for time in times.values()) > 1:
            return stages, "tie"
        T += times[first]
        b = [b[i] if beta[i] != 0 else b[i] - g[i] * times[first] for i in range(p)]
        signs = {i: 1 if beta[i] > 0 else -1 for i in range(p) if beta[i] != 0} | {first: 1 if g[first] > 0 else -1}
        beta = _orthant_minimum(H, d, signs)
        if beta is None:
            return stages, "degenerate"
        stages.append((T, first, beta))


def _orthant_minimum(H, d, signs):
    """Find the minimum of L with s_i beta_i >= 0 on the active coordinates and 0 elsewhere, trying every support."""
    for size in range(len(signs), -1, -1):
        for support in combinations(sorted(signs), size):
            values = _solve([[H[i][j] for j in support] for i in support], [d[i] for i in support])
            if any(signs[i] * value <= 0 for i, value in zip(support, values, strict=True)):
                continue
            beta = [Fraction(0)] * len(d)
            for i, value in zip(support, values, strict=True):
                beta[i] = value
            rates = [signs[i] * (d[i] - sum(H[i][j] * beta[j] for j in support)) for i in signs if i not in support]
            if all(rate < 0 for rate in rates):
                return beta
    return None  # some rate is exactly 0: no strict complementarity


def _solve(A, y):
    """Solve by Gauss-Jordan elimination in rational numbers; A is positive definite, so no pivot is 0."""
    rows = [[*row, value] for row, value in zip(A, y, strict=True)]
    for k in range(len(rows)):
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [a - rows[i][k] * c for a, c in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


# flow: gradient descent on u * v, one step at a time


def descent_of_products(gradient, u, v, learning_rate, steps):
    """Return the weights after each step; `gradient` is that of the loss in beta."""
    path = [(u, v)]
    for _ in range(steps):
        g = -gradient(u * v)
        u, v = u + learning_rate * v * g, v + learning_rate * u * g
        path.append((u, v))
    return np.array(path)


def symmetric_network_flow(strengths, factor, times, rtol=1e-13):
    """Return U(t) of dU/dt = -(A E + E A) U, E = U U^T - I, A = diag(strengths), by SciPy's DOP853; (times, d, d')."""
    from scipy.integrate import solve_ivp

    A, U0 = np.diag(strengths), np.asarray(factor, float)

    def velocity(_, flat):
        U = flat.reshape(U0.shape)
        E = U @ U.T - np.eye(len(U))
        return (-(A @ (E @ U)) - E @ (A @ U)).ravel()

    size = np.abs(U0).max()
    span = (0.0, float(np.max(times)))
    found = solve_ivp(velocity, span, U0.ravel(), method="DOP853", rtol=rtol, atol=1e-16 * size, t_eval=times)
    assert found.success
    return found.y.T.reshape(-1, *U0.shape)


def symmetric_map_series(strengths, start, times, order=30):
    """Return W(t) of the symmetric network to about 17 digits, (times, d, d), and dW/dt by Taylor series.

    dW/dt = -(A E + E A) W - W (A E + E A) with E = W - 1, by coefficients in long double; steps of a fifth of
    1 / max(a), a quarter of the distance to the poles of a logistic curve.
    """
    a = np.asarray(strengths, np.longdouble)
    one = np.eye(len(a), dtype=np.longdouble)
    W, now = np.asarray(start, np.longdouble), np.longdouble(0)

    def coefficients(W):
        w, b = [W], []  # of W, and of B = A E + E A
        for k in range(order):
            E = w[k] - (one if k == 0 else 0 * one)
            b.append(a[:, None] * E + E * a)
            product = np.sum([b[j] @ w[k - j] for j in range(k + 1)], axis=0)
            w.append(-(product + product.T) / (k + 1))
        return w

    def value(w, h):
        return sum(c * h**k for k, c in enumerate(w))

    found, slopes = [], []
    for t in np.asarray(times, np.longdouble):
        while now < t:
            h = min(np.longdouble(0.2) / a.max(), t - now)
            W, now = value(coefficients(W), h), now + h
        found.append(W)
        slopes.append(coefficients(W)[1])
    return np.array(found), np.array(slopes)
