"""One convolution with a linear read-out: the number of active kernels rises by one at each stage.

The unit is one kernel w that slides over a signal x, with its weights v in the read-out of all positions p,

    f_o(x) = sum_p v_op (w · x_p),    x_p = (x_sp, ..., x_{sp + k - 1})

on white signals, XᵀX = n 1. The kernels together are a matrix B = sum w vᵀ with k rows, whose rank is their number.

    s, k      stride and width of the kernel
    C         mean of x_pj y_o, with rows j and columns (o, p); σ its singular values: T_1 = 1 / σ_1

With s = k no entry of x is in two patches, and B is a free matrix: T_m = 1 / σ_m, and L_m is the sum of σ_j² / 2 over
j > m. With s = 1 the learned map of output o is sum w ∗ v_o. At a stationary point all w correlate to zero with the
residual map at every position. If two of them have no common root as polynomials, their shifts span all signals once
there are at least k - 1 positions, so the residual is zero: two kernels fit every target. One does not, if there is
more than one output, because all maps would have the roots of w.
"""

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.beyond import CITATION
from saddlescope.papers.beyond.shared.stage_claims import SADDLES, add_stage_claims, over_stages, stage_figure
from saddlescope.papers.beyond.shared.stage_comparison import compare_stages, over_seeds, record_times
from saddlescope.plot import Figure
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Kernels on separate patches; random target maps with given singular values."""

    seeds: tuple[int, ...] = param(tuple(range(10)), "seeds of data and initial weights", ge=0, order="distinct")
    width: int = param(4, "width k of the kernels, and their stride", ge=1)
    positions: int = param(3, "positions of a kernel on a signal", ge=1)
    outputs: int = param(2, "outputs of the network", ge=1)
    singular_values: tuple[float, ...] = param(
        (4.0, 3.0, 2.0, 1.2), "singular values σ of the correlations C", gt=0, order="decreasing"
    )
    log10_scales: tuple[float, ...] = param(
        (-32.0, -128.0, -512.0), "log10 of the initial scales α", ge=-4096, le=-1, order="decreasing", least=2
    )
    tolerance: float = param(1e-6, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-3, scale="log")

    def check(self) -> None:
        if len(self.singular_values) > min(self.width, self.positions * self.outputs):
            raise InputError(
                f"singular_values must be at most {min(self.width, self.positions * self.outputs)}, the smaller of "
                f"width and positions times outputs; got {self.singular_values!r}."
            )


class OverlapParams(EntryParams):
    """Kernels of stride 1, whose patches overlap; random target maps."""

    seeds: tuple[int, ...] = param(tuple(range(10)), "seeds of data and initial weights", ge=0, order="distinct")
    width: int = param(3, "width k of the kernels", ge=2)
    positions: int = param(4, "positions of a kernel on a signal", ge=1)
    outputs: int = param(2, "outputs of the network", ge=2)
    log10_scales: tuple[float, ...] = param(
        (-32.0, -128.0, -512.0), "log10 of the initial scales α", ge=-4096, le=-1, order="decreasing", least=2
    )
    tolerance: float = param(1e-6, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-3, scale="log")

    def check(self) -> None:
        if self.positions < self.width - 1:
            raise InputError(
                f"positions must be at least width - 1 = {self.width - 1}, so that two kernels fit every target; got "
                f"{self.positions!r}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Predict the stages of each network from one kernel, and follow its flow from every scale."""

    def solve(seed: int, step: RunContext) -> xr.Dataset:
        rng = np.random.default_rng(seed)
        k, columns, s = params.width, params.positions * params.outputs, np.array(params.singular_values)
        left, right = (np.linalg.qr(rng.standard_normal((size, len(s))))[0] for size in (k, columns))
        blocks = ((left * s) @ right.T).reshape(k, params.outputs, params.positions)
        target = blocks.transpose(2, 0, 1).reshape(k * params.positions, params.outputs)
        compared = _solve(params, params.width, target, rng, 1.3 / s[-1] + 1 / s[0], step)
        stages = np.arange(1, compared.sizes["stage"] + 1)
        exact = {"exact_time": 1 / s, "exact_loss": [0.5 * np.sum(s[m:] ** 2) for m in range(1, len(s) + 1)]}
        padded = {name: np.append(each, np.full(len(stages), np.nan))[: len(stages)] for name, each in exact.items()}
        return compared.assign({name: ("stage", each) for name, each in padded.items()}).assign(modes=len(s))

    return over_seeds(params.seeds, context, solve)


