"""Provenance of stored runs: attributes stamped into every file, and read back from it."""

import json
import os
import platform
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.json_text import parse_json
from saddlescope._shared.reprs import ReprMixin

_GIT_REFUSES = 128  # exit status of git's fatal errors; a file that it does not know is 1
_PACKAGES = ("saddlescope", "numpy", "scipy", "xarray", "jax", "torch")


@dataclass(frozen=True, repr=False, kw_only=True)
class Provenance(ReprMixin):
    """Provenance of a run. Each field becomes one attribute of the file; mappings are stored as JSON.

    Attributes:
        entry: name of the entry.
        size: the requested size.
        settings: parameters set by hand, as typed.
        params: all parameters.
        started, finished: ISO 8601, UTC.
        cpu_seconds: CPU time of this process and its children in between; after a resume, of the last part.
        resumed: True if it resumed an interrupted run.
        versions: of Python and of the installed packages.
        platform: operating system, processor and number of cores.
        commit: git commit of the source, with "-dirty" when files differ from it, with "-unchecked" when git does not
            compare them because the checkout belongs to another user; empty outside a checkout.
        data_sets: SHA-256 of each data set that the run has read, by name; empty in files of earlier versions.
    """

    entry: str
    size: str
    settings: Mapping[str, str]
    params: Mapping[str, Any]
    started: str
    finished: str
    cpu_seconds: float
    resumed: bool
    versions: Mapping[str, str]
    platform: str
    commit: str
    data_sets: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Size and parameters set by hand."""
        return label_of(self.size, self.settings)

    @property
    def command(self) -> str:
        """Command that repeats this run, without folders, which do not change it."""
        return command_of("run", self.entry, self.size, self.settings)

    @property
    def seeds(self) -> str:
        """Seed or seeds among the parameters, for display; empty if the run draws nothing."""
        given = [value for name, value in self.params.items() if name in ("seed", "seeds")]
        return ", ".join(", ".join(map(str, v)) if isinstance(v, list | tuple) else str(v) for v in given)

    def stamp(self, run: xr.Dataset) -> xr.Dataset:
        """Return the run with this provenance among its attributes.

        Raises:
            InputError: the run already has an attribute of the same name.
        """
        made = {each.name: getattr(self, each.name) for each in fields(self)}
        made |= {"command": self.command, "seed": self.seeds}
        if taken := [name for name in made if name in run.attrs]:
            raise InputError(f"The attributes {', '.join(taken)} are reserved for provenance; rename the run's own.")
        return stamped(run, made)

    @classmethod
    def of(cls, run: xr.Dataset) -> "Provenance":
        """Return the provenance stamped into a stored run.

        Raises:
            InputError: the run has no complete provenance.
        """
        try:
            attributes = {"data_sets": "{}"} | run.attrs  # files of earlier versions lack them
            raw: dict[str, Any] = {each.name: attributes[each.name] for each in fields(cls)}
            raw |= {name: parse_json(raw[name]) for name in ("settings", "params", "versions", "data_sets")}
            raw |= {"resumed": bool(raw["resumed"]), "cpu_seconds": float(raw["cpu_seconds"])}
            for name in ("settings", "versions", "data_sets"):
                raw[name] = {str(key): str(value) for key, value in raw[name].items()}
            if not isinstance(raw["params"], dict):
                raise TypeError("params is not a mapping")
            if odd := [f.name for f in fields(cls) if f.type is str and not isinstance(raw[f.name], str)]:
                raise TypeError(f"{odd[0]} is not a string")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"The run has no complete provenance ({error}); rerun the entry.") from error
        return cls(**raw)


def label_of(size: str, settings: Mapping[str, str]) -> str:
    """Return a size and parameters set by hand in words."""
    return " ".join([size, *(f"{name}={value}" for name, value in settings.items())])


def command_of(verb: str, entry: str, size: str, settings: Mapping[str, str], options: Iterable[str] = ()) -> str:
    """Return the command that runs or sweeps an entry, without folders, which do not change what it computes.

    Args:
        verb: `run` or `sweep`.
        entry: its name.
        size: of the parameters that are not set by hand.
        settings: the parameters set by hand, as typed.
        options: further words, after the name of the entry.
    """
    words = ["saddlescope", verb, entry, *options, *(["--size", size] if size != "default" else [])]
    return shlex.join(words + [word for name, value in settings.items() for word in ("--set", f"{name}={value}")])


def stopwatch() -> Callable[[], dict[str, Any]]:
    """Start a stopwatch; the returned function gives the fields of `Provenance` from `started` on, except `resumed`."""
    started, before, commit = _now(), _cpu_seconds(), _commit_of(Path(__file__).resolve())
    return lambda: {
        "started": started,
        "finished": _now(),
        "cpu_seconds": round(_cpu_seconds() - before, 2),
        "versions": _versions(),
        "platform": f"{platform.platform()}, {os.cpu_count()} cores",
        "commit": commit,
    }


def stamped(ds: xr.Dataset, made: Mapping[str, Any], **further: str) -> xr.Dataset:
    """Return a data set with the fields of a stopwatch, and further ones, as attributes; mappings become JSON."""
    return ds.assign_attrs({name: _encode(value) for name, value in made.items()}, **further)


def _encode(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json.dumps(dict(value), ensure_ascii=False)
    return int(value) if isinstance(value, bool) else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _cpu_seconds() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


@cache
def _versions() -> dict[str, str]:
    """Return versions from the metadata of the installed packages, which imports no framework."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache  # loaded code is that of the first run, and git takes longer than many runs
def _commit_of(here: Path) -> str:
    def git(*words: str) -> str:
        command = ["git", "-C", str(here.parent), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
        return done.stdout.strip()

    try:
        try:
            git("ls-files", "--error-unmatch", here.name)  # an enclosing checkout of another project does not count
            return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        except subprocess.CalledProcessError as error:
            if error.returncode != _GIT_REFUSES:
                return ""
            # In a folder of another user git refuses all that may run what its settings name: monitors, filters, hooks.
            # A named repository it does read, and to resolve HEAD it opens neither index nor objects and runs nothing.
            return git("--git-dir", str(here.parents[3] / ".git"), "rev-parse", "HEAD") + "-unchecked"
    except (OSError, subprocess.SubprocessError):
        return ""
