"""Times at which deeper linear networks learn each concept, from small weights.

    L       depth, at least 2; the map is W = W_L ... W_1, with independent layers
    a_k     strengths of the concepts, the eigenvalues of A, (d,); W in the eigenbasis of A
    omega   scale of the weights at the start
    t       time of gradient flow on the loss of equation 4.1, as for the symmetric network, whose two tied layers learn
            twice as fast as two independent layers

Balanced diagonal starts, W_l(0) = diag(u), decouple exactly: each w_kk = u_k^L follows w' = L a_k w^(2 - 2/L) (1 - w).
At depth 2 its time to 1/2 grows as log(1/w) / (2 a_k), so that strengths determine the order of learning; beyond, as
w^(2/L - 1) / ((L - 2) a_k), and the concept with the larger a_k w_kk^(1 - 2/L) comes first, even if it is weaker.

From any other small start the concepts are learned by successive elimination:

1. Far below 1, W follows the flow of the homogeneous part of the loss, -tr(A W), which has no scale and blows up, for
   almost all starts along one concept k: W_l is about c x_l x_(l-1)^T, with unit vectors x_l, x_0 = x_L = e_k.
2. That concept saturates, as in the aligned case: w_kk = 1/2 comes at the time when the homogeneous flow has w_kk = 1,
   plus a constant that depends on L, over a_k.
3. Then the layers' components along this path are fixed by the learned concept, to leading order. The orthogonal ones
   continue in the homogeneous flow of the other concepts: back to 1, with x_l projected out of the outputs of every
   W_l, and x_(l-1) out of its inputs.

A weaker concept that is learned before a stronger one is lost again. Between the two, with strengths a < b, the last
layer's component from the learned path to the stronger concept's output, and the first layer's from its input, follow

    d/dt (p, q) = (-a p + b q, b p - b q),     which grows by e^(r t), r = (sqrt((b - a)^2 + 4 b^2) - a - b) / 2,

so that the path of rank one turns to the stronger concept, in a time of the order log(1/omega), and the weaker one is
forgotten. Stages after that are not predicted here.

At depth 2 step 1 is linear, (W_2 + W_1^T) / 2 grows by e^(a_k t) in row k, and step 3 leaves the Schur complements of
`saddlescope.theory.concepts.stages`. Beyond depth 2 all stage times are of the order omega^(2 - L), and there is no
closed form. It is the leading order for small omega: minor entries, of the size omega^(1 - a_i / a_k), are neglected.

This extends section 4.2 and appendix E.4 of the paper, which leaves deeper networks to future work; for diagonal
starts see Saxe, McClelland, Ganguli 2014, "Exact solutions to the nonlinear dynamics of learning in deep linear
networks".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure.stages import Staircase
from saddlescope.theory.concepts.arguments import validate_strengths
from saddlescope.theory.concepts.stages import concept_staircase
from saddlescope.theory.deep_linear import aligned_time
from saddlescope.theory.escape.speed import validate_weights

_Layers = list[Float[np.ndarray, "_ _"]]

_TOLERANCE = 1e-10  # of a step of the homogeneous flow, relative
_ROUNDING = 1e-12  # of the start's norm: a layer of a smaller norm counts as 0
_PATIENCE = 200.0  # in times in which the weakest concept grows by a factor e: later growth is excluded


@dataclass(frozen=True, eq=False, repr=False)
class DeepStages(ReprMixin):
    """Predicted stages of a start.

    Attributes:
        strengths: a, (d,).
        times: t at which w_kk = 1/2, in the order of the given strengths, (d,); infinite for concepts never learned.
        order: the concepts in the order in which they are learned.
        alignments: for each of these |w_kk| over |W|_F in the homogeneous flow where w_kk is 1: close to 1 where the
            prediction holds. Lower where the start is too large, or two concepts are nearly equally strong.
    """

    strengths: Float[np.ndarray, "d"]
    times: Float[np.ndarray, "d"]
    order: tuple[int, ...]
    alignments: Float[np.ndarray, "learned"]

    @property
    def kept(self) -> bool:
        """True if stronger concepts come before weaker ones; where one does not, the times after it are invalid."""
        return bool(np.all(np.diff(self.strengths[list(self.order)]) < 0))

    @property
    def staircase(self) -> Staircase:
        """Stages between the times, with the loss of equation 4.1 on each plateau and its concepts as support.

        Raises:
            InputError: a weaker concept comes before a stronger one, and is forgotten.
        """
        if not self.kept:
            raise InputError(
                f"Concepts must be learned from the strongest on; got the order {self.order!r}: a weaker one that "
                "comes first is forgotten. Start from smaller or other weights."
            )
        return concept_staircase(self.strengths, self.times, self.order)


@validate_arguments
def deep_stages(strengths: ArrayLike, weights: Sequence[ArrayLike], *, report: Report = silent) -> DeepStages:
    """Predict the stages from a small start of a deep linear network, by successive elimination.

    Args:
        strengths: a, (d,), at least 0, no two positive ones equal.
        weights: W_1, ..., W_L at time 0 in the eigenbasis of A, of any hidden widths; the first has d columns, the last
            d rows. A network narrower than the concepts learns only some of them.
        report: called with the fraction of concepts learned, after each stage.

    Raises:
        InputError: inconsistent shapes, values that are not finite, two equal strengths, a depth below 2, a layer of
            zeros, or a start that is not small: an entry w_kk of 1/2 or above.
    """
    a = validate_strengths(strengths, distinct=True)
    layers = _validate_layers(weights, a)
    depth, positive = len(layers), int(np.sum(a > 0))
    least = _ROUNDING * _norm(layers)
    times, order, alignments, now = np.full(len(a), math.inf), [], [], 0.0
    left = a.copy()
    while np.any(left > 0) and min(np.linalg.norm(layer) for layer in layers) > least:
        grown = _grown(layers, left)
        if grown is None:
            break
        layers, duration = grown
        W = _product(layers)
        k = int(np.argmax(np.where(left > 0, np.diag(W), -math.inf)))
        now += duration
        times[k] = now + _saturation(depth) / a[k]
        order.append(k)
        alignments.append(abs(W[k, k]) / np.linalg.norm(W))
        layers, left[k] = _without(layers, k), 0.0
        report(len(order) / positive, f"concept {k} at t = {times[k]:.4g}")
    return DeepStages(a, times, tuple(order), np.array(alignments))


def _grown(layers: _Layers, strengths: Float[np.ndarray, "d"]) -> tuple[_Layers, float] | None:
    """Return the layers when the homogeneous flow reaches w_kk = 1 for some k, and its time; None if it never does.

    The flow is followed in the time s with dt = (|theta|^2 / L)^(1 - L/2) ds, in which it does not blow up, but grows
    exponentially, by e^(a_k s) in each layer along concept k.
    """
    depth, shapes = len(layers), [layer.shape for layer in layers]
    ends = np.cumsum([0, *(layer.size for layer in layers)])
    kept = strengths > 0

    def unpacked(state: np.ndarray) -> _Layers:
        return [state[ends[n] : ends[n + 1]].reshape(shape) for n, shape in enumerate(shapes)]

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        now = unpacked(state)
        below = [np.eye(shapes[0][1])]
        for layer in now[:-1]:
            below.append(layer @ below[-1])
        above, slopes = np.diag(strengths), []
        for layer, under in zip(reversed(now), reversed(below), strict=True):
            slopes.append(above @ under.T)
            above = layer.T @ above
        pace = (float(state[:-1] @ state[:-1]) / depth) ** (1 - depth / 2)
        return np.concatenate([pace * slope.ravel() for slope in reversed(slopes)] + [np.array([pace])])

    def learned(_: float, state: np.ndarray) -> float:
        return float(np.max(np.diag(_product(unpacked(state)))[kept])) - 1.0

    learned.terminal = True  # type: ignore[attr-defined]
    start, size = np.concatenate([layer.ravel() for layer in layers] + [np.zeros(1)]), _norm(layers)
    if learned(0.0, start) >= 0:
        return layers, 0.0
    patience = _PATIENCE * (1 + max(0.0, -math.log(size))) / float(strengths[kept].min())
    # Errors must be small against the start, from which the weaker concepts grow, and against the elapsed time.
    floors = np.full(start.size, _TOLERANCE * size)
    floors[-1] = _TOLERANCE * size ** (2 - depth) / float(strengths.max())
    flow = solve_ivp(velocity, (0.0, patience), start, method="DOP853", rtol=_TOLERANCE, atol=floors, events=learned)
    if flow.status != 1:
        return None
    return unpacked(flow.y[:, -1]), float(flow.y[-1, -1])


def _saturation(depth: int) -> float:
    """Return the time from w = 1 of the homogeneous flow of an aligned concept of strength 1 to w = 1/2 of the flow."""
    small = 1e-3  # corrections are of the order small^2
    homogeneous = -math.log(small) if depth == 2 else (small ** (2 - depth) - 1) / (depth - 2)
    return aligned_time(1.0, depth=depth, initial=small, share=0.5) - homogeneous


def _without(layers: _Layers, concept: int) -> _Layers:
    """Return the layers without their components along the path of rank one by which they learned a concept."""
    forward = [np.eye(layers[0].shape[1])[concept]]
    for layer in layers[:-1]:
        forward.append(_unit(layer @ forward[-1]))
    backward = [np.eye(layers[-1].shape[0])[concept]]
    for layer in reversed(layers[1:]):
        backward.append(_unit(layer.T @ backward[-1]))
    # Both sides agree to leading order; their mean is that of W_1 and W_2^T at depth 2.
    path = [forward[0], *(_unit(f + b) for f, b in zip(forward[1:], backward[:0:-1], strict=True)), backward[0]]
    return [
        (layer - np.outer(layer @ into, into)) - np.outer(out, out @ (layer - np.outer(layer @ into, into)))
        for layer, into, out in zip(layers, path[:-1], path[1:], strict=True)
    ]


def _product(layers: _Layers) -> Float[np.ndarray, "d d"]:
    W = layers[0]
    for layer in layers[1:]:
        W = layer @ W
    return W


def _norm(layers: _Layers) -> float:
    return math.sqrt(sum(float(np.sum(layer**2)) for layer in layers))


def _unit(vector: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return vector / np.linalg.norm(vector)


def _validate_layers(weights: Sequence[ArrayLike], strengths: Float[np.ndarray, "d"]) -> _Layers:
    layers = list(validate_weights(weights, np.diag(strengths), np.diag(strengths)))
    if not all(layer.any() for layer in layers):
        raise InputError("weights must have no layer of zeros, which stays 0.")
    most = float(np.max(np.diag(_product(layers))[strengths > 0], initial=0.0))
    if most >= 0.5:
        raise InputError(f"weights must be small, with w_kk below 1/2; got {most!r}.")
    return layers
