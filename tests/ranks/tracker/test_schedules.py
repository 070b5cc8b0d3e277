"""Schedules: the steps that they select."""

import pytest

from refusals import refused
from saddlescope.ranks import AtSteps, Every, Geometric


def named(schedule, end=30):
    return [step for step in range(end) if schedule(step)]


def test_every():
    assert named(Every(7)) == [7, 14, 21, 28]


def test_geometric_has_no_gaps_at_the_start_and_grows_by_its_ratio():
    assert named(Geometric(1.5)) == [1, 2, 3, 4, 6, 9, 13, 19, 28]
    assert named(Geometric(2.0)) == [1, 2, 4, 8, 16]
    late = named(Geometric(1.1), 20000)
    assert late[:12] == [*range(1, 12), 12]
    assert late[-1] / late[-2] == pytest.approx(1.1, rel=1e-3)


def test_at_steps():
    assert named(AtSteps(9, 2)) == [2, 9]
    assert repr(AtSteps(9, 2)) == "AtSteps(2, 9)"


@pytest.mark.parametrize("bad", [lambda: Every(0), lambda: Geometric(1.0), lambda: AtSteps(), lambda: AtSteps(0)])
def test_bad_schedules_are_refused(bad):
    refused("must be", bad)
