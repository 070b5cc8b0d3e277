"""Entries: one reproduction each, declared as one object.

    entry = Entry(
        "concept-learning/figure-8",
        "The order of learning follows the signal",
        source="Section 3, Figure 8",
        quick={"seeds": (0,)},
        paper={"steps": 5000},
    )

`Params`, `run`, `claims`, `figures` and `metrics` of its module are those of the entry. A module may declare several
entries, which give what differs. Importing it loads NumPy and xarray, but no JAX and no PyTorch: `run` imports
those inside.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

import xarray as xr

from saddlescope._shared.errors import InputError, MissingExtraError, nearest, unknown
from saddlescope._shared.reprs import ReprMixin, Table, brief
from saddlescope.figures.records import Figure
from saddlescope.reproduction import catalogue
from saddlescope.reproduction.catalogue import SIZES
from saddlescope.reproduction.claim import Claims, Verdict
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.data_sets import DataSets
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, Parameter, parameters

P = TypeVar("P", bound=EntryParams)

_MACHINE = {"device", "compiled", "threads", "pieces", "processes"}  # where and how fast, not what is computed
_FROM_MODULE: Any = None  # the value that the module of an entry has under the usual name


def _package(module: str) -> str:
    return module.partition(".")[0]


@dataclasses.dataclass(frozen=True, repr=False)
class Entry(ReprMixin, Generic[P]):
    """One reproduction of a figure, theorem or claim of a paper, or of your own question.

    Attributes:
        name: `group/entry`, such as `gradual-rank/figure-2`; used on the command line and in addresses.
        title: one line without a full stop.
        citation: the paper; None for the `CITATION` of the folder of `params`, empty for none.
        source: place in the paper.
        params: class of its parameters; its defaults are the default size. Left out, as `run`, `claims`, `figures` and
            `metrics` may be, it is that of the module that declares the entry: its `Params`.
        run: the only function that simulates; from the parameters and the context to the labelled results.
        claims: statements with bounds, judged on the stored run alone.
        figures: function from the stored run to its pictures.
        quick: parameters of the quick size (seconds) that differ from the default.
        reduced: parameters of the paper's experiment on the paper's data, scaled down to an hour a seed on one core,
            that differ from the default; empty if the default is the paper's experiment, or the paper's size is small.
        paper: parameters of the paper's own size that differ from the default.
        metrics: numbers of a run worth a map over its parameters, for sweeps.
        data: the data sets that its runs read; None if they read none.
    """

    name: str
    title: str
    _: dataclasses.KW_ONLY
    citation: str | None = None
    source: str = ""
    params: type[P] = _FROM_MODULE
    run: Callable[[P, RunContext], xr.Dataset] = _FROM_MODULE
    claims: Claims = _FROM_MODULE
    figures: Callable[[xr.Dataset], Iterable[Figure]] = _FROM_MODULE
    quick: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reduced: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    paper: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    metrics: Sequence[Metric] = _FROM_MODULE
    data: DataSets | None = None

    def __post_init__(self) -> None:
        frame: FrameType | None = sys._getframe()
        while frame and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        module: dict[str, Any] = {"metrics": ()} | (frame.f_globals if frame else {})
        for name in ("params", "run", "claims", "figures", "metrics"):
            if getattr(self, name) is None:
                usual = name.capitalize() if name == "params" else name
                given = module.get(usual)
                foreign = inspect.isfunction(given) and _package(given.__module__) != _package(module["__name__"])
                if usual not in module or foreign:  # such as `run` of subprocess
                    raise InputError(f"{self.name} must have {name}; define {usual} in its module, or give {name}=.")
                object.__setattr__(self, name, given)
        if self.citation is None:
            package = getattr(self.params, "__module__", "").split(".")
            paper = sys.modules.get(".".join(package[:3]))
            object.__setattr__(self, "citation", getattr(paper, "CITATION", ""))

    def __repr__(self) -> str:
        return f"Entry({self.name!r}: {brief(self.title)}; {self.source}; {len(self.claims)} claims)"

    def _table(self) -> Table:
        from saddlescope.reproduction.formatting import bounds

        rows = ((c.name, c.statement, c.quantity, bounds(c.low, c.high, c.unit), c.kind) for c in self.claims)
        return ("claim", "statement", "quantity", "bound", "kind"), rows

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Records of the parameters, by name."""
        return parameters(self.params)

    def configure(self, size: str = "default", settings: Mapping[str, object] | None = None) -> P:
        """Return the parameters of one size, changed by `settings` (field name to value, or to text as typed).

        Raises:
            InputError: unknown size or field (with the nearest names), or a value that does not fit the field.
        """
        if size not in SIZES:
            raise unknown("size", size, self.sizes)
        if size not in self.sizes:
            raise InputError(f"{self.name} has no {size} size; take {' or '.join(self.sizes)}.")
        changes = {} if size == "default" else getattr(self, size)
        changed = {name: self.value(name, text) for name, text in (settings or {}).items()}
        return self.params(**{**changes, **changed})

    def checksums(self, params: P, folder: Path | None, **options: Any) -> dict[str, str]:
        """Return the checksum of each data set that a run with these parameters reads, by name (`DataSets.checksums`).

        Raises:
            InputError: a data set is absent or damaged.
            MissingExtraError: reading needs an extra that is not installed.
        """
        with MissingExtraError.named(self.name, "papers"):
            return self.data.checksums(params, folder, **options) if self.data else {}

    @property
    def sizes(self) -> tuple[str, ...]:
        """Sizes that the entry has, smallest first."""
        return tuple(size for size in SIZES if size != "reduced" or self.reduced)

    def changed(self, size: str, settings: Mapping[str, object]) -> dict[str, str]:
        """Return those settings, as text, by which what is computed differs from a size."""
        usual = self.configure(size)
        chosen = {name: text for name, text in settings.items() if name not in _MACHINE and name in self.parameters}
        return {
            name: Parameter.text(text)
            for name, text in chosen.items()
            if self.value(name, text) != getattr(usual, name)
        }

    def scaling(self, settings: Mapping[str, object] | None = None) -> str:
        """Return the values that the reduced size, changed by `settings`, has for the paper's: "depth 4 for 6"."""
        ours, theirs = self.configure("reduced", settings), self.configure("paper")
        scaled = [name for name in self.parameters if name not in _MACHINE]
        pairs = ((name, getattr(ours, name), getattr(theirs, name)) for name in scaled)
        text = Parameter.text
        return ", ".join(f"{name} {text(one)} for {text(other)}" for name, one, other in pairs if one != other)

    def value(self, field: str, given: object) -> Any:
        """Return a parameter's value from a value of any kind, or from its text as typed after `--set`.

        Raises:
            InputError: unknown field (with the nearest names), or a value that does not fit it.
        """
        if field not in self.parameters:
            raise unknown(f"parameter of {self.name}", field, self.parameters)
        return self.parameters[field].parse(Parameter.text(given))

    def judge(self, run: xr.Dataset) -> tuple[Verdict, ...]:
        """Return the verdicts of all claims on a stored run."""
        return tuple(claim.judge(run) for claim in self.claims)


@cache
def find_entry(name: str) -> Entry[Any]:
    """Return the entry of that name, of this package or of a file that `load_entries` has loaded.

    Raises:
        InputError: it does not exist; the message has the nearest names.
    """
    if name not in (names := (*catalogue.entry_names(), *catalogue.toy_names())):
        near = nearest(name, names)
        cure = ". List all with: saddlescope list; give the file of your own with --entry"
        hint = f"; did you mean {' or '.join(near)}?" if near else cure
        raise InputError(f"There is no entry {name!r}{hint}")
    return entries_of(import_module(catalogue.entry_module(name)))[name]


def entries_of(module: Any) -> dict[str, Entry[Any]]:
    """Return the entries that a module declares, by name."""
    return {one.name: one for one in vars(module).values() if isinstance(one, Entry)}
