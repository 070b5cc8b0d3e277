"""Ranks of low-rank adapters from the spectra of weight updates.

s_1 >= s_2 >= ...       singular values of the update of one matrix, m x n
energy                  sum(s^2) = |W - W0|_F^2; rank r captures s_1^2 + ... + s_r^2 of it (Eckart and Young)
parameters              r (m + n): a LoRA of rank r is a product of m x r and r x n
"""

import heapq
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from jaxtyping import Float

from saddlescope._shared.arguments import require, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.measure import energy_rank

SpectraByName: TypeAlias = Mapping[str, Float[np.ndarray, " values"]]


@validate_arguments
def matrix_spectra(spectra: xr.Dataset, *, step: int | None = None) -> dict[str, np.ndarray]:
    """Return the spectra of single matrices at one record of a data set of `RankTracker` or of checkpoints.

    Args:
        spectra: data set with the variables `matrix_update_spectrum`, all singular values, and `matrix_measurable`.
        step: step of the record, as in the coordinate; None selects the last.

    Returns:
        Singular values by name of the matrix; zeros if the update is not measurable in its precision.

    Raises:
        InputError: no single matrices were measured, the step does not exist, or only the largest values were recorded.
    """
    if "matrix_update_spectrum" not in spectra:
        raise InputError("spectra must have single matrices; got none. Measure them with matrices='*', for example.")
    if step is not None and step not in spectra.step:
        known = ", ".join(map(str, spectra.step.values))
        raise InputError(f"step must be that of a record; got {step!r}. Known: {known}.")
    record = spectra.isel(step=-1) if step is None else spectra.sel(step=step)
    values, norms = record.matrix_update_spectrum, record.matrix_update_norm
    truncated = (values**2).sum("index") < (1 - 1e-6) * norms**2
    if bool(truncated.any()):
        raise InputError("spectra must have all singular values; got the largest few. Measure again without top=.")
    measurable = values.where(record.matrix_measurable, 0.0)
    return {str(name): measurable.sel(matrix=name).values for name in measurable.matrix.values}


@validate_arguments
def ranks_for_energy(spectra: SpectraByName | xr.Dataset, energy: float) -> dict[str, int]:
    """Return for each matrix the least rank that captures a fraction of the energy of its update.

    Args:
        spectra: singular values by name of the matrix, or a data set as for `matrix_spectra` (its last record).
        energy: the fraction, in (0, 1].

    Returns:
        Ranks by name; 0 if nothing changed.

    Raises:
        InputError: the fraction is out of its range, or the spectra cannot be used.

    >>> ranks_for_energy({"flat": np.array([1.0, 1.0]), "steep": np.array([3.0, 0.1])}, 0.95)
    {'flat': 2, 'steep': 1}
    """
    return {name: int(energy_rank(values, fraction=energy)) for name, values in _by_name(spectra).items()}


@validate_arguments
def allocate_ranks(
    spectra: SpectraByName | xr.Dataset, shapes: Mapping[str, tuple[int, int]], *, parameters: int
) -> dict[str, int]:
    """Allocate a budget of parameters to ranks so that together they capture as much energy as possible.

    Directions are selected one by one, always the one with the most energy per parameter that still fits the remaining
    budget. For matrices of one shape that is the optimum; otherwise it misses the optimum by less than the energy of
    one direction, as greedy solutions of knapsack problems do, since within a matrix each direction has less energy
    than the previous one.

    Args:
        spectra: singular values by name, descending, or a data set as for `matrix_spectra` (its last record). Scale
            them first if matrices should count by the shape of their spectrum and not by their size.
        shapes: (m, n) of each matrix.
        parameters: largest number of parameters of all adapters together.

    Returns:
        Ranks by name, at most min(m, n) each; the sum of r (m + n) is at most `parameters`.

    Raises:
        InputError: singular values that are not real, finite and at least 0, a matrix without a shape of two positive
            integers, or a budget below 0.

    >>> spectra = {"a": np.array([3.0, 2.0]), "b": np.array([1.0, 0.5])}
    >>> allocate_ranks(spectra, {"a": (8, 8), "b": (8, 8)}, parameters=48)
    {'a': 2, 'b': 1}
    """
    by_name = _by_name(spectra)
    if absent := [name for name in by_name if name not in shapes]:
        raise InputError(f"shapes must have every matrix of the spectra; got none of {absent[0]}.")
    checked = {name: _shape(name, shapes[name]) for name in by_name}
    cost = {name: sum(checked[name]) for name in by_name}
    most = {name: min(len(values), *checked[name]) for name, values in by_name.items()}
    if parameters < 0:
        raise InputError(f"parameters must be at least 0; got {parameters!r}.")
    remaining, ranks = parameters, dict.fromkeys(by_name, 0)
    queue: list[tuple[float, str]] = []

    def offer(name: str) -> None:
        if ranks[name] < most[name] and by_name[name][ranks[name]] > 0:
            energy = 2 * math.log(float(by_name[name][ranks[name]]))  # as a logarithm: squares over- and underflow
            heapq.heappush(queue, (math.log(cost[name]) - energy, name))

    for name in by_name:
        offer(name)
    while queue:
        _, name = heapq.heappop(queue)
        if cost[name] <= remaining:
            remaining -= cost[name]
            ranks[name] += 1
            offer(name)
    return ranks


def _by_name(spectra: Any) -> dict[str, np.ndarray]:
    if isinstance(spectra, xr.Dataset):
        spectra = matrix_spectra(spectra)
    require("spectra", spectra, Mapping[str, Any])
    if not spectra:
        raise InputError("spectra must have one matrix or more; got none.")
    return {name: _descending(name, values) for name, values in spectra.items()}


def _descending(name: str, values: Any) -> np.ndarray:
    """Return singular values in descending order, checked."""
    require(f"spectra[{name!r}]", values, Float[np.ndarray, " values"])
    found = np.asarray(values, dtype=float)
    if not np.all(np.isfinite(found) & (found >= 0)):
        raise InputError(f"spectra[{name!r}] must be finite singular values of at least 0; got {found!r:.60}.")
    return np.sort(found)[::-1]


def _shape(name: str, shape: Any) -> tuple[int, int]:
    """Return the shape of a matrix, checked."""
    require(f"shapes[{name!r}]", shape, tuple[int, int])
    m, n = map(int, shape)
    if min(m, n) < 1:
        raise InputError(f"shapes[{name!r}] must be two positive integers, (m, n); got {shape!r}.")
    return m, n
