"""A tiny entry for sweeps, which draws from a seed, refuses, fails or is killed where its parameters say so.

Every run leaves a trace in the folder TINY_HERE. A process of a sweep that is given parameters of this module imports
it, and finds the entry then. Run as a script, it is the command line with the entry installed.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, Metric, RunContext, catalogue, param
from saddlescope.reproduction import entry as entries


class Params(EntryParams):
    dim: int = param(3, "dimension of the walk", ge=1)
    seed: int = param(0, "seed of the steps")
    noise: float = param(1.0, "standard deviation of a step")
    scales: tuple[float, ...] = param((0.1, 0.01), "scale of each walk")
    steps: int = param(20, "steps of the walk")
    pause: float = param(0.0, "pause in each step", unit="s")
    kind: str = param("walk", "walk, fails, refuses, killed or exits")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run a walk, stored after every step; failures happen in the middle of it."""
    with (Path(os.environ["TINY_HERE"]) / "begun").open("a") as file:
        file.write(f"{os.getpid()} {params.kind} {params.seed} {params.dim}\n")
    kept = context.scratch / "walk.json"
    places = json.loads(kept.read_text()) if kept.exists() else []
    for step in range(len(places), params.steps):
        time.sleep(params.pause)
        if step == params.steps // 2:
            _break(params)
        rng = np.random.default_rng([params.seed, step])
        move = params.noise * rng.standard_normal(params.dim)
        places.append((np.array(places[-1]) + move if places else move).tolist())
        part = kept.with_suffix(".part")
        part.write_text(json.dumps(places))
        part.replace(kept)
        context.report((step + 1) / params.steps, f"step {step + 1}")
    walk = np.array(params.scales)[:, None, None] * np.array(places)
    return xr.Dataset(
        {"walk": (("scale", "step", "dim"), walk), "end": ("scale", np.linalg.norm(walk[:, -1], axis=-1))},
        coords={"scale": list(params.scales), "step": np.arange(params.steps)},
    )


def _break(params: Params) -> None:
    match params.kind:
        case "fails":
            raise ZeroDivisionError("a defect\nin two lines")
        case "refuses":
            raise InputError("kind must be walk; got 'refuses'.")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            os._exit(3)


claims = Claims(limits="It is one walk.")


@claims.extension("walks", "The walk leaves its start", "nowhere", low=0.05)
def walks(run: xr.Dataset) -> Estimate:
    """Final distance."""
    return Estimate(float(run.end[0]))


@claims.extension("two-scales", "The second walk is shorter", "nowhere", high=0.5)
def two_scales(run: xr.Dataset) -> Estimate:
    """Ratio of lengths."""
    return Estimate(float(run.end[1] / run.end[0]))


metrics = (Metric(name="end", quantity="where it ends", statistic=lambda run: float(run.end[0]), scale="log"),)

ENTRY = Entry(
    "tiny/walk",
    "A walk",
    source="Section 1",
    citation="Nobody: A tiny paper, 2023",
    params=Params,
    quick={"steps": 4},
    paper={"steps": 40},
    run=run,
    claims=claims,
    figures=lambda run: [],
    metrics=metrics,
)


def find_entry(name: str) -> Entry:
    """Replace `saddlescope.reproduction.entry.find_entry`."""
    if name != ENTRY.name:
        raise entries.unknown("entry", name, [ENTRY.name])
    return ENTRY


def install() -> None:
    """Install the entry in this process."""
    entries.find_entry, catalogue.entry_names = find_entry, lambda: (ENTRY.name,)  # type: ignore[assignment]


if "pytest" not in sys.modules:  # there the fixture `walk` does
    install()

if __name__ == "__main__":
    import tiny_sweep  # the module whose classes are pickled

    tiny_sweep.install()
    from saddlescope import cli

    sys.exit(cli.main())
