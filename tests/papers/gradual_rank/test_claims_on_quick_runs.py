"""Claims of the theory entries at the quick size: they hold, and what did not happen does not decide."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction import RunContext, find_entry

INSIDE = {"holds", "agrees", "seen"}


@pytest.fixture
def made(quick_run):
    """Return a copy of the quick run of an entry."""
    return lambda name: quick_run(f"gradual-rank/{name}").run.copy(deep=True)


def judged(name, run):
    return {verdict.claim: str(verdict.outcome) for verdict in find_entry(f"gradual-rank/{name}").judge(run)}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("assumptions", {"leaving": "undecided"}),  # nothing leaves on these two seeds
        ("diagonal-linear", {}),
        ("example-3-2", {}),
        ("figure-10", {}),
        ("figure-11", {}),
        ("figure-2", {}),
        ("figure-8", {}),
        ("figure-2-v1", {}),
        ("gradient-descent", {"sgd-order": "undecided"}),  # four of four
        ("lemma-4-2", {}),
        ("theorem-4-1", {"weights-converge": "undecided"}),  # all weights are as near as the flow resolves
        ("tied-heads", {"at-most-one": "fails"}),
    ],
)
def test_claims_hold(made, name, others):
    found = judged(name, made(name))
    assert {claim: found.pop(claim) for claim in others} == others
    assert set(found.values()) <= INSIDE


def without(**gone):
    """Return a function that spoils variables: NaN, or a given value."""
    return lambda run: run.assign({name: run[name] * 0 + value for name, value in gone.items()})


UNDECIDED = [
    ("example-3-2", lambda run: run.assign(resolved=run.resolved & False), {"support"}),
    ("example-3-2", lambda run: run.isel(scale=[-1]), {"converges"}),
    ("example-3-2", without(found_time=np.nan), {"converges"}),
    ("figure-2", without(found_time=np.nan), {"times", "order"}),
    ("figure-2", lambda run: run.assign(resolved=run.resolved & False), {"support"}),
    ("figure-2", lambda run: run.isel(scale=[0]), {"loss-converges"}),
    ("figure-2-v1", without(found_time=np.nan), {"order"}),
    ("figure-10", lambda run: run.assign(noisy=run.weights), {"beta-returns"}),
    ("figure-10", lambda run: run.assign_attrs(theory_status="no_minimum", theory_message="None."), {"strict-minima"}),
    ("lemmas", without(distance=np.nan, log_error=np.nan, transition=np.nan), {"c-5", "c-6", "c-10"}),
    ("lemmas", without(d1=np.nan, d3=np.nan, largest_weight=np.nan), {"d-1", "d-3", "existence"}),
    ("lemmas", without(made_peak=0.0), {"d-4"}),
    ("theorem-4-1", without(resolved=0.0), {"plateaus"}),
    ("theorem-4-1", without(coarse_time=0.0), {"rate"}),  # far from the run at the finer tolerance
    ("theorem-4-1", lambda run: run.assign_coords(scale=run.scale / 2), {"order", "rate"}),
    ("tied-heads", without(found_time=np.nan, found_pair=np.nan), {"at-most-one", "ratio"}),
]


@pytest.mark.parametrize(("name", "spoil", "claims"), UNDECIDED)
def test_what_did_not_happen_is_undecided(made, name, spoil, claims):
    found = judged(name, spoil(made(name)))
    assert {found[claim] for claim in claims} == {"undecided"}


@pytest.mark.parametrize("name", ["assumptions", "diagonal-linear"])
def test_an_instance_that_algorithm_1_did_not_finish_decides_nothing(made, name):
    run = made(name)
    run.converged.values[0] = False
    assert set(judged(name, run).values()) == {"not tested"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stop", "kept"),
    [
        ("assumptions", "seed 1", {"seed=0"}),
        ("figure-2", "scale -16", {"theory", "scale=-2.0"}),
        ("figure-10", "moment 3", {"theory", "undisturbed", "moment=1", "moment=2"}),
    ],
)
def test_a_killed_run_resumes_to_the_same_result(made, tmp_path, name, stop, kept):
    class KilledError(Exception):
        pass

    def kill(fraction: float, note: str) -> None:
        if note.startswith(stop):
            raise KilledError

    entry = find_entry(f"gradual-rank/{name}")
    params = entry.configure("quick")
    with pytest.raises(KilledError):
        entry.run(params, RunContext(scratch=tmp_path, report=kill))
    times = {file.stem: file.stat().st_mtime_ns for file in tmp_path.glob("*.nc")}
    assert set(times) == kept
    again = entry.run(params, RunContext(scratch=tmp_path))
    assert {part: (tmp_path / f"{part}.nc").stat().st_mtime_ns for part in kept} == times
    xr.testing.assert_identical(again.drop_attrs(), made(name).drop_attrs())
