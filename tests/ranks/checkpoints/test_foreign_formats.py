"""Files of other programs: each adapter by its own formula, each checkpoint read, joined, or refused with the cure.

Tensors have the names and shapes that the programs write; updates are computed here by hand, in float64.
"""

import argparse
import importlib.util
import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from stored_models import of_matrices

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints import checkpoint_spectra
from saddlescope.ranks.checkpoints.adapter_files import AdapterFile
from saddlescope.ranks.checkpoints.files import Checkpoint
from saddlescope.ranks.lora import merge_into_base, merge_lora


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def save_distributed(tensors, folder):
    dcp.save(tensors, checkpoint_id=folder, no_dist=True)


def kron(first, second):
    return torch.kron(first.double(), second.double())


pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
DOWN, UP, CORE = draw(2, 6), draw(5, 2), draw(2, 2, 3, 3)
TUCKER = torch.einsum("ijkl,pi,qj->pqkl", CORE.double(), UP.double(), DOWN.T.double())
LORA = UP.double() @ DOWN.double()
W1, W2, W2A, W2B = draw(2, 3), draw(4, 5), draw(4, 2), draw(2, 5)
H1A, H1B, H2A, H2B = draw(5, 2), draw(2, 6), draw(5, 2, seed=1), draw(2, 6, seed=1)
ALPHA = torch.tensor(3.0)
UPDATES = {
    "kohya": ({"lora_down.weight": DOWN, "lora_up.weight": UP, "alpha": ALPHA}, 1.5 * LORA),
    "kohya, kernel": (
        {"lora_down.weight": draw(2, 6, 3, 3), "lora_up.weight": UP[:, :, None, None], "alpha": ALPHA},
        1.5 * torch.einsum("pi,iqkl->pqkl", UP.double(), draw(2, 6, 3, 3).double()),
    ),
    "Diffusers, early": ({"lora.down.weight": DOWN, "lora.up.weight": UP}, LORA),
    "Diffusers, processor": ({"processor.to_q_lora.down.weight": DOWN, "processor.to_q_lora.up.weight": UP}, LORA),
    "torchtune": ({"lora_a.weight": DOWN, "lora_b.weight": UP}, LORA),
    "mlx": ({"lora_a": DOWN.T, "lora_b": UP.T}, LORA),
    "PEFT, embedding": ({"lora_embedding_A.default": DOWN, "lora_embedding_B.default": UP}, LORA.T),
    "LyCORIS, Tucker": (
        {"lora_down.weight": DOWN[:, :, None, None], "lora_up.weight": UP[:, :, None, None],
         "lora_mid.weight": CORE, "alpha": ALPHA},
        1.5 * TUCKER,
    ),
    "LyCORIS, LoHa": (
        {"hada_w1_a": H1A, "hada_w1_b": H1B, "hada_w2_a": H2A, "hada_w2_b": H2B, "alpha": ALPHA},
        1.5 * (H1A.double() @ H1B.double()) * (H2A.double() @ H2B.double()),
    ),
    "LyCORIS, LoHa, Tucker": (
        {"hada_w1_a": UP.T, "hada_w1_b": DOWN, "hada_t1": CORE, "hada_w2_a": UP.T, "hada_w2_b": DOWN, "hada_t2": CORE},
        TUCKER**2,
    ),
    "LyCORIS, LoKr": ({"lokr_w1": W1, "lokr_w2": W2, "alpha": ALPHA}, kron(W1, W2)),
    "LyCORIS, LoKr, factors": (
        {"lokr_w1": W1, "lokr_w2_a": W2A, "lokr_w2_b": W2B, "alpha": ALPHA},
        1.5 * kron(W1, W2A.double() @ W2B.double()),
    ),
    "LyCORIS, full": ({"diff": draw(5, 6), "diff_b": draw(5)}, draw(5, 6).double()),
}  # fmt: skip


def opened(path):
    adapter = AdapterFile.open(path)
    assert adapter is not None
    return adapter


def save_mlx(folder, name="adapters.safetensors", **parameters):
    """Write an adapter of MLX with rank 2 and these parameters."""
    folder.mkdir(exist_ok=True)
    save_file({f"q.{n}": t.contiguous() for n, t in UPDATES["mlx"][0].items()}, folder / name)
    settings = {"lora_parameters": {"rank": 2, **parameters}}
    (folder / "adapter_config.json").write_text(json.dumps(settings))


