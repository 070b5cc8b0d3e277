"""Samples in blocks that fit the processor's cache, for losses that sum over them one block at a time."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def sample_blocks(*data: Float[Array, "samples n _"], entries: int) -> tuple[Float[Array, "blocks s n _"], ...]:
    """Split arrays of samples into blocks of about `entries` entries; samples of zeros, which add 0, fill the last.

    Args:
        data: sequences of n tokens, one per sample; all with as many samples.
        entries: of a block of the first array, at most, unless one sample has more.
    """
    samples, tokens, dim = data[0].shape
    size = min(samples, max(1, entries // (tokens * dim)))
    blocks = -(-samples // size)

    def split(one: Array) -> Array:
        padded = jnp.pad(one, ((0, blocks * size - samples), (0, 0), (0, 0)))
        return padded.reshape(blocks, size, *one.shape[1:])

    return tuple(split(one) for one in data)
