"""Integration of one chunk of starts of the symmetric two-layer flow: records, turns of the loss, determinant law.

Everything is in the eigenbasis of A and in units of 1 / max(a), as in `saddlescope.flow.two_layer.taylor_series`. Each
start has its own time; finished starts are removed from the arrays.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from saddlescope._shared.errors import InputError
from saddlescope.flow.two_layer.taylor_series import TaylorSeries, longest_step, order_for, series
from saddlescope.numerics.turning_points import bernstein, persistent, sign_changes, turning_points


@dataclass(frozen=True)
class TaylorPolicy:
    """Policy of the steps.

    Attributes:
        settled: errors of a step: where no entry of W - 1 that moves W is larger, W is taken as constant.
        rounding: size of these at the smallest tolerances, as a part of the largest entry of W.
        flat: errors of a step, as a part of `_scale`: a change of the loss over one step that errors can make.
        spare_steps: steps beyond those of the last time; a start that needs more is refused.
    """

    settled: float = 1e-3
    rounding: float = 1e-13
    flat: float = 10
    spare_steps: int = 100_000


POLICY = TaylorPolicy()


@dataclass(frozen=True, eq=False)
class Run:
    """Result of a chunk of n starts.

    Attributes:
        W: at the recorded times, (n, k, d, d).
        ends: the factors at the last time, (n, d, r).
        owners: the start that each turn of the loss belongs to, ascending.
        turning_times: of each, ascending for each start.
        turning_losses: the loss there.
        drifts: |log det W(end) - log det W(0) - integral of 4 tr(a (1 - W))|, (n,); meaningless for lower rank.
    """

    W: Float[np.ndarray, "n k d d"]
    ends: Float[np.ndarray, "n d r"]
    owners: Int[np.ndarray, "t"]
    turning_times: Float[np.ndarray, "t"]
    turning_losses: Float[np.ndarray, "t"]
    drifts: Float[np.ndarray, "n"]


def follow(
    starts: Float[np.ndarray, "n d r"],
    a: Float[np.ndarray, "d"],
    x: Float[np.ndarray, "d"],
    times: Float[np.ndarray, "k"],
    local: float,
) -> Run:
    """Follow the flow from each start, with a relative error of `local` per step.

    Args:
        starts: U at time 0.
        a: the diagonal of A, the largest 1.
        x: the test point.
        times: recorded times, ascending from 0.
        local: the relative error of one step.
    """
    order = order_for(local)
    n, d, _ = starts.shape
    W = np.empty((n, len(times), d, d))
    W[:, 0] = starts @ starts.mT
    ends, grown = starts.copy(), np.zeros(n)
    moves = (a[:, None] + a[None, :] > 0)[:, :, None]  # entries of W - 1 that move W; the others never vanish
    turns = _Turns(x, POLICY.flat * local, np.zeros(n))
    allowed = POLICY.spare_steps + 4 * times[-1] / longest_step(order)
    left = np.arange(n)  # the unfinished starts, and for each its factor, time and next record
    factors, now, record = np.ascontiguousarray(starts.transpose(1, 2, 0)), np.zeros(n), np.ones(n, int)
    steps = 0
    while len(left):
        steps += 1
        if steps > allowed:
            raise _stiff_start(int(left[0]), steps)
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
        rounding = np.maximum(POLICY.settled * local, POLICY.rounding * _largest(taylor))
        settled = np.abs(taylor.errors[0] * moves).max(axis=(0, 1)) <= rounding
        done = settled | (record == len(times))
        for i in np.flatnonzero(done):
            U = factors[:, :, i]
            ends[left[i]], W[left[i], record[i] :] = U, U @ U.T
        if done.any():
            left, factors, now, record = left[~done], factors[:, :, ~done], now[~done], record[~done]
    owners, turning_times, turning_losses, least = turns.found()
    first, last = (np.sum((W[:, i] @ x - x) ** 2, axis=1) / 2 for i in (0, -1))
    keep = persistent(owners, turning_losses, first, last, least)
    return Run(
        W,
        ends,
        owners[keep],
        turning_times[keep],
        turning_losses[keep],
        np.abs(_log_det(ends) - _log_det(starts) - grown),
    )


def _log_det(factors: np.ndarray) -> np.ndarray:
    """Return log det of U U^T; 0 where that is singular."""
    if factors.shape[1] != factors.shape[2]:
        return np.zeros(len(factors))
    sign, half = np.linalg.slogdet(factors)
    return np.where(sign == 0, 0.0, 2 * np.where(sign == 0, 0.0, half))


def _stiff_start(start: int, steps: float) -> InputError:
    """Return the error of a start that takes so many steps."""
    return InputError(
        "starts must not be this large in directions of small eigenvalues of the moment, where weights stay large while"
        f" others move fast; start {start} takes {steps:.2g} steps, and at most {POLICY.spare_steps:,} can be followed."
        " Pass smaller starts, or a smaller until."
    )


def prepared(
    starts: Float[np.ndarray, "n d width"], a: Float[np.ndarray, "d"], until: float, local: float, first: int = 0
) -> tuple[Float[np.ndarray, "n d r"], Int[np.ndarray, "n"]]:
    """Return factors of U U^T with r = min(d, d'), and their ranks; columns beyond the rank are 0.

    Args:
        starts: U at time 0.
        a: as for `follow`.
        until: the last time.
        local: as for `follow`.
        first: number of the first of these starts.

    Raises:
        InputError: a start takes too many steps.
    """
    d, width = starts.shape[1:]
    factors = np.asarray(np.linalg.qr(starts.mT, mode="r")).mT if width > d else starts.copy()
    left, sizes, _ = np.linalg.svd(factors, full_matrices=False)
    kept = sizes > max(d, width) * np.finfo(float).eps * sizes[:, :1]
    ranks = kept.sum(axis=1)
    short = ranks < kept.shape[1]
    factors[short] = (left * (sizes * kept)[:, None, :])[short]
    needed = _steps_needed(factors, a, until, local)
    worst = int(np.argmax(needed))
    if needed[worst] > POLICY.spare_steps:
        raise _stiff_start(first + worst, needed[worst])
    return factors, ranks


def _steps_needed(
    starts: Float[np.ndarray, "n d r"], a: Float[np.ndarray, "d"], until: float, local: float
) -> Float[np.ndarray, "n"]:
    """Return an estimate of the steps that large weights cost, those of the last time aside.

    In the order of decreasing a, the weights left in direction k when those before it are learned are the Schur
    complement s_k of W. They then fall as s_k / (1 + 4 a_k s_k t), and a step is short in their inverse. The flow is
    stationary once all directions of positive a are learned to within the error of a step.
    """
    descending = np.argsort(-a, kind="stable")
    s = np.zeros((len(starts), len(a)))
    rows = np.asarray(np.linalg.qr(starts[:, descending].mT, mode="r"))
    s[:, : rows.shape[1]] = np.diagonal(rows, axis1=1, axis2=2) ** 2
    slow = 4 * a[descending]
    positive = (slow > 0) & (s > 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        learned = np.where(positive, (np.abs(np.log(s)) - math.log(POLICY.settled * local)) / slow, 0.0).max(axis=1)
        end = np.minimum(until, learned)[:, None]
        size = np.where(slow > 0, np.log1p(slow * s * end) / np.where(slow > 0, slow, 1.0), s * end)
    return size.max(axis=1) / longest_step(order_for(local))


def _largest(taylor: TaylorSeries) -> Float[np.ndarray, "n"]:
    """Return the larger of 1 and the largest entry of W, which is on its diagonal."""
    return np.maximum(1.0, 1 + np.einsum("iin->in", taylor.errors[0]).max(axis=0))


def _scale(taylor: TaylorSeries, x: Float[np.ndarray, "d"]) -> Float[np.ndarray, "n"]:
    """Return the change of the loss that a relative error of 1 in W makes: |x|^2 / 2 near the end, more before."""
    length = np.linalg.norm(x)
    residual = np.linalg.norm(np.einsum("iln,l->in", taylor.errors[0], x), axis=0)
    return np.maximum(length**2 / 2, residual * length * _largest(taylor))


@dataclass(frozen=True, eq=False)
class _Turns:
    """Steps in which the loss turns, and the times of these events.

    A step in which the loss changes by no more than errors of steps is skipped. If the loss changes direction across
    such steps, it has turned in them: the turn is put at their end.

    Attributes:
        x: the test point.
        flat: the change of the loss over a step below which it is skipped, as a part of `_scale`.
        direction: the sign of dL/dt at the end of each start's last step that was not flat, 0 before the first.
    """

    x: Float[np.ndarray, "d"]
    flat: float
    direction: Float[np.ndarray, "n"]
    steps: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    between: list[tuple[np.ndarray, ...]] = field(default_factory=list)

    def examine(self, starts: Int[np.ndarray, "m"], now: np.ndarray, h: np.ndarray, taylor: TaylorSeries) -> None:
        """Examine one step of these starts, from the times `now` on."""
        slope = taylor.loss_slope(self.x)
        slope *= h ** np.arange(1.0, len(slope) + 1)[:, None]  # the loss's slope in the part of the step, times 1
        b = bernstein(slope)
        least = self.flat * _scale(taylor, self.x)
        flat = np.abs(b).max(axis=0) <= least
        changes = sign_changes(b)
        before, after = _end_signs(b)
        loss = np.sum(np.einsum("iln,l->in", taylor.errors[0], self.x) ** 2, axis=0) / 2
        turned = ~flat & (before * self.direction[starts] < 0)
        self.between.append((starts[turned], now[turned], loss[turned], least[turned]))
        inside = ~flat & (changes > 0)
        self.steps.append((starts[inside], now[inside], h[inside], loss[inside], least[inside], slope[:, inside]))
        self.direction[starts] = np.where(flat, self.direction[starts], after)

    def found(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the starts, times and losses of all turns, by start and time, and what errors can change there."""
        starts, now, h, loss, least, slope = (np.concatenate(parts, axis=-1) for parts in zip(*self.steps, strict=True))
        step, part = turning_points(slope)
        powers = np.arange(1.0, len(slope) + 1)[:, None]
        there = loss[step] + np.sum(slope[:, step] / powers * part**powers, axis=0)
        owners, times, losses, small = (np.concatenate(parts) for parts in zip(*self.between, strict=True))
        owners = np.concatenate([owners, starts[step]])
        times = np.concatenate([times, now[step] + part * h[step]])
        losses = np.concatenate([losses, there])
        small = np.concatenate([small, least[step]])
        order = np.lexsort((times, owners))
        return owners[order], times[order], losses[order], small[order]


def _end_signs(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the signs of polynomials just after 0 and just before 1, by the first and last coefficients not 0."""
    signs = np.sign(b)
    columns = np.arange(b.shape[1])
    return (
        signs[np.argmax(signs != 0, axis=0), columns],
        signs[len(b) - 1 - np.argmax(signs[::-1] != 0, axis=0), columns],
    )
