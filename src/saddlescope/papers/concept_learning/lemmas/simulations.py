"""Runs for Lemmas D.1 to D.8: gradient flow, and the paper's own map D.2, from the same starts.

    W' = W + eta (W A + A W - (A W^2 + W^2 A + 2 W A W) / 2), eta = 1 / (9 K gamma alpha)     (D.2, Assumption D.2)

Its time is twice that of the flow, t = eta k / 2 after k steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.lemmas.violations import Runs, excesses

K, KAPPA = 20.0, 1.11  # of D.2 and D.4: the least that they allow, about

_LOST = 2.0  # |w_ij| beyond which a run of the map has left all that the lemmas speak of, and is stopped

_ROUNDING = 1e-6  # an excess beyond which a lemma counts as violated

_PIECE = 64  # starts in a batch, which limits memory


class Starts(NamedTuple):
    """Starts with the constants of the assumptions; C of D.5 is free."""

    strengths: np.ndarray
    factors: np.ndarray
    log_P: np.ndarray  # noqa: N815 - the paper's P
    log_omega: np.ndarray
    log_beta: np.ndarray
    hold: np.ndarray


def allowed_starts(count: int, near: int, rng: np.random.Generator) -> Starts:
    """Return starts for two concepts at which D.1 to D.5 hold as printed; the last `near` are nearly singular.

    Strengths are 0.1 and 1, and omega is as large as it can be: 1e-61 to 1e-70.
    """
    from saddlescope.models import symmetric_factor
    from saddlescope.theory.concepts import check_assumptions, largest_start

    a = np.array([0.1, 1.0])
    factors, constants, hold = [], [], []
    for n in range(count):
        singular = n >= count - near
        top = np.array([1 + 10.0 ** rng.uniform(-13, -9)] * 2) if singular else 1 + 3 * rng.random(2)
        sign = rng.choice([-1.0, 1.0])
        start = np.array([[top[0], sign], [sign, top[1]]])
        best = largest_start(a, beta=float(top.max()), K=K, kappa=KAPPA)
        log_P, log_omega = best.log_P + 2e-5, best.log_omega - 2.1e-5
        held = check_assumptions(a, start, log_P=log_P, K=K, kappa=KAPPA, C=2.0, step=1 / (9 * K), log_scale=log_omega)
        factors.append(symmetric_factor(start) * np.exp(log_omega / 2))
        constants.append((log_P, log_omega, np.log(top.max())))
        hold.append(held.hold)
    log_P, log_omega, log_beta = np.array(constants).T
    return Starts(a, np.array(factors), log_P, log_omega, log_beta, np.array(hold))


def ordinary_starts(a: np.ndarray, factors: np.ndarray) -> Starts:
    """Return starts that the assumptions do not allow, with P as large as D.3 has it: P beta omega = 0.4."""
    W = np.abs(factors @ factors.mT)
    top, least = np.log(W.max(axis=(1, 2))), np.log(W.min(axis=(1, 2)))
    return Starts(a, factors, np.log(0.4) - top, least, top - least, np.zeros(len(W), bool))


def flows(starts: Starts, until: float, marks: int) -> list[Runs]:
    """Follow gradient flow to `until`."""
    from saddlescope.flow import symmetric_flows

    times, made = np.linspace(0.0, until, marks), []
    for piece in _pieces(starts):
        flow = symmetric_flows(
            piece.strengths, piece.factors, test_point=np.ones(len(piece.strengths)), until=until, record=times,
            tolerance=1e-10,
        )  # fmt: skip
        major = np.einsum("nkii->nki", flow.W)
        made.append(_runs(piece, flow.times, flow.W, major.min((1, 2)), major.max((1, 2)), np.zeros(len(major))))
    return made


def maps(starts: Starts, until: float, marks: int, report: Callable[[float], None]) -> list[Runs]:
    """Iterate the printed map to the time `until` of the flow; a run that is lost stays where it was."""
    a = starts.strengths
    eta = 1 / (9 * K * float(a.max()))
    steps = round(2 * until / eta)
    every = -(-steps // marks)
    made, pieces = [], _pieces(starts)
    for p, piece in enumerate(pieces):
        W = piece.factors @ piece.factors.mT
        major = np.einsum("nii->ni", W)
        lowest, highest, fastest, recorded = major.min(1), major.max(1), np.zeros(len(W)), [W]
        for step in range(1, steps + 1):
            right, left = W * a, a[:, None] * W
            square = left @ W
            change = eta * (right + left - (square + square.mT) / 2 - right @ W)
            change[lowest < -_LOST] = 0.0
            W = W + change
            major, moved = np.einsum("nii->ni", W), np.einsum("nii->ni", change)
            lowest, highest = np.minimum(lowest, major.min(1)), np.maximum(highest, major.max(1))
            fastest = np.maximum(fastest, np.abs(moved).max(1))
            if step % every == 0:
                recorded.append(W)
                if step % (50 * every) == 0:
                    report((p + step / steps) / len(pieces))
        times = np.arange(len(recorded)) * every * eta / 2
        made.append(_runs(piece, times, np.stack(recorded, axis=1), lowest, highest, fastest))
    return made


def _pieces(starts: Starts) -> list[Starts]:
    a, *of_starts = starts
    return [
        Starts(a, *(one[first : first + _PIECE] for one in of_starts))
        for first in range(0, len(starts.factors), _PIECE)
    ]


def _runs(starts: Starts, times: np.ndarray, W: np.ndarray, *extremes: Any) -> Runs:
    lowest, highest, fastest = extremes
    return Runs(
        strengths=starts.strengths, times=times, W=W, lowest=lowest, highest=highest, fastest=fastest,
        log_P=starts.log_P, log_omega=starts.log_omega, log_beta=starts.log_beta, kappa=KAPPA, K=K,
    )  # fmt: skip


def count_violations(name: str, starts: Starts, follow: Callable[[], list[Runs]]) -> xr.Dataset:
    """Count runs that violate each lemma, and return the largest excess."""
    pieces = [excesses(runs) for runs in follow()]
    all_of = {lemma: np.concatenate([piece[lemma] for piece in pieces]) for lemma in pieces[0]}
    values = np.array(list(all_of.values()))
    return xr.Dataset(
        {
            "runs": len(starts.factors),
            "hold": starts.hold.sum(),
            "violations": ("lemma", np.sum(values > _ROUNDING, axis=1)),
            "largest": ("lemma", values.max(axis=1)),
            "typical": ("lemma", np.median(values, axis=1)),
        },
        coords={"lemma": list(all_of), "group": name},
    )


def example_runs(starts: Starts, params: Any) -> xr.Dataset:
    """Return two allowed runs for the figure, from the first and the last start."""
    a, *of_starts = starts
    first, last = 0, params.allowed - 1
    two = Starts(a, *(one[[first, last]] for one in of_starts))
    (runs,) = flows(two, params.allowed_until, min(params.marks, 800))
    return xr.Dataset(
        {
            "example": (("start", "mark", "row", "column"), runs.W),
            "example_time": ("mark", runs.times, {"units": "t"}),
            "example_phase": ("start", runs.log_phase),
            "example_strength": ("row", a),
            "kappa": KAPPA,
        },
        coords={"start": ["first", "nearly singular"]},
        attrs={"last_start": f"W(0) = w (1, c; c, 1), 1 - |c| = {-np.expm1(-starts.log_beta[last]):.1e}"},
    )
