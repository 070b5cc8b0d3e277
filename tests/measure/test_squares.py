import array_api_compat.torch
import numpy as np
import pytest
import torch

from saddlescope.measure import squares
from saddlescope.measure.arrays import Library, Stored, take
from saddlescope.measure.squares import BEFORE, MOVED, NOW, squares_of

LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "heads side by side": lambda X: np.concatenate([X, X], axis=-1)[..., : X.shape[-1]],
}


def parts(layout, rows=50, h=6):
    draw = np.random.default_rng(0).standard_normal
    before = draw((3, rows, h))
    return [LAYOUTS[layout](X.astype(np.float32)) for X in (before + 1e-3 * draw(before.shape), before)]


def dense(now, before, blocks):
    wide = [X.astype(np.longdouble) for X in (now, before)]
    known = {NOW: wide[0], BEFORE: wide[1], MOVED: wide[0] - wide[1]}
    X = np.concatenate([known[block] for block in blocks], axis=-1)
    return np.swapaxes(X, -1, -2) @ X


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("blocks", [(NOW,), (MOVED, BEFORE), (NOW, MOVED), (BEFORE, MOVED)])
@pytest.mark.parametrize("at_once", [2**18, 7 * 12, 1])
def test_the_host_joins_blocks_and_others_multiply_pairs_to_the_same_squares(layout, blocks, at_once, monkeypatch):
    monkeypatch.setattr(squares, "_JOINED", at_once)  # all rows, pieces of which the last is shorter, single rows
    given = parts(layout)
    here, stored = take(axes=2, now=given[0], before=given[1])
    there = Library(array_api_compat.torch, torch.float64, lambda result: result)
    tensors = [Stored(torch.from_numpy(one.array), one.roundoff) for one in stored]
    expected = dense(given[0], given[1], blocks)
    for found in (squares_of(here, stored, blocks), squares_of(there, tensors, blocks).numpy()):
        assert found.dtype == np.float64
        scale = np.sqrt(np.einsum("nii,njj->nij", expected, expected))  # of each entry: lengths of two columns
        assert np.max(np.abs(found - expected) / scale) < 1e-15
        np.testing.assert_array_equal(found, np.swapaxes(found, -1, -2))
