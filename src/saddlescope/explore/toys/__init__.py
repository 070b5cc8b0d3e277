"""Five small entries made for the live page: each answers a moved slider within a second."""

from collections.abc import Mapping

SHAPES: Mapping[str, tuple[dict[str, str], ...]] = {
    "toys/escape": tuple({"depth": str(depth)} for depth in (2, 4, 5, 6)),
}
"""Settings with shapes of their own, by toy: a server that has nothing to do compiles them."""
