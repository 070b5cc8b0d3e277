"""Examples of docs/language.md: each runs alone."""

import numpy as np

import snippets

FIRST, SECOND = snippets.snippets("docs/language.md")


def test_training_is_recorded():
    made = snippets.run(FIRST)
    assert made["history"].steps.tolist() == [0, 10, 20, 30, 40]
    assert made["history"].test_loss[-1] < 0.9 * made["history"].test_loss[0]
    assert dict(made["spectra"].sizes) == {"step": 4, "layer": 2, "product": 2, "head": 2, "index": 32, "matrix": 8}


def test_ranks_are_within_the_budget_and_trainable():
    made = snippets.run(SECOND)
    trainable = sum(weight.numel() for weight in made["adapted"].parameters() if weight.requires_grad)
    assert trainable == sum(rank * sum(made["shapes"][name]) for name, rank in made["ranks"].items())
    assert 0.9 * made["budget"] <= trainable <= made["budget"]
    assert len(made["shapes"]) == 8
    assert np.ptp(list(made["ranks"].values())) > 0
