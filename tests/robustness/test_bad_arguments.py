"""Invalid input to the public functions raises one clear sentence: generated, one argument at a time.

Run-time type checks are off, as for users: these tests cover the library's own validation.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from bad_values import bad
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from valid_calls import SUBPACKAGES, calls

from saddlescope._shared.errors import InputError

_EXAMPLES = 40  # per subpackage

# Arguments that pass a pytree to the user's function, which alone can validate it.
_USER_DEFINED = {("escape_flow", "weights")}
_LONG = {"flow", "studies"}  # subpackages whose functions take long on valid arguments
# NaN is a valid value there: a verdict is undecided, a staircase is missing.
_OPEN = {("norm_verdict", "excess"), ("norm_verdict", "contrast"), ("rank_staircases", "values")}
_OPEN |= {("unit_learning", "parameters"), ("width_ladder", "parameters")}  # only shapes matter
_OPEN |= {("rank_staircases", "noise_floors"), ("DiagonalMarginInit", "plus"), ("DiagonalMarginInit", "minus")}


def has_nan(result: Any) -> bool:
    """Return True if a result contains NaN."""
    if dataclasses.is_dataclass(result):
        return any(has_nan(getattr(result, each.name)) for each in dataclasses.fields(result))
    leaves = [leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, float | np.ndarray | jax.Array)]
    return any(bool(np.any(np.isnan(np.asarray(leaf)))) for leaf in leaves if np.asarray(leaf).dtype.kind == "f")


def is_a_sentence(message: str) -> bool:
    """Return True if a message is one line of moderate length."""
    return 20 < len(message) < 600 and "\n" not in message.strip() and not message.startswith(("'", "("))


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_bad_arguments_raise_one_clear_sentence(subpackage, types_unchecked):
    messages = []

    @settings(
        max_examples=_EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
    )
    @given(st.data())
    def examples(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(calls(subpackage))), label="function")
        call = calls(subpackage)[name]
        argument = data.draw(st.sampled_from(sorted(call.arguments)), label="argument")
        what, value = data.draw(bad(call.arguments[argument]), label="value")
        if ((name, argument) in _USER_DEFINED or subpackage in _LONG) and what not in {"kind", "hole"}:
            return
        try:
            result = call(**{argument: value})
        except InputError as error:
            messages.append(str(error))
        else:
            assert what != "kind", f"{name} accepted {argument}={value!r}"
            assert what != "hole" or has_nan(result) or (name, argument) in _OPEN, f"{name} hid the NaN in {argument}"

    with types_unchecked():
        examples()
    assert len(messages) >= _EXAMPLES // 4
    assert all(map(is_a_sentence, messages)), [message for message in messages if not is_a_sentence(message)]
