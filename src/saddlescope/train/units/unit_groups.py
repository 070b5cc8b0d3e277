"""Blocks of PyTorch models that are sums of units: hidden neurons, convolution kernels, attention heads.

    neurons    rows of a layer A and columns of the layer B that reads them, with a function without weights between
    kernels    output channels of a convolution A, and what a convolution or linear layer B reads of each
    heads      keys, queries, values and outputs of an attention head, as `RankTracker` reads them

A candidate A, B counts only if its features are those of units: when the weights into half of the units change, what B
reads of the other half must stay, in a call of the block on random inputs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.reprs import ReprMixin
from saddlescope.train.attention.attention_blocks import AttentionBlock, find_attention
from saddlescope.train.attention.known_layouts import LAYOUTS
from saddlescope.train.attention.linear_weights import is_conv1d, is_linear, matrix_of
from saddlescope.train.module_names import canonical_name, unwrap_model
from saddlescope.train.shards import full_tensor, require_readable

_NAMED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("fc1",), "fc2"),
    (("linear1",), "linear2"),
    (("lin1",), "lin2"),
    (("c_fc",), "c_proj"),
    (("fc_in",), "fc_out"),
    (("dense_h_to_4h",), "dense_4h_to_h"),
    (("up_proj", "gate_proj"), "down_proj"),
    (("w1", "w3"), "w2"),
    (("wi_0", "wi_1"), "wo"),
    (("wi",), "wo"),
)  # layers into hidden neurons of one module, and the layer out of them
_CONVOLUTIONS = nn.Conv1d | nn.Conv2d | nn.Conv3d
_SIDES = (16, 28, 32, 64, 224, *range(1, 64))  # of images on which a block is called
_EXACT = 1e-4  # relative change of a feature that is rounding


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UnitGroup(ReprMixin):
    """Units of one block, whose outputs are added.

    Attributes:
        name: names of the layers into the units and out of them, or of the attention module.
        kind: kind of unit.
        count: number of units.
        parity: sign of the feature when all weights into a unit change theirs: 1 of even activations, -1 of odd ones, 0
            of others.
        into: layers into the units; two for gated neurons; none of heads.
        out: the layer out of them.
        block: the attention of heads.
    """

    name: str
    kind: Literal["neurons", "kernels", "heads"]
    count: int
    parity: int
    into: tuple[nn.Module, ...] = ()
    out: nn.Module | None = None
    block: AttentionBlock | None = None

    @torch.no_grad()
    def weights(self) -> tuple[Tensor, Tensor]:
        """Return the weights into the units, (count, p) with biases last, and out of them, (count, q), in float64.

        Of a head they are the entries of W_K W_Q^T and of W_V W_O^T.
        """
        if self.block is not None:
            factors = self.block.factors()
            (key, query), (value, output) = factors.product(0), factors.product(1)
            first, second = key.double() @ query.double().mT, value.double() @ output.double().mT
            return first.flatten(1), second.flatten(1)
        assert self.out is not None
        return torch.cat([rows for layer in self.into for rows in _rows(layer)], dim=1), _columns(self.out, self.count)


@validate_arguments
def units_of(model: nn.Module, *, pairs: Mapping[str, str] | None = None) -> tuple[UnitGroup, ...]:
    """Return the blocks of a model that are sums of units.

    Found are linear layers and convolutions that follow each other in an `nn.Sequential`, with functions without
    weights between them, such as activations, pooling and flattening; the MLPs of the usual transformers, by the names
    of their layers; and attention heads.

    Args:
        model: any model; `torch.compile` and DistributedDataParallel may wrap it.
        pairs: further layers by name, {layer into the units: layer out of them}. They are taken as they are: what is
            between them must act on each feature alone.

    Returns:
        The groups: of `nn.Sequential`, of transformers, of pairs, and heads. Left out are blocks with normalisation
        between the layers, and those whose features are not those of units.

    Raises:
        InputError: nothing is found; a pair names a layer that does not exist, or two that do not fit; or weights are
            not finite.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> [(group.name, group.kind, group.count) for group in units_of(model)]
    [('0 -> 2', 'neurons', 8)]
    """
    model = unwrap_model(model)
    require_readable(model)
    found = [*_in_sequences(model), *_in_transformers(model), *_given(model, pairs or {})]
    found += [
        UnitGroup(name=block.label, kind="heads", count=block.heads, parity=0, block=block)
        for block in find_attention(model, LAYOUTS).blocks
    ]
    if not found:
        raise InputError(
            "model must have a block that is a sum of units: two linear layers or convolutions in an nn.Sequential, "
            "the MLP of a transformer, or attention; found none. Name two layers: pairs={'first': 'second'}."
        )
    return tuple(found)


def _in_sequences(model: nn.Module) -> Iterator[UnitGroup]:
    """Yield the groups inside each `nn.Sequential`, those within it included."""
    inner = {id(child) for parent in model.modules() if _in_order(parent) for child in parent.children()}
    for name, parent in model.named_modules():
        if not _in_order(parent) or id(parent) in inner:
            continue
        layers = list(_layers(name, parent))
        weighted = [n for n, (_, layer) in enumerate(layers) if _holds_tensors(layer)]
        for first, last in pairwise(weighted):
            path = nn.Sequential(*(layer for _, layer in layers[first : last + 1]))
            yield from _checked(f"{layers[first][0]} -> {layers[last][0]}", (layers[first][1],), layers[last][1], path)


def _in_order(module: nn.Module) -> bool:
    """Return True if a module calls its layers in their order; an `nn.Sequential` may have another `forward`."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _layers(name: str, sequence: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of a sequence with their names, in order; a sequence in it gives its own."""
    for own, layer in sequence.named_children():
        joined = _joined(name, own)
        if _in_order(layer):
            yield from _layers(joined, layer)
        else:
            yield joined, layer


