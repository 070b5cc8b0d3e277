"""Data of extreme size, and sizes of arguments beyond their meaning: one sentence with the cure, before any work."""

import mpmath
import numpy as np
import pytest

from refusals import refused
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.theory import aligned_time, escape_time, norm_at


@pytest.mark.parametrize("scale", [1e200, 1e100, 1e-100, 1e-200])
@pytest.mark.parametrize("which", ["X", "z", "v", "Xz"])
def test_tokens_whose_products_overflow_are_refused(scale, which):
    rng = np.random.default_rng(0)
    arrays = {"X": rng.standard_normal((3, 3, 6)), "z": rng.standard_normal((3, 6)), "v": rng.standard_normal(6)}
    arrays |= {name: arrays[name] * scale for name in which}
    refused("must be of a size whose products float64 can hold", TokenData, **arrays, y=np.ones(3))


def test_sizes_beyond_memory_are_one_sentence():
    refused("The memory does not suffice", gaussian_tokens, 10**12, 3, 3, seed=0)


@pytest.mark.parametrize(
    ("speed", "depth", "initial", "share", "curvature"),
    [
        (1.0, 50, 1e-10, 0.5, 1.0),
        (1.0, 3, 1e-100, 1 - 1e-16, 1.0),
        (1.0, 4, 1e-3, 1 - 1e-16, 1.0),
        (1e200, 5, 1e-30, 0.5, 1e-200),
        (1e-200, 2, 1e-160, 0.9, 1e-100),
        (3.0, 7, 0.3, 0.31, 0.7),
    ],
)
def test_times_of_aligned_networks_against_sixty_digits(speed, depth, initial, share, curvature):
    found = aligned_time(speed, depth=depth, initial=initial, share=share, curvature=curvature)
    with mpmath.workdps(60):
        s, c, a = map(mpmath.mpf, (speed, curvature, initial))
        final = (s / c) ** (mpmath.mpf(1) / depth)
        ends = a / final, mpmath.mpf(share) ** (mpmath.mpf(1) / depth)

        def antiderivative(x):
            if depth == 2:
                return mpmath.log(x) - mpmath.log(1 - x**2) / 2
            order = mpmath.mpf(2) / depth
            return x ** (2 - depth) * mpmath.hyp2f1(1, order - 1, order, x**depth) / (2 - depth)

        exact = final ** (2 - depth) / s * (antiderivative(ends[1]) - antiderivative(ends[0]))
        assert abs(mpmath.mpf(found) / exact - 1) < 1e-9 if exact < 1e308 else found == np.inf


@pytest.mark.parametrize(("norm", "reached"), [(5e-324, 1e308), (1e-300, 1e300), (1e-3, 0.5)])
def test_norms_grow_over_all_of_float64(norm, reached):
    time = escape_time(reached, norm=norm, speed=2.0, depth=2)
    with mpmath.workdps(40):
        assert time == pytest.approx(float(mpmath.log(mpmath.mpf(reached) / mpmath.mpf(norm)) / 2), rel=1e-14)
    assert norm_at([0.0, time], norm=norm, speed=2.0, depth=2).tolist() == pytest.approx([norm, reached], rel=1e-12)
