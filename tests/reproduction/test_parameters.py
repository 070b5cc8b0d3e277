"""Parameters as data: records, checks, parsing, JSON schema, pickling."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
import math
import pickle
from typing import Literal

import pytest

from bad_arguments import bad_values
from saddlescope._shared.errors import InputError
from saddlescope.reproduction import EntryParams, entry_names, find_entry, param, parameters
from saddlescope.reproduction.parameters import schema


class Params(EntryParams):
    log10_scales: tuple[float, ...] = param((-1.0, -8.0), "log10 of the initial scales", lt=0, order="decreasing")
    rates: tuple[float, ...] = param((2.0, 1.0), "learning rates", gt=0, order="decreasing", least=2, scale="log")
    circles: tuple[int, ...] = param((8, 16), "points on a circle", ge=4, multiple_of=4, order="increasing")
    seeds: tuple[int, ...] = param((0, 1), "seeds", ge=0, order="distinct", least=0)
    data: Literal["digits", "mnist"] = param("digits", "images")
    norms: tuple[Literal["l1", "nuclear"], ...] = param(("l1",), "norms", order="distinct")
    steps: int = param(10, "steps of training", ge=1, le=1000)
    rate: float = param(0.5, "learning rate", gt=0, unit="1/s")
    share: float = param(0.5, "share of the data", gt=0, lt=1)
    pair: tuple[float, ...] = param((1.0, 2.0), "two ends", gt=0, least=2, most=2, order="increasing")
    centred: bool = param(False, "subtract the mean")

    def check(self) -> None:
        if self.steps < len(self.seeds):
            raise InputError(f"steps must be at least {len(self.seeds)}, the number of seeds; got {self.steps!r}.")


class Longer(Params, share=0.25):
    steps: int = param(20, "steps of a longer training", ge=5)
    words: str = param("none", "label")


def test_a_subclass_needs_no_decorator_and_is_frozen():
    params = Longer(steps=7)
    assert (params.steps, params.share, params.words) == (7, 0.25, "none")
    assert params == Longer(steps=7) != Longer()
    with pytest.raises(AttributeError):
        params.steps = 8


def test_records_are_inherited_and_replaced():
    records = parameters(Longer)
    assert list(records)[-2:] == ["centred", "words"]
    assert records["steps"].description == "steps of a longer training"
    assert (records["steps"].ge, records["steps"].le) == (5, None)
    assert records["rate"].words == "learning rate (1/s)"
    assert (records["share"].default, records["share"].lt) == (0.25, 1)
    assert parameters(Params)["share"].default == Params().share == 0.5
    assert records["norms"].many
    assert records["norms"].choices == ("l1", "nuclear")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"steps": 0}, "steps must be between 1 and 1000; got 0."),
        ({"steps": 2.5}, "steps must be an integer, such as steps=3; got 2.5."),
        ({"rate": 0.0}, "rate must be positive; got 0.0."),
        ({"rate": math.nan}, "rate must be a finite number, such as rate=1e-8; got nan."),
        ({"share": 1.0}, "share must be above 0 and below 1; got 1.0."),
        ({"centred": 1}, "centred must be true or false, such as centred=true; got 1."),
        ({"data": "mnits"}, "There is no choice for data 'mnits'; did you mean mnist or digits?"),
        ({"norms": ("l2",)}, "norms must be one or more words, each one of l1, nuclear, each once"),
        ({"log10_scales": (-8.0, -1.0)}, "log10_scales must be one or more negative numbers, decreasing, such as"),
        (
            {"rates": (1.0,)},
            "rates must be two or more positive numbers, decreasing, such as rates=2.0,1.0; got (1.0,).",
        ),
        ({"circles": (8, 6)}, "circles must be one or more integers, each a multiple of 4 and at least 4, increasing"),
        (
            {"pair": (1.0, 2.0, 3.0)},
            "pair must be exactly 2 positive numbers, increasing, such as pair=1.0,2.0; got (1.0,",
        ),
        ({"seeds": (1, 1)}, "seeds must be any number of integers, each at least 0, each once"),
        ({"seeds": (1, 2, 3), "steps": 2}, "steps must be at least 3, the number of seeds; got 2."),
    ],
)
def test_values_out_of_range_are_refused_in_one_sentence(changed, sentence):
    with pytest.raises(InputError) as refused:
        Params(**changed)
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", [*entry_names(), ""])
def test_whatever_a_record_excludes_is_refused_in_one_sentence(name):
    for record in parameters(find_entry(name).params if name else Params).values():
        for bad in bad_values(record):
            with pytest.raises(
                InputError, match=f"^{record.name} must be |^There is no choice for {record.name} "
            ) as no:
                record.check(bad)
            assert "\n" not in str(no.value)


def test_values_in_range_are_accepted():
    Params(seeds=(), rate=1, log10_scales=(-0.5, -100), norms=("nuclear", "l1"), circles=(4, 8, 12), steps=1000)


@pytest.mark.parametrize("text", ["-1,-8", "(-1.0, -8.0)", "[-1,-8]", "-1,-8,"])
def test_tuples_as_one_would_type_them(text):
    assert parameters(Params)["log10_scales"].parse(text) == (-1.0, -8.0)


@pytest.mark.parametrize("name", list(parameters(Params)))
def test_what_is_shown_can_be_typed(name):
    record = parameters(Params)[name]
    assert record.parse(record.text(record.default)) == record.default


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("steps", "one", "steps must be an integer, such as steps=3; got 'one'."),
        ("rates", "a,b", "rates must be two or more positive numbers, decreasing, such as rates=2.0,1.0; got 'a,b'."),
        ("centred", "maybe", "centred must be true or false, such as centred=true; got 'maybe'."),
        ("steps", "0", "steps must be between 1 and 1000; got 0."),
    ],
)
def test_text_that_does_not_fit_is_refused(name, text, sentence):
    with pytest.raises(InputError) as refused:
        parameters(Params)[name].parse(text)
    assert str(refused.value) == sentence


def test_the_schema_has_everything_a_form_needs():
    made = schema(Params)
    assert made["additionalProperties"] is False
    properties = made["properties"]
    assert properties["rate"] == {
        **{"description": "learning rate", "x-unit": "1/s", "x-scale": "linear", "type": "number"},
        **{"exclusiveMinimum": 0, "default": 0.5},
    }
    assert properties["data"]["enum"] == ["digits", "mnist"]
    assert properties["circles"]["items"] == {"type": "integer", "minimum": 4, "multipleOf": 4}
    assert (properties["circles"]["minItems"], properties["circles"]["x-order"]) == (1, "increasing")
    assert properties["rates"]["x-scale"] == "log"
    assert (properties["pair"]["minItems"], properties["pair"]["maxItems"]) == (2, 2)


def test_the_schema_accepts_what_the_records_accept():
    jsonschema = pytest.importorskip("jsonschema")
    made = schema(Params)
    jsonschema.validate({"steps": 3, "circles": [4, 8], "norms": ["l1"]}, made)
    for wrong in ({"steps": 0}, {"circles": [6]}, {"norms": ["l2"]}, {"other": 1}, {"seeds": [1, 1]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, made)


def test_a_default_of_no_field_is_refused():
    with pytest.raises(TypeError, match="Wrong has no field 'shares'"):

        class Wrong(Params, shares=0.25):
            pass


def test_fields_without_a_record_are_refused():
    class Bare(EntryParams):
        size: int = 3

    with pytest.raises(TypeError, match=r"Bare.size must be `param"):
        Bare()


def test_parameters_survive_pickling():
    assert pickle.loads(pickle.dumps(Longer(steps=9))) == Longer(steps=9)
