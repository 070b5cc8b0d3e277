"""Layouts as text, for the command line: "Separate(wk, wq, wv, wo, heads=8)", or "Fused('qkv', 'out.0')"."""

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.head_modules import HeadModules
from saddlescope.ranks.attention.layouts import (
    AttentionLayout,
    Fused,
    HeadTensors,
    Interleaved,
    KeyValue,
    Latent,
    Separate,
)

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Separate, KeyValue, Fused, Interleaved, Latent, HeadTensors, HeadModules)
}


def layout_from_text(text: str) -> AttentionLayout:
    """Return the layout that a text describes as a call; nothing is executed.

    Args:
        text: name of a layout of `saddlescope.ranks` with its arguments: dotted names, quoted or not, numbers, True,
            False, and for `Latent` tuples of names.

    Raises:
        InputError: the text is not such a call, or the layout does not accept its arguments.

    >>> layout_from_text("Separate(attention.wk, attention.wq, attention.wv, attention.wo, heads=8)").heads
    8
    """
    try:
        if re.search(r"(?<![\w.'\"])[0-9]+_", text):
            raise ValueError("a number has an underscore")
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is not a call")
        kind = _KINDS[call.func.id]
        named = {keyword.arg: _value(keyword.value) for keyword in call.keywords if keyword.arg is not None}
        if len(named) != len(call.keywords):
            raise ValueError("it unpacks a mapping")
        given = inspect.signature(kind).bind(*map(_value, call.args), **named).arguments
    except KeyError as error:
        raise InputError(f"layout must be one of {', '.join(_KINDS)}; got {error.args[0]!r}.") from None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InputError(
            f"layout must be a call such as Separate(wk, wq, wv, wo, heads=8) or Fused('qkv', 'out.0'); got {text!r} "
            f"({str(error).partition('(')[0].strip()})."
        ) from None
    _require_types(given, text)
    return kind(**given)


def read_layouts(texts: Sequence[str]) -> tuple[AttentionLayout, ...] | None:
    """Return the layouts of several texts; None for no texts."""
    return tuple(map(layout_from_text, texts)) or None


def _value(node: ast.expr) -> Any:
    """Return a constant, a dotted name as text, or a tuple of them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | bool):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(map(_value, node.elts))
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueError("an argument is neither a name nor a number")
    return ".".join([node.id, *reversed(parts)])


def _require_types(given: Mapping[str, Any], text: str) -> None:
    for name, value in given.items():
        expected: tuple[type, ...] = (str,)
        if name in ("heads", "key_heads"):
            expected = (int, str, type(None))
        elif name in ("strided", "gated", "interleaved", "whole"):
            expected = (bool,)
        elif name == "pieces":
            expected = (int,)
        elif name == "query":
            expected = (str, tuple)
        if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
            raise InputError(f"layout must have {name} of another kind; got {value!r} in {text!r}.")
