"""Formats of adapters, each loaded by the program that it is for; convolutions, experts, vocabularies, tied heads."""

import copy
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from saved_models import TEXT, build, load, save, saved_pair, text_model, with_adapter
from stored_models import moved, of_matrices, stored

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints import checkpoint_spectra
from saddlescope.ranks.checkpoints.adapter_files import AdapterFile
from saddlescope.ranks.checkpoints.adapter_updates import STORED_NAMES, part_of
from saddlescope.ranks.lora import extract_lora, logits_error, merge_lora, weights_error

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def unet(tmp_path_factory):
    """Folders of a UNet before and after a change, and the changed one."""
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    model = diffusers.UNet2DConditionModel(
        sample_size=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), block_out_channels=(16, 32), layers_per_block=1,
        cross_attention_dim=12, attention_head_dim=4, norm_num_groups=8,
    )  # fmt: skip
    return saved_pair(tmp_path_factory.mktemp("unet"), model, matrices)


def matrices(name, parameter):
    return parameter.ndim > 1


def header(file):
    with safe_open(file, "pt") as held:
        return held.metadata()


def test_names_that_are_written_are_those_that_are_read():
    for names in STORED_NAMES.values():
        for role, name in names.items():
            assert part_of(f"layer.{name}") == ("layer", role)


@pytest.mark.parametrize("form", ["diffusers", "kohya"])
def test_diffusers_loads_every_layer(form, unet, tmp_path):
    """Ranks differ, which Diffusers misreads if a file states one alpha per module."""
    base, tuned, _ = unet
    half = extract_lora(base, tuned, tmp_path / "a", energy=0.5, convolutions=True, format=form)
    assert len({layer.rank for layer in half.layers}) > 2
    outside = {"conv_in.weight", "conv_out.weight", "time_embedding.linear_1.weight", "time_embedding.linear_2.weight"}
    assert set(half.left_out) == (outside if form == "kohya" else set())
    error = weights_error(base, tuned, half.adapter, format=form)
    assert error.loaded
    assert error.relative == pytest.approx((1 - half.captured_energy) ** 0.5, rel=1e-4)
    if form == "kohya":
        assert header(half.adapter)["ss_network_module"] == "networks.lora"
        assert header(half.adapter)["ss_network_dim"] == "Dynamic"
        assert all(name.startswith("lora_unet_") and name.count(".") < 3 for name in load_file(half.adapter))
    else:
        assert "unet.rank_pattern" in json.loads(header(half.adapter)["lora_adapter_metadata"])


def test_a_configuration_of_another_size_takes_no_memory(unet, tmp_path):
    base, tuned = tmp_path / "base", unet[1]
    shutil.copytree(unet[0], base)
    made = extract_lora(base, tuned, tmp_path / "a", rank=1, format="diffusers")
    config = json.loads((base / "config.json").read_text())
    for odd, reported in (
        ({"layers_per_block": 10**6}, "layers_per_block 1000000"),
        ({"layers_per_block": 500}, "more than .* parameters"),
        ({"cross_attention_dim": 10**9}, "states more parameters than the files hold"),
    ):
        (base / "config.json").write_text(json.dumps(config | odd))
        refused(reported, weights_error, base, tuned, made.adapter, format="diffusers")


def test_files_that_diffusers_writes_are_read_by_hand_and_resized_in_their_format(unet, tmp_path):
    """Diffusers writes alpha into the header, and its converter to kohya's format replaces it by the rank."""
    diffusers = pytest.importorskip("diffusers")
    model = copy.deepcopy(unet[2])
    settings = {"target_modules": ["to_q", "conv1"], "rank_pattern": {"conv1": 2}, "init_lora_weights": False}
    model.add_adapter(peft.LoraConfig(r=4, lora_alpha=16, **settings))
    state = peft.get_peft_model_state_dict(model)
    diffusers.StableDiffusionPipeline.save_lora_weights(
        tmp_path / "d", unet_lora_layers=state, unet_lora_adapter_metadata=model.peft_config["default"].to_dict()
    )
    converted = diffusers.utils.convert_state_dict_to_kohya({f"unet.{name}": one for name, one in state.items()})
    save_file({name: one.contiguous() for name, one in converted.items()}, tmp_path / "k.safetensors")
    for file, rename, alpha in ((tmp_path / "d", "unet.{}".format, 16), (tmp_path / "k.safetensors", flat, None)):
        again = merge_lora([file], tmp_path / "again", rank=4)
        found = [AdapterFile.open(path) for path in (file, again.adapter)]
        for name in [name.removesuffix(".lora_A.weight") for name in state if "lora_A" in name]:
            A, B = (state[f"{name}.lora_{side}.weight"].double() for side in "AB")
            scale = (alpha or len(A)) / len(A)
            expected = scale * torch.einsum("or,rikl->oikl" if A.ndim > 2 else "or,ri->oi", B.flatten(1), A)
            for adapter in found:
                own = adapter.update(rename(name))
                assert float((own - expected).norm() / expected.norm()) < 1e-6


