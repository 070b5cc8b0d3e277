"""Weights of 8 bits with scales: their names and values.

W = weight * scale          with one scale, one per row or column, or one per block; scales of type uint8 are exponents

weight_scale_inv            DeepSeek, Transformers' FineGrainedFP8: per block of `weight_block_size` (a factor, too)
weight_scale                compressed-tensors, ModelOpt, Transformers' fbgemm_fp8; `..._scale` of fused experts
scale_weight                ComfyUI
_weight_qdata, _weight_scale, or weight:qdata, weight:scale          torchao
"""

import re

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError

_OF_TORCHAO = re.compile(r"(?P<module>(.*\.)?)(_(?P<new>\w+)_qdata|(?P<old>\w+):qdata)")
_BLOCKS = (128, 32)  # rows or columns, where nothing states them: those of all published models, and of MX
_BIAS = 127  # of exponents (E8M0)


def quantised_name(stored: str) -> str:
    """Return the name in the model of a quantised tensor."""
    found = _OF_TORCHAO.fullmatch(stored)
    return stored if found is None else found["module"] + (found["new"] or found["old"])


def scale_names(stored: str) -> tuple[str, ...]:
    """Return the names that the scale of a stored tensor may have."""
    module, _, own = stored.rpartition(".")
    if _OF_TORCHAO.fullmatch(stored) is not None:
        return (f"{stored.removesuffix('qdata')}scale",)
    return f"{stored}_scale_inv", f"{stored}_scale", f"{module}.scale_{own}".lstrip(".")


def dequantised(path: str, name: str, weight: Tensor, scale: Tensor, block: object) -> Tensor:
    """Return weight times scale in float32.

    Args:
        path: the checkpoint, for messages.
        name: name of the weight, for messages.
        weight: the stored numbers.
        scale: one number, one per row, or as many axes as the weight, each with one entry, all, or one per block.
        block: rows and columns of a block, if they are stated.

    Raises:
        InputError: a scale of another shape.
    """
    factors = torch.exp2(scale.double() - _BIAS).float() if scale.dtype == torch.uint8 else scale.float()
    if factors.numel() == 1:
        return weight.float() * factors.reshape(())
    if factors.ndim == 1 and len(factors) == len(weight):
        factors = factors.reshape(-1, *[1] * (weight.ndim - 1))
    stated = list(block) if isinstance(block, list | tuple) else []
    sizes = [*[1] * (weight.ndim - len(stated)), *stated] if len(stated) <= weight.ndim else []
    for axis, (count, length) in enumerate(zip(factors.shape, weight.shape, strict=False)):
        if count in (0, 1, length):
            continue
        options = [*([sizes[axis]] if stated and sizes else _BLOCKS), length // count]
        size = next((one for one in options if isinstance(one, int) and one > 0 and -(-length // one) == count), 0)
        factors = factors.repeat_interleave(size, dim=axis).narrow(axis, 0, length) if size else factors
    if factors.ndim != weight.ndim or any(a not in (1, b) for a, b in zip(factors.shape, weight.shape, strict=True)):
        raise InputError(
            f"{path} must have scales of {name}, {tuple(weight.shape)}: one, or one per row or block; got shape "
            f"{tuple(scale.shape)}. Dequantise the model with the program that wrote it."
        )
    return weight.float() * factors
