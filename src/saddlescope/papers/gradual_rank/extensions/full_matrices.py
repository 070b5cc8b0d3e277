"""Ranks of the learned updates of the full weight matrices of GPT-2, beyond the products of heads.

The training is that of Figure 20. The matrices are those that feed attention and the MLP of each block, and those that
write from them into the residual stream. The head width bounds the rank of the products; nothing bounds that of the
matrices.
"""

import xarray as xr

from saddlescope.papers.gradual_rank.figure_20 import FULL, REDUCED, SMOKE, Params, late_rise, learned, training_figure
from saddlescope.papers.gradual_rank.shared.gpt2_training import TEXTS, train
from saddlescope.papers.gradual_rank.shared.training_metrics import banded, language_metrics, worst_mean
from saddlescope.plot import Axis, Band, Figure, Figures, Line, Panel
from saddlescope.plot.rank_figures import stable_rank_figure
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext

MATRICES = {
    "attn.c_attn": "attention, W_Q W_K W_V",
    "attn.c_proj": "attention, W_O",
    "mlp.c_fc": "MLP, in",
    "mlp.c_proj": "MLP, out",
}
"""The matrices of a block, by their names in GPT-2."""

KINDS = {"attention": ["attn.c_attn", "attn.c_proj"], "MLP": ["mlp.c_fc", "mlp.c_proj"]}


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one GPT-2 per seed and arrange the matrices by layer and kind."""
    trained = train(params, context)
    of_matrices = trained[[name for name in trained.data_vars if "matrix" in trained[name].dims]]
    kinds = []
    for kind in MATRICES:
        names = [f"transformer.h.{layer}.{kind}.weight" for layer in range(params.depth)]
        kinds.append(of_matrices.sel(matrix=names).rename(matrix="layer").assign_coords(layer=trained.layer.values))
    matrices = xr.concat(kinds, dim="kind").assign_coords(kind=list(MATRICES))
    return trained.drop_dims(["matrix"]).merge(matrices).assign_attrs(trained.attrs)


def _initial_rank(run: xr.Dataset) -> xr.DataArray:
    """Return the stable rank of each initial matrix."""
    return (run.matrix_initial_norm / run.matrix_initial_spectrum.isel(index=0)) ** 2


claims = Claims(
    limits="Bounds are those of Figure 20, set before any run of this entry. Attention and MLP are two cases; the "
    "worse one decides, and the remark has both. The mean hides single matrices; the rank still rises at the end. "
    "Model and text are far smaller than GPT-2's, and there is no null of gradient noise here.",
    requires=[learned],
)


@claims.extension(
    "rise",
    "From a tenth of a small GPT-2's training on, updates of full attention and MLP matrices increase in stable rank",
    "As Figure 20, 'increases gradually'",
    low=0.0,
)
def _rise(run: xr.Dataset) -> Estimate:
    """Stable rank of the update at the end minus after a tenth of training, mean over matrices and seeds."""
    of = ("layer", "kind")
    rises = {name: late_rise(run.matrix_stable_rank.sel(kind=kinds).mean(of)) for name, kinds in KINDS.items()}
    return worst_mean(rises, low=0.0)


@claims.extension(
    "low",
    "A small GPT-2's updates of attention and MLP matrices end with at most half the stable rank of the initial ones",
    "As Figures 4 and 20",
    high=0.5,
)
def _low(run: xr.Dataset) -> Estimate:
    """Stable rank of the final update over that of the initial matrix, each a mean over matrices, mean over seeds."""
    of, last, initial = ("layer", "kind"), run.matrix_stable_rank.isel(step=-1), _initial_rank(run)
    ratios = {name: last.sel(kind=kinds).mean(of) / initial.sel(kind=kinds).mean(of) for name, kinds in KINDS.items()}
    return worst_mean(ratios, high=0.5)


def figures(run: xr.Dataset) -> Figures:
    """Draw stable ranks of the matrices over training, those of the heads' products, and the losses."""
    panels, axes = [], {"x": Axis("optimiser steps", scale="log"), "y": Axis("stable rank")}
    for kind, title in MATRICES.items():
        marks: tuple[Band | Line, ...] = ()
        for color, layer in enumerate(run.layer.values):
            ranks = run.matrix_stable_rank.sel(kind=kind, layer=layer)
            mean, spread = ranks.mean("seed"), ranks.std("seed")
            marks += banded(run.step.values, mean - spread, mean, mean + spread, f"layer {layer}", color)
        panels.append(Panel(title=title, marks=marks, **axes))
    start = _initial_rank(run).mean(("seed", "layer"))
    initial = ", ".join(f"{float(start.sel(kind=kind)):.0f} ({name})" for kind, name in MATRICES.items())
    of_matrices = Figure(
        name="matrix-rank",
        title="Stable rank of the updates of whole matrices",
        caption="Stable rank of the update of each weight matrix; mean and standard deviation over "
        f"{run.sizes['seed']} seeds. Mean stable ranks of the initial matrices: {initial}.",
        panels=tuple(panels),
    )
    yield of_matrices
    yield stable_rank_figure(run)
    yield training_figure(run)


entry = Entry(
    "gradual-rank/full-matrices",
    "Low and growing rank of the updates of full attention and MLP matrices in GPT-2",
    source="beyond Section 5",
    quick=SMOKE,
    reduced=REDUCED,
    paper=FULL,
    metrics=language_metrics,
    data=TEXTS,
)
