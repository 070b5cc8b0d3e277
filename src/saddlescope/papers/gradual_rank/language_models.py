"""Figure 20 and the full weight matrices: ranks of the learned updates of GPT-2.

A GPT-2 is trained from scratch on text with Adam, by `transformers.Trainer` with the tracker as a callback. The spectra
of what training added are recorded and compared with the initial ones: of the products of each head, as in the paper,
and in the second entry also of the whole weight matrices, those that feed attention and the MLP of each block and those
that write from them into the residual stream. The head width bounds the rank of the products; nothing bounds that of
the matrices.

    KQ, VO          the products W_K W_Qᵀ and W_V W_Oᵀ of one head
    update          product or matrix now minus at initialization
    stable rank     ‖A‖_F² / ‖A‖₂²

The paper trains GPT-2 small on WikiText-103 with a pretrained vocabulary; here the vocabulary is learned on the text,
and the defaults train a small GPT-2 on the help texts of Python.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.rank_rise.measures import TRANSIENT, agreed
from saddlescope.papers.gradual_rank.shared.gpt2_training import PAPER, QUICK, TEXTS, GPT2Params, over_seeds, train
from saddlescope.papers.gradual_rank.shared.training_metrics import language_metrics
from saddlescope.plot import Axis, Band, Figure, Line, Mark, Panel, lines
from saddlescope.plot.rank_figures import (
    PRODUCTS,
    evolution_figure,
    initial_stable_rank,
    spectrum_stages_figure,
    stable_rank_figure,
)
from saddlescope.reproduction.claim import Claims, Estimate, Size
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

MATRICES = {
    "attn.c_attn": "attention, W_Q W_K W_V",
    "attn.c_proj": "attention, W_O",
    "mlp.c_fc": "MLP, in",
    "mlp.c_proj": "MLP, out",
}
"""The matrices of a block, by their names in GPT-2."""

KINDS = {"attention": ["attn.c_attn", "attn.c_proj"], "MLP": ["mlp.c_fc", "mlp.c_proj"]}

LONG: tuple[Size, ...] = ("default", "reduced", "paper")
"""The quick models learn nothing from their few thousand characters."""

SMOKE = QUICK | {"characters": 6000, "epochs": 2, "tests": 2}
REDUCED = {
    "text": "wikitext-2", "vocabulary": 4096, "seeds": (0, 1, 2), "block": 256, "depth": 6, "batch": 8,
    "learning_rate": 1.8e-3, "tests": 18, "compiled": True,
}  # fmt: skip
"""Forty minutes a seed on one core: WikiText-2, half the blocks, a sixth of the width, six times the learning rate."""
FULL = PAPER | {"seeds": (0, 1, 2), "tests": 90}


class Params(GPT2Params):
    """A small GPT-2 on the help texts that come with Python: minutes on two cores."""

    seeds: tuple[int, ...] = param(
        (5, 6, 7, 8, 9), "seeds of the training runs: initial weights and order of the blocks", ge=0, order="distinct"
    )  # three left the rise of W_V W_Oᵀ undecided


def run_heads(params: Params, context: RunContext) -> xr.Dataset:
    """Train one GPT-2 per seed and keep the heads."""
    return train(params, context).drop_dims("matrix")


def run_matrices(params: Params, context: RunContext) -> xr.Dataset:
    """Train one GPT-2 per seed and arrange the matrices by layer and kind."""
    run = train(params, context)
    of_matrices = run[[name for name in run.data_vars if "matrix" in run[name].dims]]
    kinds = []
    for kind in MATRICES:
        names = [f"transformer.h.{layer}.{kind}.weight" for layer in range(params.depth)]
        kinds.append(of_matrices.sel(matrix=names).rename(matrix="layer").assign_coords(layer=run.layer.values))
    matrices = xr.concat(kinds, dim="kind").assign_coords(kind=list(MATRICES))
    return run.drop_dims(["matrix"]).merge(matrices).assign_attrs(run.attrs)


# The bounds. The paper's caption says "increases gradually, but remains small throughout training" without numbers.
# Read here as: rises from a tenth of the training to its end, on average and in the median head; at most half the
# initial product's stable rank, at the end and at every record. A pilot on seed 1000 led to the tenth: before it,
# Adam's first steps have equal size. The bounds on the matrices are the same, set before any run of that entry;
# "alike" is read as within a factor of two.
def _early_and_late(rank: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    return rank.sel(step=rank.step[-1] / 10, method="nearest"), rank.isel(step=-1)


def _add_learning(claims: Claims) -> Claims:
    """Add the claims that the models start from scratch and learn."""

    @claims.add(
        "from-scratch",
        "Before training, GPT-2's test loss is within 5 % of that of a uniform guess over its vocabulary",
        quantity="initial test loss of GPT-2 over the natural logarithm of its vocabulary size, mean over seeds",
        kind="own",
        source="check of this project that no weights are pretrained; a pretrained model starts far below 1",
        low=0.95, high=1.05, evidence="sample", over="seeds",
        why="Weights that were pretrained predict text far better than a uniform guess before the first step",
        doubt="It excludes pretrained weights and not other faults of the initialization, such as a wrong scale",
    )  # fmt: skip
    def start(run: xr.Dataset) -> Estimate:
        return over_seeds(run.test_loss.isel(test_step=0) / np.log(run.attrs["vocabulary"]))

    @claims.add(
        "learned", "Training brings GPT-2's test loss at least 10 % below that of a guess by token frequencies",
        quantity="final test loss of GPT-2 over that of a guess by token frequencies, mean over seeds", kind="own",
        source="check of this project that the models learn; a model that ignores the text before a token reaches 1",
        high=0.9, sizes=LONG, evidence="sample", over="seeds", needs=("from-scratch",),
        why="Only a model that uses the text before a token passes a guess by frequencies, and attention is what reads "
            "it",
        doubt="A tenth below that guess is far from a language model, and a few fixed phrases could bring it",
    )  # fmt: skip
    def learned(run: xr.Dataset) -> Estimate:
        return over_seeds(run.test_loss.isel(test_step=-1) / run.attrs["guess_loss"])

    return claims


def _of_heads(run: xr.Dataset, product: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean stable rank over heads: of the updates, over (seed, step), and of the initial products."""
    heads = ("layer", "head")
    initial = initial_stable_rank(run).sel(product=product).mean(heads)
    return run.stable_rank.sel(product=product).mean(heads), initial


