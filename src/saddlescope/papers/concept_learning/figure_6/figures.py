"""Figures of the entry `figure_6`: trajectories with samples, errors, and speeds."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import xarray as xr

from saddlescope.figures.records import AnyMark
from saddlescope.papers.concept_learning.figure_6 import curves
from saddlescope.plot import Axis, Figure, Figures, Film, Line, Panel, Picture, lines

_PINS = 6  # samples along a trajectory

_MOST = 100  # frames of a film

_RANGE = (-0.15, 1.3)  # of the plane of concepts


def figures(run: xr.Dataset) -> Figures:
    yield from (_trajectory(run, k) for k in range(run.sizes["signal"]))
    yield _errors(run)
    yield _speeds(run)


def _mean(positions: xr.DataArray) -> xr.DataArray:
    """Return the mean over seeds; NaN where one has none, so that no curve jumps as seeds come in."""
    return positions.mean("seed", skipna=False).transpose("step", "concept")


def _error(positions: xr.DataArray) -> xr.DataArray:
    """Return the concept space MSE."""
    return ((positions - 1) ** 2).mean("concept", skipna=False)


def _trajectory(run: xr.Dataset, signal: int) -> Figure:
    """Draw the plane of concepts with samples, and all classes over training as a film."""
    steps, paths = curves.step_numbers(run), curves.paths(run)[signal]
    known = np.isfinite(paths[0]).all(axis=1)
    first = paths[0][known]
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    marks = [
        *(Line(x=path[:, 0], y=path[:, 1], group="other seeds", color=0, width=0.8, opacity=0.4) for path in paths[1:]),
        Line(x=first[:, 0], y=first[:, 1], group="first seed", color=0, width=2.4, at=steps[known]),
        Line(x=corners[:, 0], y=corners[:, 1], group="trained classes", color=2, style="points"),
        Line(x=np.array([1.0]), y=np.array([1.0]), group="unseen class", color=3, style="points"),
        *_pins(run, signal, paths[0]),
    ]
    leads = curves.leads(run)[signal]
    ahead = float(np.median(leads[np.isfinite(leads)])) if np.isfinite(leads).any() else np.nan
    led = f" {'Colour' if ahead > 0 else 'Size'} leads by up to {abs(ahead):.2f}, median over seeds."
    x, y = Axis("colour, from red to blue", range=_RANGE), Axis("size, from big to small", range=_RANGE)
    names = [str(name) for name in run["class"].values]
    frames = np.flatnonzero(run.step.values >= run.attrs["first_record"])[-_MOST:]
    return Figure(
        name=f"trajectory-{signal + 1}",
        title=f"Generated images of small blue circles over training: colour signal {float(run.signal[signal]):g}",
        caption=f"Mean position of the generated images in concept space.{led if np.isfinite(ahead) else ''} Samples "
        "are the first seed's.",
        panels=(Panel(x=x, y=y, marks=tuple(marks)),),
        film=Film(
            steps=run.step.values[frames],
            images=_images(run, signal)[frames],
            rows=(*names[:-1], f"{names[-1]} (unseen)"),
        ),
    )


def _pins(run: xr.Dataset, signal: int, path: np.ndarray) -> list[Picture]:
    """Return samples of the unseen class at records spread evenly along the trajectory."""
    known = np.flatnonzero(np.isfinite(path).all(axis=1))
    if len(known) < 2:
        return []
    length = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(path[known], axis=0), axis=1)))
    chosen = np.unique(np.searchsorted(length, np.linspace(0, length[-1], _PINS)).clip(0, len(known) - 1))
    images = _images(run, signal)
    blank = run.blank.isel(signal=signal, seed=0).transpose("step", "class", "image").values[:, -1]
    found = []
    for record in known[chosen]:
        shown = images[record, -1, np.argmin(blank[record, : images.shape[2]])]  # the first that is not blank
        x, y = path[record].tolist()
        step = f"step {run.step.values[record]}"
        found.append(Picture(x=x, y=y, image=shown, size=0.13, label=step, group="first seed", color=0))
    return found


def _images(run: xr.Dataset, signal: int) -> np.ndarray:
    """Return stored images, (step, class, shown, height, width, 3)."""
    order = ("step", "class", "shown", "row", "column", "channel")
    return np.ascontiguousarray(run.images.isel(signal=signal).transpose(*order).values)


def _by_signal(run: xr.Dataset, x: Axis, y: Axis, marks: Callable[[int], Iterable[AnyMark]]) -> tuple[Panel, ...]:
    return tuple(
        Panel(x=x, y=y, marks=tuple(marks(k)), title=f"colour signal {signal:g}")
        for k, signal in enumerate(run.signal.values)
    )


def _errors(run: xr.Dataset) -> Figure:
    averaged, raw = (curves.unseen_positions(run, estimate) for estimate in ("position", "raw_position"))

    def marks(signal: int) -> Iterator[AnyMark]:
        of, of_raw = averaged.isel(signal=signal), raw.isel(signal=signal)
        for seed in range(run.sizes["seed"]):
            each = _error(of.isel(seed=seed))
            yield from lines(each, x="step", label="each seed", grouped=True, width=0.8, opacity=0.5)
        label = "mean over seeds, weights not averaged"
        yield from lines(_error(_mean(of_raw)), x="step", label=label, grouped=True, color=1, width=1.2)
        yield from lines(_error(_mean(of)), x="step", label="mean over seeds", grouped=True, width=2.4)

    step = Axis("step", scale="log", range=(float(run.attrs["first_record"]), float(run.step[-1])))
    return Figure(
        name="error",
        title="Concept space MSE of the unseen class over training",
        caption="Every record is drawn and none is smoothed. Thick: the error of the mean position over seeds, from "
        "the moving average of the weights and from the weights without averaging.",
        panels=_by_signal(run, step, Axis("concept space MSE", range=(0.0, 0.75)), marks),
    )


def _speeds(run: xr.Dataset) -> Figure:
    steps = curves.step_numbers(run)

    def marks(signal: int) -> Iterator[AnyMark]:
        for m, path in enumerate(curves.paths(run)[signal]):
            at, speed = curves.speeds(path, steps)
            seed = f"seed {run.seed.values[m]}"
            yield Line(x=at, y=speed, group=seed, color=m, width=1.2)
            part = curves.terminal_phase(path, steps)
            if part is None:
                continue
            x = steps[part.records]
            fitted = curves.fit_approach(path[part.records, part.concept], x, "exponential")
            if fitted.resolved:
                slope = fitted.gap * fitted.rate * np.exp(-fitted.rate * (x - x[0]))
                yield Line(x=x, y=slope, group=seed, color=m, style="dashed")

    return Figure(
        name="speed",
        title="Speed in concept space over training",
        caption="Distance in concept space per step, between records whose steps differ by a quarter or more; an "
        "exponential is a straight line. Dashed: slope of the exponential fitted to the slower coordinate from 1/2 on.",
        panels=_by_signal(run, Axis("step"), Axis("speed in concept space", "1/step", scale="log"), marks),
    )
