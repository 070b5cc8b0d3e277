"""A log of records: exact, readable at every moment, and nothing but a log is read as one."""

import base64
import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from saddlescope._shared.errors import InputError, StorageError
from saddlescope.store import RecordLog, read_log


def records(steps):
    draw = np.random.default_rng(3)
    size = len(steps)
    values = draw.normal(size=(size, 2, 3))
    values[:1, 0] = [np.nan, np.inf, -0.0]
    return xr.Dataset(
        {
            "spectrum": (("step", "layer", "index"), values, {"long_name": "singular values", "units": "1"}),
            "seen": (("step", "layer"), draw.random((size, 2)) < 0.5),
            "initial": (("layer", "index"), draw.normal(size=(2, 3)).astype(np.float32)),
        },
        {"step": ("step", np.array(steps, np.int64), {"long_name": "steps"}), "layer": ["a\n\x1b", "β"]},
        {"base": "somewhere"},
    )


def test_what_is_appended_is_read_to_the_last_bit(tmp_path):
    everything = records([1, 2, 5, 9])
    log = RecordLog(tmp_path / "new" / "ranks.jsonl")
    log.write(everything.isel(step=slice(0, 1)))
    for k in range(1, 4):
        log.append(everything.isel(step=slice(k, k + 1)))
    xr.testing.assert_identical(read_log(log.path), everything)


def test_a_repeated_record_takes_the_place_of_the_earlier_one(tmp_path):
    log = RecordLog(tmp_path / "ranks.jsonl")
    log.write(records([1, 2, 5]))
    log.append(records([2]))
    found = read_log(log.path).drop_vars("initial")
    assert found.step.values.tolist() == [1, 2, 5]
    xr.testing.assert_identical(found.isel(step=[1]), records([2]).drop_vars("initial"))
    xr.testing.assert_identical(found.isel(step=[0, 2]), records([1, 2, 5]).isel(step=[0, 2]).drop_vars("initial"))


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1))
def test_a_file_cut_anywhere_has_its_whole_records_or_is_refused(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("cut") / "ranks.jsonl"
    everything = records([1, 2, 5])
    RecordLog(path).write(everything)
    content = path.read_bytes()
    cut = content[: int(share * len(content))]
    path.write_bytes(cut)
    whole = cut.count(b"\n") - 1
    if whole < 0:
        with pytest.raises(InputError, match="damaged, or no file of records"):
            read_log(path)
    elif whole:
        xr.testing.assert_identical(read_log(path), everything.isel(step=slice(0, whole)))
    else:
        assert read_log(path).sizes["step"] == 0


def test_a_flipped_bit_anywhere_is_noticed(tmp_path):
    path = tmp_path / "ranks.jsonl"
    RecordLog(path).write(records([1, 2]))
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        with pytest.raises(InputError, match="damaged, or no file of records"):
            read_log(path)


def lines(change):
    first = {"format": "saddlescope records 1", "along": "step", "coordinates": [], "attributes": {}}
    first |= {"attributes_of": {}, "variables": {}}
    data = base64.b64encode(np.ones(2).tobytes()).decode()
    one = {"dims": ["layer"], "shape": [2], "dtype": "float64", "data": data} | change
    return "\n".join(map(json.dumps, [first, {"step": 1, "variables": {"x": one}}])) + "\n"


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [3]}, {"shape": [10**12]}, {"shape": [-1, -2]}, {"shape": "x"}, {"dims": ["a", "b"]}, {"dims": 3},
        {"dtype": "object"}, {"dtype": "float16"}, {"dtype": None}, {"data": "%%%%"}, {"data": 7}, {"data": ["a"]},
    ],
)  # fmt: skip
def test_a_log_with_values_that_do_not_fit_is_refused(tmp_path, change):
    path = tmp_path / "ranks.jsonl"
    path.write_text(lines({}))
    assert read_log(path).x.values.tolist() == [[1.0, 1.0]]
    path.write_text(lines(change))
    with pytest.raises(InputError, match="damaged, or no file of records"):
        read_log(path)


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"null\n", b'{"format": 3}\n']
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged, or no file of records"):
        read_log(path)


def test_absent_files_and_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match="Cannot read"):
        read_log(tmp_path / "none")
    with pytest.raises(InputError, match="got a folder"):
        read_log(tmp_path)
    with pytest.raises(StorageError, match="Cannot write"):
        RecordLog(tmp_path / "gone.jsonl").append(records([1]))
