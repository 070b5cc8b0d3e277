"""Vision transformer: pre-LayerNorm, GELU, one weight matrix each for key, query, value and output.

Notable:

- the head width is independent of the embedding (the paper has 8 heads of width 128 on an embedding of 512);
- attention has no biases, so W_K W_Q^T and W_V W_O^T determine a head;
- `initial_scale` is a factor on the initial weight matrices, never a standard deviation;
- the patches' outputs are averaged for the classifier. A class token would receive nothing of the image until attention
  has learned to move it there, which at small initial scale is one more plateau, unrelated to the data;
- positions start as large as an embedded patch of standardised pixels (standard deviation 1/sqrt(3)). At the 0.02 of
  some implementations, a small model never learns the positions of patches: 79 % of the digits' test images instead
  of 96 %;
- attention may be linear, the sum over patches without softmax divided by their number;
- there is no dropout: the paper names none, and without it a step is a function of the weights and the batch.

A head's output on X of shape (patches, embedding) is softmax(X W_Q W_K^T X^T / sqrt(d_h)) X W_V W_O^T with
W_K, W_Q, W_V, W_O of shape (embedding, d_h). `nn.Linear` stores (out, in): W_K of head h is the transpose of the rows
h d_h to (h+1) d_h of `key.weight`, and W_O of head h is those columns of `output.weight`, untransposed.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.training.configuration import Configuration, Count


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class ViTConfig(Configuration):
    """Sizes of a vision transformer; the defaults are the paper's for CIFAR-10 (appendix B.2)."""

    image_size: Count = 32  # side length of the square images in pixels
    channels: Count = 3  # colour channels
    patch: Count = 4  # side length of the square patches in pixels; divides image_size
    embedding: Count = 512  # width of the residual stream
    depth: Count = 6  # blocks of attention and MLP
    heads: Count = 8  # attention heads per block
    head_width: Count = 128  # d_h, width of one head's keys, queries and values
    mlp_width: Count = 512  # hidden units of each MLP
    classes: Count = 10  # outputs of the classifier
    initial_scale: float = 1.0  # factor on all initial weight matrices but the patch embedding
    attention: Literal["softmax", "linear"] = "softmax"  # linear: scores are divided by the number of patches

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size % self.patch:
            raise InputError(f"patch must divide image_size={self.image_size}; got {self.patch!r}.")
        if not 1e-6 <= self.initial_scale < math.inf:
            raise InputError(
                f"initial_scale must be a finite factor of at least 1e-6; got {self.initial_scale!r}. Gradients of "
                "keys and queries have four factors of it, and vanish in float32 below."
            )


class Attention(nn.Module):
    """Multi-head self-attention without biases."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.heads, self.linear = config.heads, config.attention == "linear"
        width = config.heads * config.head_width
        self.key = nn.Linear(config.embedding, width, bias=False)
        self.query = nn.Linear(config.embedding, width, bias=False)
        self.value = nn.Linear(config.embedding, width, bias=False)
        self.output = nn.Linear(width, config.embedding, bias=False)

    def forward(self, x: Float[Tensor, "batch patches embedding"]) -> Float[Tensor, "batch patches embedding"]:
        """Mix the patches."""
        key, query, value = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.key, self.query, self.value)
        )
        if self.linear:
            mixed = query @ (key.transpose(2, 3) @ value) / (key.shape[-1] ** 0.5 * key.shape[-2])
        elif key.device.type == "cpu" and key.dtype == torch.bfloat16:  # the fused kernel is three times slower there
            mixed = (query @ key.transpose(2, 3) * key.shape[-1] ** -0.5).softmax(-1).to(value.dtype) @ value
        else:
            mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then an MLP, each after a LayerNorm and with a residual connection."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.embedding)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.embedding)
        self.expand = nn.Linear(config.embedding, config.mlp_width)
        self.contract = nn.Linear(config.mlp_width, config.embedding)

    def forward(self, x: Float[Tensor, "batch patches embedding"]) -> Float[Tensor, "batch patches embedding"]:
        """Apply the block."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.contract(functional.gelu(self.expand(self.mlp_norm(x))))


class ViT(nn.Module):
    """Vision transformer for classification.

    The initial weights depend only on `config` and `seed`, and the global random state is neither read nor changed:
    each weight matrix is uniform on (-b, b), b = initial_scale / sqrt(inputs) (PyTorch's own default times the factor;
    the patch embedding has factor 1), positions are uniform on (-1, 1), biases 0, LayerNorm gains 1.

    Args:
        config: the sizes.
        seed: seed of the initial weights. A seed gives the same draws at every `initial_scale`, so that only the scale
            differs.

    >>> model = ViT(ViTConfig(image_size=8, channels=1, patch=2, embedding=32, depth=2, head_width=8), seed=0)
    >>> model(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(self, config: ViTConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.device("meta"):  # built without memory or random numbers; filled by _initialise
            self.patch_embedding = nn.Linear(config.channels * config.patch**2, config.embedding)
            self.position = nn.Parameter(torch.empty((config.image_size // config.patch) ** 2, config.embedding))
            self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
            self.norm = nn.LayerNorm(config.embedding)
            self.classifier = nn.Linear(config.embedding, config.classes)
        self.to_empty(device="cpu")
        self._initialise(torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        self.position.uniform_(-1.0, 1.0, generator=generator)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                # In two steps: at every scale the draws are the same numbers times the factor, to the last bit.
                bound = 1 / math.sqrt(module.in_features)
                module.weight.uniform_(-bound, bound, generator=generator)
                if module is not self.patch_embedding:
                    module.weight.mul_(self.config.initial_scale)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
                module.bias.zero_()

    def forward(self, images: Float[Tensor, "batch channels side side"]) -> Float[Tensor, "batch classes"]:
        """Return logits of standardised images."""
        expected = (self.config.channels, self.config.image_size, self.config.image_size)
        if images.shape[1:] != expected:
            raise InputError(
                f"images must have shape (n, {', '.join(map(str, expected))}); got {tuple(images.shape)!r}."
            )
        patches = functional.unfold(images, self.config.patch, stride=self.config.patch).transpose(1, 2)
        x = self.patch_embedding(patches) + self.position
        for block in self.blocks:
            x = block(x)
        return self.classifier(self.norm(x).mean(dim=1))
