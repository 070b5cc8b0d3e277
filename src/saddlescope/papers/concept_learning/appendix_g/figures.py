"""Figures of the entry `appendix_g`."""

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def bound_figure(run: xr.Dataset) -> Figure:
    """Draw differences of the terms and of the gradients from their definition, with the bar."""
    apart = abs(run.ours / run.by_hand - 1)
    order = np.argsort(run.time.values)
    rounding = 1e-9  # what is below is drawn there: single precision ends at 6e-8
    terms = tuple(
        Line(
            x=run.time.values[order], y=np.maximum(apart.sel(term=term).values[order], rounding), group=term, color=k,
            style="points",
        )
        for k, term in enumerate(run.term.values.tolist())
    )  # fmt: skip
    off = abs(run.gradient - run.gradient_by_hand) / run.gradient_norm
    gradients = Line(
        x=np.arange(1, run.sizes["along"] + 1), y=np.maximum(off.values, rounding), group="gradient", color=3,
        style="points",
    )  # fmt: skip
    bar = Mark(at=1e-4, label="bar", axis="y")
    number = (1e-9, 1e-3)
    return Figure(
        name="bound",
        title="The variational bound of the full model is its definition by hand",
        caption=f"A model of {run.attrs['parameters']:,} parameters, on {run.sizes['image']} images of circles. Left: "
        "relative difference of each term of each image from divergences of a Markov chain of 10⁷ steps in double "
        "precision, over the time drawn. Right: difference of the diffusion term's derivative from central differences "
        "of that, over the gradient's norm, along "
        f"{', '.join(run.along.values.tolist())}. The table has the terms of the first image.",
        panels=(
            Panel(
                title="terms",
                x=Axis("time", "t", range=(0.0, 1.0)),
                y=Axis("relative difference", scale="log", range=number),
                marks=(*terms, bar),
            ),
            Panel(
                title="derivatives of the diffusion term",
                x=Axis("direction"),
                y=Axis("difference over norm", scale="log", range=number),
                marks=(gradients, bar),
            ),
        ),
        table=Table(
            columns=("term", "trained with (bits a dimension)", "by hand"),
            rows=tuple(
                (term, *(float(part.sel(term=term)[0]) for part in (run.ours, run.by_hand)))
                for term in run.term.values.tolist()
            ),
        ),
    )


def law_figure(run: xr.Dataset) -> Figure:
    """Draw variances of the samples along each direction, and the part that is lost against the number of steps."""
    x = np.arange(1, run.sizes["direction"] + 1)
    parts = (
        Mark(at=1.0, label="the law's own", axis="y"),
        Line(x=x, y=(run.chain_variance / run.law_variance).values, label="the chain, exactly", color=1),
        Line(x=x, y=(run.sampled_variance / run.law_variance).values, label="samples", color=2, style="points"),
    )
    steps = run.steps.values.astype(float)
    lost = []
    for k, (schedule, length) in enumerate((("initial", 15.0), ("learned", float(-2 * np.log(1e-3) + 10)))):
        worst = run.shortfall.sel(schedule=schedule).max("direction").values
        lost.append(Line(x=steps, y=worst, label=f"{schedule} schedule", color=3 + k))
        lost.append(Line(x=steps, y=length / (2 * steps), color=3 + k, style="dotted"))
    return Figure(
        name="normal-law",
        title="Ancestral sampling of a normal law: every direction loses the same part of its variance",
        caption="With the best prediction of noise. Left: variances along the law's own directions, which fall from 1 "
        f"to 1e-4, as parts of the law's; {run.attrs['law_samples']} samples with {run.attrs['law_steps']} steps. "
        "Right: the largest part of a variance that is lost, from the chain's exact law without a draw, where gamma "
        "starts at -5 (initial) and at twice the logarithm of the data noise (learned); dotted: (γ₁ − γ₀) / (2 steps).",
        panels=(
            Panel(title="variances", x=Axis("direction"), y=Axis("variance over the law's"), marks=parts),
            Panel(
                title="what few steps cost",
                x=Axis("sampling steps", scale="log"),
                y=Axis("part of the variance lost", scale="log", range=(3e-3, 1.5)),
                marks=(*lost, Mark(at=100.0, label="the paper's")),
            ),
        ),
    )


def estimators_figure(run: xr.Dataset) -> Figure:
    """Draw classifier and direct estimator between two class means."""
    panels = []
    for concept in run.concept.values.tolist():
        part = run.sel(concept=concept)
        lines = []
        for k, signal in enumerate(run.signal.values.tolist()):
            probability, position = part.between.sel(signal=signal).values, part.read.sel(signal=signal).values
            label = f"colour signal {signal:g}"
            lines.append(Line(x=run.way.values, y=probability, color=k, group=f"classifier, {label}"))
            lines.append(Line(x=run.way.values, y=position, color=k, style="dashed", group=f"direct, {label}"))
        panels.append(
            Panel(
                title="from red to blue" if concept == "color" else "from big to small",
                x=Axis(f"true position in {concept}", range=(0.0, 1.0)),
                y=Axis("reading", range=(-0.1, 1.1)),
                marks=tuple(lines),
            )
        )
    return Figure(
        name="estimators",
        title="Between two class means a classifier jumps where the direct estimator moves",
        caption="Mean reading of images without jitter whose colour or size lies between the class means; the other "
        "concept has both its values. The classifier's probability tells which mean is nearer, not how far an image is "
        "on its way: averages of it over images count those beyond the middle.",
        panels=tuple(panels),
    )


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the bound beside its definition, the sampler's law, and both estimators between class means."""
    return [bound_figure(run), law_figure(run), estimators_figure(run)]
