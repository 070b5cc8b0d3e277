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

Products of more than two factors grow from given weights until one of them blows up (`deep_growth`).

Symmetric factors, B_p = U_p U_p^T, have the eigenvalues of G_p for rates (its symmetric part; Li, Luo and Lyu 2021).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from saddlescope.theory.low_rank.deep_growth import DeepGrowth, initial_chains
from saddlescope.theory.low_rank.loss_oracle import Matrices, ProductLossOracle
from saddlescope.theory.low_rank.pair_growth import PairGrowth
from saddlescope.theory.low_rank.plateau import InactiveGrowth, Plateau
from saddlescope.theory.low_rank.transition import Pairs, Saddle, follow_to_saddle
from saddlescope.theory.prediction import AlgorithmStatus, Prediction, check_limits, report_stage, rounding_of_slope
from saddlescope.theory.saddle.path import NonFiniteLossError

_ASYMMETRY = 1e-12  # share of the size of G that is rounding
_TRIALS = 10  # sizes at which G is looked for, each a tenth of the last


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LowRankStage(ReprMixin):
    """Stage k of incremental learning with full weights: a plateau at a saddle.

    Attributes:
        time: T_k, when the stage begins, in units of log(1/alpha); for a depth L above 2, of alpha^(2-L).
        entered: the products whose rank rose, each as often as it rose: one, unless several are tied; none for stage 0.
        rank_drops: for each product, the decrease of its rank in the transition.
        products: B_p at the saddle.
        singular_values: of each product, its active ones, descending.
        loss: L at the saddle, with the penalty of weight decay: the level of the plateau.
        rates: of each product, sigma outside its active directions, descending: their growth rates. Of symmetric
            factors those of either sign.
        exponents: of each product of two factors, the xi that each rate is paired with when the stage begins.
        margin: delay of the runner-up after T_k, in the unit of T; infinite without one. For a depth above 2, of
            another product.
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
        end: time at which the last stage ends, in the unit of T; infinite when learning has converged.
        status: termination status.
        message: the same in a sentence, with the cure for a failure.
        depth: number L of factors of each product.
    """

    stages: tuple[LowRankStage, ...]
    end: float
    status: AlgorithmStatus
    message: str
    depth: int = 2

    @property
    def time_unit(self) -> str:
        """Unit of all times."""
        return super().time_unit if self.depth == 2 else f"t alpha^{self.depth - 2}"

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
    depth: int = 2,
    weights: Sequence[Sequence[ArrayLike]] | None = None,
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
        depth: number L of factors of each product. Above 2, times depend on `weights`, and are t alpha^(L-2).
        weights: (left, right) of each product, shapes (m, h) and (n, h), before they are scaled by alpha; equal for
            symmetric factors, and such are found. They decide what becomes active in a tie at the origin. For a depth
            above 2, (W_1, ..., W_L) of each product W_L ... W_1; they decide every tie, but that of equal weights.
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
        InputError: an argument out of range, weights of other shapes, or none for a depth above 2; a loss that holds
            arrays of another type or is not finite and smooth at 0; symmetric=True and a gradient that is not
            symmetric at a saddle; symmetric=True or a weight decay for a depth above 2.

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
    if depth < 2:
        raise InputError(f"depth must be at least 2; got {depth!r}. For diagonal weights use incremental_learning.")
    if depth > 2 and (symmetric or weight_decay):
        raise InputError(
            f"symmetric and weight_decay must be off for a depth above 2; got {symmetric!r} and {weight_decay!r}. With "
            "weight decay nothing is learned there from vanishing weights."
        )
    oracle = ProductLossOracle(loss, shapes, symmetric=symmetric, weight_decay=weight_decay, depth=depth)
    if depth > 2:
        chains = initial_chains(weights, oracle)
        narrowest = min(W.shape[0] for chain in chains for W in chain[:-1])
        if width not in (None, narrowest):
            raise InputError(f"width must be the smallest of the weights, {narrowest}, or None; got {width!r}.")
        deep = partial(DeepGrowth, oracle, chains, tolerance=tolerance)
        return _learn(oracle, deep, narrowest, tolerance, max_stages, report)
    start = None if weights is None else _initial_weights(weights, oracle)
    if start is not None:
        columns = start[0][0].shape[1]
        if width not in (None, columns):
            raise InputError(f"width must be the number of columns of weights, {columns}, or None; got {width!r}.")
        width = columns
        oracle.symmetric = symmetric or _stay_symmetric(start, oracle)
    pairs = partial(PairGrowth, oracle, start, width, tolerance=tolerance)
    try:
        return _learn(oracle, pairs, width, tolerance, max_stages, report)
    except _AsymmetricForceError as error:
        if symmetric:
            raise InputError(
                "loss must have symmetric gradients at symmetric products for symmetric=True; got others at a product "
                f"of size {error.size:.3g}. Take the loss of (B + B.T) / 2, or symmetric=False."
            ) from None
        oracle.symmetric = False  # equal factors do not stay equal
        return _learn(oracle, pairs, width, tolerance, max_stages, report)


