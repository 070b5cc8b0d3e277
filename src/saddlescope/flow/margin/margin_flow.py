"""Gradient flow of a loss of margins u_il = D_il^T W z_i, to t = 1e300 and ln t = 1e7: which margins does it maximise?

    diagonal_margin_flow   W = diag(beta), in xi_k, xi_q or in w+, w-: one flow (Lemma 4.1), followed in phi
    matrix_margin_flow     W alone, followed in phi
    key_query_margin_flow  W = K Q^T, followed in the parts of K and Q that move

The loss comes as its rates r = -dL/du in logarithms (`saddlescope.models.tokens.losses.SelectionLoss` is one): they are
e^-1e6 where all is decided. Time runs in ln ln t, the solver is stiff and knows the Jacobian, and what it returns is
checked against the energy balance dL/dt = -|grad L|^2.

Sheen, Chen, Wang and Zhou (2024), "Implicit regularization of gradient flow on one-layer softmax attention".
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.flow.margin.integrator import MarginPath, follow
from saddlescope.flow.margin.key_query_system import KeyQuerySystem, Reduction
from saddlescope.flow.margin.records import Record, as_tables, balanced, checked_array, checked_log_times, trusted
from saddlescope.flow.margin.results import DiagonalMarginFlow, DiagonalMarginInit, KeyQueryMarginFlow, MatrixMarginFlow
from saddlescope.flow.margin.systems import AbstractMarginSystem, DiagonalSystem, MarginLoss, MatrixSystem
from saddlescope.flow.status import silent

_LOCAL_SHARE = 0.1  # of the tolerance, for the error of one step: directions then end within the tolerance, about
_BALANCE = 1000  # times the tolerance: an energy defect beyond it breaks a run; usual ones are below 30
_LATEST = 1e9  # ln t: beyond it, one unit of rounding of the clock is a factor of t that can be seen
_TINY = np.finfo(float).tiny


@validate_arguments
def diagonal_margin_flow(
    loss: MarginLoss,
    features: ArrayLike,
    start: float | ArrayLike | DiagonalMarginInit,
    log_times: ArrayLike,
    *,
    tolerance: float = 1e-7,
    max_evaluations: int = 100_000,
    report: Callable[[float, str], None] = silent,
) -> DiagonalMarginFlow:
    """Gradient flow of L(B beta) in xi_k and xi_q with beta = xi_k * xi_q, or in w+, w-, beta = (w+^2 - w-^2)/2.

    Args:
        loss: of the margins.
        features: B, (n, m, d).
        start: omega_0, one for all coordinates or (d,), or a `DiagonalMarginInit`.
        log_times: ln t to record at, ascending, up to 1e9; -inf is the start itself, (k,).
        tolerance: the error allowed in the direction beta / mu, about; 1e-11 to 1e-4.
        max_evaluations: of the right-hand side.
        report: called now and then with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or the start is one that never moves.
        MarginFlowError: the run did not reach its last time, or its energy is out of balance.
    """
    B = checked_array("features", features, (None, None, None))
    n, m, d = B.shape
    given = start if isinstance(start, DiagonalMarginInit) else DiagonalMarginInit.at_scale(_scale(start, d), d)
    begin = DiagonalMarginInit(
        *(checked_array(f"start.{side}", getattr(given, side), (d,)) for side in ("plus", "minus"))
    )
    system = DiagonalSystem(loss, B, begin.plus, begin.minus)
    run = _Run(tolerance, max_evaluations, report)
    path, common = run(system, np.zeros(n * m), log_times, float(1 / max(np.abs(B).max(), _TINY)))
    return trusted(DiagonalMarginFlow(**common, phi=path.states[:, 2:].reshape(-1, n, m), features=B, start=begin))


@validate_arguments
def matrix_margin_flow(
    loss: MarginLoss,
    differences: ArrayLike,
    queries: ArrayLike,
    log_times: ArrayLike,
    *,
    start: ArrayLike | None = None,
    tolerance: float = 1e-7,
    max_evaluations: int = 100_000,
    report: Callable[[float, str], None] = silent,
) -> MatrixMarginFlow:
    """Gradient flow of L(D^T W z) in W.

    Args:
        loss: of the margins.
        differences: D, (n, m, d).
        queries: z, (n, d).
        log_times: ln t to record at, ascending, up to 1e9; -inf is the start itself, (k,).
        start: W(0), (d, d); 0 by default.
        tolerance: the error allowed in the direction W / mu, about; 1e-11 to 1e-4.
        max_evaluations: of the right-hand side.
        report: called now and then with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or the start is one that never moves.
        MarginFlowError: the run did not reach its last time, or its energy is out of balance.
    """
    D, z = _data(differences, queries)
    n, m, d = D.shape
    W = None if start is None else checked_array("start", start, (d, d))
    first = np.zeros((n, m)) if W is None else np.einsum("nmd,nd->nm", D, z @ W.T)
    system = MatrixSystem(loss, D, z, first)
    run = _Run(tolerance, max_evaluations, report)
    path, common = run(system, np.zeros(n * m), log_times, float(1 / max(np.abs(system.gram).max(), _TINY)))
    phi = path.states[:, 2:].reshape(-1, n, m)
    return trusted(MatrixMarginFlow(**common, phi=phi, differences=D, queries=z, start=W))


@validate_arguments
def key_query_margin_flow(
    loss: MarginLoss,
    differences: ArrayLike,
    queries: ArrayLike,
    start: Any,
    log_times: ArrayLike,
    *,
    tolerance: float = 1e-7,
    max_evaluations: int = 100_000,
    report: Callable[[float, str], None] = silent,
) -> KeyQueryMarginFlow:
    """Gradient flow of L(D^T K Q^T z) in K and Q.

    Args:
        loss: of the margins.
        differences: D, (n, m, d).
        queries: z, (n, d).
        start: K and Q at time 0, both (d, d_e).
        log_times: ln t to record at, ascending, up to 1e9; -inf is the start itself, (k,).
        tolerance: the error allowed in the direction K Q^T / mu, about; 1e-11 to 1e-4.
        max_evaluations: of the right-hand side.
        report: called now and then with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or the start is one that never moves.
        MarginFlowError: the run did not reach its last time, or its energy is out of balance.
    """
    D, z = _data(differences, queries)
    if not isinstance(start, tuple) or len(start) != 2:
        raise InputError(f"start must be a pair (K, Q); got {start!r}.")
    K = checked_array("K", start[0], (D.shape[2], None))
    Q = checked_array("Q", start[1], K.shape)
    reduction = Reduction.of(D, z, K, Q)
    system = KeyQuerySystem(loss, reduction)
    coordinates = np.concatenate([reduction.keys.ravel(), reduction.query_weights.ravel()])
    run = _Run(tolerance, max_evaluations, report)
    path, common = run(system, coordinates, log_times, float(np.sqrt(np.mean(coordinates**2))))
    pairs = [system.pair(state[2:]) for state in path.states]
    keys = np.array([K for K, _ in pairs]).reshape(-1, *reduction.keys.shape)
    query_weights = np.array([Q for _, Q in pairs]).reshape(-1, *reduction.query_weights.shape)
    conserved = keys.mT @ keys - query_weights.mT @ query_weights
    first = reduction.keys.T @ reduction.keys - reduction.query_weights.T @ reduction.query_weights
    return trusted(
        KeyQueryMarginFlow(
            **common,
            reduced_keys=keys,
            reduced_queries=query_weights,
            reduction=reduction,
            conservation_defects=np.linalg.norm(conserved - first, axis=(1, 2))
            / np.linalg.norm(keys.mT @ keys, axis=(1, 2)),
        )
    )


class _Run:
    """One run: its policies, what all flows record, and the verdict on it."""

    def __init__(self, tolerance: float, max_evaluations: int, report: Callable[[float, str], None]) -> None:
        if not 1e-11 <= tolerance <= 1e-4:
            raise InputError(f"tolerance must be between 1e-11 and 1e-4; got {tolerance!r}.")
        if max_evaluations < 1:
            raise InputError(f"max_evaluations must be at least 1; got {max_evaluations!r}.")
        self._tolerance, self._most, self._report = tolerance, max_evaluations, report

    def __call__(
        self, system: AbstractMarginSystem, coordinates: np.ndarray, log_times: ArrayLike, scale: float
    ) -> tuple[MarginPath, dict[str, Any]]:
        """The path, and what all flows record of it."""
        times = checked_log_times(log_times, _LATEST)
        with np.errstate(over="ignore", invalid="ignore"):
            margins = system.margins(coordinates)
        if not np.all(np.isfinite(margins)):
            raise InputError("start must give finite margins; got one whose weights overflow. Start from smaller ones.")
        try:
            moves = system.set_clock(coordinates)
        except ValueError as error:
            raise InputError(f"loss must be one of margins of shape {margins.shape!r}; got {system.loss!r}.") from error
        if not moves:
            raise InputError("start must be one that moves; got one at which the gradient is 0. Start from another.")
        path = follow(
            system,
            coordinates,
            times,
            rtol=self._tolerance * _LOCAL_SHARE,
            atol=self._tolerance * _LOCAL_SHARE * scale,
            max_evaluations=self._most,
            report=self._report,
        )
        records = [_record(system, *of) for of in zip(path.states[:, 2:], path.log_times, strict=True)]
        common = as_tables(records) | {
            "log_times": path.log_times,
            "energy_defects": path.defects,
            "evaluations": system.evaluations,
            "steps": path.steps,
            "status": balanced(path.status, path.defects, _BALANCE * self._tolerance),
        }
        return path, common


def _record(system: AbstractMarginSystem, coordinates: np.ndarray, log_time: float) -> Record:
    """What all flows record of one state."""
    margins = system.margins(coordinates)
    log_rates, signs = system.loss.log_rates(margins)
    motion = system.moved(coordinates, signs * np.exp(log_rates + log_time))
    return Record(
        margins=margins,
        log_rates=log_rates,
        rate_signs=signs,
        margin_speeds=system.margins_jvp(coordinates, motion),
        log_excess=system.loss.log_excess(margins),
    )


def _data(differences: ArrayLike, queries: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    D = checked_array("differences", differences, (None, None, None))
    return D, checked_array("queries", queries, (D.shape[0], D.shape[2]))


def _scale(start: object, d: int) -> Float[np.ndarray, "..."]:
    """omega_0, checked."""
    try:
        scale = np.asarray(start, float)
    except (TypeError, ValueError) as error:
        raise InputError(f"start must be omega_0 or a DiagonalMarginInit; got {start!r}.") from error
    if scale.shape not in ((), (1,), (d,)):
        raise InputError(f"start must be a number or of shape ({d},), omega_0; got shape {scale.shape!r}.")
    return scale
