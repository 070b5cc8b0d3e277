"""A tiny entry that keeps the contract of `saddlescope.reproduction.entry` and runs in no time.

Tests install it by the `tiny` fixture; run as a script, this file is the command line with it installed, for tests that
kill the process. Its names are hostile on purpose: whatever shows them must show them as they stand.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Band, Figure, Heat, Line, Mark, Panel, Table
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, catalogue, param
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction.metric import Metric

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


class Params(EntryParams):
    stages: int = param(4, "steps of the staircase", ge=1)
    seed: int = param(0, "seed of the noise")
    scales: tuple[float, ...] = param((1e-2, 1e-8), "initial scales", scale="log")
    words: str = param(HOSTILE, "text that must be shown verbatim")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run a staircase in parts, each stored in the scratch folder; TINY_DIE_AT kills the process before one."""
    if os.environ.get("TINY_FAILS"):
        raise RuntimeError("a defect")
    checkpoint = context.scratch / "done.json"
    done = json.loads(checkpoint.read_text()) if checkpoint.exists() else []
    for stage in range(len(done), params.stages):
        context.report(stage / params.stages, f"stage {stage + 1} of {params.stages}")
        if os.environ.get("TINY_DIE_AT") == str(stage):
            os.kill(os.getpid(), getattr(signal, os.environ.get("TINY_SIGNAL", "SIGKILL")))
        done.append(float(stage))
        part = checkpoint.with_suffix(".part")
        part.write_text(json.dumps(done))
        part.replace(checkpoint)
    t = np.linspace(0, 10, 401)
    centres = np.linspace(1, 9, params.stages)
    steep = np.log10(1 / np.array(params.scales))
    rank = 1 / (1 + np.exp(np.clip(-3 * steep[:, None, None] * (t - centres[:, None]), -700, 700)))
    noise = np.random.default_rng(params.seed).normal(0, 0.01, (len(params.scales), len(t)))
    return xr.Dataset(
        {
            "loss": (("scale", "t"), params.stages - rank.sum(1) + abs(noise), {"units": "1"}),
            "rank": (("scale", "stage", "t"), rank),
            "learned": ("stage", np.arange(params.stages) % 2 == 0),
        },
        coords={"t": t, "scale": list(params.scales), "name": ("stage", [f"stage {k}" for k in range(params.stages)])},
        attrs={"centres": centres, "reported": params.words},
    )


claims = Claims(limits="It is one run.")


@claims.extension("falls", "The loss falls", "Theorem 1", high=0.5)
def falls(run: xr.Dataset) -> Estimate:
    """Last over first."""
    return Estimate(float(run.loss[-1, -1] / run.loss[-1, 0]), 0.001)


def stages(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.sizes["stage"]), remark=HOSTILE)


stages.__doc__ = f"Stages, {HOSTILE}"
claims.printed(HOSTILE, f"More than five stages, in {HOSTILE}", HOSTILE, low=5.0, high=100.0, unit="stages")(stages)


@claims.reading("unresolved", "The run resolves every stage", "Theorem 2", low=0.5, high=2.0)
def unresolved(run: xr.Dataset) -> Estimate:
    """Share of resolved stages."""
    return Estimate.unresolved("The run ended too early.")


metrics = (
    Metric(name="stages", quantity=f"stages, {HOSTILE}", statistic=lambda run: float(run.sizes["stage"])),
    Metric(
        name="final_loss",
        quantity="final loss",
        statistic=lambda run: float(run.loss[-1, -1]),
        unit="nats",
        scale="log",
    ),
)


def traces(run: xr.Dataset) -> list[Figure]:
    t = run.t.values
    time, loss = Axis("rescaled time t", "log(1/α)"), Axis("loss", scale="log")
    curves = tuple(Line(x=t, y=run.loss.sel(scale=scale).values, group=f"α = {scale:g}") for scale in run.scale.values)
    marks = tuple(Mark(at=float(c), label=f"T{k}", group="predicted") for k, c in enumerate(run.attrs["centres"]))
    noise = 0.1 * np.ones_like(t)
    mean = run["rank"].sum("stage")[-1].values
    active = Heat(x=t, y=np.arange(run.sizes["stage"]), z=run["rank"][0].values, label="active", scale="log")
    return [
        Figure(
            name="staircase",
            title="The loss falls in stages",
            caption=f"One curve an initial scale. {run.attrs['reported']}",
            panels=(
                Panel(x=time, y=loss, marks=(*curves, *marks), title="loss"),
                Panel(
                    x=time,
                    y=Axis("rank"),
                    marks=(
                        Band(x=t, low=mean - noise - 0.5, high=mean + noise, group=f"α = {run.scale.values[-1]:g}"),
                        *(
                            Line(x=t, y=run["rank"].sum("stage").sel(scale=s).values, group=f"α = {s:g}", style="steps")
                            for s in run.scale.values
                        ),
                        Mark(at=1.0, label="<b>one</b>", axis="y"),
                        Mark(at=float(t.mean()), label="half of the time"),
                    ),
                    title="rank",
                ),
            ),
            table=Table(
                columns=("stage", "predicted time", "found"),
                rows=tuple((str(run.name.values[k]), float(c), k) for k, c in enumerate(run.attrs["centres"])),
            ),
        ),
        Figure(
            name="heat",
            title=HOSTILE,
            caption="Which stage is active when.",
            panels=(
                Panel(
                    x=time,
                    y=Axis("stage"),
                    marks=(active,),
                ),
            ),
            columns=1,
        ),
    ]


ENTRY = Entry(
    "tiny/staircase",
    f"A staircase in no time {HOSTILE}",
    source="Section 1",
    citation="Nobody: A tiny paper, 2023",
    params=Params,
    quick={"stages": 2},
    paper={"stages": 9},
    run=run,
    claims=claims,
    figures=traces,
    metrics=metrics,
)
NAMES = (ENTRY.name,)
HEADING = catalogue.Heading(ENTRY.title, ENTRY.source, ENTRY.citation)


def find_entry(name: str) -> Entry:
    """Replace `saddlescope.reproduction.entry.find_entry`."""
    if name != ENTRY.name:
        raise entries.unknown("entry", name, NAMES)
    return ENTRY


class Blank:
    """Empty drawing, since drawing takes long."""

    def savefig(self, path: Path) -> None:
        path.write_text("blank")

    def set_layout_engine(self, engine: object) -> None: ...


def install(*, blank: bool = False) -> None:
    """Replace all entries of this process by the tiny one, and on request drawings by blank ones."""
    entries.find_entry, catalogue.entry_names = find_entry, lambda: NAMES  # type: ignore[assignment]
    catalogue.entry_heading = lambda name: HEADING  # type: ignore[assignment]
    if blank:
        from saddlescope.gallery import site

        site.draw_matplotlib = site.draw_thumbnail = lambda *_, **__: Blank()  # type: ignore[assignment]


def save_pair(folder: Path) -> None:
    """Write base.pt and tuned.pt, checkpoints of one attention module."""
    import torch

    draw = torch.Generator().manual_seed(0)
    base = {f"layers.0.{name}_proj.weight": torch.randn(6, 6, generator=draw) for name in "qkvo"}
    torch.save(base, folder / "base.pt")
    torch.save({name: one + torch.randn(6, 6, generator=draw) for name, one in base.items()}, folder / "tuned.pt")


if __name__ == "__main__":
    install(blank="TINY_BLANK" in os.environ)
    from saddlescope import cli

    sys.exit(cli.main())
