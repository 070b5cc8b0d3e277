"""Figures of the entry `figure_6`: trajectories with samples, coordinates, errors, speeds, and the theory."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_6 import curves
from saddlescope.papers.concept_learning.figure_6.theory import RESCALED
from saddlescope.plot import Axis, Band, Figure, Film, Line, Mark, Panel, Picture, Table, lines
from saddlescope.plot.figure import AnyMark

_NAMES = {"color": "colour", "size": "size"}

_PINS = 6  # samples along a trajectory

_MOST = 100  # frames of a film

_RANGE = (-0.15, 1.3)  # of the plane of concepts


def figures(run: xr.Dataset) -> list[Figure]:
    trajectories = (_trajectory(run, k) for k in range(run.sizes["signal"]))
    return [*trajectories, _coordinates(run), _errors(run), _speeds(run), _comparison(run)]


def _mean(positions: xr.DataArray) -> xr.DataArray:
    """Return the mean over seeds; NaN where one has none, so that no curve jumps as seeds come in."""
    return positions.mean("seed", skipna=False).transpose("step", "concept")


def _error(positions: xr.DataArray) -> xr.DataArray:
    """Return the concept space MSE."""
    return ((positions - 1) ** 2).mean("concept", skipna=False)


def _predicted(run: xr.Dataset, signal: int) -> list[tuple[xr.DataArray, str, int, Literal["dashed", "dotted"]]]:
    """Return the theory's paths at both paces, which are one at the first signal, with label, colour and style."""
    theory = run.theory.isel(signal=signal)
    found: list[tuple[xr.DataArray, str, int, Literal["dashed", "dotted"]]]
    found = [(_mean(theory.sel(abstraction="two layers")), "theory", 4, "dashed")]
    if signal > 0:
        found.append((_mean(theory.sel(abstraction=RESCALED)), "AdamW's pace", 5, "dotted"))
    return found


