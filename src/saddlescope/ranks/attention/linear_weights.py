"""Weight matrices of linear layers of any library, as (inputs, outputs), read without side effects.

any module with a two-dimensional `weight`     (out, in), as in nn.Linear, Megatron and TransformerEngine
several weights listed in `weight_names`       stacked along their outputs, as in TransformerEngine
Transformers' Conv1D                           (in, out)
convolutions with kernels of one pixel         (out, in, 1) or (out, in, 1, 1)
parametrized weights, weight and spectral norm as the forward pass computes them, without its power iteration
adapters of PEFT                               base weight and active adapters, merged by PEFT itself in a copy
quantized weights                              dequantized: bitsandbytes of 4 and 8 bits, torchao, any tensor that can
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from saddlescope._shared.errors import InputError
from saddlescope.ranks.shards import full_tensor


def is_linear(layer: object) -> bool:
    """Return True for a module with a weight matrix that `matrix_of` reads: not for an embedding."""
    if not isinstance(layer, nn.Module) or isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        return False
    if is_adapted(layer):
        return is_linear(_base(layer))
    if parametrize.is_parametrized(layer, "weight"):
        original: Any = layer.parametrizations.weight  # type: ignore[union-attr]
        shaped = getattr(original, "original", getattr(original, "original1", None))
        return isinstance(shaped, Tensor) and _is_matrix(layer, shaped)
    if _inner(layer) is not None:
        return is_linear(_inner(layer))
    if _listed_weights(layer):
        return True
    weight = getattr(layer, "weight", None)
    return isinstance(weight, Tensor) and (_is_matrix(layer, weight) or quantization(layer) is not None)


def _inner(layer: Any) -> nn.Module | None:
    """Return the linear layer inside a module that does nothing else but clip its inputs or outputs (Gemma 4)."""
    inner = getattr(layer, "linear", None)
    return inner if isinstance(inner, nn.Linear) and [*layer._modules] == ["linear"] else None


def _listed_weights(layer: object) -> list[Tensor]:
    """Return the matrices of a layer that splits its weight into several parameters, by their order in it."""
    names = getattr(layer, "weight_names", None)
    if not isinstance(names, list | tuple) or len(names) < 2:
        return []
    parts = [getattr(layer, str(name), None) for name in names]
    matrices = [part for part in parts if isinstance(part, Tensor) and part.ndim == 2]
    return matrices if len(matrices) == len(parts) else []


def _is_matrix(layer: nn.Module, weight: Tensor) -> bool:
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        return layer.groups == 1 and weight[0, 0].numel() == 1
    return weight.ndim == 2


def is_conv1d(layer: object) -> bool:
    """Return True for Transformers' Conv1D, which stores (in, out)."""
    return type(layer).__name__ == "Conv1D" and isinstance(getattr(layer, "nf", None), int)


def is_adapted(layer: object) -> bool:
    """Return True for a layer of PEFT around another one, or for PEFT's trained copies of a module."""
    return hasattr(layer, "base_layer") or hasattr(layer, "modules_to_save")


def _base(layer: Any) -> Any:
    """Return the layer inside PEFT's wrapper that holds the weight."""
    if hasattr(layer, "modules_to_save"):
        active = layer.active_adapters if hasattr(layer, "active_adapters") else [layer.active_adapter]
        chosen = next((name for name in active if name in layer.modules_to_save), None)
        return layer.original_module if layer.disable_adapters or chosen is None else layer.modules_to_save[chosen]
    return layer.base_layer


def matrix_of(layer: Any) -> Float[Tensor, "inputs outputs"]:
    """Return the weight of a layer that `is_linear` accepts, detached.

    Raises:
        InputError: the values cannot be read: quantized in a way that no library here undoes, or sharded or absent.
    """
    if hasattr(layer, "modules_to_save"):
        return matrix_of(_base(layer))
    if is_adapted(layer):
        return _adapted(layer)
    if _inner(layer) is not None:
        return matrix_of(_inner(layer))
    weight = plain_weight(layer)
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        weight = weight.flatten(1)
    return weight if is_conv1d(layer) else weight.T


