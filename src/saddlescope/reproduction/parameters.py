"""Parameters of an entry as data: each field has a description, a unit, a range, choices and a scale.

The command line, sweeps, the gallery and the JSON schema read these records; values are checked against them.

>>> class Params(EntryParams):
...     log10_scales: tuple[float, ...] = param((-1.0, -8.0), "log10 of the initial scales", lt=0, order="decreasing")
...     dim: int = param(8, "embedding dimension", ge=1)
>>> Params(dim=0)
Traceback (most recent call last):
    ...
saddlescope._shared.errors.InputError: dim must be at least 1; got 0.
"""

import dataclasses
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any, ClassVar, Literal, dataclass_transform

import numpy as np

from saddlescope._shared.arguments import shown
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.reprs import ReprMixin
from saddlescope._shared.typed_numbers import number, whole_number

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
_NOUNS = {int: "integer", float: "number", bool: "boolean", str: "word"}
_LARGEST = 2**31  # whole numbers from here on are no number of samples or steps that a run ends with, and no seed
_ONE = {int: "an integer", float: "a finite number", bool: "true or false", str: "a word"}
_PARSERS: Mapping[type, Callable[[str], Any]] = {
    int: whole_number,
    float: number,
    bool: lambda text: {"true": True, "false": False}[text.lower()],
    str: str,
}
Order = Literal["", "increasing", "decreasing", "distinct"]
"""Order of the values of a tuple; the first two are strict."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Parameter(ReprMixin):
    """Record of one field. Bounds, choices and the unit are those of each value if the field is a tuple.

    Attributes:
        name: of the field.
        description: meaning in a few words, without a full stop.
        type: int, float, bool or str, of each value.
        many: True if the field is a tuple of values.
        default: value at the default size.
        unit: unit of the values; empty for pure numbers.
        ge, gt, le, lt: bounds: at least, above, at most, below. Numbers are finite, integers below 2^31 in size.
        choices: the allowed values; empty: all.
        multiple_of: integers must be multiples of it.
        least, most: smallest and largest number of values of a tuple; no largest one if None.
        order: order of the values of a tuple; "" for any.
        scale: of the values: `log` for those of one sign over many orders of magnitude.
    """

    name: str
    description: str
    type: type
    many: bool
    default: Any
    unit: str = ""
    ge: int | float | None = None
    gt: int | float | None = None
    le: int | float | None = None
    lt: int | float | None = None
    choices: tuple[Any, ...] = ()
    multiple_of: int = 1
    least: int = 1
    most: int | None = None
    order: Order = ""
    scale: Literal["linear", "log"] = "linear"

    @property
    def words(self) -> str:
        """Description with the unit in brackets."""
        return f"{self.description} ({self.unit})" if self.unit else self.description

    @property
    def requirement(self) -> str:
        """Allowed values in words, such as "integer, at least 1" or "two or more negative numbers, decreasing"."""
        if not self.many:
            return ", ".join(part for part in (_NOUNS[self.type], self._bounds) if part)
        words = {0: "any number of", 1: "one or more", 2: "two or more"}.get(self.least, f"{self.least} or more")
        up_to = f"{self.least} to {self.most}" if self.least != self.most else f"exactly {self.most}"
        count = words if self.most is None else up_to
        order = {"": "", "distinct": ", each once"}.get(self.order, f", {self.order}")
        if self._bounds in ("positive", "negative"):
            return f"{count} {self._bounds} {_NOUNS[self.type]}s{order}"
        return f"{count} {_NOUNS[self.type]}s{', each ' if self._bounds else ''}{self._bounds}{order}"

    @property
    def _bounds(self) -> str:
        """Bounds, choices and multiples in words; empty if there are none."""
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        words = ["a multiple of " + str(self.multiple_of)] if self.multiple_of > 1 else []
        if self.ge is not None and self.le is not None:
            words.append(f"between {self.ge:g} and {self.le:g}")
        elif self.gt == 0 and self.lt is None and self.le is None:
            words.append("positive")
        elif self.lt == 0 and self.gt is None and self.ge is None:
            words.append("negative")
        else:
            named = {"at least": self.ge, "above": self.gt, "at most": self.le, "below": self.lt}
            words += [f"{word} {bound:g}" for word, bound in named.items() if bound is not None]
        return " and ".join(words)

    def check(self, value: Any) -> None:
        """Raise InputError, in one sentence, unless a value fits."""
        if self._fits_all(value) if self.many else self._fits(value):
            return
        if self.choices and isinstance(value, str) and not self.many:
            raise unknown(f"choice for {self.name}", value, self.choices)
        wanted = self._bounds if self._bounds and not self.many and self._is_of_type(value) else self._kind
        given = value if isinstance(value, tuple) else (value,)
        if self.type is int and any(isinstance(one, int) and abs(one) >= _LARGEST for one in given):
            wanted = "below 2^31 in size"
        raise InputError(f"{self.name} must be {wanted}; got {shown(value)}.")

    @property
    def _kind(self) -> str:
        """Kind of value in words, with an example."""
        if self.many:
            return f"{self.requirement}, such as {self.name}={self.text(self.default)}"
        example = {int: "3", float: "1e-8", bool: "true", str: "word"}[self.type]
        return f"{_ONE[self.type]}, such as {self.name}={example}"

    def _is_of_type(self, value: Any) -> bool:
        if self.type in (str, bool):
            return isinstance(value, self.type)
        most = _LARGEST if self.type is int else sys.float_info.max
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < most
        return whole or (self.type is float and isinstance(value, float) and math.isfinite(value))

    def _fits_all(self, values: Any) -> bool:
        if not isinstance(values, tuple) or not all(map(self._fits, values)):
            return False
        if len(values) < self.least or (self.most is not None and len(values) > self.most):
            return False
        if self.order == "distinct":
            return len(set(values)) == len(values)
        if self.order == "increasing":
            return all(a < b for a, b in pairwise(values))
        return self.order != "decreasing" or all(a > b for a, b in pairwise(values))

    def _fits(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if not self._is_of_type(value):
            return False
        if self.type in (str, bool):
            return True
        inside = (self.ge is None or value >= self.ge) and (self.le is None or value <= self.le)
        strict = (self.gt is None or value > self.gt) and (self.lt is None or value < self.lt)
        return inside and strict and (self.multiple_of == 1 or value % self.multiple_of == 0)

    def parse(self, text: str) -> Any:
        """Return the value typed after `--set NAME=`.

        Raises:
            InputError: it does not fit.
        """
        try:
            if self.many:
                value: Any = tuple(
                    self._parse(part.strip()) for part in text.strip("()[] ,").split(",") if part.strip()
                )
            else:
                value = self._parse(text)
        except (ValueError, KeyError) as error:
            raise InputError(f"{self.name} must be {self._kind}; got {shown(text)}.") from error
        self.check(value)
        return value

    def _parse(self, text: str) -> Any:
        return _PARSERS[self.type](text)

    @staticmethod
    def text(value: Any) -> str:
        """Return a value as typed after `--set NAME=`: that of a tuple, a list, a range or an array is a list."""
        value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        return ",".join(map(str, value)) if isinstance(value, tuple | list | range) else str(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the field; `x-unit` and `x-scale` have its unit and scale."""
        bounds = {"minimum": self.ge, "exclusiveMinimum": self.gt, "maximum": self.le, "exclusiveMaximum": self.lt}
        one: dict[str, Any] = {"type": _TYPES[self.type]}
        one |= {name: bound for name, bound in bounds.items() if bound is not None}
        one |= {"enum": list(self.choices)} if self.choices else {}
        one |= {"multipleOf": self.multiple_of} if self.multiple_of > 1 else {}
        if self.many:
            one = {"type": "array", "items": one, "minItems": self.least}
            one |= {"maxItems": self.most} if self.most is not None else {}
            one |= {"uniqueItems": True} if self.order else {}
            one |= {"x-order": self.order} if self.order in ("increasing", "decreasing") else {}
            one["default"] = list(self.default)
        else:
            one["default"] = self.default
        return {"description": self.description, "x-unit": self.unit, "x-scale": self.scale} | one


