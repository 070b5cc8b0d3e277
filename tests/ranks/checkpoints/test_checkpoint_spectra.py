"""Spectra between checkpoints: those of the tracker on the live model, and errors for inconsistent files."""

import numpy as np
import pytest
import torch
from attention_standins import all_kinds
from safetensors.torch import save_file
from stored_models import moved, of_matrices, sharded, stored

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import Angles, RankTracker, Values
from saddlescope.ranks.checkpoints import checkpoint_spectra

D, HEADS = 12, 4


def model_of(kind, layers=2):
    """Build layers of one kind of attention, in float32, with weights only."""
    return torch.nn.ModuleDict({"layers": torch.nn.ModuleList(all_kinds()[kind] for _ in range(layers))}).float()


def collected(*series, **options):
    """Return the spectra of a series, and the reported errors."""
    faults: list[str] = []
    return checkpoint_spectra(*series, heads=HEADS, on_error=faults.append, **options), faults


@pytest.mark.parametrize("kind", ["vit", "torch", "gpt2", "nanogpt", "llama", "vit-pytorch"])
def test_they_are_the_spectra_of_the_tracker(tmp_path, kind):
    model = model_of(kind)
    tracker = RankTracker(model, matrices="*", recorders=[Angles(2)])
    series = [stored(tmp_path / "base", model.state_dict())]
    for step in (5, 20, 100):
        model.load_state_dict(moved(model.state_dict(), step))
        tracker._made = step
        tracker.measure()
        kind_of_file = "bin" if step == 20 else "safetensors"
        series.append(sharded(tmp_path / f"step-{step}", model.state_dict(), kind=kind_of_file))
    found = checkpoint_spectra(*series, heads=HEADS, matrices="*", recorders=[Angles(2)])
    expected = tracker.to_xarray()
    assert found.step.values.tolist() == [5, 20, 100]
    assert [str(name) for name in found.checkpoint.values] == [str(path) for path in series[1:]]
    assert found.layer.values.tolist() == expected.layer.values.tolist()
    for name in expected.data_vars:
        there = expected[name].sel(matrix=found.matrix) if "matrix" in expected[name].dims else expected[name]
        assert found[name].dims == there.dims
        np.testing.assert_allclose(found[name].values, there.values, rtol=1e-9, atol=1e-9, err_msg=name)


def pair(tmp_path, kind="llama", change=lambda tensors: tensors, **options):
    """Return a base and a tuned checkpoint, the tuned one with a change."""
    base = model_of(kind).state_dict()
    return stored(tmp_path / "base", base), stored(tmp_path / "tuned", change(moved(base, 1)), **options)


def test_one_rank_one_change_of_one_head(tmp_path):
    """Change one head: mixed heads, a transposed layout or a wrong key head would show the change elsewhere."""
    tensors = model_of("llama").state_dict()
    base = stored(tmp_path / "base", tensors)
    W_Q = tensors["layers.1.q_proj.weight"].clone()
    width = len(W_Q) // HEADS
    left, right = torch.arange(1.0, width + 1), torch.linspace(-1, 1, D)
    W_Q[2 * width : 3 * width] += torch.outer(left, right)
    tuned = stored(tmp_path / "tuned", tensors | {"layers.1.q_proj.weight": W_Q})
    ds = checkpoint_spectra(base, tuned, heads=HEADS)
    W_K = tensors["layers.1.k_proj.weight"]
    size = float((left @ W_K[width : 2 * width]).norm() * right.norm())  # heads 2 and 3 share key head 1
    changed = ds.update_spectrum.sel(layer="layers.1", product="KQ", step=1)
    assert float(changed[2, 0]) == pytest.approx(size, rel=1e-6)
    assert float(changed[2, 1]) < 1e-6 * size
    assert not changed[[0, 1, 3]].values.any()
    assert not ds.update_spectrum.sel(layer="layers.0").values.any()
    assert ds.measurable.sum() == 1
    assert "share 7 of 8 tensors bit for bit" in ds.attrs["remarks"]


def test_only_the_largest_values_are_kept_but_norms_are_of_all(tmp_path):
    base, tuned = pair(tmp_path)
    whole, few = (checkpoint_spectra(base, tuned, heads=HEADS, recorders=[Values(top)]) for top in (None, 2))
    assert few.sizes["index"] == 2
    np.testing.assert_array_equal(few.update_spectrum, whole.update_spectrum[..., :2])
    for name in ("update_norm", "stable_rank", "effective_rank", "initial_norm"):
        np.testing.assert_array_equal(few[name], whole[name])


