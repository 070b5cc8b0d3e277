"""Adapters of models that Transformers does not know, and of names that end in each other."""

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from saved_models import with_adapter
from torch import nn

from saddlescope.ranks.checkpoints import checkpoint_spectra
from saddlescope.ranks.lora import extract_lora, merge_into_base, merge_lora

peft = pytest.importorskip("peft")


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


def test_peft_loads_the_joint_projection_of_torchs_attention_and_out_proj_is_named(tmp_path):
    """PEFT adds an update of out_proj twice, so none is written."""
    torch.manual_seed(0)
    base = Model()
    tuned = changed(base, "q.", "attn.", "pos_emb")
    paths = stored(base, tmp_path / "b.pt"), stored(tuned, tmp_path / "t.pt")
    (chosen,) = extract_lora(*paths, tmp_path / "chosen", rank=1, matrices="attn*").layers
    assert chosen.name == "attn.in_proj_weight"
    found = extract_lora(*paths, tmp_path / "a", rank=16)
    assert found.left_out == ("attn.out_proj.weight", "pos_emb.weight")
    assert any("attn.out_proj.weight" in remark and "twice" in remark for remark in found.remarks)
    with torch.no_grad():
        tuned.attn.out_proj.weight.copy_(base.attn.out_proj.weight)
        tuned.pos_emb.weight.copy_(base.pos_emb.weight)
    tokens = torch.arange(6)[None]
    torch.testing.assert_close(with_adapter(base, tmp_path / "a")(tokens), tuned(tokens), rtol=1e-4, atol=1e-4)


def test_pefts_adapters_of_torchs_attention_are_read_merged_and_resized(tmp_path):
    torch.manual_seed(0)
    base = Model()
    stored(base, tmp_path / "b.pt")
    model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(r=3, lora_alpha=6, target_modules=["attn"]))
    factors = {name: one for name, one in model.named_parameters() if "lora_" in name}
    for one in factors.values():
        torch.nn.init.normal_(one)
    model.save_pretrained(str(tmp_path / "a"))
    read = checkpoint_spectra(tmp_path / "b.pt", tmp_path / "a", attention=False, matrices="attn*")
    B, A = ([one.detach().double() for name, one in factors.items() if side in name] for side in ("_B", "_A"))
    deltas = sorted((2 * left @ right for left, right in zip(B, A, strict=True)), key=len)[::-1]  # in_proj, out_proj
    for name, delta in zip(("attn.in_proj_weight", "attn.out_proj.weight"), deltas, strict=True):
        values = read.matrix_update_spectrum.sel(matrix=name).values[0]
        np.testing.assert_allclose(values[:3], np.linalg.svd(delta)[1][:3], rtol=1e-6)
    assert "twice" in " ".join(np.atleast_1d(read.attrs["remarks"]))
    merge_into_base(tmp_path / "b.pt", [tmp_path / "a"], tmp_path / "merged")
    merged = load_file(tmp_path / "merged/b.safetensors")["attn.in_proj_weight"].double()
    torch.testing.assert_close(merged - base.attn.in_proj_weight.double(), deltas[0], rtol=0, atol=1e-5)
    merge_lora([tmp_path / "a"], tmp_path / "same", rank=5)  # padded by zeros: PEFT has one rank for both
    tokens = torch.arange(6)[None]
    torch.testing.assert_close(with_adapter(base, tmp_path / "same")(tokens), model(tokens), rtol=1e-3, atol=1e-3)
