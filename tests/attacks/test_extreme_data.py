"""Data of extreme size, and sizes of arguments beyond their meaning: one sentence with the cure, before any work."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models.tokens.data import TokenData
from saddlescope.reproduction import find_entry
from saddlescope.theory.attention.svm import frobenius_svm, l1_svm, nuclear_svm


def tokens(scales, which="Xz"):
    rng = np.random.default_rng(0)
    X, z, v = rng.standard_normal((3, 3, 6)), rng.standard_normal((3, 6)), rng.standard_normal(6)
    S = np.asarray(scales, float)
    X = X * S[:, None, None] if "X" in which else X
    return TokenData(X=X, z=z * S[:, None] if "z" in which else z, y=np.ones(3), v=v * S[0] if "v" in which else v)


@pytest.mark.parametrize("scale", [1e200, 1e100, 1e-100, 1e-200])
@pytest.mark.parametrize("which", ["X", "z", "v", "Xz"])
def test_tokens_whose_products_overflow_are_refused(scale, which):
    with pytest.raises(InputError, match="must be of a size whose products float64 can hold"):
        tokens([scale] * 3, which)


@pytest.mark.parametrize("solve", [frobenius_svm, l1_svm, nuclear_svm])
@pytest.mark.parametrize("scale", [1e-60, 1e-20, 1e20, 1e60])
def test_the_unit_of_tokens_changes_only_that_of_the_weights(solve, scale):
    ours, theirs = solve(tokens([scale] * 3)).certificate, solve(tokens([1.0] * 3)).certificate
    assert ours.primal * scale**2 == pytest.approx(theirs.primal, rel=1e-9)
    assert ours.gap < 1e-9


@pytest.mark.parametrize("solve", [frobenius_svm, l1_svm, nuclear_svm])
@pytest.mark.parametrize("scales", [[1.0, 1e-5, 1e5], [1e-10, 1.0, 1.0], [1.0, 1e10, 1e10], [1e-30, 1.0, 1e30]])
def test_samples_that_differ_in_scale_are_solved(solve, scales):
    found = solve(tokens(scales))
    assert found.certificate.gap < 1e-7
    assert found.margins.min() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "value"), [("log10_scales", "-1,-inf"), ("level", "2"), ("level", "nan"), ("points", "-1")]
)
def test_parameters_beyond_their_meaning_are_refused(name, value):
    with pytest.raises(InputError, match=name):
        find_entry("gradual-rank/figure-2").configure("quick", {name: value})