def test_the_number_of_heads_comes_from_the_configuration(tmp_path):
    base, tuned = pair(tmp_path)
    wanted = checkpoint_spectra(base, tuned, heads=HEADS)
    refused(r"number of heads in config\.json; got none\. Pass --heads", checkpoint_spectra, base, tuned)
    (base / "config.json").write_text('{"num_attention_heads": 4}')
    assert checkpoint_spectra(base, tuned).identical(wanted)
    (base / "config.json").write_text('{"num_attention_heads": 2}')
    assert checkpoint_spectra(base, tuned, heads=HEADS).identical(wanted)
    (base / "config.json").unlink()
    (base / "params.json").write_text('{"n_heads": 4}')  # Meta's and Mistral's own files
    assert checkpoint_spectra(base, tuned).identical(wanted)
    weights = model_of("llama").state_dict()
    content = {"model": weights, "model_args": {"n_head": HEADS}, "best_val_loss": torch.ones(())}
    torch.save(content, tmp_path / "base.pt")  # of a training script
    np.testing.assert_array_equal(
        checkpoint_spectra(tmp_path / "base.pt", tuned).update_spectrum, wanted.update_spectrum
    )


@pytest.mark.parametrize(("kind", "heads"), [("llama", 7), ("gpt2", 5), ("torch", 5), ("torch", None)])
def test_a_number_of_heads_that_does_not_fit(tmp_path, kind, heads):
    base, tuned = pair(tmp_path, kind)
    refused(r"must (split into \d heads|have its number of heads)", checkpoint_spectra, base, tuned, heads=heads)


def test_a_prefix_that_one_side_lacks_is_bridged(tmp_path):
    base, tuned = pair(tmp_path)
    inner = checkpoint_spectra(base, tuned, heads=HEADS)

    def prefixed(tensors):
        own = {f"transformer.{name}": tensor for name, tensor in tensors.items()}
        return own | {"lm_head.weight": torch.ones(2, D)}

    base, tuned = pair(tmp_path / "more", change=prefixed)
    outer = checkpoint_spectra(base, tuned, heads=HEADS)
    np.testing.assert_array_equal(outer.update_spectrum, inner.update_spectrum)
    assert outer.layer.values.tolist() == ["layers.0", "layers.1"]
    assert "tuned alone holds lm_head.weight" in outer.attrs["remarks"]
    back = checkpoint_spectra(tuned, base, heads=HEADS)
    assert back.layer.values.tolist() == ["transformer.layers.0", "transformer.layers.1"]
    np.testing.assert_allclose(back.update_norm, inner.update_norm, rtol=1e-6)


def test_names_of_other_models_are_listed_on_both_sides(tmp_path):
    base, _ = pair(tmp_path)
    _, tuned = pair(tmp_path / "other", "gpt2")
    with pytest.raises(InputError, match=r"got none of layers\.0\.k_proj\.weight, .* and 5 more but layers\.0\.c_attn"):
        checkpoint_spectra(base, tuned, heads=HEADS)
    (tmp_path / "none").mkdir()
    save_file({"w": torch.ones(3, 3)}, tmp_path / "none/model.safetensors")
    with pytest.raises(InputError, match="must hold attention weights under known names; got none"):
        checkpoint_spectra(tmp_path / "none", tmp_path / "none")


def test_a_layer_that_cannot_be_used_is_reported_and_all_others_are_done(tmp_path):
    whole = checkpoint_spectra(*pair(tmp_path / "whole"), heads=HEADS)

    def holds_nan(tensors):
        tensors["layers.1.o_proj.weight"][3, 3] = torch.nan
        return tensors

    def other_shape(tensors):
        return tensors | {"layers.1.o_proj.weight": torch.ones(D, 3)}

    def absent(tensors):
        del tensors["layers.1.o_proj.weight"]
        return tensors

    def integers(tensors):
        return tensors | {"layers.1.o_proj.weight": torch.ones(D, HEADS * 5, dtype=torch.int8)}

    def imaginary(tensors):
        return tensors | {"layers.1.o_proj.weight": tensors["layers.1.o_proj.weight"] * 1j}

    reported = {
        holds_nan: "must hold finite weights; got NaN or infinity in layers.1.o_proj.weight",
        other_shape: f"must have the shapes of {tmp_path}/other_shape/base; got layers.1.o_proj.weight ({D}, 20)",
        absent: "got none of layers.1.o_proj.weight",
        integers: "got int8 in layers.1.o_proj.weight. Dequantize",
        imaginary: "got complex64 in layers.1.o_proj.weight. Store real numbers",
    }
    for change, words in reported.items():
        base, tuned = pair(tmp_path / change.__name__, change=change)
        refused("o_proj", checkpoint_spectra, base, tuned, heads=HEADS)
        ds, faults = collected(base, tuned)
        (fault,) = faults
        assert words in fault
        np.testing.assert_array_equal(ds.update_spectrum[:, 0], whole.update_spectrum[:, 0])
        lost = ds.sel(layer="layers.1")
        for name in ("update_spectrum", "stable_rank", "update_norm", "noise_floor"):
            assert lost[name].isnull().all()
        assert not lost.measurable.any()
        np.testing.assert_array_equal(ds.initial_spectrum, whole.initial_spectrum)