def _in_transformers(model: nn.Module) -> Iterator[UnitGroup]:
    """Yield the MLPs of transformers, by the names of their layers."""
    for name, parent in model.named_modules():
        children = dict(parent.named_children())
        for names, out in _NAMED:
            into = [one for one in names if one in children]
            if out in children and names[0] in into:
                label = f"{' and '.join(_joined(name, one) for one in into)} -> {_joined(name, out)}"
                yield from _checked(label, tuple(children[one] for one in into), children[out], parent)
                break


def _given(model: nn.Module, pairs: Mapping[str, str]) -> Iterator[UnitGroup]:
    """Yield the pairs that the user names, if their shapes fit."""
    modules = {canonical_name(name): module for name, module in model.named_modules() if name}
    for first, second in pairs.items():
        for name in (first, second):
            if name not in modules:
                raise unknown("layer of pairs", name, modules)
        into, out = modules[first], modules[second]
        count = _width(into)
        if not count or not _reads(out, count):
            raise InputError(f"pairs must name two layers whose features fit; got {first!r} and {second!r}.")
        yield UnitGroup(name=f"{first} -> {second}", kind=_kind(into), count=count, parity=0, into=(into,), out=out)


def _checked(name: str, into: tuple[nn.Module, ...], out: nn.Module, path: nn.Module) -> Iterator[UnitGroup]:
    """Yield the group if what `out` reads of each unit depends on the weights of this unit alone."""
    count = _width(into[0])
    if not count or any(_width(layer) != count for layer in into) or not _reads(out, count):
        return
    features = _features(into, out, path, count)
    if features is None:
        return
    before, half, negative = features
    if not all(torch.isfinite(one).all() for one in features):
        raise InputError(f"weights must be finite; got NaN or infinity in {name}.")
    near = _EXACT * float(before.abs().max())
    kept, changed = (half - before)[:, 1::2].abs(), (half - before)[:, ::2].abs()
    if not (near > 0 and float(kept.max()) <= near < float(changed.max())):
        return
    parity = next((sign for sign in (1, -1) if float((negative - sign * before).abs().max()) <= near), 0)
    yield UnitGroup(name=name, kind=_kind(into[0]), count=count, parity=parity, into=into, out=out)


