"""Adapters from adapters: sums by hand in float64, ranks by Eckart and Young, files that PEFT loads, merged bases."""

import json
import warnings

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from saved_models import load, quietly, save, text_model
from stored_models import sharded

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.adapter_files import CONFIG, WEIGHTS, AdapterFile
from saddlescope.ranks.lora import logits_error, merge_into_base, merge_lora

peft = pytest.importorskip("peft")

MODULES = ("q_proj", "down_proj")


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def llama(tmp_path):
    return save(text_model(), tmp_path / "base")


def trained(base, folder, *, seed=0, **settings):
    """Save an adapter of PEFT with random factors; return the model with it."""
    torch.manual_seed(seed)
    settings = {"target_modules": [*MODULES], "init_lora_weights": False, "task_type": "CAUSAL_LM", **settings}
    config = peft.LoraConfig(**settings)
    with quietly():
        model = peft.get_peft_model(load("LlamaForCausalLM", base), config).eval()
        model.save_pretrained(folder)
    return model


def deltas(model):
    """Return the updates of PEFT itself, in float64."""
    double = model.double()
    return {
        name.removeprefix("base_model.model."): module.get_delta_weight("default").detach()
        for name, module in double.named_modules()
        if hasattr(module, "get_delta_weight")
    }


def updates(path):
    adapter = AdapterFile.open(path)
    assert adapter is not None
    return {name: adapter.update(name) for name in adapter.updates}


