"""Checkpoints of small models for tests, in each common format."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from saddlescope.ranks.checkpoints import checkpoint_spectra


def of_matrices(*sources, **options):
    """Return the spectra of all single matrices between checkpoints, or of adapters."""
    return checkpoint_spectra(*sources, attention=False, matrices="*", **options)


def moved(tensors, seed, size=0.1):
    """Return tensors with every floating-point one moved a little, as by training."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + size * torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in tensors.items()
    }


def stored(path: Path, tensors, config=None):
    """Write tensors to model.safetensors in a folder, with config.json if given."""
    path.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path / "model.safetensors")
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path


def sharded(path: Path, tensors, shards=2, kind="safetensors"):
    """Write tensors to shards with an index."""
    path.mkdir(parents=True, exist_ok=True)
    stem = "model" if kind == "safetensors" else "pytorch_model"
    names, weight_map = list(tensors), {}
    for number in range(shards):
        file = f"{stem}-{number + 1:05}-of-{shards:05}.{kind}"
        part = {name: tensors[name].contiguous() for name in names[number::shards]}
        save_file(part, path / file) if kind == "safetensors" else torch.save(part, path / file)
        weight_map |= dict.fromkeys(part, file)
    (path / f"{stem}.{kind}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return path
