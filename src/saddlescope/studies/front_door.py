"""One front door: the prediction that fits what a network is, and the simulation that fits the prediction.

| what is given | what the network is | predicted by | simulated by |
|---|---|---|---|
| a loss of beta, with `size` | diagonal weights, beta = u * v | `incremental_learning` | `gradient_flow` |
| a loss of products, with `shapes` | full factors, B = L R^T | `low_rank_learning` | `factored_flow` |
| the same, with a `depth` above 2 | full factors, B = W_L ... W_1 | `low_rank_learning` | `gradient_flow` |
| a unit with data and loss, with `parameters` | a sum of units | `unit_learning` | `unit_flow` |
| a `LayeredLoss`, with `widths` | layers without biases | `escape_directions` | `escape_flow` |
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PyTree

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.flow import (
    DiagonalInit,
    EscapeFlow,
    FactoredTrajectory,
    FactorInit,
    ParameterInit,
    Trajectory,
    UnitTrajectory,
    escape_flow,
    factored_flow,
    gradient_flow,
    unit_flow,
)
from saddlescope.measure.stages import Staircase
from saddlescope.models.deep import LayeredLoss, layered_weights
from saddlescope.theory import (
    EscapeDirections,
    IncrementalLearning,
    LowRankLearning,
    UnitLearning,
    escape_directions,
    incremental_learning,
    low_rank_learning,
    unit_learning,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Run = Trajectory | FactoredTrajectory | UnitTrajectory | EscapeFlow

_STARTS = 64  # of a search for escape directions
_SLOWER = 50  # times as long as along the fastest direction: the longest escape that is followed
_LATER = 1.2  # stages begin later than in the limit by a few e-folds: part of the last time that is simulated


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Prediction(TableMixin):
    """A prediction, with the reason why this one was made.

    Attributes:
        network: what the network is, in words.
        by: the argument that says so, and the function that predicts.
        result: what that function returned.
        flow: the simulation, a function of log_scale and of the arguments of `simulate`.
    """

    network: str
    by: str
    result: IncrementalLearning | LowRankLearning | UnitLearning | EscapeDirections
    flow: Callable[..., Run]

    def __repr__(self) -> str:
        return f"{self.network} ({self.by}): {self.result!r}"

    def _table(self) -> Table:
        return self.result._table()

    @property
    def message(self) -> str:
        """Why the prediction ended, and what to pass; empty for escape directions."""
        return getattr(self.result, "message", "")

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the result with Matplotlib, on axes or those of a new figure, and return them."""
        return self.result.plot(ax)

    @property
    def staircase(self) -> Staircase:
        """The predicted stages, to be compared with those of a run.

        Raises:
            InputError: these are escape directions, which say how the first plateau is left and no more.
        """
        if isinstance(self.result, EscapeDirections):
            raise InputError("A staircase must be asked of predicted stages; got escape directions, which have none.")
        return self.result.staircase


