"""Theorem 4.1's claims at the quick size, and that a spoilt run refutes them."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "softmax-attention/theorem-4-1"
ENTRY = find_entry(NAME)
FASTER, RISING = -1.5, 2.5  # powers of ln t


def test_the_theorem_holds_where_it_has_time_to(run, outcomes):
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in found.keys() - {"raw-is-far", "raw-rate"}} == {"reproduced"}
    assert found["raw-rate"] == "undecided"  # the median of three seeds has no interval


def test_errors_of_conditioned_data_fall_like_one_over_ln_t(run):
    time, error = run.log_time.values, run.error.values[run.group.values == "conditioned"]
    late = (time > 1e3) & (time < 1e6)
    slopes = [np.polyfit(np.log(time[late]), np.log(row[late]), 1)[0] for row in error]
    np.testing.assert_allclose(slopes, -1, atol=0.02)


@pytest.mark.parametrize(
    ("variable", "factor", "claims"),
    [
        ("error", 30, ("direction-1e3", "direction-1e4", "direction-1e7")),
        ("objective", 100, ("global",)),
        ("margin_law", 1000, ("margins",)),
        ("loss_law", 1000, ("loss",)),
        ("evaluations", 10, ("right-hand-sides",)),
        ("same_support", 0, ("sparse",)),
        ("assumptions_hold", 0, ("assumptions",)),
        ("error", 1e-3, ("raw-is-far",)),
        ("error", FASTER, ("raw-rate",)),
        ("error", RISING, ("raw-distance-falls",)),
        ("objective", RISING, ("raw-comes-nearer",)),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, variable, factor, claims):
    if factor in (FASTER, RISING):
        run = run.isel(case=np.tile(np.arange(run.sizes["case"]), 3))  # nine Gaussian flows
    run[variable] = run[variable] * (run.log_time**factor if factor in (FASTER, RISING) else factor)
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in claims} == {"refuted"}


def test_sizes_that_do_not_go_together_are_refused_at_once():
    with pytest.raises(InputError, match="samples, tokens and dims must be as many"):
        ENTRY.configure("quick", {"dims": "8,50"})
