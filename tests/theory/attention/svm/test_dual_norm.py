"""The upper bound of the dual norm, from factors, against 60 digits."""

import mpmath as mp
import numpy as np
import pytest

from saddlescope.theory.attention.svm.certificate import _product_norm


def exact(left, right, norm):
    """Norm of left^T right (d, d), from the products (n, n) of the rows."""
    A, B = (mp.matrix([[mp.mpf(float(entry)) for entry in row] for row in rows]) for rows in (left, right))
    A, B = A * A.T, B * B.T
    if norm == "frobenius":
        return mp.sqrt(sum(one * other for one, other in zip(A, B, strict=True)))
    return mp.sqrt(max(abs(value) for value in mp.eig(A * B, left=False, right=True)[0]))


@pytest.mark.parametrize("norm", ["nuclear", "frobenius"])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e140])
@pytest.mark.parametrize(("rows", "dim"), [(1, 3), (3, 50), (6, 4), (5, 5)])
def test_it_is_above_the_norm_and_close_to_it_also_where_rows_cancel(rows, dim, scale, norm):
    rng = np.random.default_rng(rows)
    left, right = scale * rng.normal(size=(rows, dim)), rng.normal(size=(rows, dim))
    pairs = [(left, right)]
    if rows > 1:
        pairs.append(
            (
                np.concatenate([left[:1], -left[:1], left[2:]]),
                np.concatenate([right[:1] * (1 + 1e-9), right[:1], right[2:]]),
            )
        )
    for left, right in pairs:
        found = _product_norm(left.astype(np.longdouble), right.astype(np.longdouble), norm)
        with mp.workdps(60):
            excess = mp.mpf(str(found)) / exact(left, right, norm) - 1
        assert 0 <= excess < 1e-14
