"""Records of many flows while they run: states at common times, and level crossings."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from saddlescope.flow.diagonal.coordinates import MirrorCoordinates
from saddlescope.flow.diagonal.trajectory import LevelEvent
from saddlescope.numerics.interpolants import CubicInterpolants


@dataclass
class BatchRecords:
    """Records of each flow, by its number.

    Attributes:
        coordinates: of all flows.
        times: times of the recorded states, ascending from 0.
        states: recorded states, NaN beyond a flow's end, shape (flows, len(times), p).
        level: level of the crossings, or None.
        last_time, last_state: time that each flow has reached, and its state there.
    """

    coordinates: MirrorCoordinates
    times: Float[np.ndarray, "k"]
    states: Float[np.ndarray, "flows k p"]
    level: float | None
    last_time: Float[np.ndarray, "flows"]
    last_state: Float[np.ndarray, "flows p"]
    _crossings: list["_Crossings"] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        coordinates: MirrorCoordinates,
        times: np.ndarray,
        origin: Float[np.ndarray, "flows p"],
        level: float | None,
    ) -> "BatchRecords":
        """Start with the states at time 0 only."""
        flows, p = origin.shape
        states = np.full((flows, len(times), p), np.nan)
        states[:, 0] = origin
        return cls(coordinates, times, states, level, np.zeros(flows), origin.copy())

    def reach(
        self,
        flows: Int[np.ndarray, "n"],
        times: Float[np.ndarray, "n"],
        states: Float[np.ndarray, "n p"],
    ) -> None:
        """Note how far flows have come."""
        self.last_time[flows], self.last_state[flows] = times, states

    def add(self, steps: CubicInterpolants) -> None:
        """Take what the steps hold: times to record, and crossings."""
        self._sample(steps)
        if self.level is not None:
            low, high = self.coordinates.band(self.level)
            self._cross(steps, high[steps.system], 1)
            self._cross(steps, low[steps.system], -1)

    def crossings(self) -> tuple[list[list[LevelEvent]], list[Float[np.ndarray, "c p"]]]:
        """Return the crossings of each flow in order, and the states then."""
        flows, _, p = self.states.shape
        if not self._crossings:
            return [[] for _ in range(flows)], [np.empty((0, p))] * flows
        flow, time, index, rising, sign, state = map(np.concatenate, zip(*self._crossings, strict=True))
        order = np.lexsort((sign, rising, index, time, flow))
        fields = (each[order].tolist() for each in (time, index, rising, sign))
        events = [LevelEvent(*of) for of in zip(*fields, strict=True)]
        ends = np.searchsorted(flow[order], np.arange(flows + 1))
        parts = list(map(slice, ends[:-1].tolist(), ends[1:].tolist()))
        return [events[part] for part in parts], [state[order[part]] for part in parts]

    def _sample(self, steps: CubicInterpolants) -> None:
        first, stop = (np.searchsorted(self.times, time, "right") for time in (steps.start, steps.end))
        which = np.repeat(np.arange(len(first)), stop - first)
        record = np.arange(len(which)) - np.repeat(np.cumsum(stop - first) - stop, stop - first)
        hit = steps[which]
        self.states[hit.system, record] = hit.at((self.times[record] - hit.end) / (hit.end - hit.start))

    def _cross(self, steps: CubicInterpolants, edge: Float[np.ndarray, "m p"], sign: int) -> None:
        after = sign * steps.after >= sign * edge
        which, index = np.nonzero((sign * steps.before >= sign * edge) != after)
        if len(which) == 0:
            return
        hit = steps[which]
        s = _solve(hit.entry(index), edge[which, index], after[which, index] == (sign == 1))
        times = np.clip(hit.end + s * (hit.end - hit.start), hit.start, hit.end)
        signs = np.full(len(which), sign)
        self._crossings.append(_Crossings(hit.system, times, index, after[which, index], signs, hit.at(s)))


class _Crossings(NamedTuple):
    """Crossings in no order: their flows, the fields of `LevelEvent` (`entry` is its index), and the states then."""

    flow: Int[np.ndarray, "c"]
    time: Float[np.ndarray, "c"]
    entry: Int[np.ndarray, "c"]
    rising: Bool[np.ndarray, "c"]
    sign: Int[np.ndarray, "c"]
    state: Float[np.ndarray, "c p"]


def _solve(
    value: Callable[[np.ndarray], np.ndarray], edge: Float[np.ndarray, "e"], upwards: Bool[np.ndarray, "e"]
) -> Float[np.ndarray, "e"]:
    """Return the time, in steps, at which an entry passes its edge, by bisection to rounding."""
    low, high = -np.ones(len(edge)), np.zeros(len(edge))
    for _ in range(np.finfo(float).nmant + 2):
        middle = (low + high) / 2
        beyond = (value(middle) >= edge) == upwards
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return (low + high) / 2


def stacked(coordinates: list[MirrorCoordinates]) -> MirrorCoordinates:
    """Stack coordinates for states with the flow as the first axis; rates and signs differ and are left out."""
    p, q = np.stack([each.p for each in coordinates]), np.stack([each.q for each in coordinates])
    return replace(coordinates[0], p=p, q=q, rate=np.nan)


def part(coordinates: MirrorCoordinates, rows: np.ndarray) -> MirrorCoordinates:
    """Select the coordinates of some flows; rows may repeat."""
    return replace(coordinates, p=coordinates.p[rows], q=coordinates.q[rows])
