"""The norms on real images: verdicts at the quick size, spoilt runs, and the tokens."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.digits import digit_tokens
from saddlescope.reproduction import find_entry

NAME = "softmax-attention/digits"
ENTRY = find_entry(NAME)


def test_each_flow_minimises_its_own_norm_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found.pop("lost") == "undecided"  # one pair is too few to miss one
    assert set(found.values()) == {"undecided"}  # one pair is one case
    assert set(outcomes(ENTRY, run.isel(pair=[0, 0])).values()) == {"reproduced", "undecided"}
    assert run.outcome.values.tolist() == [["nuclear", "Frobenius", "nuclear"]]


def swapped(run):
    run["outcome"] = run.outcome.copy(data=[["Frobenius", "nuclear", "Frobenius"]])


def unresolved(run):
    run["outcome"] = run.outcome.copy(data=[["undecided", "undecided", "undecided"]])


@pytest.mark.parametrize(
    ("spoil", "outcome", "claims"),
    [
        (swapped, "refuted", ["key-query", "key-query-never", "alone", "alone-never", "diagonal-never"]),
        (unresolved, "refuted", ["key-query", "alone"]),
        (unresolved, "undecided", ["key-query-never", "alone-never", "diagonal-never"]),
        (lambda run: run.equal.values.fill(True), "refuted", ["unequal"]),
        (lambda run: run["rank"].values.fill(3), "refuted", ["ranks"]),
        (lambda run: run.outcome.values.fill("lost"), "reproduced", ["lost"]),
        (lambda run: run.outcome.values.fill("lost"), "undecided", ["key-query", "key-query-never", "alone"]),
    ],
)
def test_a_spoilt_run_changes_the_verdict(run, outcomes, spoil, outcome, claims):
    spoil(run)
    found = outcomes(ENTRY, run.isel(pair=[0, 0]))
    assert {found[claim] for claim in claims} == {outcome}


def test_tokens_are_the_images_patches_and_queries_their_mean():
    data, images = digit_tokens(3, 8, images=6, skip=2, head=2.0)
    assert data.X.shape == (12, 4, 16)
    assert data.y.tolist() == [1.0] * 6 + [-1.0] * 6
    assert data.X[5, 1].reshape(4, 4) == pytest.approx(images[5, :4, 4:])
    assert data.X[5, 2].reshape(4, 4) == pytest.approx(images[5, 4:, :4])
    assert data.z == pytest.approx(data.X.mean(axis=1))
    threes = load_digits().images[load_digits().target == 3] / 16
    assert any(np.array_equal(images[0], image) for image in threes[2:6])
    again, _ = digit_tokens(3, 8, images=6, skip=2, head=6.0)
    assert again.v == pytest.approx(3 * data.v)
    # the head is that of a ridge regression without intercept on centred patches: it separates most images
    outputs = data.y * ((data.z - data.z.mean(axis=0)) @ data.v)
    assert np.mean(outputs > 0) > 0.8


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"digits": "11"}, "digits must be between 2 and 10"),
        ({"head": "0"}, "head must be positive"),
        ({"images": "0"}, "images must be at least 1"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
    with pytest.raises(InputError, match="images and skip must add up"):
        digit_tokens(0, 1, images=500, skip=0, head=1.0)
