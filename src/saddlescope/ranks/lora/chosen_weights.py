"""Weights that get adapters, chosen by their use in the model, and their updates as matrices."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.linear_weights import is_conv1d
from saddlescope.ranks.checkpoints.files import StoredTensor
from saddlescope.ranks.lora.adapter import LoraFactors
from saddlescope.ranks.tracker.matrix_selection import MatrixSelection, matches, parameter_name, select_matrices

Kind: TypeAlias = Literal["linear", "convolution", "experts"]
Option: TypeAlias = Literal["embeddings", "convolutions", "experts"]
_NOT_LINEAR = ("wte", "wpe", "shared", "lm_head", "relative_attention_bias", "tok", "pos")  # of models without code
_PROJECTIONS = {"in_proj_weight": True, "out_proj.weight": False}  # of torch.nn.MultiheadAttention: has an adapter
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class ChosenWeight:
    """Weight that gets an adapter.

    Attributes:
        name: name of the parameter.
        kind: kind of its module.
        transposed: True if it is stored as (inputs, outputs).
        modules: names of the modules that share it, each of which PEFT adapts; of experts the parameter itself.
    """

    name: str
    kind: Kind
    transposed: bool
    modules: tuple[str, ...]

    def matrices(self, update: Tensor) -> dict[str, Float[Tensor, "m n"]]:
        """Return an update as matrices by name: one, that of a convolution flattened, or one per expert."""
        if self.kind == "experts":
            return {f"{self.name}[{number}]": one for number, one in enumerate(update)}
        return {self.name.removesuffix(".weight"): update.flatten(1)}

    def factors(self, pairs: Sequence[tuple[Tensor, Tensor]], shape: Sequence[int], *, embedding: bool) -> LoraFactors:
        """Return factors as PEFT stores them.

        Args:
            pairs: B and A of each matrix.
            shape: shape of the weight.
            embedding: True for the factors of an embedding.
        """
        if self.transposed or embedding:
            pairs = [(A.T, B.T) for B, A in pairs]
        B, A = pairs[0]
        if self.kind == "convolution":
            A, B = A.unflatten(1, tuple(shape[1:])), B.reshape(*B.shape, *(1 for _ in shape[2:]))
        if self.kind == "experts":
            A, B = torch.cat([A for _, A in pairs]), torch.stack([B for B, _ in pairs], -1).flatten(1)
        return LoraFactors(A, B, embedding, len(pairs) if self.kind == "experts" else 0)


def choose_weights(
    model: nn.Module,
    stored: Mapping[str, StoredTensor],
    *,
    matrices: MatrixSelection | None,
    exclude: str | Sequence[str],
    also: Collection[Option],
    known: bool,
    denoiser: bool = False,
) -> dict[str, ChosenWeight]:
    """Return the weights that get adapters by name, in the order of the model, convolutions last.

    Args:
        model: model with placeholders for its weights.
        stored: tensors of its checkpoint.
        matrices: selection of weights; None selects all linear layers but those of tokens.
        exclude: patterns on names of weights or modules that get none.
        also: kinds of weights beyond linear layers.
        known: True if the model is one of Transformers, False if it was inferred from names and shapes.
        denoiser: True for a part of Diffusers, whose layers embed times and patches by linear maps.

    Raises:
        InputError: a selection of something other than weights, or of nothing.
    """
    vocabulary = vocabulary_layers(model) if known else frozenset()
    attention = {f"{path}.{own}": fused for path in torch_attention(model) for own, fused in _PROJECTIONS.items()}

    def usual(name: str, parameter: nn.Parameter) -> bool:
        if parameter.ndim == 3:
            return True
        if name in attention or not name.endswith(".weight"):
            return attention.get(name, False)
        module = model.get_submodule(name.removesuffix(".weight"))
        if not known:
            return not _is_called_embedding(name, denoiser=denoiser)
        return "embeddings" in also if module in vocabulary else isinstance(module, nn.Linear) or is_conv1d(module)

    kernels = _kernels(model, stored, known=known) if "convolutions" in also else []
    patterns = () if matrices is None or callable(matrices) else (matrices,) if isinstance(matrices, str) else matrices
    of_kernels = [one for one in patterns if any(matches(name, one) for name in kernels)]
    selection: MatrixSelection = usual if matrices is None else matrices
    if of_kernels:
        kernels = [name for name in kernels if any(matches(name, one) for one in of_kernels)]
        selection = [one for one in patterns if one not in of_kernels]
    found = select_matrices(model, selection, experts="experts" in also) if selection else {}
    names = [name for name in dict.fromkeys([*map(parameter_name, found), *kernels]) if attention.get(name, True)]
    odd = [name for name in found if not (name.endswith(".weight") or attention.get(name)) and found[name].ndim == 2]
    if odd := odd or ([] if names else [*found]):
        raise InputError(
            f"matrices must select weights of linear layers, since adapters exist only for these; got {odd[0]}."
        )
    excluded = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    for pattern in excluded:
        if not any(matches(name, pattern) for name in names):
            raise InputError(
                f"exclude must match weights that would get an adapter; got {pattern!r}, which matches none."
            )
    kept = [name for name in names if not any(matches(name, pattern) for pattern in excluded)]
    if not kept:
        raise InputError(f"exclude must leave a weight; got {', '.join(excluded)}, which matches all.")
    return {name: _chosen(model, name, convolution=name in kernels) for name in kept}


def _chosen(model: nn.Module, name: str, *, convolution: bool) -> ChosenWeight:
    path = name.rpartition(".")[0]
    if convolution:
        return ChosenWeight(name, "convolution", False, (path,))
    module, weight = model.get_submodule(path), model.get_parameter(name)
    if isinstance(module, nn.MultiheadAttention):
        return ChosenWeight(name, "linear", False, (path,))
    if weight.ndim == 3:
        return ChosenWeight(name, "experts", bool(getattr(module, "is_transposed", False)), (name,))
    shared = [other for other, one in model.named_parameters(remove_duplicate=False) if one is weight]
    modules = tuple(other.removesuffix(".weight") for other in shared if other.endswith(".weight"))
    return ChosenWeight(name, "linear", is_conv1d(module), modules)


def _kernels(model: nn.Module, stored: Mapping[str, StoredTensor], *, known: bool) -> list[str]:
    """Return the weights of convolutions, without those in groups."""
    if known:
        modules = dict(model.named_modules())
        return [f"{name}.weight" for name, one in modules.items() if isinstance(one, _CONVOLUTIONS) and one.groups == 1]
    return [
        name
        for name, one in stored.items()
        if one.floating and 3 <= len(one.shape) <= 5 and name.endswith(".weight") and one.shape[1] > 1
    ]


def torch_attention(model: nn.Module) -> list[str]:
    """Return the names of all `torch.nn.MultiheadAttention`, of which only the joint projection gets an adapter.

    PEFT gives out_proj one, too, but adds its update twice (pull request 3774), up to version 0.21.2 at least.
    """
    return [name for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)]


def vocabulary_layers(model: nn.Module) -> frozenset[nn.Module]:
    """Return the layers of a model of Transformers that read or write tokens, by their use in it."""
    getters = (getattr(model, name, None) for name in ("get_input_embeddings", "get_output_embeddings"))
    found = set()
    for getter in getters:
        with contextlib.suppress(NotImplementedError, AttributeError):  # of models without tokens
            found.add(getter() if callable(getter) else None)
    return frozenset(one for one in found if isinstance(one, nn.Embedding | nn.Linear))


def _is_called_embedding(name: str, *, denoiser: bool) -> bool:
    """Return True for a matrix whose name, without the model's code, is that of an embedding or of a head."""
    own = name.removesuffix(".weight").rpartition(".")[2].lower()
    return own.endswith(("emb", "embedding")) if denoiser else "emb" in own or own in _NOT_LINEAR