def param(
    default: Any,
    description: str,
    *,
    unit: str = "",
    ge: int | float | None = None,
    gt: int | float | None = None,
    le: int | float | None = None,
    lt: int | float | None = None,
    multiple_of: int = 1,
    least: int = 1,
    most: int | None = None,
    order: Order = "",
    scale: Literal["linear", "log"] = "linear",
) -> Any:
    """Declare a field of an `EntryParams`, with the attributes of `Parameter`; `Literal` fields have choices."""
    record = {"description": description, "unit": unit, "ge": ge, "gt": gt, "le": le, "lt": lt, "scale": scale}
    record |= {"multiple_of": multiple_of, "least": least, "most": most, "order": order}
    return dataclasses.field(default=default, metadata=record)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(param,))
@dataclass(frozen=True, kw_only=True)
class EntryParams:
    """Parameters of an entry: a frozen, keyword-only dataclass whose fields are declared by `param`.

    Subclasses need no decorator. A check of several fields at once belongs in `check`. Keywords of a subclass are other
    defaults of fields that it inherits: `class Wide(Params, dim=64)`.

    Raises:
        InputError: a value does not fit its record.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls, **defaults: Any) -> None:
        super().__init_subclass__()
        for name, value in defaults.items():
            if name not in cls.__dataclass_fields__:
                raise TypeError(f"{cls.__qualname__} has no field {name!r} whose default could be {value!r}.")
            inherited = cls.__dataclass_fields__[name]
            setattr(cls, name, dataclasses.field(default=value, metadata=inherited.metadata))
            cls.__annotations__[name] = inherited.type
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for parameter in parameters(type(self)).values():
            parameter.check(getattr(self, parameter.name))
        self.check()

    def check(self) -> None:
        """Raise InputError unless the fields fit each other; by default they always do."""

    def only(self, *names: str) -> dict[str, Any]:
        """Return the values of some fields by name."""
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the file of the class, so that worker processes can read parameters of your own entries."""
        module = sys.modules[type(self).__module__]
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _rebuild, (module.__name__, module.__file__, type(self).__qualname__, values)


