"""Runs of the entry `figure_10`: a batch of random starts, single starts and the printed map D.2."""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.shared.discrete_maps import printed_runs
from saddlescope.papers.concept_learning.shared.two_layer_runs import errors_against_dop853, follow_start
from saddlescope.reproduction.context import RunContext

_STEP = 0.01  # of the printed map, as in the authors' programs

CASES = ("plateau", "deficient")

LIKE = 0.02  # of mu_1^2 / 2: a loss that looks like Figure 10's

_TIMES = 121  # at which the share of starts that have learned is recorded


def random_batch(a: np.ndarray, x: np.ndarray, starts: np.ndarray, params: Any, context: RunContext) -> xr.Dataset:
    """Follow random starts of full rank with A and with A^2, and return when they have learned."""
    from saddlescope.flow import symmetric_flows

    times = np.linspace(0.0, params.until, _TIMES)
    shares, ends = [], []
    for n, strengths in enumerate((a, a**2)):
        flows = symmetric_flows(
            strengths, starts, test_point=x, until=params.until, record=np.append(times, params.horizon),
            tolerance=1e-8, report=context.part(0.3 * n, 0.3 * (n + 1)),
        )  # fmt: skip
        weakest = flows.W[:, :, 0, 0]
        shares.append((weakest[:, np.isin(flows.times, times)] > 0.5).mean(axis=0))
        at = int(np.searchsorted(flows.times, params.horizon))
        ends.append(
            {
                "unlearned": float((weakest[:, at] < 0.5).mean()),
                "like": float((np.abs(flows.losses[:, at] / (x[0] ** 2 / 2) - 1) < LIKE).mean()),
                "never": int(np.sum(np.isinf([flows.learned_at(i) for i in range(len(flows))]))),
                "faults": int(np.sum(flows.endings > 1)),
            }
        )
    early = symmetric_flows(a, starts, test_point=x, until=params.horizon, tolerance=1e-8)
    return xr.Dataset(
        {
            "learned_share": (("moment", "batch_time"), np.array(shares)),
            **{name: ("moment", [one[name] for one in ends]) for name in ends[0]},
            "learned_at": ("start_of", np.array([early.learned_at(i) for i in range(len(early))])),
        },
        coords={"moment": ["A", "A^2"], "batch_time": times},
    )


def single_run(a: np.ndarray, x: np.ndarray, start: np.ndarray, params: Any) -> xr.Dataset:
    """Follow one start; return also its loss at the horizon and the predictions made there."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.theory.concepts import predicted_limit

    early = symmetric_flows(a, start[None], test_point=x, until=params.horizon, tolerance=1e-11)
    one = follow_start(a, x, start, params.until)
    limit = predicted_limit(a, start)
    return one.assign(
        W_error=errors_against_dop853(one).W,
        horizon_loss=float(early.losses[0, -1]),
        horizon_ending=int(early.endings[0]),
        said_at_horizon=early.learned_at(0),
        limit_loss=limit.test_loss(x),
        end_loss=float(one.loss[-1]),
    )


def printed_map_runs(a: np.ndarray, x: np.ndarray, starts: np.ndarray, params: Any) -> xr.Dataset:
    """Iterate equation D.2 from random starts, to the horizon and to twice as far."""
    steps, keep = round(2 * params.horizon / _STEP), 100  # n steps are the time eta n / 2
    runs = printed_runs(a, starts, step=_STEP, steps=2 * steps, keep=2 * keep)
    losses = runs.losses(x)
    lost = np.flatnonzero(runs.indefinite)
    # The one whose loss out of distribution stays finite longest is shown.
    shown = int(lost[np.argmax(np.sum(np.isfinite(losses[lost]), axis=1))]) if len(lost) else 0
    return xr.Dataset(
        {
            "indefinite": ("map_start", runs.indefinite),
            "blown_up": ("map_start", runs.blown_up),
            "map_end_loss": ("map_start", losses[:, -1]),
            "map_loss": ("map_time", losses[shown]),
            "map_weakest": ("map_time", runs.W[shown, :, 0, 0]),
        },
        coords={"map_time": runs.times},
    )
