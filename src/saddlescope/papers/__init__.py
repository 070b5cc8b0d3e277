"""The four papers: one folder a paper, one file a figure or theorem."""

from saddlescope.papers.claim import Claim, Measured, Outcome, Verdict
from saddlescope.papers.context import RunContext
from saddlescope.papers.entry import SIZES, Entry, field_comments, find, names
from saddlescope.papers.quantity import Quantity
from saddlescope.papers.reproduction import Reproduction, reproduce, stored_files

__all__ = [
    "SIZES",
    "Claim",
    "Entry",
    "Measured",
    "Outcome",
    "Quantity",
    "Reproduction",
    "RunContext",
    "Verdict",
    "field_comments",
    "find",
    "names",
    "reproduce",
    "stored_files",
]
