"""Gaussian token data that diagonal weights separate, as Theorem 4.1 on the diagonal flow needs."""

from saddlescope._shared.errors import InputError
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.models.tokens.separability import separability

_DRAWS, _APART = 100, 1000


def separable_gaussian_tokens(samples: int, tokens: int, dim: int, *, seed: int) -> TokenData:
    """Return the data of this seed or, if diagonal weights do not separate them, of seed + 1000, seed + 2000, ...

    Raises:
        InputError: diagonal weights separate the data of none of a hundred seeds.
    """
    for draw in range(_DRAWS):
        data = gaussian_tokens(samples, tokens, dim, seed=seed + _APART * draw)
        if separability(data, diagonal=True).separable:
            return data
    raise InputError(f"dim must be large enough for separable data; got {dim!r}, with none in {_DRAWS} draws.")
