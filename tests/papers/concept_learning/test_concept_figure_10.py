"""Figure 10: the printed sentence fails, the three explanations hold, and spoilt runs refute them."""

import numpy as np
import pytest

from saddlescope.papers.concept_learning.shared.two_layer_runs import entry_index
from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-10"
ENTRY = find_entry(NAME)
# From the few starts of the quick size the longest plateau is not as long as a larger batch's.
BY_SIZE = {"plateau-looks", "plateau-schur"}


def test_the_printed_sentence_falls_and_the_explanations_stand(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found["never"] == "refuted"
    rest = {claim: outcome for claim, outcome in found.items() if claim not in BY_SIZE | {"never"}}
    assert rest == dict.fromkeys(rest, "reproduced")


def test_the_deficient_start_learns_two_concepts(run):
    W = run.W.sel(case="deficient").values[-1]
    np.testing.assert_allclose(W, np.diag([0.0, 1.0, 1.0]), atol=1e-9)
    np.testing.assert_allclose(float(run.limit_loss.sel(case="deficient")), 0.7**2 / 2, rtol=1e-12)


def test_the_plateau_shown_is_the_longest_of_the_batch(run):
    one = run.sel(case="plateau")
    np.testing.assert_allclose(one.said_at_horizon, run.learned_at.max(), atol=1e-6)  # the batch is followed coarsely
    assert float(one.top[entry_index(one, 0, 0)]) > float(run.horizon)


def trapped(run):
    run.never[0] = 3


def not_all(run):
    run.learned_share[0, -1] = 0.99


def not_suppressed(run):
    run.W.sel(case="plateau").values[:] = np.eye(3)


def said_wrongly(run):
    run["said_at_horizon"] = run.said_at_horizon + 0.1


def not_learned(run):
    run.end_loss.loc[{"case": "plateau"}] = 1e-3


def another_rest(run):
    run.end_loss.loc[{"case": "deficient"}] += 1e-6


def reported_wrongly(run):
    run.horizon_ending.loc[{"case": "plateau"}] = 3


def sound_map(run):
    run.indefinite[:] = False


def resting_map(run):
    run.map_end_loss[0] = 0.245


def late_with_a(run):
    run.unlearned[:] = [0.5, 1.0]


def early_with_its_square(run):
    run.unlearned[:] = [0.0, 0.5]


def artefact(run):
    run.drift[:] = 1e-9


@pytest.mark.parametrize(
    ("spoil", "claim", "outcome"),
    [
        (trapped, "never", "reproduced"),
        (not_all, "always", "refuted"),
        (not_suppressed, "suppressed-first", "refuted"),
        (said_wrongly, "plateau-end", "refuted"),
        (not_learned, "plateau-learns", "refuted"),
        (another_rest, "deficient", "refuted"),
        (reported_wrongly, "distinguished", "refuted"),
        (sound_map, "printed-map", "refuted"),
        (resting_map, "printed-map-rests", "refuted"),
        (late_with_a, "with-A", "refuted"),
        (early_with_its_square, "with-A-squared", "refuted"),
        (artefact, "log-det", "refuted"),
    ],
)
def test_a_spoilt_run_changes_the_verdict(run, outcomes, spoil, claim, outcome):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == outcome


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"mu": "3,1,2"}, "mu must be in ascending order"),
        ({"horizon": "500"}, "horizon must be below until"),
        ({"mu": "1,2", "sigma": "0.1,0.1"}, "mu must be 3 to 6 positive numbers"),
        ({"scale": "3"}, "scale must be between"),
    )
