"""Two-layer linear networks on two concepts, symmetric or not, from many small starts, at the end of training.

s       time in units of 1 / a_1, a_1 the larger strength: what a learning rate in proportion to the largest stable one
        makes of steps
output  f(x)_k / mu_k of both concepts at the test point x: 1 where the network generalizes
stop    when the training loss has fallen to a part `done` of its start

The symmetric network x -> U U^T x follows gradient flow. The other, x -> U V x, is trained by gradient descent on both
weights. There P = (U + V^T) / 2 grows as e^(a t) while U - V^T fades, so that small starts go the way of the symmetric
network from P, at half its speed. A step eta makes 1 + eta a of e^(eta a), so that the time of descent is longer than
that of the flow by the factor eta a / log(1 + eta a).
"""

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.reproduction.grid import join_cells

Diverse = Literal["both", "strong", "weak"]

DIVERSE: tuple[Diverse, ...] = ("both", "strong", "weak")

MODELS = ("symmetric", "trained")

RATE = 0.1  # of gradient descent, over 1 / a_1

LEARNED = 0.5  # an output from which on a concept counts as learned

_FIRST, _MARKS = 0.2, 500  # the first s > 0 that is recorded, and how many there are up to the last one

_TOLERANCE = 1e-6


def data_law(diverse: Diverse, ratio: float, sigma: float, calm: float) -> tuple[np.ndarray, np.ndarray]:
    """Return strengths and the test point of mu = (1, ratio), with a larger deviation for the diverse concepts.

    Args:
        diverse: whether both concepts have the deviation sigma, the one of the stronger signal, or of the weaker.
        ratio: of the signals, mu_2 over mu_1.
        sigma: deviation of the diverse concepts.
        calm: of the others.
    """
    deviations = {"both": (sigma, sigma), "strong": (calm, sigma), "weak": (sigma, calm)}[diverse]
    return strengths_and_test_point((1.0, ratio), deviations)


def weaker_share(strengths: np.ndarray) -> float:
    """Return the part of the training loss at the start that is the weaker concept's."""
    return float(strengths.min() / strengths.sum())


def predicted_output(share: float, done: float) -> float:
    """Return the weaker concept's output at the stop, where concepts are learned one after the other.

    What is left of the training loss is then the weaker concept's, share (1 - w)^2 of the first loss.
    """
    return max(0.0, 1 - (done / share) ** 0.5)


def symmetric_runs(a: np.ndarray, x: np.ndarray, starts: np.ndarray, params: Any) -> xr.Dataset:
    """Follow gradient flow from starts U, (starts, d, d'), on one data law."""
    from saddlescope.flow import symmetric_flows

    s, rate = _marks(params), float(np.max(a))
    flows = symmetric_flows(
        a, starts, test_point=x, until=s[-1] / rate, record=s / rate, tolerance=_TOLERANCE, level=params.done
    )
    E = flows.W - np.eye(len(a))
    return _read_off(s, (E**2).sum(axis=-2) @ a / 2, flows.W @ x / x, params).assign(
        predicted=("start", rate * _last_times(a, starts))
    )


def trained_runs(
    laws: Sequence[tuple[np.ndarray, np.ndarray]], starts: Sequence[np.ndarray], params: Any
) -> list[xr.Dataset]:
    """Run gradient descent from starts (U, V^T), (starts, 2, d, d'), for each data law (strengths and test point)."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import sgd_batched
    from saddlescope.models import PopulationLoss

    class Seen(eqx.Module):
        """Training loss, and output over the target."""

        loss: PopulationLoss
        x: jax.Array

        def __call__(self, weights: Any) -> tuple[jax.Array, jax.Array]:
            return self.loss.layered(weights), weights[1] @ (weights[0] @ self.x) / self.x

    steps = np.unique(np.round(_marks(params) / RATE).astype(int))
    with jax.enable_x64(True):
        kinds = [(PopulationLoss(np.diag(a)), jnp.asarray(x)) for a, x in laws]
        runs = [kind for kind, some in zip(kinds, starts, strict=True) for _ in some]
        both = np.concatenate(starts)
        recorded = sgd_batched(
            [loss.layered for loss, _ in runs],
            (both[:, 1].mT, both[:, 0]),
            steps=int(steps[-1]),
            learning_rate=[RATE / float(np.max(a)) for (a, _), some in zip(laws, starts, strict=True) for _ in some],
            record=steps,
            observe=[Seen(loss, x) for loss, x in runs],
            throw=False,
        )
    losses, outputs = (np.asarray(leaf) for leaf in recorded.observed)
    found, first = [], 0
    for (a, _), some in zip(laws, starts, strict=True):
        own = slice(first, first + len(some))
        first += len(some)
        growth = RATE * float(a.min() / a.max())  # of the concept that comes last, in a step
        delay = 2 * float(a.max()) * growth / np.log1p(growth)
        one = _read_off(RATE * recorded.steps, losses[own], outputs[own], params)
        found.append(one.assign(predicted=("start", delay * _last_times(a, some.mean(axis=1)))))
    return found


def _marks(params: Any) -> np.ndarray:
    return np.unique(np.append(np.geomspace(_FIRST, params.horizon, _MARKS), (0.0, params.budget)))


def _last_times(a: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return when the symmetric network learns the last concept, in t, for each start."""
    from saddlescope.theory.concepts import concept_stages

    return np.array([concept_stages(a, start).times.max() for start in starts])


