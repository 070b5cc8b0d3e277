"""Site of one page for spectra of checkpoints or of a training run: pictures and tables without claims."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope._shared.json_text import parse_json
from saddlescope.gallery.page_views import FigureView, environment
from saddlescope.gallery.site import draw_figures, require_gallery_folder, swapped, write_assets, write_page
from saddlescope.plot import Figure, Panel
from saddlescope.plot.matrix_rank_figure import matrix_rank_figure
from saddlescope.plot.rank_figures import layer_rank_figure, spectrum_figure, spectrum_stages_figure, stable_rank_figure
from saddlescope.plot.rank_staircase_figure import LEAST_RECORDS, staircase_figure
from saddlescope.plot.rank_tables import layer_table
from saddlescope.reproduction.formatting import number


def build_spectra(file: str | os.PathLike[str], site: str | os.PathLike[str]) -> Path:
    """Build the page of a stored data set of spectra, such as `saddlescope spectra` writes.

    The site is replaced atomically at the end, as by `saddlescope.gallery.build`.

    Args:
        file: the data set.
        site: folder of the site; it is created, or replaces an earlier gallery.

    Returns:
        The page.

    Raises:
        InputError: the file is damaged or has no spectra, or the site's folder is not a gallery.
    """
    site = Path(site).absolute()
    require_gallery_folder(site)
    view = SpectraView(Path(file), _with_spectra(store.read(file), file))
    with _page(site, "spectra.html", view) as folder:
        (folder / view.data_name).write_bytes(view.file.read_bytes())
    return site / "index.html"


def build_training(file: str | os.PathLike[str], site: str | os.PathLike[str], *, live: int = 0) -> Path:
    """Build the page of a training run, finished or not, from the file of a tracker.

    The site is replaced atomically at the end, as by `saddlescope.gallery.build`.

    Args:
        file: the file that `saddlescope.train.RankTracker(file=...)` writes.
        site: folder of the site; it is created, or replaces an earlier gallery.
        live: seconds after which the page loads itself again; 0 for never.

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
    view = TrainingView(Path(file), _with_spectra(records, file), live=live)
    with _page(site, "training.html", view) as folder:
        store.write(records, folder / view.data_name)
    return site / "index.html"


def _with_spectra(ds: xr.Dataset, file: str | os.PathLike[str]) -> xr.Dataset:
    if not {"update_spectrum", "matrix_update_spectrum"} & set(ds.data_vars):
        raise InputError(f"{file} must have spectra of updates; got none. Compute them with saddlescope spectra.")
    return ds


@contextmanager
def _page(site: Path, template: str, view: "SpectraView") -> Iterator[Path]:
    """Build the page with its pictures; yield the folder of the pictures, for the data."""
    with swapped(site) as new:
        write_assets(new / "assets")
        draw_figures(view.figures, new / "spectra")
        yield new / "spectra"
        view.data_bytes = (new / "spectra" / view.data_name).stat().st_size
        write_page(new / "index.html", environment().get_template(template).render(view=view, root=""))


@dataclass(eq=False)
class SpectraView:
    """View of a data set of spectra for its page."""

    file: Path
    spectra: xr.Dataset
    data_bytes: int = 0

    @property
    def data_name(self) -> str:
        """File name of the downloaded data."""
        return self.file.name

    @property
    def data_size(self) -> str:
        """Size of the data file."""
        return f"{number(self.data_bytes / 1e6, 2)} MB"

    @property
    def base(self) -> str:
        """Checkpoint at the start."""
        return str(self.spectra.attrs.get("base", ""))

    @property
    def checkpoints(self) -> list[tuple[int, str]]:
        """Later checkpoints, with their steps."""
        steps = self.spectra.step.values.tolist()
        names = self.spectra.checkpoint.values.tolist() if "checkpoint" in self.spectra.coords else [""] * len(steps)
        return list(zip(steps, map(str, names), strict=True))

    @property
    def notes(self) -> list[str]:
        """Failed measurements, and remarks."""
        texts = (str(self.spectra.attrs.get(name, "")) for name in ("faults", "remarks"))
        return [line for text in texts for line in text.splitlines()]

    @property
    def origin(self) -> list[tuple[str, str]]:
        """Provenance of the data, in pairs of name and value."""
        attributes = self.spectra.attrs
        versions = parse_json(str(attributes.get("versions", "{}")))
        pairs = (
            ("Command", attributes.get("command", "")),
            ("Finished", attributes.get("finished", "")),
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        )
        return [(name, str(value)) for name, value in pairs if value]

    @cached_property
    def figures(self) -> tuple[FigureView, ...]:
        """Figures of the page."""
        return tuple(FigureView(figure, f"figure-{k}") for k, figure in enumerate(_figures(self.spectra), 1))


@dataclass(eq=False, kw_only=True)
class TrainingView(SpectraView):
    """View of the records of a training run for its page.

    Attributes:
        live: seconds after which the page loads itself again; 0 for never.
    """

    live: int

    @property
    def data_name(self) -> str:
        """File name of the downloaded data."""
        return f"{self.file.stem}.nc"

    @cached_property
    def figures(self) -> tuple[FigureView, ...]:
        """Figures of the page, those over the steps first."""
        drawn = sorted(
            _figures(self.spectra), key=lambda figure: not any(_over_steps(panel) for panel in figure.panels)
        )
        return tuple(FigureView(figure, f"figure-{k}") for k, figure in enumerate(drawn, 1))

    @property
    def progress(self) -> str:
        """Sentence on the records so far."""
        steps = self.spectra.step.values
        return f"{len(steps)} record{'s' * (len(steps) != 1)}, the last after {steps[-1]} steps."


def _over_steps(panel: Panel) -> bool:
    return "steps" in panel.x.label


def _figures(ds: xr.Dataset) -> list[Figure]:
    """Draw the figures that the data allow: ranks over several steps, or over depth at one step."""
    figures = []
    if "update_spectrum" in ds:
        figures.append(replace(layer_rank_figure(ds), table=layer_table(ds)))
        if ds.sizes["step"] > 1:
            figures += [stable_rank_figure(ds), spectrum_stages_figure(ds)]
        else:
            figures.append(spectrum_figure(ds))
        if ds.sizes["step"] >= LEAST_RECORDS:
            figures.append(staircase_figure(ds))
    if "matrix_update_spectrum" in ds:
        figures.append(matrix_rank_figure(ds))
    return figures
