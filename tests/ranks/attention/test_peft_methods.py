"""Adapters of PEFT: products are those of the weights with their active adapters, as PEFT itself merges them."""

import copy

import pytest
import torch
from real_models import GPT, GROUPED, transformers
from torch import nn

from saddlescope.ranks import RankTracker
from saddlescope.ranks.attention.attention_blocks import find_attention

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]
METHODS = {
    "LoRA": lambda: peft.LoraConfig(r=2, target_modules=TARGETS, init_lora_weights=False),
    "LoRA of Conv1D": lambda: peft.LoraConfig(
        r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False
    ),
    "rsLoRA": lambda: peft.LoraConfig(r=2, target_modules=TARGETS, init_lora_weights=False, use_rslora=True),
    "DoRA": lambda: peft.LoraConfig(r=2, target_modules=TARGETS, init_lora_weights=False, use_dora=True),
    "LoHa": lambda: peft.LoHaConfig(r=2, target_modules=TARGETS, init_weights=False),
    "LoKr": lambda: peft.LoKrConfig(r=2, target_modules=TARGETS, init_weights=False),
    "VeRA": lambda: peft.VeraConfig(r=2, target_modules=["q_proj", "o_proj"], init_weights=False),
    "OFT": lambda: peft.OFTConfig(r=0, oft_block_size=4, target_modules=TARGETS, init_weights=False),
    "BOFT": lambda: peft.BOFTConfig(boft_block_size=4, target_modules=TARGETS, init_weights=False),
    "IA3": lambda: peft.IA3Config(target_modules=["k_proj", "v_proj"], feedforward_modules=[], init_ia3_weights=False),
    "FourierFT": lambda: peft.FourierFTConfig(n_frequency=20, target_modules=TARGETS, init_weights=False),
    "modules_to_save": lambda: peft.LoraConfig(
        r=2, target_modules=["q_proj"], modules_to_save=["o_proj"], init_lora_weights=False
    ),
}


def adapted(method):
    torch.manual_seed(0)
    model = transformers.LlamaModel(transformers.LlamaConfig(**GROUPED))
    if method.endswith("Conv1D"):
        model = transformers.GPT2Model(transformers.GPT2Config(**GPT))
    wrapped = peft.get_peft_model(model, METHODS[method]())
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if parameter.requires_grad and ("magnitude" in name or "modules_to_save" in name or "ia3" in name):
                parameter.mul_(1 + 0.3 * torch.rand_like(parameter))
    return wrapped


@pytest.mark.filterwarnings("ignore")  # PEFT's own, by method
@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_products_are_those_of_the_merged_weights(method):
    model = adapted(method)
    found = find_attention(model)
    assert [row.outcome for row in found.coverage] == ["verified"] * 2
    factors = [[part.clone() for part in block.factors()[:4]] for block in found.blocks]
    base = find_attention(copy.deepcopy(model).unload()).blocks
    merged = find_attention(copy.deepcopy(model).merge_and_unload()).blocks
    for ours, block, plain in zip(factors, merged, base, strict=True):
        for one, other in zip(ours, block.factors()[:4], strict=True):
            torch.testing.assert_close(one, other)
        assert any(not torch.allclose(one, other) for one, other in zip(ours, plain.factors()[:4], strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["LoRA", "DoRA", "LoHa", "OFT", "modules_to_save"])
def test_the_tracker_follows_a_fine_tuning(method):
    """Train with SGD: the update is that between the merged models, and the tracker changes no bit of it."""
    model, free = adapted(method), adapted(method)
    before = find_attention(copy.deepcopy(model).merge_and_unload()).blocks[1].factors()
    tracker = RankTracker(model)
    tokens = torch.arange(3, 15).reshape(2, 6)
    for one in (model, free):
        optimizer = torch.optim.SGD([p for p in one.parameters() if p.requires_grad], lr=0.1)
        if one is model:
            tracker.watch(optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            one(input_ids=tokens).last_hidden_state.square().mean().backward()
            optimizer.step()
    for (name, ours), theirs in zip(model.state_dict().items(), free.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name
    after = find_attention(model.merge_and_unload()).blocks[1].factors()
    for index, product in enumerate(("KQ", "VO")):
        left, right = after.product(index)
        first, second = before.product(index)
        dense = left @ right.transpose(1, 2) - first @ second.transpose(1, 2)
        expected = torch.linalg.svdvals(dense.double())[:, :3]
        seen = torch.as_tensor(tracker.to_xarray().update_spectrum.sel(product=product).values[-1, 1, :, :3])
        torch.testing.assert_close(seen, expected, rtol=1e-3, atol=1e-6)


def test_an_adapter_of_unknown_kind_on_a_quantized_weight_is_refused():
    """A weight of integers, in a layer of the shape of a linear one."""
    model = transformers.LlamaModel(transformers.LlamaConfig(**GROUPED))
    layer = model.layers[0].self_attn.q_proj
    del layer._parameters["weight"]
    layer.register_buffer("weight", torch.zeros(32, 24, dtype=torch.int8))
    found = find_attention(model)
    assert [row.outcome for row in found.coverage] == ["refused", "verified"]
    assert "quantized" in found.coverage[0].reason
    assert isinstance(layer, nn.Linear)
