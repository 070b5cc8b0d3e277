"""Figure 6: claims on synthetic runs with known answers, and a resumed quick run."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.papers.concept_learning.figure_6.theory import predict_trajectories
from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-6"
ENTRY = find_entry(NAME)
STEPS = np.unique(np.geomspace(20, 4000, 60).round())


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
            "probability": ((*image, "concept"), np.clip(position, 0, 1)),
            "blank": (image, np.zeros(position.shape[:-1], bool)),
            "mu": (("signal", "concept"), [[8.4, 5.5], [2.4, 4.0]]),
            "sigma": (("signal", "concept"), [[0.7, 1.0], [0.5, 0.8]]),
            "accuracy": (("signal", "concept"), np.ones((2, 2))),
        },
        coords={"signal": [0.7, 0.2], "step": STEPS, "concept": ["color", "size"]},
        attrs={"first_record": 50},
    )


@pytest.fixture(scope="module")
def run():
    """Colour first at the first signal, size first at the second, with a dip of the slower one each time."""
    early, late = grown(200), grown(1500, 4.0) - 0.25 * np.exp(-(np.log(STEPS / 500) ** 2) * 4)
    made = made_of([np.stack([early, late], axis=1), np.stack([late, early], axis=1)])
    return made.merge(predict_trajectories(made, starts=4))


@pytest.fixture
def spoilt(run):
    return run.copy(deep=True)


def judged(run, *names):
    return {str(claim.judge(run).outcome) for claim in ENTRY.claims if claim.name in names}


def test_claims_on_a_run_as_the_paper_has_it(run):
    names = ("reversal", "speed", "bend", "rise", "memorizing", "transient", "predicted-order")
    assert judged(run, *names) == {"seen"}
    times = run.theory_learned
    assert (times.isel(signal=0, concept=0) < times.isel(signal=0, concept=1)).all()
    assert (times.isel(signal=1, concept=0) > times.isel(signal=1, concept=1)).all()


@pytest.mark.parametrize("what", ["blank", "classes", "accuracy", "probability"])
def test_models_that_have_not_learned_are_not_judged(spoilt, what):
    if what == "blank":
        spoilt.blank.values[..., :2] = True
    elif what == "classes":
        spoilt["position"] = spoilt.position * 0.5
    else:
        spoilt[what] = 0.9 - 0.8 * spoilt[what]
    assert judged(spoilt, "reversal") == {"not tested"}


def test_seeds_and_signals_without_records_stay_undecided(spoilt):
    spoilt.blank.values[1, 1:, :-1] = True
    spoilt.position.values[1, 1:, :-1] = np.nan
    bare = spoilt.drop_vars(["theory", "theory_error", "theory_learned", "layers"])
    again = bare.merge(predict_trajectories(bare, starts=2))
    assert np.isfinite(again.theory_error.isel(signal=1, seed=0)).all()
    assert judged(again, "bend") == {"undecided"}
