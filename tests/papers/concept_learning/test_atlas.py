"""The atlas: a killed run resumes to the same result, its numbers agree, and a wrong run refutes."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction import RunContext, find_entry

NAME = "concept-learning/atlas"
ENTRY = find_entry(NAME)


def test_a_killed_run_resumes_to_the_same_result(run, tmp_path):
    def dies(fraction, note):
        if fraction > 0.4:
            raise KeyboardInterrupt

    params = ENTRY.configure("quick")
    with pytest.raises(KeyboardInterrupt):
        ENTRY.run(params, RunContext(scratch=tmp_path, report=dies))
    rows = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("row-*.nc")}
    assert len(rows) == 1  # of 4
    notes = []
    again = ENTRY.run(params, RunContext(scratch=tmp_path, report=lambda fraction, note: notes.append(fraction)))
    assert notes[0] == 1 / 4
    assert rows.items() <= {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("row-*.nc")}.items()
    xr.testing.assert_identical(again.drop_attrs(), run.drop_attrs())


def test_numbers_agree(run):
    assert (run.counts.sum("descents") == 64).all()
    assert (run.visible.sum("descents") == 64).all()
    assert (((run.counts - run.visible) * run.descents).sum("descents") >= 0).all()
    assert (run.counts.sel(concepts=2, descents=slice(3, None)) == 0).all()
    assert (run.rise.diff("quantile") >= 0).all()
    assert (run.time.diff("quantile") >= 0).all()
    assert (run.largest_rise >= run.rise.isel(quantile=-1)).all()
    several = run.counts.sel(descents=slice(2, None)).sum("descents")
    np.testing.assert_array_equal(several > 0, run.largest_rise > 0)


def test_equal_strengths_generalize_when_the_smallest_eigenvalue_has_grown(run):
    """For d = d' = 2 and a = (a, a) the smallest eigenvalue of W is logistic: median time against its law."""
    start = 0.01 * np.random.default_rng(1).standard_normal((20_000, 2, 2))
    least = np.linalg.norm(start, -2, axis=(1, 2)) ** 2
    predicted = np.median(np.log(1 / least - 1))
    median = run.time.sel(concepts=2, ratio=1.0, sigma=0.05, scale=0.01, factor=1, quantile=0.5)
    assert predicted < float(median) < predicted + 3.5  # between an eigenvalue of 1/2 and one of 0.97


def test_claims_of_the_quick_size(run, outcomes):
    verdicts = outcomes(ENTRY, run)
    assert {name for name, verdict in verdicts.items() if verdict == "undecided"} <= {"apart", "logarithmic", "wide"}
    assert "refuted" not in verdicts.values()


def an_exception(run):
    run.exceptions[{"concepts": 1, "ratio": 1, "sigma": 0, "scale": 0, "factor": 0}] = 1


def a_failure(run):
    run.failures[{"concepts": 0, "ratio": 0, "sigma": 0, "scale": 0, "factor": 1}] = 1


def two_with_equal_strengths(run):
    run.counts[{"concepts": 0, "ratio": 0, "sigma": 0, "scale": 0, "factor": 0}] = np.array([0, 63, 1, 0, 0])


def wide_as_narrow(run):
    run.visible[:] = np.array([0, 48, 16, 0, 0])


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (an_exception, "conjecture"),
        (a_failure, "all-learn"),
        (two_with_equal_strengths, "equal"),
        (wide_as_narrow, "wide"),
    ],
)
def test_a_wrong_run_refutes(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_claims_on_more_of_the_grid(run, outcomes):
    """The slope needs two scales up to 0.01, and the effect of the distance of concepts two ratios above 1."""
    finer = run.assign_coords(scale=[0.001, 0.01], ratio=[1.5, 3.0])
    finer["time"] = -2 * np.log(finer.scale) * xr.DataArray([0.999, 1.001], dims="concepts") + 0 * finer.time
    finer.visible[{"ratio": 0}] = np.array([0, 64, 0, 0, 0])
    verdicts = outcomes(ENTRY, finer)
    assert (verdicts["logarithmic"], verdicts["apart"]) == ("reproduced", "reproduced")
    finer["time"] = finer.time * 0.9
    finer["visible"] = finer.visible.isel(ratio=[1, 0]).assign_coords(ratio=finer.ratio)
    verdicts = outcomes(ENTRY, finer)
    assert (verdicts["logarithmic"], verdicts["apart"]) == ("refuted", "refuted")


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"starts": "3"}, "starts must be at least 16"),
        ({"ratios": "2,1"}, "ratios must be one or more numbers, each between 1 and 100, increasing"),
        ({"scales": "0"}, "scales must be one or more numbers, each between 1e-06 and 100, increasing"),
        ({"factors": "0,1"}, "factors must be one or more integers, each between 1 and 100, increasing"),
    )
