"""Section 4.2: the same loss, W alone to the Frobenius norm and keys times queries to the nuclear norm.

Gaussian data, outside Assumption 4 (within it the two SVM solutions coincide), W alone from 0, and K and Q from normal
entries of deviation scale/sqrt(d): neither aligned nor balanced, d columns each. Both flows are followed to
t = 10^100000, since directions converge in ln t, and compared with the certified optima of both SVMs.

    excess of a norm   |W| / mu over the least norm of margin 1, less 1: excess of the flow's direction over the SVM's
    loss ratio         W alone: t (L - L*) over |W_F|_F^2; keys and queries: t mu (L - L*) over |W_*|_* / 2

The time from which keys and queries are below W alone in the nuclear norm depends on size and start: one of 20 trial
draws of (n, L, d) = (4, 5, 8) had a W_F so near W_* that it took more than t = 1e10, one of (20, 10, 200) more than
1e50.

The paper proves the second statement under Assumption 4 and aligned starts alone (Theorem 5.1).
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.section_4_2.claims import FACTORS, WEIGHTS, claims
from saddlescope.papers.softmax_attention.section_4_2.figures import figures
from saddlescope.papers.softmax_attention.section_4_2.metrics import metrics
from saddlescope.papers.softmax_attention.shared.head_flows import draw_head, follow_in_balance
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Sizes, draws and times."""

    samples: int = param(10, "n", ge=2)
    tokens: int = param(5, "L", ge=2)
    dim: int = param(50, "d, and as many columns of K and Q", ge=2)
    draws: int = param(24, "of the data, each with a start of its own", ge=1)
    scale: float = param(0.1, "of K and Q: entries have the deviation scale / sqrt(d)", gt=0)
    log10_times: tuple[float, ...] = param(
        (10.0, 20.0, 50.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5), "log10 t, with 100"
    )
    seed: int = param(0, "of the first draw", ge=0)

    def check(self) -> None:
        times = self.log10_times
        if len(times) < 2 or list(times) != sorted(set(times)) or times[0] < 5 or 100.0 not in times:
            raise InputError(f"log10_times must ascend from 5 or more and have 100 among them; got {times!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow both flows and solve both SVMs of every draw."""
    draws = []
    for k in range(params.draws):
        context.report(k / params.draws, f"draw {k + 1} of {params.draws}")
        draws.append(context.cached(f"draw-{k}", partial(_compare_draw, params, params.seed + k)))
    context.report(1.0, "done")
    return xr.concat(draws, "draw").assign_coords(
        flow=[WEIGHTS, FACTORS], draw=range(params.draws), log10_time=("time", list(params.log10_times))
    )


def _compare_draw(params: Params, seed: int) -> xr.Dataset:
    """Return the excesses and loss ratios of both flows of one draw, (flow, time)."""
    from saddlescope.flow import key_query_margin_flow, matrix_margin_flow
    from saddlescope.models.tokens.generators import gaussian_tokens
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.theory import frobenius_svm, nuclear_svm

    data = gaussian_tokens(params.samples, params.tokens, params.dim, seed=seed)
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    log_times = np.array(params.log10_times) * np.log(10)
    head = draw_head((seed, 1), params.dim, params.dim, params.scale)
    alone = follow_in_balance(matrix_margin_flow, loss, data.differences, data.z, log_times=log_times)
    pairs = follow_in_balance(key_query_margin_flow, loss, data.differences, data.z, head, log_times=log_times)
    nuclear, frobenius = nuclear_svm(data), frobenius_svm(data)
    sizes = {
        WEIGHTS: np.array([np.linalg.svd(alone.weights(k), compute_uv=False) for k in range(len(log_times))]),
        FACTORS: np.array([pairs.spectrum(k) for k in range(len(log_times))]),
    }
    margins = {WEIGHTS: alone.margin, FACTORS: pairs.margin}
    W_F, W_N = frobenius.certificate.dual, nuclear.certificate.dual  # lower bounds: no excess is understated by them

    def excess(of: np.ndarray, margin: np.ndarray, least: float) -> np.ndarray:
        return np.where(margin > 0, of / np.where(margin > 0, margin, 1.0), np.nan) / least - 1

    ratios = [
        np.exp(log_times + alone.log_excess) / W_F**2,
        np.exp(log_times + pairs.log_excess) * pairs.margin / (W_N / 2),
    ]
    return xr.Dataset(
        {
            "nuclear": (("flow", "time"), [excess(s.sum(axis=1), margins[of], W_N) for of, s in sizes.items()]),
            "frobenius": (
                ("flow", "time"),
                [excess(np.linalg.norm(s, axis=1), margins[of], W_F) for of, s in sizes.items()],
            ),
            "loss_ratio": (("flow", "time"), ratios),
            "gap": max(nuclear.certificate.gap, frobenius.certificate.gap),
            "ranks": (("flow",), [frobenius.certificate.rank, nuclear.certificate.rank]),
            "evaluations": (("flow",), [alone.evaluations, pairs.evaluations]),
        }
    )


entry = Entry(
    "softmax-attention/section-4-2",
    "Section 4.2: the same loss, W alone to the Frobenius norm and keys times queries to the nuclear norm",
    citation=CITATION,
    source="Section 4.2",
    params=Params,
    quick=dict(samples=4, dim=8, draws=4, log10_times=(10.0, 100.0, 1e3, 1e5)),
    paper=dict(samples=20, tokens=10, dim=200),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
