"""Full weights of models whose parameters are sharded over several processes.

DDP             every process holds all weights: nothing to gather
FSDP2           `fully_shard` creates DTensors, which gather themselves; so does tensor parallelism
FSDP1           parameters are pieces of one flat vector, whose shapes are lost: InputError
ZeRO stage 3    parameters are empty outside of DeepSpeed's own context, which gathers some of them at a time
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from saddlescope._shared.errors import InputError

_shapes_only: ContextVar[bool] = ContextVar("_shapes_only", default=False)

_FSDP1 = "_fsdp_flattened"  # attribute of torch.distributed.fsdp on the flat vector and its pieces


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the full tensor of a weight, detached: itself, or gathered from the processes that hold its shards.

    Args:
        tensor: a parameter, or a piece of it.

    Raises:
        InputError: the values cannot be read: a shard of FSDP1 or of ZeRO stage 3.
    """
    _require_whole(tensor)
    tensor = tensor.detach()
    gather = getattr(tensor, "full_tensor", None)  # of DTensor
    if gather is None:
        return tensor
    return _of_shape(tensor, tensor.shape) if _shapes_only.get() else gather()


@contextmanager
def shapes_only(model: nn.Module) -> Iterator[None]:
    """Let `full_tensor` return zeros of the right shapes for the sharded weights of a model, without gathering them.

    Zeros are repeated without memory. They suffice to look for layers, whose shapes decide.
    """
    token = _shapes_only.set(True)
    partitions = {weight: weight.data for weight in model.parameters() if is_partitioned(weight)}
    try:
        for weight, data in partitions.items():
            weight.data = _of_shape(data, getattr(weight, "ds_shape"))  # noqa: B009  (of DeepSpeed)
        yield
    finally:
        for weight, data in partitions.items():
            weight.data = data
        _shapes_only.reset(token)


def _of_shape(like: Tensor, shape: Iterable[int]) -> Tensor:
    return torch.zeros((), dtype=like.dtype, device=like.device).expand(*shape)


def is_partitioned(weight: Tensor) -> bool:
    """Return True for a parameter that ZeRO stage 3 has partitioned and not gathered, and that DeepSpeed can gather."""
    status = getattr(weight, "ds_status", None)
    gatherable = hasattr(weight, "ds_id") and "deepspeed" in sys.modules
    return gatherable and getattr(status, "name", "AVAILABLE") != "AVAILABLE"


@contextmanager
def gathered_by_deepspeed(weights: Iterable[Tensor]) -> Iterator[None]:
    """Gather the partitioned weights among these in all processes; a collective if there are any."""
    partitions = [weight for weight in weights if is_partitioned(weight)]
    if not partitions:
        yield
        return
    from deepspeed.runtime.zero import GatheredParameters  # pyright: ignore[reportMissingImports]

    with GatheredParameters(partitions, modifier_rank=None):
        yield


def is_sharded(weights: Tensor | nn.Module) -> bool:
    """Return True if a tensor, or any parameter of a model, is a DTensor or a partition: reading it is a collective."""
    tensors = (weights,) if isinstance(weights, Tensor) else weights.parameters()
    return any(hasattr(tensor, "full_tensor") or is_partitioned(tensor) for tensor in tensors)


def require_readable(weights: Tensor | nn.Module) -> None:
    """Raise InputError unless weights can be read as full matrices.

    Raises:
        InputError: a shard of FSDP1 or of ZeRO stage 3, or a weight on the meta device.
    """
    if isinstance(weights, nn.Module):
        for parameter in weights.parameters():
            require_readable(parameter)
        return
    _require_whole(weights)
    if str(weights.layout).startswith("torch.sparse"):
        raise InputError(f"weights must be dense; got a tensor of {weights.layout}. Convert it by to_dense().")
    if weights.device == torch.device("meta"):
        raise InputError(
            f"weights must have values; got a tensor of shape {tuple(weights.shape)} on the meta device. Load the "
            "model on a real device first."
        )


def _require_whole(weights: Tensor) -> None:
    if getattr(weights, _FSDP1, False):
        raise InputError(
            "weights must be full matrices or DTensors; got pieces of a flat parameter of FSDP1 "
            "(FullyShardedDataParallel). Shard with torch.distributed.fsdp.fully_shard (FSDP2; in Accelerate "
            "fsdp_version=2), or train with DDP."
        )
    status = getattr(weights, "ds_status", None)
    if status is not None and getattr(status, "name", "") != "AVAILABLE" and not is_partitioned(weights):
        raise InputError(
            f"weights must be full matrices or DTensors; got a parameter that ZeRO stage 3 has partitioned "
            f"({getattr(status, 'name', status)}) and that DeepSpeed cannot gather here. Import deepspeed, or train "
            "with ZeRO stage 2 or 1."
        )
