"""The claims of the first version's Figure 2 can fail: each is refuted on a run that violates it."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/figure-2-v1"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    for name in ("blurred", "law"):  # judged at the default size
        found.pop(name)
    assert set(found.values()) <= {"reproduced", "seen"}


def another_end(run):
    run.predicted_loss.values[-1] = 1e-9


def swap_two(run):
    times = run.found_time.values
    times[:, [0, 1]] = times[:, [1, 0]]


def late(run):
    run.found_time.values[:] *= 1.1


def no_law(run):
    run.found_time.values[-1] += 0.01


def one_too_many(run):
    run.plateau_values.values[-1, 0, 0, 0] = run.predicted_values.values[:, 0].max()


def one_too_few(run):
    run.plateau_values.values[-1, 0, 1] = 0.0


def all_at_once(run):
    run.in_transit.values[:] = 3.0


def never_blurred(run):
    run.blurred_in_transit.values[...] = np.linspace(1.0, 1.1, 6)


def drifted(run):
    run.conserved.values[0] = 1e-6


def late_entries(run):
    run.diagonal_found_time.values[:] *= 1.5


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (another_end, "end"),
        (swap_two, "order"),
        (late, "times"),
        (no_law, "law"),
        (one_too_many, "ranks"),
        (one_too_few, "ranks"),
        (all_at_once, "one-by-one"),
        (never_blurred, "blurred"),
        (drifted, "conserved"),
        (late_entries, "diagonal"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] in ("refuted", "not seen")


def test_what_did_not_happen_is_undecided(run, outcomes):
    assert outcomes(ENTRY, run.isel(scale=[0]))["law"] == "undecided"
    run.found_time.values[-1, 1] = np.nan
    run.diagonal_found_time.values[2] = np.nan
    got = outcomes(ENTRY, run)
    assert {got[name] for name in ("order", "times", "law", "diagonal")} == {"undecided"}
    run.attrs["theory_status"] = "tie"
    assert outcomes(ENTRY, run)["end"] == "undecided"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"log10_scales": "-8,-2"}, "log10_scales must be one or more negative numbers, decreasing"),
        ({"log10_blurred": "1"}, "log10_blurred must be above -10000 and below 0"),
        ({"dim": "0"}, "dim must be at least 1"),
        ({"rank": "9"}, "rank must be at most dim=8"),
        ({"tolerance": "0"}, "tolerance must be between"),
        ({"level": "1"}, "level must be above 0 and below 1"),
        ({"points": "1"}, "points must be at least 2"),
        ({"seed": "-1"}, "seed must be at least 0"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("default", settings)
