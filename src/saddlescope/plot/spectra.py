"""Picture of the ranks that a tracker or two checkpoints show."""

from typing import TYPE_CHECKING, Any

from saddlescope.figures.spectra_panel import spectra_panel
from saddlescope.plot.axes import draw_on_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_spectra(spectra: Any, ax: "Axes | None" = None) -> "Axes":
    """Draw the stable rank of the updates: over training, or with a single record over depth.

    Thin lines are layers (means over heads), bold ones the mean over all heads; single matrices have a line each.

    Args:
        spectra: a `RankTracker`, its records, or a data set of `checkpoint_spectra` or `RankTracker.to_xarray`.
        ax: Matplotlib axes to draw on; None: those of a new figure.

    Returns:
        The axes.

    Raises:
        InputError: these are no spectra, or nothing was recorded yet.
    """
    return draw_on_axes(spectra_panel(spectra), ax)
