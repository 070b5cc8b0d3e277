"""Entries for the tests of the live page: one that takes as long as told, and others that misbehave."""

import os
import signal
import sys
import time

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


class Params(EntryParams):
    """Time and behaviour."""

    seconds: float = param(0.0, "seconds that the run takes", ge=0.0, le=1000.0)
    silent: bool = param(False, "report nothing meanwhile")
    dies: bool = param(False, "the process kills itself")
    fails: bool = param(False, "raise an error")
    prints: bool = param(False, "print to standard output")
    level: float = param(0.5, "height of the curve", gt=0, lt=1)
    scale: float = param(0.1, "nothing", ge=1e-3, le=1.0, scale="log")
    points: int = param(20, "points of the curve", ge=2)
    words: str = param("none", "words of the caption")


def run(params: Params, context: RunContext) -> xr.Dataset:
    end = time.monotonic() + params.seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(0.02)
        if not params.silent:
            context.report(1 - left / params.seconds, f"{left:.1f} s left")
    if params.dies:
        os.kill(os.getpid(), signal.SIGKILL)
    if params.fails:
        raise RuntimeError("a defect")
    if params.prints:
        sys.stdout.buffer.write(b"\x00\x00 not a message")
        sys.stdout.flush()
    x = np.linspace(0, 1, params.points)
    return xr.Dataset({"y": ("x", params.level * x)}, {"x": x}, {"words": params.words, "process": os.getpid()})


claims = Claims(limits="It is made up.")


@claims.extension("high", "The curve ends above a half", "a test", low=0.5)
def _last(run: xr.Dataset) -> Estimate:
    """Last value."""
    return Estimate(float(run.y[-1]), remark=HOSTILE)


def figures(run: xr.Dataset) -> list[Figure]:
    line = Line(x=run.x.values, y=run.y.values, label="curve")
    panel = Panel(x=Axis("x"), y=Axis("y"), marks=(line,))
    caption = f"Words: {run.attrs['words']}; process {run.attrs['process']}."
    return [Figure(name="curve", title=f"A curve {HOSTILE}", caption=caption, panels=(panel,), columns=1)]


entry = Entry("own/timed", "A run that takes as long as told", params=Params, run=run, claims=claims, figures=figures)
