"""Checkpoint files: every format of the same tensors reads the same; damaged or malicious files do no harm."""

import argparse
import collections
import io
import json
import os
import pickle
import struct
import zipfile

import pytest
import torch
from safetensors.torch import save_file
from stored_models import sharded, stored

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints import Checkpoint


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(0)
    return {
        "layers.2.weight": torch.randn(3, 4, generator=generator),
        "layers.10.weight": torch.randn(4, 4, generator=generator).to(torch.bfloat16),
        "norm.bias": torch.randn(4, generator=generator).double(),
        "mask": torch.ones(2, 2, dtype=torch.bool),
    }


def same(checkpoint, tensors):
    read = checkpoint.read(tensors)
    return all(read[name].dtype == tensors[name].dtype and torch.equal(read[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize(
    "way", ["file", "folder", "shards", "torch shards", "torch", "nested", "lightning", "ddp", "compiled", "odd name"]
)
def test_every_way_to_store_the_same_tensors_reads_the_same(tmp_path, tensors, way):
    path = tmp_path / "here"
    match way:
        case "file":
            save_file(tensors, path := tmp_path / "weights.safetensors")
        case "folder":
            stored(path, tensors)
        case "shards":
            sharded(path, tensors, 3)
        case "torch shards":
            sharded(path, tensors, kind="bin")
        case "torch":
            torch.save(tensors, path := tmp_path / "weights.pt")
        case "nested":
            torch.save({"step": 3, "model": tensors, "losses": [1.0]}, path := tmp_path / "weights.pth")
        case "lightning":
            torch.save({"epoch": 1, "state_dict": tensors}, path := tmp_path / "last.ckpt")
        case "ddp":
            torch.save({f"module.{name}": tensor for name, tensor in tensors.items()}, path := tmp_path / "x.bin")
        case "compiled":
            stored(path, {f"_orig_mod.{name}": tensor for name, tensor in tensors.items()})
        case "odd name":
            path.mkdir()
            save_file(tensors, path / "anything.safetensors")
    checkpoint = Checkpoint.open(path)
    assert list(checkpoint.tensors) == ["layers.2.weight", "layers.10.weight", "mask", "norm.bias"]
    assert same(checkpoint, tensors)
    assert [stored.floating for stored in checkpoint.tensors.values()] == [True, True, False, True]
    assert checkpoint.tensors["layers.2.weight"].shape == (3, 4)


def test_digests_report_values_types_and_shapes(tmp_path, tensors):
    stored(tmp_path / "a", tensors)
    sharded(tmp_path / "b", tensors, kind="bin")
    a, b = Checkpoint.open(tmp_path / "a"), Checkpoint.open(tmp_path / "b")
    assert {name: a.digest(name) for name in tensors} == {name: b.digest(name) for name in tensors}
    zeros = torch.zeros(4)
    variants = {"a": zeros, "b": torch.zeros(2, 2), "c": zeros.int(), "d": torch.tensor([0.0, 0, 0, -0.0])}
    variants["e"] = torch.zeros(8, dtype=torch.bfloat16)
    other = Checkpoint.open(stored(tmp_path / "c", variants))
    assert len({other.digest(name) for name in variants}) == 5


@pytest.mark.parametrize("entry", [0, 1, 12345, 99_999])
def test_tensors_that_differ_in_one_entry_are_not_the_same(tmp_path, entry):
    """Most entries are in no sample, so that the whole tensors are compared."""
    tensor = torch.arange(100_000.0)
    changed = tensor.clone()
    changed[entry] += 1
    paths = [stored(tmp_path / name, {"W": one}) for name, one in (("a", tensor), ("b", tensor), ("c", changed))]
    a, b, c = map(Checkpoint.open, paths)
    assert a.holds_same("W", b, "W")
    assert not a.holds_same("W", c, "W")
    assert (a.sample("W") == c.sample("W")) == (entry == 12345)


class Trap:
    """Object that would run code if it were unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("sprung",))


def legacy(path, tensors):
    torch.save(tensors, path, _use_new_zipfile_serialization=False)


def header(content, length=None):
    text = json.dumps(content).encode() if isinstance(content, dict) else content
    return struct.pack("<Q", len(text) if length is None else length) + text


def described(shape=(2, 2), offsets=(0, 16), kind="F32"):
    return {"w": {"dtype": kind, "shape": list(shape), "data_offsets": list(offsets)}}


def test_nothing_in_a_hostile_file_is_executed(tmp_path, tensors, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.bin").write_bytes(pickle.dumps({"w": Trap()}))
    torch.save(tensors | {"w": Trap()}, tmp_path / "inside.pt")
    legacy(tmp_path / "legacy.pt", tensors | {"w": Trap()})
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("archive/data.pkl", pickle.dumps({"w": Trap()}))
        made.writestr("archive/version", "3")
    (tmp_path / "archive.pth").write_bytes(archive.getvalue())
    for name in ("plain.bin", "inside.pt", "legacy.pt", "archive.pth"):
        refused("nothing in it was executed", Checkpoint.open, tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 7,
        header(b"{}", 2**62),
        header(b"{}", 100_000_001),
        header(b"[1, 2]"),
        header(b"\xff\xfe"),
        header(b"[" * 50_000),
        header(described()) + b"\0" * 15,
        header(described()) + b"\0" * 17,
        header(described(shape=(2**40, 2**40))) + b"\0" * 16,
        header(described(shape=(2**63, 2))) + b"\0" * 16,
        header(described(offsets=(16, 0))) + b"\0" * 16,
        header(described(offsets=(-16, 0))) + b"\0" * 16,
        header(described(kind="F31")) + b"\0" * 16,
        header({"a": described()["w"], "b": described()["w"]}) + b"\0" * 16,
    ],
)
def test_a_damaged_safetensors_file_is_one_sentence(tmp_path, content):
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="must be a complete safetensors file") as reported:
        Checkpoint.open(tmp_path / "w.safetensors")
    assert "\n" not in str(reported.value)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_a_truncated_file_is_one_sentence(tmp_path, tensors, name, share):
    file = tmp_path / name
    save_file(tensors, file) if name.endswith("safetensors") else torch.save(tensors, file)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    refused(r"must be a complete (safetensors )?file", Checkpoint.open, file)


def test_folders_that_lack_something_say_what(tmp_path, tensors):
    def reported(path):
        with pytest.raises(InputError) as error:
            Checkpoint.open(path)
        return str(error.value)

    assert "There is no checkpoint" in reported(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "or one file of weights; got none" in reported(tmp_path / "empty")
    two = stored(tmp_path / "two", tensors).parent / "two"
    (two / "model.safetensors").rename(two / "a.safetensors")
    torch.save(tensors, two / "b.pt")
    assert "got a.safetensors, b.pt. Name the file." in reported(two)
    shards = sharded(tmp_path / "shards", tensors, 4)
    (shards / "model-00002-of-00004.safetensors").unlink()
    (shards / "model-00003-of-00004.safetensors").unlink()
    assert (
        "all 4 shards of its index; got none of model-00002-of-00004.safetensors, model-00003-of-00004.safetensors."
        in reported(shards)
    )
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter/adapter_config.json").write_text("{}")
    assert "or merge it first" in reported(tmp_path / "adapter")
    (tmp_path / "weights.gguf").write_bytes(b"GGUF")
    assert "is GGUF" in reported(tmp_path / "weights.gguf")
    (tmp_path / "m.weights.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert "by model.load_weights(" in reported(tmp_path / "m.weights.h5")
    with zipfile.ZipFile(tmp_path / "script.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("script/code/__torch__/a.py", "a = 1")
    assert "torch.save(torch.jit.load(" in reported(tmp_path / "script.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    assert "must hold tensors by name" in reported(tmp_path / "list.pt")
    legacy(tmp_path / "legacy.pt", tensors)
    assert "the format of PyTorch before 1.6" in reported(tmp_path / "legacy.pt")
    (tmp_path / "empty.pt").touch()
    assert "(an empty file)" in reported(tmp_path / "empty.pt")
    (tmp_path / "other.pt").write_bytes(b"GIF89a")
    assert "(another format), and nothing in it was executed. Fetch it again." in reported(tmp_path / "other.pt")
    torch.save(torch.nn.ReLU(), tmp_path / "module.pt")
    assert (
        "(it has an object of torch.nn.modules.activation.ReLU), and nothing in it was executed. Save model.state_dict"
        in reported(tmp_path / "module.pt")
    )


@pytest.mark.parametrize(
    ("index", "reported"),
    [
        ("{", "must be JSON"),
        ("[]", "must hold a JSON object; got list"),
        ("[" * 100_000, "must be JSON"),
        ("{}", "must have a weight_map"),
        ('{"weight_map": {"w": 3}}', "must have a weight_map"),
        ('{"weight_map": {"w": "../model.safetensors"}}', "must name files of its own folder"),
        ('{"weight_map": {"w": "/etc/passwd"}}', "must name files of its own folder"),
        ('{"weight_map": {"gone": "model.safetensors"}}', "got none of gone. Fetch model.safetensors again."),
    ],
)
def test_an_index_is_not_trusted(tmp_path, tensors, index, reported):
    folder = stored(tmp_path / "folder", tensors)
    stored(tmp_path, tensors)
    (folder / "model.safetensors.index.json").write_text(index)
    refused(reported, Checkpoint.open, folder)


def test_a_tensor_in_two_shards_is_refused(tmp_path, tensors):
    folder = sharded(tmp_path, tensors, 2)
    save_file(tensors, folder / "model-00002-of-00002.safetensors")
    refused("must hold each tensor once", Checkpoint.open, folder)


def test_shards_that_are_lost_are_reported_and_the_others_read(tmp_path, tensors):
    folder = sharded(tmp_path, tensors, 4)
    names = list(tensors)
    (folder / "model-00002-of-00004.safetensors").unlink()
    (folder / "model-00003-of-00004.safetensors").write_bytes(b"cut")
    faults: list[str] = []
    checkpoint = Checkpoint.open(folder, on_error=faults.append)
    assert set(checkpoint.tensors) == {names[0], names[3]}
    assert checkpoint.lost == {names[1], names[2]}
    assert "got none of model-00002-of-00004.safetensors." in faults[0]
    assert "model-00003-of-00004.safetensors must be a complete safetensors file" in faults[1]
    assert len(faults) == 2
    refused("must hold all 4 shards", Checkpoint.open, folder)


def test_a_few_bytes_that_claim_to_be_a_large_matrix_are_refused(tmp_path):
    torch.save({"w": torch.zeros(1).expand(2**20, 2**20)}, tmp_path / "w.pt")
    own_storage = r"must hold dense tensors with their own storage; got w \(shape \(1048576, 1048576\)"
    refused(own_storage, Checkpoint.open, tmp_path / "w.pt")
    torch.save({"w": torch.eye(3).to_sparse()}, tmp_path / "w.pt")
    refused("must hold dense tensors", Checkpoint.open, tmp_path / "w.pt")
    torch.save({"w": torch.ones(3, 4).T}, tmp_path / "w.pt")  # a view of a whole tensor is fine
    assert Checkpoint.open(tmp_path / "w.pt").tensors["w"].shape == (4, 3)


def test_what_is_not_there_cannot_be_read(tmp_path, tensors):
    checkpoint = Checkpoint.open(stored(tmp_path, tensors))
    refused("must hold other; got a checkpoint without it", checkpoint.read, ["other"])


def of_nanogpt(tensors, **more):
    """Return what nanoGPT's train.py saves of a compiled model, with its loss as a tensor."""
    weight = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    return {
        "model": {f"_orig_mod.{name}": tensor for name, tensor in tensors.items()},
        "optimizer": optimizer.state_dict(),
        "model_args": {"n_layer": 2, "n_head": 4, "bias": False},
        "iter_num": 100,
        "best_val_loss": torch.tensor(2.5),
        "config": {"n_head": 6, "learning_rate": 6e-4, "wandb_log": False},
    } | more


def test_files_of_training_scripts(tmp_path, tensors):
    content = of_nanogpt(tensors)
    torch.save(content, tmp_path / "ckpt.pt")
    checkpoint = Checkpoint.open(tmp_path / "ckpt.pt")
    assert same(checkpoint, tensors)
    assert len(checkpoint.tensors) == len(tensors)
    assert checkpoint.config["n_head"] == 4  # of the model, not of the script
    assert checkpoint.config["learning_rate"] == 6e-4
    torch.save(content | {"rng_state": torch.zeros(4, 4, dtype=torch.uint8)}, tmp_path / "stray.pt")
    assert same(Checkpoint.open(tmp_path / "stray.pt"), tensors)
    torch.save({"net": tensors, "loss": torch.tensor(1.0), "mean": {"x": torch.ones(3)}}, tmp_path / "own.pt")
    assert same(Checkpoint.open(tmp_path / "own.pt"), tensors)
    torch.save({"net": tensors, "ema": tensors}, tmp_path / "two.pt")
    refused(r"must hold one state dict; got ema, net\. Choose one by --weights", Checkpoint.open, tmp_path / "two.pt")
    torch.save(content | {"hook": Trap()}, tmp_path / "trap.pt")
    refused("nothing in it was executed", Checkpoint.open, tmp_path / "trap.pt")
    (tmp_path / "config.json").write_text('{"n_head": 3}')
    assert Checkpoint.open(tmp_path / "ckpt.pt").config == {"n_head": 3}


def raw(call, count):
    """Return a pickle of a dictionary with a call of a class with sizes."""
    sizes = b"".join(b"J" + one.to_bytes(4, "little") for one in count)
    return b"\x80\x02}(X\x01\x00\x00\x00wc" + call + b"(" + sizes + b"tR" + b"X\x01\x00\x00\x00vK\x01u."


def archived(content, name="data.pkl"):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for own, one in ((name, content), ("version", b"3\n"), ("byteorder", b"little")):
            archive.writestr(f"archive/{own}", one)
    return made.getvalue()


NESTED = b"\x80\x02K\x01\x85q\x00" + b"h\x00h\x00\x86q\x00" * 30 + b"}h\x00K\x01s."  # a key hashed in 2^30 steps


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (archived(raw(b"builtins\nbytearray\n", [2**30])), "calls a class that reserves memory"),
        (archived(raw(b"torch\nFloatTensor\n", [2**15, 2**15])), "calls a class that reserves memory"),
        (archived(raw(b"torch\nTensor\n", [2**15, 2**15])), "calls a class that reserves memory"),
        (archived(raw(b"torch.storage\nUntypedStorage\n", [2**30])), "calls a class that reserves memory"),
        (archived(NESTED), "it nests tuples"),
        (archived(NESTED, "DATA.PKL"), "it nests tuples"),
    ],
)
def test_a_small_file_takes_little_time_and_memory(tmp_path, content, reported):
    (tmp_path / "w.pt").write_bytes(content)
    refused(reported, Checkpoint.open, tmp_path / "w.pt")


def test_dictionaries_that_occur_many_times(tmp_path):
    weight = torch.ones(2, 2)
    empty: dict[str, object] = {"z": 1}
    for _ in range(40):
        empty = {"a": empty, "b": empty}
    itself: dict[str, object] = {}
    itself["itself"] = itself
    torch.save({"w": weight, "empty": empty, "itself": itself}, tmp_path / "w.pt")
    assert list(Checkpoint.open(tmp_path / "w.pt").tensors) == ["w"]
    many: dict[str, object] = {"w": weight}
    for _ in range(6):
        many = {f"a{number}": many for number in range(100)}
    torch.save({"state": many}, tmp_path / "many.pt")
    refused("it nests dictionaries", Checkpoint.open, tmp_path / "many.pt")


def test_what_pytorch_writes_of_tensors_still_loads(tmp_path):
    marked = torch.ones(2, 2)
    marked.note = 1  # stored with its class
    tensors = {
        "parameter": torch.nn.Parameter(torch.ones(2, 3)),
        "marked": marked,
        "without a legacy storage": torch.ones(2, 2).to(torch.float8_e4m3fn),
    }
    torch.save(tensors, tmp_path / "w.pt")
    assert set(Checkpoint.open(tmp_path / "w.pt").read(tensors)) == set(tensors)


class Settings(dict):
    """Dictionary with attributes, such as Lightning's AttributeDict."""


class Ordered(collections.OrderedDict):
    """Subclass with attributes of its own, such as Transformers' ModelOutput."""


class History(list):
    """Subclass of list."""


class Model(torch.nn.Module):
    """Class that the reader of its file does not have."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm1d(2)])
        self.register_buffer("mask", torch.ones(2, 2), persistent=False)
        self.settings, self.loss = Settings(lr=1), torch.nn.functional.mse_loss


def test_objects_beside_weights_are_passed_over(tmp_path):
    logged = collections.defaultdict(list, loss=[1.0])
    content = {"model": {"w": torch.ones(2, 2)}, "log": logged, "kind": [int, float, str, dict], "path": tmp_path}
    torch.save(content, tmp_path / "w.pt")
    assert list(Checkpoint.open(tmp_path / "w.pt").tensors) == ["w"]


def test_subclasses_of_dict_and_list_are_read_as_these(tmp_path):
    named = Ordered(w=torch.ones(2, 2))
    vars(named)["note"] = "text"
    history = History([Settings(loss=1.0), Settings(loss=0.5)])
    marked = History([1.0])
    vars(marked)["note"] = "text"
    torch.save({"model": named, "history": marked}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="it has objects that are no plain data") as error:
        Checkpoint.open(tmp_path / "w.pt")
    assert "weights_only" not in str(error.value)
    for kind in (Settings, Ordered, lambda given: collections.defaultdict(dict, given)):
        content = kind({"hyper_parameters": Settings(num_heads=4), "model": named, "history": history})
        torch.save(content, tmp_path / "w.pt")
        checkpoint = Checkpoint.open(tmp_path / "w.pt")
        assert list(checkpoint.tensors) == ["w"]
        assert checkpoint.config == {"num_heads": 4}
    torch.save({"model": named, "args": argparse.Namespace(nhead=2, path=tmp_path)}, tmp_path / "w.pt")
    assert Checkpoint.open(tmp_path / "w.pt").config == {"nhead": 2}


def test_a_pickled_module_is_read_as_its_state_dict(tmp_path):
    model = Model()
    for content in (model, {"model": model, "epoch": 3}):
        torch.save(content, tmp_path / "w.pt")
        checkpoint = Checkpoint.open(tmp_path / "w.pt")
        assert checkpoint.tensors.keys() == model.state_dict().keys()
        for name, tensor in checkpoint.read(checkpoint.tensors).items():
            assert torch.equal(tensor, model.state_dict()[name])
    inside = torch.nn.Module()
    inside._modules["inside"] = inside
    inside.register_buffer("w", torch.ones(2, 2))
    shared = torch.nn.Module()
    shared.register_buffer("w", torch.ones(2, 2))
    for _ in range(12):
        outer = torch.nn.Module()
        outer._modules |= {"a": shared, "b": shared}
        shared = outer
    many = {f"model{number}": torch.nn.Module() for number in range(300)}
    for one in many.values():
        one._modules["inside"] = shared
    long = torch.nn.Module()
    long._parameters["w" * 10**6] = torch.nn.Parameter(torch.ones(2, 2))
    several = torch.nn.Module()
    several._modules |= {str(number): long for number in range(400)}
    for content in (inside, many, several):
        torch.save(content, tmp_path / "w.pt")
        refused("it nests modules", Checkpoint.open, tmp_path / "w.pt")
    torch.save(dict.fromkeys(map(str, range(30)), shared), tmp_path / "w.pt")  # one module, read once
    refused("must hold one state dict", Checkpoint.open, tmp_path / "w.pt")
