"""Blocks of PyTorch models that are sums of units: hidden neurons, convolution kernels, attention heads.

    neurons    rows of a layer A and columns of the layer B that reads them, with a function without weights between
    kernels    output channels of a convolution A, and what a convolution or linear layer B reads of each
    heads      keys, queries, values and outputs of an attention head, as `RankTracker` reads them

A candidate A, B counts only if its features are those of units: when the weights into half of the units change, what B
reads of the other half must stay, in a call of the block on random inputs (`feature_law`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from saddlescope._shared.arguments import shown, validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.reprs import ReprMixin
from saddlescope.ranks.attention.attention_blocks import AttentionBlock, find_attention
from saddlescope.ranks.attention.known_layouts import LAYOUTS
from saddlescope.ranks.attention.linear_weights import is_linear, matrix_of, plain_weight
from saddlescope.ranks.module_names import canonical_name, unwrap_model
from saddlescope.ranks.shards import full_tensor, require_readable
from saddlescope.ranks.units.unit_features import Convolution, FeatureLaw, NoUnitsError, feature_law

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
    (("intermediate_dense",), "output_dense"),
)  # layers into hidden neurons of one module, and the layer out of them
_TRANSPOSED = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UnitGroup(ReprMixin):
    """Units of one block, whose outputs are added.

    Attributes:
        name: names of the layers into the units and out of them, or of the attention module.
        kind: kind of unit.
        count: number of units.
        into: layers into the units; two for gated neurons; none of heads.
        out: the layer out of them.
        block: the attention of heads.
        degrees: for each layer into the units, the power of a positive factor of its weights and biases with which the
            feature grows: 1 of ReLU, NaN of tanh and others that have none.
        parities: for each layer, the sign of the feature when its weights and biases change theirs: 1 of even
            activations, -1 of odd ones, 0 of others.
    """

    name: str
    kind: Literal["neurons", "kernels", "heads"]
    count: int
    into: tuple[nn.Module, ...] = ()
    out: nn.Module | None = None
    block: AttentionBlock | None = None
    degrees: tuple[float, ...] = ()
    parities: tuple[int, ...] = ()

    @torch.no_grad()
    def weights_by_layer(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the weights into the units by layer, (count, p) with biases last, and out of them, (count, q).

        They are in float64. Of a head they are the entries of W_K W_Q^T, with W_K b_Q where queries have biases, and
        of W_V W_O^T.
        """
        if self.block is not None:
            factors = self.block.factors()
            (key, query), (value, output) = factors.product(0), factors.product(1)
            first, second = key.double() @ query.double().mT, value.double() @ output.double().mT
            biases = self.block.layout.query_biases(self.block.module)
            if biases is not None:  # those of keys add the same to all scores of a query, which softmax ignores
                first = torch.cat([first, key.double() @ biases.double()[:, :, None]], dim=2)
            return (first.flatten(1),), second.flatten(1)
        assert self.out is not None
        return tuple(torch.cat([*_rows(layer)], dim=1) for layer in self.into), _columns(self.out, self.count)


@validate_arguments
def units_of(model: nn.Module, *, pairs: Mapping[str, str] | None = None) -> tuple[UnitGroup, ...]:
    """Return the blocks of a model that are sums of units.

    Found are linear layers and convolutions that follow each other in an `nn.Sequential`, with functions without
    weights between them, such as activations, pooling and flattening; the MLPs of the usual transformers, by the names
    of their layers; and attention heads.

    Args:
        model: any model; `torch.compile` and DistributedDataParallel may wrap it.
        pairs: further layers by name, {layer into the units: layer out of them}. They are taken as they are: what is
            between them must act on each feature alone, and in proportion to positive factors, as ReLU does.

    Returns:
        The groups: of `nn.Sequential`, of transformers, of pairs, and heads, each pair of layers once. Left out are
        blocks with layers that have weights between the two, such as normalisation; those whose features are not those
        of units; those whose layers have forward passes that compute something else than their weights say; gates
        fused into one layer, experts in one tensor; and convolutions with groups that read the units. Hooks are not
        called: what they change is not seen.

    Raises:
        InputError: nothing is found; or a pair names a layer that does not exist, or two that do not fit.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> [(group.name, group.kind, group.count) for group in units_of(model)]
    [('0 -> 2', 'neurons', 8)]
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model must be a torch.nn.Module; got {shown(model)}. Copy the weights of other libraries into a PyTorch "
            "model."
        )
    model = unwrap_model(model)
    require_readable(model)
    pairs_of_layers: dict[tuple[frozenset[int], int], UnitGroup] = {}
    left_out: list[str] = []
    for group in (*_in_sequences(model), *_in_transformers(model), *_given(model, pairs or {})):
        if isinstance(group, str):
            left_out.append(group)
            continue
        pairs_of_layers.setdefault((frozenset(map(id, group.into)), id(group.out)), group)
    found = [
        *pairs_of_layers.values(),
        *(
            UnitGroup(name=block.label, kind="heads", count=block.heads, block=block)
            for block in find_attention(model, LAYOUTS).blocks
        ),
    ]
    if not found:
        raise InputError(
            "model must have a block that is a sum of units: two linear layers or convolutions in an nn.Sequential, "
            f"the MLP of a transformer, or attention; found none{''.join(left_out[:1])}. Name "
            f"{'other' if left_out else 'two'} layers: pairs={{'first': 'second'}}."
        )
    return tuple(found)


def _in_sequences(model: nn.Module) -> Iterator[UnitGroup | str]:
    """Yield the groups inside each `nn.Sequential`, those within it included, or why they are left out."""
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
    return isinstance(module, nn.Sequential) and getattr(module.forward, "__func__", 0) is nn.Sequential.forward


def _layers(name: str, sequence: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of a sequence with their names, in order; a sequence in it gives its own.

    A layer that is called several times is yielded as often, as `named_children` does not.
    """
    for own, layer in sequence._modules.items():
        if layer is None:
            continue
        joined = _joined(name, own)
        if _in_order(layer):
            yield from _layers(joined, layer)
        else:
            yield joined, layer


