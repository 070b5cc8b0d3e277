"""Site of one page for the implicit bias of attention on some tokens: its answer, flows and solutions."""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from saddlescope import store
from saddlescope.gallery.data_page import DataView, data_page
from saddlescope.gallery.site import require_gallery_folder
from saddlescope.plot import Figure
from saddlescope.studies import ImplicitBias


def build_attention(found: ImplicitBias, site: str | os.PathLike[str]) -> Path:
    """Build the page of the result of `saddlescope.implicit_bias`.

    The site is replaced atomically at the end, as by `saddlescope.gallery.build`.

    Args:
        found: the result; the attributes of its data set are its provenance.
        site: folder of the site; it is created, or replaces an earlier gallery.

    Returns:
        The page.

    Raises:
        InputError: the site's folder is not a gallery.
    """
    site = Path(site).absolute()
    require_gallery_folder(site)
    with data_page(site, AttentionView(found.dataset, "flows.nc", found=found)) as data:
        store.write(found.dataset, data)
    return site / "index.html"


@dataclass(eq=False, kw_only=True)
class AttentionView(DataView):
    """View of the implicit bias on some tokens for its page."""

    found: ImplicitBias
    template: ClassVar[str] = "attention.html"
    folder: ClassVar[str] = "attention"

    @property
    def tokens(self) -> str:
        """The data in words."""
        data = self.found.data
        return f"{data.samples} samples of {data.tokens} tokens of dimension {data.dim}"

    @property
    def answers(self) -> list[str]:
        """A sentence for each flow: the norm that it minimises, and why."""
        return [f"{flow}: {of.norm}. {of.says}" for flow, of in self.found.verdicts.items()]

    @property
    def assumptions(self) -> list[tuple[str, str]]:
        """The assumptions of the paper, each with the result of its check."""
        checks = self.found.assumptions
        answers = ((field.name.replace("_", " "), getattr(checks, field.name)) for field in fields(checks))
        return [(name, f"{'met' if of.holds else 'not met'}: {of.says}") for name, of in answers if of is not None]

    def draw(self) -> list[Figure]:
        """Return the figures of flows and solutions."""
        return self.found.figures()
