"""Invalid values for an argument, drawn from a valid one: another type, a NaN entry, another shape."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

FOREIGN = st.one_of(
    st.text(max_size=20),
    st.complex_numbers(allow_nan=False, allow_infinity=False),
    st.dictionaries(st.text(max_size=3), st.integers(), min_size=1, max_size=2),
    st.binary(max_size=8),
    st.just(object()),
)
"""Neither a number, an array, a function nor an object of this package."""


def bad(value: Any) -> st.SearchStrategy[tuple[str, Any]]:
    """Draw a fault and the value: "kind" and "hole" (NaN) must raise, "shape" and "range" may be valid.

    None is not used: it is the default of many arguments.
    """
    if isinstance(value, bool):
        return _given("kind", FOREIGN)
    if isinstance(value, int):
        fraction = st.floats(-1e3, 1e3).filter(lambda x: not x.is_integer())
        too_large = st.integers(2**63, 2**90)
        return _given("kind", FOREIGN | fraction | too_large) | _given("range", st.integers(-(2**40), -1))
    if isinstance(value, float):
        infinite = st.sampled_from([np.inf, -np.inf])
        negative = st.floats(-1e12, -1e-3)
        return _given("kind", FOREIGN) | _given("hole", st.just(float("nan"))) | _given("range", infinite | negative)
    if isinstance(value, str):
        foreign = st.one_of(st.integers(), st.binary(max_size=4), st.just(object()))
        return _given("kind", foreign) | _given("name", st.text(max_size=12).filter(lambda text: text != value))
    if isinstance(value, np.ndarray | jax.Array):
        return _array(value)
    if isinstance(value, list | tuple):
        return _row(value)
    return _given("kind", st.one_of(st.text(max_size=9), st.integers(), st.just(object()), st.binary(max_size=4)))


def _given(what: str, strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return strategy.map(lambda value: (what, value))


@st.composite
def _array(draw: st.DrawFn, value: Any) -> tuple[str, Any]:
    library = np if isinstance(value, np.ndarray) else jnp
    array = np.asarray(value)
    what = draw(
        st.sampled_from(["foreign", "texts", "objects", "complex", "ragged", "nan", "inf", "axes", "rows", "no"])
    )
    place = draw(st.integers(0, max(0, array.size - 1)))
    match what:
        case "foreign":
            return "kind", draw(FOREIGN)
        case "texts":
            return "kind", np.full(array.shape, draw(st.text("abc<", min_size=1, max_size=3)))
        case "objects":
            return "kind", np.full(array.shape, None)
        case "complex":
            return "kind", library.asarray(array + 1j)
        case "ragged":
            return "kind", [[1.0], [1.0, 2.0]]
        case "nan" | "inf" if array.dtype.kind == "f":
            holed = array.astype(float)
            holed.flat[place] = np.nan if what == "nan" else draw(st.sampled_from([np.inf, -np.inf]))
            return ("hole" if what == "nan" else "range"), library.asarray(holed)
        case "rows":
            axis = draw(st.integers(0, max(0, array.ndim - 1)))
            return "shape", library.asarray(np.delete(array, 0, axis=axis))
        case "no":
            return "shape", library.asarray(array[:0])
        case _:
            return "shape", library.asarray(array[(None,) * draw(st.integers(1, 3))])


@st.composite
def _row(draw: st.DrawFn, value: Any) -> tuple[str, Any]:
    kind = type(value)
    entries = list(value)
    what = draw(st.sampled_from(["foreign", "entry", "fewer", "empty"]))
    if what == "foreign":
        return "kind", draw(FOREIGN | st.integers(10, 99))
    if what == "entry":
        place = draw(st.integers(0, len(entries) - 1))
        category, entries[place] = draw(bad(entries[place]))
        return category, kind(entries)
    return "shape", kind(entries[:-1] if what == "fewer" else [])