def run_overlap(params: OverlapParams, context: RunContext) -> xr.Dataset:
    """Predict the stages of each network from one kernel, and follow its flow from every scale."""

    def solve(seed: int, step: RunContext) -> xr.Dataset:
        rng = np.random.default_rng(seed)
        target = rng.standard_normal((params.width + params.positions - 1, params.outputs))
        return _solve(params, 1, target, rng, None, step)

    return over_seeds(params.seeds, context, solve)


def _solve(
    params: Params | OverlapParams,
    stride: int,
    target: np.ndarray,
    rng: np.random.Generator,
    until: float | None,
    context: RunContext,
) -> xr.Dataset:
    """Compare the prediction with the flow of all kernels, which follows B = left rightᵀ."""
    import jax.numpy as jnp

    from saddlescope.flow import FactorInit, factored_flow
    from saddlescope.papers.beyond.shared.units import ConvolutionLoss, LinearKernel, half_square
    from saddlescope.theory import unit_learning

    (length, o), k, positions = target.shape, params.width, params.positions
    X = np.linalg.qr(rng.standard_normal((4 * length, length)))[0] * np.sqrt(4 * length)
    Y = X @ target
    parameters = {"kernel": np.zeros(k), "out": np.zeros((o, positions))}
    learned = unit_learning(LinearKernel(stride), (X, Y), half_square, parameters=parameters)
    times = np.array(learned.staircase.times)
    until = until or float(1.4 * times[-1] + times[0])
    patches = np.lib.stride_tricks.sliding_window_view(X, k, axis=1)[:, ::stride]
    loss = ConvolutionLoss(jnp.asarray(patches), jnp.asarray(Y))
    columns = o * positions
    left, right = (rng.standard_normal((size, k + columns)) for size in (k, columns))
    ends = np.append(times[1:], until)
    curves, kernels = {}, []
    for scale, step in context.steps(params.log10_scales):
        start = FactorInit(pairs=[(left, right)], log_scale=scale * np.log(10))
        record = record_times(learned.staircase.times, until, -1 / start.log_scale)
        flow = factored_flow(
            loss, start, until=until, tolerance=params.tolerance, record=record, report=step.report
        )  # fmt: skip
        curves[scale] = flow.times, flow.losses
        values = np.array([np.linalg.svd(B, compute_uv=False) for B in flow((times + ends) / 2)[0]])
        kernels.append(np.sum(values > 1e-3 * values.max(), axis=1))
    correlations = np.einsum("npj,no->jop", patches, Y).reshape(k, columns) / len(X)
    return compare_stages(learned, curves).assign(
        kernels=(("scale", "stage"), np.array(kernels)),
        active=("stage", [stage.active for stage in learned.stages[1:]]),
        first_time=1 / np.linalg.norm(correlations, 2),
    )


def _add_kernels(claims: Claims) -> None:
    @claims.add(
        "kernels",
        "Convolutional networks learn solutions with an increasing number of kernels, one more at each stage",
        quantity="largest difference of the number of kernels, predicted or on a plateau of the flow from the smallest "
        "scale, from the number of the stage", kind="reading",
        source=f"{SADDLES}; kernels of the flow: singular values of B above a thousandth of the largest", high=0.0,
        evidence="cases", over="seeds",
        why="Any number of kernels with the same B is the same network, so the rank is the number that is needed",
        doubt="The threshold decides what counts, though at this scale the next singular value is far below it",
    )  # fmt: skip
    def kernels(run: xr.Dataset) -> Estimate:
        flow = abs(run.kernels.isel(scale=-1) - run.stage)
        return over_stages(run, np.maximum(flow, abs(run.active - run.stage)))


