"""Whole weights of models whose parameters are spread over several processes, or a clear refusal.

DDP             every process holds all weights: there is nothing to gather
FSDP2           `fully_shard` makes DTensors, which know how to gather themselves; so does tensor parallelism
FSDP1           parameters are pieces of one flat vector, whose shapes are lost: refused
ZeRO stage 3    parameters are empty outside of DeepSpeed's own context: refused
"""

import torch
from torch import Tensor, nn

from saddlescope._shared.errors import InputError

_FSDP1 = "_fsdp_flattened"  # torch.distributed.fsdp marks the flat vector and its pieces by this attribute


def whole(tensor: Tensor) -> Tensor:
    """The full tensor of a weight, detached: itself, or gathered from the processes that hold its shards.

    Args:
        tensor: a parameter, or a piece of it.

    Raises:
        InputError: the tensor's values are out of reach: a shard of FSDP1 or of ZeRO stage 3, or on the meta device.
    """
    refuse_shards(tensor)
    tensor = tensor.detach()
    gather = getattr(tensor, "full_tensor", None)  # of DTensor
    return tensor if gather is None else gather()


def is_sharded(weights: Tensor | nn.Module) -> bool:
    """Whether a tensor, or any parameter of a model, is a DTensor, so that reading it is a collective."""
    tensors = (weights,) if isinstance(weights, Tensor) else weights.parameters()
    return any(hasattr(tensor, "full_tensor") for tensor in tensors)


def refuse_shards(weights: Tensor | nn.Module) -> None:
    """Refuses weights that cannot be read as whole matrices.

    Raises:
        InputError: a shard of FSDP1 or of ZeRO stage 3, or a weight on the meta device.
    """
    if isinstance(weights, nn.Module):
        for parameter in weights.parameters():
            refuse_shards(parameter)
        return
    if getattr(weights, _FSDP1, False):
        raise InputError(
            "weights must be whole matrices or DTensors; got pieces of a flat parameter of FSDP1 "
            "(FullyShardedDataParallel). Shard with torch.distributed.fsdp.fully_shard (FSDP2; in Accelerate "
            "fsdp_version=2), or train with DDP."
        )
    status = getattr(weights, "ds_status", None)
    if status is not None and getattr(status, "name", "") != "AVAILABLE":
        raise InputError(
            f"weights must be whole matrices or DTensors; got a parameter that ZeRO stage 3 has partitioned "
            f"({getattr(status, 'name', status)}). Measure within deepspeed.zero.GatheredParameters("
            "model.parameters()), or train with ZeRO stage 2 or 1."
        )
    if weights.device == torch.device("meta"):
        raise InputError(
            f"weights must have values; got a tensor of shape {tuple(weights.shape)} on the meta device. Load the "
            "model on a real device first."
        )
