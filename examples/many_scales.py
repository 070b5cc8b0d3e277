"""Simulate one problem at many initial scales: the loss tends to a staircase as the scale vanishes."""

# %% A linear network with diagonal weights
import jax
import numpy as np

import saddlescope as ss
from saddlescope.flow import DiagonalInit
from saddlescope.models import diagonal_linear_network
from saddlescope.plot import Axis, Figure, Line, Panel, draw_matplotlib

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
x = rng.standard_normal((200, 6))
network = diagonal_linear_network(x, x @ np.array([2.0, -1.4, 0.9, -0.5, 0.0, 0.0]))
u0, v0 = rng.standard_normal((2, 6))

# %% Five flows in one call; each keeps its own step size
exponents = (-1, -2, -4, -16, -64)
starts = [DiagonalInit(u0, v0, log_scale=exponent * np.log(10)) for exponent in exponents]
flows = ss.gradient_flow_batched(network, starts, until=2.0, tolerance=1e-4, level=0.05)
predicted = ss.incremental_learning(network, 6, weights=(u0, v0))

# %% Distance to the staircase that Algorithm 1 predicts; it decreases with the scale
begun = np.searchsorted([stage.time for stage in predicted.stages], flows.times, side="right") - 1
levels = np.array([stage.loss for stage in predicted.stages])[begun]
distances = np.trapezoid(np.abs(flows.losses - levels), flows.times, axis=1)
for exponent, distance in zip(exponents, distances, strict=True):
    print(f"alpha = 1e{exponent}: distance to the staircase {distance:.3g}")

# %% Plot
curves = [Line(x=flows.times, y=loss, label=f"1e{k}") for k, loss in zip(exponents, flows.losses, strict=True)]
curves.append(Line(x=flows.times, y=levels, label="Algorithm 1", style="dashed", color=None))
panel = Panel(x=Axis("time / log(1/alpha)"), y=Axis("loss"), marks=tuple(curves))
figure = Figure(name="scales", title="A staircase appears", caption="", panels=(panel,))
draw_matplotlib(figure).savefig("many_scales.png", dpi=110)