claims = Claims()
_add_kernels(claims)


@claims.add(
    "closed-form", "On separate white patches, kernel m is learned at 1 / σ_m and lowers the loss by σ_m² / 2",
    quantity="largest relative difference of a predicted time or level from the closed form; infinite if the number of "
    "stages is another", kind="reading",
    source="Derived in the module: dormant kernels obey a linear equation; the bound allows for rounding", high=1e-8,
    evidence="cases", over="seeds",
    why="Times and levels follow from the singular values, while the prediction slides kernels over signals",
    doubt="Only kernels whose stride is their width, on white signals, have this closed form",
)  # fmt: skip
def _closed_form(run: xr.Dataset) -> Estimate:
    times, levels = abs(run.predicted_time / run.exact_time - 1), abs(run.predicted_loss - run.exact_loss)
    complete = run.predicted_time.notnull().sum("stage") == run.modes
    worst = xr.where(times > levels / run.initial_loss, times, levels / run.initial_loss)
    return over_stages(run, worst.where(complete, np.inf))


add_stage_claims(claims, "convolutions on separate patches")

overlap_claims = Claims()
_add_kernels(overlap_claims)


@overlap_claims.add(
    "two-kernels", "Two kernels of stride 1 fit every linear target of several outputs, and one does not",
    quantity="number of seeds whose prediction has another number of stages than two, or a loss above 1e-9 of the "
    "initial one at the end", kind="own",
    source="Derived in the module; the bound on the loss allows for rounding", high=0.0, evidence="cases", over="seeds",
    why="The prediction adds kernels while any has a positive utility, and knows nothing of roots of polynomials",
    doubt="With few positions, fewer than the width less one, two kernels do not fit every target",
)  # fmt: skip
def _two_kernels(run: xr.Dataset) -> Estimate:
    stages = run.predicted_loss.notnull().sum("stage")
    return Estimate.number((stages != 2) | (run.predicted_loss.min("stage") > 1e-9 * run.initial_loss))


@overlap_claims.add(
    "first-time", "The first kernel of stride 1 is learned at the time 1 / σ_1",
    quantity="largest relative difference of the first predicted time from 1 / σ_1 of the correlations C",
    kind="reading", source="Derived in the module; the bound allows for rounding", high=1e-8, evidence="cases",
    over="seeds",
    why="At the origin the utility is w C v, and C is computed from the data alone",
    doubt="The second time depends on the point that the first kernel reaches, which has no closed form here",
)  # fmt: skip
def _first_time(run: xr.Dataset) -> Estimate:
    return Estimate.largest(abs(run.predicted_time.isel(stage=0) / run.first_time - 1).fillna(np.inf))


add_stage_claims(overlap_claims, "convolutions of stride 1")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the losses and the errors."""
    caption = "Gradient flow of convolutions with a linear read-out, and the prediction from one kernel."
    return [stage_figure(run, title="Kernels of a convolution are learned one at a time", caption=caption)]


entry = Entry(
    "beyond/convolution", "Convolutions on separate patches: one kernel at a time, in closed form",
    citation=CITATION, source="Zhang et al., number of kernels", params=Params,
    quick=dict(
        seeds=(0, 1), log10_scales=(-32.0, -128.0), width=2, positions=2, outputs=1, singular_values=(3.0, 1.5)
    ), run=run, claims=claims, figures=figures,
)  # fmt: skip

overlap = Entry(
    "beyond/convolution-overlap", "Convolutions of stride 1: two kernels are learned, and fit every linear target",
    citation=CITATION, source="Zhang et al., number of kernels", params=OverlapParams,
    quick=dict(seeds=(0, 1), log10_scales=(-32.0, -128.0), width=2, positions=2), run=run_overlap,
    claims=overlap_claims, figures=figures,
)  # fmt: skip
