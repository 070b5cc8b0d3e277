"""Files as Transformers saves them: renamed, merged, split; several towers. Numbers are those of the models in memory."""

import numpy as np
import pytest
import torch
from saved_models import BUILT, build, load, save
from stored_models import moved

from saddlescope._shared.errors import InputError
from saddlescope.train import RankTracker
from saddlescope.train.checkpoints import checkpoint_spectra


def trained(model, seed=1):
    """Move the weights of a model, except those of tied names."""
    with torch.no_grad():
        for parameter, new in zip(
            model.parameters(), moved(dict(enumerate(model.parameters())), seed).values(), strict=True
        ):
            parameter.copy_(new)


def require_same(found, expected):
    for variable in expected.data_vars:
        there = expected[variable].sel(matrix=found.matrix) if "matrix" in expected[variable].dims else expected[variable]
        # The base is float32 in both, and all arithmetic is the same: only the order of a sum may differ.
        np.testing.assert_allclose(found[variable].values, there.values, rtol=1e-7, atol=1e-12, err_msg=variable)


@pytest.mark.parametrize("name", BUILT)
def test_spectra_and_initial_are_those_of_the_models_in_memory(name, tmp_path):
    model = build(name)
    tracker = RankTracker(model, matrices="*")
    base = save(model, tmp_path / "base")
    trained(model)
    tuned = save(model, tmp_path / "tuned")
    tracker.step()
    expected = tracker.to_xarray()
    assert expected.sizes["layer"] >= 2
    found = checkpoint_spectra(base, tuned, matrices="*")
    assert found.layer.values.tolist() == expected.layer.values.tolist()
    assert set(found.matrix.values) == set(expected.matrix.values)
    require_same(found, expected)
    assert "does not have" not in found.attrs["remarks"]
    resumed = RankTracker(load(name, tuned), matrices="*", initial=base)
    resumed.step()
    require_same(resumed.to_xarray(), expected)
