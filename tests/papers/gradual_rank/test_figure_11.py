"""Figure 11: noise comes when it should, and either training may miss the endpoint."""

import numpy as np
import pytest

from saddlescope.papers.gradual_rank.figure_11 import transitions
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/figure-11"
ENTRY = find_entry(NAME)


def test_noise_comes_in_the_first_epoch_in_which_the_weight_is_not_negligible(run):
    params = ENTRY.configure("quick")
    for one, moment in zip(transitions(run), run.moment.values, strict=True):
        weights = abs(run.weights.sel(moment=moment).isel(step=0, coordinate=int(one.entering))).values
        assert (weights > params.threshold).all()
        assert (weights < 1.2 * params.threshold).all()  # it grows by less than that in an epoch
        epoch = -float(run.moment_time.sel(moment=moment)) * params.log10_scale * np.log(10)
        assert epoch == pytest.approx(round(epoch), abs=1e-6)
        assert run.resolved.sel(stage=int(one.begins))


def test_the_unperturbed_training_does_not_count(run, outcomes):
    run.weights.values[:] *= 1.1
    run.sgd.values[:, :, 1] *= 1.1
    assert outcomes(ENTRY, run)["endpoint"] == "agrees"
