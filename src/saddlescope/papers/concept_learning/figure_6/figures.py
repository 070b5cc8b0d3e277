"""Figures of the entry `figure_6`: trajectories with samples, coordinates, errors, speeds, and the theory."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_6 import curves
from saddlescope.papers.concept_learning.figure_6.claims import leads as measured_leads
from saddlescope.papers.concept_learning.figure_6.claims import learned, step_numbers
from saddlescope.papers.concept_learning.figure_6.claims import paths as measured_paths
from saddlescope.papers.concept_learning.figure_6.claims import rates as measured_rates
from saddlescope.papers.concept_learning.figure_6.claims import rises as measured_rises
from saddlescope.papers.concept_learning.figure_6.predictions import RESCALED
from saddlescope.plot import Axis, Band, Figure, Film, Line, Mark, Panel, Picture, Table
from saddlescope.plot.figure import AnyMark

_NAMES = ("colour", "size")

_PINS = 6  # samples along a trajectory

_MOST = 100  # frames of a film

_RANGE = (-0.15, 1.3)  # of the plane of concepts


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw all figures."""
    return [
        *(_trajectory(run, k) for k in range(run.sizes["signal"])),
        _coordinates(run),
        _errors(run),
        _speeds(run),
        _comparison(run),
    ]


def _theory(run: xr.Dataset, abstraction: str) -> np.ndarray:
    return run.theory.sel(abstraction=abstraction).transpose("signal", "seed", "step", "concept").values


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over seeds; NaN where one has none, so that no curve jumps as seeds come in."""
    return values.mean(axis=0)


def _log_step(run: xr.Dataset) -> Axis:
    return Axis("step", scale="log", range=(float(run.attrs["first_record"]), float(run.step[-1])))


def _trajectory(run: xr.Dataset, signal: int) -> Figure:
    """Draw the plane of concepts with samples, and all classes over training as a film."""
    steps, paths = step_numbers(run), measured_paths(run)[signal]
    known = np.isfinite(paths[0]).all(axis=1)
    first = paths[0][known]
    marks = [
        *(Line(x=path[:, 0], y=path[:, 1], group="other seeds", color=0, width=0.8, opacity=0.4) for path in paths[1:]),
        *(
            Line(x=path[:, 0], y=path[:, 1], group=label, color=color, style=style, at=steps)
            for path, label, color, style in _predicted(run, signal)
        ),
        Line(x=first[:, 0], y=first[:, 1], group="first seed", color=0, width=2.4, at=steps[known]),
        Line(x=np.array([0.0, 0.0, 1.0]), y=np.array([0.0, 1.0, 0.0]), group="classes trained on", color=2,
             style="points"),
        Line(x=np.array([1.0]), y=np.array([1.0]), group="unseen class", color=3, style="points"),
        *_pins(run, signal, paths[0]),
    ]  # fmt: skip
    ahead = _median(measured_leads(run)[signal])
    led = (
        f" {'Colour' if ahead > 0 else 'Size'} leads by up to {abs(ahead):.2f}, median over seeds."
        if np.isfinite(ahead)
        else ""
    )
    source = "fitted to this signal" if signal == 0 else "predicted from mu and sigma; dotted: the same at AdamW's pace"
    plane = Panel(
        x=Axis("colour, from red to blue", range=_RANGE),
        y=Axis("size, from big to small", range=_RANGE),
        marks=tuple(marks),
    )
    return Figure(
        name=f"trajectory-{signal + 1}",
        title=f"Asked for a small blue circle: colour signal {float(run.signal[signal]):g}",
        caption=f"Mean position of the generated images in concept space.{led} Samples are the first seed's. Dashed: "
        f"the SIM theory, {source}.",
        panels=(plane,),
        film=_film(run, signal),
    )


def _predicted(run: xr.Dataset, signal: int) -> list[tuple[np.ndarray, str, int, Literal["dashed", "dotted"]]]:
    """Return the theory's paths at both paces, which are one at the first signal, with label, colour and style."""
    found: list[tuple[np.ndarray, str, int, Literal["dashed", "dotted"]]] = []
    found.append((_mean(_theory(run, "two layers")[signal]), "theory", 4, "dashed"))
    if signal > 0:
        found.append((_mean(_theory(run, RESCALED)[signal]), "AdamW's pace", 5, "dotted"))
    return found


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
        image = int(np.argmin(blank[record, : images.shape[2]]))  # the first that is not blank
        found.append(
            Picture(x=float(path[record, 0]), y=float(path[record, 1]), image=images[record, -1, image], size=0.13,
                    label=f"step {run.step.values[record]}", group="first seed", color=0)
        )  # fmt: skip
    return found