def test_a_base_that_cannot_be_used_in_one_layer(tmp_path):
    base, tuned = pair(tmp_path)
    tensors = model_of("llama").state_dict()
    tensors["layers.0.k_proj.weight"][0, 0] = torch.inf
    ds, faults = collected(stored(base, tensors), tuned, matrices="*q_proj*")
    assert len(faults) == 1
    assert "layers.0.k_proj.weight" in faults[0]
    assert ds.sel(layer="layers.0").initial_spectrum.isnull().all()
    assert ds.sel(layer="layers.1").stable_rank.notnull().all()
    assert ds.matrix_stable_rank.notnull().all()


def test_an_update_below_the_noise_floor_has_no_rank(tmp_path):
    tensors = model_of("llama").state_dict()
    base = stored(tmp_path / "base", tensors)
    tuned = stored(tmp_path / "tuned", {name: one.to(torch.bfloat16) for name, one in tensors.items()})
    ds, faults = collected(base, tuned, matrices="*v_proj*")
    assert "not measurable in this precision" in faults[0]
    assert ds.stable_rank.isnull().all()
    assert ds.matrix_stable_rank.isnull().all()
    assert (ds.update_norm > 0).all()
    assert not ds.measurable.any()


def test_rounding_of_the_base_counts_to_the_noise_floor(tmp_path):
    base, tuned = pair(tmp_path)
    short = stored(tmp_path / "short", {n: t.to(torch.bfloat16) for n, t in model_of("llama").state_dict().items()})
    exact, rounded = (checkpoint_spectra(path, tuned, heads=HEADS).noise_floor for path in (base, short))
    assert rounded.min() > 1000 * exact.max()


def test_a_step_that_is_there_twice_is_reported(tmp_path):
    base, tuned = pair(tmp_path)
    tensors = moved(model_of("llama").state_dict(), 1)
    later = stored(tmp_path / "later", moved(tensors, 2))
    copied = sharded(tmp_path / "copied", tensors, kind="bin")  # another format: the tensors are what counts
    _, faults = collected(base, tuned, later, copied)
    assert faults == [f"{copied} and {tuned} are the same checkpoint: all 8 tensors are identical. Leave one out."]
    _, faults = collected(base, base)
    assert len(faults) == 1
    assert "are the same checkpoint" in faults[0]


def test_a_step_that_cannot_be_opened_is_reported_and_all_others_are_done(tmp_path):
    base, first = pair(tmp_path)
    later = stored(tmp_path / "later", moved(model_of("llama").state_dict(), 2))
    (tmp_path / "cut.safetensors").write_bytes((later / "model.safetensors").read_bytes()[:-9])
    _, other = pair(tmp_path / "other", "gpt2")
    ds, faults = collected(base, first, tmp_path / "cut.safetensors", other, later)
    assert [str(name) for name in ds.checkpoint.values] == [str(first), str(later)]
    assert ds.step.values.tolist() == [1, 4]
    alone = checkpoint_spectra(base, later, heads=HEADS)
    np.testing.assert_array_equal(ds.update_spectrum[1], alone.update_spectrum[0])
    assert "must be a complete safetensors file" in faults[0]
    assert "Pass two checkpoints of one model" in faults[1]
    assert len(faults) == 2


