"""Flows that end early: an error that says why and what to do, with what was computed, or the same as a status."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.robustness.valid_calls import calls

from saddlescope.flow import FlowError, ParameterInit


def wall(beta):
    return -jnp.sum(beta) + 0 * jnp.sum(jnp.sqrt(0.5 - beta))  # the gradient is NaN beyond 0.5


def falling(beta):
    return -jnp.sum(beta)


def broken(output, target):
    return jnp.where(output > 0.1, jnp.nan, 0.5) * (output - target) ** 2


LONG = {"until": 60.0, "record": None}
FEW = {"max_evaluations": 15, "tolerance": 1e-9}
ENDINGS = [
    *((f"{name}_flow", LONG | FEW, "max_evaluations=15 were used up") for name in ("gradient", "factored", "unit")),
    ("gradient_flow_batched", LONG | {"max_evaluations": 15}, "max_evaluations=15 were used up"),
    ("escape_flow", LONG | {"max_evaluations": 42}, "max_evaluations=42 were used up"),
    *((f"{name}_margin_flow", {"log_until": 100.0, "record": None, "max_evaluations": 15}, "max_evaluations=15 were")
      for name in ("diagonal", "matrix", "key_query")),
    ("gradient_flow", LONG | {"loss": wall}, "NaN or infinite just after"),
    ("gradient_flow_batched", LONG | {"loss": wall}, "NaN or infinite just after"),
    ("factored_flow", LONG | {"loss": lambda B: wall(B[0])}, "NaN or infinite just after"),
    ("unit_flow", LONG | {"loss": broken}, "NaN or infinite just after T = "),
    ("gradient_flow", LONG | {"loss": falling}, "exceed"),
    ("gradient_flow_batched", LONG | {"loss": falling}, "exceed"),
    ("factored_flow", LONG | {"loss": lambda B: -jnp.trace(B[0])}, r"exceed 1e\+13"),
    ("unit_flow", LONG | {"loss": lambda f, y: -f * y}, "A norm exceeds 1e13 at T = "),
    ("gradient_descent", {"steps": 500, "record": None, "learning_rate": 9.0, "loss": lambda b: jnp.sum(b**4),
                          "start": ParameterInit(np.ones(2))}, "smaller learning rate"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changed", "words"), ENDINGS)
def test_a_flow_that_ends_early_says_why_and_keeps_what_it_has(name, changed, words):
    call = calls("flow")[name]
    with pytest.raises(FlowError, match=words) as raised:
        call(**changed)
    found = call(**changed, throw=False)
    for result in (raised.value.result, found):
        statuses = getattr(result, "statuses", None) or [result.status]
        assert not any(status.ok for status in statuses)
        for one in getattr(result, "each", [result]):
            times = one.log_times if "margin" in name else one.times
            assert len(times) > 0
            assert times[-1] <= changed.get("until", changed.get("log_until", np.inf))
            assert np.isfinite(one.log_excess if "margin" in name else one.losses).all()
    np.testing.assert_array_equal(getattr(found, "losses", 0), getattr(raised.value.result, "losses", 0))
