"""Statistics of figures 6 and 15, descents, width, atlas and the map that detect effects, on runs without them."""

import numpy as np
import pytest
import xarray as xr
from tests.null_runs import assert_detects

FIGURE_6 = "concept-learning/figure-6"
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
    ],
)
def test_effects_in_diffusion_models(claim, null, effect):
    assert_detects(FIGURE_6, claim, null=lambda rng: models(rng, null), effect=lambda rng: models(rng, effect))


def at_the_end(signal, rng):
    return np.where(STEPS[:, None] < 400, 0.4, 1.0) * np.ones(2)


@pytest.mark.slow  # 200 draws of a long run
@pytest.mark.parametrize("null", [power_law, at_the_end])
def test_an_exponential_approach_is_told_from_a_power_law_in_jitter(null):
    assert_detects(
        FIGURE_6, "exponential-approach",
        null=lambda rng: models(rng, null), effect=lambda rng: models(rng, exponential),
    )  # fmt: skip


@pytest.mark.parametrize("claim", ["matching", "two-layers"])
def test_fits_of_the_theory(claim):
    """Errors of the fits of eight seeds: of both depths and all images alike, or of the preferred ones half of that."""

    def fits(rng, effect):
        run = models(rng, theory_path)
        run["theory_error"] = ("layers", "signal", "seed"), rng.lognormal(-2, 0.3, (2, 2, SEEDS))
        run["theory_error"] *= xr.DataArray([0.5 if effect else 1.0, 1.0], dims="layers")
        run["unmatched_error"] = ("signal", "seed"), rng.lognormal(-2, 0.3, (2, SEEDS))
        return run.assign_coords(layers=["two", "one"])

    assert_detects(FIGURE_6, claim, null=lambda rng: fits(rng, False), effect=lambda rng: fits(rng, True))


def test_predicted_order():
    def predicted(rng, right):
        run = models(rng, any_order)
        order = np.array([[100.0, 200.0], [100.0, 200.0]])
        if right:
            run = models(rng, theory_path)
            order[1] = [200.0, 100.0]
        times = np.broadcast_to(order[:, None], (2, SEEDS, 2))
        return run.assign(theory_learned=(("signal", "seed", "concept"), times))

    assert_detects(
        FIGURE_6, "predicted-order", null=lambda rng: predicted(rng, False), effect=lambda rng: predicted(rng, True)
    )


def multinomial(rng, starts, several, dims, shape):
    """Counts of starts with one descent and with two, (..., descents), of which a share has two."""
    two = rng.binomial(starts, several, shape)
    return (dims, np.stack([0 * two, starts - two, two], axis=-1))


def descents(rng, gain):
    """Visible descents of 50,000 starts of each law, as in the default run."""
    dims = ("data", "law", "hysteresis", "descents")
    counts = multinomial(rng, 50_000, 0.2 + gain * np.array([0.0, 1.0])[None, :, None], dims, (1, 2, 1))
    return xr.Dataset(
        {"counts_at": counts}, {"data": ["Figure 5"], "law": ["normal", "uniform"], "hysteresis": [0.01],
                                "descents": [0, 1, 2]},
    )  # fmt: skip


def atlas(rng, gain):
    dims, shape = ("ratio", "factor", "scale", "descents"), (3, 1, 5)
    counts = multinomial(rng, 420, 0.1 + gain * np.array([0.0, 0.5, 1.0])[:, None, None], dims, shape)
    coords = {"ratio": [1.1, 2.0, 3.0], "factor": [1], "scale": [0.001, 0.003, 0.01, 0.03, 0.1], "descents": [0, 1, 2]}
    return xr.Dataset({"visible": counts}, coords)


def widths(rng, gain):
    starts = np.array([12_000, 400])
    visible = rng.binomial(starts[:, None, None], 0.15 + gain * np.array([1.0, 0.0])[:, None, None], (2, 1, 5))
    cells = ("dim", "scale", "width")
    return xr.Dataset(
        {"visible": (cells, visible), "starts": (cells, np.broadcast_to(starts[:, None, None], visible.shape))},
        {"dim": [2, 8]},
    )


@pytest.mark.parametrize(
    ("entry", "claim", "draw", "gain"),
    [
        ("descents", "positive", descents, 0.05),
        ("atlas", "apart", atlas, 0.2),
        ("width", "dimension", widths, 0.15),
    ],
)
def test_differences_of_shares(entry, claim, draw, gain):
    name = f"concept-learning/{entry}"
    assert_detects(name, claim, null=lambda rng: draw(rng, 0.0), effect=lambda rng: draw(rng, gain))


@pytest.mark.parametrize(
    ("claim", "diverse", "change"),
    [
        ("diversity-helps", "both", [0, -0.1, -0.2, -0.3, -0.4, -0.4]),
        ("diversity-hides", "strong", [0, 0, 0, 0.1, 0.3, 0.5]),
    ],
)
def test_effects_of_diversity(claim, diverse, change):
    """In each cell all starts fail, or none, or some, and the same cells at every sigma without an effect."""

    def draw(rng, change):
        share = np.clip(0.45 + 0.6 * rng.standard_normal((7, 1, 4, 1)) + np.array(change)[:, None, None], 0, 1)
        fails = rng.random((2, 1, 7, 6, 4, 16)) < share
        dims = ("model", "diverse", "ratio", "sigma", "scale", "start")
        return xr.Dataset({"at_stop": (dims, np.where(fails, 0.2, 0.8))}, {"diverse": [diverse], "sigma": range(6)})

    assert_detects(
        "concept-learning/generalisation-map", claim,
        null=lambda rng: draw(rng, np.zeros(6)), effect=lambda rng: draw(rng, change),
    )  # fmt: skip


def test_ratios_of_signals():
    """Signals of five seeds that differ by 3 % from seed to seed, of both concepts alike or in a ratio."""

    def draw(rng, ratio):
        signal = 10 * np.exp(0.03 * rng.standard_normal((2, 5, 2)))
        signal[:, :, 0] *= [[ratio], [1 / ratio]]
        return xr.Dataset({"mu": (("color_setting", "seed", "concept"), signal)}, {"concept": ["color", "size"]})

    assert_detects(
        "concept-learning/figure-15", "stronger", null=lambda rng: draw(rng, 1.0), effect=lambda rng: draw(rng, 1.2)
    )
