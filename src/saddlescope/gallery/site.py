"""The site: collect stored runs, draw and write all pages beside the old site, then swap the two.

index.html                              one card per entry, by paper
PAPER/ENTRY/RUN.html                    one page per run: figures, claims, provenance
PAPER/ENTRY/RUN/                        its data, pictures, films and thumbnails
sweeps/PAPER/ENTRY/SWEEP.html           one page per sweep: phase diagrams, claims, points; with a folder as above
assets/                                 style, script, Plotly; nothing comes from the network
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from saddlescope import store
from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope._shared.output_paths import require_writable_folder
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.replaced_folder import recover_folder, replaced_folder
from saddlescope.gallery.page_views import FigureView, RunView, by_entry, environment
from saddlescope.gallery.sweep_page import SweepView
from saddlescope.plot import DARK, LIGHT, Theme, draw_matplotlib, draw_thumbnail
from saddlescope.plot.film_images import png, sprite
from saddlescope.reproduction import Reproduction, stored_files
from saddlescope.sweeps import Sweep, stored_sweeps

_View = TypeVar("_View", RunView, SweepView)
_UNFIT = (ArithmeticError, IndexError, KeyError, TypeError, ValueError)  # raised by drawings of strange numbers


def build(
    folder: str | os.PathLike[str],
    site: str | os.PathLike[str],
    *,
    report: Report = silent,
    on_error: Callable[[str], None] | None = None,
) -> Path:
    """Build the gallery of all runs and sweeps stored below a folder, from stored data alone.

    The site is replaced atomically at the end: until then, or if the build is killed, the old one stays.

    Args:
        folder: folder of stored runs and sweeps.
        site: folder of the site; it is created, or replaces an earlier gallery.
        report: called with the finished fraction and the file that is drawn next.
        on_error: called with a sentence for each file that cannot be shown, which is skipped. The default raises.

    Returns:
        The index page.

    Raises:
        BusyError: another process is building the site.
        InputError: nothing is stored or can be shown, or the site's folder is not a gallery.
    """
    site = Path(site).absolute()
    require_gallery_folder(site)
    sweep_files = stored_sweeps(folder)
    run_files = store.find_runs(folder) if sweep_files else stored_files(folder)
    with swapped(site) as new:
        drawn = _Drawing(new, report, on_error or _raise, len(sweep_files) + len(run_files))
        sweeps = drawn.all(sweep_files, lambda file: SweepView(Sweep.open(file)))
        runs = drawn.all(run_files, lambda file: RunView(Reproduction.open(file)))
        if not runs and not sweeps:
            raise InputError(f"No file in {folder} can be shown; rerun the entries.")
        _write_pages(new, by_entry(runs), sweeps)
    return site / "index.html"


def _raise(sentence: str) -> None:
    raise InputError(sentence)


@dataclass(eq=False)
class _Drawing:
    """Pictures of stored runs and sweeps, drawn into a new site; files that cannot be shown are skipped."""

    site: Path
    report: Report
    on_error: Callable[[str], None]
    count: int
    files: dict[str, Path] = field(default_factory=dict)  # that were drawn, by their pages
    done: int = 0

    def all(self, files: Iterable[Path], open_view: Callable[[Path], _View]) -> list[_View]:
        """Return the views of all files that can be shown, each with its pictures drawn."""
        shown = []
        for file in files:
            self.report(self.done / self.count, file.name)
            self.done += 1
            try:
                shown.append(self._one(file, open_view))
            except InputError as error:
                self.on_error(str(error))
        return shown

    def _one(self, file: Path, open_view: Callable[[Path], _View]) -> _View:
        view = open_view(file)
        if (first := self.files.get(view.page)) is not None:
            raise InputError(f"{first} and {file} are the same run of {view.name}. Move one elsewhere.")
        folder = self.site / view.folder
        try:
            _ = view.claims, view.tallies, view.origin
            if not view.figures:
                raise InputError(f"{file} cannot be shown: {view.name} draws no picture. Let its `figures` return one.")
            _write_shown(folder, view.figures, file, view.data_name)
        except _UNFIT as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, InputError) and str(file) in str(error):
                raise
            raise InputError(
                f"{file} cannot be shown ({type(error).__name__}: {error}). Rerun it with --again."
            ) from error
        self.files[view.page] = file
        return view


def _write_pages(site: Path, shown: list[list[RunView]], sweeps: list[SweepView]) -> None:
    pages = environment()
    write_assets(site / "assets")
    papers = sorted({one.paper for one in (*sweeps, *(best for best, *_ in shown))})
    write_page(
        site / "index.html", pages.get_template("index.html").render(cards=shown, sweeps=sweeps, papers=papers, root="")
    )
    for runs, before, after in zip(shown, [None, *shown], [*shown[1:], None], strict=False):
        beside = {"previous": before and before[0], "next": after and after[0]}
        for run in runs:
            others = [other for other in runs if other is not run]
            same = [sweep for sweep in sweeps if sweep.name == run.name]
            page = pages.get_template("run.html").render(run=run, others=others, sweeps=same, root="../../", **beside)
            write_page(site / run.page, page)
    for sweep, before, after in zip(sweeps, [None, *sweeps], [*sweeps[1:], None], strict=False):
        runs = [run for of_one in shown for run in of_one if run.name == sweep.name]
        beside = {"previous": before, "next": after}
        page = pages.get_template("sweep.html").render(view=sweep, runs=runs, root="../../../", **beside)
        write_page(site / sweep.page, page)


def _write_shown(folder: Path, figures: Sequence[FigureView], data: Path, data_name: str) -> None:
    """Write the folder beside a page: its data, and its pictures, the first one also as a thumbnail."""
    folder.mkdir(parents=True)
    shutil.copyfile(data, folder / data_name)
    for theme, name in ((LIGHT, "light"), (DARK, "dark")):
        draw_thumbnail(figures[0].figure, theme=theme).savefig(folder / f"thumbnail-{name}.png")
    draw_figures(figures, folder)


def draw_figures(figures: Iterable[FigureView], folder: Path) -> None:
    """Draw figures as PNG and SVG, and the frames of their films, into a folder, which is created if absent."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        if figure.figure.film is not None:
            (folder / f"{figure.id}-film.png").write_bytes(png(sprite(figure.figure.film).pixels))
        drawing = draw_matplotlib(figure.figure)
        drawing.savefig(folder / f"{figure.id}.png")
        drawing.set_layout_engine("none")  # laid out already
        drawing.savefig(folder / f"{figure.id}.svg")


