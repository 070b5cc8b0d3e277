"""The commands `spectra` and `extract-lora`: files in, tables and files out, and input that cannot be used."""

import json

import pytest
import torch

from saddlescope import store

HEADS, WIDTH, D = 2, 3, 6


def weights(seed, layers=2):
    """Attention and an MLP in Llama's names, one seed a checkpoint."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {f"{name}_proj": (D, D) for name in "qkvo"} | {"mlp": (2 * D, D)}
    return {
        f"layers.{layer}.{name}.weight": torch.randn(shape, generator=generator)
        for layer in range(layers)
        for name, shape in shapes.items()
    }


@pytest.fixture
def call(typed):
    """Run a command in a folder with base.pt, step1.pt ... step6.pt."""
    base = weights(0)
    torch.save(base, "base.pt")
    for step in range(1, 7):
        torch.save({name: one + step * weights(1)[name] for name, one in base.items()}, f"step{step}.pt")
    return typed


@pytest.mark.usefixtures("undrawn")
def test_spectra_go_into_a_table_a_file_and_a_page(call, tmp_path):
    status, out, err = call("spectra base.pt step1.pt step4.pt --heads 2 --matrices *mlp* --site site --out s.nc")
    assert status == 0
    for words in ("layers.0", "W_K W_Qᵀ", "2 of 2", "layers.1.mlp.weight", "Stored in s.nc.", "site/index.html"):
        assert words in out
    assert "spectra: 100%" in err
    stored = store.read("s.nc")
    assert stored.step.values.tolist() == [1, 4]
    assert stored.attrs["command"] == "saddlescope spectra base.pt step1.pt step4.pt"
    assert "torch" in json.loads(stored.attrs["versions"])
    page = (tmp_path / "site/index.html").read_text()
    assert "step4.pt" in page
    assert "layers.1.mlp.weight" in page
    assert (tmp_path / "site/spectra/s.nc").read_bytes() == (tmp_path / "s.nc").read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_a_series_has_its_staircase_on_the_page(call, tmp_path):
    names = " ".join(f"step{step}.pt" for step in range(1, 7))
    assert call(f"spectra base.pt {names} --heads 2 --site site")[0] == 0
    assert "Steps of the rank, head by head" in (tmp_path / "site/index.html").read_text()


def test_json_has_the_same_numbers(call):
    status, out, _ = call("spectra base.pt step2.pt --heads 2 --json")
    reported = json.loads(out)
    stored = store.read("spectra.nc")
    assert (status, reported["faults"], reported["stored"]) == (0, [], "spectra.nc")
    first = reported["layers"][0]
    assert (first["layer"], first["product"], first["heads"]) == ("layers.0", "W_K W_Qᵀ", "2 of 2")
    assert first["stable rank"] == pytest.approx(float(stored.stable_rank[0, 0, :, 0].mean()))
    assert first["most"] == pytest.approx(float(stored.stable_rank[0, 0, :, 0].max()))


def test_what_cannot_be_measured_is_reported_and_the_rest_is_done(call):
    tensors = torch.load("step1.pt")
    tensors["layers.1.q_proj.weight"][0, 0] = torch.nan
    torch.save(tensors, "broken.pt")
    status, out, err = call("spectra base.pt broken.pt --heads 2")
    assert status == 2
    assert "got NaN or infinity in layers.1.q_proj.weight" in err
    assert "not measured" in out
    assert "layers.0" in out
    assert store.read("spectra.nc").stable_rank.sel(layer="layers.0").notnull().all()
    torch.save({name: one.half() for name, one in torch.load("base.pt").items()}, "rounded.pt")
    status, out, err = call("spectra base.pt rounded.pt --heads 2")
    assert status == 2
    assert out.count("not measurable in this precision") == 4
    assert err.count("not measurable in this precision") == 1


def test_an_adapter_and_what_each_rank_keeps(call, tmp_path):
    status, out, err = call("extract-lora base.pt step1.pt --energy 0.9 --no-logits --out adapter")
    assert status == 0
    for words in ("layers.1.mlp", "One rank for all layers", "least of a layer", "of the energy", "Stored in adapter"):
        assert words in out
    assert "extract-lora: 100%" in err
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert len(config["target_modules"]) == 10
    status, out, _ = call("extract-lora base.pt step1.pt --rank 2 --no-logits --out adapter --json")
    reported = json.loads(out)
    assert (status, reported["left_out"], reported["logits"], reported["faults"]) == (0, [], None, [])
    assert {layer["rank"] for layer in reported["layers"]} == {2}
    assert [row["rank"] for row in reported["ranks"]] == [1, 2, 4, 6]
    assert reported["ranks"][-1]["captured_energy"] == pytest.approx(1)
    assert reported["captured_energy"] == pytest.approx(reported["ranks"][1]["captured_energy"])


def test_logits_that_cannot_be_compared_are_reported_after_the_adapter_is_written(call, tmp_path):
    status, out, err = call("extract-lora base.pt step1.pt --rank 2 --out adapter")
    assert status == 2
    assert "The logits were not compared" in err
    assert "Stored in adapter" in out
    assert (tmp_path / "adapter/adapter_model.safetensors").exists()


def test_heads_by_patterns(call):
    plain = call("spectra base.pt step2.pt --heads 2 --json --out a.nc")
    assert call("spectra base.pt step2.pt --heads layers.0=2 --heads 'layers.*=2' --json --out a.nc") == plain


def test_an_adapter_after_its_base_and_alone(call):
    """The adapter of full rank has the update of the checkpoint that it was extracted from."""
    assert call("extract-lora base.pt step1.pt --energy 1 --no-logits --out adapter")[0] == 0
    _, whole, _ = call("spectra base.pt step1.pt --heads 2 --matrices *mlp* --json")
    status, merged, _ = call("spectra base.pt adapter --heads 2 --matrices *mlp* --json")
    assert status == 0
    for name in ("layers", "matrices"):
        for one, other in zip(json.loads(whole)[name], json.loads(merged)[name], strict=True):
            numbers = {key: value for key, value in one.items() if isinstance(value, float)}
            assert numbers == pytest.approx({key: other[key] for key in numbers}, rel=1e-5)
            assert len(numbers) > 2
    status, alone, _ = call("spectra adapter --matrices *mlp* --json")
    assert status == 0
    for one, other in zip(json.loads(whole)["matrices"], json.loads(alone)["matrices"], strict=True):
        assert one["stable rank"] == pytest.approx(other["stable rank"], rel=1e-5)
    status, out, _ = call("spectra adapter --out alone.nc")
    assert status == 0
    assert "layers.1.o_proj.weight" in out
