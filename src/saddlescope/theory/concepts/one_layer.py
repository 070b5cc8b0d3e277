"""Theorem 4.1: the one-layer network f(x) = W x learns each concept separately, in closed form.

    A       second moment of the inputs, symmetric and positive semidefinite, (d, d); diag(a) without a rotation
    W0      W at time 0, (d, d)
    t       time of gradient flow on the loss of equation 4.1, dW/dt = -(W - I) A

    W(t) = I - (I - W0) exp(-A t),     W(t) z = (I - exp(-A t)) z + W0 exp(-A t) z = growth + noise.

Equation 4.2 sums the noise over the s directions of concepts only. It must run over all d: along a direction of
strength 0 the output stays W0 z. The two agree at the test points, where z is 0 beyond the concepts.

Monotone growth of every output, as in the paper's section 4.1, needs a small W0: the noise may rise or fall. The same
holds for the loss |W z - z|^2 at z. With C = (W0 - I) R_s, the columns of concepts alone, it is
|C exp(-a t) R_s^T z|^2, which falls for every z and t if C^T C diag(a) has a positive semidefinite symmetric part.
Since C^T C is I up to a norm of 2 w + w^2, w the spectral norm of W0, that holds if
(2 w + w^2) sqrt(max a / min a) <= 1.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models import symmetric_factor


@dataclass(frozen=True, eq=False, repr=False)
class OneLayerOutput(ReprMixin):
    """Output W(t) z and its two terms.

    Attributes:
        growth: (times, d), (I - exp(-A t)) z.
        noise: (times, d), W0 exp(-A t) z.
    """

    growth: Float[np.ndarray, "times d"]
    noise: Float[np.ndarray, "times d"]

    @property
    def total(self) -> Float[np.ndarray, "times d"]:
        """Output W(t) z."""
        return self.growth + self.noise


@validate_arguments
def one_layer_output(
    second_moment: ArrayLike, start: ArrayLike, point: ArrayLike, times: ArrayLike, *, printed: int | None = None
) -> OneLayerOutput:
    """Return the output at a point, by Theorem 4.1.

    Args:
        second_moment: A, (d, d).
        start: W0, any (d, d).
        point: z, (d,).
        times: t, (times,), at least 0.
        printed: s, for equation 4.2 as printed, without the noise of the directions beyond the first s; A must be
            diagonal then. None for the corrected equation.

    Raises:
        InputError: inconsistent shapes, values that are not finite, or negative times; A not symmetric or not positive
            semidefinite.
    """
    symmetric_factor(second_moment, name="second_moment")
    A, t = real_array("second_moment", second_moment), real_array("times", times)
    W0, z = real_array("start", start, A.shape), real_array("point", point, A.shape[:1])
    if t.ndim != 1 or np.any(t < 0):
        raise InputError(f"times must be a list of numbers of at least 0; got {times!r}.")
    values, vectors = np.linalg.eigh(A)
    coordinates = vectors.T @ z
    growth = (-np.expm1(-np.outer(t, values)) * coordinates) @ vectors.T
    decayed = (np.exp(-np.outer(t, values)) * coordinates) @ vectors.T
    if printed is not None:
        if not 0 < printed <= len(A) or np.any(A - np.diag(np.diag(A))):
            raise InputError(f"printed must be between 1 and {len(A)}, with a diagonal second_moment; got {printed!r}.")
        growth, decayed = (np.where(np.arange(len(A)) < printed, part, 0.0) for part in (growth, decayed))
    return OneLayerOutput(growth, decayed @ W0.T)
