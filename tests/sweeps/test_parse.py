from typing import get_args, get_origin

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import Parameter
from saddlescope.sweeps.parse import expand


def record(hint) -> Parameter:
    """Return the record of a parameter x of a type, or of tuples of it."""
    many = get_origin(hint) is tuple
    return Parameter(name="x", description="x", type=get_args(hint)[0] if many else hint, many=many, default=())


@pytest.mark.parametrize(
    ("text", "hint", "values"),
    [
        ("8,16, 32", int, ("8", "16", "32")),
        ("0:4", int, ("0", "1", "2", "3")),
        ("4:0:-2", int, ("4", "2")),
        ("0:3,7,10:12", int, ("0", "1", "2", "7", "10", "11")),
        ("-1:1", float, ("-1.0", "0.0")),
        ("linear:0:1:5", float, ("0.0", "0.25", "0.5", "0.75", "1.0")),
        ("linear:0.1:0.5:5", float, ("0.1", "0.2", "0.3", "0.4", "0.5")),
        ("log:1e-4:1e-1:4", float, ("0.0001", "0.001", "0.01", "0.1")),
        ("log:100:1:3", int, ("100", "10", "1")),
        ("linear:-1:-3:3", tuple[float, ...], ("-1.0", "-2.0", "-3.0")),
        ("1e-1/1e-8,1e-2", tuple[float, ...], ("1e-1,1e-8", "1e-2")),
        ("true,false", bool, ("true", "false")),
        ("a:b,c/d", str, ("a:b", "c/d")),
    ],
)
def test_values_as_they_are_spelled(text, hint, values):
    assert expand(text, record(hint)) == values


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", int),
        ("1,,2", int),
        ("a:b", int),
        ("1:2:3:4", int),
        ("1:2:0", int),
        ("5:5", int),
        ("0.5:2", float),
        ("0:1000000000000", int),
        ("linear:0:1", float),
        ("linear:0:1:1", float),
        ("linear:1:1:3", float),
        ("linear:0:inf:3", float),
        ("linear:0:1:2000000", float),
        ("linear:0:1:3", int),
        ("log:0:1:3", float),
        ("log:-1:1:3", float),
        ("log:1:2:3:4", float),
        ("cubic:1:2:3", float),
        ("1/", tuple[int, ...]),
    ],
)
def test_what_is_misspelled_is_refused_in_a_sentence(text, hint):
    with pytest.raises(InputError) as refused:
        expand(text, record(hint))
    assert str(refused.value).startswith("x must ")
    assert "\n" not in str(refused.value)
