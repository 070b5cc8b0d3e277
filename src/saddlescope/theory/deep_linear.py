"""Exact stages of deep linear networks from small weights: losses, ranks and escape speeds, for any data.

    X, T    inputs (d_in, N) and targets (d_out, N); functions take them as rows, (N, d_in) and (N, d_out)
    W       W_L ... W_1, the network; the loss is |W X - T|_F^2 / (2 N)
    M       T V, with X = U S V^T: the targets within the span of the inputs' rows
    m_i     singular values of M, descending, with left vectors u_i
    P_k     sum_{i <= k} u_i u_i^T

Gradient flow from small weights goes from saddle to saddle, the k-th of rank k. Products of rank at most k have one
local minimum only, up to ties, the best fit of that rank (reduced-rank regression; Eckart and Young):

    W_k = P_k T X^+ ,   loss_k = (|T|^2 - sum_{i <= k} m_i^2) / (2 N)

Other saddles have a set S of directions u_i other than the first k, which are best. Rank k + 1 is reached along the top
singular pair of G_k X^T, and where the inputs are not white that is no pair of M: a run may pass a saddle with another
S, if m_i of nearly the same size compete, and stay near it for some time before it turns to the best one.

So the levels depend on the data alone: neither on depth, nor on widths that are at least k, nor on the start. At the
saddle W_k the next direction grows as at the origin, with the gradient G_k = (W_k X - T) / N in place of G: G_k X^T
vanishes on the range of W_k, on either side. A network of depth L with linear layers, |theta|^2 = L, escapes fastest
along the top singular pair of G_k X^T, all layers of rank one, with its norm as speed, at every L.

Jacot, Ged, Simsek, Hongler, Gabriel 2021, "Saddle-to-saddle dynamics in deep linear networks"; for the times of aligned
starts Saxe, McClelland, Ganguli 2014, "Exact solutions to the nonlinear dynamics of learning in deep linear networks".
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import digamma, hyp2f1

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Axis, Line, Panel
from saddlescope.theory.escape.speed import validate_depth, validate_saddle


@dataclass(frozen=True, eq=False, repr=False)
class DeepLinearStages(TableMixin, PlotMixin):
    """Saddles that a deep linear network visits, in order, and its final fit.

    Attributes:
        losses: (stages,), loss_k of the best fit of rank k = 0, 1, ...: the levels of the plateaus.
        speeds: (stages,), the optimal escape speed |G_k X^T|_op at each; 0 where the rank cannot rise further.
        strengths: (stages - 1,), m_k, descending: the drop from rank k - 1 to k is m_k^2 / (2 N). Where two agree, the
            stages merge, since both directions are learned at once.
        directions: (d_out, stages - 1), the u_k.
        regression: (d_out, d_in), T X^+, the least-squares fit.
    """

    losses: Float[np.ndarray, "stages"]
    speeds: Float[np.ndarray, "stages"]
    strengths: Float[np.ndarray, "drops"]
    directions: Float[np.ndarray, "out drops"]
    regression: Float[np.ndarray, "out into"]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Rank of every layer in each stage: 0, 1, ..."""
        return tuple(range(len(self.losses)))

    def panel(self) -> Panel:
        """Return the loss of each plateau over its rank."""
        ranks = np.array(self.ranks)
        marks = (
            Line(x=ranks, y=self.losses, color=0, width=1.0),
            Line(x=ranks, y=self.losses, label="plateaus", style="points", color=0, width=3.0),
        )
        return Panel(x=Axis("rank"), y=Axis("loss"), marks=marks)

    def product(self, rank: int) -> Float[np.ndarray, "out into"]:
        """Return W_k, (d_out, d_in), the network's product at the saddle of this rank.

        Raises:
            InputError: no stage has this rank.
        """
        if not 0 <= rank < len(self.losses):
            raise InputError(f"rank must be between 0 and {len(self.losses) - 1}; got {rank!r}.")
        U = self.directions[:, :rank]
        return U @ (U.T @ self.regression)

    def __repr__(self) -> str:
        return f"DeepLinearStages(rank 0 to {self.ranks[-1]}, loss {self.losses[0]:.6g} to {self.losses[-1]:.6g})"

    def _table(self) -> Table:
        return ("rank", "loss", "escape speed"), zip(self.ranks, self.losses, self.speeds, strict=True)


