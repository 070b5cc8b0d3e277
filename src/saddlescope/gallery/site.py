"""The site: collect stored runs, draw and write all pages beside the old site, then swap the two.

index.html                              one card per entry, by paper
PAPER/ENTRY/RUN.html                    one page per run: figures, claims, provenance
PAPER/ENTRY/RUN/                        its data, pictures, films and thumbnails
sweeps/PAPER/ENTRY/SWEEP.html           one page per sweep: phase diagrams, claims, points; with a folder as above
assets/                                 style, script, Plotly; nothing comes from the network
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.gallery.page_views import Card, FigureView, RunView, cards, environment
from saddlescope.gallery.sweep_page import SweepView
from saddlescope.plot import DARK, LIGHT, Theme, draw_matplotlib, draw_thumbnail
from saddlescope.plot.film_images import png, sprite
from saddlescope.reproduction import Reproduction, stored_files
from saddlescope.sweeps import Sweep, stored_sweeps


def build(folder: str | os.PathLike[str], site: str | os.PathLike[str]) -> Path:
    """Build the gallery of all runs and sweeps stored below a folder, from stored data alone.

    The site is replaced atomically at the end: until then, or if the build is killed, the old one stays.

    Args:
        folder: folder of stored runs and sweeps.
        site: folder of the site; it is created, or replaces an earlier gallery.

    Returns:
        The index page.

    Raises:
        InputError: nothing is stored, a file is damaged, or the site's folder is not a gallery.
    """
    site = Path(site).absolute()
    require_gallery_folder(site)
    sweeps = [SweepView(Sweep.open(file)) for file in stored_sweeps(folder)]
    files = store.find_runs(folder) if sweeps else stored_files(folder)
    runs = [RunView(Reproduction.open(file)) for file in files]
    _require_unique_pages([(run.page, run.reproduction.file, run.reproduction.entry.name) for run in runs])
    _require_unique_pages([(view.page, view.sweep.file, view.sweep.entry.name) for view in sweeps])
    with swapped(site) as new:
        _write_site(new, cards(runs), sweeps)
    return site / "index.html"


def _write_site(site: Path, shown: list[Card], sweeps: list[SweepView]) -> None:
    pages = environment()
    write_assets(site / "assets")
    write_page(site / "index.html", pages.get_template("index.html").render(cards=shown, sweeps=sweeps, root=""))
    for card in shown:
        for run in card.runs:
            _write_shown(site / run.folder, run.figures, run.reproduction.file, run.data_name)
            others = [other for other in card.runs if other is not run]
            same = [sweep for sweep in sweeps if sweep.sweep.entry.name == run.reproduction.entry.name]
            page = pages.get_template("run.html").render(run=run, others=others, sweeps=same, root="../../")
            write_page(site / run.page, page)
    for sweep in sweeps:
        _write_shown(site / sweep.folder, sweep.figures, sweep.sweep.file, sweep.data_name)
        runs = [run for card in shown for run in card.runs if run.reproduction.entry.name == sweep.sweep.entry.name]
        page = pages.get_template("sweep.html").render(view=sweep, runs=runs, root="../../../")
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
    from plotly.offline import get_plotlyjs

    own = ("style.css", "run.css", "tables.css", "sweep.css", "page.js")
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
    """Raise InputError unless a folder is absent, empty or a gallery."""
    if not site.exists():
        return
    if not site.is_dir() or (any(site.iterdir()) and not (site / store.COPIES).exists()):
        raise InputError(f"{site} must be a gallery or a new folder; got other files. Give a new folder with --site.")


def _require_unique_pages(stored: list[tuple[str, Path, str]]) -> None:
    """Raise InputError if two files have one page, given the page, the file and the entry of each."""
    seen: dict[str, Path] = {}
    for page, file, entry in stored:
        if page in seen:
            raise InputError(f"{seen[page]} and {file} are the same run of {entry}. Move one elsewhere.")
        seen[page] = file


@contextmanager
def swapped(site: Path) -> Iterator[Path]:
    """Yield a new folder beside the site that replaces it at the end; remove the remains of killed builds."""
    new, old = site.with_name(f".{site.name}.new"), site.with_name(f".{site.name}.old")
    try:
        if old.exists() and not site.exists():  # killed between the two renames
            old.rename(site)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        new.mkdir(parents=True)
        (new / store.COPIES).write_text("A gallery of saddlescope; the next build replaces this folder.\n")
        yield new
        if site.exists():
            site.rename(old)
        new.rename(site)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"Cannot write {site}: {reason}. Give another folder with --site, or free some space."
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if site.exists():
            shutil.rmtree(old, ignore_errors=True)
