"""Implicit bias of gradient flow on your own token data: the norm that it minimises.

One softmax attention head has three parametrisations: keys and queries, W = K Q^T; W alone; diagonal weights,
W = diag(xi_k xi_q). For each, this study solves the two candidate problems, least nuclear and least Frobenius norm
among the weights that it can represent, with certificates. It follows the flow to astronomical times and states the
verdict (`norms`). For diagonal weights the nuclear norm is |beta|_1 and the Frobenius norm |beta|_2.

Theory and flows are computed independently of each other, so that their agreement is evidence.
"""

import math
import os
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import shown, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import Table, html_table, text_table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Figure, Panel
from saddlescope.figures.records import Table as FigureTable
from saddlescope.flow import (
    DiagonalMarginFlow,
    KeyQueryMarginFlow,
    MarginFlow,
    MatrixMarginFlow,
    diagonal_margin_flow,
    key_query_margin_flow,
    matrix_margin_flow,
)
from saddlescope.models.tokens.assumptions import TokenAssumptions, check_token_assumptions
from saddlescope.models.tokens.data import TokenData, load_tokens
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.studies.bias_figures import bias_figures, norms_panel
from saddlescope.studies.norms import NormVerdict, norm_verdict, shares
from saddlescope.theory.attention.svm import DiagonalSvm, MatrixSvm, frobenius_svm, l1_svm, nuclear_svm

