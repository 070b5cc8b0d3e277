"""The first order of a unit that has a utility: leaps, where that of its leading part cancels on the data.

f     phi_kappa + phi_(kappa+1) + ..., by degree in the weights; kappa the degree of the unit at the origin
U_j   sum_n <phi_j(x_n; theta), r_n>: GELU neurons on XOR have U_2 = 0, and grow by U_3 in times of 1 / alpha
L     L_0 - sum_j U_j + O(f^2): from the degree 2 kappa on, units act together
"""

import dataclasses

import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope.theory.units.unit_checks import LARGEST_DEGREE
from saddlescope.theory.units.unit_network import UnitNetwork

_PROBES = 4  # random directions of each kind at which U is compared with its terms
_CANCELLED = 1e-12  # share of the terms of U that is rounding


def at_first_order(network: UnitNetwork) -> UnitNetwork:
    """Return the network with phi the first part of the unit that has a utility at the origin, below twice kappa.

    It is the network itself if that is the leading part, or if there is none.
    """
    _, residual = network.origin
    orders = range(round(network.degree), min(2 * round(network.degree), LARGEST_DEGREE + 1))
    if network.homogeneous or not np.any(residual):
        return network
    parts = (_of_order(network, order) for order in orders)
    return next((part for part in parts if has_utility(part, residual)), network)


def has_utility(network: UnitNetwork, residual: Array) -> bool:
    """Return True if U is more than rounding, at some of a few random directions."""
    slopes = network.utilities(*_probes(network), residual)[1]
    return float(np.max(np.linalg.norm(slopes, axis=1))) > rounding(network, residual)


def gains_lower_order(network: UnitNetwork, residual: Array) -> bool:
    """Return True if a part of the unit below phi, which had no utility at the origin, has one."""
    orders = range(round(network.first_degree), round(network.degree))
    return any(has_utility(_of_order(network, order), residual) for order in orders)


def why_nothing_grows(network: UnitNetwork) -> str:
    """Return why no unit leaves the origin, in a sentence."""
    _, residual = network.origin
    if not np.any(residual) or has_utility(network, residual):
        return "No unit has a positive utility at the origin: nothing will ever be learned from small weights."
    return (
        "The utility of all units is 0 at the origin but for rounding: no unit grows by terms of a degree below "
        f"{2 * network.first_degree:g}. What units learn together by higher ones, later, is not predicted. Simulate it "
        "with unit_flow."
    )


def rounding(network: UnitNetwork, residual: Array) -> float:
    """Return a bound of what rounding leaves of |grad U| where the terms of U, or of lower orders, cancel."""
    orders = range(round(network.first_degree), round(network.degree))
    parts = [network, *(_of_order(network, order) for order in orders)]
    return _CANCELLED * network.degree * max(float(np.max(part.terms(*_probes(network), residual))) for part in parts)


def _of_order(network: UnitNetwork, order: int) -> UnitNetwork:
    system = dataclasses.replace(network.system, taylor=order)
    return dataclasses.replace(network, system=system, degree=float(order))


def _probes(network: UnitNetwork) -> tuple[Float[np.ndarray, "m p"], Int[np.ndarray, "m"]]:
    drawn = np.random.default_rng(0).standard_normal((_PROBES * network.kinds, network.size))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.arange(len(drawn)) % network.kinds
