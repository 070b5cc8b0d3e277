"""Adapters of models that Transformers does not know, and of names that end in each other."""

import copy
import json

import pytest
import torch
from saved_models import with_adapter
from torch import nn

from saddlescope.ranks.lora import extract_lora

pytest.importorskip("peft")


class Model(nn.Module):
    """Names as in lectures; `q` at the top is the end of `layer.q`, which does not change."""

    def __init__(self):
        super().__init__()
        self.tok_emb, self.pos_emb = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.layer = nn.ModuleDict({"q": nn.Linear(16, 16, bias=False)})
        self.q, self.out_head = nn.Linear(16, 16, bias=False), nn.Linear(16, 20, bias=False)
        self.attn = nn.MultiheadAttention(16, 2, bias=False, batch_first=True)

    def forward(self, tokens):
        x = self.layer["q"](self.tok_emb(tokens) + self.pos_emb.weight[: tokens.shape[1]])
        return self.out_head(self.attn(x, x, x)[0] + self.q(x))


def changed(model, *names):
    torch.manual_seed(1)
    tuned = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in tuned.named_parameters():
            if name.startswith(names):
                weight.add_(0.5 * torch.randn(weight.shape))
    return tuned


def stored(model, path):
    torch.save(model.state_dict(), path)
    return path


def test_what_no_adapter_holds_is_named_and_the_advice_works(tmp_path):
    torch.manual_seed(0)
    base = Model().eval()
    tuned = changed(base, "q.", "tok_emb", "pos_emb", "out_head")
    paths = stored(base, tmp_path / "b.pt"), stored(tuned, tmp_path / "t.pt")
    found = extract_lora(*paths, tmp_path / "adapter", rank=16)
    assert found.left_out == ("tok_emb.weight", "pos_emb.weight")
    assert "out_head" in found.remarks[-1]
    whole = extract_lora(*paths, tmp_path / "whole", rank=16, modules_to_save="*_emb")
    assert whole.left_out == ()
    tokens = torch.arange(6)[None]
    torch.testing.assert_close(
        with_adapter(copy.deepcopy(base), tmp_path / "whole")(tokens), tuned(tokens), rtol=1e-4, atol=1e-4
    )
    config = json.loads((tmp_path / "whole/adapter_config.json").read_text())
    assert isinstance(config["target_modules"], str)  # anchored: layer.q has no adapter


def test_fused_projections_without_an_adapter_are_named_first(tmp_path):
    torch.manual_seed(0)
    base = Model()
    tuned = changed(base, "q.", "attn.in_proj", "pos_emb")
    found = extract_lora(stored(base, tmp_path / "b.pt"), stored(tuned, tmp_path / "t.pt"), tmp_path / "a", rank=4)
    assert found.left_out == ("attn.in_proj_weight", "pos_emb.weight")
