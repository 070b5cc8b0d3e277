"""Bounds that a large escape speed puts on ranks and ReLUs: Theorem 3.1, Propositions 3.3 and 3.4, one inequality.

    tail(A)   sum_{i>=2} s_i^2 / sum_i s_i^2 over the singular values of A = 1 - |A|_op^2 / |A|_F^2: 0 at rank one
    B         2 log(|X|_F |G|_F / s), the speed deficit: how far the speed is below its upper bound |X||G|

The inequality. For any weights with |theta|^2 <= L and a speed s > 0, optimal or not,

    sum_{l=0}^{L-1} log(|Zs_l|_F^2 / |Zs_l|_op^2) + sum_{l=1}^{L-1} log(|Z_l|_F^2 / |Zs_l|_F^2) <= B,    Zs_0 = X.

Both sums have terms of at least 0: the first ones are 0 at rank one, the second ones where ReLU does nothing. Proof:
|Z_l|_F = |W_l Zs_{l-1}|_F <= |W_l|_F |Zs_{l-1}|_op. Multiply over l = 1..L, with prod |W_l|_F^2 <= (|theta|^2/L)^L <= 1
by the inequality of the means:

    sum_{l=1}^{L} log|Z_l|_F^2 <= sum_{l=0}^{L-1} log|Zs_l|_op^2.

Subtract both sides from sum_{l=0}^{L-1} log|Zs_l|_F^2, move the terms of Z_1, ..., Z_{L-1} to the left, and use
s <= |G|_F |Z_L|_F for the remaining right side, log|X|_F^2 - log|Z_L|_F^2. It is an equality where every product
|W_l Zs_{l-1}|_F is |W_l|_F |Zs_{l-1}|_op, all |W_l|_F are 1, and Y is a multiple of -G.

Since log(|A|_F^2/|A|_op^2) = -log(1 - tail(A)) >= tail(A), Proposition 3.4 follows: it is this inequality without the
ReLU terms, by Markov's inequality.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.theory.escape.speed import on_sphere, validate_depth, validate_saddle, validate_weights


@dataclass(frozen=True, repr=False)
class LayerDeficits(ReprMixin):
    """Left side of the inequality, term by term.

    Attributes:
        rank: log(|Zs_l|_F^2 / |Zs_l|_op^2) for l = 0..L-1, (L,).
        relu: log(|Z_l|_F^2 / |Zs_l|_F^2) for l = 1..L-1, (L-1,); infinite where ReLU leaves nothing.
    """

    rank: Float[np.ndarray, "depth"]
    relu: Float[np.ndarray, "hidden"]

    @property
    def total(self) -> float:
        """Sum of all terms, at most the `speed_deficit`."""
        return float(self.rank.sum() + self.relu.sum())


@dataclass(frozen=True, repr=False)
class LayerRatios(ReprMixin):
    """Ratios that Theorem 3.1 and Proposition 3.3 bound, layer by layer; 0 for a matrix of zeros.

    Attributes:
        weights: tail(W_l) for l = 1..L, (L,).
        activations: tail(Zs_l) for l = 0..L-1, with the input first, (L,).
        relu: |Zs_l - Z_l|_F^2 / |Z_l|_F^2 for l = 1..L-1, (L-1,).
    """

    weights: Float[np.ndarray, "depth"]
    activations: Float[np.ndarray, "depth"]
    relu: Float[np.ndarray, "hidden"]


@validate_arguments
def speed_deficit(inputs: ArrayLike, gradients: ArrayLike, *, speed: float) -> float:
    """Return B = 2 log(|X|_F |G|_F / s), the right side of the inequality; at least 0.

    Args:
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.
        speed: s of weights with |theta|^2 <= L, positive and at most |X|_F |G|_F, which no such weights exceed.

    Raises:
        InputError: invalid inputs or gradients, see `validate_saddle`, or a speed out of its range.
    """
    largest = _largest(inputs, gradients)
    if not 0 < speed <= largest * (1 + 1e-12):
        raise InputError(f"speed must be positive and at most |X| |G| = {largest!r}; got {speed!r}.")
    return max(0.0, 2 * float(np.log(largest / speed)))


@validate_arguments
def layer_deficits(weights: Sequence[ArrayLike], inputs: ArrayLike, gradients: ArrayLike) -> LayerDeficits:
    """Return the left side of the inequality for a network; independent of the norm of its weights.

    Args:
        weights: W_1, ..., W_L.
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.

    Raises:
        InputError: inputs, gradients or weights are invalid, see `validate_saddle` and `validate_weights`.
    """
    before, after = _layers(weights, inputs, gradients)
    with np.errstate(divide="ignore"):
        rank = -np.log1p(-np.array([_tail(layer) for layer in after]))
        relu = -np.log1p(-_lost(before, after))
    return LayerDeficits(rank, relu)


@validate_arguments
def layer_ratios(weights: Sequence[ArrayLike], inputs: ArrayLike, gradients: ArrayLike) -> LayerRatios:
    """Return the ratios that Theorem 3.1 and Proposition 3.3 bound, for a network.

    Args:
        weights: W_1, ..., W_L.
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.

    Raises:
        InputError: inputs, gradients or weights are invalid, see `validate_saddle` and `validate_weights`.
    """
    before, after = _layers(weights, inputs, gradients)
    return LayerRatios(
        weights=np.array([_tail(np.asarray(weight, float)) for weight in weights]),
        activations=np.array([_tail(layer) for layer in after]),
        relu=_lost(before, after),
    )


@validate_arguments
def low_rank_activations(
    inputs: ArrayLike, gradients: ArrayLike, *, speed: float, depth: int, share: float
) -> tuple[float, int]:
    """Return the bound on tail(Zs_l), and the number of layers l = 0..L-1 that obey it, by Proposition 3.4.

    The proposition needs only the speed, and does not determine which layers they are. The paper counts layers without
    saying that the input, l = 0, is one of them; among the hidden layers there may be one fewer.

    Args:
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.
        speed: s > 0 of weights with |theta|^2 <= L.
        depth: L.
        share: p in (0, 1).

    Returns:
        The bound B / (p L) on the tail, and the least integer that is at least (1 - p) L.

    Raises:
        InputError: invalid arguments of `speed_deficit`; a depth below 2; a share outside (0, 1).
    """
    L = validate_depth(depth)
    if not 0 < share < 1:
        raise InputError(f"share must be between 0 and 1, both excluded; got {share!r}.")
    return speed_deficit(inputs, gradients, speed=speed) / (share * L), int(np.ceil((1 - share) * L - 1e-9))


@validate_arguments
def nearly_rank_one_bound(gradients: ArrayLike, *, speed: float, distance: float) -> float:
    """Return 8 |G| eps / (s* - |G| eps), which bounds every tail(W_l), tail(Zs_l) and |Zs_l - Z_l|^2 / |Z_l|^2.

    This is Proposition 3.3. It needs the optimal weights of their depth, and inputs X = u v^T + E with v >= 0 and
    |E|_F <= eps. (The paper also requires u >= 0, which its proof does not use.)

    Args:
        gradients: (N, d_out), the loss gradients at the zero output.
        speed: the optimal speed s*, positive.
        distance: eps, at least 0.

    Returns:
        The bound; infinite where s* <= |G| eps, and trivial from 1 on, since all three ratios are at most 1.

    Raises:
        InputError: G is no finite matrix, or a value is out of its range.
    """
    G = np.asarray(gradients, float)
    if G.ndim != 2 or not np.all(np.isfinite(G)):
        raise InputError(f"gradients must be a finite matrix (N, d_out); got shape {G.shape!r}.")
    if not 0 < speed < np.inf:
        raise InputError(f"speed must be positive and finite; got {speed!r}.")
    if not 0 <= distance < np.inf:
        raise InputError(f"distance must be at least 0 and finite; got {distance!r}.")
    return _eightfold(float(np.linalg.norm(G)) * distance / speed)


@validate_arguments
def optimal_layer_bound(inputs: ArrayLike, gradients: ArrayLike, *, speed: float, layer: int) -> float:
    """Return Theorem 3.1's bound 8 c l^(-1/2) / (1 - c l^(-1/2)) with c = (|X||G|/s*) sqrt(2 log(|X||G|/s*)).

    It needs the optimal weights of a depth L > l, and bounds tail(Zs_l) for l = 1..L-1. It also bounds tail(W_{l+1})
    and |Zs_{l+1} - Z_{l+1}|^2 / |Z_{l+1}|^2, one layer later than the paper states: the proof finds activations near
    rank one among layers 1 to l, and Proposition 3.3 then covers only the weights and ReLUs above them.

    Args:
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.
        speed: the optimal speed s*.
        layer: l, at least 1.

    Returns:
        The bound; infinite where the denominator is not positive. It is nontrivial only below 1, which is for l above
        `first_layer_with_content`.

    Raises:
        InputError: invalid arguments of `speed_deficit`; a layer below 1.
    """
    if layer < 1:
        raise InputError(f"layer must be at least 1; got {layer!r}.")
    return _eightfold(_constant(inputs, gradients, speed) / float(np.sqrt(layer)))


@validate_arguments
def first_layer_with_content(inputs: ArrayLike, gradients: ArrayLike, *, speed: float) -> float:
    """Return 81 c^2: Theorem 3.1's bound is below 1 only for l above it, as 8 x / (1 - x) < 1 exactly for x < 1/9.

    For Example 1 it is 114,985; it is below 10 only if s* exceeds .946 |X||G|.

    Args:
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.
        speed: the optimal speed s*.

    Raises:
        InputError: invalid arguments of `speed_deficit`.
    """
    return 81 * _constant(inputs, gradients, speed) ** 2


def _constant(inputs: ArrayLike, gradients: ArrayLike, speed: float) -> float:
    """Return the c of Theorem 3.1."""
    root = float(np.sqrt(speed_deficit(inputs, gradients, speed=speed)))  # raises for a speed out of its range
    return _largest(inputs, gradients) / speed * root


def _largest(inputs: ArrayLike, gradients: ArrayLike) -> float:
    """Return |X|_F |G|_F."""
    X, G = validate_saddle(inputs, gradients)
    return float(np.linalg.norm(X) * np.linalg.norm(G))


def _eightfold(part: float) -> float:
    return 8 * part / (1 - part) if part < 1 else float("inf")


def _layers(
    weights: Sequence[ArrayLike], inputs: ArrayLike, gradients: ArrayLike
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return Z_1, ..., Z_{L-1} and Zs_0, ..., Zs_{L-1}, for weights rescaled so that no product under- or overflows."""
    X, G = validate_saddle(inputs, gradients)
    before, after = [], [X]
    for weight in on_sphere(validate_weights(weights, X, G))[:-1]:
        before.append(weight @ after[-1])
        after.append(np.maximum(before[-1], 0.0))
    return before, after


def _tail(matrix: np.ndarray) -> float:
    spectrum = np.linalg.svd(matrix, compute_uv=False) ** 2
    total = spectrum.sum()
    return float(spectrum[1:].sum() / total) if total > 0 else 0.0


def _lost(before: list[np.ndarray], after: list[np.ndarray]) -> np.ndarray:
    """Return |Zs_l - Z_l|_F^2 / |Z_l|_F^2."""
    return np.array(
        [
            float(np.sum((activation - layer) ** 2) / total) if (total := np.sum(layer**2)) > 0 else 0.0
            for layer, activation in zip(before, after[1:], strict=True)
        ]
    )
