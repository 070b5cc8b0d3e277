"""Ranks of adapters: exhaustive search, exact thresholds, and spectra that do not determine a rank."""

import itertools

import numpy as np
import pytest

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks.lora import allocate_ranks, matrix_spectra, ranks_for_energy


def energy(spectra, ranks):
    return sum(float((values[: ranks[name]] ** 2).sum()) for name, values in spectra.items())


def cost(shapes, ranks):
    return sum(rank * sum(shapes[name]) for name, rank in ranks.items())


def descending(seed, *lengths):
    draw = np.random.default_rng(seed)
    return {f"w{k}": np.sort(draw.exponential(size=n))[::-1] for k, n in enumerate(lengths)}


def test_the_least_rank_that_keeps_the_energy():
    spectra = {"steps": np.sqrt([0.5, 0.25, 0.125, 0.125]), "one": np.array([2.0, 0, 0, 0]), "none": np.zeros(3)}
    assert ranks_for_energy(spectra, 0.75 + 1e-9) == {"steps": 3, "one": 1, "none": 0}
    assert ranks_for_energy(spectra, 0.75 - 1e-9) == {"steps": 2, "one": 1, "none": 0}
    assert ranks_for_energy(spectra, 1.0) == {"steps": 4, "one": 1, "none": 0}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e200])
def test_at_equal_shapes_the_allocation_is_the_best_of_all(seed, scale):
    """At any scale: squares may be beyond float64."""
    spectra = descending(seed, 3, 3, 2)
    shapes = dict.fromkeys(spectra, (6, 7))
    for budget in (0, 13, 30, 61, 200):
        found = allocate_ranks({n: scale * one for n, one in spectra.items()}, shapes, parameters=budget)
        every = (dict(zip(spectra, ranks, strict=True)) for ranks in itertools.product(range(4), range(4), range(3)))
        best = max(energy(spectra, ranks) for ranks in every if cost(shapes, ranks) <= budget)
        assert cost(shapes, found) <= budget
        assert energy(spectra, found) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(4))
def test_at_unequal_shapes_it_is_within_one_direction_of_the_best(seed):
    spectra = descending(seed, 4, 3, 3)
    shapes = {"w0": (4, 5), "w1": (3, 30), "w2": (9, 9)}
    for budget in range(0, 200, 17):
        found = allocate_ranks(spectra, shapes, parameters=budget)
        every = (dict(zip(spectra, ranks, strict=True)) for ranks in itertools.product(range(5), range(4), range(4)))
        best = max(energy(spectra, ranks) for ranks in every if cost(shapes, ranks) <= budget)
        assert cost(shapes, found) <= budget
        assert best - max(values[0] ** 2 for values in spectra.values()) <= energy(spectra, found) <= best + 1e-12


def test_matrices_whose_directions_cost_more_than_they_keep_get_none():
    spectra, shapes = descending(0, 4, 4), {"w0": (5, 5), "w1": (5, 5)}
    spectra["w1"] = 1e-9 * spectra["w1"]
    assert allocate_ranks(spectra, shapes, parameters=40) == {"w0": 4, "w1": 0}
    assert allocate_ranks({"w0": np.zeros(4)}, {"w0": (5, 5)}, parameters=40) == {"w0": 0}


@pytest.fixture
def dataset():
    import torch
    from torch import nn

    from saddlescope.ranks import AtSteps, RankTracker

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 5))
    tracker = RankTracker(model, schedule=AtSteps(1, 3), attention=False, matrices="*")
    with torch.no_grad():
        model[0].weight += torch.outer(torch.arange(6.0), torch.ones(4))
        tracker.step()
        tracker.step()
        model[0].weight += torch.randn(6, 4)
        tracker.step()
    return tracker.to_xarray()


def test_spectra_of_a_data_set(dataset):
    first, last = matrix_spectra(dataset, step=1), matrix_spectra(dataset)
    assert list(first) == ["0.weight", "1.weight"]
    assert first["0.weight"][0] == pytest.approx(np.sqrt(55 * 4))
    assert not last["1.weight"].any()
    assert ranks_for_energy(first, 0.99) == {"0.weight": 1, "1.weight": 0}
    assert ranks_for_energy(dataset, 1.0) == {"0.weight": 4, "1.weight": 0}
    refused(r"step must be that of a record; got 2\. Known: 1, 3\.", matrix_spectra, dataset, step=2)
    refused("all singular values", matrix_spectra, dataset.isel(index=slice(1)))
    refused("must have single matrices", matrix_spectra, dataset[["matrix_noise_floor"]])


@pytest.mark.parametrize(
    ("call", "reported"),
    [
        (lambda s: ranks_for_energy(s, 0.0), "fraction must be greater than 0"),
        (lambda s: ranks_for_energy({}, 0.5), "one matrix or more"),
        (lambda s: allocate_ranks(s, {}, parameters=9), "shapes must have every matrix"),
        (lambda s: allocate_ranks(s, {"w0": (2, 2)}, parameters=-1), "parameters must be at least 0"),
        *(
            (lambda s, shape=shape: allocate_ranks(s, {"w0": shape}, parameters=9), r"shapes\['w0'\] must be")
            for shape in ((4,), (4, 4, 4), (0, 4), (4, -1), (2.5, 4))
        ),
        *(
            (lambda s, bad=bad: allocate_ranks({"w0": np.array(bad)}, {"w0": (4, 4)}, parameters=9), r"spectra\['w0'\]")
            for bad in ([1.0, np.nan], [1.0 + 1j, 0.0], [-1.0, 0.5])
        ),
    ],
)
def test_bad_input(call, reported, types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match=reported):
        call(descending(0, 2))
