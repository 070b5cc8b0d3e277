"""Figure 6: claims on its quick run, statistics on synthetic runs with known answers, invalid input."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.figure_6.claims import rise_by_images, rise_of_circles
from saddlescope.papers.concept_learning.figure_6.theory import predict_trajectories
from saddlescope.reproduction import RunContext, find_entry

NAME = "concept-learning/figure-6"
ENTRY = find_entry(NAME)
STEPS = np.unique(np.geomspace(20, 4000, 60).round())
CLASSES = ["red, big", "red, small", "blue, big", "blue, small"]
CONCEPTS = ["color", "size"]


def grown(halfway, speed=3.0):
    """A coordinate from about 1/3 to 1."""
    return 1 / 3 + 2 / 3 / (1 + (halfway / STEPS) ** speed)


def made_of(paths, *, seeds=4, images=4, noise=0.02):
    """A run with these trajectories of the unseen class, one (step, concept) a signal, and the others learned."""
    rng = np.random.default_rng(0)
    position = np.zeros((len(paths), seeds, len(STEPS), 4, images, 2))
    position[..., :3, :, :] = np.array([[0, 0], [0, 1], [1, 0]])[:, None]
    position[..., 3, :, :] = np.array(paths)[:, None, :, None]
    position += noise * rng.standard_normal((seeds, 1, 1, images, 2))  # of the same samples at every record
    image = ("signal", "seed", "step", "class", "image")
    return xr.Dataset(
        {
            "position": ((*image, "concept"), position),
            "raw_position": (("signal", "seed", "step", "unseen", "image", "concept"), position[:, :, :, 3:]),
            "probability": ((*image, "concept"), np.clip(position, 0, 1)),
            "blank": (image, np.zeros(position.shape[:-1], bool)),
            "mu": (("signal", "concept"), [[8.4, 5.5], [2.4, 4.0]][: len(paths)]),
            "sigma": (("signal", "concept"), [[0.7, 1.0], [0.5, 0.8]][: len(paths)]),
            "overlap": ("signal", [0.45, 0.17][: len(paths)]),
            "accuracy": (("signal", "concept"), np.ones((len(paths), 2))),
        },
        coords={
            "signal": [0.7, 0.2],
            "seed": range(seeds),
            "step": STEPS,
            "class": CLASSES,
            "concept": ["color", "size"],
        },
        attrs={"first_record": 50, "held_out": 4096},
    )


@pytest.fixture(scope="module")
def run():
    """Colour first at the first signal, size first at the second, with a dip of the slower one each time."""
    early, late = grown(200), grown(1500, 4.0) - 0.25 * np.exp(-(np.log(STEPS / 500) ** 2) * 4)
    made = made_of([np.stack([early, late], axis=1), np.stack([late, early], axis=1)])
    return made.merge(predict_trajectories(made, starts=4))


OUTCOMES = {"seen": "reproduced", "not seen": "refuted"}  # of stand-ins


def judged(run, names):
    found = {claim.name: str(claim.judge(run).outcome) for claim in ENTRY.claims if claim.name in names}
    return {name: OUTCOMES.get(outcome, outcome) for name, outcome in found.items()}


@pytest.fixture
def spoilt(run):
    return run.copy(deep=True)


def test_claims_on_a_run_as_the_paper_has_it(run):
    claims = ("blank", "trained-classes", "classifier", "estimators", "color-first", "size-first", "speed",
                  "bend-strong", "bend-weak", "rise", "rise-of-circles", "rise-raw", "rise-strong",
                  "rise-weak", "transient", "slows", "predicted-order", "matching-adam")  # fmt: skip
    assert judged(run, claims) == dict.fromkeys(claims, "reproduced")


def other_order(run):
    run["position"] = run.position.isel(concept=[1, 0]).assign_coords(concept=run.concept)


def blanks(run):
    run.blank.values[..., :2] = True


def no_classes(run):
    run["position"] = run.position * 0.5


def imperfect(run):
    run.accuracy.values[0, 1] = 0.9999


def other_probabilities(run):
    run["probability"] = 1 - run.probability


def steady(run, first, last, steps=None):
    """The unseen class goes straight from one place to another on the diagonal, each seed at its own distance."""
    path = np.interp(np.arange(len(STEPS)) if steps is None else steps, [0, len(STEPS) - 1], [first, last])
    path = path[:, None, None] + 0.01 * np.arange(run.sizes["seed"])[:, None, None, None]
    run.position.values[..., 3, :, :] = path
    run.raw_position.values[..., 0, :, :] = path


def monotone(run):
    steady(run, 0.2, 0.9)


def never(run):
    run["position"] = run.position.where(run.position < 0.6, 0.6)


def no_slowing(run):
    steady(run, 0.2, 0.9, steps=STEPS / STEPS[-1] * (len(STEPS) - 1))


def no_return(run):
    steady(run, 0.6, 0.2)


def other_theory(run):
    run["theory_learned"] = run.theory_learned.isel(concept=[1, 0]).assign_coords(concept=run.concept)
    run["theory_lead"] = -run.theory_lead
    run["theory_rise"] = run.theory_rise + 1.0
    run["theory_rate"] = 100 * run.theory_rate
    run["theory_error"] = run.theory_error * [[[3.0]], [[1.0]], [[1.0]], [[3.0]]]
    run["own_pace"] = run.own_pace * [[1.0], [100.0]]
    run["unmatched_error"] = run.unmatched_error / 3


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (blanks, ["blank"]),
        (no_classes, ["trained-classes"]),
        (imperfect, ["classifier"]),
        (other_probabilities, ["estimators", "classifier-order"]),
        (other_order, ["color-first", "size-first", "reversal", "speed", "predicted-order"]),
        (other_order, ["bend-strong", "bend-weak"]),
        (monotone, ["rise", "rise-raw", "rise-strong", "rise-weak"]),
        (never, ["color-first", "size-first"]),
        (no_slowing, ["slows"]),
        (no_return, ["transient"]),
        (other_theory, ["predicted-order", "predicted-ratio", "predicted-bend", "predicted-rise", "predicted-rate",
                        "predicted-rate-adam", "matching", "matching-adam", "two-layers", "pace", "pace-adam"]),
    ],
)  # fmt: skip
def test_spoilt_runs_refute(spoilt, spoil, claims):
    spoil(spoilt)
    assert judged(spoilt, claims) == dict.fromkeys(claims, "refuted")


def test_seeds_and_signals_without_records_stay_undecided(spoilt):
    spoilt.blank.values[1, 1:] = True
    for name in ("position", "raw_position"):
        spoilt[name].values[1, 1:] = np.nan
    bare = spoilt.drop_vars([name for name in spoilt if name not in made_of([grown(200)[:, None] * [1, 1]] * 2)])
    again = bare.merge(predict_trajectories(bare, starts=2))
    assert np.isfinite(again.theory_error.isel(signal=1, seed=0)).all()
    assert np.isnan(again.theory_error.isel(signal=1, seed=slice(1, None))).all()
    assert judged(again, ("predicted-bend", "bend-weak", "rise-weak")) == {
        "predicted-bend": "undecided", "bend-weak": "undecided", "rise-weak": "undecided",
    }  # fmt: skip


def test_predicted_order_and_pace_are_those_of_the_strengths(run):
    total = run.strength.sum("concept").values
    two, adam = run.pace.sel(abstraction="two layers"), run.pace.sel(abstraction="two layers, AdamW's pace")
    np.testing.assert_allclose(adam / two, (total / total[0])[:, None] * np.ones((1, 4)))
    assert (run.theory_learned.isel(signal=0, concept=0) < run.theory_learned.isel(signal=0, concept=1)).all()
    assert (run.theory_learned.isel(signal=1, concept=0) > run.theory_learned.isel(signal=1, concept=1)).all()


def test_no_rise_is_found_in_noise_of_the_images(run):
    """A largest rise is above 0 on any noisy curve: read off other images and records, it is not."""
    noisy = made_of([np.stack([np.linspace(0.3, 0.9, len(STEPS))] * 2, axis=1)] * 2, seeds=8, images=8)
    rng = np.random.default_rng(1)
    noisy["position"] = noisy.position + 0.3 * rng.standard_normal(noisy.position.shape)
    measured = rise_by_images(noisy)
    assert measured.value < measured.uncertainty  # the path falls between dip and peak
    assert judged(noisy, ["rise"]) != {"rise": "reproduced"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("signals", (0.7,)), ("signals", (0.2, 0.7)), ("signals", (1.2, 0.2)), ("signals", (0.7, 0.0)),
        ("seeds", ()), ("seeds", (1, 1)), ("seeds", (-1,)), ("first_record", 10_000), ("size_signal", 0.0),
        ("size_signal", 1.5), ("steps", 0), ("record_images", 1), ("learning_rate", -1.0), ("average", 1.5),
        ("images", 1), ("held_out", 3), ("weight_decay", -1.0), ("record_ratio", 1.0), ("batch", 10_000),
    ],
)  # fmt: skip
def test_bad_input_is_refused_at_once(field, value):
    with pytest.raises(InputError, match=field):
        ENTRY.params(**{field: value})


def test_a_resumed_run_has_the_same_result(quick_run, tmp_path, types_unchecked):
    def kill(fraction, note):
        if fraction > 0.6:
            raise KeyboardInterrupt

    with types_unchecked():
        params = ENTRY.configure("quick")
        with pytest.raises(KeyboardInterrupt):
            ENTRY.run(params, RunContext(scratch=tmp_path, report=kill))
        finished = {file.stem for file in tmp_path.glob("*.nc")}
        again = ENTRY.run(params, RunContext(scratch=tmp_path))
    assert finished >= {"signal-0.7-seed-0", "signal-0.7-seed-1"}
    xr.testing.assert_identical(again.drop_attrs(), quick_run(NAME).run.drop_attrs())


def test_a_rise_among_noise_is_no_rise_of_circles():
    """Noise makes the error rise between steps 60 and 90; a later rise counts for both."""
    early, late = grown(200), grown(1500, 4.0)
    bump = 0.3 * np.exp(-(np.log(STEPS / 90) ** 2) * 20)
    noisy = made_of([np.stack([early - bump, late - bump], axis=1)] * 2)
    assert rise_by_images(noisy).value > 0.05
    assert rise_of_circles(noisy).value < 0.01
    dip = 0.25 * np.exp(-(np.log(STEPS / 500) ** 2) * 4)
    both = made_of([np.stack([early - bump, late - bump - dip], axis=1)] * 2)
    assert rise_of_circles(both).value > 0.05
