"""Gradient flow of a loss of margins u_il = D_il^T W z_i, to t = 1e300 and ln t = 1e7.

    diagonal_margin_flow   W = diag(beta), in xi_k, xi_q or in w+, w-: one flow (Lemma 4.1), integrated in phi
    matrix_margin_flow     W alone, integrated in phi
    key_query_margin_flow  W = K Q^T, integrated in the parts of K and Q that move

The loss is given by its rates r = -dL/du in logarithms (`saddlescope.models.tokens.losses.SelectionLoss` is one): they
are e^-1e6 at late times. Time runs in ln ln t, the solver is stiff and uses the Jacobian, and its results are checked
against the energy balance dL/dt = -|grad L|^2.

Sheen, Chen, Wang and Zhou (2024), "Implicit regularization of gradient flow on one-layer softmax attention".
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.real_arrays import real_array
from saddlescope.flow.margin.integrator import follow
from saddlescope.flow.margin.key_query_system import KeyQuerySystem, Reduction
from saddlescope.flow.margin.records import MarginRun
from saddlescope.flow.margin.results import DiagonalMarginFlow, DiagonalMarginInit, KeyQueryMarginFlow, MatrixMarginFlow
from saddlescope.flow.margin.systems import IntegralSystem, MarginLoss


@validate_arguments
def diagonal_margin_flow(
    loss: MarginLoss,
    features: ArrayLike,
    start: float | ArrayLike | DiagonalMarginInit,
    *,
    log_until: float,
    tolerance: float,
    record: ArrayLike | None = None,
    throw: bool = True,
    max_evaluations: int = 100_000,
    report: Report = silent,
) -> DiagonalMarginFlow:
    """Follow gradient flow of L(B beta) in xi_k and xi_q with beta = xi_k * xi_q, or in w+, w-, beta = (w+^2 - w-^2)/2.

    Args:
        loss: of the margins.
        features: B, (n, m, d).
        start: omega_0, one for all coordinates or (d,), or a `DiagonalMarginInit`.
        log_until: ln t at the end, up to 1e9.
        tolerance: the error allowed in the direction beta / mu, about; 1e-11 to 1e-4. It is no bound at
            late times: at ln t = 1e7, with 32 of 60 coordinates learned, margins relative to mu were off by 0.1 to 44
            times the tolerance, depending on rounding. Compare with a run at a smaller tolerance.
        record: ln t to record besides `log_until`, (k,); -inf is the start. By default the start and 199 times evenly
            spaced in ln(1 + ln(1 + t / ts)), ts the time in which the flow begins to move.
        throw: True: raise if the flow ends early or its energy is out of balance. False: return it; check `status`.
        max_evaluations: end early after so many evaluations of the right-hand side.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or the flow never moves from the start.
        FlowError: the flow ended early or its energy is out of balance, and `throw` is true; `FlowError.result` is the
            flow until then.
    """
    B = real_array("features", features, (None, None, None))
    n, m, d = B.shape
    given = start if isinstance(start, DiagonalMarginInit) else DiagonalMarginInit.at_scale(_scale(start, d), d)
    begin = DiagonalMarginInit(*(real_array(f"start.{side}", getattr(given, side), (d,)) for side in ("plus", "minus")))
    return follow(
        DiagonalMarginFlow,
        IntegralSystem.diagonal(loss, B, begin.plus, begin.minus),
        MarginRun(log_until, tolerance, record, max_evaluations, throw, report),
        lambda phi: {"phi": phi.reshape(-1, n, m), "features": B, "start": begin},
    )


@validate_arguments
def matrix_margin_flow(
    loss: MarginLoss,
    differences: ArrayLike,
    queries: ArrayLike,
    start: ArrayLike | None = None,
    *,
    log_until: float,
    tolerance: float,
    record: ArrayLike | None = None,
    throw: bool = True,
    max_evaluations: int = 100_000,
    report: Report = silent,
) -> MatrixMarginFlow:
    """Follow gradient flow of L(D^T W z) in W.

    Args:
        loss: of the margins.
        differences: D, (n, m, d).
        queries: z, (n, d).
        start: W(0), (d, d); 0 by default.
        log_until: ln t at the end, up to 1e9.
        tolerance: the error allowed in the direction W / mu, about; 1e-11 to 1e-4.
        record: ln t to record besides `log_until`, (k,); -inf is the start. By default the start and 199 times evenly
            spaced in ln(1 + ln(1 + t / ts)), ts the time in which the flow begins to move.
        throw: True: raise if the flow ends early or its energy is out of balance. False: return it; check `status`.
        max_evaluations: end early after so many evaluations of the right-hand side.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or the flow never moves from the start.
        FlowError: the flow ended early or its energy is out of balance, and `throw` is true; `FlowError.result` is the
            flow until then.
    """
    D, z = _data(differences, queries)
    n, m, d = D.shape
    W = None if start is None else real_array("start", start, (d, d))
    first = np.zeros((n, m)) if W is None else np.einsum("nmd,nd->nm", D, z @ W.T)
    return follow(
        MatrixMarginFlow,
        IntegralSystem.of_matrix(loss, D, z, first),
        MarginRun(log_until, tolerance, record, max_evaluations, throw, report),
        lambda phi: {"phi": phi.reshape(-1, n, m), "differences": D, "queries": z, "start": W},
    )


@validate_arguments
def key_query_margin_flow(
    loss: MarginLoss,
    differences: ArrayLike,
    queries: ArrayLike,
    start: Any,
    *,
    log_until: float,
    tolerance: float,
    record: ArrayLike | None = None,
    throw: bool = True,
    max_evaluations: int = 100_000,
    report: Report = silent,
) -> KeyQueryMarginFlow:
    """Follow gradient flow of L(D^T K Q^T z) in K and Q.

    Rounding errors are carried along. Where they decide what a start learns that lacks a direction, such as K = -Q, the
    run ends with the status `undecided`.

    Args:
        loss: of the margins.
        differences: D, (n, m, d).
        queries: z, (n, d).
        start: K and Q at time 0, both (d, d_e).
        log_until: ln t at the end, up to 1e9.
        tolerance: the error allowed in the direction K Q^T / mu, about; 1e-11 to 1e-4.
        record: ln t to record besides `log_until`, (k,); -inf is the start. By default the start and 199 times evenly
            spaced in ln(1 + ln(1 + t / ts)), ts the time in which the flow begins to move.
        throw: True: raise if the flow ends early or its energy is out of balance. False: return it; check `status`.
        max_evaluations: end early after so many evaluations of the right-hand side.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or the flow never moves from the start.
        FlowError: the flow ended early or its energy is out of balance, and `throw` is true; `FlowError.result` is the
            flow until then.
    """
    D, z = _data(differences, queries)
    if not isinstance(start, tuple) or len(start) != 2:
        raise InputError(f"start must be a pair (K, Q); got {start!r}.")
    K = real_array("K", start[0], (D.shape[2], None))
    Q = real_array("Q", start[1], K.shape)
    reduction = Reduction.of(D, z, K, Q)
    system = KeyQuerySystem(loss, reduction)
    run = MarginRun(log_until, tolerance, record, max_evaluations, throw, report)

    def own(coordinates: Float[np.ndarray, "k N"]) -> dict[str, Any]:
        keys, query_weights = (np.array(each) for each in zip(*map(system.pair, coordinates), strict=True))
        return {
            "reduced_keys": keys,
            "reduced_queries": query_weights,
            "reduction": reduction,
            "conservation_defects": _conservation_defects(keys, query_weights, reduction.keys, reduction.query_weights),
        }

    return follow(KeyQueryMarginFlow, system, run, own)


def _conservation_defects(K: np.ndarray, Q: np.ndarray, K0: np.ndarray, Q0: np.ndarray) -> Float[np.ndarray, "k"]:
    """Return |K^T K - Q^T Q - K0^T K0 + Q0^T Q0| / |K^T K| at each record; all over the largest entry of K there."""
    largest = np.abs(K).max(axis=(1, 2), keepdims=True)  # squares of squares could overflow or vanish
    K, Q, K0, Q0 = (each / largest for each in (K, Q, K0, Q0))
    square = K.mT @ K
    defects = square - Q.mT @ Q - K0.mT @ K0 + Q0.mT @ Q0
    return np.linalg.norm(defects, axis=(1, 2)) / np.linalg.norm(square, axis=(1, 2))


def _data(differences: ArrayLike, queries: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    D = real_array("differences", differences, (None, None, None))
    return D, real_array("queries", queries, (D.shape[0], D.shape[2]))


def _scale(start: object, d: int) -> Float[np.ndarray, "..."]:
    """Return omega_0, checked."""
    try:
        scale = np.asarray(start, float)
    except (TypeError, ValueError) as error:
        raise InputError(f"start must be omega_0 or a DiagonalMarginInit; got {start!r}.") from error
    if scale.shape not in ((), (1,), (d,)):
        raise InputError(f"start must be a number or of shape ({d},), omega_0; got shape {scale.shape!r}.")
    return scale
