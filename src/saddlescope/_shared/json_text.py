"""JSON from others: bounded in depth, so that no nesting exhausts the stack here or where the value is used."""

import json
from typing import Any

_DEEPEST = 64


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, or is nested more deeply than anything that this program writes.
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _inside(outer)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _inside(outer: dict[str, Any] | list[Any]) -> list[Any]:
    return list(outer.values()) if isinstance(outer, dict) else outer
