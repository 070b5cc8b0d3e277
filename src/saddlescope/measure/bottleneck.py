"""Observables of the bottleneck of deep networks: distance from rank one, distance from linear, and rank.

    s       singular values (..., r) of one layer's weights or activations, at least 0, in any order
    Z       preactivations (..., n, N) of a layer of n neurons on N samples
    Zs      activations max(Z, 0)

If the initial weights are not negligible beside the learned ones, their frozen bulk raises the stable rank of a layer
of rank one to 1.2 to 1.5. Use `second_ratio` or `bulk_count` there.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from jaxtyping import Float, Int

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.measure.arrays import take
from saddlescope.measure.rank import descending_shares, numerical_rank


def second_ratio(values: Any) -> Float[Any, "..."]:
    """Return s_2 / s_1, the second largest singular value over the largest: 0 at rank one and for the zero matrix.

    Args:
        values: s, (..., r), of NumPy, JAX or PyTorch.

    Returns:
        (...), in float64 (float32 if the library has no float64).

    Raises:
        InputError: not a floating-point array, no singular value, or a negative, infinite or NaN one.

    >>> import numpy as np
    >>> second_ratio(np.array([2.0, 1.0, 0.5])).item()
    0.5
    """
    library, shares = descending_shares(values)
    return library.give_back(library.xp.sum(shares[..., 1:2], axis=-1))


def nonlinearity(preactivations: Any) -> Float[Any, "..."]:
    """Return |Zs - Z|_F / |Z|_F, the part of the preactivations that the ReLU removes; its square is in Theorem 3.1.

    0 if no preactivation is negative, so that the layer acts linearly on these samples, and for Z = 0.

    Args:
        preactivations: Z, (..., n, N).

    Returns:
        (...), between 0 and 1, in float64 (float32 if the library has no float64).

    Raises:
        InputError: not a floating-point array, fewer than two axes, or an infinite or NaN entry.

    >>> import numpy as np
    >>> nonlinearity(np.array([[4.0, -3.0]])).item()
    0.6
    """
    library, (given,) = take(axes=2, preactivations=preactivations)
    xp = library.xp
    Z = xp.astype(given.array, library.wide, copy=False)
    largest = xp.max(xp.abs(Z), axis=(-2, -1), keepdims=True)
    Z = Z / xp.where(largest > 0, largest, xp.ones_like(largest))  # no square overflows or vanishes
    removed, total = (xp.sum(part**2, axis=(-2, -1)) for part in (xp.where(Z < 0, Z, xp.zeros_like(Z)), Z))
    return library.give_back(xp.sqrt(removed / xp.where(total > 0, total, xp.ones_like(total))))


@validate_arguments
def bulk_count(values: Any, initial: Any, *, margin: float = 1.5) -> Int[Any, "..."]:
    """Count the singular values outside the initial bulk: those above `margin` times its edge.

    Directions that training has not changed remain at most as large as the initial weights, whose largest singular
    value is the edge of the bulk.

    Args:
        values: s now, (..., r).
        initial: s of the same matrices at initialisation, (..., r), of the same library.
        margin: at least 1; above 1 it allows the bulk to move a little.

    Returns:
        (...), integers.

    Raises:
        InputError: as `second_ratio`, shapes that differ, or a margin below 1.

    >>> import numpy as np
    >>> bulk_count(np.array([3.0, 0.2, 0.1]), np.array([0.2, 0.15, 0.1])).item()
    1
    """
    if not 1 <= margin < float("inf"):
        raise InputError(f"margin must be at least 1 and finite; got {margin!r}.")
    library, (now, before) = take(axes=1, values=values, initial=initial)
    shapes = tuple(now.array.shape), tuple(before.array.shape)
    if shapes[0] != shapes[1]:
        raise InputError(f"initial must have the shape of values, {shapes[0]!r}; got {shapes[1]!r}.")
    edge = library.xp.max(before.array, axis=-1)
    return library.give_back(numerical_rank(now.array / margin, level=edge))


@validate_arguments
def bottleneck_rank(layer_ranks: Sequence[int]) -> int:
    """Return the rank of the bottleneck: of the longest run of consecutive middle layers that share one rank.

    Middle layers are all but the first and the last, if there are others. Of several longest runs the one of smallest
    rank counts: a network with a layer of rank k is a composition h o g of inner dimension k, so
    that its bottleneck rank is at most k (Jacot 2023, "Implicit bias of large depth networks").

    Args:
        layer_ranks: the rank of W_1, ..., W_L, at least one.

    Raises:
        InputError: no rank, or one that is not an integer of at least 0.

    >>> bottleneck_rank([8, 3, 2, 2, 2, 4]), bottleneck_rank([5, 2, 2, 1, 1, 1])
    (2, 1)
    """
    ranks = list(layer_ranks)
    if not ranks or any(rank != int(rank) or rank < 0 for rank in ranks):
        raise InputError(f"layer_ranks must be one or more integers of at least 0; got {layer_ranks!r}.")
    middle = ranks[1:-1] or ranks
    runs = [(sum(1 for _ in run), -int(rank)) for rank, run in itertools.groupby(middle)]
    return -max(runs)[1]