def loaded(base, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # on missing keys
        warnings.filterwarnings("ignore", category=FutureWarning)
        return peft.PeftModel.from_pretrained(load("LlamaForCausalLM", base), folder).eval()


def test_a_sum_has_no_cross_terms_and_keeps_every_scale(tmp_path):
    base = llama(tmp_path)
    first = trained(base, tmp_path / "a", r=4, lora_alpha=8, use_rslora=True)
    second = trained(base, tmp_path / "b", seed=1, r=2, lora_alpha=3, rank_pattern={"down_proj": 6})
    made = merge_lora([tmp_path / "a", tmp_path / "b"], tmp_path / "c", weights=[1.0, -0.5])
    ours, theirs = deltas(first), deltas(second)
    assert {layer.rank for layer in made.layers} == {6, 10}
    merged = deltas(loaded(base, made.adapter))
    for name, found in updates(made.adapter).items():
        expected = ours[name] - 0.5 * theirs[name]
        assert float((found - expected).norm() / expected.norm()) < 1e-6
        torch.testing.assert_close(merged[name], found, rtol=0, atol=1e-12)
    made = merge_lora([tmp_path / "a", tmp_path / "b"], tmp_path / "c", weights=[1.0, -0.5], energy=0.9, max_rank=5)
    assert all(layer.captured_energy() >= 0.9 or layer.rank == 5 for layer in made.layers)
    loaded(base, made.adapter)
    refused("got updates of 0", merge_lora, [tmp_path / "a", tmp_path / "a"], tmp_path / "d", weights=[1.0, -1.0])
    trained(base, tmp_path / "e", r=20)  # factors that are larger than their product
    with pytest.raises(InputError, match="e must change weights by factors; got updates of 0"):
        merge_lora([tmp_path / "e"] * 3, tmp_path / "d", weights=[0.1, 0.2, -0.3])


def test_a_resized_adapter_is_the_best_of_its_rank(tmp_path):
    base = llama(tmp_path)
    before = deltas(trained(base, tmp_path / "a", r=8, lora_alpha=4, modules_to_save=["norm"]))
    made = merge_lora([tmp_path / "a"], tmp_path / "c", rank=3)
    assert made.left_out == ()
    loaded(base, made.adapter)
    for name, found in updates(made.adapter).items():
        values = torch.linalg.svdvals(before[name])
        assert float((found - before[name]).norm()) == pytest.approx(float(values[3:].norm()), rel=1e-6)
    config = json.loads((tmp_path / "c/adapter_config.json").read_text())
    assert config["r"] == config["lora_alpha"] == 3
    assert config["base_model_name_or_path"] == str(base)
    names = {name for name in load_file(tmp_path / "c/adapter_model.safetensors") if "lora" not in name}
    assert len(names) == 5
    assert all(name.endswith("norm.weight") for name in names)


@pytest.mark.parametrize(
    "settings", [{"target_modules": ["q_proj", "embed_tokens"]}, {"bias": "lora_only"}, {"bias": "all"}]
)
def test_whole_weights_of_adapted_layers_and_biases_alone_stay_what_they_were(settings, tmp_path):
    base = save(text_model(attention_bias=True), tmp_path / "base")
    model = trained(base, tmp_path / "a", r=4, **settings)
    with torch.no_grad(), quietly():
        for name, one in model.named_parameters():
            one += 0.1 * draw(*one.shape) * (one.requires_grad and name.endswith("bias"))
        model.save_pretrained(tmp_path / "a")
    made = merge_lora([tmp_path / "a"], tmp_path / "b")
    assert made.left_out == ()
    models = (loaded(base, made.adapter), model, load("LlamaForCausalLM", base))
    with torch.no_grad():
        again, expected, before = (one(torch.arange(8)[None]).logits for one in models)
    torch.testing.assert_close(again, expected, rtol=0, atol=1e-5)
    assert float((again - before).norm()) > 1e-2


def test_kernels_of_kohya_and_formulas_of_lycoris_become_factors_of_their_full_rank(tmp_path):
    """Ask for more than a kernel of one output has, and for the rank of a full difference."""
    kernel = {"lora_down.weight": draw(4, 6, 3, 3), "lora_up.weight": draw(1, 4, 1, 1), "alpha": torch.tensor(2.0)}
    loha = {f"hada_w{side}_{part}": draw(*shape, seed=side) for side in (1, 2)
            for part, shape in (("a", (9, 2)), ("b", (2, 7)))} | {"alpha": torch.tensor(1.0)}  # fmt: skip
    full = {"diff": draw(5, 4), "diff_b": draw(5)}
    modules = {"lora_unet_conv": kernel, "lora_unet_mid": loha, "lora_unet_out": full}
    save_file({f"{m}.{n}": t for m, own in modules.items() for n, t in own.items()}, tmp_path / "k.safetensors")
    made = merge_lora([tmp_path / "k.safetensors"], tmp_path / "c", rank=320)
    assert made.left_out == ("lora_unet_out.diff_b",)
    assert {layer.name: layer.rank for layer in made.layers} == {
        "lora_unet_conv": 1, "lora_unet_mid": 7, "lora_unet_out": 4,
    }  # fmt: skip
    exact = updates(tmp_path / "k.safetensors")
    for name, found in updates(made.adapter).items():
        torch.testing.assert_close(found, exact[name], rtol=1e-5, atol=1e-5)
    exactly = merge_lora([tmp_path / "k.safetensors"], tmp_path / "c")
    assert {layer.name: layer.rank for layer in exactly.layers} == {
        "lora_unet_conv": 1, "lora_unet_mid": 4, "lora_unet_out": 4,
    }  # fmt: skip


def test_an_adapter_of_peft_gets_the_names_of_kohya_and_diffusers(tmp_path):
    module = "base_model.model.down_blocks.0.attn1.to_q"
    tensors = {f"{module}.lora_A.weight": draw(2, 6), f"{module}.lora_B.weight": draw(5, 2)}
    (tmp_path / "a").mkdir()
    save_file(tensors, tmp_path / "a/adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 6}
    file = tmp_path / "a/adapter_config.json"
    file.write_text(json.dumps(config | {"auto_mapping": {"base_model_class": "UNet2DConditionModel"}}))
    expected = 3 * draw(5, 2).double() @ draw(2, 6).double()
    for form, name in (("kohya", "lora_unet_down_blocks_0_attn1_to_q"), ("diffusers", "unet.down_blocks.0.attn1.to_q")):
        made = merge_lora([tmp_path / "a"], tmp_path / form, format=form)
        torch.testing.assert_close(updates(made.adapter), {name: expected}, rtol=1e-6, atol=1e-6)
    back = merge_lora([tmp_path / "diffusers"], tmp_path / "back", format="peft")
    torch.testing.assert_close(updates(back.adapter), {module.removeprefix("base_model.model."): expected}, rtol=1e-6,
                               atol=1e-6)  # fmt: skip
    with pytest.raises(InputError, match="must have dots in the names"):
        merge_lora([made.adapter.parent.parent / "kohya/kohya.safetensors"], tmp_path / "d", format="peft")
    file.write_text(json.dumps(config))
    refused("must name a class of Diffusers", merge_lora, [tmp_path / "a"], tmp_path / "d", format="kohya")
    refused("adapters must have one format", merge_lora, [tmp_path / "a", tmp_path / "diffusers"], tmp_path / "d")


def test_a_base_in_shards_gets_the_weights_that_peft_merges(tmp_path):
    base = llama(tmp_path)
    trained(base, tmp_path / "a", r=4, lora_alpha=8)
    trained(base, tmp_path / "b", seed=1, r=2, lora_alpha=3)
    (base / "model.safetensors").rename(tmp_path / "model.safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    sharded(base, tensors)
    others = [base / "adapter_config.json", base / "trainer_state.json"]
    for file in others:
        file.write_text("{}")
    made = merge_into_base(base, [tmp_path / "a"], tmp_path / "merged")
    for file in others:
        file.unlink()
    assert sorted(file.name for file in made.folder.iterdir()) == [
        "config.json", "generation_config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]  # fmt: skip
    assert logits_error(base, made.folder, tmp_path / "a").relative < 1e-4
    both = merge_into_base(base, [tmp_path / "a", tmp_path / "b"], tmp_path / "both", weights=[0.5, -1.0])
    first, second = updates(tmp_path / "a"), updates(tmp_path / "b")
    found = load("LlamaForCausalLM", both.folder).state_dict()
    for name, tensor in tensors.items():
        own = name.removesuffix(".weight")
        expected = tensor.double() + (0.5 * first[own] - second[own] if own in first else 0)
        torch.testing.assert_close(found[name].double(), expected, rtol=1e-6, atol=1e-6)
    assert 0 < both.rounding < 1e-5
    refused("must be a new folder", merge_into_base, base, [tmp_path / "a"], tmp_path / "both")


def test_what_rounding_takes_of_an_update_is_stated(tmp_path):
    base = save_file({"layer.weight": torch.ones(8, 8).bfloat16()}, tmp_path / "base.safetensors")
    base = tmp_path / "base.safetensors"
    small = {"layer.lora_A.weight": 0.01 * torch.ones(1, 8), "layer.lora_B.weight": 0.01 * torch.ones(8, 1)}
    save_file(small, tmp_path / "a.safetensors")
    assert merge_into_base(base, [tmp_path / "a.safetensors"], tmp_path / "short").rounding == 1  # all of it
    made = merge_into_base(base, [tmp_path / "a.safetensors"], tmp_path / "long", dtype="float32")
    assert made.rounding < 1e-3
    with safe_open(made.folder / "base.safetensors", "pt") as held:
        torch.testing.assert_close(held.get_tensor("layer.weight"), torch.full((8, 8), 1.0001))


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"weights": [1.0, 2.0]}, "weights must be 1 finite numbers"),
        ({"weights": [float("nan")]}, "weights must be 1 finite numbers"),
        ({"weights": [0.0]}, "one per adapter, not all 0"),
        ({"rank": 0}, "rank must be at least 1; got 0"),
        ({"rank": 2, "energy": 0.5}, "energy or rank must be given, and only one"),
        ({"dtype": "int8"}, "dtype must be float32, float16, bfloat16; got 'int8'"),
    ],
)
def test_options_that_cannot_be_meant(options, reported, tmp_path):
    save_file({"layer.lora_A.weight": draw(1, 4), "layer.lora_B.weight": draw(4, 1)}, tmp_path / "a.safetensors")
    refused(reported, merge_lora, [tmp_path / "a.safetensors"], tmp_path / "c", **options)