def _read_off(s: np.ndarray, losses: np.ndarray, outputs: np.ndarray, params: Any) -> xr.Dataset:
    """Summarise runs from their training losses (starts, times) and outputs (starts, times, 2).

    Returns:
        Over `start`: `stop`, in s, NaN where training is not done by the horizon; `at_stop` and `at_budget`, the
        smaller of both outputs then; `learned`, from when on it stays above one half, NaN where it does not.
    """
    least = outputs.min(axis=-1)
    left = np.log(losses / (params.done * losses[:, :1]))
    stop = _passing_times(s, left <= 0, left)
    at_stop = np.array(
        [np.interp(when, s, one) if np.isfinite(when) else np.nan for when, one in zip(stop, least, strict=True)]
    )
    stays = np.logical_and.accumulate((least >= LEARNED)[:, ::-1], axis=1)[:, ::-1]
    return xr.Dataset(
        {
            "stop": ("start", stop),
            "at_stop": ("start", at_stop),
            "at_budget": ("start", least[:, np.searchsorted(s, params.budget)]),
            "learned": ("start", _passing_times(s, stays, least - LEARNED)),
        }
    )


def _passing_times(s: np.ndarray, beyond: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return when each row is first beyond, interpolated where `level` is 0; NaN where it never is."""
    after = np.argmax(beyond, axis=1)
    rows, before = np.arange(len(beyond)), np.maximum(after - 1, 0)
    high, low = level[rows, after], level[rows, before]
    part = np.where(high != low, low / np.where(high != low, low - high, 1.0), 1.0)
    return np.where(beyond.any(axis=1), s[before] + part * (s[after] - s[before]), np.nan)


def run_row(params: Any, k: int, law: tuple[Diverse, float], report: Report) -> xr.Dataset:
    """Run all diversities and scales at one ratio of the signals, with both models."""
    diverse, ratio = law
    rng = np.random.default_rng((params.seed, k))
    grid = list(itertools.product(params.sigmas, params.scales))
    laws = [data_law(diverse, ratio, sigma, params.calm) for sigma, _ in grid]
    shape = (params.starts, 2, 2, params.width)
    starts = [scale * rng.standard_normal(shape) for _, scale in grid]
    symmetric = []
    for n in range(0, len(grid), len(params.scales)):  # one data law
        report(0.5 * n / len(grid), f"diversity in {diverse}, ratio {ratio:g}: symmetric networks")
        together = np.concatenate([start[:, 0] for start in starts[n : n + len(params.scales)]])
        runs = symmetric_runs(*laws[n], together, params)
        symmetric += [runs.isel(start=slice(k, k + params.starts)) for k in range(0, len(together), params.starts)]
    report(0.5, f"diversity in {diverse}, ratio {ratio:g}: descent")
    axes = {"model": MODELS, "sigma": params.sigmas, "scale": params.scales}
    row = join_cells([*symmetric, *trained_runs(laws, starts, params)], axes)
    shares = np.array([weaker_share(a) for a, _ in laws[:: len(params.scales)]])
    outputs = np.array([predicted_output(share, params.done) for share in shares])
    return row.assign(share=("sigma", shares), output=("sigma", outputs))
