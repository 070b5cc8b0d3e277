"""One convolution with a linear read-out: the number of active kernels rises by one at each stage.

The unit is one kernel w that slides over a signal x, with its weights v in the read-out of all positions p,

    f_o(x) = sum_p v_op (w · x_p),    x_p = (x_sp, ..., x_{sp + k - 1})

on white signals, XᵀX = n 1. The kernels together are a matrix B = sum w vᵀ with k rows, whose rank is their number. The
stride s is the width k, so that no entry of x is in two patches, and B is a free matrix. With C the mean of x_pj y_o,
rows j and columns (o, p), and σ its singular values, kernel m is learned at 1 / σ_m, and the loss is then the sum of
σ_j² / 2 over j > m.
"""

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.beyond.shared.stage_claims import SADDLES, stage_figures
from saddlescope.papers.beyond.shared.stage_comparison import (
    StageParams,
    compare_stages,
    follow_scales,
    over_seeds,
    over_stages,
    random_factors,
)
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param


class Params(StageParams):
    """Kernels on separate patches; random target maps with given singular values."""

    width: int = param(4, "width k of the kernels, and their stride", ge=1)
    positions: int = param(3, "positions of a kernel on a signal", ge=1)
    outputs: int = param(2, "outputs of the network", ge=1)
    singular_values: tuple[float, ...] = param(
        (4.0, 3.0, 2.0, 1.2), "singular values σ of the correlations C", gt=0, order="decreasing"
    )

    def check(self) -> None:
        if len(self.singular_values) > min(self.width, self.positions * self.outputs):
            raise InputError(
                f"singular_values must be at most {min(self.width, self.positions * self.outputs)}, the smaller of "
                f"width and positions times outputs; got {self.singular_values!r}."
            )


@over_seeds
def run(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    """Predict the stages from one kernel, and follow the flow of all kernels from every scale."""
    import jax.numpy as jnp

    from saddlescope.papers.beyond.shared.units import ConvolutionLoss, LinearKernel, half_square
    from saddlescope.theory import unit_learning

    rng, s = np.random.default_rng(seed), np.array(params.singular_values)
    k, positions, o = params.width, params.positions, params.outputs
    left, right = (np.linalg.qr(rng.standard_normal((size, len(s))))[0] for size in (k, o * positions))
    blocks, length = ((left * s) @ right.T).reshape(k, o, positions), k * positions
    target = blocks.transpose(2, 0, 1).reshape(length, o)
    X = np.linalg.qr(rng.standard_normal((4 * length, length)))[0] * np.sqrt(4 * length)
    Y = X @ target
    parameters = {"kernel": np.zeros(k), "out": np.zeros((o, positions))}
    learned = unit_learning(LinearKernel(k), (X, Y), half_square, parameters=parameters)
    times, last = np.array(learned.staircase.times), 1.3 / s[-1] + 1 / s[0]
    patches = np.lib.stride_tricks.sliding_window_view(X, k, axis=1)[:, ::k]
    loss = ConvolutionLoss(jnp.asarray(patches), jnp.asarray(Y))
    follow = random_factors(loss, (k, o * positions), rng)
    flows = follow_scales(params, context, follow, learned.staircase.times, last)
    middles = (times + np.append(times[1:], last)) / 2
    values = np.linalg.svd(flows[params.log10_scales[-1]](middles)[0], compute_uv=False)
    return compare_stages(learned, flows).assign(
        kernels=("stage", np.sum(values > 1e-3 * values.max(), axis=1)),
        active=("stage", [stage.active for stage in learned.stages[1:]]),
    )


claims = Claims(
    limits="Any number of kernels with the same B is the same network, so its rank is the number that is needed. On "
    "separate patches B is a free matrix, so that this repeats the claim on the rank of `linear-networks`. Singular "
    "values are distinct. A test compares the predicted times and levels with their closed forms."
)


@claims.reading(
    "kernels",
    "Linear convolutions on separate patches of white signals from α = 1e-512 learn one more kernel at each stage",
    f"{SADDLES}; kernels of the flow: singular values of B above a thousandth of the largest",
    high=0.0,
)
def _kernels(run: xr.Dataset) -> Estimate:
    """Largest difference from k of the number of kernels of plateau k, predicted or of the flow at the smallest α."""
    flow = abs(run.kernels - run.stage)
    return over_stages(run, np.maximum(flow, abs(run.active - run.stage)))


figures = stage_figures(
    title="Kernels of a convolution are learned one at a time",
    caption="Gradient flow of convolutions with a linear read-out, and the prediction from one kernel.",
)

entry = Entry(
    "beyond/convolution",
    "Convolutions on separate patches: one kernel at a time, in closed form",
    source="Zhang et al., number of kernels",
    quick=dict(seeds=(0, 1), log10_scales=(-32.0, -128.0), width=2, positions=2, outputs=1, singular_values=(3.0, 1.5)),
)
