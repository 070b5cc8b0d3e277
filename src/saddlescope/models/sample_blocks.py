"""Samples in blocks that fit the processor's cache, for losses that sum over them one block at a time."""

import jax.numpy as jnp
from jaxtyping import Array, Float

BLOCK_ENTRIES = 10_000
"""Entries of the inputs of a block, 80 kB: the fastest of 4 to 250 samples of 10 x 50 of an attention head."""


def sample_blocks(*data: Float[Array, "samples n _"]) -> tuple[Float[Array, "blocks s n _"], ...]:
    """Split arrays of samples into blocks of at most `BLOCK_ENTRIES` entries; samples of zeros, which add 0, fill up.

    Args:
        data: sequences of n tokens, one per sample; all with as many samples.
    """
    samples, tokens, dim = data[0].shape
    size = min(samples, max(1, BLOCK_ENTRIES // (tokens * dim)))
    blocks = -(-samples // size)

    def split(one: Array) -> Array:
        padded = jnp.pad(one, ((0, blocks * size - samples), (0, 0), (0, 0)))
        return padded.reshape(blocks, size, *one.shape[1:])

    return tuple(split(one) for one in data)
