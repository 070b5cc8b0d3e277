"""The one table of tolerances. A loosening is an edit here, with its reason beside it."""
