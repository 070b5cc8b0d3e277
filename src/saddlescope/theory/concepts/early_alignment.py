"""Early alignment: directions of the neurons of two-layer ReLU networks before any concept is learned, identity task.

    X        inputs (N, d), a row per sample; the network is x -> V relu(W x) = sum_i v_i relu(w_i.x), v_i and w_i (d,)
    M_w      E[1{w.x > 0} x x^T], the second moment of the samples that a neuron w is active on
    G(w)     E[relu(w.x) x] = M_w w, the gradient of F(w) = E[relu(w.x)^2] / 2
    L0       E[|x|^2] / 2, the loss |f(x) - x|^2 / 2 at the origin

While all weights are small, gradient flow is that of the homogeneous part of the loss, -sum_i v_i.G(w_i), and neurons
do not interact:

    dw/dt = M_w v,     dv/dt = M_w w .

The sum w + v grows and the difference w - v decays: input and output weights align with each other, v with G(w), and
then dw/dt = G(w) is the gradient flow of F. The direction of w tends to one that is extremal on the sphere,

    M_w w = lambda w,     which grows by e^(lambda t), lambda = 2 F(w) / |w|^2 = |G(w)| / |w| ,

the faster the larger lambda: on the identity task the escape speed of one neuron (`theory.escape`). On well separated
clusters those are the directions of the concepts, each with the samples on one side: a neuron that is active on several
clusters turns to the strongest of them, one that is inactive there to a weaker one. The component of another concept i
at the time of escape is of the order omega^(1 - lambda_i / lambda), omega the scale of the start.

Maennel, Bousquet, Gelly 2018, "Gradient descent quantizes ReLU network features", and appendix E.4 of the paper, which
proposes this extension to ReLU networks.
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
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import ReprMixin

_TOLERANCE = 1e-6  # of a step, relative: the flow has a kink wherever a neuron passes a sample, so less costs much more
_PATIENCE = 100.0  # in times in which the strongest concept grows by a factor e, besides its growth from the scale


@dataclass(frozen=True, eq=False, repr=False)
class EarlyAlignment(ReprMixin):
    """Neurons when the network leaves the origin, to leading order in its weights.

    Attributes:
        time: t, of gradient flow on E|f(x) - x|^2 / 2.
        first: w_i, (m, d).
        second: v_i, (m, d), columns of V.
        rates: lambda_i = |G(w_i)| / |w_i|, (m,), growth rate of each neuron.
    """

    time: float
    first: Float[np.ndarray, "m d"]
    second: Float[np.ndarray, "m d"]
    rates: Float[np.ndarray, "m"]

    @property
    def directions(self) -> Float[np.ndarray, "m d"]:
        """Directions w_i / |w_i|; 0 where a neuron has no weights."""
        sizes = np.linalg.norm(self.first, axis=1, keepdims=True)
        return self.first / np.where(sizes > 0, sizes, 1.0)

    @property
    def shares(self) -> Float[np.ndarray, "m"]:
        """Share of each neuron in the network: |v_i| |w_i| over the sum of all."""
        products = np.linalg.norm(self.first, axis=1) * np.linalg.norm(self.second, axis=1)
        return products / np.sum(products)


@validate_arguments
def early_alignment(inputs: ArrayLike, weights: Sequence[ArrayLike], *, drop: float) -> EarlyAlignment:
    """Follow every neuron by the homogeneous flow until the loss has fallen by a part of L0, to leading order.

    Args:
        inputs: X, (N, d), a row per sample.
        weights: W (m, d) and V (d, m), at time 0.
        drop: the part, between 0 and 1, small for the prediction to hold, such as .02; the network must start below it.

    Raises:
        InputError: inconsistent shapes, values that are not finite, a drop out of range, weights that are too large
            to start below it, or with which it is never reached, such as zeros.
    """
    if len(weights) != 2:
        raise InputError(f"weights must be W and V of a two-layer network; got {len(weights)!r} matrices.")
    X = real_array("inputs", inputs, (None, None))
    W, V = (real_array(f"{name} of weights", one, (None, None)) for name, one in zip("WV", weights, strict=True))
    if W.shape[1] != X.shape[1] or V.shape != W.shape[::-1]:
        raise InputError(
            f"weights must be W (m, d) and V (d, m), inputs (N, d) with d = {X.shape[1]}; got shapes {W.shape!r} and"
            f" {V.shape!r}."
        )
    first, second = W, V.T
    if not 0 < drop < 1:
        raise InputError(f"drop must be between 0 and 1; got {drop!r}.")
    m, d = first.shape
    wanted = drop * float(np.mean(np.sum(X**2, axis=1))) / 2
    start = np.concatenate([first.ravel(), second.ravel()])

    def moved(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w, v = state.reshape(2, m, d)
        gates = X @ w.T > 0
        pulled = (np.where(gates, X @ v.T, 0.0).T @ X) / len(X)
        grown = (np.where(gates, X @ w.T, 0.0).T @ X) / len(X)
        return pulled, grown

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        return np.concatenate([part.ravel() for part in moved(state)])

    def left(_: float, state: np.ndarray) -> float:
        return float(np.sum(state.reshape(2, m, d)[1] * moved(state)[1])) - wanted

    left.terminal = True  # type: ignore[attr-defined]
    size = float(np.linalg.norm(start))
    if left(0.0, start) >= 0:
        raise InputError(f"weights must start with less than drop={drop!r} of the loss learned. Use smaller ones.")
    top = float(np.linalg.eigvalsh(X.T @ X / len(X))[-1])
    patience = (_PATIENCE + max(0.0, -math.log(size)) if size > 0 else 0.0) / top if top > 0 else 0.0
    if not patience > 0:
        raise InputError("weights and inputs must not be 0, where no neuron grows.")
    flow = solve_ivp(
        velocity, (0.0, patience), start, method="RK45", rtol=_TOLERANCE, atol=0.01 * _TOLERANCE * size, events=left
    )
    if flow.status != 1:
        raise InputError(f"weights must grow until drop={drop!r} of the loss is learned; none did. Use other weights.")
    w, v = flow.y[:, -1].reshape(2, m, d)
    sizes = np.linalg.norm(w, axis=1)
    rates = np.linalg.norm(moved(flow.y[:, -1])[1], axis=1) / np.where(sizes > 0, sizes, 1.0)
    return EarlyAlignment(float(flow.t[-1]), w, v, rates)
