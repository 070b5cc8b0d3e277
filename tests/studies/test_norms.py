"""Verdicts on the norm that a direction minimises, from excesses and contrasts alone."""

import numpy as np
import pytest

from saddlescope.studies.norms import norm_verdict, shares


@pytest.mark.parametrize(
    ("excess", "contrast", "norm", "sentence"),
    [
        ((0.0, 0.3), (0.1, 0.3), "nuclear", "least nuclear norm"),
        ((0.0099, 0.16), (0.1, 0.3), "nuclear", "least nuclear norm"),
        ((0.1, 0.0), (0.1, 0.3), "Frobenius", "least Frobenius norm"),
        ((0.0101, 0.3), (0.1, 0.3), "undecided", "nearer to the nuclear"),
        ((0.1, 0.031), (0.1, 0.3), "undecided", "nearer to the Frobenius"),
        ((0.0, 0.14), (0.1, 0.3), "undecided", "nearer to the nuclear"),
        ((0.0, 0.3), (5e-5, 0.3), "undecided", "The two solutions coincide, to 5e-05"),
        ((0.0, 0.3), (0.1, -1e-16), "undecided", "The two solutions coincide, to 0"),
        ((np.nan, np.nan), (0.1, 0.3), "undecided", "There is no direction: it stood still"),
        ((-1e-12, 0.3), (0.1, 0.3), "nuclear", "least nuclear norm"),
    ],
)
def test_the_verdict(excess, contrast, norm, sentence):
    found = norm_verdict(np.array(excess), np.array(contrast), "it stood still")
    assert found.norm == norm
    assert sentence in found.says


def test_shares_are_excesses_in_units_of_contrasts_and_never_negative():
    contrast = np.array([0.1, 0.4])
    assert shares(np.array([[0.05, 0.1], [-1e-15, 0.4]]), contrast) == pytest.approx(np.array([[0.5, 0.25], [0, 1]]))
    assert np.all(np.isnan(shares(np.array([0.05, 0.1]), np.array([1e-9, 0.4]))))
