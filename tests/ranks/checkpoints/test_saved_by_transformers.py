"""Files as Transformers saves them: renamed, merged, split; several towers; compared with the models in memory."""

import numpy as np
import pytest
import torch
from saved_models import BUILT, build, load, save
from stored_models import moved

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import RankTracker
from saddlescope.ranks.checkpoints import checkpoint_spectra


def trained(model, seed=1):
    model.load_state_dict(moved(dict(model.named_parameters()), seed), strict=False)


def saved_pair(name, tmp_path, **options):
    """Return the folders of a model before and after training, and its spectra in memory."""
    model = build(name)
    tracker = RankTracker(model, **options)
    base = save(model, tmp_path / "base")
    trained(model)
    tracker.step()
    return base, save(model, tmp_path / "tuned"), tracker.to_xarray()


def require_same(found, expected):
    for variable in expected.data_vars:
        one = expected[variable]
        there = one.sel(matrix=found.matrix) if "matrix" in one.dims else one
        # The base is float32 in both, and all arithmetic is the same: only the order of a sum may differ.
        np.testing.assert_allclose(found[variable].values, there.values, rtol=1e-7, atol=1e-12, err_msg=variable)


LIKE_OTHERS = ("Qwen3MoeForCausalLM", "WhisperForConditionalGeneration")  # Mixtral and Bart
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in LIKE_OTHERS)) for name in BUILT]


def by_size(ds, length):
    """Return the spectra of heads in the order of their layers' sizes: without Transformers, names are the file's."""
    order = np.argsort(ds.update_norm.fillna(0).sum(("step", "head", "product")).values)
    return np.nan_to_num(ds.update_spectrum.isel(layer=order).values)[..., :length]


@pytest.mark.parametrize("name", NAMES)
def test_spectra_and_initial_are_those_of_the_models_in_memory(name, tmp_path, monkeypatch):
    """Also where only names, shapes and config.json are known."""
    base, tuned, expected = saved_pair(name, tmp_path, matrices="*")
    assert expected.sizes["layer"] >= 2
    found = checkpoint_spectra(base, tuned, matrices="*")
    assert found.layer.values.tolist() == expected.layer.values.tolist()
    assert set(found.matrix.values) == set(expected.matrix.values)
    require_same(found, expected)
    assert "does not have" not in found.attrs["remarks"]
    resumed = RankTracker(load(name, tuned), matrices="*", initial=base)
    resumed.step()
    require_same(resumed.to_xarray(), expected)
    monkeypatch.setattr("saddlescope.ranks.checkpoints.transformers_model.model_class", lambda config: None)
    alone = checkpoint_spectra(base, tuned)
    assert alone.sizes["layer"] == expected.sizes["layer"]
    ours, theirs = (by_size(ds, alone.sizes["index"]) for ds in (alone, expected))
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-12)


def clip(tmp_path):
    base, tuned, expected = saved_pair("CLIPModel", tmp_path)
    for folder in (base, tuned):
        (folder / "config.json").unlink()
    return base, tuned, expected


def test_heads_of_several_towers_by_patterns(tmp_path):
    base, tuned, expected = clip(tmp_path)
    found = checkpoint_spectra(base, tuned, heads={"vision_model": 6, "*text*": 4})
    require_same(found.sel(layer=expected.layer), expected)
    with pytest.raises(InputError, match=r"each tower .* got one number, 2, for .*vision_model.encoder.layers.*=N'"):
        checkpoint_spectra(base, tuned, heads=2)
    refused(r"got 'visual\*', which matches none", checkpoint_spectra, base, tuned, heads={"visual*": 6, "*": 4})
    refused("number of heads in config", checkpoint_spectra, base, tuned, heads={"text*": 4})


def test_a_flat_configuration_is_not_taken_for_the_images_too(tmp_path):
    base, tuned, expected = clip(tmp_path)
    config = base / "config.json"
    config.write_text('{"num_attention_heads": 2}')
    refused("heads must be known for each tower", checkpoint_spectra, base, tuned)
    for text in (
        '{"num_attention_heads": 4, "vision_config": {"num_heads": 6}}',
        '{"num_attention_heads": 4, "vision_heads": 6}',
        '{"text_config": {"n_head": 4}, "visual": {"heads": 6}}',
    ):
        config.write_text(text)
        require_same(checkpoint_spectra(base, tuned).sel(layer=expected.layer), expected)
    config.write_text('{"num_attention_heads": 2}')
    require_same(checkpoint_spectra(base, tuned, heads={"vision*": 6, "text*": 4}).sel(layer=expected.layer), expected)


def test_heads_that_contradict_a_known_model(tmp_path):
    base, tuned, _ = saved_pair("CLIPModel", tmp_path)
    plain = checkpoint_spectra(base, tuned)
    assert checkpoint_spectra(base, tuned, heads={"vision*": 6}).identical(plain)
    refused(r"got 4 for vision_model.*, which has 6", checkpoint_spectra, base, tuned, heads=4)


def test_a_wrapped_model_and_a_file_without_its_configuration(tmp_path):
    """A script saves {"model": net.state_dict()} with the model as an attribute, and the base came from the hub."""
    model = build("ViTForImageClassification")
    tracker = RankTracker(model)
    base = save(model, tmp_path / "base")
    trained(model)
    tracker.step()
    state = {f"network.{name}": one for name, one in model.state_dict().items()}
    torch.save({"model": state, "loss": torch.tensor(1.0)}, tmp_path / "tuned.pt")
    require_same(checkpoint_spectra(base, tmp_path / "tuned.pt"), tracker.to_xarray())
    outer = torch.nn.ModuleDict({"network": model})
    resumed = RankTracker(outer, initial=base)
    resumed.step()
    np.testing.assert_allclose(resumed.stable_rank("KQ"), tracker.stable_rank("KQ"), rtol=1e-7)


def test_a_lost_shard_of_a_mixture_costs_its_layers_alone(tmp_path):
    model = build("MixtralForCausalLM")
    trained(model, 3)
    base = tmp_path / "base"
    model.save_pretrained(base, max_shard_size="6KB")
    before = checkpoint_spectra(base, base, on_error=lambda sentence: None)
    shards = sorted(base.glob("*.safetensors"))
    assert len(shards) > 3
    shards[1].unlink()
    faults = []
    found = checkpoint_spectra(base, base, on_error=faults.append)
    assert f"got none of {shards[1].name}" in faults[0]
    assert 0 < found.sizes["layer"] <= before.sizes["layer"]
    np.testing.assert_array_equal(found.initial_spectrum, before.initial_spectrum.sel(layer=found.layer))
