"""Bad input to the public functions of every room ends in one clear sentence: generated, one argument at a time.

Types are not checked at run time here, as in the hands of users: what is under test is the library's own door.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from bad_values import bad
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from valid_calls import ROOMS, calls

from saddlescope._shared.errors import InputError

_EXAMPLES = 40  # a room

# Arguments that pass a pytree to a function of the user's own, which alone can say what fits it.
_THE_USERS_OWN = {("escape_flow", "weights"), ("weight_flow", "start")}
_LONG = {"flow", "studies"}  # rooms whose functions take long on what makes sense after all
# NaN is an answer there, not a hole: a verdict is left open, a staircase is missing.
_OPEN = {("norm_verdict", "excess"), ("norm_verdict", "contrast"), ("rank_staircases", "values")}
_OPEN |= {("rank_staircases", "noise_floors"), ("DiagonalMarginInit", "plus"), ("DiagonalMarginInit", "minus")}


def has_nan(result: Any) -> bool:
    """Whether an answer says that it is none."""
    if dataclasses.is_dataclass(result):
        return any(has_nan(getattr(result, each.name)) for each in dataclasses.fields(result))
    leaves = [leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, float | np.ndarray | jax.Array)]
    return any(bool(np.any(np.isnan(np.asarray(leaf)))) for leaf in leaves if np.asarray(leaf).dtype.kind == "f")


def is_a_sentence(told: str) -> bool:
    """Whether a message is one clear line of bearable length."""
    return 20 < len(told) < 600 and "\n" not in told.strip() and not told.startswith(("'", "("))


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_works_with_what_is_varied(room):
    """Each of the calls that are made bad is a good one."""
    for call in calls(room).values():
        call()


@pytest.mark.parametrize("room", ROOMS)
def test_bad_arguments_end_in_one_clear_sentence(room, types_unchecked):
    refused = []

    @settings(
        max_examples=_EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def examples(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(calls(room))), label="function")
        call = calls(room)[name]
        argument = data.draw(st.sampled_from(sorted(call.arguments)), label="argument")
        what, value = data.draw(bad(call.arguments[argument]), label="value")
        if ((name, argument) in _THE_USERS_OWN or room in _LONG) and what not in {"kind", "hole"}:
            return
        try:
            result = call(**{argument: value})
        except InputError as error:
            refused.append(str(error))
        else:
            assert what != "kind", f"{name} took {argument}={value!r} for good"
            assert what != "hole" or has_nan(result) or (name, argument) in _OPEN, f"{name} hid the NaN in {argument}"

    with types_unchecked():
        examples()
    assert len(refused) >= _EXAMPLES // 4
    assert all(map(is_a_sentence, refused)), [told for told in refused if not is_a_sentence(told)]
