"""Site of one page for a data set without claims: pictures, notes, provenance, and the data to download."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import xarray as xr

from saddlescope._shared.json_text import parse_json
from saddlescope.gallery.page_views import FigureView, environment
from saddlescope.gallery.site import draw_figures, swapped, write_assets, write_page
from saddlescope.plot import Figure
from saddlescope.reproduction.formatting import number


@dataclass(eq=False)
class DataView:
    """View of a data set for its page.

    Attributes:
        dataset: the data, with their provenance in `attrs`.
        data_name: file name of the downloaded data.
        data_bytes: size of that file, known when it is written.
        template: name of the template of the page.
        folder: folder of pictures and data, beside the page.
    """

    dataset: xr.Dataset
    data_name: str
    data_bytes: int = 0
    template: ClassVar[str]
    folder: ClassVar[str]

    def draw(self) -> Sequence[Figure]:
        """Return the figures of the page."""
        raise NotImplementedError

    @cached_property
    def figures(self) -> tuple[FigureView, ...]:
        """Figures of the page, drawn once."""
        return tuple(FigureView(figure, f"figure-{k}") for k, figure in enumerate(self.draw(), 1))

    @property
    def data_size(self) -> str:
        """Size of the data file."""
        return f"{number(self.data_bytes / 1e6, 2)} MB"

    @property
    def notes(self) -> list[str]:
        """Failed measurements, and remarks."""
        texts = (str(self.dataset.attrs.get(name, "")) for name in ("faults", "remarks"))
        return [line for text in texts for line in text.splitlines()]

    @property
    def origin(self) -> list[tuple[str, str]]:
        """Provenance of the data, in pairs of name and value."""
        attributes = self.dataset.attrs
        versions = parse_json(str(attributes.get("versions", "{}")))
        pairs = (
            ("Command", attributes.get("command", "")),
            ("Finished", attributes.get("finished", "")),
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        )
        return [(name, str(value)) for name, value in pairs if value]


@contextmanager
def data_page(site: Path, view: DataView) -> Iterator[Path]:
    """Build the page with its pictures; yield the path for the data, which the block writes.

    The site is replaced atomically at the end, as by `saddlescope.gallery.build`.
    """
    with swapped(site) as new:
        write_assets(new / "assets")
        draw_figures(view.figures, new / view.folder)
        data = new / view.folder / view.data_name
        yield data
        view.data_bytes = data.stat().st_size
        write_page(new / "index.html", environment().get_template(view.template).render(view=view, root=""))
