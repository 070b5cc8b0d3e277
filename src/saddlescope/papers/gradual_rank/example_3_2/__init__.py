"""Example 3.2: transformers with diagonal attention weights learn in stages too   (Section 3, Theorem 4.1)

One or two layers of one or two heads, with residuals and fixed GeLU feedforward layers, learn a teacher of the same
form. Only their attention weights are trained. Algorithm 1 predicts the stages, the gradient flow is simulated, and the
two share no dynamics code.

    alpha    initial scale: u(0) = alpha u0, v(0) = alpha v0
    t        rescaled time: time of the gradient flow divided by log(1/alpha)
    T_k      when stage k begins in the limit of vanishing alpha, from Algorithm 1
    C_k      the next order, from Algorithm 1 and the initial weights: T_k + C_k / log(1/alpha) at a finite alpha
    t_k      measured time at which the coordinate that enters passes half its predicted value on the plateau
    window   of stage k: between the points half-way to the predicted times of the stages before and after it; a stage
             whose t_k does not lie there is missed

Both predictions are judged: "limit", T_k alone, and "finite", with C_k. With two heads in a layer Assumption 4.3 fails
(see tied_heads): the two enter together, in a ratio set by the initial weights, without which there is no prediction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.example_3_2.simulations import ORDERS, stages_and_flows
from saddlescope.plot import Axis, Figure, Line, Panel, Table, corners
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric


@dataclass(frozen=True, kw_only=True)
class Params:
    """Sizes at which every coordinate of every network can be told apart; the paper has no experiment on this."""

    layers: tuple[int, ...] = (1, 2)  # numbers of layers L
    heads: tuple[int, ...] = (1, 2)  # numbers of heads H; every L is run with every H
    log10_scales: tuple[float, ...] = (-32.0, -128.0)  # log10 of the initial scales alpha, decreasing
    seed: int = 0  # of data, feedforward weights, teacher and initial weights
    samples: int = 200  # sequences in the data set
    tokens: int = 5  # tokens in a sequence
    dim: int = 6  # dimension of a token: p = 24 for two layers of one head
    hidden: int = 12  # width of the feedforward layers
    horizon: float = 12.0  # stages with T_k below this many times T_1 are held against the flow
    stages: int = 64  # at most so many stages are predicted
    tolerance: float = 1e-5  # relative, of stage times; see `saddlescope.flow.gradient_flow`
    level: float = 0.01  # |beta_i| above which coordinate i counts as learned
    points: int = 501  # times at which the curves are stored

    def __post_init__(self) -> None:
        parameter_checks.log10_scales(self, "log10_scales")
        for name in ("layers", "heads"):
            counts = getattr(self, name)
            if not counts or min(counts) < 1 or len(set(counts)) < len(counts):
                raise InputError(f"{name} must be different positive integers, such as 1,2; got {counts!r}.")
        parameter_checks.at_least(1, self, "samples", "tokens", "dim", "hidden", "stages")
        if not 1 < self.horizon < float("inf"):
            raise InputError(f"horizon must be above 1 and finite; got {self.horizon!r}.")
        parameter_checks.between(1e-12, 1e-2, self, "tolerance")
        if not 0 < self.level < 1:
            raise InputError(f"level must be between 0 and 1; got {self.level!r}.")
        parameter_checks.at_least(2, self, "points")
        parameter_checks.at_least(0, self, "seed")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: one small layer of one head."""
        return cls(layers=(1,), heads=(1,), samples=40, tokens=3, dim=3, hidden=3, points=201)

    @classmethod
    def paper(cls) -> "Params":
        """The data of appendix A (1000 sequences of 10 tokens), with tokens of dimension 12."""
        return cls(samples=1000, tokens=10, dim=12, hidden=24, stages=100)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Network by network: Algorithm 1, then the flow from each scale."""
    import jax

    from saddlescope.models import transformer_teacher_task

    shapes = list(product(params.layers, params.heads))
    networks = []
    with jax.enable_x64(True):
        for n, (layers, heads) in enumerate(shapes):
            task = transformer_teacher_task(
                params.seed, layers=layers, heads=heads, samples=params.samples, tokens=params.tokens, dim=params.dim,
                hidden=params.hidden,
            )  # fmt: skip
            part = context.part(n / len(shapes), (n + 1) / len(shapes))
            part(0.0, _name(layers, heads))
            networks.append(context.cached(f"network-{layers}-{heads}", partial(stages_and_flows, task, params, part)))
    context.report(1.0, "done")
    missing = {"held": False, "resolved": False, "entering": 0, "predicted_coordinate": -1, "predicted_sign": 0}
    fill = {name: missing.get(str(name), np.nan) for name in networks[0].data_vars}
    together = xr.concat(networks, dim="network", join="outer", combine_attrs="drop", fill_value=fill)
    return together.assign_coords(
        network=[_name(*shape) for shape in shapes],
        layers=("network", [layers for layers, _ in shapes]),
        heads=("network", [heads for _, heads in shapes]),
    ).assign_attrs(level=params.level, tolerance=params.tolerance, dim=params.dim, horizon=params.horizon)


def _name(layers: int, heads: int) -> str:
    return f"L = {layers}, H = {heads}"


# The bounds. For two layers of one head this project had set itself before any run: every stage with T < 12 T_1 found
# in its window at 1e-128, median error under 0.2 %; and the finite-alpha correction to make the error at 1e-32 at least
# five times smaller. Both predictions are held against the first bar, so that it is seen which of them meets it. Where
# the run has no two layers of one head (the quick size), the deepest network with the fewest heads stands for it.
def _smallest(run: xr.Dataset) -> xr.Dataset:
    return run.isel(scale=-1)


def _relative_errors(run: xr.Dataset, order: str) -> xr.DataArray:
    """|t_k / prediction - 1| of the stages that are held against the flow; infinite where one was missed."""
    told, found = run.told_time.sel(order=order), run.found_time.sel(order=order)
    return abs(found / told - 1).fillna(np.inf).where(run.held)


def _deepest(run: xr.Dataset) -> xr.Dataset:
    """The deepest of the networks with the fewest heads, at the smallest scale, without the others' empty places."""
    fewest = run.isel(network=(run.heads == run.heads.min()).values)
    one = _smallest(fewest.isel(network=int(fewest.layers.values.argmax())))
    size = 2 * int(one.layers) * int(one.heads) * run.attrs["dim"]
    return one.isel(coordinate=slice(size), stage=one.predicted_time.notnull().values)


