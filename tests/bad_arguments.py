"""Values that a parameter must refuse, made from its record: one for each thing that the record asks for."""

import math
from collections.abc import Iterator
from typing import Any

from saddlescope.reproduction import Parameter


def bad_values(record: Parameter) -> Iterator[Any]:
    """Yield values beyond each bound, of other types, and, of tuples, of other lengths and orders."""
    if not record.many:
        yield from _bad_elements(record)
        return
    good = record.default
    yield from (list(good), good[0] if good else 1, None)
    yield from ((bad, *good[1:]) for bad in _bad_elements(record))
    if record.least:
        yield good[: record.least - 1] if record.least > 1 else ()
    if record.most is not None:
        yield good * (record.most + 1)
    if record.order and good:
        yield (*good, good[-1])
    if record.order in ("increasing", "decreasing") and len(good) > 1:
        yield good[::-1]


def _bad_elements(record: Parameter) -> Iterator[Any]:
    yield None
    if record.choices:
        yield from ("no-such-choice", math.nan)
        return
    if record.type is bool:
        yield from (1, "true")
        return
    if record.type is str:
        yield 1
        return
    yield from ("1", math.nan, math.inf, True)
    if record.type is int:
        yield from (0.5, 2**31)
    yield from (bound for bound in (record.gt, record.lt) if bound is not None)
    yield from (bound + step for bound, step in ((record.ge, -1), (record.le, 1)) if bound is not None)
    if record.multiple_of > 1:
        yield (record.ge or 0) + 1
