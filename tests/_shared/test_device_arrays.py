"""Arrays of JAX from arrays of NumPy: values, types, no shared memory, and nothing compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared.device_arrays import on_device


@pytest.mark.parametrize("dtype", [None, np.float32, np.int32, jnp.bfloat16])
@pytest.mark.parametrize("value", [np.arange(6.0).reshape(2, 3), np.arange(3), 2, [1.0, 2.0], np.zeros((0, 2))])
def test_values_and_types_are_those_of_jax(value, dtype):
    made, wanted = on_device(value, dtype), jnp.asarray(value, dtype)
    assert isinstance(made, jax.Array)
    assert made.dtype == wanted.dtype
    np.testing.assert_array_equal(np.asarray(made), np.asarray(wanted))


def test_later_changes_of_the_numbers_change_nothing():
    values = np.zeros(4096)
    made = on_device(values)
    values[:] = 1
    assert not np.any(np.asarray(made))


def test_nothing_is_compiled():
    names = []

    def note(name, *_, fun_name="", **__):
        if name.endswith("backend_compile_duration"):
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        on_device(np.ones((3, 7, 11)), np.float32)
        assert names == []
        jnp.asarray(np.ones((3, 7, 11)), np.float32)  # else the test would see no compilation
        assert names != []
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
