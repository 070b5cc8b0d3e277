"""Site of one page for the spectra of checkpoints: pictures and tables without claims, from one stored file."""

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.gallery.page_views import FigureView, environment
from saddlescope.gallery.site import draw_figures, require_gallery_folder, swapped, write_assets, write_page
from saddlescope.plot import Figure
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
    view = SpectraView(Path(file), store.read(file))
    if not {"update_spectrum", "matrix_update_spectrum"} & set(view.spectra.data_vars):
        raise InputError(f"{file} must have spectra of updates; got none. Compute them with saddlescope spectra.")
    with swapped(site) as new:
        write_assets(new / "assets")
        draw_figures(view.figures, new / "spectra")
        (new / "spectra" / view.data_name).write_bytes(view.file.read_bytes())
        write_page(new / "index.html", environment().get_template("spectra.html").render(view=view, root=""))
    return site / "index.html"


@dataclass(frozen=True, eq=False)
class SpectraView:
    """View of a data set of spectra for its page."""

    file: Path
    spectra: xr.Dataset

    @property
    def data_name(self) -> str:
        """File name of the downloaded data."""
        return self.file.name

    @property
    def data_size(self) -> str:
        """Size of the data file."""
        return f"{number(self.file.stat().st_size / 1e6, 2)} MB"

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
        versions = json.loads(attributes.get("versions", "{}"))
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
