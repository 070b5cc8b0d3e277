"""Formats of files and folders of tensors: each recognises its own, and gives names, shapes and tensors on request.

safetensors_file    one file
torch_file          one file of `torch.save`
numpy_file          one .npz file, as of older versions of mlx
distributed         a folder of `torch.distributed.checkpoint`: FSDP, torchtitan, Megatron
parallel            a folder of tensor-parallel shards of Meta's Llama
unread              what is recognised and not read, each with the line that converts it
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saddlescope.ranks.checkpoints.formats.distributed import is_distributed, open_distributed
from saddlescope.ranks.checkpoints.formats.numpy_file import is_numpy, open_numpy
from saddlescope.ranks.checkpoints.formats.parallel import open_parallel
from saddlescope.ranks.checkpoints.formats.safetensors_file import open_safetensors
from saddlescope.ranks.checkpoints.formats.tensor_file import TensorFile
from saddlescope.ranks.checkpoints.formats.torch_file import open_torch
from saddlescope.ranks.checkpoints.formats.unread import require_known

SAFE = (".safetensors", ".sft")
TORCH = (".bin", ".pt", ".pth", ".ckpt", ".pth.tar", ".pt.tar", ".tar")
SUFFIXES = (*SAFE, *TORCH, ".npz")


@contextmanager
def open_tensors(source: Path, weights: str | None = None) -> Iterator[TensorFile]:
    """Open a file or a folder of tensors.

    Args:
        source: the file; or a folder of one of the formats of folders.
        weights: key of the state dict to read, of several in a file.

    Raises:
        InputError: it cannot be read: damaged, of an unknown format, or one that needs a conversion.
    """
    require_known(source)
    if source.is_dir():
        opened = open_distributed(source) if is_distributed(source) else open_parallel(source)
    elif source.suffix in SAFE:
        opened = open_safetensors(source)
    else:
        opened = open_numpy(source) if is_numpy(source) else open_torch(source, weights)
    with opened as file:
        yield file
