"""Division of a tracker's work among the processes that hold the shards of a model.

    unit        what is read at once: an attention layer with all its products, or a single matrix
    owner       the process that gathers a unit, keeps its initial weights and computes its spectra
    round       as many successive units as there are processes, each with another owner: computed at the same time

All processes take part in gathering each unit, and exchange the spectra at the end of a record. Whatever fails in one
process is raised in all of them after that exchange, so that none waits for another.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from saddlescope.ranks.shards import full_tensor, gathered_by_deepspeed, is_partitioned

_T = TypeVar("_T")


class UnitOwners:
    """Owners of the units in one process: it owns them all.

    Attributes:
        rank: number of this process.
        size: number of processes.
    """

    rank, size = 0, 1

    def rounds(self, units: int) -> Iterator[range]:
        """Yield the units of each round."""
        for first in range(0, units, self.size):
            yield range(first, min(first + self.size, units))

    def owns(self, unit: int) -> bool:
        """Return True if this process owns a unit."""
        return unit % self.size == self.rank

    def exchange(self, found: _T) -> list[_T]:
        """Return what all processes have found, in the order of their numbers."""
        return [found]

    def gather(self, parameters: Mapping[str, Tensor], unit: int) -> dict[str, Tensor] | None:
        """Return the full tensors of the parameters of a unit in its owner; None in other processes."""
        return {name: full_tensor(parameter) for name, parameter in parameters.items()}

    def collect(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of all processes in the first; in others their own."""
        return dict(tensors)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Raise what fails in one process within this context in all of them, at its end."""
        yield


class ShardOwners(UnitOwners):
    """Owners of the units of a model whose parameters are sharded over the processes of a group."""

    def __init__(self, group: distributed.ProcessGroup) -> None:
        self._group = group
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    def exchange(self, found: _T) -> list[_T]:
        """See `UnitOwners`."""
        everything: list[Any] = [None] * self.size
        distributed.all_gather_object(everything, found, group=self._group)
        return everything

    def gather(self, parameters: Mapping[str, Tensor], unit: int) -> dict[str, Tensor] | None:
        """See `UnitOwners`."""
        owner = unit % self.size
        partitioned = any(map(is_partitioned, parameters.values()))
        with gathered_by_deepspeed(parameters.values()):
            found = {name: self._gathered(parameter, owner) for name, parameter in parameters.items()}
            if partitioned:  # again at the end of this context, which frees the full tensors
                found = {name: None if one is None else one.clone() for name, one in found.items()}
        whole = {name: one for name, one in found.items() if one is not None}
        return whole if self.rank == owner else None

    def collect(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `UnitOwners`."""
        found = dict(tensors)
        first = distributed.get_global_rank(self._group, 0)
        for number, names in enumerate(self.exchange(list(tensors))):
            sender = distributed.get_global_rank(self._group, number)
            for name in names if number else ():
                if self.rank == number:
                    distributed.send_object_list([tensors[name]], dst=first, group=self._group)
                elif self.rank == 0:
                    received: list[Any] = [None]
                    distributed.recv_object_list(received, src=sender, group=self._group)
                    found.setdefault(name, received[0])
        return found

    @contextmanager
    def together(self) -> Iterator[None]:
        """See `UnitOwners`."""
        failed: Exception | None = None
        try:
            yield
        except Exception as error:
            failed = error
        messages = self.exchange(None if failed is None else f"{type(failed).__name__}: {failed}")
        if failed is not None:
            raise failed
        for number, message in enumerate(messages):
            if message is not None:
                raise RuntimeError(f"Process {number} of the model's {self.size} failed in a measurement: {message}")

    def _gathered(self, parameter: Tensor, owner: int) -> Tensor | None:
        """Return the full tensor of a parameter in its owner; None in other processes, which send their shards."""
        shards = _even_shards(parameter, self.size)
        if shards is None:
            whole = full_tensor(parameter)
            return whole if self.rank == owner else None
        local, dim, lengths = shards
        padded = local.new_zeros((max(lengths), *local.movedim(dim, 0).shape[1:]))
        padded[: lengths[self.rank]] = local.movedim(dim, 0)
        bits = padded.flatten().view(torch.uint8)  # of any type
        parts = [torch.empty_like(bits) for _ in lengths] if self.rank == owner else None
        distributed.gather(bits, parts, dst=distributed.get_global_rank(self._group, owner), group=self._group)
        if parts is None:
            return None
        pieces = [
            part.view(local.dtype).view(padded.shape)[:length] for part, length in zip(parts, lengths, strict=True)
        ]
        return torch.cat(pieces).movedim(0, dim)


def owners_of(model: nn.Module) -> UnitOwners:
    """Return the owners of the units of a model.

    If its shards are spread over several groups of processes, each process gathers and owns all.
    """
    weights = list(model.parameters())
    if any(map(is_partitioned, weights)):
        assert distributed.group.WORLD is not None
        return ShardOwners(distributed.group.WORLD)
    meshes: list[Any] = []
    for mesh in (getattr(weight, "device_mesh", None) for weight in weights):
        if mesh is not None and mesh not in meshes:
            meshes.append(mesh)
    if not meshes:
        return UnitOwners()
    if all(mesh.size() == distributed.get_world_size() for mesh in meshes):
        assert distributed.group.WORLD is not None
        return ShardOwners(distributed.group.WORLD)
    return ShardOwners(meshes[0].get_group()) if len(meshes) == 1 and meshes[0].ndim == 1 else UnitOwners()


def _even_shards(parameter: Tensor, processes: int) -> tuple[Tensor, int, list[int]] | None:
    """Return the local shard of a tensor cut along one dimension into one piece per process.

    Returns:
        The shard, its dimension and the lengths of all shards; or None for any other tensor.
    """
    placements = getattr(parameter, "placements", ())
    if len(placements) != 1 or type(placements[0]).__name__ != "Shard":
        return None
    mesh: Any = getattr(parameter, "device_mesh")  # noqa: B009  (of DTensor)
    if mesh.size() != processes or mesh.mesh.tolist() != sorted(mesh.mesh.tolist()):
        return None
    (dim,) = (placement.dim for placement in placements)
    local: Tensor = parameter.detach().to_local()  # pyright: ignore[reportAttributeAccessIssue]
    whole = parameter.shape[dim]
    length = -(-whole // processes)  # as torch.chunk
    lengths = [max(0, min(length, whole - number * length)) for number in range(processes)]
    rank = mesh.get_local_rank()
    return (local, dim, lengths) if local.shape[dim] == lengths[rank] else None


def merge(parts: Iterable[Mapping[Any, _T]]) -> dict[Any, _T]:
    """Return the entries of all processes."""
    merged: dict[Any, _T] = {}
    for part in parts:
        merged.update(part)
    return merged
