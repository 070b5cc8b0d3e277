"""Controls of the live page for every entry, and the limits of what a page may ask for."""

import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.explore.controls import checked_settings, make_controls
from saddlescope.reproduction import Claims, Entry, EntryParams, entry_names, find_entry, param
from saddlescope.reproduction.catalogue import toy_names

NAMES = (*entry_names(), *toy_names())


class Params(EntryParams):
    samples: int = param(100, "samples", ge=1)
    seed: int = param(3, "seed", ge=0)
    rate: float = param(0.01, "rate", gt=0, scale="log")
    noise: float = param(0.0, "noise", ge=0)
    exponent: float = param(-8.0, "exponent", lt=0)
    log10: float = param(-8.0, "exponent of a small number", ge=-512, le=-0.5, scale="log")
    half: float = param(0.5, "half", gt=0, lt=1)
    block: int = param(8, "block", ge=8, multiple_of=8)
    deep: bool = param(True, "deep")
    scales: tuple[float, ...] = param((1.0, 2.0), "scales", gt=0)
    sizes: tuple[int, ...] = param((4, 8), "sizes", ge=1)


ENTRY = Entry(
    "own/controls", "Controls", params=Params, quick={"samples": 10}, paper={"samples": 1000},
    run=lambda params, context: xr.Dataset(), claims=Claims(), figures=lambda run: [],
)  # fmt: skip


def control(name, size="default"):
    return next(one for one in make_controls(ENTRY, size) if one.name == name)


@pytest.mark.parametrize(
    ("name", "low", "high", "step", "log"),
    [
        ("samples", 1, 400, 1, False),
        ("seed", 0, 99, 1, False),
        ("rate", 1e-4, 1.0, 0, True),
        ("noise", 0, 1.0, 0.005, False),
        ("exponent", -32, -0.2, 0.2, False),
        ("log10", -512, -0.5, 0, True),
        ("half", 0.005, 0.995, 0.005, False),
        ("block", 8, 32, 8, False),
    ],
)
def test_numbers_have_sliders(name, low, high, step, log):
    made = control(name)
    assert (made.kind, made.log) == ("slider", log)
    assert (made.low, made.high, made.step) == pytest.approx((low, high, step))


def test_switches_and_tuples():
    assert (control("deep").kind, control("deep").value) == ("switch", "true")
    assert (control("scales").kind, control("scales").value) == ("text", "1.0,2.0")


def test_the_ends_follow_the_size():
    assert [control("samples", size).high for size in ("quick", "default", "paper")] == [40, 400, 4000]
    assert control("samples", "quick").value == "10"


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_has_controls_that_allow_its_own_values(name):
    entry = find_entry(name)
    for size in entry.sizes:
        made = make_controls(entry, size)
        assert [one.name for one in made] == list(entry.parameters)
        assert checked_settings(entry, size, {one.name: one.value for one in made}) == {}
        for one in made:
            if one.kind == "slider":
                assert one.low <= float(one.value) <= one.high, one.name
                assert one.low * one.high > 0 or not one.log
                record = one.record
                for end in (one.low, one.high):
                    record.check(round(end) if record.type is int else end)


def test_settings_are_those_that_differ_in_standard_text():
    assert checked_settings(ENTRY, "default", {"samples": "100", "rate": "1e-03", "deep": "FALSE"}) == {
        "rate": "0.001", "deep": "False",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"samples": "401"}, r"samples must be at most 400 on this page; got 401\. Choose a larger size"),
        ({"sizes": "4,33"}, r"sizes must be at most 32"),
        ({"scales": ",".join(["1"] * 17)}, r"scales must have at most 16 values"),
        ({"sampels": "1"}, r"did you mean samples"),
        ({"samples": "0"}, r"samples must be at least 1; got 0"),
        ({"rate": "__import__('os')"}, r"rate must be a finite number"),
        ({"rate": "inf"}, r"rate must be a finite number"),
    ],
)
def test_what_costs_too_much_or_does_not_fit_is_refused(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        checked_settings(ENTRY, "default", settings)


def test_a_larger_size_allows_more_and_a_seed_may_be_any():
    assert checked_settings(ENTRY, "paper", {"samples": "4000"}) == {"samples": "4000"}
    assert checked_settings(ENTRY, "default", {"seed": "123456789"}) == {"seed": "123456789"}
    with pytest.raises(InputError, match="no size 'huge'"):
        checked_settings(ENTRY, "huge", {})
