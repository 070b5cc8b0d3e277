"""Search for starts of the symmetric two-layer flow whose loss out of distribution descends a given number of times.

Such starts are rare (three descents: one in a hundred Gaussian starts on the data of Figure 8 of Yang et al. 2024; the
paper tuned its seed), and their visibility depends on the rise of the loss in between. So a large pool of random starts
is followed, and an evolutionary search maximises the rise before the last descent.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import require, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.two_layer.symmetric_flows import Ending, SymmetricFlows, symmetric_flows


@dataclass(frozen=True)
class SearchPolicy:
    """Policy of the evolutionary search.

    Attributes:
        parents: starts that are kept from one generation to the next.
        children: starts of a generation.
        changed: part of a start's entries that a child has of another size.
        flipped: part of them that it has of the other sign.
        factor: standard deviation of the logarithm of a change of size.
        coarse: tolerance of the search.
        fine: tolerance of the run that is returned.
        small: standard deviation of the pool's entries, in units of the bound.
    """

    parents: int = 64
    children: int = 512
    changed: float = 0.5
    flipped: float = 0.02
    factor: float = 0.3
    coarse: float = 1e-6
    fine: float = 1e-11
    small: float = 1 / 3


_POLICY = SearchPolicy()


class SearchError(RuntimeError):
    """No start with the given number of descents was found."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FoundStart(ReprMixin):
    """Result of a search.

    Attributes:
        start: U at time 0, shape (d, d).
        rise: rise of the loss before its last descent, in units of |x|^2 / 2.
        flow: the run from there, at a tolerance of 1e-11.
        followed: number of starts followed.
    """

    start: Float[np.ndarray, "d d"]
    rise: float
    flow: SymmetricFlows
    followed: int


@validate_arguments
def find_start(
    moment: Any,
    *,
    descents: int,
    test_point: Any,
    until: float,
    seed: int,
    least: float = 0.0,
    bound: float = 0.3,
    num_starts: int = 16_384,
    generations: int = 40,
    report: Report = silent,
) -> FoundStart:
    """Search for the start with this number of descents whose loss rises farthest before the last one.

    The entries of random starts are absolute values of normal numbers: with positive entries more descents are common
    than with both signs. Then, generation by generation, the best 64 of 512 children and their parents are selected. A
    child differs from its parent in half of its entries, by a factor, and in a few by the sign.

    Args:
        moment: as for `symmetric_flows`.
        descents: number of descents, at least 1; more than the number of concepts have not been observed.
        test_point: x, as for `symmetric_flows`.
        until: the last time; all must be learned by then.
        seed: of the search.
        least: every rise and fall from the first descent on must be greater than this part of the first loss, so that
            the number of descents is the same at any hysteresis below. The first rise does not count.
        bound: on the absolute value of the entries of U: small weights.
        num_starts: number of random starts.
        generations: number of generations; 0 for a random search.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used.
        SearchError: no start was found.
    """
    if descents < 1:
        raise InputError(f"descents must be at least 1; got {descents!r}.")
    if not 0 <= least < 1:
        raise InputError(f"least must be at least 0 and below 1; got {least!r}.")
    if not 0 < bound <= 10:
        raise InputError(f"bound must be positive and at most 10; got {bound!r}.")
    if num_starts < 1 or generations < 0:
        given = f"got {num_starts!r} and {generations!r}"
        raise InputError(f"num_starts must be at least 1 and generations at least 0; {given}.")
    if seed < 0:
        raise InputError(f"seed must be at least 0; got {seed!r}.")
    require("moment", moment, ArrayLike)
    rng, d = np.random.default_rng(seed), len(np.atleast_1d(moment))

    def graded(starts: np.ndarray) -> np.ndarray:
        flows = symmetric_flows(moment, starts, test_point=test_point, until=until, tolerance=_POLICY.coarse)
        return _grades(flows, descents, least)

    parents = np.minimum(np.abs(_POLICY.small * bound * rng.standard_normal((num_starts, d, d))), bound)
    parents, grades = _best(parents, graded(parents))
    for generation in range(generations):
        report(generation / generations, f"generation {generation}, rise {max(grades[0], 0.0):.3f}")
        children = _children(rng, parents, bound)
        parents, grades = _best(np.concatenate([parents, children]), np.concatenate([grades, graded(children)]))
    followed = num_starts + generations * _POLICY.children
    for start in parents[grades > 0]:
        flow = symmetric_flows(moment, start[None], test_point=test_point, until=until, tolerance=_POLICY.fine)
        rise = float(_grades(flow, descents, least)[0])
        if rise > 0:  # else errors of the coarse run hid a ripple
            return FoundStart(start=start, rise=rise, flow=flow, followed=followed)
    raise SearchError(
        f"None of {followed} starts has {descents} descents with rises and falls above {least:g} of the first loss, "
        f"and all learned by t = {until:g}. Lower least, or raise num_starts, generations or until."
    )


def _best(starts: np.ndarray, grades: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best starts, best first, and their grades."""
    order = np.argsort(-grades, kind="stable")[: _POLICY.parents]
    return starts[order], grades[order]


def _children(rng: np.random.Generator, parents: np.ndarray, bound: float) -> np.ndarray:
    children = parents[rng.integers(len(parents), size=_POLICY.children)]
    changes = _POLICY.factor * rng.standard_normal(children.shape) * (rng.random(children.shape) < _POLICY.changed)
    signs = np.where(rng.random(children.shape) < _POLICY.flipped, -1, 1)
    return np.clip(signs * children * np.exp(changes), -bound, bound)


def _grades(flows: SymmetricFlows, descents: int, least: float) -> Float[np.ndarray, "n"]:
    """Grade starts: the rise before the last descent in units of |x|^2 / 2 where all conditions hold, else below 0.

    Between -1 and 0, the nearer to 0 the larger the smallest rise or fall, if that alone is too small; below that, by
    the number of descents too few or too many.
    """
    steps = np.diff(flows.turning_losses, axis=1)
    falls = np.sum(steps < 0, axis=1)
    if descents == 1:
        last_rise = np.maximum(steps[:, 0], 0.0) + np.finfo(float).tiny  # one descent: what rises before it, if any
    else:
        last = steps.shape[1] - 1 - np.argmax(steps[:, ::-1] > 0, axis=1)
        last_rise = steps[np.arange(len(flows)), last]
    inner = np.abs(steps)
    inner[steps == 0] = np.inf  # padding
    inner[steps[:, 0] > 0, 0] = np.inf  # the rise before the first descent
    smallest = inner.min(axis=1) / flows.losses[:, 0]
    grades = last_rise / (flows.test_point @ flows.test_point / 2)
    if least > 0:
        grades = np.where(smallest > least, grades, np.minimum(smallest, least) / least - 1)
    wanted = (falls == descents) & (flows.endings == Ending.LEARNED)
    return np.where(wanted, grades, -1.0 - np.abs(falls - descents))
