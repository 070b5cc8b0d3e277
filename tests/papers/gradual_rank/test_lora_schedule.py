"""The comparison of LoRAs is fair."""

import numpy as np

from saddlescope.papers.gradual_rank.extensions.lora_schedule import equal_parameters, task_learned
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/lora-schedule"
ENTRY = find_entry(NAME)


def test_all_arms_of_a_seed_start_from_one_trained_model_and_the_probe_is_paid_for(run):
    start, params = run.full_loss.isel(test=0), ENTRY.configure("quick")
    np.testing.assert_allclose(run.test_loss.isel(test=0), start.broadcast_like(run.test_loss.isel(test=0)), rtol=1e-6)
    assert len(np.unique(start)) == run.sizes["seed"]
    last = run.test_step.isel(test=-1, seed=0)
    assert int(run.full_step.isel(test=-1, seed=0)) == int(last.sel(arm="schedule")) == params.steps
    assert int(last.sel(arm="constant")) == params.steps + params.probe


def test_ranks_are_of_the_matrices_of_each_block(run):
    shapes = {"attn.c_attn": (32, 96), "attn.c_proj": (32, 32), "mlp.c_fc": (32, 128), "mlp.c_proj": (128, 32)}
    sizes = [sum(shapes[name[len("transformer.h.0.") : -len(".weight")]]) for name in run.matrix.values.tolist()]
    assert run.parameters_a_rank.isel(seed=0).values.tolist() == sizes
    for rank in run.budget.values:
        assert (run["rank"].sel(budget=rank, table="constant") == rank).all()


def test_a_schedule_of_more_parameters_or_a_task_that_no_rank_learns_is_no_comparison(run):
    run["rank"].loc[{"table": "schedule"}] = run["rank"].sel(table="constant")
    run.test_loss.loc[{"test": 0}], run.test_loss.loc[{"test": run.sizes["test"] - 1}] = 5.0, 4.5
    assert equal_parameters(run)
    assert task_learned(run)
    run["rank"].loc[{"table": "schedule", "seed": 1, "budget": 2}] += 1
    assert not equal_parameters(run)
    run.test_loss.loc[{"test": run.sizes["test"] - 1}] = 4.95
    assert not task_learned(run)
