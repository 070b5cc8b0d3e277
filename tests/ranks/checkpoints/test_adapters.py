"""Adapters in `spectra`: base plus adapter is what PEFT merges; LoRA alone has the spectra of its own update."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from saved_models import build, gpt2, llama, quietly, save, text_model, with_adapter
from stored_models import of_matrices

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import RankTracker, Values
from saddlescope.ranks.checkpoints import checkpoint_spectra
from saddlescope.ranks.checkpoints.adapter_settings import _PLAIN

peft = pytest.importorskip("peft")

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj"]
LORA = {
    "plain": {"r": 3, "lora_alpha": 5},
    "rslora": {"r": 4, "lora_alpha": 5, "use_rslora": True},
    "dora": {"r": 2, "lora_alpha": 4, "use_dora": True},
    "patterns": {
        "r": 2, "lora_alpha": 6, "rank_pattern": {"layers.1.self_attn.q_proj": 4, "gate_proj": 1},
        "alpha_pattern": {"^model.layers.0.self_attn.v_proj": 1, "o_proj": 9},
    },
    "saved": {"r": 2, "modules_to_save": ["k_proj"], "target_modules": ["q_proj", "v_proj"]},
    "embedding": {"r": 2, "target_modules": ["embed_tokens", "q_proj"]},
}  # fmt: skip
OTHERS = {
    "LOHA": lambda: peft.LoHaConfig(r=2, target_modules=ALL),
    "LOKR": lambda: peft.LoKrConfig(r=2, target_modules=ALL),
    "OFT": lambda: peft.OFTConfig(oft_block_size=4, r=0, target_modules=ALL),
    "BOFT": lambda: peft.BOFTConfig(boft_block_size=2, target_modules=ALL),
    "IA3": lambda: peft.IA3Config(target_modules=ALL, feedforward_modules=[]),
    "IA3, saved": lambda: peft.IA3Config(
        target_modules=["q_proj"], feedforward_modules=[], modules_to_save=["k_proj", "lm_head"]
    ),
    "FOURIERFT": lambda: peft.FourierFTConfig(n_frequency=9, target_modules=ALL),
    "HRA": lambda: peft.HRAConfig(r=2, target_modules=ALL),
}


def adapted(model, config, folder, seed=1):
    """Train an adapter at random, save it, and return the merged model."""
    generator = torch.Generator().manual_seed(seed)
    with quietly():
        torch.manual_seed(seed)
        wrapped = peft.get_peft_model(model, config)
        with torch.no_grad():
            for parameter in wrapped.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        wrapped.save_pretrained(folder)
        return wrapped.merge_and_unload()


def expected_spectra(base, merged, **options):
    """Return the spectra between two models in memory, in double precision."""
    tracker = RankTracker(base.double(), **options)
    base.load_state_dict(merged.double().state_dict())
    tracker.step()
    return tracker.to_xarray()


def require_same(found, expected):
    """Compare: PEFT merges in single precision, with errors of 6e-8 per entry."""
    assert found.layer.values.tolist() == expected.layer.values.tolist()
    size = float(expected.update_norm.max())
    assert size > 0
    for name in ("update_spectrum", "update_norm", "initial_spectrum", "matrix_update_spectrum"):
        there = expected[name].sel(matrix=found.matrix) if "matrix" in expected[name].dims else expected[name]
        np.testing.assert_allclose(found[name].values, there.values, rtol=0, atol=3e-6 * max(1, size), err_msg=name)


@pytest.mark.parametrize("kind", [*LORA, *OTHERS])
def test_base_plus_adapter_is_what_peft_merges(kind, tmp_path):
    base = save(llama(), tmp_path / "base")
    config = peft.LoraConfig(**({"target_modules": ALL} | LORA[kind])) if kind in LORA else OTHERS[kind]()
    merged = adapted(llama(), config, tmp_path / "adapter")
    found = checkpoint_spectra(base, tmp_path / "adapter", matrices=["*q_proj", "*gate_proj", "*embed_tokens"])
    require_same(found, expected_spectra(llama(), merged, matrices="*"))
    assert bool(found.measurable.sel(product="KQ").all())
    assert found.attrs["remarks"] == ""


def test_layers_that_store_their_weights_transposed(tmp_path):
    base = save(gpt2(), tmp_path / "base")
    for number, options in enumerate(({}, {"use_dora": True})):
        config = peft.LoraConfig(r=2, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, **options)
        merged = adapted(gpt2(), config, tmp_path / f"{number}")
        found = checkpoint_spectra(base, tmp_path / f"{number}", matrices="*mlp.c_proj")
        require_same(found, expected_spectra(gpt2(), merged, matrices="*"))
    (tmp_path / "base/config.json").write_text('{"n_head": 4}')  # names and shapes alone
    require_same(
        checkpoint_spectra(base, tmp_path / "1", matrices="*mlp.c_proj"),
        expected_spectra(gpt2(), with_adapter(gpt2(), tmp_path / "1").merge_and_unload(), matrices="*"),
    )


def test_a_renamed_model(tmp_path):
    base = save(build("ViTForImageClassification"), tmp_path / "base")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    merged = adapted(build("ViTForImageClassification"), config, tmp_path / "adapter")
    expected = expected_spectra(build("ViTForImageClassification"), merged, matrices="*q_proj")
    require_same(checkpoint_spectra(base, tmp_path / "adapter", matrices="*q_proj"), expected)


def test_a_half_precision_base_is_exact_for_its_adapter(tmp_path):
    """An update of 1e-4 is far below the rounding of bfloat16, but the adapter was trained on these very numbers."""
    model = llama().bfloat16()
    base = save(model, tmp_path / "base")
    with quietly():
        wrapped = peft.get_peft_model(llama(), peft.LoraConfig(r=1, target_modules=["q_proj"]))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.fill_(1e-5)
    with quietly():
        wrapped.save_pretrained(tmp_path / "adapter")
    found = checkpoint_spectra(base, tmp_path / "adapter", matrices="*q_proj", on_error=pytest.fail)
    assert bool(found.matrix_measurable.all())
    np.testing.assert_allclose(found.matrix_stable_rank, 1, rtol=1e-6)


def updates(folder):
    """Return alpha / r B A of the stored factors, by module."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    return {
        name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"): config["lora_alpha"]
        / (config["r"] ** 0.5 if config["use_rslora"] else config["r"])
        * tensors[name.replace("lora_A", "lora_B")].double()
        @ A.double()
        for name, A in tensors.items()
        if "lora_A" in name
    }