@validate_arguments
def deep_linear_stages(inputs: ArrayLike, targets: ArrayLike, *, width: int | None = None) -> DeepLinearStages:
    """Predict the stages of deep linear networks of any depth, for half the mean squared error and small weights.

    Args:
        inputs: (N, d_in), a row per sample.
        targets: (N, d_out).
        width: the smallest hidden width, which bounds the rank; None: wide enough for every rank.

    Raises:
        InputError: they are no matrices with equally many rows, are not finite, or T X^T is 0: then the origin is no
            saddle of this kind, but a minimum; or a width below 1.

    >>> deep_linear_stages([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 1.0]]).losses.tolist()
    [1.25, 0.25, 0.0]
    """
    X, T = validate_saddle(inputs, targets, name="targets")
    if width is not None and width < 1:
        raise InputError(f"width must be at least 1; got {width!r}.")
    samples, roundoff = X.shape[1], max(X.shape) * np.finfo(float).eps
    U, S, Vt = np.linalg.svd(X, full_matrices=False)
    kept = roundoff * S[0] < S
    U, S, Vt = U[:, kept], S[kept], Vt[kept]
    M = T @ Vt.T
    left, strengths, right = np.linalg.svd(M, full_matrices=False)
    nonzero = strengths > roundoff * np.linalg.norm(T)
    if not nonzero[0]:
        raise InputError(
            "targets must not be orthogonal to the inputs: T X^T is 0, so the origin is no saddle of this kind."
        )
    left, strengths, right = left[:, nonzero], strengths[nonzero], right[nonzero]
    rank = len(strengths) if width is None else min(len(strengths), width)
    # Drops are added from the smallest up: |T|^2 - sum m_i^2 would cancel where the fit is good.
    missed = float(np.sum((T - M @ Vt) ** 2))
    losses = missed + np.append(np.cumsum(strengths[::-1] ** 2)[::-1], 0.0)[: rank + 1]
    speeds = np.zeros(rank + 1)  # 0 at the last stage: no direction remains, or no neuron
    for k in range(rank):
        speeds[k] = np.linalg.norm(strengths[k:, None] * right[k:] * S, 2) / samples
    return DeepLinearStages(losses / (2 * samples), speeds, strengths[:rank], left[:, :rank], (M / S) @ U.T)


def _gauss(b: float, z: float) -> float:
    """Return F(1, b; 1 + b; z); near 1 by its logarithm there, which SciPy takes as infinite in rounding."""
    if 1 - z < 1e-11:
        return b * (digamma(1.0) - digamma(b) - math.log(1 - z))
    return float(hyp2f1(1.0, b, 1 + b, z))


@validate_arguments
def aligned_time(speed: float, *, depth: int, initial: float, share: float, curvature: float = 1.0) -> float:
    """Return the exact time t at which gradient flow has learned a direction, where directions evolve separately.

    They do if X X^T / N = c I and the start is balanced and aligned: W_l = R_l D R_{l-1}^T with R_0 and R_L the
    singular vectors of T X^T, D of equal diagonals in all layers. Each entry a of D then follows

        da/dt = a^(L-1) (s - c a^L) ,   a^L -> s / c ,

    and with x = a (c/s)^(1/L) the time is given by the antiderivative of x^(1-L) / (1 - x^L), which is
    x^(2-L) F(1, (2-L)/L; 2/L; x^L) / (2-L) with Gauss's F, or log(x^2 / (1 - x^2)) / 2 for L = 2.

    Args:
        speed: s > 0, the direction's singular value of T X^T / N.
        depth: L, at least 2.
        initial: a at time 0, positive.
        share: of its final value s / c that a^L has at the end; above the initial one's, below 1. The loss is half-way
            down the direction's drop at the share 1 - 1/sqrt(2).
        curvature: c > 0.

    Returns:
        The time; infinity where it exceeds float64.

    Raises:
        InputError: a number out of range.

    >>> round(aligned_time(2.0, depth=2, initial=1e-3, share=0.5), 6)
    3.627164
    """
    depth = validate_depth(depth)
    for name, value in (("speed", speed), ("initial", initial), ("curvature", curvature)):
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be positive and finite; got {value!r}.")
    log_final = (math.log(speed) - math.log(curvature)) / depth
    log_start = depth * (math.log(initial) - log_final)  # of the share at time 0
    if not (0 < share < 1 and log_start < math.log(share)):
        first = math.exp(log_start) if log_start < 700 else math.inf
        raise InputError(f"share must be between the initial one, {first!r}, and 1; got {share!r}.")

    def antiderivative(log_share: float, share: float) -> float:
        if depth == 2:
            return (log_share - math.log1p(-share)) / 2 / speed
        with np.errstate(over="ignore"):
            size = np.exp((2 - depth) * (log_final + log_share / depth) - math.log(speed))
        return float(size * _gauss((2 - depth) / depth, share)) / (2 - depth)

    return antiderivative(math.log(share), share) - antiderivative(log_start, math.exp(log_start))
