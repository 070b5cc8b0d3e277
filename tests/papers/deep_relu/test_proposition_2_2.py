"""Proposition 2.2: the corrected laws hold and the printed ones fail; spoilt runs are refuted."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/proposition-2-2"
ENTRY = find_entry(NAME)


def test_the_corrected_law_is_distinguished_from_the_printed(run, outcomes):
    found = outcomes(ENTRY, run)
    printed = {name for name in found if name.endswith("printed")}
    assert len(printed) == 4
    assert {found[name] for name in printed} == {"refuted"}
    corrected = found.keys() - printed - {"digits"}
    assert {found[name] for name in corrected} == {"reproduced"}


@pytest.mark.parametrize(
    ("variable", "factor", "claim"),
    [
        ("corrected_time", 1.01, "escape-time"),
        ("gained_corrected", 0.99, "norm-in-s"),
        ("spent_corrected", 1.01, "time-in-s"),
        ("path_rate", 1.01, "delay"),
        ("weak", 1e6, "weak-balance"),
        ("strong", 1e6, "strong-balance"),
        ("strong", 1e-3, "only-weak"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, variable, factor, claim):
    run[variable] = run[variable] * factor
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_without_escape_directions_there_is_nothing_to_test(run, outcomes):
    run["definition_error"] = run.definition_error + 1e-3
    found = outcomes(ENTRY, run)
    assert found["definition"] == "refuted"
    assert {found[name] for name in ("direction", "growth", "growth-printed", "escape-time")} == {"not tested"}


@pytest.mark.parametrize(
    ("later", "outcome"), [(1.0, "reproduced"), (1.3, "refuted"), (1.06, "undecided"), (np.nan, "undecided")]
)
def test_the_digits_can_fail(run, outcomes, later, outcome):
    """Seeds escape at 500 to 530 from the larger deviation, and `later` times as late from the smaller."""
    four = run.isel(seed=[0, 0, 0, 0])
    first = np.array([500.0, 510.0, 520.0, 530.0])
    four["escape_step"] = (("seed", "deviation"), np.stack([first, first * later], axis=1))
    four["escape_interval"] = (("seed", "deviation"), np.full((4, 2), 5.0))
    assert outcomes(ENTRY, four)["digits"] == outcome


def test_one_seed_leaves_the_digits_undecided(run, outcomes):
    assert outcomes(ENTRY, run)["digits"] == "undecided"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"depths": "1,2"}, "depths must be one or more integers, each at least 2, each once"),
        ({"deviations": "0.1"}, "deviations must be two or more"),
        ({"growth": "1"}, "growth must be above 1"),
    ],
)
def test_values_out_of_range_are_refused_at_once(given, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", given)