def of_a_base(tmp_path, tensors, *, settings=None, **options):
    """Return the spectra of an adapter file with its base, a matrix q.weight."""
    save_file({"q.weight": draw(5, 6, seed=3)}, tmp_path / "base.safetensors")
    save_file({name: one.contiguous().clone() for name, one in tensors.items()}, tmp_path / "a.safetensors")
    if settings is not None:
        (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    return of_matrices(tmp_path / "base.safetensors", tmp_path / "a.safetensors", **options)


@pytest.mark.parametrize("kind", UPDATES)
def test_an_update_is_that_of_its_formula(kind, tmp_path):
    parts, expected = UPDATES[kind]
    save_file(
        {f"mid.layer.{name}": one.contiguous().clone() for name, one in parts.items()}, tmp_path / "a.safetensors"
    )
    adapter = opened(tmp_path / "a.safetensors")
    (name,) = adapter.updates
    assert name == "mid.layer" + (".to_q" if "processor" in kind else "")
    torch.testing.assert_close(adapter.update(name), expected, rtol=1e-6, atol=1e-9)
    found = checkpoint_spectra(tmp_path / "a.safetensors")
    values = torch.linalg.svdvals(expected.flatten(1))[: found.sizes["index"]]
    np.testing.assert_allclose(found.matrix_update_spectrum[0, 0], values, rtol=1e-5, atol=1e-7)
    assert ("has no alpha" in found.attrs["remarks"]) == (kind in ("Diffusers, early", "Diffusers, processor",
        "torchtune", "mlx", "PEFT, embedding", "LyCORIS, LoHa, Tucker"))  # fmt: skip
    assert ("diff_b" in found.attrs["remarks"]) == (kind == "LyCORIS, full")


def test_lengths_of_lycoris_are_of_rows_or_of_columns(tmp_path):
    before, parts = draw(5, 6, seed=3).double(), {f"q.{name}": one for name, one in UPDATES["kohya"][0].items()}
    for axis, shape in ((1, (5, 1)), (0, (1, 6))):
        lengths, after = draw(*shape).abs(), before + 1.5 * LORA
        expected = after * lengths.double() / after.norm(dim=axis, keepdim=True) - before
        found = of_a_base(tmp_path, parts | {"q.dora_scale": lengths})
        np.testing.assert_allclose(found.matrix_update_spectrum[0, 0], torch.linalg.svdvals(expected), rtol=1e-6)


@pytest.mark.parametrize("part", ["lora_b.oft_blocks", "lora_b.a1.weight"])
def test_what_no_formula_uses_is_named(part, tmp_path):
    other = {part: draw(2, 3, 3), "lora_b.alpha": ALPHA.clone()}
    save_file({f"a.{n}": t for n, t in UPDATES["kohya"][0].items()} | other, tmp_path / "mixed.safetensors")
    refused(f"whose modules are left out: {part}", checkpoint_spectra, tmp_path / "mixed.safetensors")
    faults: list[str] = []
    found = checkpoint_spectra(tmp_path / "mixed.safetensors", on_error=faults.append)
    assert found.matrix.values.tolist() == ["a.weight"]
    assert len(faults) == 1
    whole = {"base_model.model.norm.weight": draw(5)}
    save_file({f"a.{n}": t for n, t in UPDATES["kohya"][0].items()} | whole, tmp_path / "whole.safetensors")
    assert "whole parameters, whose updates need the base: base" in checkpoint_spectra(
        tmp_path / "whole.safetensors"
    ).attrs["remarks"]  # fmt: skip


def test_scales_in_headers_and_settings(tmp_path):
    meta = {"unet.r": 2, "unet.lora_alpha": 16, "unet.alpha_pattern": {"b": 4}, "text_encoder.r": 2,
            "text_encoder.lora_alpha": 2, "text_encoder.use_rslora": True}  # fmt: skip
    modules = {"unet.a": 8, "unet.b": 2, "text_encoder.a": 2**0.5}
    tensors = {f"{m}.lora_{side}.weight": one.clone() for m in modules for side, one in (("A", DOWN), ("B", UP))}
    save_file(tensors, tmp_path / "d.safetensors", metadata={"lora_adapter_metadata": json.dumps(meta)})
    assert {name: one.scale for name, one in opened(tmp_path / "d.safetensors").updates.items()} == (
        pytest.approx(modules)
    )
    save_file(tensors, tmp_path / "plain.safetensors", metadata={"unet.lora_alpha": "16", "unet.r": "2", "alpha": "2"})
    assert opened(tmp_path / "plain.safetensors").updates["unet.a"].scale == 8
    save_mlx(tmp_path / "mlx", scale=20.0)
    found = checkpoint_spectra(tmp_path / "mlx")
    np.testing.assert_allclose(found.matrix_update_spectrum[0, 0], 20 * torch.linalg.svdvals(LORA)[:2], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({"use_rslora": "false"}, "must have use_rslora true or false; got 'false'"),
        ({"rank_pattern": {"(a+)+b": 2}}, "patterns that are matched quickly"),
        ({"rank_pattern": {".*.*.*.*.*.*.*.*q": 2}}, "patterns that are matched quickly"),
        ({"alpha_pattern": {"(a|a)" * 40: 2}}, "patterns that are matched quickly"),
        ({"alpha_pattern": {"(": 2}}, "must have regular expressions"),
        ({"alpha_pattern": [1]}, "from names to numbers"),
        ({"lora_alpha": float("nan")}, "must have|must be JSON"),
        ({"lora_alpha": 1e308}, "must have a finite number of float32 as lora_alpha"),
        ({"lora_alpha": True}, "must have a finite number"),
        ({"r": True}, "got rank True"),
        ({"init_lora_weights": "lora_ga"}, "which changes the base"),
        ({"init_lora_weights": "a new one"}, "which changes the base"),
        ({"layer_replication": [[0, 1], [0, 2]]}, "got layer_replication, with which the update is not known"),
        ({"use_bdlora": {"nblocks": 2}, "kasa_config": {"beta": 1}}, "got kasa_config, use_bdlora, with which"),
        ({"use_later_variant": True}, "got use_later_variant, with which"),
    ],
)  # fmt: skip
def test_settings_are_not_trusted(settings, reported, tmp_path):
    name = "base_model.model." + "a" * 34
    save_file({f"{name}.lora_A.weight": DOWN, f"{name}.lora_B.weight": UP}, tmp_path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4} | settings
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    refused(reported, checkpoint_spectra, tmp_path)


