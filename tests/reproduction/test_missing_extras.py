"""An entry whose packages are not installed says which extra brings them, wherever the import fails."""

import dataclasses
import importlib

import pytest

from saddlescope._shared.errors import MissingExtraError
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction import reproduce
from saddlescope.reproduction.data_sets import DataSets


def reproduced(tmp_path, run):
    """Reproduce the tiny entry with another run."""
    return reproduce(dataclasses.replace(entries.find_entry("tiny/staircase"), run=run), out=tmp_path)


def importing(name):
    """Return a run that fails as if that package were not installed."""

    def run(params, context):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return run


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("torch.nn", "tiny/staircase needs PyTorch: pip install 'saddlescope[papers]'; without it"),
        ("tokenizers", "tiny/staircase needs Tokenizers: pip install 'saddlescope[papers]'; without it"),
    ],
)
def test_a_package_of_an_extra(tiny, tmp_path, name, reported):
    with pytest.raises(MissingExtraError) as refused:
        reproduced(tmp_path, importing(name))
    assert str(refused.value).startswith(reported)
    assert not list(tmp_path.rglob("*.nc"))


def test_the_entry_is_named_where_a_room_missed_its_extra(tiny, tmp_path):
    def run(params, context):
        raise MissingExtraError("saddlescope.ranks", "PyTorch", "torch")

    with pytest.raises(MissingExtraError, match=r"^tiny/staircase needs PyTorch: pip install 'saddlescope\[papers\]'"):
        reproduced(tmp_path, run)


def test_the_entry_is_named_where_its_data_need_an_extra(tiny, tmp_path):
    def read(name, folder, report):
        raise MissingExtraError("saddlescope.ranks", "PyTorch", "torch")

    entry = dataclasses.replace(entries.find_entry("tiny/staircase"), data=DataSets(read, names=("digits",)))
    with pytest.raises(MissingExtraError, match=r"^tiny/staircase needs PyTorch: "):
        reproduce(entry, out=tmp_path)


def test_a_package_of_no_extra_is_a_defect(tiny, tmp_path):
    with pytest.raises(ModuleNotFoundError, match="numpyy"):
        reproduced(tmp_path, importing("numpyy"))


def test_every_package_of_an_extra_is_known_by_the_name_it_is_imported_by():
    from saddlescope._shared.errors import _PACKAGES

    for name in _PACKAGES:
        assert importlib.util.find_spec(name), name