NORMS = ("nuclear", "Frobenius")
FLOWS = ("keys and queries", "W alone", "diagonal")
_RECORDS = 60
_LARGEST_LOG_SCALE = 700.0  # e^700 and e^-700 are float64 numbers


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ImplicitBias(TableMixin, PlotMixin):
    """Predictions, flows and verdicts for some token data.

    Attributes:
        data: the tokens.
        assumptions: check of the paper's assumptions at zero weights.
        nuclear: the solution of least nuclear norm.
        frobenius: the solution of least Frobenius norm.
        l1: the diagonal solution of least l1 norm; None if diagonal weights do not separate the data.
        verdicts: by flow, in the order of `FLOWS`, without the diagonal one if it has no solution.
        dataset: the flows over time, described in `implicit_bias`.
    """

    data: TokenData
    assumptions: TokenAssumptions
    nuclear: MatrixSvm
    frobenius: MatrixSvm
    l1: DiagonalSvm | None
    verdicts: dict[str, NormVerdict]
    dataset: xr.Dataset

    def __repr__(self) -> str:
        until = float(self.dataset.log_time[-1])
        caption = f"ImplicitBias of {self.data!r} to ln t = {until:.6g}:"
        return text_table(caption, *self.problems()) + text_table("", *self.outcomes())

    def __str__(self) -> str:
        return repr(self)

    def _table(self) -> Table:
        numbers = ("nuclear_excess", "frobenius_excess", "nuclear_share", "frobenius_share")
        rows = ((name, of.norm, *(getattr(of, number) for number in numbers)) for name, of in self.verdicts.items())
        return ("flow", "minimises", *(number.replace("_", " ") for number in numbers)), rows

    def _repr_html_(self) -> str:
        return html_table(repr(self).partition("\n")[0], *self.problems()) + html_table("", *self.outcomes())

    def panel(self) -> Panel:
        """Return the excess of both norms over their least value at the present margin, for each flow."""
        return norms_panel(self.dataset)

    def figures(self) -> list[Figure]:
        """Return the norms with the outcomes, the spectra of the directions, and the directions with the problems."""
        solutions = {"least nuclear norm": self.nuclear.weights, "least Frobenius norm": self.frobenius.weights}
        outcomes, problems = (
            FigureTable(columns=columns, rows=tuple(rows)) for columns, rows in (self.outcomes(), self.problems())
        )
        return bias_figures(self.dataset, solutions, outcomes=outcomes, problems=problems)

    def summary(self) -> dict[str, Any]:
        """Return problems, assumptions and verdicts as JSON values; NaN and infinity become None."""
        solved = (("nuclear", self.nuclear), ("Frobenius", self.frobenius), ("l1", self.l1))
        answers = {field.name: getattr(self.assumptions, field.name) for field in fields(self.assumptions)}
        return {
            "samples": self.data.samples,
            "tokens": self.data.tokens,
            "dim": self.data.dim,
            "assumptions": {name: _json(asdict(answer)) for name, answer in answers.items() if answer is not None},
            "problems": {
                name: _json({"value": of.primal, "gap": of.gap, "rank": of.rank, "unique": of.unique})
                for name, of in ((name, each.certificate) for name, each in solved if each is not None)
            },
            "flows": {name: _json(asdict(verdict)) for name, verdict in self.verdicts.items()},
        }

    def problems(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the columns and rows of a table of the problems and their certificates."""
        solved = (("nuclear", self.nuclear), ("Frobenius", self.frobenius), ("l1, diagonal", self.l1))
        rows = [
            (name, f"{of.primal:.9g}", f"{max(of.gap, 0.0):.1e}", f"{of.rank}", "yes" if of.unique else "not certified")
            for name, of in ((name, each.certificate) for name, each in solved if each is not None)
        ]
        return ("least norm", "value", "relative gap", "rank", "unique"), rows

    def outcomes(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the columns and rows of a table of the flows and their verdicts."""
        rows = [
            (
                name,
                of.norm,
                _with_share(of.nuclear_excess, of.nuclear_share),
                _with_share(of.frobenius_excess, of.frobenius_share),
                of.says,
            )
            for name, of in self.verdicts.items()
        ]
        return ("flow", "minimises", "nuclear excess (share)", "Frobenius excess (share)", "because"), rows


@validate_arguments
def implicit_bias(
    data: TokenData | str | os.PathLike[str],
    *,
    loss: str = "exponential",
    log_until: float = 1e6,
    record: ArrayLike | None = None,
    log_scale: float = math.log(0.1),
    seed: int = 0,
    tolerance: float = 1e-7,
    report: Report = silent,
) -> ImplicitBias:
    """Compute the solutions, the flows and the verdicts for some token data.

    Args:
        data: the tokens, or the path of an .npz file with the arrays X, z, y and v.
        loss: "exponential", l(x) = e^-x, or "logistic", l(x) = ln(1 + e^-x).
        log_until: ln t at the end, above 1.
        record: ln t to record besides `log_until`, (k,), finite; by default 60 times from ln t = 1 to `log_until`,
            evenly spaced in ln ln t.
        log_scale: natural logarithm of the initial scale, in units of margins. W(0) = 0. K and Q (d, d) are independent
            normal, with the scale as the root mean square of their margins. omega_0^2 is the scale over the root mean
            square of |B_il|.
        seed: of K and Q.
        tolerance: approximate error allowed in the directions, 1e-11 to 1e-4.
        report: called from time to time with the finished fraction and a note.

    Returns:
        The result. Its dataset has, over (flow, log_time): `excess` and `share` (also over norm), `log_loss_excess`,
        `margin` mu, `singular_values` of W / mu, and `distance` (also over norm) of W / mu from the solution, relative
        to its size. It has `optimum` and `contrast` over (flow, norm), `direction` at the last time over (flow, row,
        column), and `status`, `trusted` and `verdict` over flow. Undefined values are NaN, such as W / mu before all
        margins are positive.

    Raises:
        InputError: invalid data, data that no W separates, or an argument out of range.
    """
    if not isinstance(data, TokenData | str | os.PathLike):
        raise InputError(f"data must be TokenData or the path of an .npz file; got {shown(data)}.")
    if not 1 < log_until <= 1e9:
        raise InputError(f"log_until must be above 1, up to 1e9; got {log_until!r}.")
    recorded = np.geomspace(1.0, log_until, _RECORDS) if record is None else real_array("record", record)
    if recorded.ndim != 1 or not np.all(recorded <= log_until):
        raise InputError(f"record must be a vector of ln t, at most log_until={log_until!r}; got {record!r}.")
    if not abs(log_scale) <= _LARGEST_LOG_SCALE:
        raise InputError(f"log_scale must be between +-{_LARGEST_LOG_SCALE:g}; got {log_scale!r}. Use math.log(scale).")
    if seed < 0:
        raise InputError(f"seed must be at least 0; got {seed!r}.")
    tokens = data if isinstance(data, TokenData) else load_tokens(os.fspath(data))
    selection = SelectionLoss(tokens.optimal_scores, tokens.gaps, loss)
    report(0.0, "support vector machines")
    nuclear, frobenius = nuclear_svm(tokens), frobenius_svm(tokens)
    assumptions = check_token_assumptions(tokens, loss=loss)
    l1 = l1_svm(tokens) if assumptions.separable_diagonal.holds else None
    log_times, scale = np.unique(np.append(recorded, log_until)), math.exp(log_scale)
    D, z, d = tokens.differences, tokens.z, tokens.dim
    K, Q = np.random.default_rng(seed).standard_normal((2, d, d))
    size = (scale / _root_mean_square(tokens.margins((K, Q)))) ** 0.5
    start = (size * K, size * Q)
    full = (nuclear.weights, frobenius.weights)

    def policies(k: int) -> dict[str, Any]:
        def report_part(fraction: float, note: str) -> None:
            report((k + fraction) / len(FLOWS), f"{FLOWS[k]}: {note}")

        run = {"log_until": log_until, "record": recorded, "tolerance": tolerance}
        return run | {"throw": False, "report": report_part}

    flows: list[tuple[MarginFlow, tuple[np.ndarray, np.ndarray]]] = [
        (key_query_margin_flow(selection, D, z, start, **policies(0)), full),
        (matrix_margin_flow(selection, D, z, **policies(1)), full),
    ]
    if l1 is not None:
        B = tokens.features
        omega0 = (scale / _root_mean_square(np.linalg.norm(B, axis=2))) ** 0.5
        solutions = np.diag(l1.beta), np.diag(_least_square(tokens, l1))
        flows.append((diagonal_margin_flow(selection, B, omega0, **policies(2)), solutions))
    names = FLOWS[: len(flows)]
    compared = [_compared(name, *flow, log_times) for name, flow in zip(names, flows, strict=True)]
    dataset = xr.concat(compared, "flow", combine_attrs="drop")
    verdicts = {name: _verdict(dataset.sel(flow=name)) for name in names}
    dataset["verdict"] = ("flow", [verdicts[name].norm for name in names])
    dataset.attrs |= {"loss": loss, "scale": scale, "seed": seed, "tolerance": tolerance}
    report(1.0, "done")
    return ImplicitBias(
        data=tokens,
        assumptions=assumptions,
        nuclear=nuclear,
        frobenius=frobenius,
        l1=l1,
        verdicts=verdicts,
        dataset=dataset,
    )


def _with_share(excess: float, share: float) -> str:
    return "–" if math.isnan(excess) else f"{excess:.3g} ({share:.2g})"


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.mean(values**2)) ** 0.5


