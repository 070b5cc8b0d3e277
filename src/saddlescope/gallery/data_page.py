"""Sites of one page for data without claims: spectra of checkpoints, a training run, the implicit bias of attention."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.gallery.page_views import FigureView, environment, origin, size_in_words
from saddlescope.gallery.site import draw_figures, require_gallery_folder, swapped, write_assets, write_page
from saddlescope.plot import Figure, Line
from saddlescope.plot.matrix_rank_figure import matrix_rank_figure
from saddlescope.plot.rank_figures import layer_rank_figure, spectrum_figure, spectrum_stages_figure, stable_rank_figure
from saddlescope.plot.rank_measures import measures_figure
from saddlescope.plot.rank_staircase_figure import LEAST_RECORDS, staircase_figure
from saddlescope.plot.rank_tables import layer_table
from saddlescope.store.loss_logs import LossLog

if TYPE_CHECKING:
    from saddlescope.studies import ImplicitBias

_HEADS = "for the products W_K W_Qᵀ and W_V W_Oᵀ of every attention head and for the selected matrices."


@dataclass(frozen=True, kw_only=True)
class _Words:
    """Text of a page besides its figures.

    Attributes:
        heading: of the page.
        source: line above it.
        lead: paragraph below it.
        answers: list below that.
        checks: pairs of name and answer for a section with a title of their own; none without them.
        checks_title: that title.
        origin: pairs of name and value before the provenance of the data.
        live: seconds after which the page loads itself again; 0 for never.
    """

    heading: str
    source: str
    lead: str
    answers: Sequence[str] = ()
    checks: Sequence[tuple[str, str]] = ()
    checks_title: str = ""
    origin: Sequence[tuple[str, str]] = ()
    live: int = 0


def build_attention(found: "ImplicitBias", site: str | os.PathLike[str]) -> Path:
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
    data = found.data
    checks = ((field.name, getattr(found.assumptions, field.name)) for field in fields(found.assumptions))
    words = _Words(
        heading="Norms that gradient flow on attention minimises",
        source=f"{data.samples} samples of {data.tokens} tokens of dimension {data.dim}",
        lead="Softmax attention, one head, in three parametrisations. The direction of a flow is W over its smallest "
        "margin; it minimises a norm if the norm of the direction tends to the least value among all weights whose "
        "margins are 1 or more.",
        answers=[f"{flow}: {of.norm}. {of.says}" for flow, of in found.verdicts.items()],
        checks_title="Assumptions of the paper on these tokens",
        checks=[
            (name.replace("_", " "), f"{'met' if of.holds else 'not met'}: {of.says}")
            for name, of in checks
            if of is not None
        ],
    )
    data_file = Path("attention/flows.nc")
    return _build(site, found.dataset, found.figures, words, data_file, lambda file: store.write(found.dataset, file))


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
    file = Path(file)
    ds = _with_spectra(store.read(file), file)
    base, steps = str(ds.attrs.get("base", "")), ds.step.values.tolist()
    names = ds.checkpoint.values.tolist() if "checkpoint" in ds.coords else [""] * len(steps)
    words = _Words(
        heading="Spectra of the weight updates",
        source=f"{len(steps)} checkpoint{'s' * (len(steps) != 1)} against {base}",
        lead=f"Spectra of the weights after training minus the weights at the start, {_HEADS} Singular values below "
        "the noise floor of the stored precision do not count towards a rank.",
        origin=[("Start", base), *((f"Step {step}", str(name)) for step, name in zip(steps, names, strict=True))],
    )
    copy = Path("spectra", file.name)
    return _build(site, ds, lambda: _figures(ds, loss), words, copy, lambda there: there.write_bytes(file.read_bytes()))


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
    ds, file = store.read_log(file), Path(file)
    if not ds.sizes["step"]:
        raise InputError(f"{file} must have a record; got none yet. Wait for the tracker's first.")
    steps = _with_spectra(ds, file).step.values
    again = f" This page loads itself again every {live} seconds." if live else ""
    words = _Words(
        heading="Ranks of a training run",
        source=file.name,
        lead=f"{len(steps)} record{'s' * (len(steps) != 1)}, the last after {steps[-1]} steps. Ranks are those of the "
        f"weights now minus the weights at the start, {_HEADS}{again}",
        live=live,
    )
    data_file = Path("spectra", f"{file.stem}.nc")
    return _build(site, ds, lambda: _figures(ds, loss), words, data_file, lambda there: store.write(ds, there))


def _build(
    site: str | os.PathLike[str],
    ds: xr.Dataset,
    draw: Callable[[], Iterable[Figure]],
    words: _Words,
    data: Path,
    write: Callable[[Path], object],
) -> Path:
    """Build the page with its pictures, and the data at their place in the site; return the page."""
    site = Path(site).absolute()
    require_gallery_folder(site)
    figures = FigureView.all(draw())
    notes = [line for name in ("faults", "remarks") for line in str(ds.attrs.get(name, "")).splitlines()]
    provenance = origin(ds.attrs | {"platform": ""}, {"Command": str(ds.attrs.get("command", ""))})
    with swapped(site) as new:
        write_assets(new / "assets")
        draw_figures(figures, new / data.parent)
        write(new / data)
        page = environment().get_template("data.html").render(
            words=words, figures=figures, notes=notes, origin=[*words.origin, *provenance],
            data=data, data_size=size_in_words((new / data).stat().st_size), root="",
        )  # fmt: skip
        write_page(new / "index.html", page)
    return site / "index.html"


def _with_spectra(ds: xr.Dataset, file: Path) -> xr.Dataset:
    if not {"update_spectrum", "matrix_update_spectrum"} & set(ds.data_vars):
        raise InputError(f"{file} must have spectra of updates; got none. Compute them with saddlescope spectra.")
    return ds


def _figures(ds: xr.Dataset, loss: LossLog | None) -> list[Figure]:
    """Return the figures that the data allow: ranks over several steps, or over depth at one step."""
    figures = []
    if ds.sizes["step"] > 1:
        measures = measures_figure(ds, loss=_loss_line(ds, loss))
        figures.append(replace(measures, caption=" ".join([measures.caption, *_loss_notes(loss)])))
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
