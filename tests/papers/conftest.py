"""Each entry is run once at its quick size, and shared by all tests of a worker."""

from dataclasses import dataclass, field

import pytest

from saddlescope.papers import Entry, RunContext, find


@dataclass
class QuickRun:
    entry: Entry
    run: object
    reports: list = field(default_factory=list)


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory):
    done: dict[str, QuickRun] = {}

    def get(name: str) -> QuickRun:
        if name not in done:
            entry, reports = find(name), []
            context = RunContext(
                scratch=tmp_path_factory.mktemp("scratch"), report=lambda *report: reports.append(report)
            )
            done[name] = QuickRun(entry, entry.run(entry.params("quick"), context), reports)
        return done[name]

    return get


@pytest.fixture
def outcomes():
    """Claim names to outcomes of an entry on a data set."""
    return lambda entry, run: {verdict.claim: str(verdict.outcome) for verdict in entry.judge(run)}
