"""Coverage of a model's attention: each module that looks like attention, tracked or not, and why."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

Outcome = Literal["verified", "unchecked", "refused", "skipped"]
"""Outcome for one attention module: tracked, and its products agree with its forward pass; tracked, but the check could
not run; not tracked, because they differ or cannot be read; not tracked, because no layout has its names."""


class CoverageRow(NamedTuple):
    """One module of a model that looks like attention.

    Attributes:
        name: of the module.
        kind: its class.
        outcome: see `Outcome`.
        layout: the names of its weights, if a layout has them.
        heads, key_heads: their numbers; 0 if unknown.
        reason: why it is unchecked, refused or skipped, or what comes between its factors; "" for nothing to say.
    """

    name: str
    kind: str
    outcome: Outcome
    layout: str = ""
    heads: int = 0
    key_heads: int = 0
    reason: str = ""

    @property
    def tracked(self) -> bool:
        """True if its products are recorded."""
        return self.outcome in ("verified", "unchecked")


class AttentionCoverage(tuple[CoverageRow, ...]):
    """All modules of a model that look like attention; prints as a table."""

    def count(self, outcome: str) -> int:  # type: ignore[override]
        """Return the number of modules with an outcome."""
        return sum(row.outcome == outcome for row in self)

    @property
    def missed(self) -> tuple[CoverageRow, ...]:
        """Modules that are not tracked."""
        return tuple(row for row in self if not row.tracked)

    def __str__(self) -> str:
        lines = []
        for rows in alike(self):
            first = rows[0]
            name = first.name if len(rows) == 1 else f"{first.name} … {rows[-1].name} ({len(rows)})"
            grouped = f" on {first.key_heads} keys" if first.key_heads not in (0, first.heads) else ""
            heads = f"{first.heads} heads{grouped}" if first.heads else ""
            lines.append((name, first.kind, first.outcome, heads, first.reason))
        if not lines:
            return "no module looks like attention"
        widths = [max(len(line[at]) for line in lines) for at in range(4)]
        return "\n".join(
            "  ".join((*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4])).rstrip()
            for line in lines
        )

    __repr__ = __str__


def alike(rows: Sequence[CoverageRow]) -> Iterator[list[CoverageRow]]:
    """Group rows that differ only in their names."""
    groups: dict[tuple[object, ...], list[CoverageRow]] = {}
    for row in rows:
        groups.setdefault(row[1:], []).append(row)
    yield from groups.values()


def warn_of_missed(coverage: AttentionCoverage, stacklevel: int) -> None:
    """Warn of attention that is not tracked."""
    if coverage.missed:
        parts = [
            f"{len(rows)} of {rows[0].kind}, such as {rows[0].name or rows[0].kind}: {rows[0].reason.rstrip('.')}"
            for rows in alike(coverage.missed)
        ]
        more = f" And {len(parts) - 3} more kinds." if len(parts) > 3 else ""
        warnings.warn(
            f"Attention that is not tracked: {'; '.join(parts[:3])}.{more} print(tracker) lists all.",
            stacklevel=stacklevel + 1,
        )