def _features(into: tuple[nn.Module, ...], out: nn.Module, path: nn.Module, count: int) -> list[Tensor] | None:
    """Return three inputs of `out`, each (samples, count, others).

    The first is for the block's own weights, the second with every second unit changed, the third with all negated.
    None if the block cannot be called on random inputs.
    """
    names = {id(module): name for name, module in path.named_modules()}
    if any(set(dict(layer.named_parameters())) - {"weight", "bias"} for layer in into):
        return None
    even = torch.arange(count) % 2 == 0
    seen: list[Tensor] = []
    hook = out.register_forward_pre_hook(lambda module, inputs: seen.append(_by_unit(out, inputs[0].detach(), count)))
    modes = {module: module.training for module in path.modules()}
    try:
        path.eval()
        for x in _probes(into[0]):
            seen.clear()
            with torch.no_grad():
                for factor in (1.0, torch.where(even, 3.0, 1.0), -1.0):
                    weights = {
                        f"{names[id(layer)]}.{own}": _scaled(layer, weight.detach(), factor)
                        for layer in into
                        for own, weight in layer.named_parameters()
                    }
                    try:
                        functional_call(path, weights, (x,))
                    except Exception:
                        break
            if len(seen) == 3:
                return seen
    finally:
        hook.remove()
        for module, mode in modes.items():
            module.training = mode
    return None


def _probes(layer: nn.Module) -> Iterator[Tensor]:
    """Yield random inputs of a layer: of a convolution at several sizes."""
    weight = layer.weight
    assert isinstance(weight, Tensor)
    make = torch.Generator(device="cpu").manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=make).to(weight.device, weight.dtype)  # noqa: E731
    if not isinstance(layer, _CONVOLUTIONS):
        yield draw(2, 3, len(matrix_of(layer)))
        return
    for side in _SIDES:
        yield draw(2, layer.in_channels, *[side] * (weight.ndim - 2))


def _scaled(layer: nn.Module, weight: Tensor, factor: Tensor | float) -> Tensor:
    """Return a weight or bias into units, each unit's share times a factor."""
    if isinstance(factor, Tensor) and not (is_conv1d(layer) and weight.ndim == 2):
        factor = factor.reshape(-1, *[1] * (weight.ndim - 1))
    return weight * (factor.to(weight.device, weight.dtype) if isinstance(factor, Tensor) else factor)


def _by_unit(out: nn.Module, read: Tensor, count: int) -> Tensor:
    """Return the input of a layer as (samples, units, others)."""
    if isinstance(out, _CONVOLUTIONS):
        return read.flatten(2)
    return read.reshape(-1, count, read.shape[-1] // count)


def _rows(layer: nn.Module) -> Iterator[Tensor]:
    """Yield the weights into each unit, and its bias."""
    if isinstance(layer, _CONVOLUTIONS):
        yield full_tensor(layer.weight).double().flatten(1)
    else:
        yield matrix_of(layer).T.double()
    bias = getattr(layer, "bias", None)
    if isinstance(bias, Tensor):
        yield full_tensor(bias).double()[:, None]


def _columns(layer: nn.Module, count: int) -> Tensor:
    """Return the weights out of each unit."""
    if isinstance(layer, _CONVOLUTIONS):
        return full_tensor(layer.weight).double().transpose(0, 1).flatten(1)
    return matrix_of(layer).double().reshape(count, -1)


def _width(layer: nn.Module) -> int:
    """Return the number of features of a layer, 0 if it cannot be read."""
    if isinstance(layer, _CONVOLUTIONS):
        return layer.out_channels
    return matrix_of(layer).shape[1] if is_linear(layer) else 0


def _reads(layer: nn.Module, count: int) -> bool:
    """Return True if a layer can read so many features, each of one or several entries."""
    if isinstance(layer, _CONVOLUTIONS):
        return layer.groups == 1 and layer.in_channels == count
    return is_linear(layer) and len(matrix_of(layer)) % count == 0


def _kind(layer: nn.Module) -> Literal["neurons", "kernels"]:
    return "kernels" if isinstance(layer, _CONVOLUTIONS) else "neurons"


def _holds_tensors(layer: nn.Module) -> bool:
    return any(True for _ in layer.parameters()) or any(True for _ in layer.buffers())


def _joined(parent: str, name: str) -> str:
    return canonical_name(f"{parent}.{name}" if parent else name)
