"""Configurations: every number out of the range that its annotation names, and every unknown word, is refused."""

import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from tiny_diffusion import CONFIG as TINY

from saddlescope._shared.errors import InputError
from saddlescope.training import SGD, Adam, TrainConfig, ViTConfig
from saddlescope.training.architectures.gpt2 import GPT2Sizes
from saddlescope.training.configuration import Bounds
from saddlescope.training.diffusion import CircleProcess, ClassifierConfig, UNetConfig
from saddlescope.training.language_training import LanguageConfig

CONFIGURATIONS: list[Any] = [
    *(SGD, Adam, TrainConfig, ViTConfig, GPT2Sizes, LanguageConfig),
    *(CircleProcess, ClassifierConfig, UNetConfig, type(TINY)),
]
NEEDED = {LanguageConfig: {"steps": 10}}
OTHERWISE = {  # checked together with other fields, or with a reason of its own
    "warmup_epochs", "warmup_steps", "first_record", "initial_scale", "color_jitter", "size_jitter", "blur",
    "background", "classes",
}  # fmt: skip


def fields():
    for config in CONFIGURATIONS:
        for name, annotation in get_type_hints(config, include_extras=True).items():
            yield config, name, annotation, getattr(annotation, "__metadata__", ())


def outside(bounds, *, whole):
    """Return numbers just outside of a range and, where any number is meant, some that are none."""
    step = 1 if whole else 1e-3
    yield bounds.low if bounds.open_low else bounds.low - step
    if bounds.high < math.inf:
        yield bounds.high if bounds.open_high else bounds.high + step
    if not whole:
        yield from (math.nan, math.inf)


def wrong_values():
    for config, name, annotation, bounds in fields():
        kind = annotation.__origin__ if bounds else annotation
        for each in bounds:
            for value in outside(each, whole="int" in str(kind)):
                yield config, name, (value,) * 2 if get_origin(kind) is tuple else value
        if get_origin(kind) is Literal:
            yield config, name, f"{get_args(kind)[0]}s"


@pytest.mark.parametrize(("config", "name", "value"), list(wrong_values()))
def test_what_is_out_of_range_is_refused_in_one_sentence(config, name, value, types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match=rf"{name} must be .*; got|There is no {name} '") as refused:
        config(**NEEDED.get(config, {}) | {name: value})
    assert "\n" not in str(refused.value)


TOGETHER = [  # what fields must be beside each other, or for a reason of their own
    (TrainConfig, {"epochs": 3}, "warmup_epochs must be at least 0 and at most 3; got 15"),
    (TrainConfig, {"batch": 10, "pieces": 3}, "pieces must divide batch=10; got 3"),
    (LanguageConfig, {"warmup_steps": 12}, "warmup_steps must be at least 0 and at most 10; got 12"),
    (GPT2Sizes, {"heads": 7}, "heads must divide embedding=768; got 7"),
    (ViTConfig, {"patch": 5}, "patch must divide image_size=32; got 5"),
    (ViTConfig, {"initial_scale": 0.0}, "initial_scale must be a finite factor of at least 1e-6; got 0.0"),
    (ViTConfig, {"initial_scale": 1e-32}, "vanish in float32"),
    (ViTConfig, {"initial_scale": math.nan}, "initial_scale must be"),
    (UNetConfig, {"pixels": 30}, r"pixels must be a multiple of 4, since 3 levels halve the image 2 times; got 30\."),
    (UNetConfig, {"channels": ()}, r"channels must hold at least one width; got \(\)\."),
    (UNetConfig, {"normalization": "group", "groups": 24}, r"groups must divide every width in channels=\(64, 128, 25"),
    (UNetConfig, {"heads": 3}, r"heads must divide the last width in channels=\(64, 128, 256\); got 3\."),
    (CircleProcess, {"size_signal": 0.9}, "pixels across, .*; got"),  # no diameter is left for small
    (CircleProcess, {"diameter": 0.9}, "at most as wide as the image, .*; got"),
    (CircleProcess, {"color_jitter": 0.5}, "below 0.5, .*; got"),
    (CircleProcess, {"size_jitter": -0.1}, "at least 0 .*; got"),
    (CircleProcess, {"background": (1.0, 0.8)}, "the lower first; got"),
    (CircleProcess, {"blur": -1.0}, "at least 0 .*; got"),
    (CircleProcess, {"blur": math.inf}, "at most 8.0; got"),
    *((type(TINY), {"classes": given}, r"classes must be two or more different ones of 0, 1, 2 and 3; got \(0") for
      given in ((0,), (0, 0), (0, 4))),
    (type(TINY), {"first_record": 10, "steps": 9}, "first_record must be at least 1 and at most 9; got 10"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "given", "sentence"), TOGETHER)
def test_fields_that_do_not_fit_each_other_are_refused_in_one_sentence(config, given, sentence):
    with pytest.raises(InputError, match=sentence) as refused:
        config(**NEEDED.get(config, {}) | given)
    assert "\n" not in str(refused.value)


def test_every_number_has_a_range():
    for config, name, annotation, bounds in fields():
        numeric = {int, float} & {annotation, *get_args(annotation)}
        assert bounds or not numeric or name in OTHERWISE, (config, name)


def test_ranges_are_said_in_words():
    for bounds, value, words in (
        (Bounds(1), 0, "n must be at least 1; got 0."),
        (Bounds(0, open_low=True), math.nan, "n must be finite and above 0; got nan."),
        (Bounds(0, 1, open_high=True), 1.0, "n must be at least 0 and below 1; got 1.0."),
        (Bounds(0, 3), 15, "n must be at least 0 and at most 3; got 15."),
    ):
        with pytest.raises(InputError) as refused:
            bounds.check("n", value)
        assert str(refused.value) == words
    assert TrainConfig(threads=None).threads is None
