"""Figure 10: a concept that seems never to be learned, and what that can have been   (Appendix E.3)

The paper's run ends with the weakest concept's major entry near 0 and the loss near mu_1^2 / 2 = .245: "suppressed to 0
before it starts to grow, and thus never has chance to grow". From a start of full rank that cannot be, since
d/dt log det W = 4 tr(A (1 - W)) is positive there: all of W is learned. Three things look like it:

    plateau      a start of full rank, but close to one of lower rank, not given the time: it is told when the plateau
                 ends, and the run goes on until it has
    deficient    U of two columns: W has rank 2 for ever
    printed map  the iteration D.2 drops a term eta^2 grad grad^T, and loses positive semidefiniteness

And the authors' programs, as reported, square A (see `concept-learning/authors-scripts`): with A^2 for A the weakest
concept takes several times as long, and their 2000 steps of .01 end before it is learned from almost every start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.figure_10.figures import CASES, failure_figures
from saddlescope.papers.concept_learning.shared.discrete_maps import printed_runs
from saddlescope.papers.concept_learning.shared.two_layer_runs import (
    EXACT_LAW,
    EXACT_MAP,
    check_data,
    data,
    entry_of,
    errors_against_dop853,
    followed,
)
from saddlescope.plot import Figure
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

_STEP = 0.01  # of the printed map, as in the authors' programs
_LIKE = 0.02  # of mu_1^2 / 2: a loss that looks like Figure 10's
_TIMES = 121  # at which the share of starts is told that have learned


@dataclass(frozen=True, kw_only=True)
class Params:
    """The paper's data, from a batch of random starts."""

    mu: tuple[float, ...] = (0.7, 1.7, 3.0)  # distance of each cluster from the origin, the first the smallest
    sigma: tuple[float, ...] = (0.05, 0.05, 0.05)  # standard deviation of the clusters along each concept
    horizon: float = 20.0  # where a run would end: the time of the authors' 2000 steps of .01
    until: float = 120.0  # where it ends here
    scale: float = 0.1  # standard deviation of the entries of U
    starts: int = 8192  # random starts of full rank; the one whose plateau is longest is shown
    map_starts: int = 1024  # of these from which the printed map is iterated
    seed: int = 0  # of all starts

    def __post_init__(self) -> None:
        check_data(self)
        parameter_checks.at_least(1, self, "starts", "map_starts")
        parameter_checks.at_least(0, self, "seed")
        parameter_checks.between(1e-6, 0.3, self, "scale")
        if list(self.mu) != sorted(self.mu) or len(self.mu) < 3:
            raise InputError(f"mu must be three or more numbers, ascending; got {self.mu!r}.")
        if not 0 < self.horizon < self.until:
            raise InputError(f"horizon must be positive and below until={self.until!r}; got {self.horizon!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds."""
        return cls(starts=512, map_starts=96)

    @classmethod
    def paper(cls) -> "Params":
        """The default has the paper's data; its start is not told."""
        return cls()


def run(params: Params, context: RunContext) -> xr.Dataset:
    """The batch, the two runs that end like the paper's, and the printed map."""
    a, x = data(params.mu, params.sigma)
    rng = np.random.default_rng(params.seed)
    starts = params.scale * rng.standard_normal((params.starts, len(a), len(a)))
    low = params.scale * rng.standard_normal((len(a), len(a) - 1))
    batch = context.cached("batch", partial(_batch, a, x, starts, params, context))
    context.report(0.6, "the longest plateau, and a start of lower rank")
    longest = starts[int(np.argmax(batch.learned_at.values))]
    cases = xr.concat(
        [_case(a, x, start, params) for start in (longest, np.pad(low, ((0, 0), (0, 1))))], dim="case", join="outer"
    ).assign_coords(case=list(CASES))
    context.report(0.7, "the printed map")
    printed = context.cached("printed", partial(_printed, a, x, starts[: params.map_starts], params))
    context.report(1.0, "done")
    return xr.merge([cases, batch, printed]).assign(horizon=params.horizon, lost_loss=float(x[0] ** 2 / 2))


def _batch(a: np.ndarray, x: np.ndarray, starts: np.ndarray, params: Params, context: RunContext) -> xr.Dataset:
    """When random starts of full rank have learned, with A and with A^2."""
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
                "like": float((np.abs(flows.losses[:, at] / (x[0] ** 2 / 2) - 1) < _LIKE).mean()),
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


def _case(a: np.ndarray, x: np.ndarray, start: np.ndarray, params: Params) -> xr.Dataset:
    """One run, the loss where it would have ended, and what is said there of its future."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.theory.concepts import predicted_limit

    early = symmetric_flows(a, start[None], test_point=x, until=params.horizon)
    one = followed(a, x, start, params.until)
    limit = predicted_limit(a, start)
    return one.assign(
        W_error=errors_against_dop853(one).W,
        horizon_loss=float(early.losses[0, -1]),
        horizon_ending=int(early.endings[0]),
        said_at_horizon=early.learned_at(0),
        limit_loss=limit.test_loss(x),
        end_loss=float(one.loss[-1]),
    )


def _printed(a: np.ndarray, x: np.ndarray, starts: np.ndarray, params: Params) -> xr.Dataset:
    """Equation D.2 from random starts, to the horizon and to twice as far."""
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


def _of(case: str, name: str) -> Callable[[xr.Dataset], float]:
    return lambda run: float(run[name].sel(case=case))


def _never(run: xr.Dataset) -> Estimate:
    faults = int(run.faults.sel(moment="A"))
    return Estimate(float(run.never.sel(moment="A")), remark=f"of {run.sizes['start_of']}; {faults} not to be trusted")


def _learned(run: xr.Dataset) -> Estimate:
    share = run.learned_share.sel(moment="A").values
    full = run.batch_time.values[share == 1.0]
    return Estimate(float(share[-1]), remark=f"all by t = {full[0]:.3g}" if len(full) else "not all by the last time")


def _looks(run: xr.Dataset, *, case: str) -> Estimate:
    """How far the loss at the horizon is from that of a network that lacks the weakest concept, relatively."""
    loss, lost = float(run.horizon_loss.sel(case=case)), float(run.lost_loss)
    weakest = run.W.sel(case=case)[:, 0, 0].values
    remark = f"loss {loss:.4f}; w_11 {weakest[0]:.2g} at the start, {weakest.min():.2g} at the lowest"
    return Estimate(abs(loss / lost - 1), remark=remark)


def _first_falls(run: xr.Dataset) -> Estimate:
    """The lowest w_11 of the plateau over the first one."""
    weakest = run.W.sel(case="plateau")[:, 0, 0].values
    return Estimate(float(weakest.min() / weakest[0]))


def _half(run: xr.Dataset) -> float:
    one = run.sel(case="plateau")
    return float(one.top[entry_of(one, 0, 0)])


def _said(run: xr.Dataset, *, name: str) -> Estimate:
    one = run.sel(case="plateau")
    said = float(one[name] if one[name].ndim == 0 else one[name][0])
    return Estimate(abs(_half(run) - said), remark=f"w_11 = 1/2 at {_half(run):.6f}, said to be at {said:.6f}")


def _endings(run: xr.Dataset) -> Estimate:
    """How many of the three endings that the flows tell are wrong."""
    told = (
        run.horizon_ending.sel(case="plateau"),
        run.ending.sel(case="plateau"),
        run.ending.sel(case="deficient"),
    )
    wanted = (1, 0, 2)  # `Ending`: a plateau, learned, rank deficient
    return Estimate(float(sum(int(one) != want for one, want in zip(told, wanted, strict=True))))


def _indefinite(run: xr.Dataset) -> Estimate:
    told = f"{float(run.blown_up.mean()):.3f} blow up"
    return Estimate.share(float(run.indefinite.sum()), run.sizes["map_start"], told)


def _map_rests(run: xr.Dataset) -> Estimate:
    like = abs(run.map_end_loss / run.lost_loss - 1) < _LIKE
    return Estimate(float(like.sum()), remark=f"of {run.sizes['map_start']}, at twice the horizon")


def _share(run: xr.Dataset, *, moment: str, name: str) -> Estimate:
    starts = run.sizes["start_of"]
    told = f"loss within 2 % of {float(run.lost_loss):.3f}: {float(run.like.sel(moment=moment)):.3f}"
    return Estimate.share(float(run[name].sel(moment=moment)) * starts, starts, told)


_WHERE = "Appendix E.3 and Figure 10"

claims = (
    Claim(
        name="never",
        says="Printed: a major entry may be suppressed so that it never has a chance to grow: starts of full rank from "
        "which a concept is never learned",
        source=_WHERE,
        statistic=_never,
        low=1.0,
    ),
    Claim(
        name="always",
        says="Corrected: from full rank all is learned, sooner or later: share of starts that have",
        source="d/dt log det W = 4 tr(A (1 - W)); theory.concepts.predicted_limit",
        statistic=_learned,
        low=1.0,
    ),
    Claim(
        name="plateau-looks",
        says="A plateau looks like the paper's failure at the horizon: relative distance of its loss from mu_1^2 / 2",
        source=f"{_WHERE}; {_LIKE} for what looks like it",
        statistic=partial(_looks, case="plateau"),
        high=_LIKE,
    ),
    Claim(
        name="suppressed-first",
        says="There, too, w_11 is suppressed before it grows: its lowest value over the first",
        source=_WHERE,
        statistic=_first_falls,
        high=0.5,
    ),
    Claim(
        name="plateau-end",
        says="What the flow says at the horizon of the plateau's end comes true: error of w_11 = 1/2",
        source="SymmetricFlows.learned_at; this project's bar",
        statistic=partial(_said, name="said_at_horizon"),
        high=0.02,
        unit="t",
    ),
    Claim(
        name="plateau-schur",
        says="So does what the Schur complements of the start say: the same error",
        source="theory.concepts.concept_stages; .11 is its error at scale 1e-2, and this start is larger",
        statistic=partial(_said, name="predicted_time"),
        high=0.5,
        unit="t",
    ),
    Claim(
        name="plateau-learns",
        says="Continued, the run learns: loss at its end",
        source="The law of log det W",
        statistic=lambda run: Estimate(_of("plateau", "end_loss")(run)),
        high=1e-6,
    ),
    Claim(
        name="deficient",
        says="A start of rank 2 ends at the loss mu_1^2 / 2 for ever: distance at the end",
        source="theory.concepts.predicted_limit; this project's bar",
        statistic=lambda run: Estimate(
            abs(_of("deficient", "end_loss")(run) - float(run.lost_loss)),
            remark=f"predicted {_of('deficient', 'limit_loss')(run):.6f}",
        ),
        high=1e-9,
    ),
    Claim(
        name="told-apart",
        says="The flow tells plateau, learned and deficient rank apart: endings that it tells wrongly",
        source="This project's bar",
        statistic=_endings,
        high=0.0,
    ),
    Claim(
        name="printed-map",
        says="The printed map D.2 loses positive semidefiniteness from many random starts of full rank: share",
        source="D.2 lacks the term eta^2 grad grad^T of a gradient step in U; 5 to 40 % in trial runs at steps of .01",
        statistic=_indefinite,
        low=0.05,
        high=0.4,
    ),
    Claim(
        name="printed-map-rests",
        says="But it does not rest where Figure 10 does: its runs that end with a loss like mu_1^2 / 2",
        source="W = diag(0, 1, 1) repels on both sides: from w_11 < 0 it goes to minus infinity",
        statistic=_map_rests,
        high=0.0,
    ),
    Claim(
        name="with-A",
        says="With the paper's A few starts have not learned at the horizon: share with w_11 < 1/2",
        source="log(1 / s_1 - 1) / (4 a_1) of random starts; .01 in a pilot",
        statistic=partial(_share, moment="A", name="unlearned"),
        high=0.05,
    ),
    Claim(
        name="with-A-squared",
        says="With A^2, as reported of the authors' programs, almost all have not: the same share",
        source="The same with a_1^2 for a_1; .999 in a pilot",
        statistic=partial(_share, moment="A^2", name="unlearned"),
        low=0.95,
    ),
    EXACT_MAP,
    Claim(
        name="log-det",
        says="log det W grows by its law from the start of the plateau: difference over the run",
        source="Jacobi's formula, exact; this project's bar",
        statistic=lambda run: Estimate(_of("plateau", "drift")(run)),
        high=EXACT_LAW,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The plateau and the deficient start side by side, the output, the printed map, and how long starts take."""
    return failure_figures(run)