def flat(name):
    return f"lora_unet_{name.replace('.', '_')}"


@pytest.mark.parametrize("form", ["diffusers", "kohya"])
def test_a_text_encoder_has_the_names_of_files_whatever_those_in_memory(form, tmp_path):
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    config = transformers.CLIPTextConfig(**TEXT)
    base, tuned, model = saved_pair(tmp_path, transformers.CLIPTextModel(config), matrices)
    made = extract_lora(base, tuned, tmp_path / "a", energy=1.0, format=form)
    assert len(made.layers) == 6 * TEXT["num_hidden_layers"]
    assert weights_error(base, tuned, made.adapter, format=form).relative < 1e-4
    pipeline = diffusers.StableDiffusionPipeline
    state, alphas = pipeline.lora_state_dict(str(made.folder), weight_name=made.adapter.name)
    adapted = load("CLIPTextModel", base)
    pipeline.load_lora_into_text_encoder(state, network_alphas=alphas, text_encoder=adapted, prefix="text_encoder")
    expected, before = dict(model.named_parameters()), dict(load("CLIPTextModel", base).named_parameters())
    layers = {name: one for name, one in adapted.named_modules() if hasattr(one, "get_delta_weight")}
    assert len(layers) == len(made.layers)
    for name, layer in layers.items():
        update = expected[f"{name}.weight"] - before[f"{name}.weight"]
        torch.testing.assert_close(layer.get_delta_weight(next(iter(layer.r))), update, rtol=0, atol=1e-5)


def test_a_file_of_a_denoiser_alone_keeps_the_names_of_its_authors(tmp_path):
    generator = torch.Generator().manual_seed(0)
    tensors = {f"model.diffusion_model.{name}": torch.randn(*shape, generator=generator) for name, shape in
               {"input_blocks.1.1.to_q.weight": (8, 8), "out.2.weight": (4, 8, 3, 3)}.items()}  # fmt: skip
    tensors["first_stage_model.to_q.weight"] = torch.randn(8, 8, generator=generator)
    paths = stored(tmp_path / "base", tensors), stored(tmp_path / "tuned", moved(tensors, 1))
    files = [path / "model.safetensors" for path in paths]
    made = extract_lora(*files, tmp_path / "a", energy=1.0, convolutions=True, format="kohya")
    assert weights_error(*files, made.adapter, format="kohya").relative < 1e-5
    modules = {name.partition(".")[0] for name in load_file(made.adapter)}
    assert modules == {"lora_unet_input_blocks_1_1_to_q", "lora_unet_out_2"}
    assert made.left_out == ("first_stage_model.to_q.weight",)
    again = extract_lora(*files, tmp_path / "a", rank=1, format="kohya")  # replaces an adapter
    assert len(load_file(again.adapter)) == 3
    refused("must be a part of a pipeline", extract_lora, *files, tmp_path / "b", rank=1, format="diffusers")
    refused("must be a new folder or an adapter", extract_lora, *files, paths[1], rank=1, format="kohya")
    with pytest.raises(InputError, match="format must be peft, diffusers, kohya; got 'a1111'"):
        extract_lora(*files, tmp_path / "b", rank=1, format="a1111")


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        ("ViTForImageClassification", {"convolutions": True}, "patch_embeddings.projection.weight"),
        ("MixtralForCausalLM", {"experts": True}, "experts.gate_up_proj"),
        ("Qwen3MoeForCausalLM", {"experts": True}, "experts.down_proj"),
    ],
)
def test_peft_merges_convolutions_and_experts(kind, options, name, tmp_path):
    changed = lambda name, one: one.ndim > 1 and not name.endswith("mlp.gate.weight")  # noqa: E731
    base, tuned, model = saved_pair(tmp_path, build(kind), changed)
    made = extract_lora(base, tuned, tmp_path / "a", energy=1.0, **options)
    assert not any(left.endswith(name) for left in made.left_out)
    held = {layer.name.partition("[")[0].removesuffix(".weight") for layer in made.layers}
    merged = dict(with_adapter(load(kind, base), made.folder).merge_and_unload().named_parameters())
    expected = dict(model.named_parameters())
    for own in [own for own in expected if own.removesuffix(".weight") in held]:
        torch.testing.assert_close(merged[own], expected[own], rtol=0, atol=2e-6)
    assert sum(own.endswith(name) for own in held | {f"{one}.weight" for one in held}) >= 1
    assert made.parameters == sum(one.numel() for one in load_file(made.folder / "adapter_model.safetensors").values())
    if kind != "ViTForImageClassification":
        made = extract_lora(base, tuned, tmp_path / "a", energy=1.0, embeddings=True, **options)
        assert made.left_out == ()
        assert logits_error(base, tuned, made.folder).relative < 1e-4
        assert weights_error(base, tuned, made.folder, format="peft").relative < 1e-5
        again = merge_lora([made.folder], tmp_path / "b")
        assert {layer.name: layer.rank for layer in again.layers} == {layer.name: layer.rank for layer in made.layers}
        assert logits_error(base, tuned, again.folder).relative < 1e-4
        alone, measured = (
            checkpoint_spectra(made.folder),
            of_matrices(base, tuned),
        )
        held = [one for one in measured.matrix.values if "experts" in one]
        norms = (one.matrix_update_norm.sel(matrix=held)[0] for one in (alone, measured))
        np.testing.assert_allclose(*norms, rtol=1e-4)


