"""Ladder of widths: the stationary points of narrow networks that are the plateaus of a wide one.

    m        width, the number of units
    theta*   stationary point at which a network of m units stops that is trained from alpha w, alpha small
    L_m      its loss

Fixed points of a narrow network embed in every wider one, by silent, duplicated or split units (Zhang, Saxe and Latham
2025, arXiv 2512.20607), and the plateaus of a wide network trained from small weights are of this kind.

A width has many stationary points. The plateau is not the one with the lowest loss: a diagonal network learns first the
coordinate that grows fastest, whose variance may be large and whose share of the loss small. It is the one that the
small weights lead to, so the narrow networks start from units of the wide one: those that left the plateaus before, and
one more. Of these networks the wide one follows the first to leave, since small units do not influence each other.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope.theory.saddle.path import NoMinimum, TransitionFailure
from saddlescope.theory.units.embedding import Embedding, distinct_units, embed, largest_slope, largest_utility
from saddlescope.theory.units.initial_weights import initial_weights
from saddlescope.theory.units.ladder_results import LadderStatus, Rung, WidthLadder
from saddlescope.theory.units.narrow_networks import first_departure
from saddlescope.theory.units.transition import StationaryUnits, Transition
from saddlescope.theory.units.unit_network import NonFiniteUnitsError, UnitNetwork
from saddlescope.theory.units.utility_orders import at_first_order, rounding, why_nothing_grows

_STARTS, _STARTS_OF_FORM = 16, 4  # random units of each kind; where U is a quadratic form, all have one basin
_LOG_SCALE = {2.0: -18.0}  # 1e-8: the order of learning is that of the limit, and above rounding
_LOG_SCALE_ABOVE = -7.0  # 1e-3 where the time grows as a power of 1 / alpha
_LEAVES = 1e-6  # fall of the loss, in units of what one unit gains at first, at which a network has left a plateau
_SAME = 1e-6  # difference of losses, in that unit, that counts as none
_SLOWEST = 1e-4  # rate of a new unit, in units of the largest at the origin, for which networks are trained
_DEVIATION = 1e-3  # of the weights then, relative


@in_float64
@validate_arguments
def width_ladder(
    unit: Callable[..., Array],
    data: tuple[PyTree, PyTree],
    loss: Callable[[Any, Any], Array],
    widths: Sequence[int],
    *,
    parameters: PyTree,
    kinds: int = 1,
    weights: PyTree | None = None,
    num_starts: int | None = None,
    log_scale: float | None = None,
    tolerance: float = 1e-9,
    seed: int = 0,
    report: Report = silent,
) -> WidthLadder:
    """Find the stationary points of narrow networks that are the plateaus of a wide sum of units.

    The network f(x) = sum_i unit(theta_i, x) is trained with 0, 1, 2, ... units from small weights to its stationary
    point. Each point is embedded in the next wider network, by silent units and by splitting each unit in turn, and
    checked: the gradient vanishes, and the loss falls along some direction, so that it is a saddle there (Zhang, Saxe
    and Latham 2025, arXiv 2512.20607). `WidthLadder.compare` holds the losses against the plateaus of a wide run.

    Among the stationary points of one width it is the one that a wide network with the same initial units comes to,
    which need not have the lowest loss. Width m is trained from the units that left the m - 1 plateaus before and each
    other unit in turn; the network that leaves plateau m - 1 first is followed to its stationary point. Unlike
    `unit_learning`, which takes the limit of vanishing weights, this is a training at the given initial scale.

    Args:
        unit: unit(theta, x), a JAX function of the weights of one unit and one sample; unit(theta, x, kind) if there
            are several kinds, as for `unit_learning`.
        data: (inputs, targets), arrays or pytrees of arrays with a leading axis of samples.
        loss: loss(output, target) of one sample, whose mean over the samples is minimised.
        widths: widths to report, ascending, at least 0; each point is checked in the next width, the last in a network
            of one unit more.
        parameters: an array or a pytree of arrays of the shapes of theta; its values do not matter.
        kinds: number of kinds of unit; the coordinates of a diagonal network, for example.
        weights: initial weights of the wide network before they are scaled by alpha, like `parameters` with a leading
            axis of units, kind by kind, equally many of each. None: normal.
        num_starts: number of random units of each kind, for `weights=None`. None: 16, or 4 where the utility is a
            quadratic form, and at least the largest width.
        log_scale: the natural logarithm of alpha, between -300 and 0. None: -18 for degree 2, -7 above, in units of the
            norm at which the first unit halves its utility, up to a factor of 2.
        tolerance: utilities below this share of the largest slope at the origin count as zero.
        seed: of random weights, at which the degree is measured, and of those drawn for None.
        report: called after each width with the finished fraction and a note.

    Returns:
        The stationary points found, one per width, and one more where a unit falls dormant and returns, with the
        termination status:

        - complete: one was found for every width.
        - converged: no unit lowers the loss any more, so that wider networks stop at the last point, too.
        - no_start: a further unit would lower the loss, but none of the initial ones does within 20 times the time of
          the fastest possible one.
        - tie: networks that come to different losses leave a plateau at the same time.
        - saddle: a training comes so close to a saddle among its units that rounding decides how it goes on.
        - no_minimum: a training ends at no minimum of its units.
        - not_finite: the loss is NaN or infinite on the way.

    Raises:
        InputError: an argument out of range, arguments that do not fit each other, a unit
            that is not homogeneous of a degree of at least 2 at the origin, or a loss that is not smooth at output 0.

    >>> import jax.numpy as jnp
    >>> X, Y = jnp.eye(3), jnp.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> # linear networks with m neurons learn the first m singular values, 3 and 1
    >>> ladder = width_ladder(
    ...     lambda theta, x: theta["out"] * (theta["in"] @ x), (X, Y), lambda f, y: 0.5 * jnp.sum((f - y) ** 2),
    ...     range(4), parameters={"in": jnp.zeros(3), "out": jnp.zeros(2)},
    ... )
    >>> [(rung.width, rung.units, round(6 * rung.loss, 9), rung.saddle) for rung in ladder.rungs]
    [(0, 0, 10.0, True), (1, 1, 1.0, True), (2, 2, 0.0, False)]
    """
    asked = _checked(widths, kinds, weights, num_starts, log_scale, tolerance)
    network = UnitNetwork.of(unit, data, loss, parameters, kinds, seed)
    network = at_first_order(network)
    drawn = num_starts or max(_STARTS_OF_FORM if network.quadratic else _STARTS, asked[-1])
    start, of_kind = initial_weights(network, drawn if weights is None else None, weights, seed)
    return _Climb(network, start, of_kind, asked, log_scale, tolerance, seed, report).run()


def _checked(
    widths: Sequence[int],
    kinds: int,
    weights: PyTree | None,
    num_starts: int | None,
    log_scale: float | None,
    tolerance: float,
) -> list[int]:
    asked = [int(width) for width in widths]
    if not asked or asked[0] < 0 or any(a >= b for a, b in pairwise(asked)):
        raise InputError(f"widths must be ascending whole numbers of at least 0, one or more; got {asked!r}.")
    if kinds < 1:
        raise InputError(f"kinds must be at least 1; got {kinds!r}.")
    if num_starts is not None and (num_starts < 1 or weights is not None):
        raise InputError(f"num_starts must be at least 1, and None with weights; got {num_starts!r}.")
    if log_scale is not None and not -300 <= log_scale < 0:
        raise InputError(f"log_scale must be the natural logarithm of a scale between e^-300 and 1; got {log_scale!r}.")
    if not 0 < tolerance < 1e-3:
        raise InputError(f"tolerance must be a number between 0 and 1e-3; got {tolerance!r}.")
    return asked


class _Climb:
    """State of the ladder: the last stationary point, and the initial units that led to it."""

    def __init__(
        self,
        network: UnitNetwork,
        start: Float[np.ndarray, "s p"],
        kinds: Int[np.ndarray, "s"],
        widths: list[int],
        log_scale: float | None,
        tolerance: float,
        seed: int,
        report: Report,
    ) -> None:
        self._network, self._start, self._kinds, self._widths = network, start, kinds, widths
        self._seed, self._report = seed, report
        self._initial = network.origin[0]
        self._speed = largest_slope(network, seed)
        self._noise = max(tolerance * self._speed, rounding(network, network.origin[1]))
        utility, direction, kind = largest_utility(network, network.origin[1], seed)
        none = np.zeros((0, network.size)), np.zeros(0, int)
        norm = network.norm_of_effect(*none, direction, kind, utility)
        self._gain = abs(utility) * norm**network.degree
        small, self._log_norm = _LOG_SCALE.get(network.degree, _LOG_SCALE_ABOVE), math.log(norm)
        self._log_scale = small + self._log_norm if log_scale is None else log_scale
        self._used: list[int] = []
        self._time, self._rate = 0.0, self._speed
        self._point = StationaryUnits.origin(network.size, self._initial)
        self._of_units, self._active = np.zeros(0, int), np.zeros(0, int)
        self._rungs: list[Rung] = []

    def run(self) -> WidthLadder:
        """Climb from width 0 to the largest one."""
        try:
            status, message = self._climb()
        except NonFiniteUnitsError:
            status, message = (
                LadderStatus.NOT_FINITE,
                (
                    "The loss is NaN or infinite while a network is trained. Look for a division, root or logarithm of "
                    "an output."
                ),
            )
        return WidthLadder(
            rungs=tuple(self._rungs),
            initial_loss=self._network.in_units(self._initial),
            degree=self._network.degree,
            status=status,
            message=message,
        )

    def _climb(self) -> tuple[LadderStatus, str]:
        last = self._widths[-1]
        while True:
            width = len(self._used)
            wider = next((other for other in self._widths if other > width), width + 1)
            embedding = embed(self._network, self._point.thetas, self._of_units, wider, self._noise, self._seed)
            learned = not embedding.saddle
            self._rate = max(self._network.degree * embedding.utility, _SLOWEST * self._speed)
            if width in self._widths or learned:
                self._rungs.append(self._rung(width, wider, embedding))
            loss = self._network.in_units(self._point.loss)
            self._report((width + 1) / (last + 1), f"width {width}: loss {loss:.4g}")
            if learned and width < last:
                return self._learned(width, embedding)
            if learned or (width == last and len(self._point.thetas) == width):
                return LadderStatus.COMPLETE, "A stationary point was found for every width."
            if (ended := self._train(width)) is not None:
                return ended

    def _learned(self, width: int, embedding: Embedding) -> tuple[LadderStatus, str]:
        if not embedding.stationary and self._point.fall:
            return LadderStatus.NO_MINIMUM, f"At width {width} {NoMinimum.AT_INFINITY}"
        if not embedding.stationary:
            return LadderStatus.NO_MINIMUM, (
                f"The gradient at width {width} does not vanish in the wider network. Smooth the unit or the loss."
            )
        if not width:
            return LadderStatus.CONVERGED, why_nothing_grows(self._network)
        return LadderStatus.CONVERGED, f"With {width} units no other unit lowers the loss: wider networks stop there."

    def _train(self, width: int) -> tuple[LadderStatus, str] | None:
        """Replace the stationary point by the next one; return status and message if there is none."""
        last, before = self._widths[-1], self._used
        count = len(self._start)
        chosen = np.zeros((count, last, self._network.size))
        kinds = np.zeros((count, last), int)
        chosen[:, :width], kinds[:, :width] = self._start[before], self._kinds[before]
        if width < last:
            more = np.setdiff1d(np.arange(count), before)  # in the other networks no unit is new
            chosen[more, width], kinds[more, width] = self._start[more], self._kinds[more]
        first = first_departure(
            self._network, chosen, kinds, log_scale=self._log_scale, log_norm=self._log_norm,
            plateau=self._point.loss, level=self._point.loss - _LEAVES * self._gain, before=self._time, rate=self._rate,
            preferred=before[0] if before else None,
        )  # fmt: skip
        if first is None:
            if width == last:
                return LadderStatus.COMPLETE, "A stationary point was found for every width."
            return LadderStatus.NO_START, (
                f"No network with {width + 1} units leaves the plateau of {width}, though one more unit would lower "
                "the loss. Increase num_starts, or pass weights with more units."
            )
        number = int(first.networks[0])
        returns = width == last or number in before  # of a unit that had fallen dormant
        self._used, self._time = before if returns else [*before, number], first.time
        units = len(self._used)
        ends = []
        for other, thetas in zip(first.networks[: 1 if returns else None], first.thetas, strict=False):
            of_kind = kinds[other, :units]
            moving = self._moving(thetas[:units], of_kind, returns=returns)
            found = self._followed(thetas[moving], of_kind[moving])
            if isinstance(found, TransitionFailure):
                return LadderStatus(found.status), f"At width {units}: {found.reason}"
            ends.append((found, moving[found.kept], of_kind))
        in_valleys = sum(found.fall for found, *_ in ends)
        if np.ptp([found.loss for found, *_ in ends]) > _SAME * self._gain + in_valleys:
            return LadderStatus.TIE, (
                f"Of the networks with {units} units {len(ends)} leave the plateau at the same time, and come to "
                "different losses: rounding decides which is first. Break the symmetry of data and weights."
            )
        self._point, self._active, of_kind = ends[0]
        self._of_units = of_kind[self._active]
        return None

    def _moving(
        self, thetas: Float[np.ndarray, "m p"], kinds: Int[np.ndarray, "m"], *, returns: bool
    ) -> Int[np.ndarray, "b"]:
        """Return the units that move to the next point: those of the last one and the one that leaves it.

        Units that had fallen dormant are still small. Where U is a quadratic form, units of a kind move together.
        """
        count = len(thetas)
        group = kinds if self._network.quadratic else np.arange(count)
        active = np.unique(self._of_units if self._network.quadratic else self._active)
        dormant = np.flatnonzero(~np.isin(group, active))
        if not len(dormant):
            return np.arange(count)
        new = count - 1
        leaver = new if not returns and new in dormant else dormant[np.argmax(np.linalg.norm(thetas[dormant], axis=1))]
        return np.flatnonzero(np.isin(group, [*active, group[leaver]]))

    def _followed(
        self, thetas: Float[np.ndarray, "m p"], kinds: Int[np.ndarray, "m"]
    ) -> StationaryUnits | TransitionFailure:
        _, slope = self._network.loss_gradient(thetas, kinds)
        distance = _DEVIATION * float(np.linalg.norm(thetas))
        path = Transition(
            self._network, thetas, kinds, distance=distance, rate=float(np.linalg.norm(slope)) / distance,
            rotate=self._network.quadratic,
        )  # fmt: skip
        return path.follow()

    def _rung(self, width: int, wider: int, embedding: Embedding) -> Rung:
        in_units = self._network.in_units
        self._point.thetas.setflags(write=False)
        return Rung(
            width=width,
            units=distinct_units(self._network, self._point.thetas, self._of_units),
            loss=in_units(self._point.loss),
            thetas=self._point.thetas,
            kinds=tuple(self._of_units.tolist()),
            curvature=in_units(self._point.curvature),
            embedded=wider,
            gradient=embedding.gradient,
            utility=in_units(embedding.utility),
            split_curvature=embedding.split_curvature,
            stationary=embedding.stationary,
            saddle=embedding.saddle,
        )
