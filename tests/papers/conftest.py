"""Each entry is run once at its quick size, as users run it, and shared by all tests, and by the workers of xdist."""

import hashlib
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from saddlescope.reproduction import Entry, RunContext, find


@dataclass
class QuickRun:
    entry: Entry
    run: object
    reports: list = field(default_factory=list)


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory, types_unchecked):
    done: dict[tuple, tuple] = {}  # by what makes a run, since two entries may look at the same one
    own = tmp_path_factory.getbasetemp()
    among_workers = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def make(entry: Entry) -> tuple:
        reports: list = []
        context = RunContext(scratch=tmp_path_factory.mktemp("scratch"), report=lambda *report: reports.append(report))
        with types_unchecked():
            return entry.run(entry.params("quick"), context), reports

    def shared(entry: Entry, file: Path) -> tuple:
        """What another worker has made already; two that start at once both make it, and the last one stays."""
        if file.exists():
            return pickle.loads(file.read_bytes())
        made = make(entry)
        part = own / file.name
        part.write_bytes(pickle.dumps(made))
        part.replace(file)
        return made

    def get(name: str) -> QuickRun:
        entry = find(name)
        key = entry.run, entry.params("quick")
        if key not in done:
            told = repr((entry.run.__module__, entry.run.__qualname__, entry.params("quick")))
            done[key] = shared(entry, among_workers / f"quick-run-{hashlib.sha256(told.encode()).hexdigest()}")
        return QuickRun(entry, *done[key])

    return get


@pytest.fixture
def outcomes():
    """Claim names to outcomes of an entry on a data set."""
    return lambda entry, run: {verdict.claim: str(verdict.outcome) for verdict in entry.judge(run)}


@pytest.fixture
def inside():
    """Names of the claims of an entry whose values lie within their bounds, be the trials too few to decide them."""
    return lambda entry, run: {v.claim for v in entry.judge(run) if v.low <= v.value <= v.high}
