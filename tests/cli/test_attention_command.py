"""The command `saddlescope attention`: a user's own file, in and out, and files that cannot be used."""

import json

import numpy as np
import pytest

from saddlescope import store
from saddlescope.models.tokens.generators import conditioned_tokens


@pytest.fixture
def attention(typed):
    """Run the command in a folder with token data in tokens.npz."""
    data = conditioned_tokens(2, 3, 6, seed=0)
    np.savez("tokens.npz", X=data.X, z=data.z, y=data.y, v=data.v)
    return lambda line: typed(f"attention {line}")


def test_it_prints_solutions_and_verdicts_and_stores_the_flows(attention):
    status, out, err = attention("tokens.npz --log-until 3 --out flows.nc")
    assert status == 0
    for words in ("2 samples of 3 tokens", "small initial loss", "l1, diagonal", "keys and queries", "minimises"):
        assert words in out
    assert "Stored in flows.nc." in out
    assert "tokens.npz: 100%" in err
    stored = store.read("flows.nc")
    assert stored.flow.values.tolist() == ["keys and queries", "W alone", "diagonal"]
    assert float(stored.log_time[-1]) == 3


def test_json_has_the_same(attention):
    status, out, _ = attention("tokens.npz --log-until 3 --json --loss logistic")
    record = json.loads(out)
    assert (status, record["samples"], record["problems"]["l1"]["unique"]) == (0, 2, True)
    assert set(record["flows"]) == {"keys and queries", "W alone", "diagonal"}
