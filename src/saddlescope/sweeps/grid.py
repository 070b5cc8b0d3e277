"""Grid of a sweep: the swept parameters of an entry, their values, and the points."""

import dataclasses
import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.reprs import ReprMixin
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction.parameters import Parameter
from saddlescope.store.provenance import command_of
from saddlescope.sweeps.parse import MOST_POINTS, expand


@dataclasses.dataclass(frozen=True, repr=False)
class SweptParameter(ReprMixin):
    """One axis of a grid.

    Attributes:
        name: of the parameter.
        texts: its values as typed after `--set`, one for each point of the axis.
        values: its coordinates: numbers, booleans or words; for a tuple parameter the element if every value has one,
            else the elements joined by `/`.
    """

    name: str
    texts: tuple[str, ...]
    values: tuple[Any, ...]

    @classmethod
    def of(cls, entry: entries.Entry, name: str, texts: Iterable[str]) -> "SweptParameter":
        """Return the axis of a parameter of an entry.

        Raises:
            InputError: the parameter does not exist, or a value does not fit it, is NaN, or occurs twice.
        """
        texts = tuple(texts)
        if not texts:
            raise InputError(f"{name} must have one or more values; got none.")
        values = [entry.value(name, text) for text in texts]
        if len(set(values)) < len(values):
            twice = Counter(values).most_common(1)[0][0]
            raise InputError(f"{name} must have each value once; got {twice!r} twice.")
        if isinstance(values[0], tuple):
            single = all(len(value) == 1 for value in values)
            values = [value[0] if single else "/".join(map(str, value)) for value in values]
        return cls(name, texts, tuple(values))

    @property
    def words(self) -> str:
        """Axis as typed after `--grid`."""
        return f"{self.name}={','.join(text.replace(',', '/') for text in self.texts)}"


