"""The comparison of LoRAs is fair, its claims can fail, and its ranks are those of the spectra it stores."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry
from saddlescope.train.lora import allocate_ranks

ENTRY = find_entry("gradual-rank/lora-schedule")


@pytest.fixture
def run(quick_run):
    return quick_run(ENTRY.name).run.copy(deep=True)


def ending(run, **losses):
    """All arms start at 5 and end at these losses, at both budgets, a little apart from seed to seed."""
    run.test_loss.loc[{"test": 0}] = 5.0
    run["rank"].loc[{"table": "schedule"}] = run["rank"].sel(table="constant")  # as many parameters
    for k, (arm, loss) in enumerate(losses.items(), 1):
        ends = loss - 1e-4 * k * np.arange(run.sizes["seed"])[:, None] ** 2
        run.test_loss.loc[{"arm": arm, "test": run.sizes["test"] - 1}] = ends
    return run


def test_all_arms_of_a_seed_start_from_one_trained_model(run):
    start = run.full_loss.isel(test=0)
    np.testing.assert_allclose(run.test_loss.isel(test=0), start.broadcast_like(run.test_loss.isel(test=0)), rtol=1e-6)
    assert len(np.unique(start)) == run.sizes["seed"]


def test_the_probe_is_paid_for(run):
    last = run.test_step.isel(test=-1, seed=0)
    params = ENTRY.configure("quick")
    assert int(run.full_step.isel(test=-1, seed=0)) == int(last.sel(arm="schedule")) == params.steps
    assert int(last.sel(arm="constant")) == params.steps + params.probe


def test_ranks_are_those_of_the_stored_spectra(run):
    shapes = {"attn.c_attn": (32, 96), "attn.c_proj": (32, 32), "mlp.c_fc": (32, 128), "mlp.c_proj": (128, 32)}
    by_name = {name: shapes[name[len("transformer.h.0.") : -len(".weight")]] for name in run.matrix.values.tolist()}
    assert run.parameters_a_rank.isel(seed=0).values.tolist() == [sum(shape) for shape in by_name.values()]
    for rank in (1, 2):
        budget = rank * int(run.parameters_a_rank.isel(seed=0).sum())
        tables = run["rank"].sel(budget=rank)
        for seed in run.seed:
            for table, record in (("schedule", "probe"), ("hindsight", "end")):
                spectra = run.spectrum.sel(seed=seed, record=record)
                spectra = {name: spectra.sel(matrix=name).values for name in by_name}
                wanted = allocate_ranks(spectra, by_name, parameters=budget)
                assert tables.sel(seed=seed, table=table).values.tolist() == list(wanted.values())
        assert (tables.sel(table="constant") == rank).all()


@pytest.mark.parametrize("budget", ["small", "large"])
def test_the_better_arm_is_the_one_whose_loss_ends_lower(run, outcomes, budget):
    found = outcomes(ENTRY, ending(run, constant=4.5, schedule=4.4))
    assert (found[f"better-{budget}"], found[f"worth-it-{budget}"]) == ("reproduced", "reproduced")
    found = outcomes(ENTRY, ending(run, constant=4.5, schedule=4.49))
    assert (found[f"better-{budget}"], found[f"worth-it-{budget}"]) == ("reproduced", "refuted")
    found = outcomes(ENTRY, ending(run, constant=4.5, schedule=4.6))
    assert (found[f"better-{budget}"], found[f"worth-it-{budget}"]) == ("refuted", "refuted")


def test_budgets_are_not_mixed(run, outcomes):
    run = ending(run, constant=4.5, schedule=4.6)
    run.test_loss.loc[{"budget": 1, "arm": "schedule", "test": run.sizes["test"] - 1}] = 4.3
    found = outcomes(ENTRY, run)
    assert (found["better-small"], found["better-large"]) == ("reproduced", "refuted")


def test_a_task_that_no_rank_learns_is_no_test(run, outcomes):
    run = ending(run, constant=4.5, schedule=4.5)
    run.test_loss.loc[{"budget": 1, "test": run.sizes["test"] - 1}] = 4.8
    found = outcomes(ENTRY, run)
    assert (found["task-is-learnt"], found["rank-matters"]) == ("reproduced", "reproduced")
    found = outcomes(ENTRY, ending(run, constant=4.95, schedule=4.5))
    assert found.pop("task-is-learnt") == "refuted"
    assert found.pop("equal-parameters") == "reproduced"
    assert set(found.values()) == {"not tested"}


def test_a_schedule_of_more_parameters_is_no_comparison(run, outcomes):
    run["rank"].loc[{"table": "schedule"}] = run["rank"].sel(table="constant")
    assert outcomes(ENTRY, run)["equal-parameters"] == "reproduced"
    run = ending(run, constant=4.5, schedule=4.4)
    run["rank"].loc[{"table": "schedule", "seed": 1, "budget": 2}] += 1
    found = outcomes(ENTRY, run)
    assert found["equal-parameters"] == "refuted"
    assert {found[f"{name}-{budget}"] for name in ("better", "worth-it") for budget in ("small", "large")} == {
        "not tested"
    }


@pytest.mark.parametrize(("budget", "name"), [(1, "small"), (2, "large")])
def test_early_spectra_agree_with_late_ones_that_place_parameters_alike(run, inside, budget, name):
    run["rank"].loc[{"table": "hindsight", "budget": budget}] = [3, 0, 3, 1, 3, 0, 3, 1]
    run["rank"].loc[{"table": "schedule", "budget": budget}] = [3, 0, 3, 1, 3, 0, 3, 1]
    assert f"early-spectra-{name}" in inside(ENTRY, run)
    run["rank"].loc[{"table": "schedule", "budget": budget}] = [0, 4, 0, 3, 0, 4, 0, 3]
    assert f"early-spectra-{name}" not in inside(ENTRY, run)


def test_one_seed_decides_nothing_but_counts(run, outcomes):
    found = outcomes(ENTRY, run.isel(seed=[0]))
    assert found.pop("equal-parameters") != "undecided"
    assert set(found.values()) == {"undecided", "not tested"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"probe": "12"}, "probe must be below steps=12; got 12"),
        ({"ranks": "1,33"}, "ranks must be two, increasing, from 1 to embedding=32"),
        ({"ranks": "2"}, "ranks must be two"),
        ({"ranks": "2,1"}, "ranks must be one or more integers, each at least 1, increasing"),
        ({"adapter_learning_rate": "0"}, "adapter_learning_rate must be positive"),
        ({"heads": "0"}, "heads must be at least 1"),
        ({"task": "python"}, "did you mean python-library"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)
