"""The claims on vision transformers can fail, their stand-ins are said, and the paper's sizes run, made small."""

import numpy as np
import pytest
import xarray as xr
from PIL import Image

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import RunContext, find_entry
from saddlescope.train import data

FIGURES = {name: find_entry(f"gradual-rank/{name}") for name in ("figure-1", "figure-6", "figure-12", "figure-13")}
FIGURES |= {name: find_entry(f"gradual-rank/{name}") for name in ("figure-16", "figure-18")}
TINY = {"images": "100", "seeds": "0", "depth": "1", "epochs": "2", "batch": "20", "embedding": "8", "mlp": "8"}


@pytest.fixture
def run(quick_run):
    """Six seeds: three times the two of the quick run."""
    run = quick_run("gradual-rank/figure-4").run
    return xr.concat([run] * 3, dim="seed").assign_coords(seed=range(6)).copy(deep=True)


def ramps(run, product, by, part=1.0):
    """The stable rank of this part of the heads of both layers goes up by `by`, of the others down."""
    ramp = np.linspace(0, 1, run.sizes["step"])[None, :, None, None]
    sign = np.where(np.arange(run.sizes["head"]) < part * run.sizes["head"], by, -by)
    noise = np.random.default_rng(0).normal(0, 0.02, [run.sizes[d] for d in ("seed", "step", "layer", "head")])
    run.stable_rank.loc[{"product": product}] = 3 + ramp * sign + noise
    return run


@pytest.mark.parametrize("name", ["figure-12", "figure-13", "figure-16", "figure-18"])
@pytest.mark.parametrize("product", ["KQ", "VO"])
def test_ranks_that_rise_and_that_fall_are_distinguished(run, outcomes, name, product):
    rising = outcomes(FIGURES[name], ramps(run, product, 0.5))
    assert (rising[f"rise-{product}"], rising[f"heads-rise-{product}"]) == ("seen", "seen")
    falling = outcomes(FIGURES[name], ramps(run, product, -0.5))
    assert (falling[f"rise-{product}"], falling[f"heads-rise-{product}"]) == ("not seen", "not seen")


def test_one_head_that_rises_much_does_not_make_half(run, outcomes):
    run = ramps(run, "KQ", -0.5)
    run.stable_rank.loc[{"product": "KQ", "head": 0, "layer": 1}] = 3 + np.linspace(0, 9, run.sizes["step"])
    run.stable_rank.loc[{"product": "KQ", "seed": 0}] += np.linspace(0, 0.01, run.sizes["step"])[:, None, None]
    found = outcomes(FIGURES["figure-12"], run)
    assert found["rise-KQ"] == "seen"
    assert found["heads-rise-KQ"] == "not seen"


def spectra(run, first, last):
    """Updates with `first` equal singular values in the first half of the records and `last` in the second."""
    half = run.sizes["step"] // 2
    index = np.arange(run.sizes["index"])
    run.update_spectrum.values[:, :half] = np.where(index < first, 1.0, 0.0)
    run.update_spectrum.values[:, half:] = np.where(index < last, 1.0, 0.0)
    run.update_spectrum.values[0] = np.where(index < first + 1, 1.0, 0.0)
    run.update_spectrum.values[0, half:] = np.where(index < last + 1, 1.0, 0.0)
    run.update_spectrum.values[1, half:] = np.where(index < last + 1, 1.0, 0.0)
    run.initial_energy_rank.values[:] = 16
    return run


def test_widening_and_narrow_spectra(run, outcomes):
    assert set(outcomes(FIGURES["figure-1"], spectra(run, 1, 4)).values()) == {"reproduced", "seen"}
    assert {k: v for k, v in outcomes(FIGURES["figure-1"], spectra(run, 12, 4)).items() if v != "reproduced"} == {
        f"{claim}-{product}": "not seen" for claim in ("narrow", "widens") for product in ("KQ", "VO")
    }


def scaled(run, power):
    """Final stable ranks 2 s^power at scales s of 1 and 0.1, a little different for each seed."""
    tilt = 1 + 0.01 * run.seed
    at = [run.assign(stable_rank=run.stable_rank * 0 + 2 * tilt * s ** (power * tilt)) for s in (1.0, 0.1)]
    return xr.concat(at, dim="scale").assign_coords(scale=[1.0, 0.1])


