"""Integration of one chunk of starts of the symmetric two-layer flow: records, turns of the loss, determinant law.

Everything is in the eigenbasis of A and in units of 1 / max(a), as in `saddlescope.flow.two_layer.taylor_series`. Each
start has its own time; finished starts are removed from the arrays.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from saddlescope.flow.two_layer.taylor_series import TaylorSeries, series
from saddlescope.flow.two_layer.turning_points import bernstein, persistent, sign_changes, turning_points

_SETTLED = 1e-3  # errors of a step: where no entry of W - 1 is larger, W is taken as constant
_ROUNDING = 1e-13  # size of W - 1 at the smallest tolerances
_FLAT = 10  # errors of a step, as a part of |x|^2 / 2: a change of the loss over one step that errors can make


@dataclass(frozen=True, eq=False)
class Run:
    """Result of a chunk of n starts.

    Attributes:
        W: at the recorded times, (n, k, d, d).
        ends: the factors at the last time, (n, d, r).
        owners: the start that each turn of the loss belongs to, ascending.
        turning_times: of each, ascending for each start.
        turning_losses: the loss there.
        below: time from which the loss stays at or below the level, infinite if it is above at the end, (n,).
        drifts: |log det W(end) - log det W(0) - integral of 4 tr(a (1 - W))|, (n,); meaningless for lower rank.
    """

    W: Float[np.ndarray, "n k d d"]
    ends: Float[np.ndarray, "n d r"]
    owners: Int[np.ndarray, "t"]
    turning_times: Float[np.ndarray, "t"]
    turning_losses: Float[np.ndarray, "t"]
    below: Float[np.ndarray, "n"]
    drifts: Float[np.ndarray, "n"]


def follow(
    starts: Float[np.ndarray, "n d r"],
    a: Float[np.ndarray, "d"],
    x: Float[np.ndarray, "d"],
    times: Float[np.ndarray, "k"],
    local: float,
    order: int,
    level: float,
) -> Run:
    """Follow the flow from each start, with a relative error of `local` per step.

    Args:
        starts: U at time 0.
        a: the diagonal of A, the largest 1.
        x: the test point.
        times: recorded times, ascending from 0.
        local: the relative error of one step.
        order: of the series.
        level: of the loss, below which its last fall is reported.
    """
    n, d, _ = starts.shape
    W = np.empty((n, len(times), d, d))
    W[:, 0] = starts @ starts.mT
    ends, grown = starts.copy(), np.zeros(n)
    turns = _Turns(x, _FLAT * local * float(x @ x) / 2, level, np.zeros(n))
    left = np.arange(n)  # the unfinished starts, and for each its factor, time and next record
    factors, now, record = np.ascontiguousarray(starts.transpose(1, 2, 0)), np.zeros(n), np.ones(n, int)
    while len(left):
        taylor = series(factors, a, order)
        h = taylor.step(local)
        reaches = now + h >= times[record] * (1 - 1e-14)
        h = np.where(reaches, times[record] - now, h)
        turns.examine(left, now, h, taylor)
        grown[left] += taylor.growth(a, h)
        factors, now = taylor.after(h), np.where(reaches, times[record], now + h)

        there = np.flatnonzero(reaches)
        W[left[there], record[there]] = np.einsum("imn,lmn->nil", factors[:, :, there], factors[:, :, there])
        record[there] += 1
        settled = np.abs(taylor.errors[0]).max(axis=(0, 1)) <= max(_SETTLED * local, _ROUNDING)
        done = settled | (record == len(times))
        for i in np.flatnonzero(done):
            U = factors[:, :, i]
            ends[left[i]], W[left[i], record[i] :] = U, U @ U.T
        if done.any():
            left, factors, now, record = left[~done], factors[:, :, ~done], now[~done], record[~done]
    owners, turning_times, turning_losses = turns.found()
    first, last = (np.sum((W[:, i] @ x - x) ** 2, axis=1) / 2 for i in (0, -1))
    keep = persistent(owners, turning_losses, first, last, turns.flat)
    return Run(
        W,
        ends,
        owners[keep],
        turning_times[keep],
        turning_losses[keep],
        np.where(last <= level, turns.fallen(n), np.inf),
        np.abs(_log_det(ends) - _log_det(starts) - grown),
    )


def _log_det(factors: np.ndarray) -> np.ndarray:
    """Return log det of U U^T; 0 where that is singular."""
    if factors.shape[1] != factors.shape[2]:
        return np.zeros(len(factors))
    sign, half = np.linalg.slogdet(factors)
    return np.where(sign == 0, 0.0, 2 * np.where(sign == 0, 0.0, half))


@dataclass(frozen=True, eq=False)
class _Turns:
    """Steps in which the loss turns, or falls to a level, and the times of these events.

    A step in which the loss changes by no more than errors of steps is skipped. If the loss changes direction across
    such steps, it has turned in them: the turn is put at their end.

    Attributes:
        x: the test point.
        flat: the change of the loss over a step below which it is skipped.
        level: of the loss, absolute.
        direction: the sign of dL/dt at the end of each start's last step that was not flat, 0 before the first.
    """

    x: Float[np.ndarray, "d"]
    flat: float
    level: float
    direction: Float[np.ndarray, "n"]
    steps: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    falls: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    between: list[tuple[np.ndarray, ...]] = field(default_factory=list)

    def examine(self, starts: Int[np.ndarray, "m"], now: np.ndarray, h: np.ndarray, taylor: TaylorSeries) -> None:
        """Examine one step of these starts, from the times `now` on."""
        slope = taylor.loss_slope(self.x)
        slope *= h ** np.arange(1.0, len(slope) + 1)[:, None]  # the loss's slope in the part of the step, times 1
        b = bernstein(slope)
        flat = np.abs(b).max(axis=0) <= self.flat
        changes = sign_changes(b)
        before, after = _end_signs(b)
        loss = np.sum(np.einsum("iln,l->in", taylor.errors[0], self.x) ** 2, axis=0) / 2
        turned = ~flat & (before * self.direction[starts] < 0)
        self.between.append((starts[turned], now[turned], loss[turned]))
        inside = ~flat & (changes > 0)
        self.steps.append((starts[inside], now[inside], h[inside], loss[inside], slope[:, inside]))
        self.direction[starts] = np.where(flat, self.direction[starts], after)
        highest, end = _reached(loss, b)
        falls = (highest > self.level) & (end <= self.level)
        self.falls.append((starts[falls], now[falls], h[falls], loss[falls], slope[:, falls]))

    def found(self) -> tuple[Int[np.ndarray, "t"], Float[np.ndarray, "t"], Float[np.ndarray, "t"]]:
        """Return the starts, times and losses of all turns, by start and time."""
        starts, now, h, loss, slope = (np.concatenate(parts, axis=-1) for parts in zip(*self.steps, strict=True))
        step, part = turning_points(slope)
        powers = np.arange(1.0, len(slope) + 1)[:, None]
        there = loss[step] + np.sum(slope[:, step] / powers * part**powers, axis=0)
        owners, times, losses = (np.concatenate(parts) for parts in zip(*self.between, strict=True))
        owners = np.concatenate([owners, starts[step]])
        times = np.concatenate([times, now[step] + part * h[step]])
        losses = np.concatenate([losses, there])
        order = np.lexsort((times, owners))
        return owners[order], times[order], losses[order]

    def fallen(self, n: int) -> Float[np.ndarray, "n"]:
        """Return the time at which the loss of each of the n starts last fell to the level; 0 where it never did."""
        starts, now, h, loss, slope = (np.concatenate(parts, axis=-1) for parts in zip(*self.falls, strict=True))
        above = slope / np.arange(1.0, len(slope) + 1)[:, None]
        step, part = turning_points(np.concatenate([(loss - self.level)[None], above]))
        last = np.zeros(n)
        np.maximum.at(last, starts[step], now[step] + part * h[step])
        return last


def _end_signs(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the signs of polynomials just after 0 and just before 1, by the first and last coefficients not 0."""
    signs = np.sign(b)
    columns = np.arange(b.shape[1])
    return (
        signs[np.argmax(signs != 0, axis=0), columns],
        signs[len(b) - 1 - np.argmax(signs[::-1] != 0, axis=0), columns],
    )


def _reached(first: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return upper bounds of functions on [0, 1], and their ends, from their first values and Bernstein slopes."""
    coefficients = first + np.cumsum(slope, axis=0) / len(slope)  # of the functions themselves, but for the first
    return np.maximum(first, coefficients.max(axis=0)), coefficients[-1]
