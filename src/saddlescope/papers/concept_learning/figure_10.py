"""Figure 10: explanations of a concept that seems never to be learned.

The paper's run ends with the weakest concept's major entry near 0 and the loss near μ_1²/2 = 0.245: "suppressed to 0
before it starts to grow, and thus never has chance to grow". From a start of full rank this cannot last, since
d/dt log det W = 4 tr(A(1 − W)) is positive then: all of W is learned.

    authors' run  their program, figure/triple/fail.py (`shared.authors_programs`), iterates equation D.2 in W with A²
                  where the paper has A. D.2 lacks a term η² g gᵀ, with g the gradient, so W need not stay positive
                  semidefinite. Here the run is repeated, with A for A², and with gradient steps in U for D.2
    plateau       another run that looks alike: from full rank, close to a lower rank, and cut off at the horizon
"""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.shared import two_layer_figures as views
from saddlescope.papers.concept_learning.shared import two_layer_runs as two_layer
from saddlescope.papers.concept_learning.shared.authors_programs import CODE, DIVISOR, PROGRAMS, STEP
from saddlescope.papers.concept_learning.shared.discrete_maps import LOST, gradient_runs, printed_runs
from saddlescope.plot import Axis, Figure, Figures, Mark, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param
from saddlescope.reproduction.grid import join_cells

_PROGRAM = PROGRAMS["Figure 10"]

_MAPS = {"D.2": (printed_runs, STEP), "U": (gradient_runs, STEP / 2)}  # with steps of the same time

_LIKE = 0.02  # of μ_1²/2: a loss that looks like Figure 10's


