"""Samples in blocks that stay in the processor's cache, for losses that go over them one block at a time."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def sample_blocks(
    inputs: Float[Array, "samples n d"], targets: Float[Array, "samples n d"], *, entries: int
) -> tuple[Float[Array, "blocks s n d"], Float[Array, "blocks s n d"]]:
    """Inputs and targets in blocks of about so many entries. All-zero samples fill the last one; they add exactly 0.

    Args:
        inputs: a sequence of n tokens each sample.
        targets: likewise.
        entries: of the inputs of a block, at most, unless one sample has more.
    """
    samples, tokens, dim = inputs.shape
    size = min(samples, max(1, entries // (tokens * dim)))
    blocks = -(-samples // size)

    def split(data: Array) -> Array:
        padded = jnp.pad(data, ((0, blocks * size - samples), (0, 0), (0, 0)))
        return padded.reshape(blocks, size, tokens, dim)

    return split(inputs), split(targets)