def _rise(run: xr.Dataset, product: str) -> Estimate:
    early, late = _early_and_late(_of_heads(run, product)[0])
    return over_seeds(late - early)


def _median_rise(run: xr.Dataset, product: str) -> Estimate:
    early, late = _early_and_late(run.stable_rank.sel(product=product))
    return over_seeds((late - early).median(("layer", "head")))


def _rise_without_a_layer(run: xr.Dataset, product: str) -> Estimate:
    rank, found = run.stable_rank.sel(product=product).mean("head"), dict[tuple[str, str], Estimate]()
    for baseline, share in {"a tenth": 0.1, "the end of the transient": TRANSIENT}.items():
        rise = rank.isel(step=-1) - rank.sel(step=share * rank.step[-1], method="nearest")
        found[baseline, "nothing"] = over_seeds(rise.mean("layer"))
        for layer in run.layer.values:
            found[baseline, f"layer {layer}"] = over_seeds(rise.sel(layer=run.layer != layer).mean("layer"))
    return agreed(found)


def _at_the_end(run: xr.Dataset, product: str) -> Estimate:
    rank, initial = _of_heads(run, product)
    return over_seeds(rank.isel(step=-1) / initial)


def _at_its_largest(run: xr.Dataset, product: str) -> Estimate:
    rank, initial = _of_heads(run, product)
    return over_seeds(rank.max("step") / initial)


head_claims = _add_learning(Claims())

