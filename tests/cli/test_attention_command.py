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


class Trap:
    """Would run code if it were unpickled."""

    def __reduce__(self):
        return (open, ("sprung", "w"))


@pytest.mark.parametrize(
    ("spoil", "reported"),
    [
        ({"y": np.array([1.0, 2.0])}, "y must be 1 or -1"),
        ({"v": np.zeros(6)}, "must give every sample one optimal token"),
        ({"v": np.full(6, np.nan)}, "v must be finite"),
        ({"z": np.ones((3, 6))}, "z must have shape"),
        ({"X": np.array([Trap()], dtype=object)}, "without pickled objects"),
        ({"v": None}, "without v"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence_and_status_2(attention, tmp_path, spoil, reported):
    with np.load("tokens.npz") as stored:
        arrays = {name: stored[name] for name in stored.files} | spoil
    np.savez("tokens.npz", allow_pickle=True, **{name: of for name, of in arrays.items() if of is not None})
    status, out, err = attention("tokens.npz --log-until 3 --out flows.nc")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert reported in err
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.npz"]


def test_what_is_no_npz_is_one_sentence_and_status_2(attention, tmp_path):
    (tmp_path / "text.npz").write_text("X, z, y, v")
    np.save("one.npy", np.ones(3))
    for line in ("none.npz", "text.npz", "one.npy", "tokens.npz --log-until 0"):
        status, _, err = attention(line)
        assert (status, err.count("\n")) == (2, 1)
