"""Site of one page for spectra of checkpoints or of a training run: pictures and tables without claims."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.gallery.data_page import DataView, data_page
from saddlescope.gallery.site import require_gallery_folder
from saddlescope.plot import Figure, Line
from saddlescope.plot.matrix_rank_figure import matrix_rank_figure
from saddlescope.plot.rank_figures import layer_rank_figure, spectrum_figure, spectrum_stages_figure, stable_rank_figure
from saddlescope.plot.rank_measures import measures_figure
from saddlescope.plot.rank_staircase_figure import LEAST_RECORDS, staircase_figure
from saddlescope.plot.rank_tables import layer_table
from saddlescope.store.loss_logs import LossLog


def build_spectra(file: str | os.PathLike[str], site: str | os.PathLike[str], *, loss: LossLog | None = None) -> Path:
    """Build the page of a stored data set of spectra, such as `saddlescope spectra` writes.

    The site is replaced atomically at the end, as by `saddlescope.gallery.build`.

    Args:
        file: the data set.
        site: folder of the site; it is created, or replaces an earlier gallery.
        loss: the loss over the same steps, drawn beside the ranks; None takes the variable `loss` of the file, if any.

    Returns:
        The page.

    Raises:
        InputError: the file is damaged or has no spectra, or the site's folder is not a gallery.
    """
    site = Path(site).absolute()
    require_gallery_folder(site)
    file = Path(file)
    with data_page(site, SpectraView(_with_spectra(store.read(file), file), file.name, loss=loss)) as data:
        data.write_bytes(file.read_bytes())
    return site / "index.html"


def build_training(
    file: str | os.PathLike[str], site: str | os.PathLike[str], *, live: int = 0, loss: LossLog | None = None
) -> Path:
    """Build the page of a training run, finished or not, from the file of a tracker.

    The site is replaced atomically at the end, as by `saddlescope.gallery.build`.

    Args:
        file: the file that `saddlescope.ranks.RankTracker(file=...)` writes.
        site: folder of the site; it is created, or replaces an earlier gallery.
        live: seconds after which the page loads itself again; 0 for never.
        loss: the loss over the same steps, as for `build_spectra`.

    Returns:
        The page.

    Raises:
        InputError: the file is damaged or has no records, or the site's folder is not a gallery.
    """
    site = Path(site).absolute()
    require_gallery_folder(site)
    records = store.read_log(file)
    if not records.sizes["step"]:
        raise InputError(f"{file} must have a record; got none yet. Wait for the tracker's first.")
    file = Path(file)
    name = f"{file.stem}.nc"
    view = TrainingView(_with_spectra(records, file), name, source=file.name, live=live, loss=loss)
    with data_page(site, view) as data:
        store.write(records, data)
    return site / "index.html"


def _with_spectra(ds: xr.Dataset, file: str | os.PathLike[str]) -> xr.Dataset:
    if not {"update_spectrum", "matrix_update_spectrum"} & set(ds.data_vars):
        raise InputError(f"{file} must have spectra of updates; got none. Compute them with saddlescope spectra.")
    return ds


@dataclass(eq=False, kw_only=True)
class SpectraView(DataView):
    """View of a data set of spectra for its page.

    Attributes:
        loss: the loss over the same steps.
    """

    loss: LossLog | None = None
    template: ClassVar[str] = "spectra.html"
    folder: ClassVar[str] = "spectra"

    @property
    def base(self) -> str:
        """Checkpoint at the start."""
        return str(self.dataset.attrs.get("base", ""))

    @property
    def checkpoints(self) -> list[tuple[int, str]]:
        """Later checkpoints, with their steps."""
        steps = self.dataset.step.values.tolist()
        names = self.dataset.checkpoint.values.tolist() if "checkpoint" in self.dataset.coords else [""] * len(steps)
        return list(zip(steps, map(str, names), strict=True))

    def draw(self) -> list[Figure]:
        """Return the figures that the data allow: ranks over several steps, or over depth at one step."""
        ds, figures = self.dataset, []
        if ds.sizes["step"] > 1:
            measures = measures_figure(ds, loss=_loss_line(ds, self.loss))
            figures.append(replace(measures, caption=" ".join([measures.caption, *_loss_notes(self.loss)])))
        if "update_spectrum" in ds:
            several = (stable_rank_figure, spectrum_stages_figure) if ds.sizes["step"] > 1 else ()
            figures += [draw(ds) for draw in several]
            if ds.sizes["step"] >= LEAST_RECORDS:
                figures.append(staircase_figure(ds))
            measured = bool(ds.measurable.isel(step=-1).any())
            figures.append(replace(layer_rank_figure(ds), table=layer_table(ds) if measured else None))
            figures += [] if several else [spectrum_figure(ds)]
        if "matrix_update_spectrum" in ds:
            figures.append(matrix_rank_figure(ds))
        return figures


@dataclass(eq=False, kw_only=True)
class TrainingView(SpectraView):
    """View of the records of a training run for its page.

    Attributes:
        source: name of the tracker's file.
        live: seconds after which the page loads itself again; 0 for never.
    """

    source: str
    live: int
    template: ClassVar[str] = "training.html"

    @property
    def progress(self) -> str:
        """Sentence on the records so far."""
        steps = self.dataset.step.values
        return f"{len(steps)} record{'s' * (len(steps) != 1)}, the last after {steps[-1]} steps."


def _loss_line(ds: xr.Dataset, log: LossLog | None) -> Line | None:
    """Return the loss over the steps: that of a log, or the variable `loss` of the data set."""
    if log is not None:
        return Line(x=log.steps, y=log.losses, label=log.column, color=5)
    if "loss" in ds and ds.loss.dims == ("step",):
        return Line(x=ds.step.values, y=ds.loss.values, label="loss", color=5)
    return None


def _loss_notes(log: LossLog | None) -> list[str]:
    """Return sentences on the steps of a log, which may not be those of the ranks, and on how it was read."""
    if log is None:
        return []
    steps = "the number of its record" if log.step_column == "record" else f"its column {log.step_column}"
    return [f"The step of each loss is {steps} in the log, which may count otherwise than the ranks.", *log.remarks]
