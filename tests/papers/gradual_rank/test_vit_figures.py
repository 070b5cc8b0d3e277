"""Claims on vision transformers: what decides them, what is not judged, and the paper's sizes, made small."""

import numpy as np
import pytest
import xarray as xr
from PIL import Image

from saddlescope.papers.gradual_rank.shared.training_metrics import worst
from saddlescope.reproduction import Estimate, RunContext, find_entry
from saddlescope.training import data

FIGURES = {f"figure-{k}": find_entry(f"gradual-rank/figure-{k}") for k in (1, 4, 6, 12, 13, 16, 18)}
TINY = {"images": "100", "seeds": "0", "depth": "1", "epochs": "2", "batch": "20", "embedding": "8", "mlp": "8"}


def test_the_worst_case_decides_and_the_remark_has_all():
    cases = {"up": Estimate(0.3, 0.1), "unclear": Estimate(0.2, 0.4), "down": Estimate(-0.1, 0.05)}
    assert worst(cases, low=0.0).value == -0.1
    found = worst({name: cases[name] for name in ("up", "unclear")}, low=0.0)
    assert (found.value, found.uncertainty, found.remark) == (0.2, 0.4, "up: 0.30 ± 0.10; unclear: 0.2 ± 0.4")
    assert worst(cases | {"gone": Estimate(np.nan)}, low=0.0).value == -0.1
    assert np.isnan(worst({"up": cases["up"], "gone": Estimate(np.nan)}, low=0.0).value)


def test_the_scale_is_a_factor_on_the_same_draws(quick_run):
    run = quick_run("gradual-rank/figure-6").run
    one, other = (run.initial_spectrum.sel(scale=scale) for scale in (1.0, 0.3))
    np.testing.assert_allclose(other.values, 0.09 * one.values, rtol=1e-4, atol=1e-9)
    assert run.initial_stable_rank.sel(scale=1.0).values == pytest.approx(
        run.initial_stable_rank.sel(scale=0.3).values, rel=1e-3
    )


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    entry = FIGURES["figure-6"]
    params = entry.configure("quick", TINY | {"seeds": "0,1", "precision": "bf16"})
    (tmp_path / "whole").mkdir()
    whole = entry.run(params, RunContext(scratch=tmp_path / "whole"))
    (tmp_path / "killed").mkdir()

    def kill(fraction, note):
        if fraction > 0.6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        entry.run(params, RunContext(scratch=tmp_path / "killed", report=kill))
    assert len(list((tmp_path / "killed").rglob("*.nc"))) == 2  # both seeds at the first scale
    assert len(list((tmp_path / "killed").rglob("checkpoint.pt"))) == 1
    xr.testing.assert_identical(entry.run(params, RunContext(scratch=tmp_path / "killed")), whole)


def test_imagenet_from_its_folders_in_pieces_and_bfloat16(tmp_path, monkeypatch):
    """The paper's path of Figure 18, made small: two classes, one block, no GPU."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 20), ("val", 2)):
        for name in ("n01", "n02"):
            folder = tmp_path / "imagenet" / part / name
            folder.mkdir(parents=True)
            for k in range(count):
                Image.fromarray(rng.integers(0, 256, (230, 240, 3), dtype=np.uint8)).save(folder / f"{k}.JPEG")
    load = data.load
    monkeypatch.setattr(data, "load", lambda *args, **kwargs: load(*args, verify=False, **kwargs))
    settings = TINY | {"images": "0", "dataset": "imagenet", "patch": "56", "pieces": "5", "precision": "bf16"}
    entry, notes = FIGURES["figure-18"], []
    params = entry.configure("paper", settings | {"device": "cpu", "compiled": "false", "warmup_epochs": "1"})
    context = RunContext(scratch=tmp_path, data=tmp_path, report=lambda fraction, note: notes.append(note))
    run = entry.run(params, context)
    assert run.sizes["head"] == 12
    assert np.isfinite(run.train_loss).all()
    assert notes[0] == "decoded 40 images of imagenet/train"


@pytest.mark.data
@pytest.mark.parametrize(("dataset", "patch"), [("mnist", "7"), pytest.param("cifar10", "8", marks=pytest.mark.slow)])
def test_official_data_are_used(data_folder, tmp_path, dataset, patch):
    settings = {"dataset": dataset, "patch": patch, "images": "100", "epochs": "2", "batch": "20", "seeds": "0"}
    entry = FIGURES["figure-4"]
    run = entry.run(entry.configure("quick", settings), RunContext(scratch=tmp_path, data=data_folder))
    assert run.attrs["dataset"] == dataset
    assert np.isfinite(run.stable_rank.values).all()
