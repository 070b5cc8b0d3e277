"""Weights of 8 bits with scales, under the names and in the shapes of the programs that write them."""

# pyright: reportArgumentType=false

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from stored_models import of_matrices

from saddlescope._shared.errors import InputError
from saddlescope.ranks import checkpoint_spectra
from saddlescope.ranks.checkpoints import Checkpoint

ROWS, COLUMNS = 200, 300  # no multiple of a block


def draw(seed, *shape):
    return torch.randn(*(shape or (ROWS, COLUMNS)), generator=torch.Generator().manual_seed(seed))


def quantised(weight, block):
    """Return the numbers of 8 bits and the scales of blocks, and their product."""
    counts = [-(-length // size) for length, size in zip(weight.shape, block, strict=True)]
    scale = torch.empty(counts)
    whole = torch.empty_like(weight)
    for i in range(counts[0]):
        for j in range(counts[1]):
            here = slice(block[0] * i, block[0] * (i + 1)), slice(block[1] * j, block[1] * (j + 1))
            scale[i, j] = weight[here].abs().max() / 448
            whole[here] = scale[i, j]
    stored = (weight / whole).to(torch.float8_e4m3fn)
    return stored, scale, stored.float() * whole


FORMS = {
    "DeepSeek": ("layer.weight", "layer.weight_scale_inv", (128, 128), None),
    "DeepSeek, blocks as stated": ("layer.weight", "layer.weight_scale_inv", (100, 64), None),
    "compressed-tensors, rows": ("layer.weight", "layer.weight_scale", (1, COLUMNS), None),
    "compressed-tensors, tensor": ("layer.weight", "layer.weight_scale", (ROWS, COLUMNS), (1,)),
    "ModelOpt": ("layer.weight", "layer.weight_scale", (ROWS, COLUMNS), ()),
    "vLLM, rows": ("layer.weight", "layer.weight_scale", (1, COLUMNS), (ROWS,)),
    "ComfyUI": ("layer.weight", "layer.scale_weight", (ROWS, COLUMNS), ()),
    "torchao": ("layer._weight_qdata", "layer._weight_scale", (1, COLUMNS), None),
    "torchao, first": ("layer.weight:qdata", "layer.weight:scale", (1, COLUMNS), None),
    "Transformers, experts": ("layer.weight", "layer.weight_scale", (ROWS, 1), None),
}


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_the_stored_numbers_times_their_scales(form, tmp_path):
    name, scale_name, block, shape = FORMS[form]
    base, update = draw(0), draw(1)
    stored, scale, expected = quantised(base + update, block)
    scale = scale if shape is None else scale.reshape(shape)
    (tmp_path / "tuned").mkdir()
    save_file({"layer.weight": base}, tmp_path / "base.safetensors")
    save_file({name: stored, scale_name: scale}, tmp_path / "tuned" / "model.safetensors")
    (tmp_path / "tuned" / "config.json").write_text(
        json.dumps({"quantization_config": {"weight_block_size": list(block)}} if "stated" in form else {})
    )
    checkpoint = Checkpoint.open(tmp_path / "tuned")
    assert list(checkpoint.tensors) == ["layer.weight"]
    torch.testing.assert_close(checkpoint.read(["layer.weight"])["layer.weight"], expected, rtol=1e-6, atol=0)
    found = of_matrices(tmp_path / "base.safetensors", tmp_path / "tuned")
    values = torch.linalg.svdvals((expected - base).double())
    np.testing.assert_allclose(found.matrix_update_spectrum[0, 0], values, rtol=1e-6, atol=1e-6)
    error = torch.linalg.matrix_norm(expected - base - update, ord=2)  # of quantisation alone
    assert error <= found.matrix_noise_floor.item() <= 3 * error


@pytest.mark.parametrize("name", ["a.weight_scale", "a.weight_scale_inv"])
@pytest.mark.parametrize("kind", ["uint8", "float8_e8m0fnu"])
def test_scales_of_mx_are_exponents_of_blocks_of_32(kind, name, tmp_path):
    if not hasattr(torch, kind):
        pytest.skip("this PyTorch lacks the type")
    stored = draw(0, 64, 300).to(torch.float8_e4m3fn)
    exponents = torch.arange(118, 128, dtype=torch.uint8).expand(64, 10).contiguous()
    save_file({"a.weight": stored, name: exponents.view(getattr(torch, kind))}, tmp_path / "a.safetensors")
    expected = stored.float() * 2.0 ** (torch.arange(300) // 32 - 9)
    torch.testing.assert_close(Checkpoint.open(tmp_path).read(["a.weight"])["a.weight"], expected, rtol=0, atol=0)


def test_a_scale_in_another_shard_is_found(tmp_path):
    stored, scale, expected = quantised(draw(0), (1, COLUMNS))
    files = {"1.safetensors": {"a.weight": stored}, "2.safetensors": {"a.weight_scale": scale}}
    for name, tensors in files.items():
        save_file(tensors, tmp_path / name)
    index = {"weight_map": {name: file for file, tensors in files.items() for name in tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = Checkpoint.open(tmp_path)
    assert list(checkpoint.tensors) == ["a.weight"]
    torch.testing.assert_close(checkpoint.read(["a.weight"])["a.weight"], expected)
    (tmp_path / "2.safetensors").unlink()
    save_file({"b.weight": expected}, tmp_path / "3.safetensors")
    index["weight_map"]["b.weight"] = "3.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    without = Checkpoint.open(tmp_path, on_error=lambda _: None)
    assert list(without.tensors) == ["b.weight"]
    assert "a.weight" in without.lost


def test_what_quantisation_changes_is_below_the_noise_floor(tmp_path):
    """So that a model and its quantised form do not differ in anything that was learned."""
    weights = {f"layers.0.attn.{name}_proj.weight": draw(k, 64, 64) / 8 for k, name in enumerate("qkvo")}
    save_file(weights, tmp_path / "base.safetensors")
    tensors = {}
    for name, weight in weights.items():
        tensors[name], tensors[f"{name}_scale"], _ = quantised(weight, (1, 64))
    save_file(tensors, tmp_path / "quantised.safetensors")
    sentences: list[str] = []
    found = checkpoint_spectra(
        tmp_path / "base.safetensors", tmp_path / "quantised.safetensors", heads=4, matrices="*",
        on_error=sentences.append,
    )  # fmt: skip
    assert not found.measurable.any()
    assert not found.matrix_measurable.any()
    assert np.isnan(found.stable_rank).all()
    assert "below the noise floor" in sentences[0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("q.weight", torch.uint8), ("q.codes", torch.int8), ("q.Qidxs", torch.int64), ("q.weight._data", torch.int32)],
)
def test_packed_weights_are_named(name, kind, tmp_path):
    files = [tmp_path / f"{number}.safetensors" for number in range(2)]
    for number, file in enumerate(files):
        buffers = {"q.mask": torch.ones(3, 3).bool(), "e.position_ids": torch.ones(1, 3).long()}
        save_file({"head.weight": draw(number), name: draw(number).to(kind)} | buffers, file)
    faults: list[str] = []
    found = of_matrices(*files, on_error=faults.append)
    assert found.matrix.values.tolist() == ["head.weight"]
    assert len(faults) == 1
    assert f"got integers, as of a quantised model, in {name}. Dequantise it" in faults[0]


def test_shapes_that_are_no_scale_are_refused(tmp_path):
    save_file({"a.weight": draw(0)}, tmp_path / "base.safetensors")
    stored = draw(0).to(torch.float8_e4m3fn)
    for scale in (
        torch.ones(3),
        torch.ones(7, 7),
        torch.ones(0, 1),
    ):  # three of a fused layer; no block has 200 / 7 rows
        save_file({"a.weight": stored, "a.weight_scale": scale}, tmp_path / "tuned.safetensors")
        with pytest.raises(InputError, match=r"must have scales of a\.weight, \(200, 300\): one, or one per row"):
            of_matrices(tmp_path / "base.safetensors", tmp_path / "tuned.safetensors")
    save_file({"a.weight": stored, "a.scale": torch.ones(1)}, tmp_path / "tuned.safetensors")
    with pytest.raises(InputError, match=r"got float8_e4m3fn in a\.weight"):
        of_matrices(tmp_path / "base.safetensors", tmp_path / "tuned.safetensors")
