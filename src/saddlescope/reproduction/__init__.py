"""The frame of reproductions: entries, claims and verdicts, the context of a run, stored reproductions."""

from saddlescope.reproduction.claim import Claim, Estimate, Outcome, Verdict
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import SIZES, Entry, field_comments, find, names
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.runner import Reproduction, reproduce, stored_files

__all__ = [
    "SIZES",
    "Claim",
    "Entry",
    "Estimate",
    "Metric",
    "Outcome",
    "Reproduction",
    "RunContext",
    "Verdict",
    "field_comments",
    "find",
    "names",
    "reproduce",
    "stored_files",
]
