"""Arguments that gave wrong numbers silently: refused, or right at any scale, beside mpmath and brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saddlescope._shared.errors import InputError
from saddlescope.measure import Stage, Staircase, compare, energy_rank
from saddlescope.ranks.lora import allocate_ranks

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def test_compare_refuses_a_time_that_is_nan():
    one = Staircase((Stage(0.0, 1.0, 1.0, 0), Stage(1.0, 2.0, 0.5, 1)), "t")
    with pytest.raises(InputError, match="until must be a time"):
        compare(one, one, until=math.nan)


@EXAMPLES
@given(st.lists(st.floats(-150, 150), min_size=1, max_size=6), st.integers(0, 3))
def test_the_rank_of_all_energy_counts_every_singular_value(exponents, zeros):
    values = np.array([10.0**exponent for exponent in exponents] + [0.0] * zeros)
    assert energy_rank(values, fraction=1.0).item() == len(exponents)


@pytest.mark.parametrize("bad", [np.array([1.0, np.nan]), np.array([1.0 + 1j, 0.0]), np.array([-1.0, 0.5])])
def test_spectra_that_are_not_singular_values_are_refused(bad, types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match=r"spectra\['a'\] must be"):
        allocate_ranks({"a": bad}, {"a": (4, 4)}, parameters=100)


@pytest.mark.parametrize("shape", [(4,), (4, 4, 4), (0, 4), (4, -1), (2.5, 4)])
def test_shapes_that_are_not_pairs_of_positive_integers_are_refused(shape, types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match=r"shapes\['a'\] must be"):
        allocate_ranks({"a": np.array([1.0, 0.5])}, {"a": shape}, parameters=100)


@EXAMPLES
@given(
    st.lists(st.lists(st.floats(0.1, 10), min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from([1e-300, 1e-200, 1e-20, 1.0, 1e200]),
    st.integers(0, 60),
)
def test_ranks_of_one_shape_have_the_most_energy_at_any_scale(spectra, scale, parameters):
    sorted_ones = [sorted(values, reverse=True) for values in spectra]
    by_name = {str(k): scale * np.array(values) for k, values in enumerate(sorted_ones)}
    found = allocate_ranks(by_name, dict.fromkeys(by_name, (4, 3)), parameters=parameters)

    def energy(ranks):
        return sum(sum(v**2 for v in values[:rank]) for values, rank in zip(sorted_ones, ranks, strict=True))

    choices = itertools.product(*(range(len(values) + 1) for values in sorted_ones))
    best = max(energy(ranks) for ranks in choices if 7 * sum(ranks) <= parameters)
    assert 7 * sum(found.values()) <= parameters
    assert energy(found.values()) == pytest.approx(best, rel=1e-12)