@in_float64
@validate_arguments
def predict(
    network: Callable[..., Any],
    data: tuple[PyTree, PyTree] | None = None,
    loss: Callable[[Any, Any], Any] | None = None,
    *,
    size: int | None = None,
    shapes: Sequence[tuple[int, int]] | None = None,
    parameters: PyTree = None,
    widths: Sequence[int] | None = None,
    weights: Any = None,
    seed: int = 0,
    report: Report = silent,
    **options: Any,
) -> Prediction:
    """Predict how a network learns from small weights, by the theorem that fits what the network is.

    One of `size`, `shapes`, `parameters` and `widths` says what it is (see `saddlescope.studies.front_door`).

    Args:
        network: with `size`, the loss, a function of beta = u * v; with `shapes`, the loss, a function of the tuple of
            products; with `parameters`, one unit(theta, x); with `widths`, a `LayeredLoss`.
        data: of a sum of units, (inputs, targets).
        loss: of a sum of units, loss(output, target) of one sample.
        size: number of diagonal weights p.
        shapes: (m, n) of each product of full factors.
        parameters: a pytree with the shapes of one unit's weights.
        widths: n_1, ..., n_(L-1), of the hidden layers of a network of depth L.
        weights: initial weights before they are scaled by alpha: (u, v); a pair (left, right), or W_1, ..., W_L, for
            each product; units along a leading axis; or W_1, ..., W_L. All but those of a `LayeredLoss` are used by the
            prediction, too. None: normal ones for the simulation, and for a prediction that needs them.
        seed: of the weights drawn for None, and of a search for escape directions.
        report: called with the finished fraction and a note.
        **options: more arguments of the predicting function. With `kinds=p` and `width=1` the "unit" (theta, x, kind)
            is a group of weights of its own: other functions of each than u * v, such as u**3 - v**3.

    Raises:
        InputError: it is not clear what the network is, or the predicting function refuses an argument.

    >>> import jax.numpy as jnp
    >>> predicted = predict(lambda beta: jnp.sum((beta - jnp.array([2.0, 1.0])) ** 2) / 2, size=2)
    >>> run = simulate(predicted, log_scale=-200.0)
    >>> print(predicted)
    diagonal weights (by size, incremental_learning): IncrementalLearning(3 stages to T = 1, loss 2.5 to 0, converged)
      stage  T    enter  leave  active  loss
      0      0    ()     ()     0       2.5
      1      0.5  (0,)   ()     1       0.5
      2      1    (1,)   ()     2       0
    No coordinate outside the support has a gradient.
    >>> bool(run.losses[-1] < 1e-6)
    True
    """
    said = {"size": size, "shapes": shapes, "parameters": parameters, "widths": widths}
    kinds = [name for name, value in said.items() if value is not None]
    if len(kinds) != 1:
        raise InputError(
            "Exactly one of size (diagonal weights), shapes (full factors), parameters (a sum of units) and widths "
            f"(layers) must say what the network is; got {' and '.join(kinds) or 'none'}."
        )
    if (data is None) == (kind := kinds[0] == "parameters") or (loss is None) == kind:
        raise InputError(
            f"data and loss must be given with parameters, and only then; got {kinds[0]}. Elsewhere the loss has its "
            "data, as DiagonalNetwork(h, x, y, loss)."
        )
    options |= {"report": report}
    if size is not None:
        return _diagonal(network, size, weights, seed, options)
    if shapes is not None:
        return _factors(network, shapes, weights, seed, options)
    if widths is not None:
        return _layers(network, widths, weights, seed, options)
    assert data is not None
    assert loss is not None
    return _units(network, data, loss, parameters, weights, seed, options)


@in_float64
@validate_arguments
def simulate(
    prediction: Prediction,
    *,
    log_scale: float,
    until: float | None = None,
    tolerance: float = 1e-6,
    **options: Any,
) -> Run:
    """Follow the gradient flow of a predicted network from weights of size alpha.

    Args:
        prediction: what `predict` returned.
        log_scale: the natural logarithm of alpha, below 0; of layers, that of the norm of all weights.
        until: the last time, in the unit of the flow. None: a fifth later than the last predicted stage begins, or when
            the weights of layers have reached norm 1. Deep factors have the flow's t, not the prediction's T:
            `Staircase.rescaled` turns one into the other.
        tolerance: the flow's own.
        **options: more arguments of the flow: `gradient_flow`, `factored_flow`, `unit_flow` or `escape_flow`.

    Raises:
        InputError: the flow refuses an argument, or nothing is predicted to be learned and no last time is given.
        FlowError: the run ended early; its result is kept.
    """
    if until is None:
        until = _end(prediction.result, log_scale)
    return prediction.flow(log_scale, until=until, tolerance=tolerance, **options)


def _require_flow(options: dict[str, Any]) -> None:
    if options.get("weight_decay"):
        raise InputError(
            "weight_decay must be 0 for a simulation from vanishing weights; got a prediction with another. Pass the "
            "loss with its penalty to gradient_flow, from a ParameterInit."
        )


def _end(result: IncrementalLearning | LowRankLearning | UnitLearning | EscapeDirections, log_scale: float) -> float:
    if isinstance(result, EscapeDirections):
        return _SLOWER * -log_scale / float(result.speeds[result.best])
    last, unit = result.stages[-1].time, 1.0
    if isinstance(result, LowRankLearning):
        unit = math.exp((2 - result.depth) * log_scale)
    if last > 0:
        return unit * min(_LATER * last, result.end)
    if math.isfinite(result.end):
        return unit * result.end
    raise InputError("until must be a time where no stage is predicted after the first; got None.")


def _diagonal(loss: Any, size: int, weights: Any, seed: int, options: dict[str, Any]) -> Prediction:
    found = incremental_learning(loss, size, weights=weights, **options)
    u, v = np.random.default_rng(seed).standard_normal((2, size)) if weights is None else weights

    def flow(log_scale: float, **given: Any) -> Trajectory:
        _require_flow(options)
        return gradient_flow(loss, DiagonalInit(u, v, log_scale=log_scale), **given)

    return Prediction(network="diagonal weights", by="by size, incremental_learning", result=found, flow=flow)


