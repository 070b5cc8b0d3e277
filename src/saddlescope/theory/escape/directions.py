"""Escape directions of the origin, found from many random starts, and what each is like, layer by layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope.measure import nonlinearity, numerical_rank
from saddlescope.models.deep import layered_weights
from saddlescope.theory.escape.clarke_subgradient import clarke_residual
from saddlescope.theory.escape.network_reduction import reduce
from saddlescope.theory.escape.newton import polish as polished
from saddlescope.theory.escape.speed import Matrix, Network, checked_depth, checked_saddle, checked_widths, escape_speed
from saddlescope.theory.escape.sphere_descent import Stacked, sphere_descent

ROUGH = 1e-4  # tolerance of kinks, copies and the dead where directions are not polished, and so not known better
RANK = 1e-6  # singular values below this share of the largest do not count


@dataclass(frozen=True, repr=False)
class EscapeDirections(ReprMixin):
    """One direction a start, width after width.

    Attributes:
        weights: W_1, ..., W_L, each (starts, n_l, n_{l-1}), on |rho|^2 = L, with zeros up to the largest width.
        widths: (starts,) hidden width of each start.
        speeds: (starts,) s = -L_0(rho).
        residuals: (starts,) `clarke_residual`; where not polished, after copies are merged and the dead removed, with
            preactivations below 1e-4 taken to be 0; infinite where nothing is left then.
        converged: (starts,) the residual vanishes: to machine precision where polished, else to 1e-3 of s sqrt(L).
        ranks: (starts, L) of W_l.
        linearity: (starts, L - 1) |Zs_l - Z_l|_F / |Z_l|_F of the hidden layers: 0 where ReLU changes nothing.
        steps: (marks,) of the descent, at which `curves` was recorded.
        curves: (starts, marks) the speeds along the descent.
    """

    weights: Stacked
    widths: Int[np.ndarray, "starts"]
    speeds: Float[np.ndarray, "starts"]
    residuals: Float[np.ndarray, "starts"]
    converged: Bool[np.ndarray, "starts"]
    ranks: Int[np.ndarray, "starts depth"]
    linearity: Float[np.ndarray, "starts hidden"]
    steps: Int[np.ndarray, "marks"]
    curves: Float[np.ndarray, "starts marks"]

    @property
    def best(self) -> int:
        """The fastest start; among those that converged, if any has."""
        return int(np.argmax(np.where(self.converged | ~self.converged.any(), self.speeds, -np.inf)))

    def __repr__(self) -> str:
        return (
            f"EscapeDirections({len(self.speeds)} starts of depth {len(self.weights)}, "
            f"{int(np.sum(self.converged))} converged; the fastest: speed {self.speeds[self.best]:.6g}, ranks "
            f"{tuple(self.ranks[self.best].tolist())})"
        )

    def _table(self) -> Table:
        fastest = np.argsort(-self.speeds)
        rows = (
            (k, self.widths[k], self.speeds[k], self.residuals[k], bool(self.converged[k]), tuple(self.ranks[k]))
            for k in fastest
        )
        return ("start", "width", "speed", "residual", "converged", "ranks"), rows

    def direction(self, start: int) -> Network:
        """W_1, ..., W_L of one start."""
        return tuple(weight[start] for weight in self.weights)


@validate_arguments
def escape_directions(
    inputs: ArrayLike,
    gradients: ArrayLike,
    *,
    depth: int,
    widths: int | Sequence[int],
    starts: int,
    seed: int = 0,
    steps: int = 4000,
    rate: float | None = None,
    marks: int = 80,
    polish: bool = True,
) -> EscapeDirections:
    """Descends from random starts on the sphere |theta|^2 = L, then polishes what each has come to.

    Args:
        inputs: X (d_in, N), a column a sample.
        gradients: G (d_out, N), the gradient of the cost at the zero output: `LayeredLoss.gradient_at_origin`, or
            `gradient_at_zero` of any cost.
        depth: L, at least 2.
        widths: of all hidden layers, or several such widths, each of which is run.
        starts: how many, for each width.
        seed: of the starts, which are normal and then brought to the sphere; each width has its own.
        steps: of the descent (`sphere_descent`), at least `marks`; rounded down to a multiple of it.
        rate: of its first step; by default 0.03 up to depth 6 and 0.01 beyond.
        marks: how many speeds to record along each descent.
        polish: whether to go on to machine precision (`polish`).

    Raises:
        InputError: what `escape_speed` refuses, a depth below 2, widths, starts or marks below 1, fewer steps than
            marks, or a rate that is not positive and finite.
    """
    X, G = checked_saddle(inputs, gradients)
    depth, each = checked_depth(depth), checked_widths(widths)
    for name, count, least in (("starts", starts, 1), ("marks", marks, 1), ("steps", steps, marks)):
        if count < least:
            raise InputError(f"{name} must be at least {least}; got {count!r}.")
    first = (0.03 if depth <= 6 else 0.01) if rate is None else rate
    if not 0 < first < np.inf:
        raise InputError(f"rate must be positive and finite; got {rate!r}.")
    steps -= steps % marks
    start = _starts(X, G, depth, each, starts, seed)
    descended, curves = sphere_descent(start, X, G, steps=steps, rate=first, marks=marks)
    return described(
        descended,
        X,
        G,
        polish=polish,
        widths=np.repeat(each, starts),
        steps=np.arange(1, marks + 1) * (steps // marks),
        curves=curves,
    )


@validate_arguments
def gradient_at_zero(cost: Callable[[Array], Array], outputs: int, samples: int) -> Matrix:
    """G of any cost: its gradient at the zero output.

    Args:
        cost: from the outputs Y (d_out, N) to a number, in JAX.
        outputs: d_out.
        samples: N.

    Raises:
        InputError: fewer than one output or sample.
    """
    if outputs < 1 or samples < 1:
        raise InputError(f"outputs and samples must be at least 1; got {outputs!r} and {samples!r}.")
    with jax.enable_x64(True):
        return np.asarray(jax.grad(cost)(jnp.zeros((outputs, samples))))


def _starts(X: Matrix, G: Matrix, depth: int, widths: tuple[int, ...], starts: int, seed: int) -> Stacked:
    """Normal weights, padded with zeros to the largest width."""
    largest = max(widths)
    shapes = [(largest, len(X)), *[(largest, largest)] * (depth - 2), (len(G), largest)]
    padded = tuple(np.zeros((len(widths) * starts, *shape)) for shape in shapes)
    for n, width in enumerate(widths):
        with jax.enable_x64(True):
            drawn = layered_weights((len(X), *[width] * (depth - 1), len(G)), seed=seed + n, starts=starts)
        for place, weight in zip(padded, drawn, strict=True):
            place[n * starts : (n + 1) * starts, : weight.shape[1], : weight.shape[2]] = np.asarray(weight)
    return padded


def described(
    weights: Stacked,
    X: Matrix,
    G: Matrix,
    *,
    polish: bool,
    widths: Int[np.ndarray, "starts"],
    steps: Int[np.ndarray, "marks"],
    curves: Float[np.ndarray, "starts marks"],
) -> EscapeDirections:
    """Polishes each network, if asked to, and measures it."""
    networks, speeds, residuals, converged, ranks, linearity = [], [], [], [], [], []
    for start in range(len(widths)):
        network: Network = tuple(weight[start] for weight in weights)
        speed = escape_speed(network, X, G)
        exact = polished(network, X, G) if polish else None
        if exact is not None and exact.converged:
            network, speed, residual = exact.weights, exact.speed, exact.residual
            done = True
        else:
            small = reduce(network, X, ROUGH)
            residual = np.inf if small is None else clarke_residual(small, X, G, tolerance=ROUGH)
            done = not polish and residual < 1e-3 * speed * np.sqrt(len(network))
        networks.append(network)
        speeds.append(speed)
        residuals.append(residual)
        converged.append(done)
        ranks.append([_rank(weight) for weight in network])
        linearity.append(_linearity(network, X))
    return EscapeDirections(
        weights=tuple(np.stack(layer) for layer in zip(*networks, strict=True)),
        widths=widths,
        speeds=np.array(speeds),
        residuals=np.array(residuals),
        converged=np.array(converged),
        ranks=np.array(ranks),
        linearity=np.array(linearity),
        steps=steps,
        curves=curves,
    )


def _rank(weight: Matrix) -> int:
    values = np.linalg.svd(weight, compute_uv=False)
    return int(numerical_rank(values, level=RANK * float(values[0])))


def _linearity(weights: Network, X: Matrix) -> list[float]:
    hidden, found = X, []
    for weight in weights[:-1]:
        z = weight @ hidden
        found.append(float(nonlinearity(z)))
        hidden = np.maximum(z, 0.0)
    return found