class _AsymmetricForceError(Exception):
    """G of symmetric factors that is not symmetric at a saddle, with the size of the products there."""

    def __init__(self, products: Matrices) -> None:
        self.size = max(float(np.max(np.abs(B))) for B in products)


def _learn(
    oracle: ProductLossOracle,
    growth_at: Callable[..., InactiveGrowth],
    width: int | None,
    tolerance: float,
    max_stages: int | None,
    report: Report,
) -> LowRankLearning:
    """Predict the stages, as `low_rank_learning` does, with what is not active at the origin for a noise of rates.

    Raises:
        _AsymmetricForceError: at a saddle, G of symmetric factors is not symmetric.
    """
    most = tuple(min(m, n, width or m) for m, n in oracle.shapes)
    origin = tuple(np.zeros(shape) for shape in oracle.shapes)
    spectra = tuple((np.zeros((m, 0)), np.zeros(0), np.zeros((0, n))) for m, n in oracle.shapes)
    nothing = tuple((np.zeros((m, 0)), np.zeros((n, 0))) for m, n in oracle.shapes)
    saddle = Saddle(origin, spectra, *oracle.value_and_force(origin), removed=nothing)
    noise = max(_rounding(oracle, saddle), tolerance * max(float(np.linalg.norm(G, 2)) for G in saddle.force))
    growth = growth_at(noise=noise)
    stages: list[LowRankStage] = []
    time, entered, margin = 0.0, (), math.inf
    while True:
        if oracle.symmetric and oracle.asymmetry(saddle.products) > tolerance:
            raise _AsymmetricForceError(saddle.products)
        plateau = growth.plateau(saddle, time)
        stages.append(_stage(saddle, plateau, time, entered, margin, oracle))
        if len(stages) > 1:
            ranks = stages[-1].ranks
            report_stage(report, stages, max_stages, active=f"ranks {ranks}", share=sum(ranks) / sum(most))
        end, departure = time + plateau.duration, plateau.departure
        shown = math.ldexp(end, -oracle.exponent)
        if not math.isfinite(end):
            status, message = (
                AlgorithmStatus.CONVERGED,
                plateau.why or "No direction outside the active ones has a force, or all are active.",
            )
        elif departure is None:
            status, message = AlgorithmStatus.TIE, f"At T = {shown:.6g} {plateau.why}"
        elif max_stages is not None and len(stages) > max_stages:
            status, message = (
                AlgorithmStatus.MAX_STAGES,
                f"Stopped after max_stages={max_stages} transitions.",
            )
        elif isinstance(found := follow_to_saddle(oracle, saddle.spectra, departure, plateau.outside), Saddle):
            growth.settle(plateau, saddle, found, end)
            entered = tuple(p for p, (left, _) in enumerate(departure.columns) for _ in range(left.shape[1]))
            saddle, time, margin = found, end, plateau.margin
            continue
        else:
            status, message = AlgorithmStatus(found.status), f"At T = {shown:.6g}: {found.reason}"
        return LowRankLearning(stages=tuple(stages), end=shown, status=status, message=message, depth=oracle.depth)


def _rounding(oracle: ProductLossOracle, origin: Saddle) -> float:
    """Return what rounding may leave of G(0)."""
    tops = [np.linalg.svd(G, full_matrices=False) for G in origin.force]
    first = int(np.argmax([sizes[0] for _, sizes, _ in tops]))
    U, _, Vt = tops[first]
    along = tuple(np.outer(U[:, 0], Vt[0]) if p == first else 0 * B for p, B in enumerate(origin.products))
    return rounding_of_slope(origin.loss, float(np.sum(along[first] * oracle.hvp(origin.products, along)[first])))


def _stage(
    saddle: Saddle, plateau: Plateau, time: float, entered: tuple[int, ...], margin: float, oracle: ProductLossOracle
) -> LowRankStage:
    """Return a stage of the loss itself, from what was found for the loss divided by 2^exponent."""
    exponent = oracle.exponent
    return LowRankStage(
        time=math.ldexp(time, -exponent),
        entered=entered,
        rank_drops=tuple(U.shape[1] for U, _ in saddle.removed),
        products=saddle.products,
        singular_values=tuple(s for _, s, _ in saddle.spectra),
        loss=math.ldexp(saddle.loss, exponent),
        rates=tuple(np.ldexp(rate, exponent) for rate in plateau.rates),
        exponents=plateau.exponents,
        margin=math.ldexp(margin, -exponent),
    )


def _initial_weights(weights: Sequence[Sequence[ArrayLike]], oracle: ProductLossOracle) -> Pairs:
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