for _product, _name in PRODUCTS.items():
    head_claims.add(
        f"rise-{_product}",
        f"From a tenth of GPT-2's training to its end, the stable rank of the learned update of {_name} increases",
        quantity="stable rank of the update (change since initialization) at the end minus after a tenth of "
            "training, mean over heads and seeds", kind="stand-in",
        source="Figure 20, caption: 'increases gradually'; a tenth: reading of this project", low=0.0, sizes=LONG,
        evidence="sample", over="seeds", needs=("from-scratch", "learned"),
        why="A rank that increases gradually is higher at the end than after a tenth, past Adam's equal first steps",
        doubt="The tenth is ours, chosen after a pilot, and below the paper size model and text are far smaller than "
            "the paper's",
    )(partial(_rise, product=_product))  # fmt: skip
    head_claims.add(
        f"heads-rise-{_product}",
        f"At least half of GPT-2's heads end with a higher-rank update of {_name} than after a tenth of training",
        quantity="stable rank of the update at the end minus after a tenth of training, median over attention heads, "
            "mean over seeds", kind="stand-in",
        source="Figure 20, caption: 'increases gradually'; half of the heads: reading of this project", low=0.0,
        sizes=LONG, evidence="sample", over="seeds", needs=("from-scratch", "learned"),
        why="The median head's rise is positive if those of more than half the heads are, unlike a mean that a few "
            "heads can carry",
        doubt="A few heads make a coarse median (16 at the default size), and heads of one model train together",
    )(partial(_median_rise, product=_product))  # fmt: skip
    head_claims.add(
        f"layers-rise-{_product}",
        f"Whichever layer of GPT-2 is left out, the stable rank of the update of {_name} increases",
        quantity="stable rank of the update at the end minus after a tenth and a sixth of training, mean over heads "
            "and seeds; least decided case of both baselines and any layer left out", kind="own",
        source="Figure 20, caption: 'increases gradually', with no layer named", low=0.0, sizes=LONG, evidence="cases",
        over="baselines and layers left out", needs=("from-scratch", "learned"),
        why="A rise of the mean that one layer carries is a statement on this layer, and not on the network",
        doubt="There is no null of gradient noise here, so that a rise need not come from learning",
    )(partial(_rise_without_a_layer, product=_product))  # fmt: skip
    head_claims.add(
        f"low-{_product}",
        f"GPT-2's learned update of {_name} ends with at most half the stable rank of the initial product",
        quantity="mean stable rank over heads of the final update (change since initialization) over that of the "
            "initial product, mean over seeds", kind="stand-in",
        source="Section 5: 'ultimately low-rank when compared to the initial spectrum'; half: reading of this "
            "project", high=0.5, sizes=LONG,
        evidence="sample", over="seeds", needs=("from-scratch", "learned"),
        why="The initial product is a random matrix of the same shape, with which Figure 20 compares the update",
        doubt="Half is a bar of this project, and three epochs on a smaller text end long before the paper's training",
    )(partial(_at_the_end, product=_product))  # fmt: skip
    head_claims.add(
        f"throughout-{_product}",
        f"Throughout GPT-2 training, the learned update of {_name} has at most half the stable rank of the initial "
            "product",
        quantity="mean stable rank of the update over heads, largest over training, over that of the initial "
            "product, mean over seeds", kind="stand-in",
        source="Figure 20, caption: 'remains small throughout training'; half: reading of this project", high=0.5,
        sizes=LONG, evidence="sample", over="seeds", needs=("from-scratch", "learned"),
        why="What remains small throughout is small at its largest, first steps included",
        doubt="The largest value is that of the first steps, which the paper's figure may not show, and half is ours",
    )(partial(_at_its_largest, product=_product))  # fmt: skip


def _matrix_rank(run: xr.Dataset, kinds: list[str]) -> xr.DataArray:
    """Return the stable rank of updates, mean over layers and kinds of matrices."""
    return run.matrix_stable_rank.sel(kind=kinds).mean(("layer", "kind"))


def _initial_rank(run: xr.Dataset) -> xr.DataArray:
    """Return the stable rank of each initial matrix."""
    return (run.matrix_initial_norm / run.matrix_initial_spectrum.isel(index=0)) ** 2


def _relative(run: xr.Dataset, kinds: list[str]) -> xr.DataArray:
    return _matrix_rank(run, kinds).isel(step=-1) / _initial_rank(run).sel(kind=kinds).mean(("layer", "kind"))


def _matrix_rise(run: xr.Dataset, kinds: list[str]) -> Estimate:
    early, late = _early_and_late(_matrix_rank(run, kinds))
    return over_seeds(late - early)


matrix_claims = _add_learning(Claims())

for _kind, _names in KINDS.items():
    matrix_claims.add(
        f"rise-{_kind}",
        f"From a tenth of GPT-2's training to its end, updates of full {_kind} matrices increase in mean stable rank",
        quantity="stable rank of the update (change since initialization) at the end minus after a tenth of "
            "training, mean over matrices and seeds", kind="own",
        source="question of this project; bound of Figure 20, 'increases gradually'", low=0.0, sizes=LONG,
        evidence="sample", over="seeds", needs=("from-scratch", "learned"),
        why="If gradual increase is no matter of products of heads, whole matrices show it by the same two records",
        doubt="Noise of Adam in thousands of entries widens an update too, and the mean hides single matrices",
    )(partial(_matrix_rise, kinds=_names))  # fmt: skip

for _kind, _names in KINDS.items():
    matrix_claims.add(
        f"low-{_kind}",
        f"GPT-2's updates of full {_kind} matrices end with at most half the stable rank of the initial matrices",
        quantity="mean stable rank over matrices of the final update (change since initialization) over that of "
            "the initial matrices, mean over seeds", kind="own",
        source="question of this project; bound of Figures 4 and 20", high=0.5, sizes=LONG,
        evidence="sample", over="seeds", needs=("from-scratch", "learned"),
        why="No head width bounds the rank of a whole matrix, so that a low rank is not built in here",
        doubt="Three epochs are few: the rank still rises at the end, and half was read into the paper's figures",
    )(lambda run, kinds=_names: over_seeds(_relative(run, kinds)))  # fmt: skip


