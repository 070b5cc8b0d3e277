from dataclasses import make_dataclass

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import parameter_checks

Fields = make_dataclass("Fields", ["n", "x", "scales", "rates"])


def fields(**changed):
    return Fields(**{"n": 1, "x": 0.5, "scales": (-1.0, -8.0), "rates": (2.0, 1.0)} | changed)


def check(params):
    parameter_checks.require_at_least(1, params, "n")
    parameter_checks.require_positive(params, "x")
    parameter_checks.require_between(-1.0, 1.0, params, "x")
    parameter_checks.require_log10_scales(params, "scales", lowest=-100.0, least=2)
    parameter_checks.require_learning_rates(params, "rates")


def test_what_is_in_range_passes():
    check(fields())
    check(fields(x=1.0, scales=(-0.5, -100.0)))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"n": 0}, "n must be at least 1; got 0."),
        ({"x": 0.0}, "x must be positive and finite; got 0.0."),
        ({"x": float("inf")}, "x must be positive and finite; got inf."),
        ({"x": float("nan")}, "x must be positive and finite; got nan."),
        ({"x": 2.0}, "x must be between -1 and 1; got 2.0."),
        ({"scales": (-8.0, -1.0)}, "scales must be negative and decreasing, at least -100, 2 or more"),
        ({"scales": (-1.0,)}, "scales must be negative"),
        ({"scales": (0.0, -1.0)}, "scales must be negative"),
        ({"scales": (-1.0, -1.0)}, "scales must be negative"),
        ({"scales": (-1.0, -101.0)}, "scales must be negative"),
        ({"rates": (1.0, 2.0)}, "rates must be two or more, positive and decreasing"),
        ({"rates": (1.0,)}, "rates must be two or more"),
        ({"rates": (1.0, 0.0)}, "rates must be two or more"),
        ({"rates": (float("inf"), 1.0)}, "rates must be two or more"),
    ],
)
def test_what_is_not_is_refused(changed, sentence):
    with pytest.raises(InputError) as refused:
        check(fields(**changed))
    assert str(refused.value).startswith(sentence)
