"""Arguments that are arrays of finite real numbers, whatever they are given as."""

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import shown
from saddlescope._shared.errors import InputError


def real_array(name: str, given: object, shape: tuple[int | None, ...] | None = None) -> Float[np.ndarray, "..."]:
    """Return a float64 copy of an array of finite real numbers.

    Args:
        name: of the argument, for the error message.
        given: the array, or what NumPy makes one of.
        shape: that it must have; None in it: any size of at least 1.

    Raises:
        InputError: an entry is not real or not finite, or the shape is another.
    """
    try:
        array = np.array(given)
        if array.dtype.kind not in "biufV" or array.dtype.names:  # bfloat16 is of kind V
            raise TypeError(array.dtype)
        array = array.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of real numbers; got {shown(given)}.") from error
    if shape is not None and not (
        array.ndim == len(shape) and all(a == b or (b is None and a) for a, b in zip(array.shape, shape, strict=True))
    ):
        wanted = ", ".join("at least 1" if size is None else str(size) for size in shape) + "," * (len(shape) == 1)
        raise InputError(f"{name} must have shape ({wanted}); got shape {array.shape!r}.")
    if not np.all(np.isfinite(array)):
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{name} must be finite; got {float(array[place])!r} at {list(place)!r}.")
    return array