@pytest.mark.parametrize("alpha", [torch.ones(2), torch.tensor(1j), torch.tensor(float("nan")), torch.tensor(0.0)])
def test_alpha_is_one_number(alpha, tmp_path):
    save_file({f"q.{n}": t for n, t in (UPDATES["kohya"][0] | {"alpha": alpha}).items()}, tmp_path / "a.safetensors")
    refused("must have one number other than 0 as alpha of q", checkpoint_spectra, tmp_path / "a.safetensors")


def same(path, tensors, **options):
    checkpoint = Checkpoint.open(path, **options)
    assert set(checkpoint.tensors) == set(tensors)
    for name, one in checkpoint.read(tensors).items():
        torch.testing.assert_close(one, tensors[name], rtol=0, atol=0)
    return checkpoint


WEIGHTS = {"x.0.weight": draw(4, 6), "x.1.weight": draw(6, 4), "x.1.bias": draw(6)}


def test_folders_of_trainers(tmp_path):
    save_distributed({"model": WEIGHTS, "optimizer": {"m": draw(4, 6)}}, tmp_path / "step-10")
    same(tmp_path / "step-10", WEIGHTS)
    flat = {f"opt_{name}": one for name, one in WEIGHTS.items()}  # of torchtitan
    of_megatron = {"chained_0.optimizer.state.exp_avg.x.0.weight": draw(4, 6)}
    save_distributed(flat | of_megatron | {"optimizer": {"m": draw(4, 6)}}, tmp_path / "flat")
    same(tmp_path / "flat", flat)
    (tmp_path / "gan").mkdir()
    for name in ("model", "model_1"):
        save_file(WEIGHTS, tmp_path / "gan" / f"{name}.safetensors")
    assert "also holds model_1.safetensors, of other models" in same(tmp_path / "gan", WEIGHTS).remarks[0]
    fsdp = tmp_path / "checkpoint-5" / "pytorch_model_fsdp_0"
    save_distributed({"model": WEIGHTS}, fsdp)
    torch.save({"lr": 1}, fsdp.parent / "training_args.bin")
    same(fsdp.parent, WEIGHTS)
    refused("Pass its folder", Checkpoint.open, next(fsdp.glob("*.distcp")))
    pipe = tmp_path / "pipe/transformer"
    pipe.mkdir(parents=True)
    (pipe.parent / "model_index.json").write_text("{}")
    for number, (name, one) in enumerate(WEIGHTS.items(), 1):
        save_file({name: one}, pipe / f"diffusion_pytorch_model-0000{number}-of-00003.safetensors")
    files = {name: f"diffusion_pytorch_model-0000{n}-of-00003.safetensors" for n, name in enumerate(WEIGHTS, 1)}
    (pipe / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    (pipe / "config.json").write_text('{"num_attention_heads": 3}')
    found = same(pipe.parent, WEIGHTS)
    assert "its transformer was read" in found.remarks[0]
    assert found.config["num_attention_heads"] == 3
    alone = Checkpoint.open(pipe / files["x.0.weight"])
    assert "is shard 1 of 3" in alone.remarks[0]
    zero = tmp_path / "zero/global_step1"
    zero.mkdir(parents=True)
    torch.save({"module": {}}, zero / "zero_pp_rank_0_mp_rank_00_model_states.pt")
    for path in (zero.parent, zero, zero / "zero_pp_rank_0_mp_rank_00_model_states.pt"):
        refused(rf"zero_to_fp32\.py {zero.parent} .*--safe_serialization", Checkpoint.open, path)


def test_nothing_in_the_index_of_a_distributed_checkpoint_is_executed(tmp_path, monkeypatch):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, ("sprung",))

    monkeypatch.chdir(tmp_path)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError):
        Checkpoint.open(tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("embedding_axis", [0, 1])
def test_tensor_parallel_shards_are_joined(embedding_axis, tmp_path):
    names = {"layers.0.attention.wq": 0, "layers.0.attention.wo": 1, "layers.0.feed_forward.w1": 0,
             "layers.0.feed_forward.w2": 1, "tok_embeddings": embedding_axis, "output": 0}  # fmt: skip
    shapes = {"tok_embeddings": (16, 8), "output": (16, 8), "layers.0.feed_forward.w1": (24, 8)}
    whole = {f"{n}.weight": draw(*shapes.get(n, (8, 24) if n.endswith("w2") else (8, 8))) for n in names}
    norm = {"norm.weight": draw(8)}
    for rank in range(2):
        part = {f"{n}.weight": whole[f"{n}.weight"].chunk(2, axis)[rank].clone() for n, axis in names.items()}
        torch.save(part | norm, tmp_path / f"consolidated.0{rank}.pth")
    same(tmp_path, whole | norm)
    refused(r"has a part of every matrix\. Pass the folder", Checkpoint.open, tmp_path / "consolidated.00.pth")
    (tmp_path / "consolidated.01.pth").unlink()
    for path in (tmp_path, tmp_path / "consolidated.00.pth"):
        refused("must have all shards of the model; got 1", Checkpoint.open, path)
    for rank in range(2):
        (tmp_path / f"m/mp_rank_0{rank}").mkdir(parents=True)
        torch.save({"model": whole}, tmp_path / f"m/mp_rank_0{rank}/model_optim_rng.pt")
    for path in (tmp_path / "m", tmp_path / "m/mp_rank_00/model_optim_rng.pt"):
        refused("--target-tensor-parallel-size 1", Checkpoint.open, path)


def test_a_choice_among_weights_is_stated(tmp_path):
    W = draw(16, 16)
    args = argparse.Namespace(lr=1)
    torch.save({"model": {"a.weight": W}}, tmp_path / "0.pt")
    both = {"model": {"a.weight": W + 1}, "ema": {"a.weight": W + 0.1}, "opt": {"a": W}, "args": args}
    torch.save(both, tmp_path / "1.pth.tar")
    torch.save({"ema": {"a.weight": W + 0.1}}, tmp_path / "2.pt")
    files = [tmp_path / name for name in ("0.pt", "1.pth.tar", "2.pt")]
    options = {"attention": False, "matrices": "*"}
    found = checkpoint_spectra(*files[:2], **options)
    assert found.matrix_update_norm.item() == pytest.approx(16)
    assert "holds model, ema: model was read. Choose another by --weights" in found.attrs["remarks"]
    with pytest.raises(InputError, match=r"must all be weights, or all averages; got model in .*Pass --weights ema"):
        checkpoint_spectra(*files, **options)
    chosen = checkpoint_spectra(files[0], files[1], weights="ema", **options)
    assert chosen.matrix_update_norm.item() == pytest.approx(1.6, rel=1e-5)
    assert "0.pt has no ema: model was read" in chosen.attrs["remarks"]
    with pytest.raises(InputError, match=r"1\.pth\.tar must hold average; got model, ema"):
        checkpoint_spectra(*files[:2], weights="average", **options)
    lightning = {"state_dict": {"a.weight": W + 0.1}, "current_model_state": {"a.weight": W + 1}}
    torch.save(lightning, tmp_path / "3.ckpt")
    found = checkpoint_spectra(files[0], tmp_path / "3.ckpt", **options)
    assert found.matrix_update_norm.item() == pytest.approx(16)
    swapped = {"ema_state_dict": {"module.a.weight": W + 1}, "meta": {}, "message_hub": {}}
    torch.save({"state_dict": {"a.weight": W + 0.1}} | swapped, tmp_path / "4.pth")
    for choice, norm in ((None, 16), ("ema_state_dict", 1.6)):
        found = checkpoint_spectra(files[0], tmp_path / "4.pth", weights=choice, **options)
        assert found.matrix_update_norm.item() == pytest.approx(norm, rel=1e-5)
        assert "by mmengine, which swaps state_dict and ema_state_dict" in found.attrs["remarks"]
    torch.save({"model": {"a.weight": W + 1}, "ema": {"shadow_params": [W]}}, tmp_path / "5.pt")
    with pytest.raises(InputError, match=r"5\.pt must hold matrices by name under ema; got none"):
        checkpoint_spectra(files[0], tmp_path / "5.pt", weights="ema", **options)
    of_composer = {"model": {"module.a.weight": W + 1}, "optimizers": {"Adam": {"state": {"a": {"exp_avg": W}}}}}
    torch.save({"state": of_composer, "rng": []}, tmp_path / "6.pt")
    same(tmp_path / "6.pt", {"a.weight": W + 1})


@pytest.mark.parametrize(
    ("down", "up"),
    [
        ("lora_A", "lora_B"),
        ("lora.A.weight", "lora.B.weight"),
        ("adapter.linear_in.weight", "adapter.linear_out.w"),
    ],
)
def test_adapters_that_are_not_understood_are_named(down, up, tmp_path):
    adapter = {f"x.0.{down}": draw(2, 6), f"x.0.{up}": draw(4, 2)}
    torch.save(WEIGHTS, tmp_path / "base.pt")
    torch.save(adapter, tmp_path / "alone.pt")
    torch.save(WEIGHTS | adapter, tmp_path / "whole.pt")
    for paths in (["alone.pt"], ["base.pt", "alone.pt"], ["base.pt", "whole.pt"]):
        sources = [tmp_path / path for path in paths]
        sentence = rf"must have adapters that are merged, or under the names of PEFT.*got x\.0\.{down}"
        refused(sentence, of_matrices, *sources)


def test_the_whole_model_of_peft_in_a_folder_of_accelerate(tmp_path):
    part = {"base_layer.weight": draw(5, 6), "lora_A.default.weight": DOWN, "lora_B.default.weight": UP}
    (tmp_path / "a").mkdir()
    save_file({f"base_model.model.x.{name}": one for name, one in part.items()}, tmp_path / "a/model.safetensors")
    save_file({"x.weight": draw(5, 6)}, tmp_path / "base.safetensors")
    found = of_matrices(tmp_path / "base.safetensors", tmp_path / "a")
    assert found.matrix_update_norm.item() == pytest.approx(LORA.norm().item())


def test_weights_beside_an_adapter_are_named(tmp_path):
    (tmp_path / "a").mkdir()
    save_file({"x.lora_A.weight": DOWN, "x.lora_B.weight": UP}, tmp_path / "a/adapter_model.safetensors")
    (tmp_path / "a/adapter_config.json").write_text('{"r": 2, "lora_alpha": 2}')
    for name in ("non_lora_trainables.bin", "optimizer.pt", "rng_state_0.pth"):
        torch.save({"p.weight": draw(4, 4)}, tmp_path / "a" / name)
    save_file({"x.weight": draw(5, 6), "p.weight": draw(4, 4)}, tmp_path / "base.safetensors")
    sentence = f"{tmp_path / 'a'} also holds non_lora_trainables.bin, which it may need: adapter_model"
    assert sentence in checkpoint_spectra(tmp_path / "a").attrs["remarks"]
    assert sentence in merge_into_base(tmp_path / "base.safetensors", [tmp_path / "a"], tmp_path / "m").remarks[0]


def test_arrays_of_numpy(tmp_path):
    np.savez(tmp_path / "weights.npz", **{name: one.numpy() for name, one in WEIGHTS.items()})
    same(tmp_path / "weights.npz", WEIGHTS)
    np.savez(tmp_path / "objects.npz", a=np.array([object()]))
    refused("archive of arrays", lambda: Checkpoint.open(tmp_path / "objects.npz").read(["a"]))


@pytest.mark.parametrize(("kind", "rank"), [("LoHaConfig", 2), ("LoKrConfig", 2), ("LoKrConfig", 8)])
def test_products_of_peft_alone_are_what_it_merges(kind, rank, tmp_path):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(12, 18))
    before = net[0].weight.detach().double()
    wrapped = peft.get_peft_model(net, getattr(peft, kind)(r=rank, alpha=3, target_modules=["0"]))
    with torch.no_grad():
        for one in wrapped.parameters():
            if one.requires_grad:
                one.add_(0.3 * torch.randn(one.shape))
    wrapped.save_pretrained(tmp_path)
    expected = wrapped.merge_and_unload()[0].weight.double() - before
    adapter = opened(tmp_path)
    torch.testing.assert_close(adapter.update("0"), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(importlib.util.find_spec("lycoris") is None, reason="LyCORIS is not installed")
@pytest.mark.parametrize("method", ["lora", "loha", "lokr", "full"])
def test_what_lycoris_writes_is_what_its_forward_pass_adds(method, tmp_path):
    """Its merge applies alpha / rank twice to LoHa (4.1); the forward pass, which is trained, once."""
    from lycoris import create_lycoris

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(12, 18), torch.nn.Linear(18, 12))
    before = {name: one.detach().clone() for name, one in net.state_dict().items()}
    wrapped = create_lycoris(net, 1.0, linear_dim=3, linear_alpha=2.0, algo=method, bypass_mode=False)
    wrapped.apply_to()
    with torch.no_grad():
        for one in wrapped.parameters():
            one.add_(0.1 * torch.randn(one.shape))
    save_file({n: t.contiguous().clone() for n, t in wrapped.state_dict().items()}, tmp_path / "a.safetensors")
    assert load_file(tmp_path / "a.safetensors")
    adapter = opened(tmp_path / "a.safetensors")
    for number in (0, 1):
        (name,) = (name for name in adapter.updates if name.endswith(f"_{number}"))
        inputs = torch.eye(net[number].in_features)
        expected = (net[number](inputs) - net[number](0 * inputs)).T - before[f"{number}.weight"]
        torch.testing.assert_close(adapter.update(name).float(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["0000100_adapters.safetensors", "adapters.safetensors"])
def test_settings_beside_any_file_of_an_adapter_are_used(name, tmp_path):
    save_mlx(tmp_path, name, scale=20.0)
    assert opened(tmp_path / name).updates["q"].scale == 20


def test_an_adapter_of_torchtune(tmp_path):
    torch.save({f"q.{n}": t for n, t in UPDATES["torchtune"][0].items()}, tmp_path / "adapter_model.pt")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 8}))
    for path in (tmp_path, tmp_path / "adapter_model.pt"):
        assert opened(path).updates["q"].scale == 4


