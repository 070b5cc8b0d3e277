"""The page of spectra: what the data can show, hostile names as they stand, files and folders that cannot be used."""

import numpy as np
import pytest
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.gallery import build_spectra
from tiny import HOSTILE

pytestmark = pytest.mark.usefixtures("undrawn")


def spectra(steps, heads=True, matrices=True):
    """Random spectra with hostile names."""
    draw = np.random.default_rng(0)
    ds = xr.Dataset(coords={"step": list(range(1, steps + 1)), "checkpoint": ("step", [f"s{HOSTILE}"] * steps)})

    def add(prefix, labels, shape):
        values = -np.sort(-draw.exponential(size=(steps, *shape, 5)))
        ds[f"{prefix}update_spectrum"] = (("step", *labels, "index"), values)
        ds[f"{prefix}initial_spectrum"] = ((*labels, "index"), values[0])
        ds[f"{prefix}initial_norm"] = (labels, np.linalg.norm(values[0], axis=-1))
        for name in ("stable_rank", "effective_rank", "update_norm"):
            ds[f"{prefix}{name}"] = (("step", *labels), np.linalg.norm(values, axis=-1))
        ds[f"{prefix}noise_floor"] = (("step", *labels), np.full((steps, *shape), 1e-9))
        ds[f"{prefix}measurable"] = (("step", *labels), np.full((steps, *shape), True))

    if heads:
        add("", ("layer", "head", "product"), (2, 3, 2))
        ds = ds.assign_coords(layer=[f"a{HOSTILE}", "b"], product=["KQ", "VO"])
    if matrices:
        add("matrix_", ("matrix",), (2,))
        ds = ds.assign_coords(matrix=[f"m{HOSTILE}", "n"])
    return ds.assign_attrs(base=HOSTILE, remarks=HOSTILE, faults="one\ntwo", command="saddlescope spectra")


@pytest.mark.parametrize(
    ("steps", "options", "figures"),
    [(1, {}, 3), (2, {}, 5), (6, {}, 6), (6, {"matrices": False}, 5), (3, {"heads": False}, 2)],
)
def test_the_page_shows_what_the_data_have(tmp_path, steps, options, figures):
    made = {"cpu_seconds": 1.5, "commit": "0123abc", "platform": "Linux of a host"}
    file = store.write(spectra(steps, **options).assign_attrs(made), tmp_path / "s.nc")
    page = build_spectra(file, tmp_path / "site")
    text = page.read_text("utf-8")
    assert page == tmp_path / "site/index.html"
    assert text.count('<section class="figure"') == figures
    assert len(list((tmp_path / "site/spectra").glob("figure-*.svg"))) == figures
    assert (tmp_path / "site/spectra/s.nc").read_bytes() == file.read_bytes()
    assert "<script>document" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;document" in text
    assert "<li>one</li>" in text
    assert [part in text for part in ("1.5 s", "0123abc", "of a host")] == [True, True, False]


def test_without_a_measurable_update_there_is_no_table(tmp_path):
    ds = spectra(1, matrices=False)
    file = store.write(
        ds.assign(measurable=ds.measurable & False, stable_rank=ds.stable_rank * np.nan), tmp_path / "s.nc"
    )
    assert '<table class="numbers"' not in build_spectra(file, tmp_path / "site").read_text("utf-8")


def test_a_page_takes_the_place_of_an_earlier_one_and_of_nothing_else(tmp_path):
    file = store.write(spectra(1), tmp_path / "s.nc")
    build_spectra(file, tmp_path / "site")
    build_spectra(store.write(spectra(2), tmp_path / "other.nc"), tmp_path / "site")
    assert [path.name for path in (tmp_path / "site/spectra").glob("*.nc")] == ["other.nc"]
    with pytest.raises(InputError, match="must be a gallery or a new folder"):
        build_spectra(file, tmp_path)


def test_files_without_spectra_are_refused(tmp_path):
    with pytest.raises(InputError, match="There is no stored run"):
        build_spectra(tmp_path / "s.nc", tmp_path / "site")
    file = store.write(xr.Dataset({"loss": ("t", np.ones(3))}), tmp_path / "s.nc")
    with pytest.raises(InputError, match="must have spectra of updates"):
        build_spectra(file, tmp_path / "site")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged"):
        build_spectra(file, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(("name", "value"), [("cpu_seconds", "abc"), ("versions", "[1]"), ("versions", "{")])
def test_a_provenance_that_cannot_be_read_is_named(tmp_path, name, value):
    file = store.write(spectra(1).assign_attrs({name: value}), tmp_path / "s.nc")
    with pytest.raises(InputError, match=f"attribute {name} must .* got '"):
        build_spectra(file, tmp_path / "site")
    assert not (tmp_path / "site").exists()
