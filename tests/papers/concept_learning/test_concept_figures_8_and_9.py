"""Figures 8 and 9: the account of rises and falls, the authors' runs, and outcomes."""

import numpy as np
import pytest

from saddlescope.flow import symmetric_flows
from saddlescope.papers.concept_learning.shared.authors_programs import PROGRAMS
from saddlescope.papers.concept_learning.shared.two_layer_runs import (
    entry_index,
    loss_changes,
    of_authors,
    phase_mask,
    push_share,
)
from saddlescope.reproduction import find_entry

NAMES = ("concept-learning/figure-8", "concept-learning/figure-9")


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_outcomes_at_the_quick_size(name, quick_run, outcomes):
    assert set(outcomes(find_entry(name), quick_run(name).run).values()) == {"agrees"}


def test_the_pushes_add_up_to_the_change_of_the_loss(name, quick_run):
    run = quick_run(name).run
    np.testing.assert_allclose(run.push.sum(("entry", "phase")), loss_changes(run), atol=1e-9)
    everything = np.ones((run.sizes["entry"], 2), bool)
    for rising in (True, False):
        np.testing.assert_allclose(push_share(run, rising=rising, of=everything), 1.0)
        shares = [
            push_share(run, rising=rising, of=phase_mask(run, minor=minor, phase=phase))
            for minor in (True, False)
            for phase in ("grows", "shrinks")
        ]
        np.testing.assert_allclose(sum(shares), 1.0)


def test_the_authors_run_is_the_flow_with_a_squared_from_their_start(name, quick_run):
    one, program = of_authors(quick_run(name).run), PROGRAMS["Figure 8" if name == NAMES[0] else "Figure 9"]
    flow = symmetric_flows(
        program.strengths**2, program.start[None], test_point=program.test_point, until=50.0, tolerance=1e-10
    )
    np.testing.assert_allclose(one.turning_time[1:-1], flow.turning_times[0, 1 : flow.turns[0] + 1], atol=1e-6)
    np.testing.assert_allclose(one.loss[-1], flow.losses[0, -1], atol=1e-9)


def test_the_programs_start_is_that_of_pytorchs_generator():
    torch = pytest.importorskip("torch")
    for program, seed in zip(PROGRAMS.values(), (2333, 233333, 233333, 233333), strict=True):
        d = len(program.mu)
        drawn = torch.rand(d, d, generator=torch.Generator().manual_seed(seed)).numpy()
        np.testing.assert_allclose(program.start * program.divisor, drawn, atol=1e-8)


def test_growth_that_raises_the_loss_is_no_stage(quick_run, outcomes):
    run = quick_run(NAMES[0]).run.copy(deep=True)
    rises = np.diff(run.authors_turning_loss.values) > 0
    run.authors_push[int(np.argmax(rises)), :, 0] = 10.0
    run.authors_top[entry_index(of_authors(run), 0, 1)] = 100.0
    run.authors_top[entry_index(of_authors(run), 1, 1)] = 200.0
    found = outcomes(find_entry(NAMES[0]), run)
    assert (found["stages"], found["learned-after-peak"], found["order"]) == ("differs", "differs", "differs")


def test_a_loss_that_only_falls_leaves_its_stages_untested(quick_run, outcomes):
    run = quick_run(NAMES[0]).run.copy(deep=True)
    run.authors_turning_loss[1:-1] = np.linspace(1.0, 0.0, run.sizes["authors_turn"])[1:-1]
    found = outcomes(find_entry(NAMES[0]), run)
    assert (found["authors-descents"], found["stages"]) == ("differs", "not tested")
