"""Checkpoints of Transformers have the spectra of the live model: names, layouts and heads of many kinds."""

import warnings

import numpy as np
import pytest
from real_models import MODELS, built
from stored_models import moved

from saddlescope.ranks import RankTracker
from saddlescope.ranks.checkpoints import checkpoint_spectra


@pytest.mark.parametrize("name", [*MODELS, "GPT2-cross"])
def test_a_saved_model_gives_the_spectra_of_the_live_one(name, tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "GPT2-cross", MODELS["GPT2"] | {"add_cross_attention": True})
    model = built(name)
    tracker = RankTracker(model)
    for step in (0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.save_pretrained(tmp_path / f"step{step}")
        if step == 0:
            model.load_state_dict(moved(model.state_dict(), 1))
    tracker.step()
    found = checkpoint_spectra(tmp_path / "step0", tmp_path / "step1")
    expected = tracker.to_xarray()
    for variable in expected.data_vars:
        np.testing.assert_allclose(found[variable].values, expected[variable].values, rtol=1e-7, err_msg=variable)
    assert bool((found.update_norm > 0).all())
