"""Transition of gradient flow of low-rank factors once one more direction is active: equation 13 with matrices.

    W_l      factors of one product B = W_L ... W_1, balanced: W_(l+1)^T W_(l+1) = W_l W_l^T; R = W_1^T for L = 2
    theta    all factors, flat; theta' = -dL/dtheta - lambda theta, that is L' = G R - lambda L, R' = G^T L - lambda R

Balanced factors stay balanced and preserve their rank, so the flow from the saddle plus a vanishing new pair stays on
the products of that rank. Active directions turn on it, and for L > 2 the small weights outside them turn with them, as
little as they can (parallel transport), since active and small parts of neighbouring layers balance at all times. An
explicit solver follows the flow, and after 500 steps an implicit one: the problem is as stiff as the ratio of the
largest to the smallest active singular value. Newton's method with conjugate gradients computes the end to rounding.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
from jaxtyping import Float
from scipy.integrate import RK45, Radau
from scipy.sparse.linalg import LinearOperator, eigsh

from saddlescope.loss.checks import ROUGH, rounding_share
from saddlescope.theory.low_rank.loss_oracle import Matrices, ProductLossOracle
from saddlescope.theory.saddle.newton import Linearised, NewtonPolicy, newton
from saddlescope.theory.saddle.path import (
    NoMinimum,
    NonFiniteLossError,
    PathPolicy,
    SaddlePassage,
    TransitionFailure,
    falls_ahead,
)

_POLICY = PathPolicy(slow=2e-2, steps=10_000, largest=1e13, leaving=1e-2)
_NEWTON = NewtonPolicy(stalled=1e-9, flat=1e-9)  # with steps by conjugate gradients, to 1e-4
_STIFF = 500  # steps after which the implicit solver takes over,
_DENSE = 2000  # where it has at most so many weights, since its Jacobian is dense
_FEW = 200  # weights up to which the Hessian is computed column by column
_SHORTEST = 1e-10  # step, in units of 1 / rate, next to where the loss is not finite
_TURNS = 4  # parts of a step in which what is not active is turned
_LARGEST = 1e100  # size of what a loss that does not change its gradient lets grow


Spectra = tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]
"""U, s, V^T of each product, active directions only."""
Pairs = tuple[tuple[np.ndarray, np.ndarray], ...]
"""Columns on the left, with m rows, and on the right, with n, of each product."""


@dataclass(frozen=True, eq=False)
class Saddle:
    """Stationary point at which a transition ends.

    Attributes:
        products: B, shape (m, n) each.
        spectra: their U, s, V^T, cut to the active directions.
        loss: L(B), with the penalty of weight decay.
        force: G(B).
        removed: for each product, the pairs (U, V) of active directions that left, shapes (m, f) and (n, f).
        outside: for each product, orthonormal bases of what is not active, as they have turned; empty for two factors.
    """

    products: Matrices
    spectra: Spectra
    loss: float
    force: Matrices
    removed: Pairs
    outside: Pairs = ()


@dataclass(frozen=True, eq=False)
class LowRankDeparture:
    """Directions that become active together at a saddle.

    Attributes:
        columns: for each product, what its factors gain but for their size, shapes (m, e) and (n, e); the largest is of
            size 1.
        rate: their rate, u^T G v - lambda > 0.
    """

    columns: Pairs
    rate: float

    @property
    def named(self) -> str:
        """Products whose rank rises, for a message."""
        numbers = [str(p) for p, (left, _) in enumerate(self.columns) if left.shape[1]]
        return f"product {numbers[0]} starts" if len(numbers) == 1 else f"products {', '.join(numbers)} start"


class _Factors:
    """Factors of all products as one vector, with their gradient and its derivative; of symmetric ones, U alone."""

    def __init__(self, oracle: ProductLossOracle, ranks: tuple[int, ...]) -> None:
        self.oracle, self.ranks = oracle, ranks
        self._shapes = [
            [*([] if oracle.symmetric else [(r, n)]), *[(r, r)] * (oracle.depth - 2), (m, r)]
            for (m, n), r in zip(oracle.shapes, ranks, strict=True)
        ]

    def split(self, theta: Float[np.ndarray, "t"]) -> list[list[np.ndarray]]:
        """Return W_1, ..., W_L of each product."""
        chains, start = [], 0
        for shapes in self._shapes:
            chain = []
            for shape in shapes:
                chain.append(theta[start : start + math.prod(shape)].reshape(shape))
                start += math.prod(shape)
            chains.append([chain[0].T, *chain] if self.oracle.symmetric else chain)
        return chains

    def flat(self, chains: Iterable[list[np.ndarray]]) -> Float[np.ndarray, "t"]:
        """Return the vector of these factors."""
        stored = [chain[-1:] if self.oracle.symmetric else chain for chain in chains]
        return np.concatenate([np.ravel(factor) for chain in stored for factor in chain])

    def balanced(self, spectra: Spectra, new: Pairs | None = None, size: float = 0.0) -> Float[np.ndarray, "t"]:
        """Return balanced factors of products, with new columns of this size in each factor."""
        chains, depth = [], self.oracle.depth
        for p, (U, s, Vt) in enumerate(spectra):
            left, right = (U[:, :0], Vt[:0].T) if new is None else new[p]
            root = s ** (1 / depth)
            within = np.diag(np.append(root, np.full(left.shape[1], size)))
            first, last = np.vstack([root[:, None] * Vt, size * right.T]), np.column_stack([U * root, size * left])
            chains.append([first, *[within] * (depth - 2), last])
        return self.flat(chains)

    def products(self, theta: Float[np.ndarray, "t"]) -> Matrices:
        return tuple(_product(chain[::-1]) for chain in self.split(theta))

    def velocity(self, theta: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t"]:
        force = self.oracle.value_and_force(self.products(theta))[1]
        pushed = ([_product(each) for each in chain_slopes(*one)] for one in zip(force, self.split(theta), strict=True))
        return self.flat(pushed) - self.oracle.decay * theta

    def linearised(self, theta: Float[np.ndarray, "t"], force: Matrices, change: Float[np.ndarray, "t"]) -> np.ndarray:
        """Return -d velocity[change]: the Hessian of the loss of the factors, times a vector."""
        chains, moves = self.split(theta), self.split(change)
        moved = tuple(_change(chain[::-1], move[::-1]) for chain, move in zip(chains, moves, strict=True))
        answer = self.oracle.hvp(self.products(theta), moved)
        pushed = (
            [_change(*each) for each in zip(chain_slopes(G, chain), chain_slopes(dG, move), strict=True)]
            for G, dG, chain, move in zip(force, answer, chains, moves, strict=True)
        )
        return self.oracle.decay * change - self.flat(pushed)

    def terms(self, theta: Float[np.ndarray, "t"], force: Matrices) -> float:
        """Return a size of the terms that cancel in the velocity at a saddle."""
        along = np.linalg.norm(self.linearised(theta, force, theta))
        largest = float(np.linalg.norm(theta))
        return float(max(map(np.linalg.norm, force)) * max(largest, 1e-300) ** (self.oracle.depth - 1) + along)

    def curvatures(self, theta: Float[np.ndarray, "t"]) -> Float[np.ndarray, "e"]:
        """Return eigenvalues of the Hessian of the loss of the factors, ascending: all, or of many the outermost."""
        if theta.size > _FEW:
            return np.sort(eigsh(_Hessian(self, theta), k=2, which="BE", return_eigenvectors=False))
        return np.linalg.eigvalsh(self.hessian(theta))

    def hessian(self, theta: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t t"]:
        """Return the Hessian of the loss of the factors."""
        times = _Hessian(self, theta)
        H = np.array([times.matvec(d) for d in np.eye(theta.size)])
        return (H + H.T) / 2


def _product(matrices: list[np.ndarray]) -> np.ndarray:
    return reduce(np.matmul, matrices)


def _change(matrices: list[np.ndarray], moves: list[np.ndarray]) -> np.ndarray:
    """Return the derivative of a product in a direction."""
    terms = ([*matrices[:k], moves[k], *matrices[k + 1 :]] for k in range(len(matrices)))
    return reduce(np.add, map(_product, terms))


def chain_slopes(G: Float[np.ndarray, "m n"], chain: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Return the matrices whose product is the velocity of W_l, for each: W_(l+1)^T ... W_L^T G W_1^T ... W_(l-1)^T."""
    turned = [W.T for W in chain]
    return [[*turned[j + 1 :], G, *turned[:j]] for j in range(len(chain))]