def test_what_an_adapter_leaves_open_is_stated_or_refused(tmp_path):
    down, up = {"q.lora_A.weight": DOWN, "q.lora_B.weight": UP}.items()
    assert "has no alpha" in of_a_base(tmp_path, dict((down, up))).attrs["remarks"]
    two = {f"lora_te{one}_q.{n}": t for one in (1, 2) for n, t in UPDATES["kohya"][0].items()}
    refused(r"one update of q\.weight .* got lora_te1_q\.weight and lora_te2_q\.weight", of_a_base, tmp_path, two)
    with pytest.raises(InputError, match="must hold the lengths of DoRA"):
        of_a_base(tmp_path, dict((down, up)), settings={"r": 2, "lora_alpha": 2, "use_dora": True})


@pytest.mark.parametrize("entries", [6, 9])
def test_an_embedding_of_mlx_is_not_transposed(entries, tmp_path):
    W, a, b = draw(entries, 6), draw(entries, 2, seed=1), draw(2, 6, seed=2)
    save_file({"model.embed_tokens.weight": W}, tmp_path / "base.safetensors")
    save_file(
        {f"model.embed_tokens.lora_{side}": one for side, one in (("a", a), ("b", b))}, tmp_path / "a.safetensors"
    )
    for source in (tmp_path / "a.safetensors", merge_lora([tmp_path / "a.safetensors"], tmp_path / "again").adapter):
        made = merge_into_base(tmp_path / "base.safetensors", [source], tmp_path / f"merged {source.stem}")
        torch.testing.assert_close(load_file(made.folder / "base.safetensors")["model.embed_tokens.weight"], W + a @ b)


