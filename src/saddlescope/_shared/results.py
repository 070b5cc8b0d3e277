"""Base of results that are tables: they print as short tables and become data frames."""

from typing import TYPE_CHECKING

from saddlescope._shared.reprs import ReprMixin, text_table

if TYPE_CHECKING:
    from pandas import DataFrame


class TableMixin(ReprMixin):
    """Base of results that are a table: subclasses give its columns and rows in `_table`.

    `repr` is one line. `print` shows the line, the first 24 rows, and the `message` of results that have one: why a
    prediction ended, and what to pass. A notebook shows the same as an HTML table.
    """

    def __str__(self) -> str:
        return "\n".join([text_table(repr(self), *self._table()), *self._reason()])

    def _caption(self) -> str:
        return "\n".join([super()._caption(), *self._reason()])

    def _reason(self) -> list[str]:
        return [message] if (message := getattr(self, "message", "")) else []

    def to_dataframe(self) -> "DataFrame":
        """Return the table as a pandas data frame; spaces in the names of its columns become underscores."""
        from pandas import DataFrame

        columns, rows = self._table()
        return DataFrame([tuple(row) for row in rows], columns=[column.replace(" ", "_") for column in columns])