def _in_transformers(model: nn.Module) -> Iterator[UnitGroup | str]:
    """Yield the MLPs of transformers, by the names of their layers, or why they are left out."""
    for name, parent in model.named_modules():
        children = dict(parent.named_children())
        for names, out in _NAMED:
            into = [one for one in names if one in children]
            if out in children and names[0] in into:
                label = f"{' and '.join(_joined(name, one) for one in into)} -> {_joined(name, out)}"
                yield from _checked(label, tuple(children[one] for one in into), children[out], parent)
                break
        first, last = children.get("intermediate"), children.get("output")  # of BERT
        into, out = getattr(first, "dense", None), getattr(last, "dense", None)
        if first is not None and isinstance(into, nn.Module) and isinstance(out, nn.Module):
            label = f"{_joined(name, 'intermediate.dense')} -> {_joined(name, 'output.dense')}"
            yield from _checked(label, (into,), out, nn.Sequential(first, out))


def _given(model: nn.Module, pairs: Mapping[str, str]) -> Iterator[UnitGroup]:
    """Yield the pairs that the user names, if their shapes fit."""
    modules = {canonical_name(name): module for name, module in model.named_modules() if name}
    for first, second in pairs.items():
        for name in (first, second):
            if not isinstance(name, str):
                raise InputError(f"pairs must map names of layers to names, as texts; got {name!r}.")
            if name not in modules:
                raise unknown("layer of pairs", name, modules)
        into, out = modules[first], modules[second]
        count = _width(into)
        if not count or into is out or not _reads(out, count):
            raise InputError(f"pairs must name two layers whose features fit; got {first!r} and {second!r}.")
        yield _group(f"{first} -> {second}", (into,), out, count, FeatureLaw((1.0,), (0,)))


def _checked(name: str, into: tuple[nn.Module, ...], out: nn.Module, path: nn.Module) -> Iterator[UnitGroup | str]:
    """Yield the group if what `out` reads of each unit depends on the weights of this unit alone; else why not."""
    count = _width(into[0])
    if not count or any(_width(layer) != count for layer in into):
        return
    if not _reads(out, count):
        kind = type(out).__name__
        yield f", since {name} is none: {kind} is no linear layer or convolution that reads {count} features"
        return
    try:
        yield _group(name, into, out, count, feature_law(into, out, path, count))
    except NoUnitsError as reason:
        yield f", since {name} is none: {reason}"


def _group(name: str, into: tuple[nn.Module, ...], out: nn.Module, count: int, law: FeatureLaw) -> UnitGroup:
    kind = "kernels" if isinstance(into[0], Convolution) else "neurons"
    return UnitGroup(
        name=name, kind=kind, count=count, into=into, out=out, degrees=law.degrees, parities=law.parities
    )  # fmt: skip


def _rows(layer: nn.Module) -> Iterator[Tensor]:
    """Yield the weights into each unit, and its bias.

    Kernels of a convolution with groups are 0 at the channels that they do not read.
    """
    if isinstance(layer, Convolution):
        weight = plain_weight(layer)
        if isinstance(layer, _TRANSPOSED):
            weight = weight.transpose(0, 1)
        if layer.groups > 1:
            own, each = layer.in_channels // layer.groups, layer.out_channels // layer.groups
            whole = weight.new_zeros(len(weight), layer.in_channels, *weight.shape[2:])
            for group in range(layer.groups):
                rows, channels = slice(group * each, (group + 1) * each), slice(group * own, (group + 1) * own)
                whole[rows, channels] = weight[rows]
            weight = whole
        yield weight.double().flatten(1)
    else:
        yield matrix_of(layer).T.double()
    bias = getattr(layer, "bias", None)
    if isinstance(bias, Tensor):
        yield full_tensor(bias).double()[:, None]


def _columns(layer: nn.Module, count: int) -> Tensor:
    """Return the weights out of each unit."""
    if isinstance(layer, Convolution):
        weight = plain_weight(layer).double()
        return (weight if isinstance(layer, _TRANSPOSED) else weight.transpose(0, 1)).flatten(1)
    return matrix_of(layer).double().reshape(count, -1)


def _width(layer: nn.Module) -> int:
    """Return the number of features of a layer, 0 if it cannot be read."""
    if isinstance(layer, _TRANSPOSED) and layer.groups > 1:
        return 0
    if isinstance(layer, Convolution):
        return layer.out_channels
    return matrix_of(layer).shape[1] if is_linear(layer) else 0


def _reads(layer: nn.Module, count: int) -> bool:
    """Return True if a layer can read so many features, each of one or several entries."""
    if isinstance(layer, Convolution):
        return layer.groups == 1 and layer.in_channels == count
    return is_linear(layer) and len(matrix_of(layer)) % count == 0


def _holds_tensors(layer: nn.Module) -> bool:
    return any(True for _ in layer.parameters()) or any(True for _ in layer.buffers())


def _joined(parent: str, name: str) -> str:
    return canonical_name(f"{parent}.{name}" if parent else name)
