"""Calls that the library refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from saddlescope._shared.errors import InputError


def refused(sentence: str, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """Check that a call raises `InputError` with a message that has this regular expression."""
    with pytest.raises(InputError, match=sentence):
        call(*arguments, **options)
