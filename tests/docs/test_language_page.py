"""Examples of docs/language.md run in their order."""

import re
from pathlib import Path

import numpy as np
import pytest

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "language.md").read_text(), re.S)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Run all blocks one after the other in an empty folder, and return their names."""
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        for block in BLOCKS:
            exec(block, names)
    return names


def test_training_is_recorded(made):
    assert made["history"].steps.tolist() == [0, 10, 20, 30, 40]
    assert made["history"].test_loss[-1] < 0.9 * made["history"].test_loss[0]
    assert dict(made["spectra"].sizes) == {"step": 4, "layer": 2, "product": 2, "head": 2, "index": 32, "matrix": 8}


def test_ranks_are_within_the_budget_and_trainable(made):
    trainable = sum(weight.numel() for weight in made["adapted"].parameters() if weight.requires_grad)
    assert trainable == sum(rank * sum(made["shapes"][name]) for name, rank in made["ranks"].items())
    assert 0.9 * made["budget"] <= trainable <= made["budget"]
    assert len(made["shapes"]) == 8
    assert np.ptp(list(made["ranks"].values())) > 0