@dataclasses.dataclass(frozen=True, repr=False)
class Grid(ReprMixin):
    """All combinations of the values of one or more parameters of an entry, the last axis fastest.

    Attributes:
        entry: the entry to run.
        axes: the swept parameters.
        size: of the other parameters: quick, default, reduced (if the entry has it) or paper.
        settings: parameters set by hand, the same at all points.
    """

    entry: entries.Entry
    axes: tuple[SweptParameter, ...]
    size: str
    settings: Mapping[str, str]

    @classmethod
    def parse(
        cls,
        entry: entries.Entry | str,
        words: Iterable[str] = (),
        *,
        seeds: str = "",
        size: str = "default",
        settings: Mapping[str, object] | None = None,
    ) -> "Grid":
        """Return the grid of `NAME=VALUES` words, in the grid syntax of `saddlescope.sweeps.parse`.

        Args:
            entry: the entry to run, or its name.
            words: one axis each, such as `log10_scales=-1,-2,-8`; `dim=8,16`; `seed=0:64`.
            seeds: values of the entry's `seed`, or of its `seeds`, one for each point; the last axis.
            size: of all other parameters.
            settings: parameters set by hand, the same at all points.

        Returns:
            The grid; all its points are valid parameters of the entry.

        Raises:
            InputError: no axis is given, a word is malformed, a parameter is unknown, given twice or also set by hand,
                a value does not fit or is given twice, or a point is invalid for the entry.
        """
        entry = entries.find_entry(entry) if isinstance(entry, str) else entry
        settings = {name: Parameter.text(value) for name, value in (settings or {}).items()}
        words = list(words)
        for word in (*words, seeds):
            if not isinstance(word, str):
                raise InputError(f"words must be strings, such as 'seed=0:8'; got {word!r}.")
        entry.configure(size, settings)
        given = [_split(word) for word in words]
        if seeds:
            given.append((_seed_parameter(entry), seeds))
        if not given:
            raise InputError(
                f"A sweep must have an axis: give --grid NAME=VALUES or --seeds 0:8; saddlescope show {entry.name} "
                "lists the parameters."
            )
        axes: list[SweptParameter] = []
        for name, text in given:
            if name not in entry.parameters:
                raise unknown(f"parameter of {entry.name}", name, entry.parameters)
            if name in settings or name in [axis.name for axis in axes]:
                raise InputError(f"{name} must be given once; got it on two axes of the sweep, or also in --set.")
            axes.append(SweptParameter.of(entry, name, expand(text, entry.parameters[name])))
        grid = cls(entry, tuple(axes), size, settings)
        if (count := math.prod(grid.shape)) > MOST_POINTS:
            raise InputError(f"A sweep must have at most {MOST_POINTS} points, since each is a file; got {count}.")
        _ = grid.params
        return grid

    @classmethod
    def of(
        cls, entry: entries.Entry, axes: Iterable[tuple[str, Iterable[str]]], size: str, settings: Mapping[str, str]
    ) -> "Grid":
        """Return the grid of the stored names and texts of its axes."""
        return cls(entry, tuple(SweptParameter.of(entry, name, texts) for name, texts in axes), size, dict(settings))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values on each axis."""
        return tuple(len(axis.texts) for axis in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Swept parameters, in the order of the axes."""
        return tuple(axis.name for axis in self.axes)

    @property
    def indices(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the points on the axes, the last axis fastest."""
        return tuple(itertools.product(*(range(length) for length in self.shape)))

    def at(self, index: tuple[int, ...]) -> dict[str, str]:
        """Return the parameters set by hand at one point, as typed: the settings of all points and its swept values."""
        own = {axis.name: axis.texts[k] for axis, k in zip(self.axes, index, strict=True)}
        return {**self.settings, **own}

    def label(self, index: tuple[int, ...]) -> str:
        """Return the swept values of a point in words, such as `dim=8 seed=3`."""
        return " ".join(f"{axis.name}={axis.values[k]}" for axis, k in zip(self.axes, index, strict=True))

    @property
    def command(self) -> str:
        """Command that repeats the sweep, without folders and workers, which do not change it."""
        axes = [word for axis in self.axes for word in ("--grid", axis.words)]
        return command_of("sweep", self.entry.name, self.size, self.settings, axes)

    def __repr__(self) -> str:
        return f"Grid({self.in_words})"

    def _table(self) -> tuple[Sequence[str], list[tuple[object, ...]]]:
        return ("parameter", "values"), [(axis.name, axis.values) for axis in self.axes]

    @property
    def in_words(self) -> str:
        """Entry, size and lengths of the axes in one line."""
        lengths = " x ".join(f"{axis.name}[{len(axis.values)}]" for axis in self.axes)
        return f"{self.entry.name}, {self.size}: {lengths}"

    @cached_property
    def params(self) -> tuple[Any, ...]:
        """Parameters of every point, in the order of `indices`.

        Raises:
            InputError: those of a point are invalid.
        """
        params = []
        for index in self.indices:
            try:
                params.append(self.entry.configure(self.size, self.at(index)))
            except InputError as error:
                raise InputError(f"At {self.label(index)}: {error}") from error
        return tuple(params)

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits of a hash of the entry, the axes and the parameters of all points."""
        points = [dataclasses.asdict(params) for params in self.params]
        canonical = json.dumps([self.entry.name, self.names, self.shape, points], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _split(word: str) -> tuple[str, str]:
    name, equals, values = word.partition("=")
    if not (equals and name.strip() and values.strip()):
        raise InputError(f"--grid must be NAME=VALUES, such as --grid dim=8,16 or --grid seed=0:8; got {word!r}.")
    return name.strip(), values.strip()


def _seed_parameter(entry: entries.Entry) -> str:
    """Return the parameter that `--seeds` varies: `seed`, or `seeds` if the entry takes several."""
    if "seed" in entry.parameters:
        return "seed"
    if "seeds" in entry.parameters and entry.parameters["seeds"].many:
        return "seeds"
    raise InputError(f"--seeds must be left out; {entry.name} draws nothing and has no parameter seed.")
