"""Predict and simulate the stages of your network h(x; u * v).

The prediction (Algorithm 1 of Boix-Adserà et al.) uses only the loss; the simulation does not use the prediction.
"""

# %% A network that multiplies a readout by a gate
import jax
import jax.numpy as jnp
import numpy as np

import saddlescope as ss
from saddlescope.flow import DiagonalInit

jax.config.update("jax_enable_x64", True)


def h(x, beta):
    return (x @ beta[:3]) * (1 + jnp.tanh(x @ beta[3:]))


rng = np.random.default_rng(0)
x = jnp.asarray(rng.standard_normal((300, 3)))
teacher = jnp.array([1.5, -0.8, 0.0, 0.0, 0.0, 0.9])
network = ss.DiagonalNetwork(h, x, jax.vmap(lambda sample: h(sample, teacher))(x))

# %% Predict from the loss and the initial weights
u0, v0 = rng.standard_normal((2, 6))
predicted = ss.incremental_learning(network, 6, weights=(u0, v0))
print(predicted)

# %% Simulate from weights of size 1e-100
start = DiagonalInit(u0, v0, log_scale=-100 * np.log(10))
run = ss.gradient_flow(network, start, until=1.5 * predicted.stages[-1].time, tolerance=1e-6)
found = ss.find_stages(run.times, run.losses, run.beta, level=0.01, time_unit=run.time_unit)

# %% Compare
comparison = ss.compare(predicted.staircase, found)
print(comparison)
for match in comparison.matches:
    print(f"coordinate {match.predicted.component}: {match.predicted.time:.4f} predicted, {match.found.time:.4f} found")