def test_the_rank_falls_or_rises_with_the_scale(run, outcomes):
    loss = run.train_loss * 0 + np.linspace(2, 0.1, run.sizes["epoch"])
    run["train_loss"] = loss.where(run.epoch < run.epoch[-1], loss * (1 + 0.01 * run.seed))
    assert set(outcomes(FIGURES["figure-6"], scaled(run, 0.3)).values()) == {"reproduced", "seen"}
    found = outcomes(FIGURES["figure-6"], scaled(run, -0.3))
    assert {claim for claim, outcome in found.items() if outcome == "reproduced"} == {"learned"}
    assert set(found.values()) == {"reproduced", "refuted", "not seen"}


def test_a_network_that_did_not_learn_at_one_scale_is_seen(run, outcomes):
    together = scaled(run, 0.3)
    together.train_loss.loc[{"scale": 0.1}] = 2.3
    together.train_loss.loc[{"scale": 0.1, "epoch": together.epoch[-1]}] = 2.3 * (1 + 0.01 * together.seed)
    found = outcomes(FIGURES["figure-6"], together)
    assert found.pop("learned") == "refuted"
    assert set(found.values()) == {"not tested"}


def test_the_scale_is_a_factor_on_the_same_draws(quick_run):
    run = quick_run("gradual-rank/figure-6").run
    one, other = (run.initial_spectrum.sel(scale=scale) for scale in (1.0, 0.3))
    np.testing.assert_allclose(other.values, 0.09 * one.values, rtol=1e-4, atol=1e-9)
    assert run.initial_stable_rank.sel(scale=1.0).values == pytest.approx(
        run.initial_stable_rank.sel(scale=0.3).values, rel=1e-3
    )


class Killed(KeyboardInterrupt):
    pass


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    entry = FIGURES["figure-6"]
    params = entry.configure("quick", TINY | {"seeds": "0,1", "precision": "bf16"})
    (tmp_path / "whole").mkdir()
    whole = entry.run(params, RunContext(scratch=tmp_path / "whole"))
    (tmp_path / "killed").mkdir()

    def kill(fraction, note):
        if fraction > 0.6:
            raise Killed

    with pytest.raises(Killed):
        entry.run(params, RunContext(scratch=tmp_path / "killed", report=kill))
    assert len(list((tmp_path / "killed").rglob("*.nc"))) == 2  # both seeds at the first scale
    assert len(list((tmp_path / "killed").rglob("checkpoint.pt"))) == 1
    xr.testing.assert_identical(entry.run(params, RunContext(scratch=tmp_path / "killed")), whole)


def test_the_papers_sizes_are_the_papers():
    for name in ("figure-1", "figure-6", "figure-12", "figure-13", "figure-16"):
        p = FIGURES[name].configure("paper")
        assert (p.depth, p.heads, p.embedding, p.head_width, p.mlp, p.patch) == (6, 8, 512, 128, 512, 4)
        assert (p.epochs, p.warmup_epochs, p.batch, p.device) == (500, 15, 512, "cuda")
        assert p.dataset == ("cifar100" if name in ("figure-13", "figure-16") else "cifar10")
        sgd = name in ("figure-12", "figure-13")
        assert (p.optimizer, p.learning_rate) == (("sgd", 0.3) if sgd else ("adam", 1e-4))
    p = FIGURES["figure-18"].configure("paper")
    assert (p.depth, p.heads, p.embedding, p.head_width, p.mlp, p.patch) == (12, 12, 768, 64, 3072, 16)
    assert (p.epochs, p.warmup_epochs, p.batch, p.learning_rate, p.dataset) == (360, 15, 4096, 3e-3, "imagenet")


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


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("figure-16", {"dataset": "cifar100"}, "dataset 'cifar100' needs the folder of its official files"),
        ("figure-12", {"device": "cuda"}, "device='cuda' was requested, but PyTorch found no GPU"),
    ],
)
def test_what_is_not_there_is_one_sentence(tmp_path, monkeypatch, name, settings, sentence):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match=sentence):
        FIGURES[name].run(FIGURES[name].configure("quick", settings), RunContext(scratch=tmp_path))


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("figure-6", {"scales": "1.0"}, "scales must be two or more numbers, each between 1e-06 and 1e.06, decreasing"),
        (
            "figure-6",
            {"scales": "0.1,1"},
            "scales must be two or more numbers, each between 1e-06 and 1e.06, decreasing",
        ),
        ("figure-18", {"pieces": "3"}, "pieces must divide batch=25; got 3"),
        ("figure-12", {"optimizer": "sdg"}, "did you mean sgd"),
        ("figure-1", {"images": "-1"}, "images must be at least 0"),
        ("figure-1", {"learning_rate": "0"}, "learning_rate must be positive"),
    ],
)
def test_values_out_of_range_are_refused_at_once(name, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        FIGURES[name].configure("quick", settings)
