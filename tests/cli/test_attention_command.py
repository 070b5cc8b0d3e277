"""The command `saddlescope attention`: a user's own file, in and out, and files that cannot be used."""

import json

import numpy as np
import pytest
import xarray as xr

from saddlescope import store
from saddlescope.models.tokens.generators import conditioned_tokens


@pytest.fixture
def attention(typed):
    """Run the command in a folder with token data in tokens.npz."""
    data = conditioned_tokens(2, 3, 6, seed=0)
    np.savez("tokens.npz", X=data.X, z=data.z, y=data.y, v=data.v)
    return lambda line: typed(f"attention {line}")


def test_it_prints_solutions_and_verdicts_and_stores_and_draws_the_flows(attention, undrawn, tmp_path):
    status, out, err = attention("tokens.npz --log-until 3 --out flows.nc --site page")
    assert status == 0
    for words in ("2 samples of 3 tokens", "small initial loss", "l1, diagonal", "keys and queries", "minimises"):
        assert words in out
    assert out.endswith(f"Stored in flows.nc.\nOpen {tmp_path}/page/index.html in a browser.\n")
    assert "tokens.npz: 100%" in err
    stored = store.read("flows.nc")
    assert stored.flow.values.tolist() == ["keys and queries", "W alone", "diagonal"]
    assert float(stored.log_time[-1]) == 3
    assert "saddlescope attention tokens.npz" in (tmp_path / "page/index.html").read_text("utf-8")
    xr.testing.assert_identical(store.read("page/attention/flows.nc"), stored)


def test_json_has_the_same(attention):
    status, out, _ = attention("tokens.npz --log-until 3 --json --loss logistic")
    record = json.loads(out)
    assert (status, record["samples"], record["problems"]["l1"]["unique"]) == (0, 2, True)
    assert set(record["flows"]) == {"keys and queries", "W alone", "diagonal"}
