"""Adapters between checkpoints: the best of their rank, loadable by PEFT, with the predicted error of the logits."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from saved_models import gpt2, llama, save
from stored_models import moved, stored

from refusals import refused
from saddlescope.ranks.lora import extract_lora, logits_error
from saddlescope.ranks.lora.truncated_svd import TruncatedSVD

pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

LINEAR = ("c_attn.weight", "c_proj.weight", "c_fc.weight", "_proj.weight")


def tuned_like(model, *, size=0.02, decay=0.6, seed=1):
    """Return weights after training: linear layers moved by matrices with geometrically decreasing singular values."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, weight in model.state_dict().items():
        if name.endswith(LINEAR):
            U, _, Vh = torch.linalg.svd(torch.randn(weight.shape, generator=generator), full_matrices=False)
            found[name] = weight + size * (U * decay ** torch.arange(len(Vh))) @ Vh
        else:
            found[name] = weight
    return found


def on_disk(tmp_path, model):
    """Return folders of the model and of the tuned one, in the format of Transformers."""
    base = save(model, tmp_path / "base")
    model.load_state_dict(tuned_like(model))
    return base, save(model, tmp_path / "tuned")


@pytest.fixture(params=[gpt2, llama])
def folders(request, tmp_path):
    return on_disk(tmp_path, request.param())


def weights(folder, stem="model"):
    return load_file(folder / f"{stem}.safetensors")


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (6, 6), (1, 4), (4, 1)])
def test_the_factors_are_the_best_of_their_rank(shape):
    generator = torch.Generator().manual_seed(0)
    for update in (torch.randn(shape, generator=generator), 1e-200 * torch.randn(shape, generator=generator).double()):
        best, exact = TruncatedSVD.of(update), torch.linalg.svdvals(update.double())
        np.testing.assert_allclose(best.values, exact, rtol=1e-7)
        for rank in range(min(shape) + 1):
            B, A = best.truncate(rank)
            assert (B.shape, A.shape) == ((shape[0], rank), (rank, shape[1]))
            error = (update.double() / exact[0] - B @ (A / exact[0])).norm()
            assert float(error) == pytest.approx(float((exact[rank:] / exact[0]).norm()), rel=1e-6, abs=1e-7)
            np.testing.assert_allclose((B.T @ B / exact[0]).numpy(), torch.diag(exact[:rank] / exact[0]), atol=1e-7)


def test_each_layer_keeps_the_energy_asked_for_with_the_least_rank(folders, tmp_path):
    base, tuned = folders
    made = extract_lora(base, tuned, tmp_path / "adapter", energy=0.9)
    before, after = weights(base), weights(tuned)
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    squares = {}
    for layer in made.layers:
        values = torch.linalg.svdvals((after[f"{layer.name}.weight"] - before[f"{layer.name}.weight"]).double())
        squares[layer.name] = values**2
        shares = ((values**2).cumsum(0) / (values**2).sum()).tolist()
        assert shares[layer.rank - 1] >= 0.9 > ([0.0, *shares])[layer.rank - 1]
        assert layer.captured_energy() == pytest.approx(shares[layer.rank - 1])
        assert config["rank_pattern"].get(layer.name, config["r"]) == layer.rank
        assert config["alpha_pattern"].get(layer.name, config["lora_alpha"]) == layer.rank
    assert made.captured_energy >= 0.9
    assert made.parameters == sum(one.numel() for one in weights(made.folder, "adapter_model").values())
    total = sum(float(one.sum()) for one in squares.values())
    for rank in (1, 2, 5, 24):
        kept, least, parameters = made.at_rank(rank)
        assert kept == pytest.approx(sum(float(one[:rank].sum()) for one in squares.values()) / total)
        assert least == pytest.approx(min(float(one[:rank].sum() / one.sum()) for one in squares.values()))
        assert parameters == sum(min(rank, *one.shape) * sum(one.shape) for one in made.layers)


def test_logits_lose_what_the_energy_says(folders, tmp_path):
    base, tuned = folders
    for energy in (0.5, 0.9, 0.99):
        made = extract_lora(base, tuned, tmp_path / "adapter", energy=energy)
        error = logits_error(base, tuned, made.folder)
        assert 0.3 < error.relative / np.sqrt(1 - made.captured_energy) < 2
        assert error.divergence < error.base_divergence
    extract_lora(base, tuned, tmp_path / "adapter", energy=1.0)
    error = logits_error(base, tuned, tmp_path / "adapter")
    assert error.relative < 1e-4
    assert error.agreement == 1


def test_a_file_of_the_inner_model_gets_the_names_of_the_whole(tmp_path):
    """Use the published file of GPT-2, which has h.0 for transformer.h.0: PEFT would silently ignore such names."""
    base, tuned = on_disk(tmp_path, gpt2())
    inner = {name.removeprefix("transformer."): one for name, one in weights(base).items() if "lm_head" not in name}
    stored(base, inner)
    made = extract_lora(base, tuned, tmp_path / "adapter", energy=1.0)
    assert all(layer.name.startswith("transformer.h.") for layer in made.layers)
    assert logits_error(base, tuned, made.folder).relative < 1e-4