@pytest.mark.parametrize("kind", ["plain", "rslora"])
def test_an_adapter_alone(kind, tmp_path):
    folders = [tmp_path / f"checkpoint-{step}" for step in (10, 20)]
    for seed, folder in enumerate(folders):
        adapted(llama(), peft.LoraConfig(target_modules=ALL, **LORA[kind]), folder, seed)
    found = checkpoint_spectra(*folders)
    assert found.step.values.tolist() == [10, 20]
    for step, folder in zip((10, 20), folders, strict=True):
        expected = updates(folder)
        assert [f"{name}.weight" for name in expected] == sorted(found.matrix.values)
        for name, update in expected.items():
            values = found.matrix_update_spectrum.sel(step=step, matrix=f"{name}.weight").values
            np.testing.assert_allclose(values, torch.linalg.svdvals(update)[: len(values)], rtol=1e-5, atol=1e-8)
    assert found.matrix_initial_norm.isnull().all()
    config = folders[0] / "adapter_config.json"
    config.write_text(config.read_text().replace('"peft_type": "LORA"', '"peft_type": "lora"'))
    few = checkpoint_spectra(folders[0] / "adapter_model.safetensors", matrices="*q_proj", recorders=[Values(1)])
    assert few.sizes["matrix"] == 2
    np.testing.assert_allclose(
        few.matrix_update_norm[0], found.matrix_update_norm.sel(matrix=few.matrix)[0], rtol=1e-12
    )
    base = save(llama(), tmp_path / "base")
    merged = checkpoint_spectra(base, folders[0], matrices="*q_proj")
    np.testing.assert_allclose(merged.matrix_update_norm, few.matrix_update_norm, rtol=1e-6)


