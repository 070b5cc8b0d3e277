"""Measurements of a benchmark as rows that can be read again: the board of all benchmarks consists of them.

Every benchmark is a script `NAME.py [--quick] [--rows FILE] [WORD ...]` whose `main(board)` prints its own table and
hands the same figures to the board. `--quick` is a small version, for tests of the code: its timings mean nothing.

A ratio is a figure over that of saddlescope in the same process, so that costs above 1 speak for saddlescope. Figures
are medians over turns; the spread of a ratio is its least and greatest over turns taken side by side, or that of
saddlescope's own turns where another method, slow enough to be steady, was run once.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of one method on one problem.

    Attributes:
        problem: what was computed, with its size.
        method: by what.
        quantity: what was measured, such as the CPU time of a flow.
        unit: of the value; empty for pure numbers.
        value: the median over turns; None where nothing came out, which the note explains.
        ratio: the value over that of saddlescope's first method; None for that method, and where a ratio says nothing.
        low, high: spread of the ratio over turns; None where everything was measured once.
        note: what a reader must know, such as that a time is a lower bound, or the error that was reached.
        own: True for a variant of saddlescope's method rather than a peer: its own code in another way, at another
            accuracy or in another precision.
    """

    problem: str
    method: str
    quantity: str
    unit: str
    value: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    own: bool = False


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Cost against size, with the exponent of the best power law.

    Attributes:
        problem: what was computed, with the sizes that were held fixed.
        method: by what.
        size: what was varied.
        sizes, values: the points; values are the least over turns.
        quantity, unit: what the values are.
        exponent, error: slope of log(value) against log(size) by least squares, and its standard error.
        end: the slope between the two largest sizes.
    """

    problem: str
    method: str
    size: str
    sizes: tuple[float, ...]
    values: tuple[float, ...]
    quantity: str
    unit: str
    exponent: float
    error: float
    end: float


def exponent(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The slope of log(value) against log(size) by least squares, and its standard error; infinite for two points."""
    x, y = ([math.log(one) for one in given] for given in (sizes, values))
    slope, intercept = statistics.linear_regression(x, y)
    if len(x) < 3:
        return slope, math.inf
    left = sum((b - intercept - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    around = sum((a - statistics.fmean(x)) ** 2 for a in x)
    return slope, math.sqrt(left / (len(x) - 2) / around)


@dataclass
class Board:
    """Measurements of one benchmark so far.

    Attributes:
        quick: whether the small version was asked for.
        words: what else was given on the command line.
    """

    quick: bool = False
    words: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def compare(
        self,
        problem: str,
        quantity: str,
        unit: str,
        values: Mapping[str, float | Sequence[float]],
        notes: Mapping[str, str] | None = None,
        *,
        own: Collection[str] = (),
    ) -> None:
        """A row for each method, by its value or its values over turns; the first is saddlescope's, the reference.

        Others that are saddlescope's, too, are named in `own`: they are no peers.
        """
        assert set(own) <= set(values), f"no such methods: {set(own) - set(values)}"
        turns = {
            name: [float(given)] if isinstance(given, int | float) else [float(one) for one in given]
            for name, given in values.items()
        }
        ours, *_ = turns.values()
        for k, (method, theirs) in enumerate(turns.items()):
            spread = _ratios(ours, theirs) if k else None
            self.rows.append(
                Row(
                    problem=problem,
                    method=method,
                    quantity=quantity,
                    unit=unit,
                    value=statistics.median(theirs),
                    ratio=None if spread is None else statistics.median(theirs) / statistics.median(ours),
                    low=min(spread) if spread and len(spread) > 1 else None,
                    high=max(spread) if spread and len(spread) > 1 else None,
                    note=(notes or {}).get(method, ""),
                    own=not k or method in own,
                )
            )

    def report(
        self, problem: str, method: str, quantity: str, value: float | None, unit: str = "", note: str = ""
    ) -> None:
        """A row whose ratio would say nothing: an error, a share, a memory peak, or what could not be had."""
        self.rows.append(Row(problem=problem, method=method, quantity=quantity, unit=unit, value=value, note=note))

    def curve(
        self, problem: str, method: str, size: str, points: Mapping[float, float], quantity: str, unit: str
    ) -> Curve:
        """Cost against size, by the values at the sizes."""
        slope, error = exponent(list(points), list(points.values()))
        made = Curve(
            problem=problem,
            method=method,
            size=size,
            sizes=tuple(map(float, points)),
            values=tuple(points.values()),
            quantity=quantity,
            unit=unit,
            exponent=slope,
            error=error,
            end=exponent(list(points)[-2:], list(points.values())[-2:])[0],
        )
        self.curves.append(made)
        return made

    def record(self) -> dict[str, object]:
        """Rows and curves as JSON values; what is not finite is null."""
        return {
            "rows": [{name: _finite(value) for name, value in asdict(row).items()} for row in self.rows],
            "curves": [{name: _finite(value) for name, value in asdict(curve).items()} for curve in self.curves],
        }


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Turn by turn where both had the same turns, else each of the other's over each of ours."""
    if len(ours) == len(theirs):
        return [b / a for a, b in zip(ours, theirs, strict=True)]
    return [b / a for a in ours for b in theirs]


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def play(main: Callable[[Board], None]) -> None:
    """Runs a benchmark as a script: its table goes to stdout, its rows to the file that `--rows` names, whole."""
    parser = argparse.ArgumentParser(add_help=True)
    parser.add_argument("words", nargs="*", help="what the benchmark itself takes; see the top of its file")
    parser.add_argument("--quick", action="store_true", help="a small version: its timings mean nothing")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write the rows as JSON into this file")
    given = parser.parse_args()
    board = Board(quick=given.quick, words=tuple(given.words))
    main(board)
    if given.rows is not None:
        part = given.rows.with_name(given.rows.name + ".part")
        part.write_text(json.dumps(board.record(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        part.replace(given.rows)
