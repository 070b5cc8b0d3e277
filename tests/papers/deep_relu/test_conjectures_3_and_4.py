"""Conjectures 3 and 4: what the quick runs show, and runs that must decide otherwise."""

import pytest

from saddlescope.reproduction import find_entry

THREE, FOUR = (find_entry(f"deep-relu/conjecture-{k}") for k in (3, 4))


@pytest.fixture
def passages(quick_run):
    return quick_run(THREE.name).run.copy(deep=True)


@pytest.fixture
def students(quick_run):
    return quick_run(FOUR.name).run.copy(deep=True)


def test_values_after_the_arrival_do_not_count(passages, outcomes):
    passages.above_bulk[{"network": 0, "mark": -1, "layer": 2}] = 2
    assert outcomes(THREE, passages)["rank-one"] == "agrees"


def test_the_bottleneck_rank_rises_by_one_at_the_quick_size(students):
    for ranks in students.stage_rank.values:
        assert ranks[:4].tolist() == [0, 1, 2, -1]


def test_claims_are_about_their_own_task(students, outcomes):
    for task, expected in (
        ("images", ["undecided", "undecided", "seen"]),
        ("equal", ["undecided", "agrees", "undecided"]),
    ):
        students["task"] = ("network", [task] * students.sizes["network"])
        assert list(outcomes(FOUR, students).values()) == expected


def test_students_that_do_not_fit_do_not_count(students, outcomes):
    students.loss[:] = students.loss.clip(min=0.1 * float(students.loss.max()))
    students.stage_rank[{"network": 0, "stage": 3}] = 3
    assert outcomes(FOUR, students)["stops"] == "undecided"
