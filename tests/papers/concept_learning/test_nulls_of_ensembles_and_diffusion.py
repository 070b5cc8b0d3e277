"""Statistics of figures 6 and 15, atlas and the map that detect effects, on runs without them."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from tests.null_runs import assert_detects

from saddlescope.reproduction import find_entry

STEPS = np.array([55 * 1.15**k for k in range(34)] + [6000.0]).round()
SEEDS, IMAGES = 8, 4


def logistic(halfway, speed=3.0):
    return 1 / 3 + 2 / 3 / (1 + (halfway / STEPS) ** speed)


def models(rng, make, jitter=0.02):
    """A run with the path `make(signal, rng)` of each model, jitter of each record and noise of each image.

    Successive records of the default run differ by about this jitter, and means of 16 images of a class by about 0.04.
    """
    path = np.array([[make(signal, rng) for _ in range(SEEDS)] for signal in range(2)])
    trained = np.broadcast_to(np.array([[0, 0], [0, 1], [1, 0]]), (*path.shape[:3], 3, 2))
    position = np.concatenate([trained, path[:, :, :, None]], axis=3)[..., None, :]
    position = position + 0.075 * rng.standard_normal((2, SEEDS, 1, 1, IMAGES, 2))
    position += jitter * rng.standard_normal((*path.shape[:3], 1, 1, 2))
    image = ("signal", "seed", "step", "class", "image")
    return xr.Dataset(
        {
            "position": ((*image, "concept"), position),
            "probability": ((*image, "concept"), position),
            "blank": (image, np.zeros(position.shape[:-1], bool)),
            "accuracy": 1.0,
        },
        coords={"step": STEPS, "concept": ["color", "size"]},
        attrs={"first_record": 50},
    )


def halfway(rng, around=500.0):
    return around * 2 ** rng.uniform(-0.5, 0.5)


def pair(signal, first, last):
    """Colour comes first at the first signal and last at the other."""
    return np.stack([first, last] if signal == 0 else [last, first], axis=1)


def any_order(signal, rng):
    """Both concepts are learned at times of one law, whatever the signal."""
    return np.stack([logistic(halfway(rng, 500 * 4 ** rng.uniform(-1, 1))) for _ in range(2)], axis=1)


def straight(signal, rng):
    return np.stack([logistic(halfway(rng))] * 2, axis=1)


def theory_path(signal, rng):
    """The second concept first falls, while the first is learned."""
    dip = 0.3 * np.exp(-(np.log(STEPS / 500) ** 2) * 4)
    return pair(signal, logistic(halfway(rng, 200)), logistic(halfway(rng, 1800), 4.0) - dip)


def any_peak(signal, rng):
    """The error rises in a dip of both concepts, in which each is above or below the middle by chance."""
    dip = np.exp(-(np.log(STEPS / 500) ** 2) * 4)
    return 0.75 - dip[:, None] * rng.choice([0.1, 0.45], 2)


def no_return(signal, rng):
    """The error rises as in theory and stays."""
    return pair(signal, logistic(halfway(rng, 200)), 1 / 3 - 0.2 / (1 + (500 / STEPS) ** 3))


def power_law(signal, rng):
    """From 1/2 at step 400, both approach the end as a power law."""
    return np.stack([1 - 0.5 * (STEPS / 400) ** -rng.uniform(0.7, 1.2)] * 2, axis=1)


def exponential(signal, rng):
    return np.stack([1 - 0.5 * np.exp(-(STEPS - 400) / rng.uniform(600, 1200))] * 2, axis=1)


def at_the_end(signal, rng):
    return np.where(STEPS[:, None] < 400, 0.4, 1.0) * np.ones(2)


@pytest.mark.slow  # 200 draws of a long run
@pytest.mark.parametrize(
    ("claim", "null", "effect"),
    [
        ("reversal", any_order, theory_path),
        ("speed", any_order, theory_path),
        ("bend", straight, theory_path),
        ("rise", straight, theory_path),
        ("memorizing", any_peak, theory_path),
        ("transient", no_return, theory_path),
        ("exponential-approach", power_law, exponential),
        ("exponential-approach", at_the_end, exponential),
    ],
)
def test_effects_in_diffusion_models(claim, null, effect):
    null, effect = partial(models, make=null), partial(models, make=effect)
    assert_detects("concept-learning/figure-6", claim, null=null, effect=effect)


def blank(run):
    run.blank.values[..., :2] = True


def far_from_the_classes(run):
    run["position"] = run.position * 0.5


def wrong_about_true_images(run):
    run["accuracy"] = 0.9


def without_records(run):
    run.blank.values[:, 1:, :-1] = True
    run.position.values[:, 1:, :-1] = np.nan


@pytest.mark.parametrize(
    ("change", "claim", "outcome"),
    [
        (blank, "reversal", "not tested"),
        (far_from_the_classes, "reversal", "not tested"),
        (wrong_about_true_images, "reversal", "not tested"),
        (without_records, "bend", "undecided"),
    ],
)
def test_models_that_have_not_learned_are_not_judged(change, claim, outcome):
    run = models(np.random.default_rng(0), theory_path)
    change(run)
    (judged,) = (one for one in find_entry("concept-learning/figure-6").claims if one.name == claim)
    assert judged.judge(run).outcome == outcome


def atlas(rng, gain):
    """Visible descents, one or two, of 420 starts in each cell, of which a share has two."""
    two = rng.binomial(420, 0.1 + gain * np.array([0.0, 0.5, 1.0])[:, None, None], (3, 1, 5))
    counts = np.stack([0 * two, 420 - two, two], axis=-1)
    coords = {"ratio": [1.1, 2.0, 3.0], "factor": [1], "scale": [0.001, 0.003, 0.01, 0.03, 0.1], "descents": [0, 1, 2]}
    return xr.Dataset({"visible": (tuple(coords), counts)}, coords)


def diversity(rng, gain, diverse):
    """In each cell all starts fail, or none, or some, and the same cells at every sigma without an effect."""
    change = gain * np.array({"both": [0, -1, -2, -3, -4, -4], "strong": [0, 0, 0, 1, 3, 5]}[diverse])
    share = np.clip(0.45 + 0.6 * rng.standard_normal((7, 1, 4, 1)) + change[:, None, None], 0, 1)
    fails = rng.random((2, 1, 7, 6, 4, 16)) < share
    dims = ("model", "diverse", "ratio", "sigma", "scale", "start")
    return xr.Dataset({"at_stop": (dims, np.where(fails, 0.2, 0.8))}, {"diverse": [diverse], "sigma": range(6)})


def signals(rng, gain):
    """Signals of five seeds that differ by 3 % from seed to seed, of both concepts alike or in a ratio."""
    signal = 10 * np.exp(0.03 * rng.standard_normal((2, 5, 2)))
    signal[:, :, 0] *= [[1 + gain], [1 / (1 + gain)]]
    return xr.Dataset({"mu": (("color_setting", "seed", "concept"), signal)}, {"concept": ["color", "size"]})


@pytest.mark.parametrize(
    ("entry", "claim", "draw", "gain"),
    [
        ("figure-15", "stronger", signals, 0.2),
        ("atlas", "apart", atlas, 0.2),
        ("generalisation-map", "diversity-helps", partial(diversity, diverse="both"), 0.1),
        ("generalisation-map", "diversity-hides", partial(diversity, diverse="strong"), 0.1),
    ],
)
def test_differences_of_samples(entry, claim, draw, gain):
    assert_detects(f"concept-learning/{entry}", claim, null=partial(draw, gain=0.0), effect=partial(draw, gain=gain))
