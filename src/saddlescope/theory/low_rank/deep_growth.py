"""Growth of what is not active in products of L > 2 factors, from given weights: the first to blow up.

    W_l      factors outside the active directions, over alpha, in the time T = t alpha^(L-2)
    F        G between the inactive directions; dW_l/dT = W_(l+1)^T ... W_L^T F W_1^T ... W_(l-1)^T
    a, u, v  size of each factor, and directions of the product, once one direction has outgrown all others:
             da/dT = a^(L-1) u^T F v,   du/dlog a = F v / (u^T F v) - u,   dv/dlog a = F^T u / (u^T F v) - v

The flow reaches infinity at a finite T, when the product is of rank one and (u, v) the top singular pair of F: it
becomes active as alpha goes to 0. What is orthogonal to it in every layer stays finite, and goes on from there. It
turns with u and v as little as it can (`transition`).
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.integrate import DOP853, OdeSolver

from saddlescope._shared.arguments import calling
from saddlescope._shared.errors import InputError
from saddlescope.loss.checks import as_float64
from saddlescope.theory.low_rank.loss_oracle import Matrices, ProductLossOracle
from saddlescope.theory.low_rank.plateau import Plateau
from saddlescope.theory.low_rank.transition import LowRankDeparture, Pairs, Saddle, chain_slopes, turned

Chain = list[np.ndarray]
"""W_1, ..., W_L of a product."""


@dataclass(frozen=True, kw_only=True)
class BlowUpPolicy:
    """Limits of the flow to a blow-up, of weights of norm 1 under a force of norm 1.

    Attributes:
        tolerance: of a step.
        grown: size at which the product is followed on by its directions alone.
        longest: T at which they have shrunk so far that rounding decides whether they grow again.
        absent: speed at which what is left of the weights is rounding.
        steps: largest number of steps.
        aligned: speed of the directions at which they are those of the limit.
        largest: logarithm of the size up to which they are followed: alpha is above 1e-304.
    """

    tolerance: float = 1e-12
    grown: float = 1e4
    longest: float = 1e4
    absent: float = 1e-6
    steps: int = 20_000
    aligned: float = 1e-13
    largest: float = 700.0


_POLICY = BlowUpPolicy()
_TIED = (
    "several directions blow up together, as from equal weights: the next stage depends on what is smaller. Change the "
    "weights by a little at random, or simulate with flow.gradient_flow."
)
_SHRINKING = (
    "the weights that are left have shrunk towards 0, and rounding decides whether they grow again. Change the weights "
    "by a little at random."
)
_ABSENT = (
    "Directions outside the active ones have a force, but the given weights have nothing along them, to rounding. Give "
    "weights of full rank, or change those by a little at random."
)


@dataclass(frozen=True, eq=False)
class _BlowUp:
    """Blow-up of one product.

    Attributes:
        time: T until then.
        u, v: directions of the product there, in the coordinates of F.
        rest: factors outside these directions.
        left, right: orthonormal bases of what is orthogonal to u and to v.
        why: why nothing that is known becomes active; empty if (u, v) does.
    """

    time: float
    u: Float[np.ndarray, "m"]
    v: Float[np.ndarray, "n"]
    rest: Chain
    left: Float[np.ndarray, "m e"]
    right: Float[np.ndarray, "n f"]
    why: str = ""


class DeepGrowth:
    """Inactive parts of products of L > 2 factors; see the module.

    Args:
        oracle: the loss.
        chains: W_1, ..., W_L of each product before they are scaled by alpha.
        noise: singular values of G below it count as zero.
        tolerance: times with a smaller relative difference are a tie.

    Attributes:
        outside: orthonormal bases of what is not active in each product.
    """

    def __init__(self, oracle: ProductLossOracle, chains: list[Chain], noise: float, tolerance: float) -> None:
        self._oracle, self._chains, self._noise, self._tolerance = oracle, chains, noise, tolerance
        self.outside: Pairs = tuple((np.eye(m), np.eye(n)) for m, n in oracle.shapes)
        self._norms = [max(float(np.linalg.norm(W, 2)) for W in chain) or 1.0 for chain in chains]
        self._forces: Matrices = ()
        self._first: tuple[int, _BlowUp] | None = None

    def plateau(self, saddle: Saddle, time: float) -> Plateau:
        """Return how long a plateau that begins at a time lasts, and what ends it."""
        ends = zip(saddle.force, self.outside, strict=True)
        self._forces = tuple(left.T @ G @ right for G, (left, right) in ends)
        found = list(map(self._blow_up, self._chains, self._forces, self._norms))
        times = sorted((one.time, p) for p, one in enumerate(found) if one is not None)
        rates = tuple(np.linalg.svd(F, compute_uv=False) for F in self._forces)
        if not times:
            left = zip(self._chains, self._forces, strict=True)
            forced = any(float(np.linalg.norm(F, 2)) > self._noise and all(W.size for W in chain) for chain, F in left)
            return Plateau(rates=rates, why=_ABSENT if forced else "")
        (duration, first), margin = times[0], times[1][0] - times[0][0] if len(times) > 1 else math.inf
        one = found[first]
        assert one is not None
        self._first = first, one
        if one.why or margin <= self._tolerance * (time + duration):
            return Plateau(rates=rates, duration=duration, margin=margin, why=one.why or _TIED)
        columns = [(np.zeros((m, 0)), np.zeros((n, 0))) for m, n in self._oracle.shapes]
        left, right = self.outside[first]
        columns[first] = (left @ one.u)[:, None], (right @ one.v)[:, None]
        rate = float(one.u @ self._forces[first] @ one.v)
        departure = LowRankDeparture(tuple(columns), rate)
        outside = list(self.outside)
        outside[first] = left @ one.left, right @ one.right
        return Plateau(rates=rates, duration=duration, margin=margin, departure=departure, outside=tuple(outside))

    def settle(self, plateau: Plateau, before: Saddle, found: Saddle, time: float) -> None:
        """Go on from the next saddle."""
        assert self._first is not None
        first, one = self._first
        for p, F in enumerate(self._forces):
            self._chains[p] = one.rest if p == first else _advanced(self._chains[p], F, plateau.duration)
        self.outside = found.outside

    def _blow_up(self, chain: Chain, F: Float[np.ndarray, "m n"], norm: float) -> _BlowUp | None:
        """Return the blow-up of a product, from the norm of its weights at the start; None if it does not move."""
        if not all(W.size for W in chain) or (size := float(np.linalg.norm(F, 2))) <= self._noise:
            return None
        chain, power = [W / norm for W in chain], len(chain) - 2
        if float(np.linalg.norm(_velocity(chain, F / size))) <= _POLICY.absent:
            return None
        one = _normed_blow_up(chain, F / size)
        return replace(one, time=one.time / size / norm**power, rest=[norm * W for W in one.rest])


def initial_chains(weights: Any, oracle: ProductLossOracle) -> list[Chain]:
    """Return W_1, ..., W_L of all products.

    Raises:
        InputError: they are no finite matrices whose product has the shape of each product.
    """
    if weights is None:
        raise InputError("weights must be given for a depth above 2, since the times depend on them; got None.")
    wanted = f"weights must hold W_1, ..., W_{oracle.depth} of each product, of shapes that multiply to its own"
    with calling(wanted):
        chains = [[as_float64("weights", np.array(W, np.float64)) for W in chain] for chain in weights]
    shapes = [[W.shape for W in chain] for chain in chains]
    if len(chains) != len(oracle.shapes) or not all(
        len(chain) == oracle.depth
        and all(W.ndim == 2 and W.size for W in chain)
        and all(below.shape[0] == W.shape[1] for below, W in itertools.pairwise(chain))
        and (chain[-1].shape[0], chain[0].shape[1]) == shape
        for chain, shape in zip(chains, oracle.shapes, strict=False)
    ):
        raise InputError(f"{wanted}; got shapes {shapes} for products of {list(oracle.shapes)}.")
    return chains


def _flow(chain: Chain, F: Float[np.ndarray, "m n"], until: float = math.inf) -> OdeSolver:
    """Return a solver of the flow of a chain."""
    return DOP853(
        lambda _, x: _velocity(_split(x, chain), F),
        0.0,
        _flat(chain),
        until,
        rtol=_POLICY.tolerance,
        atol=_POLICY.tolerance * max(float(np.linalg.norm(W, 2)) for W in chain),
    )


def _velocity(chain: Chain, F: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "t"]:
    return _flat([reduce(np.matmul, each) for each in chain_slopes(F, chain)])


def _flat(chain: Chain) -> Float[np.ndarray, "t"]:
    return np.concatenate([np.ravel(W) for W in chain])


def _split(x: Float[np.ndarray, "t"], like: Chain) -> Chain:
    stops = np.cumsum([W.size for W in like])[:-1]
    return [part.reshape(W.shape) for part, W in zip(np.split(x, stops), like, strict=True)]


def _advanced(chain: Chain, F: Float[np.ndarray, "m n"], duration: float) -> Chain:
    """Return the factors after a time before their blow-up."""
    if not all(W.size for W in chain):
        return chain
    solver = _flow(chain, F, duration)
    while solver.status == "running":
        solver.step()
    return _split(solver.y, chain)


def _normed_blow_up(chain: Chain, F: Float[np.ndarray, "m n"]) -> _BlowUp:
    depth, solver = len(chain), _flow(chain, F)
    for _ in range(_POLICY.steps):
        solver.step()
        if solver.status == "failed" or float(np.max(np.abs(solver.y))) > _POLICY.grown or solver.t > _POLICY.longest:
            break
    chain = _split(solver.y, chain)
    U, sizes, Vt = np.linalg.svd(reduce(np.matmul, chain[::-1]))
    a, left, right = float(sizes[0]) ** (1 / depth), U[:, 1:], Vt[1:].T
    second = float(sizes[1]) ** (1 / depth) if len(sizes) > 1 else 0.0
    if min(a, a / (second or 1.0)) < math.sqrt(_POLICY.grown):
        why = _SHRINKING if a < math.sqrt(_POLICY.grown) else _TIED
        return _BlowUp(float(solver.t), U[:, 0], Vt[0], chain, left, right, why)
    # Bases of what is orthogonal to the direction that blows up, in every layer; those of the ends turn with it.
    hidden = [np.linalg.eigh(below @ below.T + W.T @ W)[1][:, :-1] for below, W in itertools.pairwise(chain)]
    bases = [right, *hidden, left]
    rest = [over.T @ W @ under for W, under, over in zip(chain, bases[:-1], bases[1:], strict=True)]
    after, u, v, left, right = _aligned(a, U[:, 0], Vt[0], F, depth, left, right)
    return _BlowUp(float(solver.t) + after, u, v, _advanced(rest, left.T @ F @ right, after), left, right)


def _aligned(
    a: float,
    u: Float[np.ndarray, "m"],
    v: Float[np.ndarray, "n"],
    F: Float[np.ndarray, "m n"],
    depth: int,
    left: Float[np.ndarray, "m e"],
    right: Float[np.ndarray, "n f"],
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the time until the blow-up of a product of rank one, its directions there, and the turned bases."""
    m, start = len(u), math.log(a)

    def slope(size: float, x: np.ndarray) -> np.ndarray:
        u, v = x[:m], x[m:-1]
        rate = u @ F @ v
        return np.concatenate([F @ v / rate - u, F.T @ u / rate - v, [math.exp((2 - depth) * size) / rate]])

    tolerance = _POLICY.tolerance
    solver = DOP853(slope, start, np.concatenate([u, v, [0.0]]), _POLICY.largest, rtol=tolerance, atol=tolerance)
    outside: Pairs = ((left, right),)
    while solver.status == "running" and float(np.linalg.norm(solver.f[:-1])) > _POLICY.aligned:
        solver.step()
        u, v = (x / np.linalg.norm(x) for x in (solver.y[:m], solver.y[m:-1]))
        outside = turned(outside, ((u[:, None], np.ones(1), v[None]),))
    rest = math.exp((2 - depth) * float(solver.t)) / (depth - 2) / float(u @ F @ v)
    return float(solver.y[-1]) + rest, u, v, *outside[0]
