"""Descents of the loss out of distribution of many networks, and their outputs at its highest rise."""

import numpy as np
import xarray as xr

HYSTERESIS = 0.01  # of the loss at the start: a descent exceeds it


def loss_descents(found: xr.Dataset, *network: str) -> xr.Dataset:
    """Return `descents`, the largest `rise` of the loss over its start, and `peak_output` there, for each network.

    Args:
        found: training runs, with `test_loss` and `output` over the networks and `step`.
        *network: names of the dimensions that number the networks.
    """
    from saddlescope.measure import find_descents

    losses = found.test_loss.transpose(*network, "step").values.astype(float)
    above = losses - np.minimum.accumulate(losses, axis=-1)
    peak = xr.DataArray(np.argmax(above, axis=-1), dims=network)
    counts = find_descents(losses.reshape(-1, losses.shape[-1]), hysteresis=HYSTERESIS).counts
    return xr.Dataset(
        {
            "descents": (network, counts.reshape(losses.shape[:-1])),
            "rise": (network, above.max(axis=-1) / losses[..., 0]),
            "peak_output": found.output.isel(step=peak).drop_vars("step"),
        }
    )
