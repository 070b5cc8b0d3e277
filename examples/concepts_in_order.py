"""Predict when concepts are learned, and count the descents of the out-of-distribution loss (Yang et al.)."""

# %% Three concepts; their strengths determine the flow of a linear network
import jax
import numpy as np

import saddlescope as ss
from saddlescope.models import StructuredIdentityTask, symmetric_weights
from saddlescope.theory.concepts import concept_stages

task = StructuredIdentityTask(mu=(1.0, 1.5, 2.2), sigma=(0.1, 0.3, 0.1), samples_per_cluster=1000, dim=3)
with jax.enable_x64(True):
    starts = np.asarray(symmetric_weights(3, 3, seed=0, log_scale=np.log(0.1), num_starts=1000))

# %% Predict from the initial weights when each concept is learned
times = concept_stages(task.strengths, starts[0]).times
for strength, time in zip(task.strengths, times, strict=True):
    print(f"strength {strength:.3f}: learned at t = {time:.2f}")

# %% Simulate a thousand runs at once, with every extremum of the out-of-distribution loss
flows = ss.symmetric_flows(task.strengths, starts, test_point=task.test_point, until=60.0, tolerance=1e-11)
descents = ss.find_descents(flows.turning_losses).counts
for count, runs in enumerate(np.bincount(descents)):
    if runs:
        print(f"{runs} of {len(starts)} runs fall {count} times")