@pytest.mark.parametrize("side", ["base", "tuned"])
def test_a_missing_shard_costs_its_layers_alone(tmp_path, side):
    tensors = model_of("llama").state_dict()
    folders = {name: tmp_path / name for name in ("base", "tuned")}
    for name, folder in folders.items():
        halves = [n for layer in (0, 1) for n in tensors if f".{layer}." in n]
        ordered = {n: tensors[n] for pair in zip(halves[:4], halves[4:], strict=True) for n in pair}
        sharded(folder, moved(ordered, 1) if name == "tuned" else ordered)
    (folders[side] / "model-00001-of-00002.safetensors").unlink()
    ds, faults = collected(folders["base"], folders["tuned"])
    assert faults == [
        f"{folders[side]} must hold all 2 shards of its index; got none of model-00001-of-00002.safetensors."
    ]
    assert ds.stable_rank.sel(layer="layers.1").notnull().all()
    if side == "tuned":
        assert ds.stable_rank.sel(layer="layers.0").isnull().all()
    else:
        assert ds.layer.values.tolist() == ["layers.1"]


def test_names_that_no_module_can_have_are_passed_by(tmp_path):
    tensors = model_of("llama").state_dict()
    odd = ("a..weight", ".weight", "layers.forward.weight", "layers.0.q_proj.weight.weight", "x." * 3000 + "weight")
    tensors |= {name: torch.ones(2, 2) for name in odd}
    base, tuned = stored(tmp_path / "base", tensors), stored(tmp_path / "tuned", moved(tensors, 1))
    plain = checkpoint_spectra(*pair(tmp_path / "plain"), heads=HEADS)
    np.testing.assert_array_equal(checkpoint_spectra(base, tuned, heads=HEADS).initial_spectrum, plain.initial_spectrum)


def test_stacks_of_matrices_are_named(tmp_path):
    tensors = {"blocks.0.attn.W_Q": torch.ones(4, 16, 4), "embed.W_E": torch.ones(32, 16)}
    base, tuned = stored(tmp_path / "base", tensors), stored(tmp_path / "tuned", {n: 2 * t for n, t in tensors.items()})
    found = of_matrices(base, tuned)
    assert "more than two axes, which were not measured: blocks.0.attn.W_Q." in found.attrs["remarks"]


def test_frozen_tensors_are_reported_once(tmp_path):
    tensors = model_of("llama").state_dict()
    frozen = {"layers.0.k_proj.weight": tensors["layers.0.k_proj.weight"]}
    series = [stored(tmp_path / f"{step}", moved(tensors, step) | frozen) for step in range(4)]
    (remark,) = checkpoint_spectra(*series, heads=HEADS).attrs["remarks"].splitlines()
    assert "and 2 more pairs, share 1 of 8 tensors bit for bit, such as layers.0.k_proj.weight" in remark


def test_steps_are_the_numbers_in_names_where_they_ascend(tmp_path):
    tensors = model_of("vit", layers=1).state_dict()
    names = ("base", "run7-step3.safetensors", "run7-step20.safetensors", "run7-step4.safetensors")
    paths = [tmp_path / name for name in names]
    stored(paths[0], tensors)
    for seed, path in enumerate(paths[1:]):
        save_file(moved(tensors, seed), path)
    base, three, twenty, four = paths
    reported = checkpoint_spectra(base, three, twenty, heads=HEADS).step
    assert (reported.values.tolist(), reported.long_name) == ([3, 20], "optimiser steps")
    counted = checkpoint_spectra(base, three, twenty, four, heads=HEADS).step
    assert (counted.values.tolist(), counted.long_name) == ([1, 2, 3], "checkpoint")
    assert checkpoint_spectra(base, twenty, heads=HEADS).step.values.tolist() == [1]


def test_calls_that_cannot_be_meant(tmp_path):
    base, tuned = pair(tmp_path)
    refused("tuned must name one checkpoint or more", checkpoint_spectra, base, heads=HEADS)
    refused("attention must be True if no matrices", checkpoint_spectra, base, tuned, attention=False)
    with pytest.raises(InputError, match="matrices must select weight matrices of the model; got 'mlp'"):
        checkpoint_spectra(base, tuned, heads=HEADS, matrices="mlp")
    refused("top must be at least 1", lambda: checkpoint_spectra(base, tuned, heads=HEADS, recorders=[Values(0)]))
    ds = checkpoint_spectra(base, tuned, attention=False, matrices="*k_proj*")
    assert list(ds.matrix.values) == ["layers.0.k_proj.weight", "layers.1.k_proj.weight"]
    assert "layer" not in ds.dims