def test_differences_of_vectors_and_biases_are_added_to_those_of_the_base(tmp_path):
    base = {"norm.weight": draw(6), "q.weight": draw(5, 6), "q.bias": draw(5)}
    parts = {"norm.w_norm": draw(6, seed=1), "q.diff": draw(5, 6, seed=1), "q.diff_b": draw(5, seed=1)}
    save_file(base, tmp_path / "base.safetensors")
    save_file(parts, tmp_path / "a.safetensors")
    made = merge_into_base(tmp_path / "base.safetensors", [tmp_path / "a.safetensors"], tmp_path / "merged")
    found = load_file(made.folder / "base.safetensors")
    for name, part in zip(base, parts.values(), strict=True):
        torch.testing.assert_close(found[name], base[name] + part)


def test_weights_are_chosen_where_adapters_are_looked_for(tmp_path):
    for number in (0, 1):
        nets = {name: {"a.weight": draw(4, 4) + number * size} for name, size in (("ema", 1), ("net", 2))}
        torch.save(nets, tmp_path / f"{number}.pt")
    files = tmp_path / "0.pt", tmp_path / "1.pt"
    found = of_matrices(*files, weights="ema")
    assert found.matrix_update_norm.item() == pytest.approx(4, rel=1e-5)


def test_shards_with_other_names_are_not_read_in_part(tmp_path):
    whole = draw(8, 8)
    for rank in range(2):
        part = whole[4 * rank : 4 * rank + 4].clone()
        tensors = {"a.wq.weight": part, "norm.weight": torch.ones(8), "vision.c_fc.weight": part}
        torch.save(tensors, tmp_path / f"consolidated.0{rank}.pth")
    refused(r"got vision\.c_fc\.weight, which differs", lambda: Checkpoint.open(tmp_path).read(["vision.c_fc.weight"]))


