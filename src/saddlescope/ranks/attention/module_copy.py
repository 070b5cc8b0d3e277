"""Copies of modules: with random weights, or without memory for weights; neither changes the module."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from saddlescope.ranks.shards import full_tensor

_KEEPING = "transformers.utils.output_capturing"  # module of the hooks by which Transformers keeps outputs


def random_copy(module: nn.Module) -> nn.Module:
    """Copy a module with random weights on the processor, in evaluation mode, with norms as the identity."""
    memo: dict[int, Any] = {}
    draw = torch.Generator().manual_seed(0)
    scales = {id(one) for one in scales_of(module).values()}
    for parameter in module.parameters():
        if not parameter.is_floating_point():
            memo[id(parameter)] = parameter
            continue
        drawn = torch.randn(parameter.shape, generator=draw, device="cpu", dtype=torch.float32)
        if id(parameter) in scales:
            drawn = (1 + drawn.abs()) * signs(parameter)
        elif parameter.ndim == 1:
            drawn = 1 + drawn.abs()
        else:
            drawn = drawn * parameter.shape[-1] ** -0.5
        memo[id(parameter)] = nn.Parameter(drawn, requires_grad=False)
    for buffer in module.buffers():
        kind = torch.float32 if buffer.is_floating_point() else buffer.dtype
        held = torch.zeros(buffer.shape, dtype=buffer.dtype) if buffer.is_meta else buffer.detach()
        memo[id(buffer)] = held if buffer.is_meta else held.to("cpu", kind, copy=True)
    twin = _copied(module, memo)
    for part in list(twin.modules()):
        for name, child in list(part.named_children()):
            if _is_norm(name, child):
                setattr(part, name, _Same().eval())
    return twin


def scales_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are one number, or one for each head, such as learned temperatures, by their names."""
    return {
        name: one
        for name, one in module.named_parameters()
        if one.numel() == max(one.shape, default=1) and name.rpartition(".")[2] not in ("weight", "bias")
    }


def signs(parameter: Tensor) -> Tensor:
    """Return -1 where a parameter is negative and 1 elsewhere, on the processor."""
    if parameter.device.type == "meta":
        return torch.ones(parameter.shape, device="cpu")
    return 1.0 - 2.0 * (full_tensor(parameter).detach().to("cpu") < 0).float()


def copy_without_values(module: nn.Module) -> nn.Module:
    """Copy a module in evaluation mode, within `FakeTensorMode`, so that its weights and buffers take no memory."""
    memo: dict[int, Any] = {}
    for one in (*module.parameters(), *module.buffers()):
        empty = torch.empty(one.shape, dtype=one.dtype, device="cpu")
        memo[id(one)] = nn.Parameter(empty, requires_grad=False) if isinstance(one, nn.Parameter) else empty
    return _copied(module, memo)


def copy_with_random_weights(module: nn.Module) -> nn.Module:
    """Copy a module in evaluation mode, of its own types and on its devices, with the forward passes that it has now.

    Those may have been replaced from outside. The copy has no hooks.
    """
    draw = torch.Generator().manual_seed(0)
    memo: dict[int, Any] = {}
    for one in module.parameters():
        drawn = torch.randn(one.shape, generator=draw, device="cpu") * (1, *one.shape)[-1] ** -0.5
        floating = one.is_floating_point()
        memo[id(one)] = nn.Parameter(drawn.to(one.device, one.dtype), requires_grad=False) if floating else one
    return _copied(module, memo, replaced=True)


def changed_from_outside(module: nn.Module) -> str:
    """Return why the forward pass of a copy may not be that of the module; "" if it is.

    LoRA of kohya's scripts and LyCORIS replaces the forward passes of layers; hooks may change what they return. Those
    of the module itself see what it was given and what it returns, Accelerate's move tensors between devices, and those
    of Transformers keep outputs.
    """
    for name, part in module.named_modules():
        label = name or "the module"
        if "forward" in vars(part) and not hasattr(part, "_hf_hook"):
            return f"the forward pass of {label} is replaced from outside, and products are of the weights alone"
        hooks = (*part._forward_hooks.values(), *part._forward_pre_hooks.values()) if name else ()
        if any(not hasattr(hook, "compute_weight") and getattr(hook, "__module__", "") != _KEEPING for hook in hooks):
            return f"hooks of {label} may change what it computes, and products are of the weights alone"
    return ""


def _copied(module: nn.Module, memo: dict[int, Any], *, replaced: bool = False) -> nn.Module:
    """Copy without hooks, but those that compute weights, and without forward passes that wrap the class's own.

    Tensors that such hooks have computed, which cannot be copied, are those of the module.
    """
    held = [value for part in module.modules() for value in vars(part).values() if isinstance(value, Tensor)]
    twin = copy.deepcopy(module, {id(one): one.detach() for one in held if not one.is_leaf} | memo)
    for part in twin.modules():
        if "forward" in vars(part) and (not replaced or hasattr(part, "_hf_hook")):  # Accelerate's moves tensors
            del part.forward
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
            hooks = getattr(part, name)
            kept = {k: h for k, h in hooks.items() if hasattr(h, "compute_weight")}
            hooks.clear()
            hooks.update(kept)
    twin.eval()  # some modules of timm override train, and return None
    return twin


def _is_norm(name: str, module: nn.Module) -> bool:
    """Return True for what is called a norm, with scales of its channels; with an axis of length 1, of each head."""
    linear = any(isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) for part in module.modules())
    scales = all(one.ndim < 2 or (one.ndim > 2 and 1 in one.shape and one.shape[-1] > 1) for one in module.parameters())
    return "norm" in f"{name} {type(module).__name__}".lower() and scales and not linear


class _Same(nn.Module):
    """Norm that does nothing, for calls with any arguments."""

    def forward(self, x: Tensor, *_: object, **__: object) -> Tensor:
        """Return the argument."""
        return x + 0
