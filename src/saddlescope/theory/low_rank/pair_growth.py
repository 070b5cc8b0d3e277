"""Growth of what is not active in products of two factors: exponents on a plateau, and what becomes active first."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from saddlescope.theory.low_rank.growth_exponents import Frame, Growth, growth, symmetric_growth
from saddlescope.theory.low_rank.loss_oracle import ProductLossOracle
from saddlescope.theory.low_rank.plateau import Plateau
from saddlescope.theory.low_rank.transition import LowRankDeparture, Pairs, Saddle

_ABSENT = 1e-9  # share of the largest size below which a tied direction is absent from the initial weights
_TIED = (
    "directions become active together: the next stage depends on their initial weights. At the origin weights decide "
    "it; later, break the symmetry of the loss, or simulate with flow.factored_flow."
)
_LACKING = (
    "directions become active together, and the given weights have nothing along some of them, or fewer independent "
    "columns than these. Give weights of full rank, or change those by a little at random."
)


class PairGrowth:
    """Inactive directions of products of two factors.

    Args:
        oracle: the loss.
        start: the weights before they are scaled by alpha; None: generic ones.
        width: number of columns of the factors; None: no bound.
        noise: rates below it count as zero.
        tolerance: times with a smaller relative difference are a tie.
    """

    def __init__(
        self, oracle: ProductLossOracle, start: Pairs | None, width: int | None, noise: float, tolerance: float
    ) -> None:
        self._oracle, self._start = oracle, start
        self._most = [min(m, n, width or m) for m, n in oracle.shapes]
        self._noise, self._tolerance = noise, tolerance
        self._frames = tuple(Frame(np.eye(d), np.eye(d), np.zeros(d)) for d in map(max, oracle.shapes))
        self._grown: tuple[Growth, ...] = ()

    def plateau(self, saddle: Saddle, time: float) -> Plateau:
        """Return the plateau at a saddle, which begins at a time."""
        paired = symmetric_growth if self._oracle.symmetric else growth
        grown = tuple(paired(frame, _square(G)) for frame, G in zip(self._frames, saddle.force, strict=True))
        decay, ranks = self._oracle.decay, [len(s) for _, s, _ in saddle.spectra]
        waits = sorted(
            (float(wait), p, j)
            for p, of in enumerate(grown)
            for j, wait in enumerate(of.arrivals(self._noise, decay, 1 + decay * time))
            if ranks[p] < self._most[p] and math.isfinite(wait)
        )
        self._grown, duration = grown, waits[0][0] if waits else math.inf
        tied = [(p, j) for wait, p, j in waits if wait - duration <= self._tolerance * (time + duration)]
        later = waits[len(tied) :]
        return Plateau(
            rates=tuple(of.rate for of in grown),
            exponents=tuple(of.start for of in grown),
            duration=duration,
            margin=later[0][0] - duration if later else math.inf,
            departure=self._departure(tied) if tied else None,
            why=f"{len(tied)} {_LACKING if self._start is not None else _TIED}",
        )

    def settle(self, plateau: Plateau, before: Saddle, found: Saddle, time: float) -> None:
        """Go on, from the end of a plateau at a time, to the next saddle."""
        assert plateau.departure is not None
        level, rises = 1 + self._oracle.decay * time, [left.shape[1] for left, _ in plateau.departure.columns]
        self._frames = tuple(
            _inactive_frame(of.after(plateau.duration), rises[p], before.spectra[p], found, p, level)
            for p, of in enumerate(self._grown)
        )
        self._start = None  # it decides ties at the origin alone

    def _departure(self, tied: Sequence[tuple[int, int]]) -> LowRankDeparture | None:
        """Return what becomes active; None for a tie that the weights at the origin do not decide.

        Tied directions of one product grow as (p_j, q_j) a_j, where a_j is what the initial weights have along them:
        the product gains sum_jk p_j (a_j . a_k) q_k^T.
        """
        columns = []
        for p, ((m, n), of) in enumerate(zip(self._oracle.shapes, self._grown, strict=True)):
            among = [j for product, j in tied if product == p]
            left, right = of.U[:m, among], of.V[:n, among]
            if len(tied) > 1:
                if self._start is None:
                    return None
                overlaps = left.T @ self._start[p][0] + right.T @ self._start[p][1]
                turned, sizes, _ = np.linalg.svd(overlaps, full_matrices=False)
                left, right = left @ (turned * sizes), right @ (turned * sizes)
            columns.append((left, right))
        largest = max((float(np.linalg.norm(left, 2)) for left, _ in columns if left.size), default=0.0)
        sizes = [np.linalg.norm(left, axis=0) for left, _ in columns]
        if any(np.any(each <= _ABSENT * largest) for each in sizes):
            return None
        rate = max((float(self._grown[p].rate[j]) for p, j in tied), default=0.0) - self._oracle.decay
        return LowRankDeparture(tuple((left / largest, right / largest) for left, right in columns), rate)


def _inactive_frame(
    frame: Frame,
    entered: int,
    before: tuple[np.ndarray, np.ndarray, np.ndarray],
    found: Saddle,
    product: int,
    level: float,
) -> Frame:
    """Return the frame outside the new active directions: removed ones, with xi = level, and the old inactive ones.

    Active and inactive directions turn together, so that the orientation of all of them is preserved.
    """
    d = len(frame.U)
    (U0, _, V0t), (U1, _, V1t), (Uf, Vf) = before, found.spectra[product], found.removed[product]

    def filled(columns: np.ndarray) -> np.ndarray:
        return np.pad(columns, ((0, d - len(columns)), (0, 0)))

    def outside(active: np.ndarray, removed: np.ndarray, old: np.ndarray) -> np.ndarray:
        candidates = np.concatenate([filled(removed), old[:, entered:]], axis=1)
        Q, R = np.linalg.qr(candidates - filled(active) @ (filled(active).T @ candidates))
        return Q * np.where(np.diag(R) < 0, -1.0, 1.0)

    def orientation(active: tuple[np.ndarray, np.ndarray], inactive: tuple[np.ndarray, np.ndarray]) -> float:
        whole = (np.concatenate([filled(one), other], axis=1) for one, other in zip(active, inactive, strict=True))
        return float(np.prod([np.sign(np.linalg.det(directions)) for directions in whole]))

    U, V = outside(U1, Uf, frame.U), outside(V1t.T, Vf, frame.V)
    if U.size and orientation((U1, V1t.T), (U, V)) != orientation((U0, V0t.T), (frame.U, frame.V)):
        V[:, -1] *= -1
    return Frame(U, V, np.concatenate([np.full(Uf.shape[1], level), frame.xi[entered:]]))


def _square(G: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "d d"]:
    m, n = G.shape
    return np.pad(G, ((0, max(m, n) - m), (0, max(m, n) - n)))