def _json(numbers: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(of, float) and not math.isfinite(of) else of for name, of in numbers.items()}


def _least_square(data: TokenData, l1: DiagonalSvm) -> Float[np.ndarray, "d"]:
    """Return the beta of least |beta|_2 with all margins 1 or more.

    B_il.beta >= 1 are the constraints of a full W on tokens of differences B_il with one query e_1, and beta is its
    first column; the l1 solution serves as the head, which orders the scores of the tokens correctly.
    """
    X = np.concatenate([np.zeros((data.samples, 1, data.dim)), -data.features], axis=1)
    queries = np.zeros((data.samples, data.dim))
    queries[:, 0] = 1.0
    return frobenius_svm(TokenData(X, queries, np.ones(data.samples), l1.beta)).weights[:, 0]


def _direction(flow: MarginFlow, record: int) -> Float[np.ndarray, "d d"]:
    """Return W / mu at one recorded time."""
    if isinstance(flow, KeyQueryMarginFlow):
        K, Q = flow.direction(record)
        return K @ Q.T
    if isinstance(flow, MatrixMarginFlow):
        return flow.direction(record)
    assert isinstance(flow, DiagonalMarginFlow)
    return np.diag(flow.direction[record])


def _compared(
    name: str, flow: MarginFlow, solutions: tuple[np.ndarray, np.ndarray], log_times: Float[np.ndarray, "k"]
) -> xr.Dataset:
    """Compare one flow with the solutions of least nuclear and Frobenius norm."""
    d = len(solutions[0])
    reached = int(np.sum(flow.log_times == log_times[: len(flow.log_times)]))  # an early end is between two times
    spectra, distances = np.full((len(log_times), d), np.nan), np.full((len(log_times), 2), np.nan)
    direction = np.full((d, d), np.nan)
    for k in np.flatnonzero(flow.margin[:reached] > 0):
        direction = _direction(flow, int(k))
        spectra[k] = np.linalg.svd(direction, compute_uv=False)
        distances[k] = [np.linalg.norm(direction - each) / np.linalg.norm(each) for each in solutions]
    optimum = np.array([np.linalg.norm(solutions[0], "nuc"), np.linalg.norm(solutions[1])])
    others = np.array([np.linalg.norm(solutions[1], "nuc"), np.linalg.norm(solutions[0])])
    excess = np.stack([spectra.sum(axis=1), np.linalg.norm(spectra, axis=1)], axis=1) / optimum - 1
    contrast = others / optimum - 1

    def padded(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values[:reached], np.full(len(log_times) - reached, np.nan)])

    return xr.Dataset(
        {
            "excess": (("log_time", "norm"), excess),
            "share": (("log_time", "norm"), shares(excess, contrast)),
            "distance": (("log_time", "norm"), distances),
            "singular_values": (("log_time", "index"), spectra),
            "margin": ("log_time", padded(flow.margin)),
            "log_loss_excess": ("log_time", padded(flow.log_excess)),
            "optimum": ("norm", optimum),
            "contrast": ("norm", contrast),
            "direction": (("row", "column"), direction if reached == len(log_times) else np.full((d, d), np.nan)),
            "status": _lost(flow) + str(flow.status),
            "trusted": flow.status.ok,
        },
        coords={"flow": name, "norm": list(NORMS), "log_time": log_times},
    )


def _lost(flow: MarginFlow) -> str:
    """Return the samples that attend to a wrong token at the last time, as a sentence and a space, or nothing."""
    lost = np.flatnonzero(flow.margins[-1].min(axis=1) <= 0).tolist() if len(flow.margins) else []
    if not lost:
        return ""
    who = f"Sample {lost[0]} attends" if len(lost) == 1 else f"Samples {', '.join(map(str, lost))} attend"
    return f"{who} to a wrong token at the last time. "


def _verdict(flow: xr.Dataset) -> NormVerdict:
    status, recorded = flow.status.item(), flow[["margin", "log_loss_excess"]].dropna("log_time")
    if recorded.sizes["log_time"]:
        margin, log_excess, log_time = (float(recorded[of][-1]) for of in ("margin", "log_loss_excess", "log_time"))
        status += f" At ln t = {log_time:.4g} the smallest margin is {margin:.3g}, and ln(L - L*) {log_excess:.3g}."
    excess = flow.excess.values[-1] if flow.trusted.item() else np.full(len(NORMS), np.nan)
    return norm_verdict(excess, flow.contrast.values, status)
