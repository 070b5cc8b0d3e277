"""Initial weights: stored once per parameter; updates counted from memory, disk or a checkpoint are the same."""

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

from refusals import refused
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


def save(kind, state, folder):
    """Store a state, and return its file or folder."""
    if kind == "safetensors":
        save_file(state, folder / "model.safetensors")
        return folder
    torch.save(state, folder / "start.pt")
    return folder / "start.pt"


@pytest.mark.parametrize(
    ("place", "dtype"),
    [
        *(("disk", dtype) for dtype in (torch.float32, torch.bfloat16)),
        *((place, torch.float32) for place in ("tree", "safetensors", "torch", "torch, kept in memory")),
    ],
)
def test_records_are_the_same_wherever_the_initial_weights_are(place, dtype, tmp_path):
    """In memory as a reference. Files are given to a model that was trained before; trees may change with the model."""
    model = ViT(SMALL).to(dtype)
    options = {"schedule": Every(1), "matrices": "*.expand", "recorders": [Angles(1)]}
    known = RankTracker(model, **options)
    if place == "disk":
        other = RankTracker(model, reference=OnDisk(tmp_path / "start"), **options)
        (file,) = (tmp_path / "start").iterdir()
        assert other._initial.digest() == known._initial.digest()
        assert other._initial.digest()[:16] in file.name
    elif place == "tree":
        other = RankTracker(model, initial=model.state_dict(), **options)
    else:
        kept = place.endswith("memory")
        path = save(place.partition(",")[0], model.state_dict(), tmp_path)
        step_at_random(model, seed=2)
        weights = copy.deepcopy(model.state_dict())
        other = RankTracker(model, initial=path, reference=InMemory() if kept else None, **options)
        torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)
        if kept:
            path.unlink()
    for seed in range(2):
        step_at_random(model, seed=seed)
        known.step()
        other.step()
    assert other.to_xarray().identical(known.to_xarray())
    assert (other.stable_rank("KQ") >= 1).all()


@pytest.mark.parametrize("built", [nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2, kdim=4, vdim=6)])
def test_any_layout_reads_its_weights_from_a_file(built, tmp_path):
    path = save("torch", built.state_dict(), tmp_path)
    before = RankTracker(built).records.products.initial.values
    step_at_random(built)
    np.testing.assert_array_equal(RankTracker(built, initial=path).records.products.initial.values, before)


def test_a_leading_part_of_the_names_may_differ(tmp_path):
    model = ViT(SMALL)
    inside = nn.ModuleDict({"model": model})
    paths = []
    for name, state in (("alone", model.state_dict()), ("wrapped", inside.state_dict())):
        (tmp_path / name).mkdir()
        paths.append(save("torch", state, tmp_path / name))
    alone, wrapped = paths
    expected = RankTracker(model).records.products.initial.values
    step_at_random(model)
    for tracked, path in ((inside, alone), (model, wrapped), (torch.compile(model, backend="eager"), alone)):
        np.testing.assert_array_equal(RankTracker(tracked, initial=path).records.products.initial.values, expected)


def test_a_shared_matrix_is_found_under_any_of_its_names(tmp_path):
    model = nn.Module()
    model.embedding, model.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    model.head.weight = model.embedding.weight
    path = save("safetensors", {"head.weight": model.head.weight.detach().clone()}, tmp_path)
    step_at_random(model)
    tracker = RankTracker(model, matrices="embedding", initial=path)
    tracker.measure()
    assert tracker.to_xarray().matrix_stable_rank[0, 0] >= 1


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
    model, name = ViT(SMALL), "blocks.0.attention.value.weight"
    with types_unchecked():
        refused(r"must be InMemory\(\) or OnDisk\(folder\); got 'disk'", RankTracker, model, reference="disk")
        refused("dtype must be torch.float32, .* got torch.int8", RankTracker, model, reference=InMemory(torch.int8))
    (tmp_path / "file").write_text("")
    unwritable = OnDisk(tmp_path / "file" / "folder")
    refused("reference must have a folder that can be written to", RankTracker, model, reference=unwritable)
    refused("There is no checkpoint", RankTracker, model, initial=tmp_path / "nothing")
    state = model.state_dict()
    for change, reported in (
        ({}, rf"got no {name} in .*start.pt, which holds blocks.0"),
        ({name: torch.ones(6, 10)}, rf"got {name} of shape \(6, 10\) .* of shape \(6, 12"),
        ({name: torch.full((6, 12), torch.inf)}, "initial weights must be finite; got NaN or infinity in blocks.0.att"),
    ):
        path = save("torch", {n: one for n, one in state.items() if n != name} | change, tmp_path)
        refused(reported, RankTracker, model, initial=path)


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
