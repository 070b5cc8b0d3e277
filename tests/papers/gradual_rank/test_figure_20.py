"""Figure 20 and the whole matrices: models that start from nothing, and runs that decide nothing."""

import numpy as np
import pytest

from saddlescope.papers.gradual_rank.shared.gpt2_training import frequency_loss
from saddlescope.reproduction import RunContext, find_entry

HEADS = find_entry("gradual-rank/figure-20")
MATRICES = find_entry("gradual-rank/full-matrices")


def test_models_start_from_scratch(quick_run):
    run = quick_run(HEADS.name).run
    np.testing.assert_allclose(run.test_loss.isel(test_step=0), np.log(run.attrs["vocabulary"]), rtol=0.05)


def test_the_guess_by_frequency():
    train, test = np.array([[0, 0, 1]], np.int32), np.array([[0, 1, 2]], np.int32)
    assert frequency_loss(train, test, 3) == pytest.approx(-np.log([3 / 6, 2 / 6, 1 / 6]).mean())


def test_each_matrix_is_where_its_name_says(quick_run):
    """Shapes distinguish the kinds: sums of squares of an initial matrix are its entries times 0.02^2."""
    matrices, width = quick_run(MATRICES.name).run, 32
    entries = {
        "attn.c_attn": 3 * width**2,
        "attn.c_proj": width**2 / 4,
        "mlp.c_fc": 4 * width**2,
        "mlp.c_proj": width**2,
    }
    squares = (matrices.matrix_initial_norm**2).mean(("seed", "layer"))
    for kind, count in entries.items():  # the matrices that write are initialized at 0.02 / sqrt(2 depth) = 0.01
        assert float(squares.sel(kind=kind)) == pytest.approx(count * 0.02**2, rel=0.1)


@pytest.mark.data
def test_official_texts_are_used(data_folder, tmp_path, types_unchecked):
    params = HEADS.configure("quick", {"text": "wikitext-2", "seeds": "0", "epochs": "1", "characters": "2500"})
    with types_unchecked():
        run = HEADS.run(params, RunContext(scratch=tmp_path, data=data_folder))
    assert run.attrs["text"] == "wikitext-2"
    assert np.isfinite(run.stable_rank.values).all()
