"""Figure 15: claims at the quick size, spoilt runs that refute them, and figures that show the stored images."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import RunContext, find_entry

NAME = "concept-learning/figure-15"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    run = quick_run(NAME).run.copy(deep=True)
    for name in ("mu", "signal", "image_signal", "signal_by_size", "overlap"):
        mean = run[name].mean("seed")  # two seeds leave too wide an interval to decide anything
        run[name] = mean + 1e-3 * (run[name] - mean)
    return run


def test_verdicts_of_the_quick_run(run, outcomes):
    found = outcomes(ENTRY, run)
    refuted = {"small-circles", "size-independent", "color-independent", "orthogonal"}
    assert {claim for claim, outcome in found.items() if outcome == "refuted"} == refuted
    assert {claim for claim, outcome in found.items() if outcome == "undecided"} <= {"calibrated", "reads-color"}


def sides_changed(run):
    run.attrs["compared"] = run.attrs["compared"][::-1]


def concepts_changed(run):
    for name in ("mu", "image_signal"):
        run[name].values[:] = run[name].sel(concept=["size", "color"]).values


def colours_that_saturate(run):
    run["signal"] = run.signal**0.9


def sizes_changed(run):
    run["signal"] = run.signal.isel(other=[1, 0]).assign_coords(other=run.other)


def colours_unlike(run):
    run.signal.loc[{"concept": "size", "other": "small or blue"}] *= 1.1


def no_circle(run):
    run.blank.values[0, 3] = True


def swapped_estimates(run):
    run.position.values[:] = run.position.values[..., ::-1]


def shifted_estimates(run):
    run.position.values[0, run.image_class.values == 2, 1] += 0.2


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (sides_changed, ("left", "right", "sensitivity")),
        (concepts_changed, ("left", "right", "sensitivity")),
        (colours_that_saturate, ("proportional",)),
        (sizes_changed, ("big-and-small",)),
        (colours_unlike, ("red-and-blue",)),
        (no_circle, ("seen",)),
        (swapped_estimates, ("reads-color", "reads-size", "calibrated")),
        (shifted_estimates, ("calibrated",)),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claims):
    spoil(run)
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in claims} == {"refuted"}


def independent_settings(run):
    run["mu"] = run.mu.where(run.concept == "color", 5.0 + 1e-6 * run.mu)
    run["signal_by_size"] = run.signal_by_size.isel(size_setting=0) + 1e-6 * run.signal_by_size
    run["overlap"] = 1e-6 * run.overlap


def test_independent_and_orthogonal_signals_would_be_seen(run, outcomes):
    independent_settings(run)
    found = outcomes(ENTRY, run)
    assert {found[name] for name in ("size-independent", "color-independent", "orthogonal")} == {"reproduced"}


def test_the_crossing_is_where_the_signals_are_equal(run):
    claim = next(claim for claim in ENTRY.claims if claim.name == "crossing")
    settings = run.color_setting.values  # 0.2, 0.4, 0.7
    log_ratio = np.array([-1.0, -0.5, 1.0])  # zero a third of the way from 0.4 to 0.7
    mu = run.mu.transpose("seed", "color_setting", "concept")
    run["mu"] = mu.copy(data=np.tile(np.exp(np.multiply.outer(log_ratio, [0.5, -0.5])), (mu.sizes["seed"], 1, 1)))
    assert claim.statistic(run).value == pytest.approx(settings[1] + (settings[2] - settings[1]) / 3)
    run["mu"] = 1 / run.mu
    assert np.isnan(claim.statistic(run).value)


def test_films_show_the_images_by_class_and_setting(run):
    films = [figure.film for figure in ENTRY.figures(run)]
    distributions, color, size = (film for film in films if film is not None)
    shown = run.shown_by_color.transpose("color_setting", "class", "example", "row", "column", "channel").values
    np.testing.assert_array_equal(color.images, shown)
    assert color.steps.tolist() == [0.2, 0.4, 0.7]
    assert size.images.shape == (2, 4, 3, 16, 16, 3)
    both = distributions.images[0]
    np.testing.assert_array_equal(both[:, :3], shown[2])  # left: 0.7
    np.testing.assert_array_equal(both[:, 4:], shown[0])
    assert both[:, 3].min() == 255
    big_red, big_blue = shown[2, 0], shown[2, 2]
    assert (big_red[..., 0].astype(int) - big_red[..., 2]).max() > 100
    assert (big_blue[..., 2].astype(int) - big_blue[..., 0]).max() > 100
    dark = (shown[..., 1] < 120).sum(axis=(-1, -2))
    assert np.all(dark[:, [0, 2]] > 2 * dark[:, [1, 3]])  # big, small


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"images": "1"}, "images must be at least 2"),
        ({"compared": "0.7,0.3"}, "compared must be two of color_settings"),
        ({"compared": "0.7"}, "compared must be two of color_settings"),
        ({"color_settings": "0.7,0.2"}, "color_settings must be two or more numbers, increasing"),
        ({"size_settings": "0.4"}, "size_settings must be two or more numbers, increasing"),
        ({"seeds": "1,1"}, "seeds must be one or more integers, each at least 0, each once"),
        ({"shown": "0"}, "shown must be at least 1"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"color_settings": "0.2,0.7,1.2"}, "color_signal must be above 0 and at most 1; got 1.2"),
        ({"size_settings": "0.4,0.9"}, "smallest circle must be at least"),
        ({"pixels": "8"}, "smallest circle must be at least"),
    ],
)
def test_circles_that_cannot_be_drawn_are_refused_before_any_is(settings, sentence, tmp_path):
    def report(fraction, note):
        raise AssertionError(note)

    with pytest.raises(InputError, match=sentence):
        ENTRY.run(ENTRY.configure("quick", settings), RunContext(scratch=tmp_path, report=report))
