"""Selection of single matrices by name: matches, canonical names, and errors without a match."""

# pyright: reportArgumentType=false, reportOperatorIssue=false

import numpy as np
import pytest
import torch
from attention_standins import Layers
from small_vit import SMALL
from torch import nn

from refusals import refused
from saddlescope.ranks import Every, RankTracker
from saddlescope.ranks.module_names import canonical_name, unwrap_model
from saddlescope.ranks.tracker.matrix_selection import select_matrices
from saddlescope.training import ViT


class Tied(nn.Module):
    """Build a model whose head shares its matrix with the embedding, as in language models."""

    def __init__(self):
        super().__init__()
        self.embedding, self.inner, self.head = nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def test_patterns_match_parameters_and_their_modules():
    model = ViT(SMALL)
    mlp = [f"blocks.{k}.{name}.weight" for k in range(2) for name in ("expand", "contract")]
    assert list(select_matrices(model, "blocks.*.expand")) == [mlp[0], mlp[2]]
    assert list(select_matrices(model, "blocks.*.expand.weight")) == [mlp[0], mlp[2]]
    assert list(select_matrices(model, ["*.contract", "*.expand"])) == mlp  # in the order of the model
    assert list(select_matrices(model, "*0*")) == [name for name in select_matrices(model, "*") if "blocks.0" in name]
    model.empty = nn.Parameter(torch.zeros(0, 4))
    assert all(one.ndim == 2 and one.numel() for one in select_matrices(model, "*").values())  # no biases, no norms


def test_a_function_chooses_by_name_and_shape():
    chosen = select_matrices(ViT(SMALL), lambda name, parameter: "blocks.1" in name and 7 in parameter.shape)
    assert list(chosen) == ["blocks.1.expand.weight", "blocks.1.contract.weight"]


def test_shared_matrices_are_reported_once():
    model = Tied()
    for choice in ("*", ["embedding", "head", "inner"], lambda name, parameter: True):
        assert list(select_matrices(model, choice)) == ["embedding.weight", "inner.weight"]
    assert list(select_matrices(model, "head")) == ["embedding.weight"]  # found by any of its names


def test_patterns_that_match_nothing_are_refused():
    model = ViT(SMALL)
    some = r"Names are position, patch_embedding.weight, .* and \d+ more; \* matches any part"
    refused("got '\\*.mlp.\\*', which matches none. " + some, select_matrices, model, "*.mlp.*")
    refused("got 'fc1', which matches none", select_matrices, model, ["*.expand", "fc1"])
    refused(r"got 'norm.weight', which matches none", select_matrices, model, "norm.weight")  # no matrix
    refused(r"got <function .*which matches none", select_matrices, model, lambda name, parameter: False)
    refused("Names are none: the model has no matrix", select_matrices, nn.LayerNorm(3), "*")
    refused("matches none", select_matrices, model, ())


def test_names_are_those_of_the_model_whatever_is_around_it():
    model = nn.Sequential(ViT(SMALL), nn.Linear(4, 2))
    wrapped = nn.DataParallel(torch.compile(model, backend="eager"))
    assert list(select_matrices(wrapped, "*")) == list(select_matrices(model, "*"))
    assert unwrap_model(wrapped) is model
    inner = nn.Sequential(torch.compile(ViT(SMALL), backend="eager"), nn.Linear(4, 2))
    assert list(select_matrices(inner, "*")) == list(select_matrices(model, "*"))
    assert canonical_name("a._fsdp_wrapped_module.b._checkpoint_wrapped_module.weight") == "a.b.weight"
    tracker = RankTracker(wrapped, matrices="1")
    assert tracker.layers == RankTracker(inner).layers == ("0.blocks.0.attention", "0.blocks.1.attention")
    assert tracker.matrices == ("1.weight",)


def test_a_model_without_attention_is_tracked_by_its_matrices_alone():
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2, bias=False))
    tracker = RankTracker(model, matrices="*", schedule=Every(1))
    assert tracker.layers == ()
    change = torch.outer(torch.arange(5.0), torch.ones(6))
    with torch.no_grad():
        model[0].weight += change
    tracker.step()
    dataset = tracker.to_xarray()
    assert "update_spectrum" not in dataset
    assert dataset.matrix.values.tolist() == ["0.weight", "2.weight"]
    assert dataset.matrix_update_spectrum.dims == ("step", "matrix", "index")
    np.testing.assert_allclose(dataset.matrix_update_spectrum[0, 0], [float(change.norm()), *[0] * 4], atol=1e-5)
    assert not dataset.matrix_update_spectrum[0, 1].any()
    assert np.isnan(dataset.matrix_stable_rank[0, 1])


class OwnAttention(Layers, mixing=(4, 12)):
    """Attention with unknown names."""


def test_attention_under_unknown_names_is_reported_where_matrices_are_chosen():
    model = nn.Sequential(nn.Linear(4, 4), OwnAttention())
    with pytest.warns(UserWarning, match=r"not tracked: 1 of OwnAttention, such as 1: no layout.*mixing.*layouts="):
        assert RankTracker(model, matrices="0").layers == ()
    RankTracker(model, matrices="0", attention=False)  # requested, so nothing to report
    RankTracker(nn.ModuleDict({"attn": ViT(SMALL)}), matrices="*.expand")  # found


def cube(*shape):
    return lambda: nn.Parameter(torch.randn(*shape))


class Experts(Layers, up=cube(3, 6, 4), down=cube(3, 4, 5)):
    """Experts of a mixture, as Transformers 5 has them: parameters of three axes in a module of this kind."""


class Mixture(Layers, position=cube(1, 7, 4), convolution=lambda: nn.Conv1d(4, 4, 3), gate=(4, 3, False), mlp=Experts):
    """Experts among parameters that are no matrices."""


def test_experts_are_matrices_of_their_own():
    model = Mixture()
    experts = [f"mlp.{name}[{expert}]" for name in ("up", "down") for expert in range(3)]
    assert list(select_matrices(model, "*")) == ["gate.weight", *experts]
    assert list(select_matrices(model, "mlp.down")) == experts[3:]
    assert list(select_matrices(model, ["mlp.down[1]", "*.up[2]"])) == [experts[2], experts[4]]
    assert list(select_matrices(model, lambda name, parameter: name.endswith("[0]"))) == [experts[0], experts[3]]
    assert list(select_matrices(model, "*", experts=False)) == ["gate.weight"]
    refused(r"got 'mlp\.up\[3\]', which matches none", select_matrices, model, "mlp.up[3]")


def test_each_expert_has_the_spectrum_of_its_own_update():
    model = Mixture().double()
    before = model.mlp.down.detach().clone()
    tracker = RankTracker(model, attention=False, matrices=["mlp.down", "gate"], schedule=Every(1))
    assert set(tracker.state_dict()["weights"]) == {"mlp.down", "gate.weight"}  # each parameter once
    with torch.no_grad():
        model.mlp.down[1] += torch.outer(torch.ones(4), torch.ones(5)).double()
        model.mlp.down[2] += torch.randn(4, 5).double()
    tracker.step()
    dataset = tracker.to_xarray().isel(step=0)
    assert not dataset.matrix_update_norm.sel(matrix="mlp.down[0]").item()
    assert dataset.matrix_stable_rank.sel(matrix="mlp.down[1]").item() == pytest.approx(1)
    for expert in range(3):
        expected = torch.linalg.svdvals(model.mlp.down.detach()[expert] - before[expert])
        found = dataset.matrix_update_spectrum.sel(matrix=f"mlp.down[{expert}]")[:4]
        np.testing.assert_allclose(found, expected, atol=1e-7)
