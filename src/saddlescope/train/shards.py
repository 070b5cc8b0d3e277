"""Full weights of models whose parameters are sharded over several processes.

DDP             every process holds all weights: nothing to gather
FSDP2           `fully_shard` creates DTensors, which gather themselves; so does tensor parallelism
FSDP1           parameters are pieces of one flat vector, whose shapes are lost: InputError
ZeRO stage 3    parameters are empty outside of DeepSpeed's own context: InputError
"""

import torch
from torch import Tensor, nn

from saddlescope._shared.errors import InputError

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
    return tensor if gather is None else gather()


def is_sharded(weights: Tensor | nn.Module) -> bool:
    """Return True if a tensor, or any parameter of a model, is a DTensor, so that reading it is a collective."""
    tensors = (weights,) if isinstance(weights, Tensor) else weights.parameters()
    return any(hasattr(tensor, "full_tensor") for tensor in tensors)


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
    if status is not None and getattr(status, "name", "") != "AVAILABLE":
        raise InputError(
            f"weights must be full matrices or DTensors; got a parameter that ZeRO stage 3 has partitioned "
            f"({getattr(status, 'name', status)}). Measure within deepspeed.zero.GatheredParameters("
            "model.parameters()), or train with ZeRO stage 2 or 1."
        )