def _changed(change):
    """Return a change of .metadata, whose entries are those of `model.x.0.weight`, and of its file."""

    def changed(folder):
        index = pickle.loads((folder / ".metadata").read_bytes())
        place = next(one for one in index.storage_data if one.fqn == "model.x.0.weight")
        change(folder, index.state_dict_metadata["model.x.0.weight"], index.storage_data[place])
        (folder / ".metadata").write_bytes(pickle.dumps(index))

    return changed


def _nested(folder, _, chunk):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02K\x01\x85q\x00" + b"h\x00h\x00\x86q\x00" * 30 + b"}h\x00K\x01s.")
    (folder / "other.distcp").write_bytes(content.getvalue())
    chunk.relative_path, chunk.offset, chunk.length = "other.distcp", 0, len(content.getvalue())


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (lambda _, tensor, __: setattr(tensor, "size", torch.Size([10**6, 10**7])), "of shape .* got .* bytes"),
        (lambda _, tensor, __: setattr(tensor, "size", torch.Size([4, 6, 1])), "inside of it"),
        (lambda _, tensor, __: setattr(tensor, "size", torch.Size([2**62, 2**62, 0])), "must hold x.0.weight|joined"),
        (lambda _, tensor, __: setattr(tensor, "size", ["a", "b"]), "is no size"),
        (lambda _, tensor, __: setattr(tensor, "size", (-4, 6)), "is no size"),
        (lambda _, __, chunk: setattr(chunk, "length", None), "must have a chunk of x.0.weight"),
        (_nested, "it nests tuples"),
    ],
)
def test_sizes_in_a_distributed_checkpoint_are_not_trusted(change, reported, tmp_path):
    save_distributed({"model": WEIGHTS | {"count": torch.arange(3)}}, tmp_path)
    floating = {name: one.floating for name, one in Checkpoint.open(tmp_path).tensors.items()}
    assert floating == {"count": False, "x.0.weight": True, "x.1.bias": True, "x.1.weight": True}
    _changed(change)(tmp_path)
    refused(reported, lambda: Checkpoint.open(tmp_path).read(["x.0.weight"]))