def _trajectory(run: xr.Dataset, signal: int) -> Figure:
    """Draw the plane of concepts with samples, and all classes over training as a film."""
    steps, paths = curves.step_numbers(run), curves.paths(run)[signal]
    known = np.isfinite(paths[0]).all(axis=1)
    first = paths[0][known]
    marks = [
        *(Line(x=path[:, 0], y=path[:, 1], group="other seeds", color=0, width=0.8, opacity=0.4) for path in paths[1:]),
        *(
            Line(x=path.values[:, 0], y=path.values[:, 1], group=label, color=color, style=style, at=steps)
            for path, label, color, style in _predicted(run, signal)
        ),
        Line(x=first[:, 0], y=first[:, 1], group="first seed", color=0, width=2.4, at=steps[known]),
        Line(x=np.array([0.0, 0.0, 1.0]), y=np.array([0.0, 1.0, 0.0]), group="trained classes", color=2,
             style="points"),
        Line(x=np.array([1.0]), y=np.array([1.0]), group="unseen class", color=3, style="points"),
        *_pins(run, signal, paths[0]),
    ]  # fmt: skip
    ahead = _median(curves.leads(run)[signal])
    led = f" {'Colour' if ahead > 0 else 'Size'} leads by up to {abs(ahead):.2f}, median over seeds."
    source = "fitted to this signal" if signal == 0 else "predicted from mu and sigma; dotted: the same at AdamW's pace"
    x, y = Axis("colour, from red to blue", range=_RANGE), Axis("size, from big to small", range=_RANGE)
    names = [str(name) for name in run["class"].values]
    frames = np.flatnonzero(run.step.values >= run.attrs["first_record"])[-_MOST:]
    return Figure(
        name=f"trajectory-{signal + 1}",
        title=f"Generated images of small blue circles over training: colour signal {float(run.signal[signal]):g}",
        caption=f"Mean position of the generated images in concept space.{led if np.isfinite(ahead) else ''} Samples "
        f"are the first seed's. Dashed: the SIM theory, {source}.",
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


def _by_signal(run: xr.Dataset, y: Axis, marks: Callable[[int], Iterable[AnyMark]], x: Axis | None = None) -> tuple:
    """Draw a panel for each signal, over the logarithm of steps or another axis."""
    log_step = Axis("step", scale="log", range=(float(run.attrs["first_record"]), float(run.step[-1])))
    return tuple(
        Panel(x=x or log_step, y=y, marks=tuple(marks(k)), title=f"colour signal {signal:g}")
        for k, signal in enumerate(run.signal.values)
    )


def _coordinates(run: xr.Dataset) -> Figure:
    positions = curves.unseen_positions(run)

    def marks(signal: int) -> Iterator[AnyMark]:
        yield Mark(at=curves.LEVEL, axis="y", label="learned")
        known = positions.isel(signal=signal).where(lambda c: c.notnull().all("seed"), drop=True)
        for color, (concept, name) in enumerate(_NAMES.items()):
            of = known.sel(concept=concept)
            low, high = of.min("seed").values, of.max("seed").values
            yield Band(x=known.step.values, low=low, high=high, group=name, color=color)
        mean = _mean(positions.isel(signal=signal))
        yield from lines(mean, x="step", hue="concept", label=lambda c: _NAMES[c], grouped=True, width=2.2)
        for path, pace, _, style in _predicted(run, signal):
            named = f"{{}}, {pace}".format
            yield from lines(
                path, x="step", hue="concept", label=lambda c, named=named: named(_NAMES[c]), grouped=True, style=style
            )

    return Figure(
        name="coordinates",
        title="Coordinates of the unseen class over training",
        caption="Mean and range over seeds of the coordinates of the generated images; a concept is learned above the "
        "line. Dashed: the SIM theory, fitted to the first signal and predicted for the others; dotted: the same at "
        "AdamW's pace.",
        panels=_by_signal(run, Axis("coordinate", range=(-0.1, 1.25)), marks),
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
        for path, label, color, style in _predicted(run, signal):
            yield from lines(_error(path), x="step", label=label, grouped=True, color=color, style=style)

    return Figure(
        name="error",
        title="Concept space MSE of the unseen class over training",
        caption="Every record is drawn and none is smoothed. Thick: the error of the mean position over seeds, from "
        "the moving average of the weights and from the weights without averaging. Dashed and dotted: the SIM theory, "
        "at the pace of gradient flow and of AdamW.",
        panels=_by_signal(run, Axis("concept space MSE", range=(0.0, 0.75)), marks),
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
        panels=_by_signal(run, Axis("speed in concept space", "1/step", scale="log"), marks, Axis("step")),
    )


def _comparison(run: xr.Dataset) -> Figure:
    """Draw predicted against measured numbers."""
    signals = run.signal.values.astype(float)
    measured, theory = curves.learned(run), curves.by_model(run, "theory_learned")
    measured_lead, predicted_lead = curves.leads(run), curves.by_model(run, "theory_lead")
    pace, at_adam = (
        run.pace.sel(abstraction=kind).transpose("signal", "seed").values for kind in ("two layers", RESCALED)
    )
    slower = at_adam / pace
    compared = {  # measured, predicted, factor on the prediction at AdamW's pace
        "steps until colour is learned": (measured[..., 0], theory[..., 0], slower),
        "steps until size is learned": (measured[..., 1], theory[..., 1], slower),
        "largest lead of colour": (measured_lead, predicted_lead, np.ones_like(slower)),
        "rise of the MSE": (curves.rises(run), curves.by_model(run, "theory_rise"), np.ones_like(slower)),
        "terminal rate (1/step)": (curves.rates(run), curves.by_model(run, "theory_rate"), 1 / slower),
        "steps in a unit of time": (curves.by_model(run, "own_pace"), pace, slower),
    }
    rows = tuple(
        (f"{signal:g}", name, _median(found[k]), _median(predicted[k]), _median(predicted[k] * factor[k]))
        for k, signal in enumerate(signals)
        for name, (found, predicted, factor) in compared.items()
    )

    def panel(y: Axis, found: np.ndarray, predicted: np.ndarray) -> Panel:
        dots = [Line(x=signals, y=each, group="generated", color=0, style="points") for each in found.T]
        medians = np.array([_median(each) for each in predicted])
        line = Line(x=signals, y=medians, group="SIM theory", color=4, style="dashed")
        return Panel(x=Axis("colour signal"), y=y, marks=(*dots, line))

    return Figure(
        name="theory",
        title="Predictions of the SIM theory from the images' mu and sigma",
        caption="Initial scale and steps in a unit of time are fitted to the first signal, for each seed. Dots: "
        "models. Dashed, and in the table: medians over seeds. At AdamW's pace, the steps in a unit of time are "
        "proportional to a₁ + a₂.",
        panels=(
            panel(Axis("steps to colour over steps to size", scale="log"), _ratio(measured), _ratio(theory)),
            panel(Axis("largest lead of colour"), measured_lead, predicted_lead),
        ),
        table=Table(columns=("colour signal", "", "generated", "SIM theory", "at AdamW's pace"), rows=rows),
    )


def _ratio(times: np.ndarray) -> np.ndarray:
    """Return the ratio of both concepts' times; NaN where one is never learned."""
    known = np.where(np.isfinite(times).all(axis=-1, keepdims=True), times, np.nan)
    return known[..., 0] / known[..., 1]


def _median(values: np.ndarray) -> float:
    """Return the median of the finite values."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