class _Hessian(LinearOperator):
    """Hessian of the loss of the factors, times a vector."""

    def __init__(self, factors: _Factors, theta: Float[np.ndarray, "t"]) -> None:
        super().__init__(np.dtype(float), (theta.size, theta.size))
        self._factors, self._theta = factors, theta
        self._force = factors.oracle.value_and_force(factors.products(theta))[1]

    def _matvec(self, x: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t"]:
        return self._factors.linearised(self._theta, self._force, np.ravel(x))


def follow_to_saddle(
    oracle: ProductLossOracle, spectra: Spectra, departure: LowRankDeparture, outside: Pairs = ()
) -> Saddle | TransitionFailure:
    """Return the end of the path that leaves a saddle along new pairs of directions.

    Args:
        oracle: the loss.
        spectra: the saddle: U, s, V^T of each product, active directions only.
        departure: what becomes active.
        outside: orthonormal bases of what is not, to be turned with the active directions; none for two factors.
    """
    try:
        return _follow(oracle, spectra, departure, outside)
    except NonFiniteLossError:
        return _not_finite(departure)


def _follow(
    oracle: ProductLossOracle, spectra: Spectra, departure: LowRankDeparture, outside: Pairs
) -> Saddle | TransitionFailure:
    rate, root = departure.rate, 1 / oracle.depth
    slow = _POLICY.slow ** (2 if outside else 1)  # what turns is followed further
    bend = _bend(oracle, tuple((U * s) @ Vt for U, s, Vt in spectra), departure)
    scale = max((float(s[0]) for _, s, _ in spectra if s.size), default=bend)
    seed, most = (_POLICY.seed * min(bend, scale)) ** root, _POLICY.largest * max(bend, scale) ** root
    factors = _Factors(
        oracle, tuple(len(s) + left.shape[1] for (_, s, _), (left, _) in zip(spectra, departure.columns, strict=True))
    )
    undefined = False

    def slope(_: float, theta: np.ndarray) -> np.ndarray:
        nonlocal undefined
        try:
            return factors.velocity(theta)
        except NonFiniteLossError:
            undefined = True
            return np.full_like(theta, np.nan)  # makes the solver take a smaller step

    tolerances = {"rtol": _POLICY.tolerance, "atol": _POLICY.tolerance * seed}
    solver = RK45(
        slope, 0.0, factors.balanced(spectra, departure.columns, seed), np.inf, first_step=0.1 / rate, **tolerances
    )
    fastest, wait, since, passage = 0.0, 0, 0, SaddlePassage(0.0)
    peak, sizes = [s for _, s, _ in _spectra(factors, solver.y)], []
    for step in range(_POLICY.steps):
        if step == _STIFF and solver.y.size <= _DENSE:
            since = wait = step
            jacobian = partial(_negative_hessian, factors)
            solver = Radau(slope, solver.t, solver.y, np.inf, jac=jacobian, **tolerances)
        undefined = False
        with np.errstate(over="ignore", invalid="ignore"):  # a trial point may overshoot
            solver.step()
        largest = float(np.max(np.abs(solver.y)))
        if solver.status == "failed" or largest > most or (undefined and solver.h_abs * rate < _SHORTEST):
            unbounded = largest > most or falls_ahead(
                lambda far, theta=solver.y: oracle.value_and_force(factors.products(far * theta))[0]
            )
            return _no_minimum(departure, NoMinimum.UNBOUNDED) if unbounded or not undefined else _not_finite(departure)
        if solver.t * rate > _POLICY.horizon:
            break
        if outside:
            path = solver.dense_output()
            for share in np.arange(1, _TURNS + 1) / _TURNS:
                outside = turned(outside, _spectra(factors, path(solver.t - (1 - share) * solver.step_size)))
        fastest = max(fastest, float(np.linalg.norm(solver.f)))
        if step % _POLICY.look and float(np.linalg.norm(solver.f)) > slow * fastest:
            continue  # a few steps pass a saddle
        spectra = _spectra(factors, solver.y)
        sizes.append((math.log(solver.t), sum(float(np.sum(s)) for _, s, _ in spectra)))
        peak = [np.maximum(p, s) for p, (_, s, _) in zip(peak, spectra, strict=True)]
        kept, start, removed = _without_vanishing(factors, spectra, peak)
        speed = float(np.linalg.norm(kept.velocity(start)))
        if step >= wait and (not start.size or speed <= slow * fastest):
            share, saddle = _rounding(kept, start), _saddle_near(kept, start, removed)
            if share > ROUGH:
                return _no_minimum(departure, NoMinimum.ROUNDED.format(share))
            if saddle is not None and passage.missed(_POLICY.tolerance):
                if outside and any(U.shape[1] for U, _ in removed):
                    return TransitionFailure(
                        f"The transition that {departure.named} makes an active direction leave, which is predicted "
                        "for two factors only. Simulate with flow.gradient_flow."
                    )
                return replace(saddle, outside=turned(outside, saddle.spectra)) if outside else saddle
            wait = step + (step - since) // 4  # a few tests for every doubling of the path
        norm = float(np.linalg.norm(start))
        # Where a minimiser is at infinity, factors go on moving by as much in every e-fold of time: no saddle is near.
        if (speed <= slow * fastest and speed * solver.t <= _POLICY.leaving * norm) or math.isfinite(passage.here):
            passage.note(solver.t, norm, speed, kept.curvatures(start))
        if passage.symmetric or not passage.missed(_POLICY.tolerance):
            return TransitionFailure(
                f"The transition that {departure.named} comes so close to a saddle of its rank that rounding "
                "decides how it goes on, as by a symmetry of the loss. Break it, or simulate with "
                f"flow.{'gradient_flow' if outside else 'factored_flow'}.",
                status="saddle",
            )
    if float(np.linalg.norm(solver.f)) > 0.5 * fastest:
        return _no_minimum(departure, NoMinimum.UNBOUNDED)
    return _no_minimum(departure, NoMinimum.AT_INFINITY if _grows_as_logarithm(sizes) else NoMinimum.FLAT)


def _no_minimum(departure: LowRankDeparture, why: str) -> TransitionFailure:
    return TransitionFailure(
        f"The transition that {departure.named} finds no strict local minimum (Assumption 4.4 fails): {why}"
    )


def _not_finite(departure: LowRankDeparture) -> TransitionFailure:
    return TransitionFailure(
        f"The loss, or its first or second derivative, is NaN or infinite on the path that {departure.named}. Look for "
        "a division, root, norm or logarithm of a product.",
        status="not_finite",
    )


def _rounding(factors: _Factors, theta: Float[np.ndarray, "t"]) -> float:
    force = factors.oracle.value_and_force(factors.products(theta))[1]
    along = -factors.linearised(theta, force, theta)
    try:
        return rounding_share(factors.velocity, theta, along, factors.terms(theta, force)) if theta.size else 0.0
    except NonFiniteLossError:  # a pole is near
        return 0.0


def _grows_as_logarithm(sizes: list[tuple[float, float]]) -> bool:
    """Return True if the singular values grew in the last decade of time almost as much as in the one before."""
    if len(sizes) < 2:
        return False
    times, values = np.array(sizes).T
    last, middle, first = np.interp(times[-1] - np.log(10) * np.arange(3), times, values)
    return bool(last - middle > max(0.7 * (middle - first), 1e-3 * last))


def _negative_hessian(factors: _Factors, t: float, theta: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t t"]:
    try:
        return -factors.hessian(theta)
    except NonFiniteLossError:
        return np.zeros((theta.size, theta.size))


def _bend(oracle: ProductLossOracle, products: Matrices, departure: LowRankDeparture) -> float:
    """Return a size up to which the new pairs change G by less than their rate: by its derivative, and above 1 by G."""
    change = tuple(left @ right.T for left, right in departure.columns)
    answer = max(float(np.linalg.norm(dG, 2)) for dG in oracle.hvp(products, change))
    force = oracle.value_and_force(products)[1]

    def felt(size: float) -> bool:
        try:
            there = oracle.value_and_force(tuple(B + size * dB for B, dB in zip(products, change, strict=True)))[1]
        except NonFiniteLossError:
            return True
        return max(float(np.linalg.norm(G - g, 2)) for G, g in zip(there, force, strict=True)) > 1e-2 * departure.rate

    bend = departure.rate / answer if answer > 0 else _LARGEST
    size = min(bend, 1.0)
    while 16 * size < bend and not felt(16 * size):  # a bend far out may be rounding of a derivative that is 0
        size *= 16
    return size


def _newton_polish(factors: _Factors, theta: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t"] | None:
    """Solve for a nearby minimum by Newton's method; return None if it is too far, or the Hessian not convex.

    Rotating the inner sides of factors alike changes nothing, so the Hessian has null directions, which conjugate
    gradients never enter.
    """

    def linearised(theta: Float[np.ndarray, "t"]) -> Linearised[None]:
        force = factors.oracle.value_and_force(factors.products(theta))[1]
        velocity, terms = factors.velocity(theta), factors.terms(theta, force)
        step = partial(_conjugate_gradients, partial(factors.linearised, theta, force), velocity)
        return Linearised(float(np.linalg.norm(velocity) / terms), step, None)

    found = newton(linearised, theta, _NEWTON)
    return None if found is None else found[0]


def _conjugate_gradients(apply, b: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t"] | None:
    """Return the solution x of H x = b to 1e-4, or None where a direction of negative curvature is met."""
    x, residual = np.zeros_like(b), b.copy()
    direction, square = residual.copy(), float(residual @ residual)
    target, curved = 1e-8 * square, 0.0
    for _ in range(2 * len(b) + 20):
        if square <= target:
            break
        image = apply(direction)
        curvature = float(direction @ image) / float(direction @ direction)
        curved = max(curved, abs(curvature))
        if curvature <= -1e-9 * curved:
            return None
        if curvature <= 1e-12 * curved:
            break
        step = square / float(direction @ image)
        x, residual = x + step * direction, residual - step * image
        before, square = square, float(residual @ residual)
        direction = residual + square / before * direction
    return x


def _without_vanishing(
    factors: _Factors, spectra: Spectra, peak: list[np.ndarray]
) -> tuple[_Factors, Float[np.ndarray, "t"], Pairs]:
    """Return the factors without the directions that tend to zero, and those directions."""
    force = factors.oracle.value_and_force(tuple((U * s) @ Vt for U, s, Vt in spectra))[1]
    left, removed, decay = [], [], factors.oracle.decay
    for (U, s, Vt), highest, G in zip(spectra, peak, force, strict=True):
        falling = (s <= _POLICY.leaving * highest) & (np.sum(U * (G @ Vt.T), axis=0) < decay)
        keep = len(s) - int(np.sum(np.logical_and.accumulate(falling[::-1])))
        left.append((U[:, :keep], s[:keep], Vt[:keep]))
        removed.append((U[:, keep:], Vt[keep:].T))
    kept = _Factors(factors.oracle, tuple(len(s) for _, s, _ in left))
    return kept, kept.balanced(tuple(left)), tuple(removed)


def _saddle_near(factors: _Factors, start: Float[np.ndarray, "t"], removed: Pairs) -> Saddle | None:
    """Return the nearby saddle; None if none is found, or if G does not push removed directions to zero there."""
    try:
        end = _newton_polish(factors, start) if start.size else start
    except NonFiniteLossError:  # of a step too far
        return None
    if end is None:
        return None
    if start.size:
        curvatures = factors.curvatures(end)
        if curvatures[0] < -_NEWTON.flat * np.max(np.abs(curvatures)):
            return None
    products = factors.products(end)
    loss, force = factors.oracle.value_and_force(products)
    decay, spectra = factors.oracle.decay, _spectra(factors, end)
    if any(np.any(np.sum(U * (G @ V), axis=0) >= decay) for G, (U, V) in zip(force, removed, strict=True)):
        return None  # no strict complementarity
    penalty = decay * sum(float(np.sum(s)) for _, s, _ in spectra)
    return Saddle(products, spectra, loss + penalty, force, removed)


def _spectra(factors: _Factors, theta: Float[np.ndarray, "t"]) -> Spectra:
    """Return U, s, V^T of each product, truncated to its rank."""
    found = []
    for B, r in zip(factors.products(theta), factors.ranks, strict=True):
        U, s, Vt = np.linalg.svd(B, full_matrices=False)
        found.append((U[:, :r], s[:r], Vt[:r]))
    return tuple(found)


def turned(outside: Pairs, spectra: Spectra) -> Pairs:
    """Return bases of what is not active, turned as little as the active directions turned."""

    def beside(basis: np.ndarray, active: np.ndarray) -> np.ndarray:
        Y, _, Zt = np.linalg.svd(basis - active @ (active.T @ basis), full_matrices=False)
        return Y @ Zt

    ends = zip(outside, spectra, strict=True)
    return tuple((beside(left, U), beside(right, Vt.T)) for (left, right), (U, _, Vt) in ends)