def test_adapters_of_single_experts_name_a_way(tmp_path):
    base, _, model = saved_pair(tmp_path, build("MixtralForCausalLM"), matrices)
    layer, number = "model.layers.0.block_sparse_moe.experts.{}.w2", model.config.num_local_experts
    factors = {"A": torch.randn(2, model.config.intermediate_size), "B": torch.randn(model.config.hidden_size, 2)}
    save_file({f"base_model.model.{layer.format(at)}.lora_{side}.weight": one.clone()
               for at in range(number) for side, one in factors.items()},
              tmp_path / "adapter_model.safetensors")  # fmt: skip
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["w2"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    refused("Merge it first: PeftModel", checkpoint_spectra, base, tmp_path, attention=False, matrices="*experts*")
    merged = with_adapter(load("MixtralForCausalLM", base), tmp_path).merge_and_unload()
    found = checkpoint_spectra(base, save(merged, tmp_path / "merged"), attention=False, matrices="*.0.mlp*down_proj")
    np.testing.assert_allclose(found.matrix_update_norm[0], float((factors["B"] @ factors["A"]).norm()), rtol=1e-4)


@pytest.mark.parametrize("embeddings", [True, False])
def test_a_resized_vocabulary_is_stored_whole_or_named(embeddings, tmp_path):
    model = text_model()
    save(model, tmp_path / "base")
    model.load_state_dict(
        moved({n: p for n, p in model.named_parameters() if p.ndim > 1 and (embeddings or "layers" in n)}, 1, 0.05),
        strict=False,
    )
    with torch.random.fork_rng():
        model.resize_token_embeddings(model.config.vocab_size + 4, mean_resizing=False)
    save(model, tmp_path / "tuned")
    made = extract_lora(tmp_path / "base", tmp_path / "tuned", tmp_path / "a", energy=1.0, embeddings=embeddings)
    whole = ("model.embed_tokens.weight", "lm_head.weight")
    assert (made.whole, made.left_out) == ((whole, ()) if embeddings else ((), whole[::-1]))
    assert made.vocabulary == (TEXT["vocab_size"] + 4 if embeddings else None)
    assert embeddings or "other shapes" in " ".join(made.remarks)
    assert logits_error(tmp_path / "base", tmp_path / "tuned", made.folder).relative < (1e-4 if embeddings else 1e-3)


def test_a_head_that_was_untied_is_reported_and_the_advice_works(tmp_path):
    tied, untied = text_model(tie_word_embeddings=True), text_model(tie_word_embeddings=False)
    save(tied, tmp_path / "base")
    untied.load_state_dict(tied.state_dict())
    save(untied, tmp_path / "untied")
    changed = copy.deepcopy(untied)
    changed.load_state_dict(moved(dict(untied.named_parameters()), 1, 0.05))
    save(changed, tmp_path / "tuned")
    with pytest.raises(InputError, match=r"must share the weights .*tie_word_embeddings=False"):
        extract_lora(tmp_path / "base", tmp_path / "tuned", tmp_path / "a", rank=2, embeddings=True)
    whole = {"embeddings": True, "modules_to_save": "*norm*"}
    made = extract_lora(tmp_path / "untied", tmp_path / "tuned", tmp_path / "a", energy=1.0, **whole)
    assert logits_error(tmp_path / "untied", tmp_path / "tuned", made.folder).relative < 1e-4