def _images(run: xr.Dataset, signal: int) -> np.ndarray:
    """Return stored images, (step, class, shown, height, width, 3)."""
    order = ("step", "class", "shown", "row", "column", "channel")
    return np.ascontiguousarray(run.images.isel(signal=signal).transpose(*order).values)


def _film(run: xr.Dataset, signal: int) -> Film:
    frames = np.flatnonzero(run.step.values >= run.attrs["first_record"])[-_MOST:]
    names = [str(name) for name in run["class"].values]
    names[-1] += " (unseen)"
    return Film(steps=run.step.values[frames], images=_images(run, signal)[frames], rows=tuple(names))


def _by_signal(run: xr.Dataset, x: Axis, y: Axis, marks: Callable[[int], Iterable[AnyMark]]) -> list[Panel]:
    """Draw a panel for each signal."""
    return [
        Panel(x=x, y=y, marks=tuple(marks(k)), title=f"colour signal {signal:g}")
        for k, signal in enumerate(run.signal.values)
    ]


def _coordinates(run: xr.Dataset) -> Figure:
    """Draw both coordinates over training."""
    steps = step_numbers(run)

    def marks(signal: int) -> Iterator[AnyMark]:
        yield Mark(at=curves.LEVEL, axis="y", label="learned")
        for concept, name in enumerate(_NAMES):
            values = measured_paths(run)[signal, :, :, concept]
            known = np.isfinite(values).all(axis=0)
            low, high = values[:, known].min(axis=0), values[:, known].max(axis=0)
            yield Band(x=steps[known], low=low, high=high, group=name, color=concept)
            yield Line(x=steps, y=_mean(values), label=name, group=name, color=concept, width=2.2)
            for path, label, _, style in _predicted(run, signal):
                label = f"{name}, {label}"
                yield Line(x=steps, y=path[:, concept], label=label, group=label, color=concept, style=style)

    return Figure(
        name="coordinates",
        title="The signal decides which concept is learned first",
        caption="Coordinates of the images of the unseen class: mean and range over seeds. Dashed: the SIM theory, "
        "fitted to the first signal and predicted for the others; dotted: the same at AdamW's pace.",
        panels=tuple(_by_signal(run, _log_step(run), Axis("coordinate", range=(-0.1, 1.25)), marks)),
    )


def _errors(run: xr.Dataset) -> Figure:
    """Draw the concept space MSE over training."""
    steps = step_numbers(run)

    def marks(signal: int) -> Iterator[AnyMark]:
        paths, raw = measured_paths(run)[signal], measured_paths(run, "raw_position")[signal]
        for path in paths:
            yield Line(x=steps, y=curves.error(path), group="each seed", color=0, width=0.8, opacity=0.5)
        ensemble, without = curves.error(_mean(paths)), curves.error(_mean(raw))
        yield Line(x=steps, y=without, group="mean over seeds, weights not averaged", color=1, width=1.2)
        yield Line(x=steps, y=ensemble, group="mean over seeds", color=0, width=2.4)
        for path, label, color, style in _predicted(run, signal):
            yield Line(x=steps, y=curves.error(path), group=label, color=color, style=style)

    return Figure(
        name="error",
        title="Transient memorization: the error of the unseen class over training",
        caption="Every record is drawn and none is smoothed. Thick: the error of the mean position over seeds, from "
        "the moving average of the weights and from the weights as they are. Dashed and dotted: the theory.",
        panels=tuple(_by_signal(run, _log_step(run), Axis("concept space MSE", range=(0.0, 0.75)), marks)),
    )