def test_a_tied_head_is_named_and_the_advice_works(tmp_path):
    tied = text_model(tie_word_embeddings=True)
    save(tied, tmp_path / "base")
    untied = text_model(tie_word_embeddings=False)
    untied.load_state_dict(tied.state_dict())
    save(untied, tmp_path / "untied")
    config = peft.LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False)
    with quietly():
        peft.get_peft_model(tied, config).save_pretrained(tmp_path / "a", save_embedding_layers=False)
    with pytest.raises(InputError, match=r"does not have: lm_head\.weight\. Save the base with a copy"):
        of_matrices(tmp_path / "base", tmp_path / "a")
    found = checkpoint_spectra(tmp_path / "untied", tmp_path / "a", attention=False, matrices="*lm_head*")
    np.testing.assert_allclose(
        found.matrix_update_norm, checkpoint_spectra(tmp_path / "a").matrix_update_norm, rtol=1e-5
    )


def test_adapters_that_cannot_be_used(tmp_path):
    base = save(llama(), tmp_path / "base")
    adapted(llama(), peft.LoraConfig(r=2, use_dora=True, target_modules=ALL), tmp_path / "dora")
    refused("got DoRA, which scales the rows", checkpoint_spectra, tmp_path / "dora")
    adapted(llama(), OTHERS["IA3"](), tmp_path / "ia3")
    refused(r"got IA3\. Pass the base to spectra or to lora merge", checkpoint_spectra, tmp_path / "ia3")
    prompt = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    with quietly():
        peft.get_peft_model(llama(), prompt).save_pretrained(tmp_path / "prompt")
    refused("got PROMPT_TUNING, which has none", checkpoint_spectra, base, tmp_path / "prompt")
    with quietly():
        vera = peft.VeraConfig(r=2, target_modules=ALL, save_projection=False)
    adapted(llama(), vera, tmp_path / "vera")
    with pytest.raises(InputError, match="must hold its projections, which depend on all layers; got VERA"):
        checkpoint_spectra(base, tmp_path / "vera")
    config = tmp_path / "dora/adapter_config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps(content | {"init_lora_weights": "pissa"}))
    refused("init_lora_weights='pissa', which changes the base", checkpoint_spectra, base, tmp_path / "dora")
    config.write_text(json.dumps(content | {"r": 3}))
    refused("got rank 3 for factors of rank 2", checkpoint_spectra, base, tmp_path / "dora")
    config.write_text(json.dumps(content))
    (tmp_path / "dora/adapter_model.safetensors").unlink()
    refused("Fetch the adapter again", checkpoint_spectra, base, tmp_path / "dora")
    other = build("ViTForImageClassification")
    adapted(other, peft.LoraConfig(r=2, target_modules=["q_proj"]), tmp_path / "vit")
    refused("got parts that it does not have", checkpoint_spectra, base, tmp_path / "vit")


def test_an_adapter_of_a_resized_vocabulary(tmp_path):
    base = save(llama(), tmp_path / "base")
    resized = llama()
    resized.resize_token_embeddings(resized.config.vocab_size + 4)
    adapted(resized, peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"]), tmp_path / "vocab")
    found = checkpoint_spectra(base, tmp_path / "vocab", attention=False, matrices="*q_proj")
    assert bool((found.matrix_update_norm > 0).all())
    cure = "for lm_head.weight, .* Pass the base that it was trained on, such as one with a resized vocabulary"
    assert re.search(cure, found.attrs["remarks"])
    refused(cure, of_matrices, base, tmp_path / "vocab")


def test_settings_of_peft_are_plain_or_refused():
    """A field of a later PEFT is refused until it is known to leave s B A."""
    assert peft.LoraConfig(r=2).to_dict().keys() - _PLAIN <= {
        "layer_replication", "velora_config", "alora_invocation_tokens", "use_qalora", "monteclora_config",
        "use_bdlora", "arrow_config", "kasa_config",
    }  # fmt: skip
