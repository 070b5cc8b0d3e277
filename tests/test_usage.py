"""What docs/usage.md shows, works: its self-contained Python runs, and what its sentences promise of it holds."""

import re
from pathlib import Path

import numpy as np

from saddlescope.theory import Status

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "docs" / "usage.md").read_text(), re.S)


def _run(words):
    """The names that the one block with these words leaves behind."""
    (block,) = (block for block in BLOCKS if words in block)
    made: dict = {}
    exec(block, made)
    return made


def test_own_network():
    made = _run("def h(x, beta)")
    assert made["predicted"].status is Status.CONVERGED
    assert made["run"].status.ok


def test_classification_with_cross_entropy():
    made = _run("def cross_entropy")
    crossings = made["run"].crossings
    entered = [stage.entered[0] for stage in made["predicted"].stages[1 : len(crossings) + 1]]
    assert [crossing.index for crossing in crossings] == entered
    assert len(entered) >= 3
    predicted = made["predicted"].times_at(made["start"].log_scale)[1 : len(crossings) + 1]
    np.testing.assert_allclose([crossing.time for crossing in crossings], predicted, rtol=0.02)


def test_transformer(capsys):
    made = _run("transformer_teacher_task")
    first = made["predicted"].stages[1]
    assert [made["transformer"].coordinate(i).head for i in first.entered] == [0, 1]
    assert "layer 0 head 1 VO" in capsys.readouterr().out


def test_blocks_that_need_the_readers_own_names_are_few():
    assert sum("import saddlescope" not in block for block in BLOCKS) <= 1
