"""The tracker on a GPU, if present: its records are those that the processor makes of the same weights."""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from saddlescope.measure import product_update_spectrum
from saddlescope.ranks import Angles, Every, Increments, Orders, RankTracker, Values
from saddlescope.ranks.tracker.initial_weights import OnDisk
from saddlescope.training import ViT, ViTConfig

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LLAMA = LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32,
)  # fmt: skip
MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=4)),
    "llama": lambda: LlamaForCausalLM(LLAMA),
    "vit": lambda: ViT(ViTConfig(image_size=8, channels=1, patch=4, embedding=64, depth=2, heads=2, head_width=32)),
}


def moved(model, size=1e-3):
    """Move all weights in the same way on every device."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            step = size * torch.randn(parameter.shape, generator=generator)
            parameter.add_(step.to(parameter.device, parameter.dtype))


def records(make, device, dtype, **options):
    torch.manual_seed(0)
    model = make().to(dtype).to(device)
    tracker = RankTracker(model, schedule=Every(1), **options)
    for _ in range(2):
        moved(model)
        tracker.step()
    return tracker.to_xarray()


def require_close(found, wanted, rtol=1e-5):
    for name in wanted.data_vars:
        one, other = found[name].values, wanted[name].values
        if one.dtype.kind != "f":
            continue
        scale = np.nanmax(np.abs(other), initial=1e-30)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-6 * scale, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODELS)
def test_records_are_those_of_the_processor(name, dtype):
    found, wanted = (records(MODELS[name], device, dtype, matrices="*") for device in ("cuda", "cpu"))
    require_close(found, wanted)


def test_options_measure_the_same(tmp_path):
    options = dict(matrices="*.mlp.*", recorders=[Values(3), Orders(), Increments(), Angles(2)])
    found, wanted = (records(MODELS["llama"], device, torch.float32, **options) for device in ("cuda", "cpu"))
    require_close(found, wanted, rtol=1e-4)
    kept = records(MODELS["llama"], "cuda", torch.float32, reference=OnDisk(tmp_path / "start"), **options)
    require_close(kept, found)


@pytest.fixture
def tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def test_float32_arithmetic_does_not_round_to_tf32(tf32):
    generator = torch.Generator().manual_seed(0)
    before = [torch.randn(4, 96, 16, generator=generator) for _ in range(2)]
    after = [one + 1e-4 * torch.randn(one.shape, generator=generator) for one in before]
    wanted = product_update_spectrum(*(one.double().numpy() for one in (*after, *before)))
    found = product_update_spectrum(*(one.cuda() for one in (*after, *before)))
    assert found.values.is_cuda
    np.testing.assert_allclose(found.values.cpu().numpy(), wanted.values, rtol=1e-5, atol=1e-6 * wanted.values.max())


def watch_copies(monkeypatch, name, shapes):
    """Note the shape of each tensor that this method copies from a GPU to the host."""
    method = getattr(torch.Tensor, name)

    def watched(tensor, *arguments, **options):
        copy = method(tensor, *arguments, **options)
        if tensor.is_cuda and not copy.is_cuda:
            shapes.append(tensor.shape)
        return copy

    monkeypatch.setattr(torch.Tensor, name, watched)


def test_nothing_but_singular_values_travels_to_the_host(monkeypatch):
    torch.manual_seed(0)
    model = MODELS["gpt2"]().cuda()
    tracker, shapes = RankTracker(model, schedule=Every(1)), []
    moved(model)
    for name in ("cpu", "to"):
        watch_copies(monkeypatch, name, shapes)
    tracker.step()
    assert shapes
    assert all(len(shape) < 3 and shape[-1:] <= (2 * 16,) for shape in shapes)  # of each head
