"""Figures 8 and 9: exact statements hold at the quick size, printed ones fail, and spoilt runs refute."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
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
EXACT = (
    "authors-descents", "descents", "falls", "rises", "alignment", "learned-after-peak", "order", "outside-theorem",
    "map", "turns", "log-det",
)  # fmt: skip
PRINTED = ("rises-only", "alignment-exact", "major-after-minor")


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_what_holds_and_what_does_not(name, quick_run, outcomes):
    found = outcomes(find_entry(name), quick_run(name).run)
    assert {claim: found[claim] for claim in EXACT} == dict.fromkeys(EXACT, "reproduced")
    assert {claim: found[claim] for claim in PRINTED} == dict.fromkeys(PRINTED, "refuted")


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


def test_what_suppresses_an_entry_is_the_major_entry_of_its_stronger_concept(quick_run):
    run = quick_run(NAMES[1]).run
    n = entry_index(run, 1, 0)
    assert (int(run.entry_row[n]), int(run.entry_column[n])) == (0, 1)
    w22 = np.interp(float(run.top[n]), run.time.values, run.W.values[:, 1, 1])
    np.testing.assert_allclose(float(run.suppressor_at_top[n]), w22, atol=1e-3)


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


def one_descent_less(run):
    run.turning_loss[1:-1] = np.linspace(float(run.turning_loss[0]), 0.0, run.sizes["turn"])[1:-1]


def one_descent_less_in_theirs(run):
    run.authors_turning_loss[1:-1] = np.linspace(1.0, 0.0, run.sizes["authors_turn"])[1:-1]


def growth_raises_the_loss(run):
    rises = np.diff(run.authors_turning_loss.values) > 0
    run.authors_push[int(np.argmax(rises)), :, 0] = 10.0


def shrinking_lowers_the_loss(run):
    run.authors_push[0, :, 1] = -10.0


def other_map(run):
    run["W_error"] = run.W_error + 2e-10


def other_turns(run):
    run["turn_error"] = run.turn_error + 2e-6


def artefact(run):
    run["drift"] = run.drift + 2e-10


def another_order(run):
    run["authors_order_prefix"] = run.authors_order_prefix - 1


def separated(run):
    run["strength"] = run.strength.copy(data=4.0 ** np.arange(run.sizes["row"]))


def suppressed_late(run):
    run.authors_top[entry_index(of_authors(run), 0, 1)] = 100.0


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (one_descent_less, "descents"),
        (one_descent_less_in_theirs, "authors-descents"),
        (growth_raises_the_loss, "rises"),
        (shrinking_lowers_the_loss, "falls"),
        (other_map, "map"),
        (other_turns, "turns"),
        (artefact, "log-det"),
        (another_order, "order"),
        (separated, "outside-theorem"),
        (suppressed_late, "learned-after-peak"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(quick_run, outcomes, spoil, claim):
    run = quick_run(NAMES[0]).run.copy(deep=True)
    spoil(run)
    assert outcomes(find_entry(NAMES[0]), run)[claim] == "refuted"


def test_a_loss_that_only_falls_leaves_its_rises_untested(quick_run, outcomes):
    run = quick_run(NAMES[0]).run.copy(deep=True)
    one_descent_less_in_theirs(run)
    found = outcomes(find_entry(NAMES[0]), run)
    assert {found[claim] for claim in ("rises", "rises-only", "alignment")} == {"not tested"}


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"mu": "1,-1,2"}, "mu must be 2 to 6 positive numbers"),
        ({"mu": "1,2,3,4,5,6,7"}, "mu must be 2 to 6 positive numbers"),
        ({"sigma": "0.1,0.1"}, "sigma must be 3 numbers"),
        ({"pool": "0"}, "pool must be at least 1"),
        ({"least": "1"}, "least must be between"),
        ({"until": "-1"}, "until must be positive"),
    ):
        with pytest.raises(InputError, match=sentence):
            find_entry(NAMES[0]).configure("quick", settings)
