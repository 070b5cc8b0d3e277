"""An entry whose packages are not installed says which extra brings them, wherever the import fails."""

import dataclasses
import importlib

import pytest

from saddlescope._shared.errors import MissingExtraError
from saddlescope.reproduction import reproduce
from saddlescope.reproduction.data_sets import DataSets

TINY = "tiny/staircase needs {}: pip install 'saddlescope[papers]'; without it"


@pytest.mark.parametrize("place", ["run", "data"])
@pytest.mark.parametrize(
    ("error", "raised", "reported"),
    [
        (ModuleNotFoundError("", name="torch.nn"), MissingExtraError, TINY.format("PyTorch")),
        (ModuleNotFoundError("", name="tokenizers"), MissingExtraError, TINY.format("Tokenizers")),
        (MissingExtraError("saddlescope.ranks", "PyTorch", "torch"), MissingExtraError, TINY.format("PyTorch")),
        (ModuleNotFoundError("of no extra: a defect", name="numpyy"), ModuleNotFoundError, "of no extra"),
    ],
)
def test_the_entry_and_its_extra_are_named(tiny, tmp_path, place, error, raised, reported):
    def fail(*_):
        raise error

    changed = {"run": fail} if place == "run" else {"data": DataSets(fail, names=("digits",))}
    with pytest.raises(raised) as refused:
        reproduce(dataclasses.replace(tiny, **changed), out=tmp_path)
    assert str(refused.value).startswith(reported)
    assert not list(tmp_path.rglob("*.nc"))


def test_every_package_of_an_extra_is_known_by_the_name_it_is_imported_by():
    from saddlescope._shared.errors import _PACKAGES

    for name in _PACKAGES:
        assert importlib.util.find_spec(name), name
