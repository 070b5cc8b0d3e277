"""Claims of the entry `figure_10`."""

from functools import partial

import xarray as xr

from saddlescope.papers.concept_learning.figure_10.simulations import LIKE
from saddlescope.papers.concept_learning.shared.two_layer_runs import EXACT_LAW, EXACT_MAP_CLAIM, entry_index
from saddlescope.reproduction.claim import Claims, Estimate


def case_value(run: xr.Dataset, *, case: str, name: str) -> Estimate:
    """Return a number stored for the plateau or for the deficient start."""
    return Estimate(float(run[name].sel(case=case)))


def horizon_loss_error(run: xr.Dataset, *, case: str) -> Estimate:
    """Return the relative distance of the loss at the horizon from that without the weakest concept."""
    loss, lost = float(run.horizon_loss.sel(case=case)), float(run.lost_loss)
    weakest = run.W.sel(case=case)[:, 0, 0].values
    remark = f"loss {loss:.4f}; w_11 {weakest[0]:.2g} at the start, {weakest.min():.2g} at the lowest"
    return Estimate(abs(loss / lost - 1), remark=remark)


def _half_time(run: xr.Dataset) -> float:
    """Return when w_11 of the plateau passes 1/2."""
    one = run.sel(case="plateau")
    return float(one.top[entry_index(one, 0, 0)])


def predicted_time_error(run: xr.Dataset, *, name: str) -> Estimate:
    """Return the error of a predicted time of w_11 = 1/2."""
    one = run.sel(case="plateau")
    said = float(one[name] if one[name].ndim == 0 else one[name][0])
    return Estimate(
        abs(_half_time(run) - said), remark=f"w_11 = 1/2 at {_half_time(run):.6f}, said to be at {said:.6f}"
    )


def start_share(run: xr.Dataset, *, moment: str, name: str) -> Estimate:
    """Return a share of the random starts."""
    starts = run.sizes["start_of"]
    remark = f"loss within 2 % of {float(run.lost_loss):.3f}: {float(run.like.sel(moment=moment)):.3f}"
    return Estimate.share(float(run[name].sel(moment=moment)) * starts, starts, remark)


_WHERE = "Appendix E.3 and Figure 10"

claims = Claims()


@claims.add(
    "never",
    "Printed: a major entry may be suppressed so that it never has a chance to grow",
    quantity="starts of full rank from which a concept is never learned",
    kind="printed",
    source=_WHERE,
    low=1.0,
)
def never_learned(run: xr.Dataset) -> Estimate:
    """Return the number of starts of full rank that never learn a concept."""
    faults = int(run.faults.sel(moment="A"))
    return Estimate(float(run.never.sel(moment="A")), remark=f"of {run.sizes['start_of']}; {faults} not to be trusted")


@claims.add(
    "always",
    "Corrected: from full rank all is learned, sooner or later",
    quantity="share of starts that have",
    kind="printed",
    source="d/dt log det W = 4 tr(A (1 - W)); theory.concepts.predicted_limit",
    low=1.0,
)
def learned_share(run: xr.Dataset) -> Estimate:
    """Return the share of starts that have learned all at the last time."""
    share = run.learned_share.sel(moment="A").values
    full = run.batch_time.values[share == 1.0]
    return Estimate(float(share[-1]), remark=f"all by t = {full[0]:.3g}" if len(full) else "not all by the last time")


claims.add(
    "plateau-looks",
    "A plateau looks like the paper's failure at the horizon",
    quantity="relative distance of its loss from mu_1^2 / 2",
    kind="printed",
    source=f"{_WHERE}; {LIKE} for what looks like it",
    high=LIKE,
)(partial(horizon_loss_error, case="plateau"))


@claims.add(
    "suppressed-first",
    "There, too, w_11 is suppressed before it grows",
    quantity="its lowest value over the first",
    kind="printed",
    source=_WHERE,
    high=0.5,
)
def lowest_over_first(run: xr.Dataset) -> Estimate:
    """Return the lowest w_11 of the plateau over the first one."""
    weakest = run.W.sel(case="plateau")[:, 0, 0].values
    return Estimate(float(weakest.min() / weakest[0]))


