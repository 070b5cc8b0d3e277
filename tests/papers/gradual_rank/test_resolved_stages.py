"""Resolved stages: many points at once are as one by one, rests are counted, and claims refute wrong runs."""

import dataclasses

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.resolved_stages import _held, found, predicted
from saddlescope.reproduction import RunContext, find_entry

NAME = "gradual-rank/resolved-stages"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


@pytest.mark.slow
def test_many_points_at_once_are_as_one_by_one(run, tmp_path):
    quick = ENTRY.configure("quick")
    points = [
        quick,
        dataclasses.replace(quick, seed=301, seeds=1, log10_scales=(-16.0,)),
        dataclasses.replace(quick, seeds=1, log10_scales=(-2.0, -8.0), level=0.1),
    ]
    assert ENTRY.run_many is not None
    many = ENTRY.run_many(points, RunContext(scratch=tmp_path / "many"))
    xr.testing.assert_identical(many[0].drop_attrs(), run.drop_attrs())
    xr.testing.assert_identical(many[1].drop_attrs(), run.sel(seed=[301], scale=[-16.0]).drop_attrs())
    xr.testing.assert_identical(many[2], ENTRY.run(points[2], RunContext(scratch=tmp_path / "one")))


def test_numbers_agree(run):
    assert (found(run) <= run.plateaus).all()
    assert (predicted(run, 0.0) <= run.plateaus).all()
    there = run.efolds.notnull()
    assert (there.sum("plateau") == run.plateaus).all()
    assert (there == run.found.notnull()).all()
    # A smaller scale separates all of them further.
    assert (run.efolds.diff("scale").where(there.isel(scale=0)) > 0).sum() == 2 * int(run.plateaus.sum())


def test_rests_of_a_made_up_path_are_counted():
    times = np.linspace(0.0, 10.0, 2001)

    def rises(at, rate):
        return 1 / (1 + np.exp(-rate * (times - at)))

    quick = np.stack([rises(2, 20.0), rises(5, 20.0), rises(8, 20.0)], axis=1)
    assert _held(times, quick, 0.01) == 2  # the last span has no end
    slow = np.stack([rises(2, 20.0), rises(5, 1.0), rises(8, 1.0)], axis=1)
    assert _held(times, slow, 0.01) == 0  # each continues to rise until the next enters
    leaves = np.stack([rises(2, 20.0) - rises(8, 20.0), rises(5, 20.0)], axis=1)
    assert _held(times, leaves, 0.01) == 1  # the span that ends as a coordinate leaves does not rest
    assert _held(times, 0 * quick, 0.01) == 0


def test_wrong_runs_refute(run, outcomes):
    assert "refuted" not in outcomes(ENTRY, run).values()
    assert outcomes(ENTRY, xr.concat(20 * [run], "seed"))["sufficient"] == "reproduced"
    assert outcomes(ENTRY, run.assign(least=0 * run.least))["sufficient-visible"] == "undecided"
    none = outcomes(ENTRY, run.assign(found=0 * run.found))
    assert {none[name] for name in ("sufficient", "sufficient-visible", "each-plateau")} == {"refuted"}
    several = xr.concat([run, run.assign(found=0 * run.found), *(4 * [run.assign(found=run.found / 4)])], "seed")
    assert outcomes(ENTRY, several)["number-two"] == "refuted"


@pytest.mark.parametrize(("power", "verdict"), [(-0.7, "refuted"), (-1.0, "reproduced")])
def test_the_power_of_a_made_up_law_is_measured(run, outcomes, power, verdict):
    scales = np.array([-8.0, -16.0, -32.0, -64.0])
    total, seeds = 1000, 3
    lost = np.round(400 * (scales / -8.0) ** power).astype(int)
    there = (np.arange(total) >= (lost + np.arange(seeds)[:, None])[..., None]).astype(float)
    made = xr.Dataset(
        {
            "found": (("dim", "seed", "scale", "plateau"), there[None]),
            "efolds": (("dim", "seed", "scale", "plateau"), np.full((1, seeds, 4, total), 10.0)),
            "least": (("dim", "seed", "scale", "plateau"), np.ones((1, seeds, 4, total))),
            "held": (("dim", "seed", "scale"), np.zeros((1, seeds, 4))),
            "plateaus": (("dim", "seed"), np.full((1, seeds), total)),
        },
        coords={"scale": scales, "dim": [4], "seed": range(seeds)},
        attrs=run.attrs,
    )
    measured = {verdict.claim: verdict.value for verdict in ENTRY.judge(made)}
    assert measured["unresolved"] == pytest.approx(power, abs=0.01)
    assert outcomes(ENTRY, made)["one-over-log"] == verdict


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dims": "8,4"}, "dims must be one or more integers, each between 2 and 64, increasing"),
        (
            {"log10_scales": "-1,-400"},
            "log10_scales must be .* each at least -300 and below 0, decreasing",
        ),
        ({"level": "0.5"}, "level must be between 1e-06 and 0.1; got 0.5."),
        ({"seeds": "0"}, "seeds must be at least 1; got 0."),
    ],
)
def test_bad_parameters_are_refused(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("default", settings)
