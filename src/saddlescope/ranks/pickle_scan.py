"""Check of an untrusted pickle before it is read: time and memory must be in proportion to its size.

An unpickler hashes keys, and a tuple that contains one tuple twice, which does so again, takes twice as long with each
level. Other pickles reserve memory for places or arrays that they never fill, or call a class with a size. The scan
runs through the operations without doing any.
"""

import pickle
import pickletools
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

_LARGEST = 10**6  # entries of a tuple, and of those in it, each as often as it occurs
_DEEPEST = 64  # tuples in each other, whose hash is computed by recursion
_REFUSED = {"BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER"}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_CALLS = {"REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST", "BUILD"}
_FILLS: dict[str, type] = {"SETITEM": dict, "SETITEMS": dict, "APPEND": list, "APPENDS": list}

# Classes whose argument can be a size; those of tensors are arguments themselves in ordinary files.
_RESERVES = re.compile(r"(builtins|__builtin__) bytearray|torch(\.\w+)* (\w*Tensor|(Untyped|Typed)Storage)")


class _Size(NamedTuple):
    """Entries and depth of an object; True for a class that reserves memory when it is called; its class by name."""

    entries: int
    depth: int
    reserves: bool = False
    kind: str = ""


_ONE = _Size(1, 0)


def require_plain(content: bytes) -> dict[str, type]:
    """Raise unless a pickle can be read in time and memory proportional to its size.

    Returns:
        list or dict by the names of classes whose objects get items as these do: their subclasses.

    Raises:
        pickle.UnpicklingError: it cannot, or is damaged.
    """
    stack: list[_Size | None] = []  # None is a mark
    memo: dict[int, _Size] = {}
    filled: dict[str, type] = {}
    try:
        for count, (code, argument, _) in enumerate(pickletools.genops(content)):
            _step(code, argument, stack, memo, count, filled)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise pickle.UnpicklingError(str(error) or "it is damaged") from error
    return filled


def _step(
    code: pickletools.OpcodeInfo,
    argument: object,
    stack: list[_Size | None],
    memo: dict[int, _Size],
    count: int,
    filled: dict[str, type],
) -> None:
    """Do to the sizes on the stack what an operation does to the objects."""
    name = code.name
    if name in _REFUSED:
        raise ValueError(f"it has the operation {name}, which no data file needs")
    if name == "MARK":
        stack.append(None)
    elif name == "POP":
        stack.pop()
    elif name == "DUP":
        stack.append(stack[-1])
    elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
        if not isinstance(argument, int) or argument > count:  # an unpickler reserves memory up to this place
            raise ValueError(f"it refers to the place {argument} after {count} operations")
        memo[argument] = _top(stack)
    elif name == "MEMOIZE":
        memo[len(memo)] = _top(stack)
    elif name in ("GET", "BINGET", "LONG_BINGET"):
        stack.append(memo[argument])  # type: ignore[index]
    elif name == "TUPLE":
        stack.append(_around(_to_mark(stack)))
    elif name in _TUPLES:
        stack.append(_around([_pop(stack) for _ in range(_TUPLES[name])]))
    else:
        taken = _taken(code, stack)
        if name in _CALLS - {"BUILD"} and (_reserves(argument) or any(one.reserves for one in taken[-1:])):
            raise ValueError("it calls a class that reserves memory")
        if name == "GLOBAL":
            stack.append(_ONE._replace(reserves=_reserves(argument), kind=str(argument).replace(" ", ".")))
            return
        result = _around(taken) if name in _CALLS else _ONE
        if name in _CALLS or name in _FILLS:
            result = result._replace(kind=taken[-1].kind)
        if name in _FILLS:
            filled[result.kind] = _FILLS[name]
        stack.extend(result for _ in code.stack_after)


def _taken(code: pickletools.OpcodeInfo, stack: list[_Size | None]) -> list[_Size]:
    """Remove and return what an operation takes from the stack."""
    taken: list[_Size] = []
    before = list(code.stack_before)
    if pickletools.markobject in before:
        taken += _to_mark(stack)
        before = list(takewhile(lambda one: one is not pickletools.markobject, before))
    return taken + [_pop(stack) for _ in before]


def _reserves(name: object) -> bool:
    return isinstance(name, str) and _RESERVES.fullmatch(name) is not None


def _around(inner: Sequence[_Size]) -> _Size:
    size = _Size(1 + sum(one.entries for one in inner), 1 + max((one.depth for one in inner), default=0))
    if size.entries > _LARGEST or size.depth > _DEEPEST:
        raise ValueError("it nests tuples")
    return size


def _to_mark(stack: list[_Size | None]) -> list[_Size]:
    inner: list[_Size] = []
    while (one := stack.pop()) is not None:
        inner.append(one)
    return inner


def _top(stack: list[_Size | None]) -> _Size:
    if stack[-1] is None:
        raise ValueError("it is damaged")
    return stack[-1]


def _pop(stack: list[_Size | None]) -> _Size:
    if (one := stack.pop()) is None:
        raise ValueError("it is damaged")
    return one
