"""Do the full matrices of attention and of the MLPs learn by updates of low rank too?.

The paper looks at the products W_K W_Q^T and W_V W_O^T of each head. Here the same training of GPT-2 from scratch is
recorded for the whole weight matrices besides: those that feed attention and the MLP of each block, and those that
write from them into the residual stream. Nothing forces their updates to be low-rank, as the head width does with the
products.

    matrix          one weight matrix W of a block
    update          W now minus W at initialization
    stable rank     |A|_F^2 / |A|_2^2
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.gpt2_training import (
    PAPER,
    QUICK,
    GPT2Params,
    early_and_late,
    learning_claims,
    over_seeds,
    train,
    training_figure,
)
from saddlescope.papers.gradual_rank.shared.training_metrics import language_metrics
from saddlescope.plot import Axis, Band, Figure, Line, Panel
from saddlescope.plot.rank_figures import initial_stable_rank, stable_rank_figure
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry

KINDS = {
    "attn.c_attn": "attention, W_Q W_K W_V",
    "attn.c_proj": "attention, W_O",
    "mlp.c_fc": "MLP, in",
    "mlp.c_proj": "MLP, out",
}
"""The matrices of a block, as GPT-2 calls them."""

ATTENTION, MLP = ["attn.c_attn", "attn.c_proj"], ["mlp.c_fc", "mlp.c_proj"]


class Params(GPT2Params):
    """The training of Figure 20 at its default size."""


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one GPT-2 per seed and arrange the matrices by layer and kind."""
    run = train(params, context, matrices="transformer.h.*")
    kinds = []
    for kind in KINDS:
        names = [f"transformer.h.{layer}.{kind}.weight" for layer in range(params.depth)]
        one = run[[name for name in run.data_vars if "matrix" in run[name].dims]].sel(matrix=names)
        kinds.append(one.rename(matrix="layer").assign_coords(layer=run.layer.values))

    matrices = xr.concat(kinds, dim="kind").assign_coords(kind=list(KINDS))
    return run.drop_dims(["matrix"]).merge(matrices).assign_attrs(run.attrs)


# The bounds are those of Figures 4 and 20, set before any run of this entry: rises from a tenth of the training to its
# end; at most half the initial matrix's stable rank. "Alike" is read as within a factor of two.
def _rank(run: xr.Dataset, kinds: list[str]) -> xr.DataArray:
    """Return the stable rank of updates, mean over layers and kinds of matrices."""
    return run.matrix_stable_rank.sel(kind=kinds).mean(("layer", "kind"))


def _initial(run: xr.Dataset) -> xr.DataArray:
    """Return the stable rank of each initial matrix."""
    return (run.matrix_initial_norm / run.matrix_initial_spectrum.isel(index=0)) ** 2


def _relative(run: xr.Dataset, kinds: list[str]) -> xr.DataArray:
    return _rank(run, kinds).isel(step=-1) / _initial(run).sel(kind=kinds).mean(("layer", "kind"))


def _rise(kinds: list[str]) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        early, late = early_and_late(_rank(run, kinds))
        return over_seeds(late - early)

    return statistic


def _low(kinds: list[str]) -> Callable[[xr.Dataset], Estimate]:
    return lambda run: over_seeds(_relative(run, kinds))


claims = Claims()

claims.extend(learning_claims())

claims.add(
    "rise-attention",
    "The stable rank of the updates of attention's matrices rises",
    quantity="end of training minus a tenth of it",
    kind="own",
    source="this project's question; the bound is that of Figure 20, 'increases gradually'",
    low=0.0,
)(_rise(ATTENTION))

claims.add(
    "rise-MLP",
    "The stable rank of the updates of the MLPs' matrices rises",
    quantity="end of training minus a tenth of it",
    kind="own",
    source="this project's question; the bound is that of Figure 20, 'increases gradually'",
    low=0.0,
)(_rise(MLP))