def test_sizes_in_an_archive_of_arrays_are_not_trusted(tmp_path):
    start = io.BytesIO()
    np.lib.format.write_array_header_1_0(start, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)})
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("w.npy", start.getvalue())
    refused("w has 128 bytes for 800000000000000", Checkpoint.open, tmp_path / "huge.npz")
    np.savez_compressed(tmp_path / "cut.npz", w=draw(50, 50).numpy())
    content = bytearray((tmp_path / "cut.npz").read_bytes())
    content[2000:2100] = bytes(100)
    (tmp_path / "cut.npz").write_bytes(content)
    refused("must be a complete archive of arrays", lambda: Checkpoint.open(tmp_path / "cut.npz").read(["w"]))
    (tmp_path / "cut.npz").write_bytes(content[:-30])  # without its end, it is no archive any more
    refused("must be a complete archive of arrays", Checkpoint.open, tmp_path / "cut.npz")


def test_peft_asks_no_network_and_allocates_no_more_than_tensors(tmp_path):
    pytest.importorskip("peft")
    vera = {"base_model.model.q.vera_lambda_b": torch.ones(5), "base_model.model.q.vera_lambda_d": torch.ones(4)}
    config = {"peft_type": "VERA", "r": 4 * 10**6, "target_modules": ["q"], "projection_prng_key": 777}
    base = tmp_path / "base.safetensors"
    save_file({"q.weight": draw(5, 6)}, base)
    (tmp_path / "vera").mkdir()
    save_file(vera, tmp_path / "vera/adapter_model.safetensors")
    (tmp_path / "vera/adapter_config.json").write_text(json.dumps(config))
    refused(r"no larger than the largest dimension, 6, .* got r 4000000", of_matrices, base, tmp_path / "vera")
    hidden = config | {"r": 4, "rank_pattern": {"q|step": 10**9}}
    (tmp_path / "vera/adapter_config.json").write_text(json.dumps(hidden))
    refused("got rank_pattern 1000000000", of_matrices, base, tmp_path / "vera")
    alone = {"q.lora_A.weight": DOWN, "q.lora_B.weight": UP}
    header = {"lora_adapter_metadata": json.dumps(config | {"r": 2, "lora_alpha": 2})}
    save_file(alone, tmp_path / "lone.safetensors", metadata=header)
    with pytest.raises(InputError, match=r"must have adapter_config\.json beside it, since its method is VERA"):
        of_matrices(base, tmp_path / "lone.safetensors")


