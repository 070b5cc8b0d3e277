"""Conditional U-Net that predicts the noise in an image, and its backbone, which the classifier of concepts shares.

Appendix G.2 of Yang et al. (2024) names the widths before each halving [64, 128, 256], two residual blocks per level,
self-attention in the bottleneck, LayerNorm, GELU, and a two-layer MLP that brings the condition to the width of the
features it is added to. Unspecified details follow the public code of its predecessor (Park et al., 2024):

- the time, which appendix G does not mention, is embedded in sines and cosines and added inside every residual block,
  between its two convolutions, through a separate MLP per block;
- so is the condition, which according to appendix G is added "after every downsampling layer";
- halving and doubling are convolutions of 2 x 2 pixels with stride 2; a level's features are joined after doubling;
- the last convolution of each block and of the network starts at zero, and the network adds its input to its output:
  it starts as the identity, which is the correct prediction for an image of pure noise;
- four heads of attention.

**LayerNorm** of a feature map can mean two things; Ba et al. (2016), whom appendix G cites, share one mean and one
variance among all units of a layer: over the channels and pixels of one image ("layer"). `nn.LayerNorm` over the
channels of each pixel ("pixel") removes the relative strength of a pixel. The predecessor's code has GroupNorm with
8 groups and dropout 0.1 ("group"). All three have one gain and one bias per channel.

The network computes in PyTorch's channels-last memory format, the fastest for convolutions; shapes are not affected.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.training.configuration import BelowOne, Bounds, Configuration, Count

Normalization = Literal["layer", "pixel", "group"]

_COLOURS = 3  # channels of an image
_WAVES = 32  # frequencies of the embedding of time: a sine and a cosine each
_LONGEST = 1e4  # ratio of the highest frequency to the lowest
_TICKS = 1000.0  # radians of the highest frequency from time 0 to 1
_TIME_WIDTH = 256  # of the embedding of time that the blocks see


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class UNetConfig(Configuration):
    """Sizes of the U-Net; the defaults are the paper's (appendix G.2)."""

    pixels: Count = 32  # side length of the square images; divisible by 2 once for each level but the last
    channels: Annotated[tuple[int, ...], Bounds(1)] = (64, 128, 256)  # width of each level, from the finest
    blocks: Count = 2  # residual blocks per level, on the way down and on the way up
    normalization: Normalization = "layer"  # over an image, over the channels of a pixel, or over groups of channels
    groups: Count = 8  # of channels, for the normalization "group" alone
    dropout: BelowOne = 0.0  # probability, before the second convolution of each block
    condition: Count = 4  # length of the condition of an image
    heads: Count = 4  # of attention; divides the last width

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.channels:
            raise InputError(f"channels must hold at least one width; got {self.channels!r}.")
        halvings = len(self.channels) - 1
        if self.pixels % 2**halvings:
            raise InputError(
                f"pixels must be a multiple of {2**halvings}, since {len(self.channels)} levels halve the image "
                f"{halvings} times; got {self.pixels!r}."
            )
        if self.normalization == "group" and any(width % self.groups for width in self.channels):
            raise InputError(f"groups must divide every width in channels={self.channels}; got {self.groups!r}.")
        if self.channels[-1] % self.heads:
            raise InputError(f"heads must divide the last width in channels={self.channels}; got {self.heads!r}.")


class PixelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each pixel."""

    def forward(self, input: Float[Tensor, "batch channels side side"]) -> Float[Tensor, "batch channels side side"]:
        """Normalize."""
        return super().forward(input.movedim(1, -1)).movedim(-1, 1)


def _norm(config: UNetConfig, width: int) -> nn.Module:
    if config.normalization == "pixel":
        return PixelNorm(width)
    return nn.GroupNorm(config.groups if config.normalization == "group" else 1, width)


def _projection(width_in: int, width_out: int) -> nn.Sequential:
    """Return the two-layer MLP through which a vector is added to features."""
    return nn.Sequential(nn.Linear(width_in, width_out), nn.GELU(), nn.Linear(width_out, width_out), nn.GELU())


class ResidualBlock(nn.Module):
    """Norm, GELU, 3 x 3 convolution, twice, beside a residual connection; vectors are added in between.

    Args:
        config: normalization and dropout.
        width_in, width_out: channels.
        vectors: widths of the vectors; each passes a separate two-layer MLP and is added to every pixel.
    """

    def __init__(self, config: UNetConfig, width_in: int, width_out: int, vectors: Sequence[int]) -> None:
        super().__init__()
        self.first_norm = _norm(config, width_in)
        self.first = nn.Conv2d(width_in, width_out, 3, padding=1)
        self.projections = nn.ModuleList(_projection(width, width_out) for width in vectors)
        self.second_norm = _norm(config, width_out)
        self.dropout = nn.Dropout(config.dropout)
        self.second = nn.Conv2d(width_out, width_out, 3, padding=1)
        self.shortcut = nn.Identity() if width_in == width_out else nn.Conv2d(width_in, width_out, 1)

    def forward(
        self, x: Float[Tensor, "batch channels side side"], *vectors: Float[Tensor, "batch _"]
    ) -> Float[Tensor, "batch out side side"]:
        """Apply the block."""
        hidden = self.first(functional.gelu(self.first_norm(x)))
        for projection, vector in zip(self.projections.children(), vectors, strict=True):
            hidden = hidden + projection(vector)[:, :, None, None]
        hidden = self.second(self.dropout(functional.gelu(self.second_norm(hidden))))
        return self.shortcut(x) + hidden


class SelfAttention(nn.Module):
    """Multi-head self-attention among the pixels, after a norm and beside a residual connection."""

    def __init__(self, config: UNetConfig, width: int) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm = _norm(config, width)
        self.mixed = nn.Linear(width, 3 * width)  # queries, keys and values
        self.output = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "batch channels side side"]) -> Float[Tensor, "batch channels side side"]:
        """Mix the pixels."""
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        query, key, value = self.mixed(pixels).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        mixed = self.output(mixed.transpose(1, 2).flatten(2))
        return x + mixed.transpose(1, 2).unflatten(-1, x.shape[2:])


class Backbone(nn.Module):
    """U-Net between its first convolution and its last norm, from an image to features of the same size.

    Args:
        config: the sizes.
        vectors: widths of the vectors that every residual block adds; none for a network of the image alone.
        seed: seed of the initial weights.

    >>> backbone = Backbone(UNetConfig(pixels=8, channels=(8, 16), blocks=1, normalization="layer"))
    >>> backbone(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 8, 8, 8])
    """

    def __init__(self, config: UNetConfig, *, vectors: Sequence[int] = (), seed: int = 0) -> None:
        super().__init__()
        self.config, widths = config, config.channels

        def level(width_in: int, width_out: int) -> nn.ModuleList:
            ins = [width_in, *[width_out] * (config.blocks - 1)]
            return nn.ModuleList(ResidualBlock(config, width, width_out, vectors) for width in ins)

        with torch.device("meta"):  # built without memory or random numbers; filled by `initialise`
            self.enter = nn.Conv2d(_COLOURS, widths[0], 3, padding=1)
            self.down = nn.ModuleList(itertools.starmap(level, zip((widths[0], *widths), widths, strict=False)))
            self.halvings = nn.ModuleList(nn.Conv2d(width, width, 2, stride=2) for width in widths[:-1])
            self.before = ResidualBlock(config, widths[-1], widths[-1], vectors)
            self.attention = SelfAttention(config, widths[-1])
            self.after = ResidualBlock(config, widths[-1], widths[-1], vectors)
            # From the coarsest level up; all others also receive the features of their own size from the way down.
            self.up = nn.ModuleList(
                level(width if width_below is None else 2 * width, width)
                for width, width_below in zip(widths[::-1], (None, *widths[:0:-1]), strict=True)
            )
            self.doublings = nn.ModuleList(
                nn.ConvTranspose2d(below, width, 2, stride=2)
                for below, width in zip(widths[:0:-1], widths[-2::-1], strict=True)
            )
            self.norm = _norm(config, widths[0])
        initialise(self, seed)

    def forward(
        self, images: Float[Tensor, "batch 3 side side"], *vectors: Float[Tensor, "batch _"]
    ) -> Float[Tensor, "batch channels side side"]:
        """Return features of each pixel, after a norm and a GELU; their number is the first of `config.channels`.

        Args:
            images: images of side length `config.pixels`.
            *vectors: the vectors of the blocks.
        """
        side = self.config.pixels
        if images.shape[1:] != (_COLOURS, side, side):
            raise InputError(f"images must have shape (n, {_COLOURS}, {side}, {side}); got {tuple(images.shape)!r}.")
        x = self.enter(images.contiguous(memory_format=torch.channels_last))
        skips: list[Tensor] = []
        for depth, blocks in enumerate(self.down):
            x = _apply(blocks, x, vectors)
            if depth < len(self.halvings):
                skips.append(x)
                x = self.halvings[depth](x)
        x = self.after(self.attention(self.before(x, *vectors)), *vectors)
        for height, blocks in enumerate(self.up):
            if height:
                x = torch.cat([self.doublings[height - 1](x), skips.pop()], dim=1)
            x = _apply(blocks, x, vectors)
        return functional.gelu(self.norm(x))


def _apply(blocks: nn.Module, x: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    for block in blocks.children():
        x = block(x, *vectors)
    return x


class UNet(nn.Module):
    """U-Net that predicts the noise in a noised image from the image, the time and the condition.

    The initial weights depend only on `config` and `seed`, and the global random state is neither read nor changed:
    PyTorch's own default, uniform on (-b, b) with b = 1/sqrt(inputs) for weights and biases, and zero for the last
    convolution of each block and of the network.

    Args:
        config: the sizes.
        seed: seed of the initial weights.

    >>> model = UNet(UNetConfig(pixels=8, channels=(8, 16), blocks=1), seed=0)
    >>> model(torch.zeros(2, 3, 8, 8), torch.zeros(2), torch.zeros(2, 4)).shape
    torch.Size([2, 3, 8, 8])
    """

    def __init__(self, config: UNetConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.backbone = Backbone(config, vectors=(_TIME_WIDTH, config.condition))
        with torch.device("meta"):
            self.time = _projection(2 * _WAVES, _TIME_WIDTH)
            self.leave = nn.Conv2d(config.channels[0], _COLOURS, 3, padding=1)
        initialise(self, seed)

    def forward(
        self,
        images: Float[Tensor, "batch 3 side side"],
        time: Float[Tensor, " batch"],
        condition: Float[Tensor, "batch condition"],
    ) -> Float[Tensor, "batch 3 side side"]:
        """Return the predicted noise.

        Args:
            images: noised images z_t.
            time: 0 for least noise, 1 for most; values slightly outside are allowed.
            condition: condition of each image.
        """
        if condition.shape[1] != self.config.condition:
            raise InputError(
                f"condition must hold {self.config.condition} numbers per image; got shape {tuple(condition.shape)!r}."
            )
        frequencies = _TICKS * _LONGEST ** -torch.linspace(0, 1, _WAVES, device=time.device, dtype=time.dtype)
        angles = time[:, None] * frequencies
        embedded = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        return images + self.leave(self.backbone(images, embedded, condition))


@torch.no_grad()
def initialise(module: nn.Module, seed: int) -> None:
    """Draw all weights of a network of convolutions, linear layers and norms on the processor, from a seed.

    Weights and biases are uniform on (-b, b), b = 1/sqrt(inputs), which is PyTorch's default; the second convolution of
    residual blocks and the last of the U-Net are zero; gains are 1 and biases of norms 0.
    """
    module.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            bound = 1 / math.sqrt(part.weight[0].numel())
            for parameter in part.parameters():
                parameter.uniform_(-bound, bound, generator=generator)
        elif isinstance(part, nn.GroupNorm | nn.LayerNorm):
            part.weight.fill_(1.0)
            part.bias.fill_(0.0)
    for part in module.modules():
        last = part.second if isinstance(part, ResidualBlock) else part.leave if isinstance(part, UNet) else None
        if last is not None:
            for parameter in last.parameters():
                parameter.zero_()
    module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
