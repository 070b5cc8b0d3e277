"""Draw docs/rooms.png: the subpackages and who imports whom, read from the source.

usage: python scripts/rooms.py

A room stands above all that it imports. An arrow that follows from others is left out: if A imports B and B imports C,
then A may import C too. The colour says which extra a room needs.
"""

from collections import defaultdict
from functools import cache
from pathlib import Path

import grimp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
COLOURS = {"no extra": "#e8eef7", "jax": "#fde3c4", "torch": "#f6d3dd", "papers": "#d9ead3"}
EXTRA = {"jax": ("loss", "models", "theory", "flow", "studies"), "torch": ("ranks", "training"), "papers": ("papers",)}


def imports() -> dict[str, set[str]]:
    """Return the rooms that each room imports."""
    graph = grimp.build_graph("saddlescope")
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        room = [*module.split("."), ""][1]
        for imported in graph.find_modules_directly_imported_by(module):
            other = [*imported.split("."), ""][1]
            if room and other and other != room:
                found[room].add(other)
    rooms = {path.parent.name for path in (ROOT / "src" / "saddlescope").glob("*/__init__.py")}
    return {room: found[room] for room in rooms}


def draw(file: Path) -> None:
    """Draw the rooms, a row for each level."""
    direct = imports()

    @cache
    def level(room: str) -> int:
        return 1 + max((level(other) for other in direct[room]), default=-1)

    @cache
    def all_of(room: str) -> frozenset[str]:
        return frozenset(direct[room]).union(*(all_of(other) for other in direct[room]))

    rows: dict[int, list[str]] = defaultdict(list)
    for room in sorted(direct, key=lambda one: (one in EXTRA["torch"], one)):
        rows[level(room)].append(room)
    # Odd rows are shifted, so that an arrow over two rows passes between boxes.
    place = {room: (k - (len(row) - 1) / 2 + 0.3 * (y % 2), y) for y, row in rows.items() for k, room in enumerate(row)}
    needs = {room: extra for extra, rooms in EXTRA.items() for room in rooms}
    picture, axes = plt.subplots(figsize=(8, 0.8 * len(rows)), layout="constrained")
    for room, (x, y) in place.items():
        for other in direct[room]:
            if not any(other in all_of(between) for between in direct[room]):
                axes.annotate(
                    "", place[other], (x, y), arrowprops={"arrowstyle": "-|>", "color": "#999999", "shrinkB": 14}
                )
        colour = COLOURS[needs.get(room, "no extra")]
        box = {"boxstyle": "round,pad=0.4", "facecolor": colour, "edgecolor": "#666666"}
        axes.text(x, y, room, ha="center", va="center", family="monospace", fontsize=10, bbox=box)
    for name, colour in COLOURS.items():
        axes.scatter([], [], marker="s", s=80, color=colour, edgecolors="#666666", label=name)
    axes.legend(loc="upper right", frameon=False, title="extra", fontsize=9)
    axes.set(xlim=(-2.6, 2.6), ylim=(-0.6, len(rows) - 0.4))
    axes.axis("off")
    picture.savefig(file, dpi=150)


if __name__ == "__main__":
    draw(ROOT / "docs" / "rooms.png")
