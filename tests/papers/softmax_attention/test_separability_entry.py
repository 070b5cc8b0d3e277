"""Separability of Gaussian data: claims at the quick size, and runs that would contradict them."""

from saddlescope.reproduction import find_entry

NAME = "softmax-attention/separability"
ENTRY = find_entry(NAME)


def test_claims_at_the_quick_size_and_an_exception_would_show(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found == {"any-w-above-n-and-l": "agrees", "diagonal-w-above-n-and-l": "undecided"}  # twenty draws
    assert run.separable.sel(d=32).values.tolist() == [20, 20]  # n (L - 1) dimensions
    run.separable.loc[{"kind": "any W", "d": 32}] = 19
    assert outcomes(ENTRY, run)["any-w-above-n-and-l"] == "differs"


def test_answers_without_a_proof_and_dimensions_that_do_not_show_it_decide_nothing(run, outcomes):
    assert set(outcomes(ENTRY, run.isel(d=[0])).values()) == {"undecided"}
    assert set(outcomes(ENTRY, run.assign(worst_proof=run.worst_proof + 1e-9)).values()) == {"not tested"}
