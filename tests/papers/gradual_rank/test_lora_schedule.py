"""The comparison of LoRAs is fair, and its ranks are those of the spectra it stores."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.extensions.lora_schedule import equal_parameters, parameters, task_learned
from saddlescope.ranks.lora import allocate_ranks
from saddlescope.reproduction import find_entry

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


def test_a_task_that_no_rank_learns_is_no_test(run, outcomes):
    assert set(outcomes(ENTRY, ending(run, constant=4.95, schedule=4.5)).values()) == {"not tested"}


def test_a_schedule_of_more_parameters_is_no_comparison(run):
    run = ending(run, constant=4.5, schedule=4.4)
    assert equal_parameters(run)
    run["rank"].loc[{"table": "schedule", "seed": 1, "budget": 2}] += 1
    assert not equal_parameters(run)
    assert task_learned(run)


def test_the_schedules_of_the_quick_run_have_as_many_parameters(run):
    share = parameters(run, "schedule") / parameters(run, "constant")
    assert 0.9 <= float(share.min()) <= float(share.max()) <= 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"probe": "12"}, "probe must be below steps=12; got 12"),
        ({"ranks": "1,33"}, "ranks must be two, increasing, from 1 to embedding=32"),
        ({"ranks": "2"}, "ranks must be two"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)
