"""Updates counted from a saved checkpoint are those counted from the weights themselves."""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_vit import SMALL, step_at_random
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks import Angles, InMemory, RankTracker
from saddlescope.training import ViT


def save(kind, state, folder):
    """Store a state, and return its file or folder."""
    if kind == "safetensors":
        save_file(state, folder / "model.safetensors")
        return folder
    torch.save(state, folder / "start.pt")
    return folder / "start.pt"


@pytest.mark.parametrize(("kind", "reference"), [("safetensors", None), ("torch", None), ("torch", InMemory())])
def test_updates_from_a_file_are_those_from_the_weights(kind, reference, tmp_path):
    """Each record reads the file, unless the weights are kept elsewhere."""
    model = ViT(SMALL)
    path = save(kind, model.state_dict(), tmp_path)
    known = RankTracker(model, matrices="*.expand", recorders=[Angles(1)])
    step_at_random(model)
    weights = copy.deepcopy(model.state_dict())
    late = RankTracker(model, matrices="*.expand", recorders=[Angles(1)], initial=path, reference=reference)
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)
    if reference is not None:
        path.unlink()
    for tracker in (known, late):
        tracker.measure()
    assert late.to_xarray().identical(known.to_xarray())
    assert (late.stable_rank("KQ") >= 1).all()


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


def test_bad_input(tmp_path):
    model = ViT(SMALL)
    state = model.state_dict()
    with pytest.raises(InputError, match="There is no checkpoint"):
        RankTracker(model, initial=tmp_path / "nothing")
    other = {name: tensor for name, tensor in state.items() if "0.attention.value" not in name}
    path = save("torch", other, tmp_path)
    with pytest.raises(InputError, match=r"got no blocks.0.attention.value.weight in .*start.pt, which holds blocks.0"):
        RankTracker(model, initial=path)
    with pytest.raises(InputError, match=r"got blocks.0.attention.value.weight of shape \(6, 10\) .* of shape \(6, 12"):
        RankTracker(
            model, initial=save("torch", state | {"blocks.0.attention.value.weight": torch.ones(6, 10)}, tmp_path)
        )
    broken = state | {"blocks.0.attention.value.weight": torch.full((6, 12), torch.inf)}
    with pytest.raises(InputError, match=r"initial weights must be finite; got NaN or infinity in blocks.0.attention"):
        RankTracker(model, initial=save("torch", broken, tmp_path))