def _rebuild(module: str, file: str | None, name: str, values: Mapping[str, Any]) -> EntryParams:
    """Return pickled parameters; a module that cannot be imported by its name is loaded from its file."""
    from saddlescope.reproduction.catalogue import OWN, load_entries

    if module.startswith(OWN) and module not in sys.modules and file is not None:
        load_entries(file)
    of: Any = sys.modules.get(module) or import_module(module)
    for part in name.split("."):
        of = getattr(of, part)
    return of(**values)


@cache
def parameters(params_type: type[EntryParams]) -> Mapping[str, Parameter]:
    """Return the records of all fields of a class of parameters, inherited or not.

    Raises:
        TypeError: a field is not declared by `param`, or its type is not int, float, bool, str, a Literal of these, or
            a tuple of one of them.
    """
    hints = typing.get_type_hints(params_type)
    found = {}
    for field in dataclasses.fields(params_type):
        hint, many = hints[field.name], typing.get_origin(hints[field.name]) is tuple
        each = typing.get_args(hint)[0] if many else hint
        choices = typing.get_args(each) if typing.get_origin(each) is Literal else ()
        kind = type(choices[0]) if choices else each
        if kind not in _TYPES or "description" not in field.metadata:
            raise TypeError(
                f"{params_type.__qualname__}.{field.name} must be `param(default, description)` of type int, float,"
                f" bool, str, Literal or a tuple of one of them; got {hint!r}."
            )
        found[field.name] = Parameter(
            name=field.name, type=kind, many=many, default=field.default, choices=choices, **field.metadata
        )
    return types.MappingProxyType(found)


def schema(params_type: type[EntryParams]) -> dict[str, Any]:
    """Return the JSON schema of a class of parameters."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {name: record.schema() for name, record in parameters(params_type).items()},
        "additionalProperties": False,
    }
