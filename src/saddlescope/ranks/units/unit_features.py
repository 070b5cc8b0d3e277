"""Features of a block on random inputs: whether they are those of units, and how they depend on the weights into each.

    z    output of a layer into the units, replaced by random numbers of the same shape
    h    input of the layer out of them, the features

Weights and biases into a unit enter by z alone, in which a factor of theirs is a factor of z. So z is replaced rather
than the weights, which works for layers of any kind. What each layer returns is compared once with what random weights
of it say, so that weights of 0 hide nothing. Hooks are not called.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from saddlescope.ranks.attention.linear_weights import matrix_of
from saddlescope.ranks.attention.module_copy import copy_with_random_weights
from saddlescope.ranks.attention.probe import brief, quiet
from saddlescope.ranks.attention.self_check import TOLERANCE

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d

_SIDES = (16, 28, 32, 64, 224, *range(1, 64))  # of images on which a block is called
_LENGTHS = (*_SIDES, 1024, 16384)  # of sequences
_FACTORS = (4.0, 2.0**-10, 2.0**10, 2.0**20)  # powers of 2, exact in any precision
_EXACT = 1e-4  # relative difference of features that is rounding
_SUBNORMAL = 2.0**-24  # the same of small ones in half precision
_MIXED = "its features are not those of units, each by its own weights alone"
_OTHERWISE = "it computes, by forward passes of its layers, something else than its weights say"
_INTEGER = 1e-3  # difference of a degree from an integer that is rounding


class FeatureLaw(NamedTuple):
    """Dependence of a unit's feature on the weights into it, by layer.

    Attributes:
        degrees: power of a positive factor of the weights with which the feature grows; NaN where there is none.
        parities: sign of the feature when the weights change theirs; 0 where it is no other sign of itself.
    """

    degrees: tuple[float, ...]
    parities: tuple[int, ...]


class NoUnitsError(Exception):
    """Reason why the features of a block are not those of units."""


class _ReachedError(Exception):
    """The layer out of the units was called: what follows it does not matter."""


@torch.no_grad()
def feature_law(into: Sequence[nn.Module], out: nn.Module, path: nn.Module, count: int) -> FeatureLaw:
    """Return the law of the features.

    Two properties make them those of units. If z of some units changes, the features of these units change and no
    others, for sets of units that tell any two apart. And where all units have the same z, all have the same feature.

    Args:
        into: layers into the units.
        out: the layer that reads the features.
        path: a module that calls all of them.
        count: number of units.

    Raises:
        NoUnitsError: they are not those of units, or of the weights, or the block cannot be called.
    """
    if out in into or len(set(into)) < len(into):
        raise NoUnitsError(_MIXED)
    with quiet():
        try:
            copies: Any = copy_with_random_weights(nn.ModuleList([path, out, *into]))
        except Exception as error:  # of any kind: a user's block may hold what no copy can
            raise NoUnitsError(f"it cannot be copied ({brief(error)})") from error
        for layer in copies[1:]:
            _require_own(layer)
        failure = None
        for inputs in _probes(copies[2]):
            call = _Call(copies, inputs, count)
            try:
                before = call.features()
            except NoUnitsError as error:
                failure = failure or error
                continue
            return _law(call, before, len(into))
    raise failure or NoUnitsError(_MIXED)


def _law(call: "_Call", before: Tensor, layers: int) -> FeatureLaw:
    near = _EXACT * float(before.abs().max())
    equal = call.features(equal=True)
    if not 0 < near < math.inf or float((equal - equal[:, :1]).abs().max()) > near:
        raise NoUnitsError(_MIXED)
    degrees, parities = [], []
    numbers = torch.arange(before.shape[1])
    for layer in range(layers):
        negative, *scaled = (call.features(layer, factor=factor) for factor in (-1.0, *_FACTORS))
        for bit in range(max(1, (len(numbers) - 1).bit_length())):
            for side in (0, 1):
                drawn = (numbers >> bit) % 2 == side
                change = (call.features(layer, redraw=drawn) - before).abs().amax(dim=(0, 2)).cpu()
                if bool((change[~drawn] > near).any()) or (drawn.any() and not bool((change[drawn] > near).any())):
                    raise NoUnitsError(_MIXED)
        degrees.append(_degree(before, scaled, near))
        parities.append(next((sign for sign in (1, -1) if float((negative - sign * before).abs().max()) <= near), 0))
    return FeatureLaw(tuple(degrees), tuple(parities))


def _degree(before: Tensor, scaled: Sequence[Tensor], near: float) -> float:
    """Return log(after / before) to the base of each factor; NaN if they are not in proportion, or by another power.

    The small factor shows a bend near 0, as of softplus with a large beta, and the large ones a bound, as of ReLU6;
    half precision may overflow there, and then they show nothing.
    """
    degree = math.nan
    for factor, after in zip(_FACTORS, scaled, strict=True):
        if factor > _FACTORS[0] and not bool(after.isfinite().all()):
            continue
        ratio = float((after * before).sum() / (before * before).sum())
        if not ratio > 0 or not float((after - ratio * before).abs().max()) <= max(near * ratio, _SUBNORMAL):
            return math.nan
        power = math.log(ratio, factor)
        if abs(power - degree) > _INTEGER:
            return math.nan
        degree = power
    return float(round(degree)) if abs(degree - round(degree)) <= _INTEGER else degree


class _Call:
    """Call of a block with z replaced.

    Args:
        copies: the path, the layer out of the units, and those into them.
        inputs: arguments of the path.
        count: number of units.
    """

    def __init__(self, copies: Any, inputs: tuple[Tensor, ...], count: int) -> None:
        self._path, self._out, *self._into = copies
        self._inputs, self._count = inputs, count

    def features(
        self, layer: int = -1, *, factor: float = 1.0, redraw: Tensor | None = None, equal: bool = False
    ) -> Tensor:
        """Return the features, (samples, units, others).

        Args:
            layer: the layer whose z is changed.
            factor: of its z.
            redraw: True for the units whose z is drawn anew.
            equal: give all units, of all layers, the z of the first.

        Raises:
            NoUnitsError: it fails on the inputs.
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
        except Exception as error:  # of any kind: random inputs may not fit what a user's block does
            raise NoUnitsError(f"it cannot be called on random inputs ({brief(error)})") from error
        finally:
            for hook in hooks:
                hook.remove()
        raise NoUnitsError("it does not call its layers")

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

    def _by_unit(self, read: Tensor) -> Tensor:
        read = read.detach().double() if read.device.type != "mps" else read.detach().cpu().double()
        if isinstance(self._out, Convolution) and read.ndim > 2 and read.shape[1] == self._count:
            return read.flatten(2)
        if isinstance(self._out, Convolution) or read.shape[-1] % self._count:
            raise NoUnitsError(f"features of the shape {tuple(read.shape)} are not those of {self._count} units")
        return read.reshape(-1, self._count, read.shape[-1] // self._count)


def _require_own(layer: nn.Module) -> None:
    """Raise NoUnitsError if a layer returns something else than its weights say."""
    called: list[bool] = []

    def compare(_: nn.Module, inputs: tuple[Tensor, ...], found: Tensor) -> None:
        if isinstance(layer, Convolution):
            kind = next(kind for kind in get_args(Convolution) if isinstance(layer, kind))
            expected = kind.forward(layer, inputs[0])
        else:
            bias = getattr(layer, "bias", None)
            expected = inputs[0] @ matrix_of(layer) + (0.0 if bias is None else bias)
        allowed = max(TOLERANCE, 16 * torch.finfo(found.dtype).eps) * float(expected.abs().max())
        called.append(float((found - expected).abs().max()) <= allowed)

    hook, why = layer.register_forward_hook(compare), ""
    for inputs in _probes(layer):
        try:
            layer(*inputs)
        except Exception as error:  # of any kind, as above
            why = why or f" ({brief(error)})"
        if called:
            break
    hook.remove()
    if not all(called or [False]):
        raise NoUnitsError(_OTHERWISE if called else f"{type(layer).__name__} cannot be called on random inputs{why}")


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
