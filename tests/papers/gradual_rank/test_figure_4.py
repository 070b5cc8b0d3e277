"""The claims of Figures 4, 5 and 15 can fail, and say so when one seed decides nothing."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import RunContext, find_entry

NAME = "gradual-rank/figure-4"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


def tilt(run):
    """A factor for each seed: seeds that agree to the last bit show no spread, and decide nothing."""
    return 1 + 0.01 * (run.seed - run.seed[0])


def rising(run, product, by):
    """Every head's stable rank goes from 1 to 1 + by over the run, a little differently for each seed."""
    ramp = np.linspace(0, by, run.sizes["step"])[None, :, None, None]
    tilt = 1 + 0.01 * np.arange(run.sizes["seed"])[:, None, None, None]
    run.stable_rank.loc[{"product": product}] = 1 + ramp * tilt
    return run


@pytest.mark.parametrize("product", ["KQ", "VO"])
def test_the_rise_has_a_sign(run, outcomes, product):
    assert outcomes(ENTRY, rising(run, product, 0.5))[f"rise-{product}"] == "seen"
    assert outcomes(ENTRY, rising(run, product, -0.5))[f"rise-{product}"] == "not seen"


@pytest.mark.parametrize("product", ["KQ", "VO"])
def test_an_update_as_wide_as_the_initial_product_is_not_low_rank(run, outcomes, product):
    run.stable_rank.loc[{"product": product}] = run.initial_stable_rank.sel(product=product) * tilt(run)
    assert outcomes(ENTRY, run)[f"low-{product}"] == "not seen"


def test_a_flat_spectrum_is_not_low_rank(run, outcomes):
    run["energy_rank"] = run.initial_energy_rank * tilt(run)
    assert outcomes(ENTRY, run)["spectrum-KQ"] == "not seen"


def test_a_network_that_did_not_learn_is_seen(run, outcomes):
    run.train_loss.values[:] = 2.3
    run.train_loss.loc[{"epoch": run.epoch[-1]}] = 2.3 * tilt(run)
    found = outcomes(ENTRY, run)
    assert found.pop("learned") == "refuted"
    assert set(found.values()) == {"not tested"}


def test_one_seed_decides_nothing(run, outcomes):
    assert set(outcomes(ENTRY, run.isel(seed=[0])).values()) == {"undecided", "not tested"}


def test_official_data_without_a_folder_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="SADDLESCOPE_DATA"):
        ENTRY.run(ENTRY.configure("quick", {"dataset": "mnist"}), RunContext(scratch=tmp_path))


@pytest.mark.data
@pytest.mark.parametrize(("dataset", "patch"), [("mnist", "7"), pytest.param("cifar10", "8", marks=pytest.mark.slow)])
def test_official_data_are_used(data_folder, tmp_path, dataset, patch):
    params = ENTRY.configure(
        "quick", {"dataset": dataset, "patch": patch, "images": "100", "epochs": "2", "batch": "20", "seeds": "0"}
    )
    run = ENTRY.run(params, RunContext(scratch=tmp_path, data=data_folder))
    assert run.attrs["dataset"] == dataset
    assert np.isfinite(run.stable_rank.values).all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"epochs": "0"}, "epochs must be at least 1"),
        ({"initial_scale": "-1"}, "initial_scale must be between 1e-06 and"),
        ({"seeds": "1,1"}, "seeds must be one or more integers, each at least 0, each once"),
        ({"warmup_epochs": "99"}, "warmup_epochs must be below epochs=12; got 99"),
        ({"dataset": "cifar-10"}, "did you mean cifar10"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)
