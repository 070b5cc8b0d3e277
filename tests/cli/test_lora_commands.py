"""The commands `lora resize` and `lora merge`: files in, files out, and input that cannot be used."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file


@pytest.fixture
def call(typed):
    """Run a command in a folder with base.safetensors and two adapters of it."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    names = [f"layers.{layer}.mlp" for layer in range(2)]
    save_file({f"{name}.weight": draw(8, 6) for name in names}, "base.safetensors")
    for file in ("a", "b"):
        sides = {f"{name}.lora_{side}.weight": draw(*shape) for name in names
                 for side, shape in (("A", (4, 6)), ("B", (8, 4)))}  # fmt: skip
        save_file(sides | {f"{name}.alpha": torch.tensor(8.0) for name in names}, f"{file}.safetensors")
    return typed


def test_ranks_go_down_and_sums_go_into_adapters_and_bases(call, tmp_path):
    status, out, _ = call("lora resize a.safetensors --rank 2 --out small")
    assert status == 0
    for words in ("layers.1.mlp", "One rank for all layers", "Stored in small"):
        assert words in out
    status, out, _ = call("lora resize a.safetensors --energy 0.9 --out small --json")
    reported = json.loads(out)
    assert reported["captured_energy"] >= 0.9
    assert {layer["rank"] for layer in reported["layers"]} <= {1, 2, 3, 4}
    status, out, _ = call("lora merge a.safetensors b.safetensors --weight 1 --weight -0.5 --out both")
    assert status == 0
    assert load_file("both/adapter_model.safetensors")["base_model.model.layers.0.mlp.lora_A.weight"].shape == (6, 6)
    line = "lora merge a.safetensors b.safetensors --weight 1 --weight -0.5 --base base.safetensors --out merged"
    status, out, _ = call(line)
    assert status == 0
    assert "2 weights changed; rounding takes at most" in out
    name = "layers.0.mlp"
    expected = load_file("base.safetensors")[f"{name}.weight"].double()
    for file, weight in (("a", 2.0), ("b", -1.0)):
        one = load_file(f"{file}.safetensors")
        expected += weight * one[f"{name}.lora_B.weight"].double() @ one[f"{name}.lora_A.weight"].double()
    found = load_file(tmp_path / "merged/base.safetensors")[f"{name}.weight"].double()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
