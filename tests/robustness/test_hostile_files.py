"""Stored runs and spectra from others, with a valid seal: nothing is executed, injected or written.

Anyone who can write a file can seal it, so the seal detects damage, not intent.
"""

import json
import shlex
import string
import sys

import h5py
import numpy as np
import pytest
import xarray as xr

from saddlescope import cli, store
from saddlescope._shared.errors import InputError
from saddlescope.reproduction import reproduce

EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
TRAVERSING = "../../../../escaped"
ATTRIBUTES = (
    "entry",
    "size",
    "settings",
    "params",
    "seed",
    "started",
    "finished",
    "versions",
    "platform",
    "commit",
    "command",
)

VALUES = (EVIL, TRAVERSING, "", "[]", "{}", "null", "NaN", 3.5, "\u202e\x07{{ 7 * 7 }}")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a valid run of the tiny entry."""
    import tiny

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saddlescope.reproduction.entry.find_entry", tiny.find_entry)
        patch.setattr("saddlescope.reproduction.catalogue.entry_names", lambda: tiny.NAMES)
        return reproduce(tiny.ENTRY, out=tmp_path_factory.mktemp("made"), size="quick").run


@pytest.fixture
def call(tiny, undrawn, tmp_path, monkeypatch, capsys):
    """Run the command line in an inner folder; pages are built without drawing, which is tested elsewhere."""
    (tmp_path / "deep" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "inner")

    def run(line):
        status = cli.main(shlex.split(line))
        return status, capsys.readouterr().err

    return run


def harmless(call, tmp_path, run):
    """Judge and show a stored run; check that no command fails or executes the file's content."""
    file = store.write(run, tmp_path / "deep/inner/runs/tiny/staircase/quick.nc")
    content = file.read_bytes()
    for line in ("check runs", "check runs --json", "show tiny/staircase --out runs", "gallery runs"):
        status, err = call(line)
        assert status in {0, 1, 2, 3}, (line, err)
        assert "Traceback" not in err, (line, err)
        if line == "gallery runs" and status == 2:  # one sentence for each file, and one for all
            said = [text for text in err.splitlines() if not text.startswith("gallery: ")]
            assert len(said) == 2, (line, err)
            assert said[0].startswith("Skipped: "), (line, err)
            assert "runs/tiny/staircase/quick.nc" in said[0], (line, err)
            assert said[1] == "No file in runs can be shown; rerun the entries.", (line, err)
        else:
            assert status != 2 or err.count("\n") == 1, (line, err)
    assert file.read_bytes() == content
    for page in (tmp_path / "deep/inner").rglob("*.html"):
        text = page.read_text("utf-8")
        assert "<script>document" not in text
        assert "<img src=x" not in text
    outside = {path.name for path in tmp_path.iterdir()} | {path.name for path in (tmp_path / "deep").iterdir()}
    assert outside == {"deep", "inner"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, marks=[] if (n + k) % 4 == 0 else pytest.mark.slow)  # each more than once
        for n, name in enumerate(ATTRIBUTES)
        for k, value in enumerate(VALUES)
    ],
)
def test_attributes_of_provenance_may_contain_anything(call, tmp_path, made, name, value):
    harmless(call, tmp_path, made.assign_attrs({name: value}))


@pytest.mark.parametrize(
    "verdicts",
    [
        "",
        "{",
        "[]",
        "{}",
        "[1]",
        '[{"claim": 3}]',
        json.dumps([dict.fromkeys(("claim", "statement", "low"), EVIL)]),
        "3",
        3.0,
    ],
)
def test_stored_verdicts_may_contain_anything(call, tmp_path, made, verdicts):
    harmless(call, tmp_path, made.assign_attrs(verdicts=verdicts))


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run.drop_vars("loss"),
        lambda run: run.drop_vars("t"),
        lambda run: run.isel(t=slice(0)),
        lambda run: run.isel(scale=0),
        lambda run: run.rename(t="time"),
        lambda run: run.transpose(),
        lambda run: run.assign(loss=run.loss.astype(str)),
        lambda run: run.assign(loss=run.loss * np.nan),
        lambda run: run.assign(loss=run.loss > 0),
        lambda run: run.assign(loss=((), 3.0)),
        lambda run: run.assign(rank=run["rank"].astype("int8")),
        lambda run: run.assign_coords(name=("stage", [EVIL, TRAVERSING])),
        lambda run: run.assign_attrs(centres="none", reported=EVIL),
        lambda run: run.assign_attrs(centres=np.array([np.nan, np.inf])),
        lambda run: run.assign({EVIL.replace("/", "|"): ("x", [1.0])}),
        lambda run: xr.Dataset(attrs=run.attrs),
    ],
)
def test_data_of_another_shape_or_kind_raise_or_are_shown(call, tmp_path, made, change):
    harmless(call, tmp_path, change(made))


def test_links_out_of_the_file_are_not_followed(tmp_path):
    from saddlescope.store import netcdf as module

    with h5py.File(tmp_path / "secret.nc", "w") as file:
        file["secret"] = np.arange(3.0)
    path = tmp_path / "link.nc"
    with h5py.File(path, "w") as file:
        file["loss"] = h5py.ExternalLink(str(tmp_path / "secret.nc"), "/secret")
        file["own"] = np.zeros(2)
    content = path.read_bytes()
    path.write_bytes(content + module._seal(content))
    try:
        found = store.read(path)
    except InputError:
        return
    assert "loss" not in found


def test_garbage_with_a_seal_raises(tmp_path):
    from saddlescope.store import netcdf as module

    noise = np.random.default_rng(0)
    for content in (b"", b"\x89HDF\r\n\x1a\n", noise.bytes(5000), b"\x89HDF\r\n\x1a\n" + noise.bytes(5000), b"CDF\x01"):
        (tmp_path / "run.nc").write_bytes(content + module._seal(content))
        with pytest.raises(InputError, match=r"run\.nc"):
            store.read(tmp_path / "run.nc")


@pytest.mark.parametrize(
    "name", [EVIL, f"{TRAVERSING}.weight", "layers.0./etc/passwd.weight", "a\nb.weight", "{{7*7}}"]
)
def test_layer_names_are_not_used_as_paths(call, tmp_path, name):
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    inner = tmp_path / "deep" / "inner"
    base = {name: torch.randn(6, 4, generator=generator), "plain.weight": torch.randn(6, 4, generator=generator)}
    save_file(base, inner / "base.safetensors")
    save_file({key: 2 * one for key, one in base.items()}, inner / "tuned.safetensors")
    assert call("spectra base.safetensors tuned.safetensors --out s.nc --site site --matrices *")[0] in {0, 2}
    status, _ = call("extract-lora base.safetensors tuned.safetensors --rank 2 --no-logits --out adapter")
    assert status in {0, 2}
    for page in inner.rglob("*.html"):
        assert "<script>document" not in page.read_text("utf-8")
        assert "<img src=x" not in page.read_text("utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"inner"}
    allowed = {"base.safetensors", "tuned.safetensors", "s.nc", "site", "adapter"}
    assert {path.name for path in inner.iterdir()} <= allowed
    assert all(set(path.name) <= set(string.ascii_letters + string.digits + "._-") for path in inner.rglob("*"))
    assert "owned" not in sys.modules