def write_assets(folder: Path) -> None:
    """Write style, script and Plotly into a new folder."""
    folder.mkdir()
    for name, text in read_assets().items():
        write_page(folder / name, text)


def read_assets() -> dict[str, str]:
    """Return style, script and Plotly, by file name."""
    with MissingExtraError.named("A gallery", "papers"):
        from plotly.offline import get_plotlyjs

    own = ("style.css", "run.css", "tables.css", "sweep.css", "index.css", "page.js", "index.js")
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root:not(.printing) {{ {_variables(DARK)} }} }}\n"
    return {
        "plotly.min.js": get_plotlyjs(),
        **{name: files("saddlescope.gallery").joinpath("assets", name).read_text("utf-8") for name in own},
        "theme.css": f":root {{ {_variables(LIGHT)} }}\n{dark}",
    }


def _variables(theme: Theme) -> str:
    """Return a theme as CSS variables, so that pages and pictures have the same colours."""
    named = {"surface": theme.paper, "ink": theme.ink, "muted": theme.muted, "grid": theme.grid}
    named |= {f"series-{index}": color for index, color in enumerate(theme.palette)}
    named |= {"series-count": str(len(theme.palette))}
    return " ".join(f"--{name}: {color};" for name, color in named.items())


def write_page(path: Path, text: str) -> None:
    """Write a text file, and its folder if absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def require_gallery_folder(site: Path) -> None:
    """Raise InputError unless a folder is absent, empty or a gallery, and can be written; restore a killed one."""
    recover_folder(site)
    if site.exists() and any(site.iterdir()) and not (site / store.COPIES).exists():
        raise InputError(f"{site} must be a gallery or a new folder; got other files. Give a new folder with --site.")
    require_writable_folder(site)


@contextmanager
def swapped(site: Path) -> Iterator[Path]:
    """Yield a new folder that replaces the site when the block ends without an error.

    Raises:
        BusyError: another process is building the site.
        InputError: the folder cannot be written, or the disk is full.
    """
    try:
        with replaced_folder(site) as new:
            (new / store.COPIES).write_text("A gallery of saddlescope; the next build replaces this folder.\n", "ascii")
            yield new
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"Cannot write {site}: {reason}. Give another folder with --site, or free some space."
        ) from error
