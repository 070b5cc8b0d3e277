"""The command `saddlescope attention`: a user's own file, in and out, and files that cannot be used."""

import json

import numpy as np
import pytest

from saddlescope import cli, store
from saddlescope.models.tokens.generators import conditioned_tokens

SHORT = ["--log-until", "3"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the current folder, with token data in tokens.npz."""
    monkeypatch.chdir(tmp_path)
    data = conditioned_tokens(2, 3, 6, seed=0)
    np.savez(tmp_path / "tokens.npz", X=data.X, z=data.z, y=data.y, v=data.v)
    return tmp_path


def test_it_prints_solutions_and_verdicts_and_stores_the_flows(folder, capsys):
    assert cli.main(["attention", "tokens.npz", *SHORT, "--out", "flows.nc"]) == 0
    reported = capsys.readouterr()
    for words in ("2 samples of 3 tokens", "small initial loss", "l1, diagonal", "keys and queries", "minimises"):
        assert words in reported.out
    assert "Stored in flows.nc." in reported.out
    assert "tokens.npz: 100%" in reported.err
    stored = store.read(folder / "flows.nc")
    assert stored.flow.values.tolist() == ["keys and queries", "W alone", "diagonal"]
    assert float(stored.log_time[-1]) == 3


def test_json_has_the_same(folder, capsys):
    assert cli.main(["attention", "tokens.npz", *SHORT, "--json", "--loss", "logistic"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["samples"] == 2
    assert record["problems"]["l1"]["unique"] is True
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
def test_a_file_that_cannot_be_used_is_one_sentence_and_status_2(folder, capsys, spoil, reported):
    with np.load("tokens.npz") as stored:
        arrays = {name: stored[name] for name in stored.files} | spoil
    np.savez("tokens.npz", allow_pickle=True, **{name: of for name, of in arrays.items() if of is not None})
    assert cli.main(["attention", "tokens.npz", *SHORT, "--out", "flows.nc"]) == 2
    out, err = capsys.readouterr()
    assert reported in err
    assert err.count("\n") == 1
    assert out == ""
    assert [path.name for path in folder.iterdir()] == ["tokens.npz"]


def test_what_is_no_npz_is_one_sentence_and_status_2(folder, capsys):
    (folder / "text.npz").write_text("X, z, y, v")
    np.save(folder / "one.npy", np.ones(3))
    for name, options in (("none.npz", []), ("text.npz", []), ("one.npy", []), ("tokens.npz", ["--log-until", "0"])):
        assert cli.main(["attention", name, *options]) == 2
        assert capsys.readouterr().err.count("\n") == 1
