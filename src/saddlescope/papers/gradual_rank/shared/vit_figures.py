"""Figures of trained vision transformers that several entries share: their ranks, their spectra, their training."""

import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.plot.rank_figures import spectrum_figure, spectrum_stages_figure, stable_rank_figure


def final_spectrum_figures(run: xr.Dataset) -> list[Figure]:
    """Draw stable ranks over training, the last spectra against initialization, and the training itself."""
    return [stable_rank_figure(run), spectrum_figure(run), training_figure(run)]


def spectrum_stages_figures(run: xr.Dataset) -> list[Figure]:
    """Draw stable ranks over training, spectra at stages of training, and the training itself."""
    return [stable_rank_figure(run), spectrum_stages_figure(run), training_figure(run)]


def training_figure(run: xr.Dataset) -> Figure:
    """Draw loss and test accuracy over the epochs, one curve per seed."""

    def curves(values: xr.DataArray, over: str) -> tuple[Line, ...]:
        return tuple(
            Line(x=run[over].values, y=values.sel(seed=seed).values, label=(s := f"seed {seed}"), group=s, color=k)
            for k, seed in enumerate(run.seed.values)
        )

    accuracy = run.test_accuracy.isel(tested=-1)
    return Figure(
        name="training",
        title="The training itself",
        caption=f"Test accuracy at the end: {float(accuracy.mean()):.3f}, mean over seeds.",
        panels=(
            Panel(x=Axis("epoch"), y=Axis("training loss", "nats", scale="log"), marks=curves(run.train_loss, "epoch")),
            Panel(x=Axis("epoch"), y=Axis("test accuracy"), marks=curves(run.test_accuracy, "tested")),
        ),
    )