def _speeds(run: xr.Dataset) -> Figure:
    """Draw the speed in concept space over training, on a logarithmic axis."""
    steps = step_numbers(run)

    def marks(signal: int) -> Iterator[AnyMark]:
        for m, path in enumerate(measured_paths(run)[signal]):
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

    speed = Axis("speed in concept space", "1/step", scale="log")
    return Figure(
        name="speed",
        title="Learning slows down",
        caption="Distance in concept space per step, between records a quarter apart; a straight line is exponential. "
        "Dashed: the slope of the exponential that fits the slower coordinate from 1/2 on.",
        panels=tuple(_by_signal(run, Axis("step"), speed, marks)),
    )


def _comparison(run: xr.Dataset) -> Figure:
    """Draw predicted against measured numbers."""
    order, signals = ("signal", "seed"), run.signal.values.astype(float)
    measured, theory = learned(run), run.theory_learned.transpose(*order, "concept").values
    leads, rises, rates, own = (
        measured_leads(run),
        measured_rises(run),
        measured_rates(run),
        run.own_pace.transpose(*order).values,
    )
    pace = run.pace.sel(abstraction=["two layers", RESCALED]).transpose("abstraction", *order).values
    slower = pace[1] / pace[0]
    same = np.ones_like(slower)
    rows = []
    for k, signal in enumerate(signals):
        for name, found, predicted, by in (
            ("steps until colour is learned", measured[k, :, 0], theory[k, :, 0], slower[k]),
            ("steps until size is learned", measured[k, :, 1], theory[k, :, 1], slower[k]),
            ("largest lead of colour", leads[k], run.theory_lead.transpose(*order).values[k], same[k]),
            ("rise of the MSE", rises[k], run.theory_rise.transpose(*order).values[k], same[k]),
            ("terminal rate (1/step)", rates[k], run.theory_rate.transpose(*order).values[k], 1 / slower[k]),
            ("steps in a unit of time", own[k], pace[0, k], slower[k]),
        ):
            rows.append((f"{signal:g}", name, _median(found), _median(predicted), _median(predicted * by)))

    def panel(label: str, found: np.ndarray, predicted: np.ndarray, scale: Literal["linear", "log"]) -> Panel:
        dots = [Line(x=signals, y=each, group="generated", color=0, style="points") for each in found.T]
        line = Line(
            x=signals, y=np.array([_median(each) for each in predicted]), group="SIM theory", color=4, style="dashed"
        )
        return Panel(x=Axis("colour signal"), y=Axis(label, scale=scale), marks=(*dots, line))

    return Figure(
        name="theory",
        title="What the SIM theory predicts from the images' mu and sigma",
        caption="Initial scale and steps in a unit of time are fitted to the first signal, seed by seed; the rest "
        "follows. The table has medians over seeds. At AdamW's pace a unit of time takes steps in proportion to "
        "a_1 + a_2.",
        panels=(
            panel("steps to colour over steps to size", _ratio(measured), _ratio(theory), "log"),
            panel("largest lead of colour", leads, run.theory_lead.transpose(*order).values, "linear"),
        ),
        table=Table(columns=("colour signal", "", "generated", "SIM theory", "at AdamW's pace"), rows=tuple(rows)),
    )


def _ratio(times: np.ndarray) -> np.ndarray:
    """Return the ratio of both concepts' times; NaN where one is never learned."""
    known = np.isfinite(times).all(axis=-1)
    return np.where(known, np.where(known, times[..., 0], 1.0) / np.where(known, times[..., 1], 1.0), np.nan)


def _median(values: np.ndarray) -> float:
    """Return the median of the finite values."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