def _missed(order: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        network = _deepest(run)
        missed = network.held & network.found_time.sel(order=order).isnull()
        return Estimate(float(missed.sum()), remark=f"{network.network.item()}: {int(network.held.sum())} stages")

    return statistic


def _median(order: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        network = _deepest(run)
        error = float(_relative_errors(network, order).median())
        remark = f"{network.network.item()}: {int(network.held.sum())} stages"
        return Estimate(error, 3 * run.attrs["tolerance"], remark)

    return statistic


def _products(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.product_error.max()))


def _rank_rises(run: xr.Dataset) -> Estimate:
    """Newcomers to the support between consecutive plateaus of one head a layer, where both are resolved."""
    rises = []
    for network in run.network.values[(run.heads == 1).values]:
        one = _smallest(run).sel(network=network).transpose("stage", ...)
        learned = (abs(one.plateau_beta) > run.attrs["level"]).values
        learned = np.vstack([np.zeros_like(learned[:1]), learned])
        resolved = np.append(True, one.resolved.values)
        newcomers = (learned[1:] & ~learned[:-1]).sum(1)
        rises.extend(newcomers[resolved[1:] & resolved[:-1]])
    if not rises:
        return Estimate.unresolved("No network of one head has consecutive plateaus that the smallest scale resolves.")
    return Estimate(float(max(rises)), remark=f"{len(rises)} stages")


def _wrong_coordinates(run: xr.Dataset) -> Estimate:
    last = _smallest(run)
    if not bool(last.resolved.any()):
        return Estimate.unresolved("No plateau lasts long enough at this scale; take a smaller one.")
    level = run.attrs["level"]  # a plateau may hold coordinates that have entered, but are predicted below it
    wrong = (abs(last.plateau_beta) > level) != (abs(last.predicted_beta.fillna(0)) > level)
    found = wrong.sum("coordinate").where(last.resolved)
    return Estimate(float(found.max()), remark=f"{int(last.resolved.sum())} plateaus resolved")


def _convergence(run: xr.Dataset) -> Estimate:
    if run.sizes["scale"] < 2:
        return Estimate.unresolved("One scale only: there is no sequence that could converge.")
    errors = _relative_errors(run, "limit").median("stage").transpose("network", "scale").values
    return Estimate(float((errors[:, 1:] / errors[:, :-1]).max()), remark=f"{len(errors)} networks")


def _improvement(run: xr.Dataset) -> Estimate:
    if -32 not in run.scale.values:
        return Estimate.unresolved("alpha = 1e-32 was not among the scales.")
    limit, finite = (_relative_errors(run.sel(scale=-32), order).median("stage") for order in ORDERS)
    return Estimate(float((limit / finite).min()), remark=f"{run.sizes['network']} networks")


def _loss_left(run: xr.Dataset) -> Estimate:
    if not bool(run.converged.all()):
        stuck = run.isel(network=int(run.converged.values.argmin()))
        return Estimate.unresolved(f"{stuck.network.item()}: {stuck.theory_message.item()}")
    return Estimate(float((run.predicted_loss.min("stage") / run.predicted_loss_curve.isel(time=0)).max()))


claims = (
    Claim(
        name="products",
        says="The output depends on w_K, w_Q, w_V, w_O through their products alone: its largest relative change when "
        "u -> c u, v -> v / c",
        source="Example 3.2; rounding",
        statistic=_products,
        high=1e-10,
    ),
    Claim(
        name="rank",
        says="With one head a layer, at most one coordinate enters in each resolved stage: the most that do",
        source="Theorem 4.1: the sparsity increases by at most one",
        statistic=_rank_rises,
        high=1.0,
    ),
    Claim(
        name="support",
        says="On each plateau that the smallest scale resolves, in every network, exactly the predicted coordinates "
        "are learned: wrong ones",
        source="Theorem 4.1; with tied heads, its correction",
        statistic=_wrong_coordinates,
        high=0.0,
    ),
    *(
        claim
        for order, prediction in zip(ORDERS, ("T_k alone", "T_k + C_k / log(1/alpha)"), strict=True)
        for claim in (
            Claim(
                name=f"window-{order}",
                says="Two layers of one head, smallest scale: every stage with T < 12 T_1 is found in the window that "
                f"{prediction} predicts; missed",
                source="Theorem 4.1; this project's bar, set before the run",
                statistic=_missed(order),
                high=0.0,
            ),
            Claim(
                name=f"median-{order}",
                says=f"Two layers of one head, smallest scale: median relative error of {prediction}",
                source="Theorem 4.1; this project's bar, set before the run",
                statistic=_median(order),
                high=0.002,
            ),
        )
    ),
    Claim(
        name="converges",
        says="The median error of T_k falls with alpha in every network: largest ratio of the errors at one scale and "
        "the one before",
        source="Theorem 4.1",
        statistic=_convergence,
        high=1.0,
    ),
    Claim(
        name="correction",
        says="The finite-alpha correction makes the median error at 1e-32 smaller in every network: least factor",
        source="beyond the paper; this project's bar for one head, held here against every network",
        statistic=_improvement,
        low=5.0,
    ),
    Claim(
        name="end",
        says="Algorithm 1 ends where nothing is left to learn: largest remaining share of the loss",
        source="Theorem 4.1; the teacher has loss 0",
        statistic=_loss_left,
        high=1e-12,
    ),
)

metrics = (
    Metric(
        name="stages",
        says="stages that Algorithm 1 predicts, mean over networks",
        statistic=lambda run: float(run.predicted_time.notnull().sum("stage").mean()),
    ),
    Metric(
        name="resolved",
        says="plateaus that the smallest α resolves, mean over networks",
        statistic=lambda run: float(run.resolved.isel(scale=-1).sum("stage").mean()),
    ),
    Metric(
        name="final_loss",
        says="final loss at the smallest α, mean over networks",
        statistic=lambda run: float(run.loss.isel(scale=-1, time=-1).mean()),
        scale="log",
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The loss of every network, the entries of the deepest one, and how good either prediction is."""
    return [_loss(run), _entries(run), _errors(run)]


_TIME = "t / (T_1 log(1/alpha))"


def _alpha(log10_scale: float) -> str:
    return f"alpha = 1e{log10_scale:g}"


def _loss(run: xr.Dataset) -> Figure:

    panels = []
    for name in run.network.values:
        one = run.sel(network=name)
        curves = [
            Line(x=run.time.values, y=one.loss.sel(scale=scale).values, group=_alpha(scale), color=color)
            for color, scale in enumerate(run.scale.values)
        ]
        limit = Line(
            x=run.time.values, y=one.predicted_loss_curve.values, group="Algorithm 1", style="dashed", width=1.2
        )
        panels.append(Panel(title=name, x=Axis(_TIME), y=Axis("loss", scale="log"), marks=(*curves, limit)))
    return Figure(
        name="loss",
        title="Transformers of any depth and number of heads learn in stages",
        caption="Loss against rescaled time in units of T_1, for each initial scale, with the staircase that Algorithm "
        "1 predicts for the limit, as far as it comes. With two heads a layer it needs the initial weights.",
        panels=tuple(panels),
    )


def _entries(run: xr.Dataset) -> Figure:

    one = _deepest(run)
    time, span = run.time.values, float(abs(one.beta).max())
    levels = np.vstack([np.zeros(one.sizes["coordinate"]), one.predicted_beta.transpose("stage", "coordinate").values])
    first = float(one.predicted_time[0])
    limit = levels[np.searchsorted(one.predicted_time.values / first, time, side="right")]
    curves = {"gradient flow": one.beta.transpose("time", "coordinate").values, "Algorithm 1": limit}

    def line(group: str, i: int, color: int) -> Line:
        dashed = group == "Algorithm 1"
        kept = corners(time, curves[group][:, i], 2e-3 * span)
        return Line(
            x=time[kept], y=curves[group][kept, i], group=group, color=color,
            style="dashed" if dashed else "solid", width=0.8 if dashed else 1.1,
        )  # fmt: skip

    places = np.arange(one.sizes["coordinate"]).reshape(int(one.layers), int(one.heads), 2, -1)
    panels = [
        Panel(
            title=f"layer {layer}, diagonal of {name}",
            x=Axis(_TIME),
            y=Axis("entry"),
            marks=tuple(line(group, i, i) for group in curves for i in places[layer, :, n].ravel().tolist()),
        )
        for layer in range(int(one.layers))
        for n, name in enumerate(("W_K W_Qᵀ", "W_V W_Oᵀ"))
    ]
    return Figure(
        name="entries",
        title="The rank of every product rises by one entry at a time",
        caption=f"The network {one.network.item()} at {_alpha(float(one.scale))}: each line is one diagonal entry of a "
        "product in one layer, counted from 0; dashed, Algorithm 1's limit. The table has each stage: T_k, the time "
        "that theory predicts at this alpha, the measured time if it lies in that one's window, and the errors.",
        panels=tuple(panels),
        table=_table(one, run.attrs["dim"]),
    )


def _table(one: xr.Dataset, dim: int) -> Table:

    rows = []
    for k in one.stage.values[one.held.values.astype(bool)]:
        stage = one.sel(stage=k)
        rest, entry = divmod(int(stage.predicted_coordinate), dim)
        rest, product = divmod(rest, 2)
        layer, head = divmod(rest, int(one.heads))
        name = f"layer {layer} head {head} {('KQ', 'VO')[product]} {entry}"
        limit, finite = (float(stage.told_time.sel(order=order)) for order in ORDERS)
        found = float(stage.found_time.sel(order="finite"))
        sign = "+" if stage.predicted_sign > 0 else "−"
        rows.append(
            (int(k), name, sign, limit, finite, found, f"{found / limit - 1:+.2%}", f"{found / finite - 1:+.3%}")
        )
    columns = ("k", "coordinate", "sign", "T_k", "T_k + C_k / log(1/alpha)", "t_k", "error of T_k", "with C_k")
    return Table(columns=columns, rows=tuple(rows))


def _errors(run: xr.Dataset) -> Figure:

    last = _smallest(run)
    names = {"limit": "T_k", "finite": "T_k + C_k / log(1/alpha)"}
    panels = []
    for network in run.network.values:
        one = last.sel(network=network)
        panels.append(
            Panel(
                title=str(network),
                x=Axis("stage k"),
                y=Axis("relative error", scale="log"),
                marks=tuple(
                    Line(
                        x=run.stage.values,
                        y=abs(one.found_time / one.told_time - 1).sel(order=order).where(one.held).values,
                        group=name,
                        color=color,
                        style="points",
                    )
                    for color, (order, name) in enumerate(names.items())
                ),
            )
        )
    return Figure(
        name="errors",
        title="Stage times from theory alone",
        caption=f"Relative error of the predicted stage times at {_alpha(float(last.scale))}, stage by stage: of "
        "Algorithm 1's limit, and with the next order, which needs the initial weights. A stage outside a "
        "prediction's window has no point.",
        panels=tuple(panels),
    )
