"""Features of a block on random inputs: whether they are those of units, and how they depend on the weights into each.

    z    output of a layer into the units, replaced by random numbers of the same shape
    h    input of the layer out of them, the features

Weights and biases into a unit enter by z alone, in which a factor of theirs is a factor of z. So z is replaced rather
than the weights, which works for layers of any kind, and whatever their weights are.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from saddlescope.ranks.attention.linear_weights import matrix_of
from saddlescope.ranks.attention.module_copy import copy_with_weights
from saddlescope.ranks.attention.probe import quiet

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d

_SIDES = (16, 28, 32, 64, 224, *range(1, 64))  # of images on which a block is called
_LENGTHS = (*_SIDES, 1024, 16384)  # of sequences
_FACTORS = (4.0, 1024.0)  # powers of 2, exact in any precision
_EXACT = 1e-4  # relative difference of features that is rounding
_INTEGER = 1e-3  # difference of a degree from an integer that is rounding


class FeatureLaw(NamedTuple):
    """Dependence of a unit's feature on the weights into it, by layer.

    Attributes:
        degrees: power of a positive factor of the weights with which the feature grows; NaN where there is none.
        parities: sign of the feature when the weights change theirs; 0 where it is no other sign of itself.
    """

    degrees: tuple[float, ...]
    parities: tuple[int, ...]


class _ReachedError(Exception):
    """The layer out of the units was called: what follows it does not matter."""


@torch.no_grad()
def feature_law(into: Sequence[nn.Module], out: nn.Module, path: nn.Module, count: int) -> FeatureLaw | None:
    """Return the law of the features; None if they are not those of units, or the block cannot be called.

    Two properties make them those of units. If z of some units changes, the features of these units change and no
    others, for sets of units that tell any two apart. And where all units have the same z, all have the same feature.

    Args:
        into: layers into the units.
        out: the layer that reads the features.
        path: a module that calls all of them.
        count: number of units.
    """
    if out in into or len(set(into)) < len(into):
        return None
    with quiet():
        twin, *layers = copy_with_weights(nn.ModuleList([path, out, *into]))  # type: ignore[misc]
        for inputs in _probes(layers[1]):
            call = _Call(layers[1:], layers[0], twin, inputs, count)
            before = call.features()
            if before is not None:
                return _law(call, before, len(into))
    return None


def _law(call: "_Call", before: Tensor, layers: int) -> FeatureLaw | None:
    near = _EXACT * float(before.abs().max())
    if not 0 < near < math.inf:
        return None
    equal = call.features(equal=True)
    if equal is None or float((equal - equal[:, :1]).abs().max()) > near:
        return None
    degrees, parities = [], []
    numbers = torch.arange(before.shape[1])
    for layer in range(layers):
        found = [one for factor in (-1.0, *_FACTORS) if (one := call.features(layer, factor=factor)) is not None]
        if len(found) <= len(_FACTORS):
            return None
        negative, *scaled = found
        for bit in range(max(1, (len(numbers) - 1).bit_length())):
            for side in (0, 1):
                drawn = (numbers >> bit) % 2 == side
                redrawn = call.features(layer, redraw=drawn)
                if redrawn is None:
                    return None
                change = (redrawn - before).abs().amax(dim=(0, 2)).cpu()
                if bool((change[~drawn] > near).any()) or (drawn.any() and not bool((change[drawn] > near).any())):
                    return None
        degrees.append(_degree(before, scaled, near))
        parities.append(next((sign for sign in (1, -1) if float((negative - sign * before).abs().max()) <= near), 0))
    return FeatureLaw(tuple(degrees), tuple(parities))


def _degree(before: Tensor, scaled: Sequence[Tensor], near: float) -> float:
    """Return log(after / before) to the base of each factor; NaN if they are not in proportion, or by another power.

    The large factor shows a bound, as of ReLU6; half precision may overflow there, and then it shows nothing.
    """
    degree = math.nan
    for factor, after in zip(_FACTORS, scaled, strict=True):
        if factor > _FACTORS[0] and not bool(after.isfinite().all()):
            continue
        ratio = float((after * before).sum() / (before * before).sum())
        if not ratio > 0 or not float((after - ratio * before).abs().max()) <= near * max(1.0, ratio):
            return math.nan
        power = math.log(ratio, factor)
        if abs(power - degree) > _INTEGER:
            return math.nan
        degree = power
    return float(round(degree)) if abs(degree - round(degree)) <= _INTEGER else degree


class _Call:
    """Call of a block with z replaced."""

    def __init__(
        self, into: Sequence[nn.Module], out: nn.Module, path: nn.Module, inputs: tuple[Tensor, ...], count: int
    ) -> None:
        self._into, self._out, self._path, self._inputs, self._count = into, out, path, inputs, count

    def features(
        self, layer: int = -1, *, factor: float = 1.0, redraw: Tensor | None = None, equal: bool = False
    ) -> Tensor | None:
        """Return the features, (samples, units, others).

        Args:
            layer: the layer whose z is changed.
            factor: of its z.
            redraw: True for the units whose z is drawn anew.
            equal: give all units, of all layers, the z of the first.
        """
        read: list[Tensor] = []

        def stop(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            read.append(inputs[0])
            raise _ReachedError

        hooks = [self._out.register_forward_pre_hook(stop)]
        for n, each in enumerate(self._into):
            changed = n == layer
            hook = self._replacement(n, factor if changed else 1.0, redraw if changed else None, equal=equal)
            hooks.append(each.register_forward_hook(hook))
        try:
            self._path(*self._inputs)
        except _ReachedError:
            return self._by_unit(read[0])
        except Exception:  # of any kind: random inputs may not fit what a user's block does
            return None
        finally:
            for hook in hooks:
                hook.remove()
        return None

    def _replacement(self, number: int, factor: float, redraw: Tensor | None, *, equal: bool) -> Callable[..., Tensor]:
        def replaced(layer: nn.Module, inputs: Any, found: Tensor) -> Tensor:
            make = torch.Generator(device="cpu").manual_seed(1 + number)
            z = torch.randn(found.shape, generator=make)
            axis = 1 if isinstance(layer, Convolution) else z.ndim - 1
            if redraw is not None:
                drawn = redraw.reshape(-1, *[1] * (z.ndim - 1 - axis))
                z = torch.where(drawn, torch.randn(found.shape, generator=make), z)
            if equal:
                z = z.narrow(axis, 0, 1).expand(z.shape).contiguous()
            return (factor * z.to(found.device, found.dtype)).to(found.dtype)

        return replaced

    def _by_unit(self, read: Tensor) -> Tensor | None:
        read = read.detach().double() if read.device.type != "mps" else read.detach().cpu().double()
        if isinstance(self._out, Convolution):
            return read.flatten(2) if read.ndim > 2 and read.shape[1] == self._count else None
        if read.shape[-1] % self._count:
            return None
        return read.reshape(-1, self._count, read.shape[-1] // self._count)


def _probes(layer: nn.Module) -> Iterator[tuple[Tensor, ...]]:
    """Yield random arguments of a layer: images of several sizes, or one sequence and two for blocks that read two."""
    make = torch.Generator(device="cpu").manual_seed(0)
    weight = layer.weight if isinstance(layer, Convolution) else matrix_of(layer)
    draw = lambda *shape: torch.randn(*shape, generator=make).to(weight.device, weight.dtype)  # noqa: E731
    if not isinstance(layer, Convolution):
        x = draw(2, 3, len(weight))
        yield (x,)
        yield (x, x)
        return
    axes = weight.ndim - 2
    for side in _LENGTHS if axes == 1 else _SIDES:
        if side**axes <= 2**20:
            yield (draw(2, layer.in_channels, *[side] * axes),)