def plain_weight(layer: Any) -> Tensor:
    """Return the weight as stored, or as its parametrization computes it."""
    if parametrize.is_parametrized(layer, "weight"):
        with torch.no_grad(), _without_training(layer.parametrizations.weight):
            return layer.weight.detach()
    for hook in layer._forward_pre_hooks.values():  # torch.nn.utils.weight_norm and spectral_norm
        if hasattr(hook, "compute_weight") and getattr(hook, "name", "") == "weight":
            options = {"do_power_iteration": False} if type(hook).__name__ == "SpectralNorm" else {}
            with torch.no_grad():
                return hook.compute_weight(layer, **options).detach()
    if parts := _listed_weights(layer):
        return torch.cat([full_tensor(part) for part in parts])
    if quantization(layer) is not None:
        return _dequantized(layer)
    return full_tensor(layer.weight)


@contextlib.contextmanager
def _without_training(modules: nn.Module) -> Iterator[None]:
    """Set modules to evaluation, in which a spectral norm makes no power iteration, and restore their modes."""
    modes = [(module, module.training) for module in modules.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _adapted(layer: Any) -> Tensor:
    """Return the weight with the active adapters."""
    merged_already = bool(layer.merged) or layer.disable_adapters
    active = [] if merged_already else [name for name in layer.active_adapters if name in _adapters(layer)]
    if not active:
        return matrix_of(layer.base_layer)
    if _is_plain_lora(layer, active):
        weight = matrix_of(layer.base_layer)
        for name in active:
            delta = layer.get_delta_weight(name).detach().to(weight.device)
            weight = weight + (delta if is_conv1d(layer.base_layer) else delta.T)
        return weight
    if quantization(layer.base_layer) is not None:
        raise InputError(
            f"weights must be readable with their adapter; got {type(layer).__name__} of PEFT on a weight quantized by "
            f"{quantization(layer.base_layer)}. Track single matrices by matrices=."
        )
    with torch.no_grad():
        merged = copy.deepcopy(layer)
        merged.merge(adapter_names=active)
        return matrix_of(merged.base_layer).detach()


def _adapters(layer: Any) -> set[str]:
    """Return the names of the adapters of a layer of PEFT."""
    names = layer.adapter_layer_names
    return {key for name in names for key in getattr(layer, name, {})}


def _is_plain_lora(layer: Any, active: list[str]) -> bool:
    variants = getattr(layer, "lora_variant", {})
    magnitude = getattr(layer, "lora_magnitude_vector", {})
    known = all(name in getattr(layer, "lora_A", {}) for name in active)
    return known and not any(name in variants or name in magnitude for name in active)


def quantization(layer: Any) -> str | None:
    """Return the library that has quantized the weight of a layer, None for floating-point numbers."""
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor):
        return None
    module = type(weight).__module__
    if module.startswith("bitsandbytes") or hasattr(weight, "quant_state") or hasattr(weight, "CB"):
        return "bitsandbytes"
    if module.startswith("torchao"):
        return "torchao"
    return None if weight.is_floating_point() else str(weight.dtype)


def _dequantized(layer: Any) -> Tensor:
    weight, library = layer.weight, quantization(layer)
    with torch.no_grad():
        if library == "bitsandbytes":
            from bitsandbytes import functional as bnb  # type: ignore[import-not-found]

            if getattr(weight, "quant_state", None) is not None:
                return bnb.dequantize_4bit(weight.data, weight.quant_state).detach()
            state = getattr(layer, "state", None)
            codes = weight.CB if getattr(weight, "CB", None) is not None else getattr(state, "CB", None)
            scales = weight.SCB if getattr(weight, "SCB", None) is not None else getattr(state, "SCB", None)
            if codes is not None and scales is not None:
                return codes.float() * (scales.float() / 127).unsqueeze(1)
            if weight.is_floating_point():  # not quantized yet: it will be when it moves to its device
                return weight.detach()
        elif callable(getattr(weight, "dequantize", None)) and library == "torchao":
            return weight.dequantize().detach()
    kind = "complex" if weight.is_complex() else "quantized"
    raise InputError(
        f"weights must be real floating-point numbers; got a {kind} {tuple(weight.shape)} weight ({library}) in "
        f"{type(layer).__name__}. Load the model in floating point to measure it."
    )
