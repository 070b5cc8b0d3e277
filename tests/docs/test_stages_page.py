"""The page on loss curves: its code prints what it shows, and the logs behind its picture have the stages it names."""

from pathlib import Path

import pytest

import snippets
from saddlescope.measure import find_plateaus
from saddlescope.store.loss_logs import read_loss

LOGS = Path(__file__).parents[2] / "docs" / "loss-logs"


def test_the_code_prints_what_is_shown():
    for one in snippets.snippets("docs/stages.md"):
        snippets.run(one)


@pytest.mark.parametrize(
    ("name", "column", "count"),
    [("deep_linear.csv", None, 4), ("grokking.jsonl", "test_loss", 1), ("language.log", None, 1)],
)
def test_logs_have_their_drops(name, column, count):
    log = read_loss(LOGS / name, column)
    assert len(find_plateaus(log.losses, steps=log.steps).drops) == count