claims.add(
    "low-attention",
    "The updates of attention's matrices end low-rank",
    quantity="their stable rank over that of the initial matrices",
    kind="own",
    source="this project's question; the bound is that of Figures 4 and 20",
    high=0.5,
)(_low(ATTENTION))

claims.add(
    "low-MLP",
    "The updates of the MLPs' matrices end low-rank",
    quantity="their stable rank over that of the initial matrices",
    kind="own",
    source="this project's question; the bound is that of Figures 4 and 20",
    high=0.5,
)(_low(MLP))


@claims.add(
    "alike",
    "MLPs are as low-rank as the heads' products",
    quantity="ratio of their final over initial stable ranks, as log2",
    kind="own",
    source="this project's question; alike is read as within a factor of two",
    low=-1.0,
    high=1.0,
    unit="bits",
)
def _alike(run: xr.Dataset) -> Estimate:
    heads = ("layer", "head", "product")
    products = run.stable_rank.isel(step=-1).mean(heads) / initial_stable_rank(run).mean(heads)
    return over_seeds(np.log2(_relative(run, MLP) / products))


metrics = language_metrics


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw stable ranks of the matrices over training, their spectra at the end, the heads' products, the losses."""
    return [_ranks(run), _spectra(run), stable_rank_figure(run), training_figure(run)]


def _panels(run: xr.Dataset, curves: Callable[[str], list[Any]], x: Any, y: Any) -> tuple[Panel, ...]:
    return tuple(Panel(title=name, x=x, y=y, marks=tuple(curves(kind))) for kind, name in KINDS.items())


def _ranks(run: xr.Dataset) -> Figure:
    def curves(kind: str) -> list[Band | Line]:
        rank = run.matrix_stable_rank.sel(kind=kind)
        marks: list[Band | Line] = []
        for color, layer in enumerate(run.layer.values):
            one, name = rank.sel(layer=layer), f"layer {layer}"
            mean, spread = one.mean("seed").values, one.std("seed").values
            marks.append(Band(x=run.step.values, low=mean - spread, high=mean + spread, group=name, color=color))
            marks.append(Line(x=run.step.values, y=mean, label=name, group=name, color=color))
        return marks

    start = _initial(run).mean(("seed", "layer"))
    told = ", ".join(f"{float(start.sel(kind=kind)):.0f} ({name})" for kind, name in KINDS.items())
    return Figure(
        name="matrix-rank",
        title="The rank of what whole matrices learned",
        caption="Stable rank of the update of each weight matrix; mean and standard deviation over "
        f"{run.sizes['seed']} seeds. The initial matrices have {told}.",
        panels=_panels(run, curves, Axis("optimiser steps", scale="log"), Axis("stable rank")),
    )


def _spectra(run: xr.Dataset) -> Figure:
    def curves(kind: str) -> list[Band | Line]:
        marks: list[Band | Line] = []
        last = run.matrix_update_spectrum.isel(step=-1)
        pair = {"at initialization": run.matrix_initial_spectrum, "learned update": last}
        for color, (label, spectra) in enumerate(pair.items()):
            one = spectra.sel(kind=kind).stack(of=("seed", "layer")).dropna("index")
            values = (one / one.isel(index=0)).transpose("index", "of")
            x, low, high = values.index.values + 1, values.min("of").values, values.max("of").values
            marks.append(Band(x=x, low=low, high=high, group=label, color=1 - color))
            marks.append(Line(x=x, y=values.mean("of").values, label=label, group=label, color=1 - color))
        return marks

    return Figure(
        name="matrix-spectrum",
        title="Spectra of what whole matrices learned",
        caption="Singular values divided by the largest; mean over layers and seeds, and their whole range.",
        panels=_panels(
            run,
            curves,
            Axis("index of the singular value"),
            Axis("singular value / largest", scale="log", range=(1e-3, 1.3)),
        ),
    )


entry = Entry(
    "gradual-rank/full-matrices",
    "Do the full matrices of attention and of the MLPs learn by updates of low rank too?",
    citation=CITATION,
    source="beyond Section 5",
    params=Params,
    quick=QUICK,
    paper=PAPER,
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
