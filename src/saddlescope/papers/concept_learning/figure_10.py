"""Figure 10: three explanations of a concept that seems never to be learned.

The paper's run ends with the weakest concept's major entry near 0 and the loss near μ_1²/2 = 0.245: "suppressed to 0
before it starts to grow, and thus never has chance to grow". From a start of full rank this cannot last, since
d/dt log det W = 4 tr(A(1 − W)) is positive then: all of W is learned. Three other runs look alike:

    plateau      from full rank, but close to a lower rank, and too short. The end of the plateau is predicted, and the
                 run continues until then
    deficient    U has one column less than needed: W keeps its lower rank for ever
    printed map  iteration D.2 lacks a term η² g gᵀ, with g the gradient, and loses positive semidefiniteness

The authors' programs square A (see `concept-learning/authors-scripts`). With A² the weakest concept takes several times
as long, and their 2000 steps of 0.01 end before it is learned from almost every start. The horizon is the end time of
these runs.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared import two_layer_figures as views
from saddlescope.papers.concept_learning.shared import two_layer_runs as two_layer
from saddlescope.papers.concept_learning.shared.discrete_maps import printed_runs
from saddlescope.plot import Axis, Figure, Mark, Panel, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

_STEP = 0.01  # of the printed map, as in the authors' programs

_CASES = ("plateau", "deficient")

_LIKE = 0.02  # of μ_1²/2: a loss that looks like Figure 10's

_TIMES = 121  # at which the share of starts that have learned is recorded


class Params(two_layer.TwoLayerParams):
    """The paper's data, from a batch of random starts."""

    mu: tuple[float, ...] = param(
        (0.7, 1.7, 3.0), "distance of each cluster from the origin, in ascending order", gt=0, least=3, most=6
    )
    horizon: float = param(20.0, "end of the authors' runs: 2000 steps of 0.01", unit="t", gt=0)
    until: float = param(120.0, "end of the runs", unit="t", gt=0)
    scale: float = param(0.1, "standard deviation of the entries of U", ge=1e-6, le=0.3, scale="log")
    starts: int = param(8192, "random starts of full rank, of which the one with the longest plateau is shown", ge=1)
    map_starts: int = param(1024, "number of these starts from which the printed map is iterated", ge=1)
    seed: int = param(0, "seed of all starts", ge=0)

    def check(self) -> None:
        super().check()
        if list(self.mu) != sorted(self.mu):
            raise InputError(f"mu must be in ascending order; got {self.mu!r}.")
        if self.horizon >= self.until:
            raise InputError(f"horizon must be below until={self.until!r}; got {self.horizon!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the batch and the two starts that end like the paper's run, and iterate the printed map."""
    a, x = two_layer.strengths_and_test_point(params.mu, params.sigma)
    rng = np.random.default_rng(params.seed)
    starts = params.scale * rng.standard_normal((params.starts, len(a), len(a)))
    low = params.scale * rng.standard_normal((len(a), len(a) - 1))
    many, single, printed = context.split(0.6, 0.1, 0.3)
    batch = many.cached("batch", partial(_random_batch, a, x, starts, params, many))
    single.report(0.0, "the longest plateau, and a start of lower rank")
    longest = starts[int(np.argmax(batch.learned_at.values))]
    runs = [_single_run(a, x, start, params) for start in (longest, np.pad(low, ((0, 0), (0, 1))))]
    cases = xr.concat(runs, dim="case", join="outer").assign_coords(case=list(_CASES))
    printed.report(0.0, "the printed map")
    mapped = printed.cached("printed", partial(_printed_map_runs, a, x, starts[: params.map_starts], params))
    printed.report(1.0, "done")
    return xr.merge([cases, batch, mapped]).assign(horizon=params.horizon, lost_loss=float(x[0] ** 2 / 2))


def _random_batch(a: np.ndarray, x: np.ndarray, starts: np.ndarray, params: Params, context: RunContext) -> xr.Dataset:
    """Follow random starts of full rank with A and with A², and return when they have learned."""
    from saddlescope.flow import symmetric_flows

    times = np.linspace(0.0, params.until, _TIMES)
    shares, ends = [], []
    for strengths, step in context.steps([a, a**2]):
        flows = symmetric_flows(
            strengths, starts, test_point=x, until=params.until, record=np.append(times, params.horizon),
            tolerance=1e-8, report=step.report,
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


def _single_run(a: np.ndarray, x: np.ndarray, start: np.ndarray, params: Params) -> xr.Dataset:
    """Follow one start; return also its loss at the horizon and the predictions made there."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.theory.concepts import predicted_limit

    early = symmetric_flows(a, start[None], test_point=x, until=params.horizon, tolerance=1e-11)
    one = two_layer.follow_start(a, x, start, params.until)
    return one.assign(
        W_error=two_layer.errors_against_dop853(one)["W_error"],
        horizon_loss=float(early.losses[0, -1]),
        horizon_ending=int(early.endings[0]),
        said_at_horizon=early.learned_at(0),
        limit_loss=predicted_limit(a, start).test_loss(x),
        end_loss=float(one.loss[-1]),
    )


def _printed_map_runs(a: np.ndarray, x: np.ndarray, starts: np.ndarray, params: Params) -> xr.Dataset:
    """Iterate equation D.2 from random starts to twice the horizon."""
    steps, keep = round(2 * params.horizon / _STEP), 100  # n steps are the time η n / 2
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


_FIGURE = "Appendix E.3 and Figure 10"

claims = Claims()


@claims.add(
    "never", "From some full-rank initial weights, the symmetric network UUᵀ never learns one of its concepts",
    quantity="number of random full-rank initializations with a concept that gradient flow never learns",
    kind="printed", source=f"{_FIGURE}: a major entry 'never has chance to grow'", low=1.0,
)  # fmt: skip
def _never_learned(run: xr.Dataset) -> Estimate:
    faults = int(run.faults.sel(moment="A"))
    return Estimate(float(run.never.sel(moment="A")), remark=f"of {run.sizes['start_of']}; {faults} of them unreliable")


@claims.add(
    "always",
    "From every full-rank initialization, the symmetric network UUᵀ learns the weakest concept by the end of the run",
    quantity="share of random initializations with the weakest concept's diagonal entry w_11 of UUᵀ above 1/2 at the "
        "last time",
    kind="own", source="Correction: d/dt log det W = 4 tr(A(1 − W)); theory.concepts.predicted_limit", low=1.0,
)  # fmt: skip
def _learned_share(run: xr.Dataset) -> Estimate:
    share = run.learned_share.sel(moment="A").values
    full = run.batch_time.values[share == 1.0]
    return Estimate(float(share[-1]), remark=f"all by t = {full[0]:.3g}" if len(full) else "not all by the last time")


@claims.add(
    "plateau-looks",
    "At the time horizon, the full-rank run with the longest plateau has the loss of a never-learned weakest concept",
    quantity="relative distance of the out-of-distribution loss at the horizon from μ_1²/2, μ_1 the weakest signal",
    kind="own",
    source=f"{_FIGURE}; this project's bar for the same loss",
    high=_LIKE,
    sizes=("default", "paper"),  # the longest plateau of few starts ends too early
)
def _horizon_loss_error(run: xr.Dataset) -> Estimate:
    one = run.sel(case="plateau")
    loss, lost = float(one.horizon_loss), float(run.lost_loss)
    weakest = one.W[:, 0, 0].values
    remark = f"loss {loss:.4f}; w_11 {weakest[0]:.2g} at the start, {weakest.min():.2g} at the lowest"
    return Estimate(abs(loss / lost - 1), remark=remark)


@claims.add(
    "suppressed-first",
    "On the longest plateau, the weakest concept's diagonal entry w_11 falls below half its initial value before it "
        "grows",
    quantity="smallest w_11 of W = UUᵀ over the run with the longest plateau, relative to its initial value",
    kind="reading", source=f"{_FIGURE}: 'suppressed at the very beginning'; one half is this project's bar", high=0.5,
)  # fmt: skip
def _lowest_over_first(run: xr.Dataset) -> Estimate:
    weakest = run.W.sel(case="plateau")[:, 0, 0].values
    return Estimate(float(weakest.min() / weakest[0]))


def _predicted_time_error(run: xr.Dataset, *, name: str) -> Estimate:
    """Return the error of a predicted time of w_11 = 1/2 on the plateau."""
    one = run.sel(case="plateau")
    half, predicted = float(one.top[two_layer.entry_index(one, 0, 0)]), float(one[name].values.ravel()[0])
    return Estimate(abs(half - predicted), remark=f"w_11 = 1/2 at {half:.6f}, predicted at {predicted:.6f}")


claims.add(
    "plateau-end", "Gradient flow up to the time horizon suffices to predict when the longest loss plateau ends",
    quantity="absolute error, in units of time t, of the predicted time of w_11 = 1/2, the weakest concept's entry "
        "of UUᵀ, on the longest plateau", kind="own", source="SymmetricFlows.learned_at; this project's bar",
    high=0.02, unit="t",
)(partial(_predicted_time_error, name="said_at_horizon"))  # fmt: skip

claims.add(
    "plateau-schur",
    "Schur complements of the initial W = UUᵀ predict when the longest loss plateau ends",
    quantity="error of the predicted time of w_11 = 1/2, the weakest concept's entry of UUᵀ, on this plateau",
    kind="own",
    source="theory.concepts.concept_stages; its error is 0.11 at scale 1e-2, and this start is larger",
    high=0.5,
    unit="t",
    sizes=("default", "paper"),  # the bar is for a long plateau
)(partial(_predicted_time_error, name="predicted_time"))

claims.add(
    "plateau-learns",
    "Continued beyond the time horizon, the full-rank run with the longest plateau learns all concepts",
    quantity="out-of-distribution loss at the end of the run with the longest plateau", kind="own",
    source="Correction: d/dt log det W = 4 tr(A(1 − W))", high=1e-6,
)(lambda run: Estimate(float(run.end_loss.sel(case="plateau"))))  # fmt: skip


@claims.add(
    "deficient",
    "From initial weights of rank one too low, gradient flow ends at the loss of an unlearned weakest concept",
    quantity="absolute distance of the final out-of-distribution loss from μ_1²/2, μ_1 the signal of the weakest "
        "concept", kind="own", source="theory.concepts.predicted_limit; this project's bar", high=1e-9,
)  # fmt: skip
def _deficient_loss_error(run: xr.Dataset) -> Estimate:
    one = run.sel(case="deficient")
    return Estimate(abs(float(one.end_loss) - float(run.lost_loss)), remark=f"predicted {float(one.limit_loss):.6f}")


@claims.add(
    "distinguished",
    "The solver's reported outcome distinguishes a temporary plateau, a run that has learned all concepts and a "
        "rank-deficient run", quantity="number of wrong reported outcomes among these three gradient-flow runs",
    kind="own", source="This project's bar", high=0.0,
)  # fmt: skip
def _wrong_endings(run: xr.Dataset) -> Estimate:
    reported = (
        run.horizon_ending.sel(case="plateau"),
        run.ending.sel(case="plateau"),
        run.ending.sel(case="deficient"),
    )
    wanted = (1, 0, 2)  # `Ending`: a plateau, learned, rank deficient
    return Estimate(float(sum(int(one) != want for one, want in zip(reported, wanted, strict=True))))


@claims.add(
    "printed-map",
    "The paper's discrete update D.2 makes W = UUᵀ indefinite from 5% to 40% of random full-rank initial weights",
    quantity="share of random initializations from which W loses positive semidefiniteness or diverges", kind="own",
    source="D.2 lacks the term η² g gᵀ of a gradient step in U; bounds from trial runs at steps of 0.01", low=0.05,
    high=0.4,
)  # fmt: skip
def _indefinite_share(run: xr.Dataset) -> Estimate:
    remark = f"{float(run.blown_up.mean()):.3f} diverge"
    return Estimate.share(float(run.indefinite.sum()), run.sizes["map_start"], remark)


@claims.add(
    "printed-map-rests",
    "The paper's discrete update D.2 of W never ends at the loss of an unlearned weakest concept",
    quantity=f"number of runs of update D.2 with a final out-of-distribution loss within {_LIKE:.0%} of μ_1²/2, μ_1 "
        "the weakest concept's signal",
    kind="own", source="W = diag(0, 1, 1) repels on both sides: from w_11 < 0, w_11 goes to minus infinity", high=0.0,
)  # fmt: skip
def _map_runs_like_figure(run: xr.Dataset) -> Estimate:
    like = abs(run.map_end_loss / run.lost_loss - 1) < _LIKE
    return Estimate(float(like.sum()), remark=f"of {run.sizes['map_start']}, at twice the horizon")


def _unlearned_share(run: xr.Dataset, *, moment: str) -> Estimate:
    one, starts = run.sel(moment=moment), run.sizes["start_of"]
    remark = f"loss within 2% of {float(run.lost_loss):.3f}: {float(one.like):.3f}"
    return Estimate.share(float(one.unlearned) * starts, starts, remark)


claims.add(
    "with-A",
    "With the data second-moment matrix A, at most 5% of initializations leave the weakest concept unlearned at "
        "time 20",
    quantity="share of random initializations with the weakest concept's w_11 of UUᵀ below 1/2 at the time horizon",
    kind="own", source="log(1/s_1 − 1) / (4 a_1) of random starts; 0.01 in a pilot", high=0.05,
)(partial(_unlearned_share, moment="A"))  # fmt: skip

claims.add(
    "with-A-squared",
    "With squared data matrix A² (authors' code), at least 95% of initializations leave the weakest concept "
        "unlearned at the horizon",
    quantity="share of random initializations with the weakest concept's w_11 of UUᵀ below 1/2 at the time horizon",
    kind="own", source="log(1/s_1 − 1) / (4 a_1²) of random starts; 0.999 in a pilot", low=0.95,
)(partial(_unlearned_share, moment="A^2"))  # fmt: skip

claims.extend([two_layer.EXACT_MAP_CLAIM])

claims.add(
    "log-det", "Over the longest plateau, the log determinant of W = UUᵀ grows at the rate 4 tr(A(1 − W))",
    quantity="error of the growth of log det W over the run against this law, A the data second-moment matrix",
    kind="own", source="Jacobi's formula, exact; this project's bar", high=two_layer.EXACT_LAW,
)(lambda run: Estimate(float(run.drift.sel(case="plateau"))))  # fmt: skip


def _moment_name(moment: str) -> str:
    return "with A²" if moment == "A^2" else "with A"


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the plateau and the deficient start, the output, learning times of random starts, and the printed map."""
    horizon = Mark(at=float(run.horizon), label="horizon")
    end = float(run.time[-1])
    losses, entries, outputs = [], [], []
    for case, name, stops in (("plateau", "full rank", (float(run.horizon), end)), ("deficient", "lower rank", (end,))):
        one = run.sel(case=case).dropna("turn", subset=["turning_time"])  # turns are padded to one number
        for panels, panel in (
            (losses, views.loss_panel(one, name, top=4 * float(run.lost_loss))),
            (entries, views.entries_panel(one, name)),
        ):
            kept = [mark for mark in panel.marks if not isinstance(mark, Mark)]
            panels.append(Panel(title=name, x=panel.x, y=panel.y, marks=(*kept, horizon)))
        for stop in stops:
            panel = views.output_panels(one.sel(time=slice(None, stop)))[0]
            outputs.append(Panel(title=f"{name}, to t = {stop:g}", x=panel.x, y=panel.y, marks=panel.marks))
    horizon_losses = ", ".join(f"{float(loss):.4f}" for loss in run.horizon_loss)
    return [
        Figure(
            name="failure",
            title="Loss and entries of W on a plateau and at a lower rank",
            caption="Loss out of distribution and entries of W against time, from the start of full rank with the "
            "longest plateau and from a start of lower rank. Vertical line: the horizon, at which the two losses are "
            f"{horizon_losses}.",
            panels=(*losses, *entries),
            columns=2,
        ),
        Figure(
            name="output",
            title="Path of the output on a plateau and at a lower rank",
            caption="The output at the test point in the two weaker concepts, with the turns of the loss.",
            panels=tuple(outputs),
            columns=3,
        ),
        Figure(
            name="how-long",
            title="Learning times of random starts, and the printed map",
            caption="Left: share of random starts of full rank that have learned the weakest concept, with A and with "
            "A². Right: w_11 under the printed map D.2, from one start from which W loses positive semidefiniteness, "
            "if there is one.",
            panels=(
                Panel(
                    title="w_11 > 1/2",
                    x=Axis("time t of gradient flow"),
                    y=Axis("share of starts"),
                    marks=(
                        *lines(run.learned_share, x="batch_time", hue="moment", label=_moment_name, grouped=True),
                        horizon,
                    ),
                ),
                Panel(
                    title="printed map",
                    x=Axis("time t"),
                    y=Axis("w_11 by D.2", range=(-1.0, 0.2)),
                    marks=lines(run.map_weakest, x="map_time", label="w_11 by D.2", grouped=True, color=3),
                ),
            ),
        ),
    ]


entry = Entry(
    "concept-learning/figure-10", "Figure 10: three explanations of a concept that seems never to be learned",
    citation=CITATION, source="Appendix E.3", params=Params, quick=dict(starts=512, map_starts=96), run=run,
    claims=claims, figures=figures,
)  # fmt: skip
