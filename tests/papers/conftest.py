"""Each entry is run once at its quick size, as users run it, and shared by all tests of a worker."""

from dataclasses import dataclass, field

import pytest

from saddlescope.papers import Entry, RunContext, find


@dataclass
class QuickRun:
    entry: Entry
    run: object
    reports: list = field(default_factory=list)


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory, types_unchecked):
    done: dict[tuple, tuple] = {}  # by what makes a run, since two entries may look at the same one

    def get(name: str) -> QuickRun:
        entry = find(name)
        made = entry.run, entry.params("quick")
        if made not in done:
            reports: list = []
            context = RunContext(
                scratch=tmp_path_factory.mktemp("scratch"), report=lambda *report: reports.append(report)
            )
            with types_unchecked():
                done[made] = entry.run(entry.params("quick"), context), reports
        return QuickRun(entry, *done[made])

    return get


@pytest.fixture
def outcomes():
    """Claim names to outcomes of an entry on a data set."""
    return lambda entry, run: {verdict.claim: str(verdict.outcome) for verdict in entry.judge(run)}


@pytest.fixture
def inside():
    """Names of the claims of an entry whose values lie within their bounds, be the trials too few to decide them."""
    return lambda entry, run: {v.claim for v in entry.judge(run) if v.low <= v.value <= v.high}