def test_layers_that_did_not_change_get_no_adapter(tmp_path):
    base, tuned = on_disk(tmp_path, gpt2())
    before, after = weights(base), weights(tuned)
    frozen = {name: before[name] if ".h.0." in name else one for name, one in after.items()}
    stored(tuned, frozen)
    made = extract_lora(base, tuned, tmp_path / "adapter", rank=2)
    assert {layer.name: layer.rank for layer in made.layers if ".h.0." in layer.name} == dict.fromkeys(
        [f"transformer.h.0.{name}" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")], 0
    )
    config = json.loads((made.folder / "adapter_config.json").read_text())
    assert all(".h.1." in name for name in config["target_modules"])
    assert logits_error(base, tuned, made.folder).relative < 1
    stored(tuned, before)
    refused(r"must differ from .* in a linear layer", extract_lora, base, tuned, tmp_path / "adapter", rank=2)


def test_a_layer_that_cannot_be_used_is_reported_and_all_others_are_in_the_adapter(tmp_path):
    base, tuned = on_disk(tmp_path, gpt2())
    after = weights(tuned)
    after["transformer.h.0.mlp.c_fc.weight"][0, 0] = torch.nan
    before = weights(base)["transformer.h.1.mlp.c_fc.weight"]
    few = torch.rand(before.shape, generator=torch.Generator().manual_seed(0)) < 0.05
    after["transformer.h.1.mlp.c_fc.weight"] = torch.where(few, torch.nextafter(before, -before), before)
    stored(tuned, after)
    faults: list[str] = []
    made = extract_lora(base, tuned, tmp_path / "adapter", rank=2, on_error=faults.append)
    assert len(made.layers) == 6
    assert "NaN or infinity in transformer.h.0.mlp.c_fc.weight" in faults[0]
    assert "not measurable in this precision, for transformer.h.1.mlp.c_fc.weight" in faults[1]
    refused("NaN or infinity", extract_lora, base, tuned, tmp_path / "adapter", rank=2)


def test_an_adapter_appears_whole_and_replaces_adapters_alone(tmp_path, monkeypatch):
    base, tuned = on_disk(tmp_path, gpt2())
    out = tmp_path / "adapter"
    out.mkdir()
    (out / "thesis.tex").write_text("")
    refused("must be a new folder or an adapter", extract_lora, base, tuned, out, rank=2)
    (out / "thesis.tex").unlink()
    extract_lora(base, tuned, out, rank=2)
    first = (out / "adapter_model.safetensors").read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        refused(r"Cannot write .*: No space left on device", extract_lora, base, tuned, out, rank=1)
    assert (out / "adapter_model.safetensors").read_bytes() == first
    extract_lora(base, tuned, out, rank=1)
    assert (out / "adapter_model.safetensors").read_bytes() != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "base", "tuned"]


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, "energy or rank must be given, and only one of them"),
        ({"energy": 0.9, "rank": 2}, "energy or rank must be given, and only one of them"),
        ({"energy": 1.1}, "energy must be greater than 0 and at most 1; got 1.1"),
        ({"rank": 0}, "rank must be at least 1; got 0"),
        ({"rank": 1, "matrices": "*gate*"}, "matrices must select weight matrices"),
        ({"rank": 1, "matrices": "b.*"}, "matrices must select weights of linear layers, .* got b.in_proj_weight"),
        ({"rank": 2, "max_rank": 3}, "max_rank must be at least 1, and beside energy"),
        ({"rank": 2, "dtype": "int8"}, "dtype must be float32, float16, bfloat16; got 'int8'"),
        ({"rank": 2, "exclude": "*q"}, r"exclude must match weights that would get an adapter; got '\*q'"),
        ({"rank": 2, "exclude": "*"}, "exclude must leave a weight"),
        ({"rank": 2, "modules_to_save": "head"}, "modules_to_save must match modules with weights; got 'head'"),
    ],
)
def test_options_that_cannot_be_meant(tmp_path, options, reported):
    base = stored(tmp_path / "base", {"a.weight": torch.ones(3, 3), "b.in_proj_weight": torch.ones(3, 3)})
    refused(reported, extract_lora, base, base, tmp_path / "adapter", **options)


def test_without_a_configuration_names_stay_and_logits_are_not_compared(tmp_path):
    tensors = {"deep.a.weight": torch.randn(3, 4), "b.weight": torch.randn(2, 3)}
    base, tuned = stored(tmp_path / "base", tensors), stored(tmp_path / "tuned", moved(tensors, 1))
    made = extract_lora(base, tuned, tmp_path / "adapter", energy=1.0)
    assert [(layer.name, layer.rank) for layer in made.layers] == [("b", 2), ("deep.a", 3)]
    refused(r"must be a folder with a config\.json of a model of Transformers", logits_error, base, tuned, made.folder)


def test_text_needs_a_tokenizer(tmp_path):
    base, tuned = on_disk(tmp_path, gpt2())
    made = extract_lora(base, tuned, tmp_path / "adapter", rank=2)
    (tmp_path / "text.txt").write_text("to be or not to be " * 20)
    refused("must have a tokenizer", logits_error, base, tuned, made.folder, text=tmp_path / "text.txt")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"to": 0, "be": 1, "or": 2, "not": 3, "?": 4}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(base)
    error = logits_error(base, tuned, made.folder, text=tmp_path / "text.txt")
    assert error.tokens in (64, 120, 128, 96)
    assert 0 < error.relative < 1
    refused("text must be a readable file of text", logits_error, base, tuned, made.folder, text=tmp_path / "none.txt")
