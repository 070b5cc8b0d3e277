"""The comparison of LoRAs is fair, its claims can fail, and its ranks are those of the spectra it stores."""

import numpy as np
import pytest

from saddlescope.errors import InputError
from saddlescope.papers import find
from saddlescope.train.lora import allocate_ranks

ENTRY = find("gradual-rank/lora-schedule")


@pytest.fixture
def run(quick_run):
    return quick_run(ENTRY.name).run.copy(deep=True)


def ending(run, **losses):
    """The arms start at 5 and end at these losses, a little apart from seed to seed."""
    run.test_loss.values[:, :, 0] = 5.0
    for arm, loss in losses.items():
        run.test_loss.loc[{"arm": arm, "test": -1 % run.sizes["test"]}] = (
            loss - 1e-4 * np.arange(run.sizes["seed"]) ** 2
        )
    return run


def test_all_arms_of_a_seed_start_from_one_trained_model(run):
    start = run.test_loss.isel(test=0)
    np.testing.assert_allclose(start.sel(arm="constant"), start.sel(arm="full"), rtol=1e-6)
    np.testing.assert_allclose(start.sel(arm="schedule"), start.sel(arm="full"), rtol=1e-6)
    assert len(np.unique(start.sel(arm="full"))) == run.sizes["seed"]


def test_the_probe_is_paid_for(run):
    last = run.test_step.isel(test=-1, seed=0)
    params = ENTRY.params("quick")
    assert int(last.sel(arm="full")) == int(last.sel(arm="schedule")) == params.steps
    assert int(last.sel(arm="constant")) == params.steps + params.probe


def test_ranks_are_those_of_the_stored_spectra(run):
    shapes = {"attn.c_attn": (32, 96), "attn.c_proj": (32, 32), "mlp.c_fc": (32, 128), "mlp.c_proj": (128, 32)}
    by_name = {name: shapes[name[len("transformer.h.0.") : -len(".weight")]] for name in run.matrix.values.tolist()}
    assert run.parameters_a_rank.isel(seed=0).values.tolist() == [sum(shape) for shape in by_name.values()]
    budget = 2 * int(run.parameters_a_rank.isel(seed=0).sum())
    for seed in run.seed:
        for table, record in (("schedule", "probe"), ("hindsight", "end")):
            spectra = run.spectrum.sel(seed=seed, record=record)
            wanted = allocate_ranks(
                {name: spectra.sel(matrix=name).values for name in by_name}, by_name, parameters=budget
            )
            assert run["rank"].sel(seed=seed, table=table).values.tolist() == list(wanted.values())
    assert (run["rank"].sel(table="constant") == 2).all()


def test_the_better_arm_is_the_one_whose_loss_ends_lower(run, outcomes):
    found = outcomes(ENTRY, ending(run, constant=4.5, schedule=4.4))
    assert (found["better"], found["worth-it"], found["task-is-learnt"]) == ("reproduced",) * 3
    found = outcomes(ENTRY, ending(run, constant=4.5, schedule=4.49))
    assert (found["better"], found["worth-it"]) == ("reproduced", "refuted")
    found = outcomes(ENTRY, ending(run, constant=4.5, schedule=4.6))
    assert (found["better"], found["worth-it"]) == ("refuted", "refuted")
    assert outcomes(ENTRY, ending(run, constant=4.95, schedule=4.6))["task-is-learnt"] == "refuted"


def test_a_schedule_of_more_parameters_is_no_comparison(run, outcomes):
    assert outcomes(ENTRY, run)["equal-parameters"] == "reproduced"
    run["rank"].loc[{"table": "schedule", "seed": 1}] += 1
    assert outcomes(ENTRY, run)["equal-parameters"] == "refuted"


def test_early_tells_late_when_they_place_parameters_alike(run, inside):
    run["rank"].loc[{"table": "hindsight"}] = [3, 0, 3, 1, 3, 0, 3, 1]
    run["rank"].loc[{"table": "schedule"}] = [3, 0, 3, 1, 3, 0, 3, 1]
    assert "early-tells" in inside(ENTRY, run)
    run["rank"].loc[{"table": "schedule"}] = [1, 4, 1, 3, 1, 4, 1, 3]
    assert "early-tells" not in inside(ENTRY, run)


def test_one_seed_decides_nothing_but_counts(run, outcomes):
    found = outcomes(ENTRY, run.isel(seed=[0]))
    assert found.pop("equal-parameters") == "reproduced"
    assert set(found.values()) == {"undecided"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"probe": "12"}, "probe must be below steps=12; got 12"),
        ({"rank": "33"}, "rank must be at most embedding=32; got 33"),
        ({"adapter_learning_rate": "0"}, "adapter_learning_rate must be positive"),
        ({"heads": "0"}, "heads must be at least 1"),
        ({"task": "python"}, "did you mean python-library"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.params("quick", settings)