def test_two_scales_of_mlx_are_refused(tmp_path):
    save_mlx(tmp_path, scale=10.0, alpha=2)
    assert opened(tmp_path).updates["q"].scale == 10
    save_mlx(tmp_path, scale=10.0, alpha=16)
    refused(r"got scale 10\.0 and alpha 16 for factors of rank 2", checkpoint_spectra, tmp_path)


def test_chunks_of_a_distributed_checkpoint_are_beside_each_other(tmp_path):
    halves = draw(4, 6).chunk(2)
    save_distributed({"model": {"a": halves[0].clone(), "b": halves[1].clone()}}, tmp_path)
    index = pickle.loads((tmp_path / ".metadata").read_bytes())
    (first, one), (_, two) = index.storage_data.items()
    size = index.state_dict_metadata["model.a"]
    size.size = torch.Size([4, 6])
    for start, expected in ((2, None), (1, "beside each other")):
        index.storage_data = {first: one, type(first)("model.a", torch.Size([start, 0])): two}
        index.state_dict_metadata = {"model.a": size}
        (tmp_path / ".metadata").write_bytes(pickle.dumps(index))
        if expected is None:
            same(tmp_path, {"a": torch.cat(halves)})
        else:
            refused(expected, lambda: Checkpoint.open(tmp_path).read(["a"]))
