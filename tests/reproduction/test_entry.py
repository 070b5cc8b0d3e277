from dataclasses import dataclass
from typing import Literal

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import Entry, entry_names, field_comments, find_entry


@dataclass(frozen=True, kw_only=True)
class Params:
    scales: tuple[float, ...] = (0.1, 0.01)  # initial scales
    seed: int = 0  # of everything
    centred: bool = False  # subtract the mean
    data: Literal["digits", "mnist"] = "digits"  # which images

    @classmethod
    def quick(cls) -> "Params":
        return cls(scales=(0.5,))

    @classmethod
    def paper(cls) -> "Params":
        return cls(data="mnist")


@dataclass(frozen=True, kw_only=True)
class Longer(Params):
    seed: int = 1  # of the images
    steps: int = 3  # how many


ENTRY = Entry("p/e", "t", "s", "c", Params, lambda params, context: None, (), lambda run: [])


def test_sizes():
    assert ENTRY.configure() == Params()
    assert ENTRY.configure("quick").scales == (0.5,)
    assert ENTRY.configure("paper").data == "mnist"


def test_settings_lie_on_top_of_the_size():
    got = ENTRY.configure("quick", {"seed": "7", "centred": "True", "data": "mnist"})
    assert got == Params(scales=(0.5,), seed=7, centred=True, data="mnist")


@pytest.mark.parametrize("text", ["1e-2,1e-8", "(1e-2, 1e-8)", "[1e-2,1e-8]", "1e-2,1e-8,"])
def test_tuples_as_one_would_type_them(text):
    assert ENTRY.configure(settings={"scales": text}).scales == (1e-2, 1e-8)


@pytest.mark.parametrize(
    ("size", "settings", "sentence"),
    [
        ("quik", {}, "There is no size 'quik'; did you mean quick?"),
        ("quick", {"sed": "1"}, "There is no parameter of p/e 'sed'; did you mean seed?"),
        ("quick", {"seed": "one"}, "seed must be of type int, such as seed=3; got 'one'."),
        ("quick", {"scales": "a,b"}, "scales must be of type tuple, such as scales=1e-2,1e-8; got 'a,b'."),
        ("quick", {"centred": "maybe"}, "centred must be of type bool, such as centred=true; got 'maybe'."),
        ("quick", {"data": "mnits"}, "There is no choice for data 'mnits'; did you mean mnist"),
    ],
)
def test_bad_input_is_one_sentence_with_the_cure(size, settings, sentence):
    with pytest.raises(InputError) as caught:
        ENTRY.configure(size, settings)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_entry_names_the_nearest():
    with pytest.raises(InputError, match=r"did you mean gradual-rank/figure-2"):
        find_entry("gradual-rank/figure2")


def test_names_come_from_the_files():
    assert {"gradual-rank/figure-2", "gradual-rank/figure-4"} <= set(entry_names())


def test_comments_beside_the_fields():
    assert field_comments(Params)["seed"] == "of everything"


def test_comments_beside_inherited_fields():
    comments = field_comments(Longer)
    assert comments["scales"] == "initial scales"
    assert (comments["seed"], comments["steps"]) == ("of the images", "how many")
