"""docs/reference/arguments.md: public functions share the scheme of its table."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from saddlescope._shared.progress import silent

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "arguments.md").read_text()
PACKAGES = [
    "flow",
    "theory",
    "theory.concepts",
    "models",
    "measure",
    "studies",
    "ranks",
    "training",
    "sweeps",
]
OTHER_NAMES = {
    "marks",
    "log_times",
    "rtol",
    "atol",
    "max_gradients",
    "most",
    "scale",
    "log10_scale",
    "number_of_starts",
}


def _parameters():
    """Return every parameter of every public function, by the function's dotted name."""
    for package in PACKAGES:
        module = import_module(f"saddlescope.{package}")
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield f"{package}.{name}", inspect.signature(found).parameters


FUNCTIONS = dict(_parameters())


def test_every_argument_of_the_table_is_one_of_a_public_function():
    named = {
        name for row in re.findall(r"^\| [^|]+ \| ([^|]+) \|", PAGE, re.M) for name in re.findall(r"`(\w+)=?`", row)
    }
    assert len(named) >= 13
    assert named <= {argument for parameters in FUNCTIONS.values() for argument in parameters}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_follow_the_scheme(name):
    parameters = FUNCTIONS[name]
    assert not OTHER_NAMES & set(parameters)
    policies = {"until", "log_until", "record", "tolerance", "max_evaluations", "num_starts", "report", "throw"}
    for policy in policies & set(parameters):
        assert parameters[policy].kind is inspect.Parameter.KEYWORD_ONLY, policy
    if "report" in parameters:
        assert parameters["report"].default is silent
    if name.startswith("flow."):
        for required in {"until", "log_until", "tolerance"} & set(parameters):
            assert parameters[required].default is inspect.Parameter.empty, required