claims.add(
    "plateau-end",
    "What the flow says at the horizon of the plateau's end comes true",
    quantity="error of w_11 = 1/2",
    kind="own",
    source="SymmetricFlows.learned_at; this project's bar",
    high=0.02,
    unit="t",
)(partial(predicted_time_error, name="said_at_horizon"))

claims.add(
    "plateau-schur",
    "So does what the Schur complements of the start say",
    quantity="the same error",
    kind="printed",
    source="theory.concepts.concept_stages; .11 is its error at scale 1e-2, and this start is larger",
    high=0.5,
    unit="t",
)(partial(predicted_time_error, name="predicted_time"))

claims.add(
    "plateau-learns",
    "Continued, the run learns",
    quantity="loss at its end",
    kind="printed",
    source="The law of log det W",
    high=1e-6,
)(partial(case_value, case="plateau", name="end_loss"))


@claims.add(
    "deficient",
    "A start of rank 2 ends at the loss mu_1^2 / 2 for ever",
    quantity="distance at the end",
    kind="own",
    source="theory.concepts.predicted_limit; this project's bar",
    high=1e-9,
)
def deficient_loss_error(run: xr.Dataset) -> Estimate:
    """Return the distance of the final loss of the deficient start from that of a network without one concept."""
    one = run.sel(case="deficient")
    return Estimate(abs(float(one.end_loss) - float(run.lost_loss)), remark=f"predicted {float(one.limit_loss):.6f}")


@claims.add(
    "told-apart",
    "The flow tells plateau, learned and deficient rank apart",
    quantity="endings that it tells wrongly",
    kind="own",
    source="This project's bar",
    high=0.0,
)
def wrong_endings(run: xr.Dataset) -> Estimate:
    """Return how many of three endings that the flows report are wrong."""
    remark = (
        run.horizon_ending.sel(case="plateau"),
        run.ending.sel(case="plateau"),
        run.ending.sel(case="deficient"),
    )
    wanted = (1, 0, 2)  # `Ending`: a plateau, learned, rank deficient
    return Estimate(float(sum(int(one) != want for one, want in zip(remark, wanted, strict=True))))


@claims.add(
    "printed-map",
    "The printed map D.2 loses positive semidefiniteness from many random starts of full rank",
    quantity="share",
    kind="printed",
    source="D.2 lacks the term eta^2 grad grad^T of a gradient step in U; 5 to 40 % in trial runs at steps of .01",
    low=0.05,
    high=0.4,
)
def indefinite_share(run: xr.Dataset) -> Estimate:
    """Return the share of runs of the printed map that lose positive semidefiniteness."""
    remark = f"{float(run.blown_up.mean()):.3f} blow up"
    return Estimate.share(float(run.indefinite.sum()), run.sizes["map_start"], remark)


@claims.add(
    "printed-map-rests",
    "But it does not rest where Figure 10 does",
    quantity="its runs that end with a loss like mu_1^2 / 2",
    kind="printed",
    source="W = diag(0, 1, 1) repels on both sides: from w_11 < 0 it goes to minus infinity",
    high=0.0,
)
def map_runs_like_figure(run: xr.Dataset) -> Estimate:
    """Return the number of runs of the printed map that end with a loss like mu_1^2 / 2."""
    like = abs(run.map_end_loss / run.lost_loss - 1) < LIKE
    return Estimate(float(like.sum()), remark=f"of {run.sizes['map_start']}, at twice the horizon")


claims.add(
    "with-A",
    "With the paper's A few starts have not learned at the horizon",
    quantity="share with w_11 < 1/2",
    kind="printed",
    source="log(1 / s_1 - 1) / (4 a_1) of random starts; .01 in a pilot",
    high=0.05,
)(partial(start_share, moment="A", name="unlearned"))

claims.add(
    "with-A-squared",
    "With A^2, as reported of the authors' programs, almost all have not",
    quantity="the same share",
    kind="printed",
    source="The same with a_1^2 for a_1; .999 in a pilot",
    low=0.95,
)(partial(start_share, moment="A^2", name="unlearned"))

claims.extend([EXACT_MAP_CLAIM])

claims.add(
    "log-det",
    "log det W grows by its law from the start of the plateau",
    quantity="difference over the run",
    kind="own",
    source="Jacobi's formula, exact; this project's bar",
    high=EXACT_LAW,
)(partial(case_value, case="plateau", name="drift"))
