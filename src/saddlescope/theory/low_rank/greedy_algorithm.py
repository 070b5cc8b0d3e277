"""Incremental learning with full weights: the next singular direction and its time, as alpha goes to 0.

The loss is a function of products B_p = L_p R_p^T of full factors that start at alpha times generic matrices. This is
Algorithm 1 of Boix-Adsera et al. (2023) with directions in place of coordinates; `docs/full_weights.md` derives it.

    G_p     -dL/dB_p. At a saddle it annihilates the active directions.
    sigma   singular values of G_p between the inactive directions: the rates at which these grow
    xi      exponents of the inactive directions, of size alpha^(1 - xi); at the start 0
    T       time / log(1/alpha), so that dxi/dT = sigma, each exponent paired with its rate (`growth_exponents`)

The first exponent to reach 1 activates its singular pair, and gradient flow of factors of one rank more takes the
active directions to the next saddle (`transition`). For generic starts exponents and rates pair in sorted order,
and the new direction is the top singular pair of G. For commuting problems (all G diagonal in one pair of bases) they
pair by direction, and the predictions are those of Algorithm 1 for diagonal weights.

Symmetric factors, B_p = U_p U_p^T, have the eigenvalues of G_p for rates (its symmetric part; Li, Luo and Lyu 2021).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import calling, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope.loss.checks import as_float64
from saddlescope.theory.low_rank.growth_exponents import Frame, Growth, growth, symmetric_growth
from saddlescope.theory.low_rank.loss_oracle import Matrices, ProductLossOracle
from saddlescope.theory.low_rank.transition import LowRankDeparture, Saddle, follow_to_saddle
from saddlescope.theory.prediction import AlgorithmStatus, Prediction, check_limits, report_stage, rounding_of_slope
from saddlescope.theory.saddle.path import NonFiniteLossError

Pairs = tuple[tuple[np.ndarray, np.ndarray], ...]

_ASYMMETRY = 1e-12  # share of the size of G that is rounding
_TRIALS = 10  # sizes at which G is looked for, each a tenth of the last
_ABSENT = 1e-9  # share of the largest size below which a tied direction is absent from the initial weights
_TIED = (
    "directions become active together: the next stage depends on their initial weights. At the origin weights decide "
    "it; later, break the symmetry of the loss, or simulate with flow.factored_flow."
)
_LACKING = (
    "directions become active together, and the given weights have nothing along some of them, or fewer independent "
    "columns than these. Give weights of full rank, or change those by a little at random."
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LowRankStage(ReprMixin):
    """Stage k of incremental learning with full weights: a plateau at a saddle.

    Attributes:
        time: T_k, when the stage begins, in units of log(1/alpha).
        entered: the products whose rank rose, each as often as it rose: one, unless several are tied; none for stage 0.
        rank_drops: for each product, the decrease of its rank in the transition.
        products: B_p at the saddle.
        singular_values: of each product, its active ones, descending.
        loss: L at the saddle, with the penalty of weight decay: the level of the plateau.
        rates: of each product, sigma outside its active directions, descending: their growth rates. Of symmetric
            factors those of either sign.
        exponents: of each product, the xi that each rate is paired with when the stage begins.
        margin: delay of the runner-up after T_k, in units of log(1/alpha); infinite without a runner-up.
    """

    time: float
    entered: tuple[int, ...]
    rank_drops: tuple[int, ...]
    products: Matrices
    singular_values: tuple[Float[np.ndarray, "_"], ...]
    loss: float
    rates: tuple[Float[np.ndarray, "_"], ...]
    exponents: tuple[Float[np.ndarray, "_"], ...]
    margin: float

    @property
    def ranks(self) -> tuple[int, ...]:
        """Rank of each product."""
        return tuple(len(values) for values in self.singular_values)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LowRankLearning(Prediction):
    """Predicted stages, and the termination status.

    Attributes:
        stages: stage 0, at the origin, and all that follow.
        end: time at which the last stage ends, in units of log(1/alpha); infinite when learning has converged.
        status: termination status.
        message: the same in a sentence, with the cure for a failure.
    """

    stages: tuple[LowRankStage, ...]
    end: float
    status: AlgorithmStatus
    message: str

    def __repr__(self) -> str:
        return self._described(f"ranks {self.stages[-1].ranks}, ")

    def _table(self) -> Table:
        rows = ((k, one.time, one.entered, one.ranks, one.loss) for k, one in enumerate(self.stages))
        return ("stage", "T", "product that rises", "ranks", "loss"), rows

    def _active(self, stage: LowRankStage) -> tuple[int, None]:
        return sum(stage.ranks), None


@in_float64
@validate_arguments
def low_rank_learning(
    loss: Callable[[Any], Array],
    shapes: Sequence[tuple[int, int]],
    *,
    width: int | None = None,
    symmetric: bool = False,
    weights: Sequence[tuple[ArrayLike, ArrayLike]] | None = None,
    weight_decay: float = 0.0,
    tolerance: float = 1e-9,
    max_stages: int | None = None,
    report: Report = silent,
) -> LowRankLearning:
    """Predict the stages in which gradient flow of full factors learns as the initial scale alpha goes to 0.

    Args:
        loss: L(B), a twice continuously differentiable JAX function of a tuple of products, such as a `FullAttention`.
            An `AbstractLoss` computes its gradient itself.
        shapes: (m, n) of each product.
        width: number of columns of the factors, which bounds the ranks; None: that of the weights, or no bound.
        symmetric: True for products U U^T with U' = G U, the flow of L and R from L(0) = R(0). Gradient flow of
            L(U U^T) in U is the same at twice the speed.
        weights: (left, right) of each product, shapes (m, h) and (n, h), before they are scaled by alpha; equal for
            symmetric factors, and such are found. They decide what becomes active in a tie at the origin.
        weight_decay: lambda of a penalty lambda/2 times the squares of all factors, not negative. At the stages it is
            lambda times the sum of singular values, the nuclear norm, and part of their losses.
        tolerance: singular values of G smaller than this part of the largest at the origin count as zero, and times
            with a smaller relative difference are a tie.
        max_stages: largest number of transitions, at least 1; None: no limit.
        report: called after each stage with the finished fraction and a note.

    Returns:
        The stages, from the origin on, with the termination status:

        - converged: no direction outside the active ones has a force, or all are active.
        - max_stages: the requested number of stages was found.
        - tie: two directions become active at the same time, not at the origin with given weights.
        - saddle: a transition comes so close to a saddle of its rank that rounding decides how it goes on.
        - no_minimum: a transition ends at no strict local minimum of its rank.
        - not_finite: the loss is NaN or infinite on a transition.

    Raises:
        InputError: an argument out of range, weights of other shapes, or a loss that holds
            arrays of another type or is not finite and smooth at 0; symmetric=True and a gradient that is not
            symmetric at a saddle.

    >>> import jax.numpy as jnp, numpy as np
    >>> target = np.diag([3.0, 1.0, 0.0])
    >>> # whitened two-layer linear network: T = 1 / sigma_i
    >>> learned = low_rank_learning(lambda B: 0.5 * jnp.sum((B[0] - target) ** 2), [(3, 3)])
    >>> [(round(stage.time, 9), stage.ranks) for stage in learned.stages]
    [(0.0, (0,)), (0.333333333, (1,)), (1.0, (2,))]
    """
    if width is not None and not (isinstance(width, int | np.integer) and width >= 1):
        raise InputError(f"width must be an integer of at least 1, or None; got {width!r}.")
    check_limits(tolerance, max_stages, weight_decay)
    oracle = ProductLossOracle(loss, shapes, symmetric=symmetric, weight_decay=weight_decay)
    start = None if weights is None else _initial_weights(weights, oracle)
    if start is not None:
        columns = start[0][0].shape[1]
        if width not in (None, columns):
            raise InputError(f"width must be the number of columns of weights, {columns}, or None; got {width!r}.")
        width = columns
        oracle.symmetric = symmetric or _stay_symmetric(start, oracle)
    try:
        return _learn(oracle, start, width, tolerance, max_stages, report)
    except _AsymmetricForceError as error:
        if symmetric:
            raise InputError(
                "loss must have symmetric gradients at symmetric products for symmetric=True; got others at a product "
                f"of size {error.size:.3g}. Take the loss of (B + B.T) / 2, or symmetric=False."
            ) from None
        oracle.symmetric = False  # equal factors do not stay equal
        return _learn(oracle, start, width, tolerance, max_stages, report)


class _AsymmetricForceError(Exception):
    """G of symmetric factors that is not symmetric at a saddle, with the size of the products there."""

    def __init__(self, products: Matrices) -> None:
        self.size = max(float(np.max(np.abs(B))) for B in products)


def _learn(
    oracle: ProductLossOracle,
    start: Pairs | None,
    width: int | None,
    tolerance: float,
    max_stages: int | None,
    report: Report,
) -> LowRankLearning:
    """Predict the stages, as `low_rank_learning` does.

    Raises:
        _AsymmetricForceError: at a saddle, G of symmetric factors is not symmetric.
    """
    most = tuple(min(m, n, width or m) for m, n in oracle.shapes)
    origin = tuple(np.zeros(shape) for shape in oracle.shapes)
    spectra = tuple((np.zeros((m, 0)), np.zeros(0), np.zeros((0, n))) for m, n in oracle.shapes)
    nothing = tuple((np.zeros((m, 0)), np.zeros((n, 0))) for m, n in oracle.shapes)
    saddle = Saddle(origin, spectra, *oracle.value_and_force(origin), removed=nothing)
    noise = max(_rounding(oracle, saddle), tolerance * max(float(np.linalg.norm(G, 2)) for G in saddle.force))
    frames = tuple(Frame(np.eye(d), np.eye(d), np.zeros(d)) for d in map(max, oracle.shapes))
    stages: list[LowRankStage] = []
    time, entered, margin = 0.0, (), math.inf
    paired = symmetric_growth if oracle.symmetric else growth
    while True:
        if oracle.symmetric and oracle.asymmetry(saddle.products) > tolerance:
            raise _AsymmetricForceError(saddle.products)
        grown = tuple(paired(frame, _square(G)) for frame, G in zip(frames, saddle.force, strict=True))
        stages.append(_stage(saddle, grown, time, entered, margin, oracle.exponent))
        if len(stages) > 1:
            ranks = stages[-1].ranks
            report_stage(report, stages, max_stages, active=f"ranks {ranks}", share=sum(ranks) / sum(most))
        arrivals = _Arrivals(grown, stages[-1].ranks, most, noise, oracle.decay, time, tolerance)
        end, status, message = time + arrivals.duration, None, ""
        shown = math.ldexp(end, -oracle.exponent)
        departure = arrivals.departure(grown, oracle, start if len(stages) == 1 else None)
        if not math.isfinite(end):
            status, message = (
                AlgorithmStatus.CONVERGED,
                "No direction outside the active ones has a force, or all are active.",
            )
        elif departure is None:
            why = _TIED if start is None or len(stages) > 1 else _LACKING
            status, message = AlgorithmStatus.TIE, f"At T = {shown:.6g} {len(arrivals.tied)} {why}"
        elif max_stages is not None and len(stages) > max_stages:
            status, message = (
                AlgorithmStatus.MAX_STAGES,
                f"Stopped after max_stages={max_stages} transitions.",
            )
        if status is None:
            assert departure is not None  # a tie otherwise
            found = follow_to_saddle(oracle, saddle.spectra, departure)
            if isinstance(found, Saddle):
                rises = [left.shape[1] for left, _ in departure.columns]
                frames = tuple(
                    _inactive_frame(
                        of.after(arrivals.duration), rises[p], saddle.spectra[p], found, p, 1 + oracle.decay * end
                    )
                    for p, of in enumerate(grown)
                )
                entered = tuple(p for p, rise in enumerate(rises) for _ in range(rise))
                saddle, time, margin = found, end, arrivals.margin
                continue
            status = AlgorithmStatus(found.status)
            message = f"At T = {shown:.6g}: {found.reason}"
        return LowRankLearning(stages=tuple(stages), end=shown, status=status, message=message)


def _rounding(oracle: ProductLossOracle, origin: Saddle) -> float:
    """Return what rounding may leave of G(0)."""
    tops = [np.linalg.svd(G, full_matrices=False) for G in origin.force]
    first = int(np.argmax([sizes[0] for _, sizes, _ in tops]))
    U, _, Vt = tops[first]
    along = tuple(np.outer(U[:, 0], Vt[0]) if p == first else 0 * B for p, B in enumerate(origin.products))
    return rounding_of_slope(origin.loss, float(np.sum(along[first] * oracle.hvp(origin.products, along)[first])))


class _Arrivals:
    """Directions that become active first.

    Attributes:
        duration: time until then; infinite if none does.
        tied: their products, and their indices among the plateau's singular pairs: more than one if times agree.
        margin: delay of the next one.
    """

    def __init__(
        self,
        grown: Sequence[Growth],
        ranks: tuple[int, ...],
        most: tuple[int, ...],
        noise: float,
        decay: float,
        since: float,
        tolerance: float,
    ) -> None:
        waits = [
            (float(wait), p, j)
            for p, of in enumerate(grown)
            for j, wait in enumerate(of.arrivals(noise, decay, 1 + decay * since))
            if ranks[p] < most[p] and math.isfinite(wait)
        ]
        waits.sort()
        self.duration = waits[0][0] if waits else math.inf
        doubt = tolerance * (since + self.duration)
        self.tied = [(p, j) for wait, p, j in waits if wait - self.duration <= doubt]
        later = waits[len(self.tied) :]
        self.margin = later[0][0] - self.duration if later else math.inf

    def departure(
        self, grown: Sequence[Growth], oracle: ProductLossOracle, start: Pairs | None
    ) -> LowRankDeparture | None:
        """Return what becomes active; None for a tie that the weights at the origin do not decide.

        Tied directions of one product grow as (p_j, q_j) a_j, where a_j is what the initial weights have along them:
        the product gains sum_jk p_j (a_j . a_k) q_k^T.
        """
        columns = []
        for p, ((m, n), of) in enumerate(zip(oracle.shapes, grown, strict=True)):
            among = [j for product, j in self.tied if product == p]
            left, right = of.U[:m, among], of.V[:n, among]
            if len(self.tied) > 1:
                if start is None:
                    return None
                overlaps = left.T @ start[p][0] + right.T @ start[p][1]
                turned, sizes, _ = np.linalg.svd(overlaps, full_matrices=False)
                left, right = left @ (turned * sizes), right @ (turned * sizes)
            columns.append((left, right))
        largest = max((float(np.linalg.norm(left, 2)) for left, _ in columns if left.size), default=0.0)
        sizes = [np.linalg.norm(left, axis=0) for left, _ in columns]
        if any(np.any(each <= _ABSENT * largest) for each in sizes):
            return None
        rate = max((float(grown[p].rate[j]) for p, j in self.tied), default=0.0) - oracle.decay
        return LowRankDeparture(tuple((left / largest, right / largest) for left, right in columns), rate)


def _stage(
    saddle: Saddle, grown: Sequence[Growth], time: float, entered: tuple[int, ...], margin: float, exponent: int
) -> LowRankStage:
    """Return a stage of the loss itself, from what was found for the loss divided by 2^exponent."""
    return LowRankStage(
        time=math.ldexp(time, -exponent),
        entered=entered,
        rank_drops=tuple(U.shape[1] for U, _ in saddle.removed),
        products=saddle.products,
        singular_values=tuple(s for _, s, _ in saddle.spectra),
        loss=math.ldexp(saddle.loss, exponent),
        rates=tuple(np.ldexp(of.rate, exponent) for of in grown),
        exponents=tuple(of.start for of in grown),
        margin=math.ldexp(margin, -exponent),
    )


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


def _initial_weights(weights: Sequence[tuple[ArrayLike, ArrayLike]], oracle: ProductLossOracle) -> Pairs:
    """Return the initial weights of all products.

    Raises:
        InputError: they are no finite matrices of the products' shapes with one number of columns, or not equal left
            and right for symmetric factors.
    """
    with calling("weights must hold a pair (left, right) of matrices for each product"):
        pairs = tuple(
            (as_float64("weights", np.array(left, np.float64)), as_float64("weights", np.array(right, np.float64)))
            for left, right in weights
        )
    columns = {factor.shape[1:] for pair in pairs for factor in pair}
    if [(len(left), len(right)) for left, right in pairs] != list(oracle.shapes) or len(columns.pop()) != 1 or columns:
        shapes = [(left.shape, right.shape) for left, right in pairs]
        raise InputError(
            f"weights must be matrices of the heights {list(oracle.shapes)} with one number of columns; got {shapes}."
        )
    if oracle.symmetric and any(not np.array_equal(left, right) for left, right in pairs):
        raise InputError("weights must be equal left and right for symmetric factors; got others.")
    return pairs


def _stay_symmetric(start: Pairs, oracle: ProductLossOracle) -> bool:
    """Return True if factors are equal left and right and the loss seems to keep them so: G is symmetric where B is.

    G is probed at 0, and where it has changed by its own size.
    """
    if any(not np.array_equal(left, right) for left, right in start):
        return False
    rng = np.random.default_rng(0)
    origin = tuple(np.zeros(shape) for shape in oracle.shapes)
    beside = tuple(A @ A.T for A in map(rng.standard_normal, oracle.shapes))
    slope = max(map(np.linalg.norm, oracle.value_and_force(origin)[1]))
    change = max(map(np.linalg.norm, oracle.hvp(origin, beside)))
    size = float(slope / change) if slope and change else 1.0
    for _ in range(_TRIALS):
        try:
            return max(oracle.asymmetry(at) for at in (origin, tuple(size * A for A in beside))) <= _ASYMMETRY
        except NonFiniteLossError:
            size /= 10
    return False


def _square(G: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "d d"]:
    m, n = G.shape
    return np.pad(G, ((0, max(m, n) - m), (0, max(m, n) - n)))
