"""No statistic is blind: each claim whose value is inside its bounds on a quick run leaves them if the run is changed.

One test for all claims, in place of a spoiled run for each. The numbers of one variable are moved, mirrored, mixed, or
made equal; what a claim does not read may change as it likes.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction import entry_names, find_entry

PAPERS = ("beyond/", "concept-learning/", "deep-relu/")


def mutations(run: xr.Dataset) -> Iterator[xr.Dataset]:
    """Yield runs in which one variable is another one."""
    rng = np.random.default_rng(0)
    for name, values in run.data_vars.items():
        if values.dtype.kind == "b":
            yield run.assign({name: ~values})
        elif values.dtype.kind in "iuf":
            numbers = values.values.astype(float)
            far = 3 * float(np.nanmax(np.abs(numbers), initial=1.0, where=np.isfinite(numbers)))
            mixed = rng.permutation(numbers.ravel()).reshape(numbers.shape)
            others = [-numbers, numbers + far, numbers - far, 1e3 * numbers, 0 * numbers, mixed, numbers + mixed]
            for axis in range(numbers.ndim):
                first = (slice(None),) * axis + (slice(1),)
                moved = numbers.copy()
                moved[first] += far
                others += [np.flip(numbers, axis), moved, np.broadcast_to(numbers[first], numbers.shape)]
            kind = np.int64 if values.dtype.kind == "i" else float  # a count stays one
            yield from (run.assign({name: (values.dims, other.astype(kind))}) for other in others)


@pytest.mark.filterwarnings("ignore")  # of what cannot be computed from a changed run
@pytest.mark.parametrize("name", [name for name in entry_names() if name.startswith(PAPERS)])
def test_every_value_inside_its_bounds_can_leave_them(quick_run, name):
    run = quick_run(name).run
    inside = {claim.name: claim for claim in find_entry(name).claims if claim.judge(run).outcome.inside}
    for changed in mutations(run):
        if not inside:
            return
        for claim in tuple(inside.values()):
            try:
                value = claim.judge(changed).value
            except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):  # it cannot be read any more
                continue
            if value < claim.low or value > claim.high:
                del inside[claim.name]
    assert not inside
