"""Search for escape directions of the origin from many random starts, with speeds and ranks layer by layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import MOST_LINES, AnyMark, Axis, Line, Mark, Panel
from saddlescope.measure import numerical_rank
from saddlescope.models.deep import layered_weights
from saddlescope.theory.escape.clarke_subgradient import clarke_residual
from saddlescope.theory.escape.network_reduction import reduce
from saddlescope.theory.escape.newton import refined
from saddlescope.theory.escape.speed import (
    Matrix,
    Network,
    speed_of,
    validate_depth,
    validate_saddle,
    validate_widths,
)
from saddlescope.theory.escape.sphere_descent import LearningRate, Stacked, sphere_descent

ROUGH = 1e-4  # tolerance of kinks, copies and dead neurons of directions known from descent only, to few digits
RANK = 1e-6  # singular values below this share of the largest do not count
_RECORDS = 80  # of the default grid
_DEEPEST = 1000  # layers


@dataclass(frozen=True, repr=False)
class EscapeDirections(TableMixin, PlotMixin):
    """Escape directions, one per start, width after width.

    Attributes:
        weights: W_1, ..., W_L, each (starts, n_l, n_{l-1}), on |rho|^2 = L, with zeros up to the largest width.
        widths: (starts,) hidden width of each start.
        speeds: (starts,) s = -L_0(rho).
        residuals: (starts,) distance of 0 from Clarke's subdifferential dL_0(rho) + s rho; where not refined, after
            copies are merged and dead neurons removed, with preactivations below 1e-4 taken to be 0; infinite where no
            neuron is left then.
        converged: (starts,) the residual vanishes: to machine precision where refined, else to 1e-3 of s sqrt(L).
        ranks: (starts, L) of W_l.
        steps: (records,) steps of the descent at which `curves` was recorded.
        curves: (starts, records) the speeds along the descent.
    """

    weights: Stacked
    widths: Int[np.ndarray, "starts"]
    speeds: Float[np.ndarray, "starts"]
    residuals: Float[np.ndarray, "starts"]
    converged: Bool[np.ndarray, "starts"]
    ranks: Int[np.ndarray, "starts depth"]
    steps: Int[np.ndarray, "records"]
    curves: Float[np.ndarray, "starts records"]

    @property
    def best(self) -> int:
        """Index of the fastest start; among those that converged, if any has."""
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

    def panel(self) -> Panel:
        """Return the speeds along the descent of every start, and the fastest one in bold."""
        best, speed = self.best, float(self.speeds[self.best])
        kept = [k for k in np.argsort(-self.speeds)[:MOST_LINES].tolist() if k != best]
        after = self.steps > 0
        steps, curves = self.steps[after], self.curves[:, after]
        marks: list[AnyMark] = [Line(x=steps, y=curves[k], color=5, width=0.8, opacity=0.5) for k in kept]
        marks.append(Line(x=steps, y=curves[best], color=0, width=2.4))
        ranks = ", ".join(map(str, self.ranks[best].tolist()))
        marks.append(Mark(at=speed, axis="y", label=f"{speed:.4g}, ranks {ranks}"))
        others = self.speeds[self.speeds < speed * (1 - 1e-3)]  # nearer ones are of the same direction
        if len(others):
            marks.append(Mark(at=float(others.max()), axis="y", label=f"{others.max():.4g}"))
        return Panel(x=Axis("step of the search", scale="log"), y=Axis("escape speed"), marks=tuple(marks))

    def direction(self, start: int) -> Network:
        """Return W_1, ..., W_L of one start."""
        return tuple(weight[start] for weight in self.weights)


@validate_arguments
def escape_directions(
    inputs: ArrayLike,
    gradients: ArrayLike,
    *,
    depth: int,
    widths: int | Sequence[int],
    num_starts: int,
    seed: int = 0,
    steps: int = 4000,
    learning_rate: LearningRate | None = None,
    record: Int[np.ndarray, "records"] | None = None,
    refine: bool = True,
    report: Report = silent,
) -> EscapeDirections:
    """Descend from random starts on the sphere |theta|^2 = L, then refine each result by Newton's method.

    Args:
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the gradient of the cost at the zero output: `LayeredLoss.gradient_at_origin`, or
            `gradient_at_zero` of any cost.
        depth: L, from 2 to 1000.
        widths: of all hidden layers, or several such widths, each of which is run.
        num_starts: number of starts for each width.
        seed: of the starts, which are normal and then rescaled to the sphere; each width has its own draw.
        steps: of the descent (`sphere_descent`).
        learning_rate: of the first step, from which it decays geometrically to a millionth; by default 0.03 up to depth
            6 and 0.01 beyond. Or a schedule, a function of JAX from the step to the rate.
        record: steps after which speeds are recorded, from 1 to `steps`, increasing; by default 80 evenly spaced ones.
        refine: whether to refine directions to machine precision by Newton's method.
        report: called with the finished fraction, after each batch of descents and each refinement.

    Raises:
        InputError: invalid inputs or gradients, see `validate_saddle`; a depth below 2; widths, starts or steps below
            1; steps to record that are not among those taken; or a learning rate that is not positive and finite.
    """
    X, G = validate_saddle(inputs, gradients)
    depth, each = validate_depth(depth), validate_widths(widths)
    if depth > _DEEPEST:
        raise InputError(f"depth must be at most {_DEEPEST}, since layers are compiled one by one; got {depth!r}.")
    for name, count in (("num_starts", num_starts), ("steps", steps)):
        if count < 1:
            raise InputError(f"{name} must be at least 1; got {count!r}.")
    rate = (0.03 if depth <= 6 else 0.01) if learning_rate is None else learning_rate
    if not (callable(rate) or 0 < rate < np.inf):
        raise InputError(f"learning_rate must be positive and finite; got {learning_rate!r}.")
    grid = np.unique(-(-np.arange(1, _RECORDS + 1) * steps // _RECORDS))
    stops = grid if record is None else np.asarray(record)
    whole = stops.ndim == 1 and stops.size > 0 and bool(np.all(stops == np.floor(stops)))
    if not (whole and stops[0] >= 1 and stops[-1] <= steps and np.all(np.diff(stops) > 0)):
        raise InputError(f"record must be increasing numbers of steps from 1 to steps={steps!r}; got {record!r}.")
    stops = stops.astype(int)
    descended, curves = sphere_descent(
        _starts(X, G, depth, each, num_starts, seed), X.T, G.T, steps=steps, learning_rate=rate, record=stops,
        report=lambda part, note: report(0.5 * part, note),
    )  # fmt: skip
    return measure_directions(
        descended, X, G, refine=refine, widths=np.repeat(each, num_starts), steps=stops, curves=curves,
        report=lambda part, note: report(0.5 + 0.5 * part, note),
    )  # fmt: skip


@in_float64
@validate_arguments
def gradient_at_zero(cost: Callable[[Array], Array], *, samples: int, outputs: int) -> Float[np.ndarray, "n out"]:
    """Return the gradient of a cost at the zero output, (N, d_out).

    Args:
        cost: from the outputs (N, d_out) to a number, in JAX.
        samples: N.
        outputs: d_out.

    Raises:
        InputError: fewer than one output or sample.
    """
    if outputs < 1 or samples < 1:
        raise InputError(f"outputs and samples must be at least 1; got {outputs!r} and {samples!r}.")
    with jax.enable_x64(True):
        return np.asarray(jax.grad(cost)(jnp.zeros((samples, outputs))))


def _starts(X: Matrix, G: Matrix, depth: int, widths: tuple[int, ...], count: int, seed: int) -> Stacked:
    """Draw normal weights, padded with zeros to the largest width."""
    largest = max(widths)
    shapes = [(largest, len(X)), *[(largest, largest)] * (depth - 2), (len(G), largest)]
    padded = tuple(np.zeros((len(widths) * count, *shape)) for shape in shapes)
    for n, width in enumerate(widths):
        with jax.enable_x64(True):
            drawn = layered_weights((len(X), *[width] * (depth - 1), len(G)), seed=seed + n, num_starts=count)
        for place, weight in zip(padded, drawn, strict=True):
            place[n * count : (n + 1) * count, : weight.shape[1], : weight.shape[2]] = np.asarray(weight)
    return padded


def measure_directions(
    weights: Stacked,
    X: Matrix,
    G: Matrix,
    *,
    refine: bool,
    widths: Int[np.ndarray, "starts"],
    steps: Int[np.ndarray, "records"],
    curves: Float[np.ndarray, "starts records"],
    report: Report,
) -> EscapeDirections:
    """Measure each network, X (d_in, N) and G (d_out, N), after refinement where `refine` is true."""
    networks, speeds, residuals, converged, ranks = [], [], [], [], []
    for start in range(len(widths)):
        network: Network = tuple(weight[start] for weight in weights)
        exact = refined(network, X, G) if refine else None
        if exact is not None:
            (network, residual), done = exact, True
        else:
            small = reduce(network, X, ROUGH)
            residual = np.inf if small is None else clarke_residual(small, X, G, ROUGH)
            done = not refine and residual < 1e-3 * speed_of(network, X, G) * np.sqrt(len(network))
        networks.append(network)
        speeds.append(speed_of(network, X, G))
        residuals.append(residual)
        converged.append(done)
        ranks.append([_rank(weight) for weight in network])
        report((start + 1) / len(widths), f"direction {start + 1} of {len(widths)}")
    return EscapeDirections(
        weights=tuple(np.stack(layer) for layer in zip(*networks, strict=True)),
        widths=widths,
        speeds=np.array(speeds),
        residuals=np.array(residuals),
        converged=np.array(converged),
        ranks=np.array(ranks),
        steps=steps,
        curves=curves,
    )


def _rank(weight: Matrix) -> int:
    values = np.linalg.svd(weight, compute_uv=False)
    return int(numerical_rank(values, level=RANK * float(values[0])))
