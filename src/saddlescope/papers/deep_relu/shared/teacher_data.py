"""Data of teachers with a known bottleneck rank.

teacher   f = h o g with inner dimension k: g = sigma(V^T x) with k orthonormal directions V and sigma the ReLU or
          the absolute value; h linear, with orthonormal directions times k strengths. Its bottleneck rank is k: no
          more, by construction, and no less, since its Jacobian has rank k somewhere
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from saddlescope.models.deep import LayeredLoss

INPUTS, OUTPUTS = 8, 6  # dimensions of the teachers


def teacher_loss(kind: str, strengths: tuple[float, ...], *, samples: int, seed: int) -> "LayeredLoss":
    """Return half the mean squared error on a teacher's outputs for normal inputs, in float32.

    Args:
        kind: "relu" or "abs".
        strengths: strengths of the k inner dimensions.
        samples: size of the data set.
        seed: seed of the teacher and the inputs.
    """
    import jax.numpy as jnp

    from saddlescope.models.deep import LayeredLoss

    draw = np.random.default_rng(seed)
    X = draw.standard_normal((INPUTS, samples))
    V, U = (np.linalg.qr(draw.standard_normal((n, n)))[0][:, : len(strengths)] for n in (INPUTS, OUTPUTS))
    inner = np.abs(V.T @ X) if kind == "abs" else np.maximum(V.T @ X, 0)
    targets = (U * np.array(strengths)) @ inner
    return LayeredLoss(jnp.asarray(X.T, jnp.float32), jnp.asarray(targets.T, jnp.float32))
