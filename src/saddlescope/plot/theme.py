"""Colours of all figures: one palette, in a light and a dark form.

The seven colours of a palette are distinguishable under protanopia, deuteranopia and tritanopia, and each has a
contrast of at least 3 to 1 with its paper (WCAG 2.2, 1.4.11); tests check both.
"""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Theme:
    """Colours as #rrggbb: of the paper, the text, lesser text, the grid, and the series in order."""

    paper: str
    ink: str
    muted: str
    grid: str
    palette: tuple[str, ...]

    def color(self, index: int | None) -> str:
        """Return the colour of a series: the palette repeats after its end, and None is neutral."""
        return self.muted if index is None else self.palette[index % len(self.palette)]

    def as_json(self) -> dict[str, object]:
        """Return the theme for the script of a page, which follows the reader's system."""
        return asdict(self)


LIGHT = Theme(
    paper="#ffffff",
    ink="#1d1c1a",
    muted="#66635c",
    grid="#e6e3dc",
    palette=("#24509e", "#d95a0b", "#0f7d68", "#6b1b4b", "#754508", "#2f98b4", "#8f6be8"),
)
DARK = Theme(
    paper="#14161b",
    ink="#e9e7e2",
    muted="#a09d96",
    grid="#2e323b",
    palette=("#6e9bff", "#ff8a4c", "#3ccbaa", "#c96aa6", "#f2d479", "#a0e6fa", "#94713f"),
)
