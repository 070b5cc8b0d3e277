"""What is kept of many flows while they run: states at common times, level crossings, and the integral of |gradient|^2.

Steps are buffered and worked off some thousand at a time, so that memory is bounded and next to nothing is done a step.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from saddlescope.flow.diagonal.batched_system import part
from saddlescope.flow.diagonal.coordinates import MirrorCoordinates
from saddlescope.flow.diagonal.trajectory import LevelEvent
from saddlescope.flow.solvers import ndf_coefficients
from saddlescope.flow.solvers.ndf_batched import Pieces

_BUFFER = 1_000_000  # numbers in the steps that are kept before they are worked off: 8 MB
_BISECTIONS = 54  # of a step: to rounding


@dataclass
class BatchRecords:
    """What is kept of each flow, by its number.

    Attributes:
        charts: of all flows.
        times: when states are kept, ascending from 0.
        states: states then, NaN beyond a flow's end, shape (flows, len(times), p).
        level: where to look for crossings, or None.
        crossings: for each flow, its crossings and the states then, in no order.
        last_time, last_state: how far each flow is, and its state there.
        dissipated: for each flow, the integral of sum_i dbeta_i/dy_i (y_i')^2, which is rate (L(0) - L(now)).
    """

    charts: MirrorCoordinates
    times: Float[np.ndarray, "k"]
    states: Float[np.ndarray, "flows k p"]
    level: float | None
    crossings: list[list[tuple[LevelEvent, np.ndarray]]]
    last_time: Float[np.ndarray, "flows"]
    last_state: Float[np.ndarray, "flows p"]
    dissipated: Float[np.ndarray, "flows"]
    _buffer: list[Pieces] = field(default_factory=list)
    _buffered: int = 0

    @classmethod
    def begin(
        cls, charts: MirrorCoordinates, times: np.ndarray, origin: Float[np.ndarray, "flows p"], level: float | None
    ) -> "BatchRecords":
        """Nothing but the states at time 0."""
        flows, p = origin.shape
        states = np.full((flows, len(times), p), np.nan)
        states[:, 0] = origin
        crossings = [[] for _ in range(flows)]
        return cls(charts, times, states, level, crossings, np.zeros(flows), origin.copy(), np.zeros(flows))

    def add(self, pieces: Pieces) -> None:
        """Takes note of steps, which may be worked off later."""
        self.last_time[pieces.system] = pieces.end
        self.last_state[pieces.system] = pieces.differences[:, 0]
        self._buffer.append(pieces)
        self._buffered += pieces.differences.size
        if self._buffered > _BUFFER:
            self.work_off()

    def work_off(self) -> None:
        """Works off all steps noted so far."""
        if not self._buffer:
            return
        pieces = Pieces.join(self._buffer)
        self._buffer, self._buffered = [], 0
        self._sample(pieces)
        self._dissipate(pieces)
        if self.level is not None:
            low, high = self.charts.band(self.level)
            self._cross(pieces, high[pieces.system], 1)
            self._cross(pieces, low[pieces.system], -1)

    def _sample(self, pieces: Pieces) -> None:
        first, stop = (np.searchsorted(self.times, time, "right") for time in (pieces.start, pieces.end))
        which = np.repeat(np.arange(len(first)), stop - first)
        mark = np.arange(len(which)) - np.repeat(np.cumsum(stop - first) - stop, stop - first)
        hit = pieces[which]
        self.states[hit.system, mark] = hit.at((self.times[mark] - hit.end) / hit.step)

    def _dissipate(self, pieces: Pieces) -> None:
        coordinates = part(self.charts, pieces.system)
        nodes, weights = np.polynomial.legendre.leggauss(3)
        for node, weight in zip(nodes, weights, strict=True):
            s = np.full(len(pieces.end), (node - 1) / 2)
            power = np.sum(coordinates.metric(pieces.at(s)) * pieces.slope(s) ** 2, axis=1)
            np.add.at(self.dissipated, pieces.system, weight / 2 * (pieces.end - pieces.start) * power)

    def _cross(self, pieces: Pieces, edge: Float[np.ndarray, "m p"], sign: int) -> None:
        after = sign * pieces.differences[:, 0] >= sign * edge
        which, index = np.nonzero((sign * pieces.before >= sign * edge) != after)
        if len(which) == 0:
            return
        hit = pieces[which]
        each = np.arange(len(which))
        s = _solve(hit.differences[each, :, index], hit.order, edge[which, index], after[which, index] == (sign == 1))
        times = np.clip(hit.end + s * hit.step, hit.start, hit.end)
        for flow, time, i, rising, state in zip(hit.system, times, index, after[which, index], hit.at(s), strict=True):
            self.crossings[flow].append((LevelEvent(float(time), int(i), bool(rising), sign), state))


def _solve(
    differences: Float[np.ndarray, "e 6"], order: Int[np.ndarray, "e"], edge: np.ndarray, upwards: np.ndarray
) -> Float[np.ndarray, "e"]:
    """When, in steps, an entry with these differences passes its edge within the step, by bisection."""
    low, high = -np.ones(len(edge)), np.zeros(len(edge))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        value = differences[:, 0] + np.einsum("ej,ej->e", ndf_coefficients.basis(middle, order), differences[:, 1:])
        beyond = (value >= edge) == upwards
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return (low + high) / 2
