"""Folders of tensor-parallel shards as Meta publishes Llama: consolidated.00.pth, consolidated.01.pth and so on.

rows        of queries, keys, values, w1, w3 and the output are divided; shards are stacked
columns     of wo and w2 are divided; shards stand side by side
embedding   by columns in Llama 1 and 2, by rows in Llama 3: the width of the norms decides
others      norms and tables are the same in all shards; anything else is refused
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope._shared.json_text import parse_json
from saddlescope.ranks.checkpoints.formats.tensor_file import TensorFile
from saddlescope.ranks.checkpoints.formats.torch_file import open_torch

_NAME = re.compile(r"consolidated\.(\d+)\.pth")
_BY_ROWS = ("wq.weight", "wk.weight", "wv.weight", "w1.weight", "w3.weight", "output.weight")
_BY_COLUMNS = ("wo.weight", "w2.weight")
_EMBEDDING = "tok_embeddings.weight"


def _joined(folder: Path, shards: Sequence[TensorFile]) -> TensorFile:
    """Return opened shards as one file."""
    first = shards[0]
    if any(one.names != first.names for one in shards):
        raise InputError(f"{folder} must have the same tensors in every shard; got others. Fetch it again.")
    norm = next((name for name in first.names if name.endswith("norm.weight")), None)
    width = first.describe(norm)[0][0] if norm else 0

    def axis_of(name: str) -> int | None:
        if name.endswith(_EMBEDDING):
            return 0 if first.describe(name)[0][1] == width else 1
        return 0 if name.endswith(_BY_ROWS) else 1 if name.endswith(_BY_COLUMNS) else None

    def describe(name: str) -> tuple[tuple[int, ...], str]:
        shape, dtype = first.describe(name)
        if (axis := axis_of(name)) is not None:
            joined = sum(one.describe(name)[0][axis] for one in shards)
            shape = (*shape[:axis], joined, *shape[axis + 1 :])
        return shape, dtype

    def read(name: str) -> Tensor:
        parts = [one.read(name) for one in shards]
        if (axis := axis_of(name)) is not None:
            return torch.cat(parts, dim=axis)
        if not all(torch.equal(parts[0], part) for part in parts[1:]):
            raise InputError(
                f"{folder} must have the names of Llama for what is divided among its shards; got {name}, which "
                "differs. Convert it to safetensors with the program of the model."
            )
        return parts[0]

    for name in first.names:
        shape = describe(name)[0]
        if name.endswith("wq.weight") and shape[0] != _queries(folder, width):
            raise InputError(
                f"{folder} must have all shards of the model; got {len(shards)}, with {name} of shape {shape} for a "
                f"width of {width}. Fetch the others."
            )
    return TensorFile(first.names, describe, read)


def _queries(folder: Path, width: int) -> int:
    """Return the number of columns of all heads' queries, from params.json or the width of the model."""
    try:
        stated = parse_json((folder / "params.json").read_text("utf-8"))
        return int(stated["n_heads"]) * int(stated["head_dim"])
    except (OSError, ValueError, KeyError, TypeError):
        return width


def is_parallel(folder: Path) -> bool:
    """Return True for a folder of Meta's shards."""
    return any(_NAME.fullmatch(file.name) for file in folder.iterdir())


def is_parallel_shard(file: Path) -> bool:
    """Return True for one of Meta's shards."""
    return _NAME.fullmatch(file.name) is not None


@contextmanager
def open_parallel(folder: Path) -> Iterator[TensorFile]:
    """Open all shards of a folder.

    Raises:
        InputError: shards are missing or do not fit.
    """
    files = sorted(file for file in folder.iterdir() if _NAME.fullmatch(file.name))
    numbers = [int(_NAME.fullmatch(file.name)[1]) for file in files]  # type: ignore[index]
    if numbers != list(range(len(files))):
        raise InputError(f"{folder} must have all shards consolidated.00.pth, .01.pth, ...; got numbers {numbers}.")
    with ExitStack() as stack:
        yield _joined(folder, [stack.enter_context(open_torch(file, None)) for file in files])
