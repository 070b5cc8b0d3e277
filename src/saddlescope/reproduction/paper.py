"""What a paper asserts, statement by statement, and where its text has to be corrected.

Each paper's folder declares both in its `statements.py`; the tables of its page are made from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, NamedTuple


@dataclass(frozen=True, init=False)
class Statement:
    """A numbered statement, figure or equation of a paper that asserts something.

    Attributes:
        place: its number in the paper, such as "Theorem 4.1 (ii)".
        asserts: what it asserts, in one sentence without a full stop.
        claims: the claims that cover it, as "entry/claim" without the folder of the paper.
        uncovered: one sentence, why no claim covers it; empty if one does.
    """

    place: str
    asserts: str
    claims: tuple[str, ...]
    uncovered: str

    def __init__(self, place: str, asserts: str, *claims: str, uncovered: str = "") -> None:
        if bool(claims) == bool(uncovered):
            raise ValueError(f"{place} must have either claims or the reason why there are none.")
        self.__dict__.update(place=place, asserts=asserts, claims=claims, uncovered=uncovered)


@dataclass(frozen=True)
class Erratum:
    """A place where the text of a paper has to be corrected.

    Attributes:
        place: such as "Equation 4.3, appendix D.1".
        printed: what is printed.
        right: what is right.
        check: how a reader checks it by hand in a line or two, or the test or claim that does.
        weight: *slip* (nothing depends on it), *repairable* (a proof changes, the statement stays) or *statement* (it
            is false as printed: then there is a printed claim that fails).
    """

    place: str
    printed: str
    right: str
    check: str
    weight: Literal["slip", "repairable", "statement"] = "slip"


class Paper(NamedTuple):
    """The records of one paper."""

    statements: Sequence[Statement]
    errata: Sequence[Erratum]


def paper_records(folder: str) -> Paper:
    """Return the records of the paper in a folder, named as in entries, such as "deep-relu"."""
    module = import_module(f"saddlescope.papers.{folder.replace('-', '_')}.statements")
    return Paper(module.STATEMENTS, module.ERRATA)