@matrix_claims.add(
    "alike",
    "Updates of GPT-2's MLP matrices and of its heads' products have relative stable ranks within a factor of two",
    quantity="log₂ of final-update-to-initial stable rank ratio of MLP matrices, relative to that of heads' "
        "products, mean over seeds", kind="own",
    source="question of this project; a factor of two: reading of this project", low=-1.0, high=1.0, unit="bits",
    sizes=LONG, evidence="sample", over="seeds", needs=("from-scratch", "learned"),
    why="Relative to initial matrices of their own shape, stable ranks of matrices and of products can be compared",
    doubt="A factor of two is wide, and both products of all heads are averaged, which differ from each other",
)  # fmt: skip
def _alike(run: xr.Dataset) -> Estimate:
    heads = ("layer", "head", "product")
    products = run.stable_rank.isel(step=-1).mean(heads) / initial_stable_rank(run).mean(heads)
    return over_seeds(np.log2(_relative(run, KINDS["MLP"]) / products))


def _training_figure(run: xr.Dataset) -> Figure:
    """Draw the losses over training, one curve per seed."""

    def panel(name: str, values: xr.DataArray, *marks: Mark) -> Panel:
        curves = lines(values, x="test_step", hue="seed", label="seed {}", grouped=True)
        return Panel(x=Axis("optimiser steps"), y=Axis(name, "nats"), marks=(*curves, *marks))

    guess = Mark(at=run.attrs["guess_loss"], label="guess by token frequencies", axis="y")
    return Figure(
        name="training",
        title="Test and training loss",
        caption=f"Cross-entropy on {run.attrs['text']}, in nats per token, of {run.attrs['vocabulary']} tokens; one "
        "line per seed. Training loss: mean since the previous test.",
        panels=(panel("test loss", run.test_loss, guess), panel("training loss", run.train_loss)),
    )


def head_figures(run: xr.Dataset) -> list[Figure]:
    """Draw stable ranks over training (Figure 20), spectra at stages of training, one head's staircase, the losses."""
    return [
        stable_rank_figure(run),
        spectrum_stages_figure(run),
        evolution_figure(run, layer=run.layer.values.tolist()[run.sizes["layer"] // 2]),
        _training_figure(run),
    ]


def matrix_figures(run: xr.Dataset) -> list[Figure]:
    """Draw stable ranks of the matrices over training, their spectra at the end, the heads' products, the losses."""

    def panels(curves: Callable[[str], list[Band | Line]], x: Axis, y: Axis) -> tuple[Panel, ...]:
        return tuple(Panel(title=name, x=x, y=y, marks=tuple(curves(kind))) for kind, name in MATRICES.items())

    def ranks(kind: str) -> list[Band | Line]:
        marks: list[Band | Line] = []
        for color, layer in enumerate(run.layer.values):
            one, name = run.matrix_stable_rank.sel(kind=kind, layer=layer), f"layer {layer}"
            mean, spread = one.mean("seed").values, one.std("seed").values
            marks.append(Band(x=run.step.values, low=mean - spread, high=mean + spread, group=name, color=color))
            marks.append(Line(x=run.step.values, y=mean, label=name, group=name, color=color))
        return marks

    def spectra(kind: str) -> list[Band | Line]:
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

    start = _initial_rank(run).mean(("seed", "layer"))
    initial = ", ".join(f"{float(start.sel(kind=kind)):.0f} ({name})" for kind, name in MATRICES.items())
    level = Axis("singular value / largest", scale="log", range=(1e-3, 1.3))
    return [
        Figure(
            name="matrix-rank",
            title="Stable rank of the updates of whole matrices",
            caption="Stable rank of the update of each weight matrix; mean and standard deviation over "
            f"{run.sizes['seed']} seeds. Mean stable ranks of the initial matrices: {initial}.",
            panels=panels(ranks, Axis("optimiser steps", scale="log"), Axis("stable rank")),
        ),
        Figure(
            name="matrix-spectrum",
            title="Spectra of the updates of whole matrices",
            caption="Singular values divided by the largest; mean and range over layers and seeds.",
            panels=panels(spectra, Axis("index of the singular value"), level),
        ),
        stable_rank_figure(run),
        _training_figure(run),
    ]


figure_20 = Entry(
    "gradual-rank/figure-20", "Figure 20: GPT-2 learns by updates of low rank", citation=CITATION,
    source="Section 5 and appendix B.2", params=Params, quick=SMOKE, reduced=REDUCED, paper=FULL, run=run_heads,
    claims=head_claims, figures=head_figures, metrics=language_metrics, data=TEXTS,
)  # fmt: skip

full_matrices = Entry(
    "gradual-rank/full-matrices", "Low and growing rank of the updates of full attention and MLP matrices in GPT-2",
    citation=CITATION, source="beyond Section 5", params=Params, quick=SMOKE, reduced=REDUCED, paper=FULL,
    run=run_matrices, claims=matrix_claims, figures=matrix_figures, metrics=language_metrics, data=TEXTS,
)  # fmt: skip