class Params(two_layer.TwoLayerParams, until=120.0):
    """The paper's data, from a batch of random starts."""

    mu: tuple[float, ...] = param(
        (0.7, 1.7, 3.0), "distance of each cluster from the origin, in ascending order", gt=0, least=3, most=6
    )
    horizon: float = param(20.0, "time at which the plateau is cut off", unit="t", gt=0)
    scale: float = param(0.1, "standard deviation of the entries of U", ge=1e-6, le=0.3, scale="log")
    starts: int = param(8192, "random starts of full rank, of which the one with the longest plateau is shown", ge=1)
    map_starts: int = param(1024, "random starts of the authors' law from which the maps are iterated", ge=1)
    seed: int = param(1, "seed of all starts", ge=0)

    def check(self) -> None:
        super().check()
        if list(self.mu) != sorted(self.mu):
            raise InputError(f"mu must be in ascending order; got {self.mu!r}.")
        if self.horizon >= self.until:
            raise InputError(f"horizon must be below until={self.until!r}; got {self.horizon!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the batch and the start with the longest plateau, and repeat the authors' run."""
    a, x = two_layer.strengths_and_test_point(params.mu, params.sigma)
    rng = np.random.default_rng(params.seed)
    starts = params.scale * rng.standard_normal((params.starts, len(a), len(a)))
    many, _ = context.split(0.6, 0.4)
    batch = many.cached("batch", partial(_random_batch, a, x, starts, params, many))
    plateau = two_layer.follow_start(a, x, starts[int(np.argmax(batch.learned_at.values))], params.until)
    uniform = rng.random((params.map_starts, *_PROGRAM.start.shape)) / DIVISOR
    authors = context.cached("authors", partial(_repeat_program, uniform))
    return xr.merge([plateau, batch, authors]).assign(horizon=params.horizon, lost_loss=float(x[0] ** 2 / 2))


def _random_batch(a: np.ndarray, x: np.ndarray, starts: np.ndarray, params: Params, context: RunContext) -> xr.Dataset:
    """Follow random starts of full rank; return when they will have learned, from the horizon, and who never does."""
    from saddlescope.flow import symmetric_flows

    early, late = (
        symmetric_flows(a, starts, test_point=x, until=until, tolerance=1e-8, report=step.report)
        for until, step in context.steps([params.horizon, params.until])
    )
    learned, ends = (np.array([flows.learned_at(i) for i in range(len(flows))]) for flows in (early, late))
    return xr.Dataset({"learned_at": ("start_of", learned), "never": int(np.isinf(ends).sum())})


def _repeat_program(starts: np.ndarray) -> xr.Dataset:
    """Repeat the authors' run to twice its steps, and its steps from uniform starts, with either map and matrix."""
    a, x, end = _PROGRAM.strengths, _PROGRAM.test_point, _PROGRAM.steps
    shown, found = np.unique(np.geomspace(1, 2 * end, 600).astype(int)), []
    for (follow, step), strengths in product(_MAPS.values(), (a, a**2)):
        one = follow(strengths, _PROGRAM.start[None], step=step, steps=2 * end, keep=2 * end)
        many = follow(strengths, starts, step=step, steps=end, keep=100)
        weakest, losses, lost = one.W[0, :, 0, 0], one.losses(x)[0], one.lowest[0] < LOST
        found.append(
            xr.Dataset(
                {
                    "theirs": ("theirs_step", weakest[shown]),
                    "theirs_end": weakest[end],
                    "theirs_later": weakest[-1],
                    "theirs_loss": losses[end],
                    "theirs_lost": lost.argmax() if lost.any() else np.inf,
                    "theirs_blown": np.isnan(losses).argmax() if np.isnan(losses).any() else np.inf,
                    "uniform_weakest": ("uniform_start", many.W[:, -1, 0, 0]),
                    "uniform_loss": ("uniform_start", many.losses(x)[:, -1]),
                }
            )
        )
    return join_cells(found, {"map": tuple(_MAPS), "moment": ("A", "A^2")}).assign_coords(theirs_step=shown)


_THEIRS = f"{_PROGRAM.path} of {CODE}"

claims = Claims(
    limits="'Full rank' is this project's: the paper says that a start may break its assumptions. Rank-deficient "
    "starts, of measure zero, do keep an unlearned concept for ever. That no start of full rank does is decided by "
    "the law of log det W; the starts illustrate it. A discrete descent differs. The authors' run is repeated in "
    "double precision; in single precision, as in their program, it ends at the same −0.019. Twice their steps show "
    "that it does not stop there. Their law of starts is judged at one step size; smaller steps lower the shares. The "
    "charitable explanation, a plateau for want of time, holds for most starts with A², but not for the run of the "
    "figure, whose w_11 is below 0.",
)


@claims.reading(
    "never",
    "From some full-rank starts on Figure 10's data, gradient flow of the symmetric network never learns some concept",
    "Appendix E.3 and Figure 10: a major entry 'never has chance to grow'; 'full-rank' is this project's",
    low=1.0,
)
def never_learned(run: xr.Dataset) -> Estimate:
    """Number of random full-rank starts with a concept that gradient flow never learns."""
    starts, last = run.sizes["start_of"], float(run.learned_at.max())
    remark = f"of {starts}; the last is half learned at t = {last:.3g}"
    return Estimate.number(np.arange(starts) < int(run.never), remark, over="random starts")


@claims.reading(
    "suppressed-first",
    "On Figure 10's data, from some full-rank start w_11 falls below half its first value before it is learned",
    "Appendix E.3: 'suppressed at the very beginning'; to below one half is this project's number",
    high=0.5,
)
def lowest_over_first(run: xr.Dataset) -> Estimate:
    """Smallest w_11 over the run with the longest plateau, relative to its initial value."""
    weakest = run.W[:, 0, 0].values
    half = float(run.top[two_layer.entry_index(run, 0, 0)])
    return Estimate(float(weakest.min() / weakest[0]), remark=f"it passes 1/2 at t = {half:.4g}")


def _of_theirs(run: xr.Dataset) -> xr.Dataset:
    return run.sel(map="D.2", moment="A^2")


@claims.extension(
    "authors-negative",
    "The authors' run of Figure 10 ends with a negative major entry, which no W = UUᵀ has",
    f"{_THEIRS}; the bound is far beyond rounding, 1e-12",
    high=-1e-3,
)
def end_of_theirs(run: xr.Dataset) -> Estimate:
    """Entry w_11, of the weakest concept, after the program's 10 000 steps of D.2 with A²."""
    one = _of_theirs(run)
    lost, blown = float(one.theirs_lost), float(one.theirs_blown)
    remark = f"an eigenvalue is negative after {lost:g} steps, and an entry above 1000 after {blown:g}"
    return Estimate(float(one.theirs_end), remark=f"loss {float(one.theirs_loss):.4f}; {remark}")


@claims.extension(
    "authors-mended",
    "From Figure 10's start, w_11 ends above 1/2 by D.2 with A as printed, and by twice as many steps in U with A²",
    f"{_THEIRS}, with one of both changed; 1/2: this project",
    low=0.5,
)
def mended(run: xr.Dataset) -> Estimate:
    """Entry w_11 after the program's steps with A for A², or twice as many in U, the smaller of both."""
    with_A, in_U = run.theirs_end.sel(map="D.2", moment="A"), run.theirs_later.sel(map="U", moment="A^2")
    return Estimate.smallest([with_A, in_U], f"with A {float(with_A):.4g}, in U {float(in_U):.4g}", over="changes")


@claims.extension(
    "authors-law-squared",
    "On Figure 10's data, from most starts of the authors' law, their D.2 with A² diverges or ends with w_11 < 0",
    f"{_THEIRS}; most means more than half, .69 of 300 starts of another seed",
    low=0.5,
)
def impossible_share(run: xr.Dataset) -> Estimate:
    """Share of uniform starts whose w_11 is negative after the program's 10 000 steps, or has blown up."""
    weakest = _of_theirs(run).uniform_weakest.values
    blown, negative = np.isnan(weakest), weakest < 0
    remark = f"{blown.mean():.3f} blow up, {negative.mean():.3f} end with w_11 < 0"
    return Estimate.share(float((blown | negative).sum()), weakest.size, remark, over="random starts")


@claims.extension(
    "with-A-squared",
    "On Figure 10's data, steps in U with A² leave w_11 below 1/2 at the authors' end from most starts of their law",
    f"{_THEIRS}, in U; most means more than half, .92 of 300 starts of another seed",
    low=0.5,
)
def unlearned_share(run: xr.Dataset) -> Estimate:
    """Share of uniform starts with w_11 below 1/2 after gradient steps in U over the time of the program's run."""
    with_A, with_square = (run.sel(map="U", moment=moment) for moment in ("A", "A^2"))
    unlearned = with_square.uniform_weakest.values < 0.5
    like = np.abs(with_square.uniform_loss.values / float(run.lost_loss) - 1) < _LIKE
    with_A = with_A.uniform_weakest.values < 0.5
    remark = f"with A {with_A.mean():.3f}; loss within 2% of {float(run.lost_loss):.3f}: {like.mean():.3f}"
    return Estimate.share(float(unlearned.sum()), unlearned.size, remark, over="random starts")


def figures(run: xr.Dataset) -> Figures:
    """Draw the plateau, and the authors' run with its changes."""
    horizon, panels = Mark(at=float(run.horizon), label="horizon"), []
    for panel in (views.loss_panel(run, top=4 * float(run.lost_loss)), views.entries_panel(run)):
        kept = [mark for mark in panel.marks if not isinstance(mark, Mark)]
        panels.append(replace(panel, marks=(*kept, horizon)))
    until = {stop: run.sel(time=slice(None, stop)) for stop in (float(run.horizon), float(run.time[-1]))}
    panels.extend(views.output_panel(one, f"output to t = {stop:g}") for stop, one in until.items())
    shown = run.theirs.assign_coords(moment=["with A", "with A²"])
    yield Figure(
        name="failure",
        title="Loss, entries of W and output on a plateau",
        caption="From the start of full rank with the longest plateau. Vertical line: the horizon, up to which it "
        "looks as in Figure 10.",
        panels=tuple(panels),
        columns=2,
    )
    yield Figure(
        name="authors",
        title="The authors' run, repeated with other maps and matrices",
        caption="w_11, the weakest concept's entry, against the number of steps, from the start of the authors' "
        f"program: D.2, which it iterates, and gradient steps in U over the same time, with A and with A². It "
        f"stops after {_PROGRAM.steps} steps, at w_11 = "
        f"{float(run.theirs_end.sel(map='D.2', moment='A^2')):.3f} by D.2 with A².",
        panels=tuple(
            Panel(
                title=name,
                x=Axis("steps", scale="log"),
                y=Axis("w_11", range=(-0.3, 1.1)),
                marks=(
                    *lines(shown.sel(map=of), x="theirs_step", hue="moment", grouped=True),
                    Mark(at=float(_PROGRAM.steps), label="end of the program"),
                ),
            )
            for of, name in (("D.2", "equation D.2 in W"), ("U", "gradient steps in U"))
        ),
    )


entry = Entry(
    "concept-learning/figure-10",
    "Figure 10: explanations of a concept that seems never to be learned",
    source="Appendix E.3",
    quick=dict(starts=512, map_starts=96),
)
