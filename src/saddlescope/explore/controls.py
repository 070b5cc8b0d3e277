"""Controls of the live page, made from the records of an entry's parameters: sliders, choices, switches, texts.

A record rarely has bounds on both sides. The missing end of a slider is taken from the values at the entry's sizes, and
numbers that are counts, such as samples or steps, have a limit there: it bounds the cost of a run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import SIZES, Entry, Parameter

_BEYOND = 4  # times the largest value at the entry's sizes: the end of a slider, and the limit of a count
_ORDERS = 100.0  # times the same on a logarithmic slider
_FAR = 25  # times the end of a linear slider: bounds beyond it are no end of a slider
_TUPLE = 16  # values of a tuple that are always allowed
_SEEDS = ("seed", "seeds")  # whose size costs nothing
_LAST_SEED = 99  # of the slider
_STEPS = 200  # positions of a slider, about


@dataclass(frozen=True)
class Control:
    """One control of the form.

    Attributes:
        record: of the parameter.
        value: its text at the chosen size.
        kind: of the control.
        low, high: ends of a slider.
        step: between two positions of a linear slider; 0 on a logarithmic one.
    """

    record: Parameter
    value: str
    kind: Literal["slider", "number", "choice", "switch", "text"]
    low: int | float = 0
    high: int | float = 0
    step: int | float = 0

    @property
    def name(self) -> str:
        """Name of the parameter."""
        return self.record.name

    @property
    def log(self) -> bool:
        """True for a logarithmic slider."""
        return self.kind == "slider" and self.step == 0


def make_controls(entry: Entry[Any], size: str) -> tuple[Control, ...]:
    """Return the controls of an entry at one of its sizes, in the order of its parameters."""
    values = _values(entry, size)
    return tuple(_control(record, values[name]) for name, record in entry.parameters.items())


def checked_settings(entry: Entry[Any], size: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that differ from a size, each in its standard text.

    Raises:
        InputError: an unknown parameter, a value that does not fit its record, values that do not fit each other, or
            a count beyond its limit.
    """
    values = _values(entry, size)
    parsed = {name: entry.value(name, text) for name, text in settings.items()}
    for name, value in parsed.items():
        _require_cost(entry.parameters[name], value, values[name])
    changed = {name: Parameter.text(v) for name, v in parsed.items() if v != values[name][-1]}
    entry.configure(size, changed)
    return changed


def _values(entry: Entry[Any], size: str) -> dict[str, list[Any]]:
    """Return the values of each parameter at all sizes up to one of them, which is the last."""
    entry.configure(size)  # raises for one that does not exist
    upto = [one for one in entry.sizes if SIZES.index(one) <= SIZES.index(size)]
    made = [entry.configure(one) for one in upto]
    return {name: [getattr(params, name) for params in made] for name in entry.parameters}


def _control(record: Parameter, values: Sequence[Any]) -> Control:
    text = Parameter.text(values[-1])
    if record.many or record.type is str:
        return Control(record, text, "choice" if record.choices and not record.many else "text")
    if record.choices:
        return Control(record, text, "choice")
    if record.type is bool:
        return Control(record, text.lower(), "switch")
    low, high = _ends(record, values)
    if not low < high:
        return Control(record, text, "number")
    log = _logarithmic(record, low, high)
    step = 0 if log else _step(record, low, high)
    if record.gt is not None and low <= record.gt:
        low = min(low + (0.01 * abs(low) if log else step), *values)
    if record.lt is not None and high >= record.lt:
        high = max(high - (0.01 * abs(high) if log else step), *values)
    return Control(record, text, "slider", low, high, step)


def _ends(record: Parameter, values: Sequence[Any]) -> tuple[int | float, int | float]:
    least, most = min(values), max(values)
    low = record.ge if record.ge is not None else record.gt
    high = record.le if record.le is not None else record.lt
    if record.name in _SEEDS:
        return low or 0, max(_LAST_SEED, most) if high is None else high
    if (limit := _limit(record, values)) is not None:
        return min(0, _BEYOND * least) if low is None else low, limit
    if record.scale == "log":
        small, large = (least / _ORDERS, most * _ORDERS) if most > 0 else (least * _ORDERS, most / _ORDERS)
        return low or small, high or large
    reach = _BEYOND * max(abs(least), abs(most)) or 1.0
    if low is None or low < -_FAR * reach:
        low = -reach if least < 0 or high is not None else 0.0
    return low, (max(reach, low + reach) if high is None or high > _FAR * reach else high)


def _logarithmic(record: Parameter, low: int | float, high: int | float) -> bool:
    far = record.scale == "log" or (record.type is int and low > 0 and high / low > 500)
    return far and low * high > 0 and record.multiple_of == 1


def _step(record: Parameter, low: int | float, high: int | float) -> int | float:
    if record.type is int:
        return record.multiple_of
    rough = (high - low) / _STEPS
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)


def _limit(record: Parameter, values: Sequence[Any]) -> int | None:
    """Return the largest count allowed; None for other parameters."""
    if record.type is not int or record.name in _SEEDS or record.choices:
        return None
    counts = [value for of in values for value in (of if record.many else (of,))]
    limit = _BEYOND * max([*counts, 1])
    bound = record.le if record.le is not None else record.lt
    return limit if bound is None else min(limit, int(bound))


def _require_cost(record: Parameter, value: Any, values: Sequence[Any]) -> None:
    given, limit = (value if record.many else (value,)), _limit(record, values)
    if limit is not None and any(one > limit for one in given):
        raise InputError(
            f"{record.name} must be at most {limit} on this page; got {Parameter.text(value)}."
            " Choose a larger size, or use `saddlescope run`."
        )
    most = max(_TUPLE, *(_BEYOND * len(of) for of in values)) if record.many else 1
    if len(given) > most:
        raise InputError(
            f"{record.name} must have at most {most} values on this page; got {len(given)}. Use `saddlescope run`."
        )
