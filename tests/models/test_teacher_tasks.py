"""Tasks whose targets are those of a teacher."""

import jax
import jax.numpy as jnp
import numpy as np

from saddlescope.models import attention_head, attention_teacher_task


def test_the_targets_of_the_attention_task_are_those_of_a_head():
    """Pure noise has no stages to be learnt in."""
    task = attention_teacher_task(seed=1, samples=20)
    head = jax.vmap(attention_head, in_axes=(0, None))
    found = head(task.network.inputs, jnp.asarray(task.teacher))
    np.testing.assert_allclose(found, task.network.targets, atol=1e-12)
    assert np.std(task.network.targets) > 0.1