def _factors(
    loss: Any, shapes: Sequence[tuple[int, int]], weights: Any, seed: int, options: dict[str, Any]
) -> Prediction:
    depth = options.get("depth", 2)
    if isinstance(depth, int | np.integer) and depth > 2:
        return _deep_factors(loss, shapes, weights, seed, int(depth), options)
    found = low_rank_learning(loss, shapes, weights=weights, **options)
    draw, pairs = np.random.default_rng(seed).standard_normal, weights
    if pairs is None:
        columns = [options.get("width") or max(m, n) for m, n in shapes]
        pairs = [(draw((m, h)), draw((n, h))) for (m, n), h in zip(shapes, columns, strict=True)]
        if options.get("symmetric"):
            pairs = [(left, left) for left, _ in pairs]

    def flow(log_scale: float, **given: Any) -> FactoredTrajectory:
        _require_flow(options)
        return factored_flow(loss, FactorInit(pairs, log_scale=log_scale), **given)

    return Prediction(network="full factors", by="by shapes, low_rank_learning", result=found, flow=flow)


def _deep_factors(
    loss: Any, shapes: Sequence[tuple[int, int]], weights: Any, seed: int, depth: int, options: dict[str, Any]
) -> Prediction:
    if weights is None:
        sizes = [(n, *[options.get("width") or max(m, n)] * (depth - 1), m) for m, n in shapes]
        weights = [layered_weights(each, seed=seed + p) for p, each in enumerate(sizes)]
    found = low_rank_learning(loss, shapes, weights=weights, **options)

    def loss_of_factors(chains: Any) -> Any:
        return loss(tuple(functools.reduce(lambda product, W: W @ product, chain) for chain in chains))

    def flow(log_scale: float, **given: Any) -> Trajectory:
        start = [[math.exp(log_scale) * np.asarray(W, np.float64) for W in chain] for chain in weights]
        return gradient_flow(loss_of_factors, ParameterInit(start), **given)

    return Prediction(network="deep factors", by="by shapes, low_rank_learning", result=found, flow=flow)


def _units(
    unit: Any, data: Any, loss: Any, parameters: PyTree, weights: Any, seed: int, options: dict[str, Any]
) -> Prediction:
    import jax

    several = options.get("kinds", 1)
    if weights is None:
        count = several * options.setdefault("width", 64)
        draw = np.random.default_rng(seed).standard_normal
        weights = jax.tree.map(lambda leaf: draw((count, *np.shape(leaf))), parameters)
    found = unit_learning(unit, data, loss, parameters=parameters, weights=weights, seed=seed, **options)
    each = len(jax.tree.leaves(weights)[0]) // several
    kinds = np.repeat(np.arange(several), each) if several > 1 else None

    def flow(log_scale: float, **given: Any) -> UnitTrajectory:
        return unit_flow(unit, data, loss, weights, degree=found.degree, log_scale=log_scale, kinds=kinds, **given)

    return Prediction(network="a sum of units", by="by parameters, unit_learning", result=found, flow=flow)


def _layers(loss: Any, widths: Sequence[int], weights: Any, seed: int, options: dict[str, Any]) -> Prediction:
    if not isinstance(loss, LayeredLoss):
        raise InputError(f"network must be a LayeredLoss where widths are given; got {type(loss).__name__}.")
    if not loss.relu:
        raise InputError("network must have ReLU where widths are given; got relu=False: pass shapes, or parameters.")
    if len(set(widths)) != 1:
        raise InputError(f"widths must be equal, at least one; got {tuple(widths)!r}.")
    depth, options = len(widths) + 1, {"num_starts": _STARTS, "seed": seed} | options
    found = escape_directions(loss.inputs, loss.gradient_at_origin(), depth=depth, widths=widths[0], **options)
    sizes = (loss.inputs.shape[1], *widths, loss.targets.shape[1])
    start = layered_weights(sizes, seed=seed) if weights is None else weights

    def flow(log_scale: float, stop: float = 0.0, **given: Any) -> EscapeFlow:
        return escape_flow(loss.output, loss.cost_of, start, degree=depth, log_norm=log_scale, stop=stop, **given)

    return Prediction(network="layers without biases", by="by widths, escape_directions", result=found, flow=flow)
