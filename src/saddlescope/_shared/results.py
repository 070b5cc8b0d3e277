"""Bases of results: they print as short tables, become data frames, and draw themselves."""

from typing import TYPE_CHECKING

from saddlescope._shared.reprs import ReprMixin, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


class TableMixin(ReprMixin):
    """Base of results that are a table: subclasses give its columns and rows in `_table`.

    `repr` is one line, `print` shows the line and the first 24 rows, a notebook shows an HTML table.
    """

    def __str__(self) -> str:
        return text_table(repr(self), *self._table())

    def to_dataframe(self) -> "DataFrame":
        """Return the table as a pandas data frame; spaces in the names of its columns become underscores."""
        from pandas import DataFrame

        columns, rows = self._table()
        return DataFrame([tuple(row) for row in rows], columns=[column.replace(" ", "_") for column in columns])


class PlotMixin:
    """Base of results that draw themselves; `saddlescope.plot.result_panels` has their pictures, by class."""

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw this result with Matplotlib.

        Args:
            ax: axes to draw on; None: those of a new figure.

        Returns:
            The axes.
        """
        from saddlescope.plot.result_panels import plot_result  # upwards, allowed here alone (pyproject.toml)

        return plot_result(self, ax)
