"""Samples in blocks that fit the processor's cache, for losses that sum over them one block at a time."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def sample_blocks(
    inputs: Float[Array, "samples n d"], targets: Float[Array, "samples n d"], *, entries: int
) -> tuple[Float[Array, "blocks s n d"], Float[Array, "blocks s n d"]]:
    """Split inputs and targets into blocks of about `entries` entries; samples of zeros, which add 0, fill the last.

    Args:
        inputs: a sequence of n tokens per sample.
        targets: the same.
        entries: of the inputs of a block, at most, unless one sample has more.
    """
    samples, tokens, dim = inputs.shape
    size = min(samples, max(1, entries // (tokens * dim)))
    blocks = -(-samples // size)

    def split(data: Array) -> Array:
        padded = jnp.pad(data, ((0, blocks * size - samples), (0, 0), (0, 0)))
        return padded.reshape(blocks, size, tokens, dim)

    return split(inputs), split(targets)
