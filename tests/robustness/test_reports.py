"""The valid calls are valid, and progress that they report rises to at most 1, with a note, and changes no result."""

import inspect
from functools import partial

import numpy as np
import pytest
from valid_calls import SUBPACKAGES, calls

_SILENT = {"factored_flow", "load"}  # these calls are over before a first report is due


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_valid_calls_report_progress_that_rises_to_at_most_one_and_changes_nothing(subpackage, types_unchecked):
    for name, call in calls(subpackage).items():
        silent = call()
        function = call.function.func if isinstance(call.function, partial) else call.function
        if "report" not in inspect.signature(function).parameters or name in _SILENT:
            continue
        told = []
        with types_unchecked():
            heard = call(report=lambda *report, told=told: told.append(report))
        fractions, notes = zip(*told, strict=True)
        assert list(fractions) == sorted(fractions), name
        assert 0 <= fractions[0] <= fractions[-1] <= 1, name
        assert all(isinstance(note, str) and note for note in notes), name
        for field in ("times", "losses", "values", "turning_times", "observed"):
            np.testing.assert_array_equal(getattr(heard, field, None), getattr(silent, field, None), name)