def test_adapters_that_need_their_base_are_merged_only_into_it(tmp_path):
    base = llama(tmp_path)
    trained(base, tmp_path / "dora", r=2, use_dora=True)
    refused("got DoRA, which scales the rows", merge_lora, [tmp_path / "dora"], tmp_path / "c", rank=1)
    made = merge_into_base(base, [tmp_path / "dora"], tmp_path / "merged")
    assert logits_error(base, made.folder, tmp_path / "dora").relative < 1e-4


def test_a_quantized_base_is_refused(tmp_path):
    save_file({"layer.lora_A.weight": draw(1, 4), "layer.lora_B.weight": draw(4, 1)}, tmp_path / "a.safetensors")
    scale = torch.ones(4, 1)
    for kind, name, reported in (
        (torch.int8, "layer.SCB", r"got integers, .* in layer\.weight"),
        (torch.float8_e4m3fn, "layer.unknown", r"got float8_e4m3fn in layer\.weight"),
        (torch.float8_e4m3fn, "layer.weight_scale", r"without scales; got quantized ones, such as layer\.weight"),
    ):
        save_file({"layer.weight": draw(4, 4).to(kind), name: scale}, tmp_path / "base.safetensors")
        with pytest.raises(InputError, match=reported):
            merge_into_base(tmp_path / "base.safetensors", [tmp_path / "a.safetensors"], tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_files_of_users_are_never_replaced(tmp_path):
    factors = {"layer.lora_A.weight": draw(1, 4), "layer.lora_B.weight": draw(4, 1)}
    for name in ("run/checkpoint-1", "precious"):
        (tmp_path / name).mkdir(parents=True)
    save_file(factors, tmp_path / "run/checkpoint-1/a.safetensors")
    save_file(factors, tmp_path / "precious/precious.safetensors")
    (tmp_path / "run/adapter_config.json").write_text("{}")
    save_file(factors, tmp_path / "precious/other.safetensors")
    for out in ("run", "precious"):
        with pytest.raises(InputError, match="must be a new folder or an adapter"):
            merge_lora([tmp_path / "run/checkpoint-1/a.safetensors"], tmp_path / out, rank=1)
    (tmp_path / "precious/precious.safetensors").unlink()
    with pytest.raises(InputError, match="must be a new folder or an adapter"):  # of one file, but under another name
        merge_lora([tmp_path / "run/checkpoint-1/a.safetensors"], tmp_path / "precious", rank=1)
    made = merge_lora([tmp_path / "run/checkpoint-1/a.safetensors"], tmp_path / "made", rank=1)
    refused("out must be a folder that holds none of the adapters", merge_lora, [made.folder], made.folder, rank=1)
    assert updates(tmp_path / "precious/other.safetensors")


def test_parts_of_a_pipeline_do_not_become_one_adapter_of_peft(tmp_path):
    tensors = {
        f"{part}.q_proj.lora_{side}.weight": draw(*shape)
        for part in ("text_encoder", "text_encoder_2")
        for side, shape in (("A", (1, 4)), ("B", (4, 1)))
    }
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(InputError, match="got text_encoder, text_encoder_2"):
        merge_lora([tmp_path / "a.safetensors"], tmp_path / "out", format="peft")


def test_ranks_beyond_that_of_a_product_keep_all_of_it(tmp_path):
    for layer, rank in (("a", 1), ("b", 3)):
        tensors = {f"{layer}.lora_A.weight": draw(rank, 8), f"{layer}.lora_B.weight": draw(8, rank)}
        save_file(tensors, tmp_path / f"{layer}.safetensors")
    made = merge_lora([tmp_path / "a.safetensors", tmp_path / "b.safetensors"], tmp_path / "out")
    assert made.at_rank(4)[1] == pytest.approx(1)


@pytest.mark.parametrize(
    ("scales", "dtype", "reported"),
    [
        ((1e-4, 1e-4), "float16", None),
        ((1e-200, 1e200), "float32", None),  # balanced, so each is of order 1
        ((1e-7, 1e-7), "float16", "float16 can hold"),
        ((1e-30, 1e-30), "float32", None),
        ((1e-45, 1e-45), "float32", "float32 can hold"),
        ((1e100, 1e100), None, "float32 can hold; got a larger one"),
        ((1e200, 1e200), None, "float32 can hold; got a larger one"),
    ],
)
def test_a_type_holds_an_update_to_its_rounding_or_it_is_refused(scales, dtype, reported, tmp_path):
    A, B = draw(4, 5).double(), draw(6, 4).double()
    module = "base_model.model.a.q_proj.lora_"
    (tmp_path / "a").mkdir()
    save_file({module + "A.weight": scales[0] * A, module + "B.weight": scales[1] * B}, tmp_path / "a" / WEIGHTS[0])
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (tmp_path / "a" / CONFIG).write_text(json.dumps(config))
    if reported is not None:
        with pytest.raises(InputError, match=reported):
            merge_lora([tmp_path / "a"], tmp_path / "b", dtype=dtype)
        return
    merge_lora([tmp_path / "a"], tmp_path / "b", dtype=dtype)
    (found,) = updates(tmp_path / "b").values()
    size = scales[0] * scales[1]
    torch.testing.assert_close(found / size, B @ A, rtol=0, atol=0.03 if dtype == "float16" else 1e-5)
