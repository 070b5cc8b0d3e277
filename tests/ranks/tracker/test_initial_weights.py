"""Initial weights: stored once per parameter, in memory, on disk or in a checkpoint; records are the same."""

# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

import copy
import warnings

import numpy as np
import pytest
import torch
from attention_standins import LlamaAttention, all_kinds
from safetensors.torch import save_file
from small_vit import SMALL, step_at_random
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.measure import product_spectrum
from saddlescope.ranks import Angles, Every, InMemory, OnDisk, RankTracker
from saddlescope.training import ViT


def stored_bytes(tracker):
    tensors = tracker._initial.of(tracker._initial.names).values()
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_parameter_is_stored_once_in_its_own_type(dtype):
    model = LlamaAttention(8, 4, 1, 8).to(dtype)  # four query heads share one key head
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    assert stored_bytes(RankTracker(model)) == weights
    assert stored_bytes(RankTracker(model, matrices="*")) == weights  # of the heads, and again as single matrices


@pytest.mark.parametrize("kind", all_kinds())
def test_only_the_weights_of_attention_are_stored(kind):
    """The parameters that the factors depend on are found by what the layout reads."""
    model = all_kinds()[kind]
    block = nn.Sequential(model, nn.Linear(12, 40))
    tracker = RankTracker(block)
    assert all(name.startswith("0.") for name in tracker._initial.names)
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            if name not in tracker._initial.names and parameter.ndim == 2:
                parameter.fill_(torch.nan)
    tracker.measure()
    assert not tracker.records.products.update.values.any()  # neither NaN nor another number


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_on_disk_give_the_same_records(dtype, tmp_path):
    model = ViT(SMALL).to(dtype)
    options = {"schedule": Every(1), "matrices": "*.expand", "recorders": [Angles(1)]}
    memory, disk = RankTracker(model, **options), RankTracker(model, reference=OnDisk(tmp_path / "start"), **options)
    (file,) = (tmp_path / "start").iterdir()
    assert disk._initial.digest() == memory._initial.digest()
    assert disk._initial.digest()[:16] in file.name
    for seed in range(2):
        step_at_random(model, seed=seed)
        memory.step()
        disk.step()
    assert disk.to_xarray().identical(memory.to_xarray())


def test_a_file_that_changes_costs_the_records_but_not_the_run(tmp_path):
    model = ViT(SMALL)
    tracker = RankTracker(model, schedule=Every(1), reference=OnDisk(tmp_path))
    step_at_random(model)
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match=r"must stay as it was .* removed or written again.*are NaN from step 1 on"):
        tracker.step()
    (tmp_path / "elsewhere").rename(file)
    tracker.step()
    assert np.isnan(tracker.records.products.update.values[0]).all()
    assert (tracker.stable_rank("KQ")[1] >= 1).all()


def test_initial_weights_in_half_precision_report_their_rounding(tmp_path):
    """Compare with the exact updates: the difference is below the noise floor, which is that of bfloat16."""
    model = ViT(SMALL, seed=1)
    exact = RankTracker(model, matrices="*.expand")
    half = [
        RankTracker(model, matrices="*.expand", reference=reference)
        for reference in (InMemory(torch.bfloat16), OnDisk(tmp_path, torch.bfloat16))
    ]
    save_file({name: one.bfloat16() for name, one in model.state_dict().items()}, tmp_path / "model.safetensors")
    half.append(RankTracker(model, matrices="*.expand", initial=tmp_path / "model.safetensors"))
    assert stored_bytes(half[0]) == stored_bytes(exact) / 2
    for tracker in (exact, *half):
        tracker.measure()
    assert not exact.records.products.update.values.any()
    for tracker in half:
        for kind in (tracker.records.products.update, tracker.records.matrices.update):
            assert kind.values[..., 0].min() > 0
            assert np.median(kind.values[..., 0] / kind.noise_floor) < 1
        assert tracker.records.products.update.noise_floor.min() > 1e3 * exact.records.products.update.noise_floor.max()
        assert np.isnan(tracker.stable_rank("KQ")).mean() > 0.5
    assert all(one.to_xarray().identical(half[0].to_xarray()) for one in half[1:])
    wide = RankTracker(copy.deepcopy(model).bfloat16(), reference=InMemory(torch.float32))
    assert stored_bytes(wide) == stored_bytes(half[0]) - sum(
        block.expand.weight.numel() * 2 for block in model.blocks
    )  # a wider type than that of the weights adds nothing


def test_a_state_without_its_file_is_refused(tmp_path):
    model = ViT(SMALL)
    state = RankTracker(model).state_dict(folder=tmp_path)
    (file,) = tmp_path.iterdir()
    step_at_random(model)
    with pytest.raises(InputError, match=f"must be in {file.name}; got no such file in any folder: pass folder="):
        RankTracker(model).load_state_dict(state)
    file.unlink()
    with pytest.raises(InputError, match=f"must be in {file.name}; got no such file in {tmp_path}. Copy it there, or"):
        RankTracker(model).load_state_dict(state, folder=tmp_path)


def test_bad_input(tmp_path, types_unchecked):
    model = ViT(SMALL)
    with types_unchecked():
        with pytest.raises(InputError, match=r"reference must be InMemory\(\) or OnDisk\(folder\); got 'disk'"):
            RankTracker(model, reference="disk")
        with pytest.raises(InputError, match=r"dtype must be torch.float32, .* got torch.int8"):
            RankTracker(model, reference=InMemory(torch.int8))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="reference must have a folder that can be written to"):
        RankTracker(model, reference=OnDisk(tmp_path / "file" / "folder"))


def normed(old):
    model = LlamaAttention(12, 4, 2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the older one
        norm = torch.nn.utils.spectral_norm if old else torch.nn.utils.parametrizations.spectral_norm
        norm(model.o_proj)
    return model


@pytest.mark.parametrize("place", ["memory", "disk", "checkpoint"])
@pytest.mark.parametrize("old", [False, True], ids=["parametrization", "hook"])
def test_the_initial_weights_of_a_spectral_norm_are_normed_as_they_were(old, place, tmp_path):
    """Their norm is computed with vectors that training changes: they are stored with the weights."""
    torch.manual_seed(0)
    model = normed(old)
    torch.save(model.state_dict(), tmp_path / "start.pt")
    options = {"memory": {}, "disk": {"reference": OnDisk(tmp_path)}, "checkpoint": {"initial": tmp_path / "start.pt"}}
    tracker = RankTracker(model, **options[place])
    before = tracker._products.initial
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape))
    for _ in range(5):
        model(torch.randn(2, 3, 12))  # a power iteration each
    again = tracker._weights.then(tracker._weights.layers, tracker._initial, 0)
    after = product_spectrum(*(part.double() for part in again[1]))
    np.testing.assert_allclose(after.values.numpy(), before.values[1, :, :3], rtol=1e-5)
    with pytest.raises(InputError, match=r"type of weights with a spectral norm; got InMemory\(dtype=torch.bfloat16\)"):
        RankTracker(model, reference=InMemory(torch.bfloat16))
