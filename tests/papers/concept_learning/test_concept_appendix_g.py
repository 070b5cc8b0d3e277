"""Statistics of the entry on appendix G, on runs whose answer is known."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import appendix_g
from saddlescope.papers.concept_learning.appendix_g import gaussian_images, simulations
from saddlescope.reproduction.claim import Estimate
from saddlescope.train.diffusion.circles import CircleProcess
from saddlescope.train.diffusion.positions import concept_positions


def measured(name: str, run: xr.Dataset) -> Estimate:
    return next(claim for claim in appendix_g.claims if claim.name == name).statistic(run)


@pytest.mark.parametrize("position", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("concept", ["color", "size"])
def test_images_on_the_way_are_where_they_should_be(concept: str, position: float) -> None:
    process = CircleProcess(pixels=32, place=0.05)
    images = simulations.interpolated_images(process, concept, position, 64, seed=(0, 1, 2))
    read = concept_positions(images, process).position
    along = ["color", "size"].index(concept)
    assert read[:, along].mean() == pytest.approx(position, abs=0.03)
    assert read[:32, 1 - along].std() > 0.4  # both values of the other concept


def test_rise_of_a_coordinate_and_of_a_step() -> None:
    way = np.linspace(0, 1, 41)
    step = 1 / (1 + np.exp(-200 * (way - 0.5)))
    for values, wanted in ((way, 0.8), (step, 0.022)):
        run = xr.Dataset(
            {"between": (("signal", "concept", "way"), values[None, None])},
            coords={"signal": [0.7], "concept": ["size"], "way": way},
        )
        found = measured("coordinate-size", run)
        assert found.value == pytest.approx(wanted, abs=0.03)
        assert found.uncertainty == pytest.approx(0.025)
    blind = run.assign(between=0 * run.between + 0.5)
    assert np.isnan(measured("coordinate-size", blind).value)


def test_covariance_beyond_chance() -> None:
    dims, n = 12, 40_000
    rng = np.random.default_rng(0)
    variances = np.geomspace(1, 1e-4, dims)
    for factor, wanted in ((1.0, 0.0), (0.9, 0.1)):
        draws = rng.normal(size=(n, dims)) * np.sqrt(factor * variances)
        deviation = gaussian_images.covariance_deviation(draws.T @ draws / n, variances, n)
        run = xr.Dataset(
            {"covariance_deviation": ("against", [deviation]), "law_variance": ("direction", variances)},
            coords={"against": ["law"]},
            attrs={"law_samples": n},
        )
        found = measured("covariance", run)
        assert abs(found.value - wanted) < max(found.uncertainty, 0.01)
        assert found.uncertainty < 0.02


def test_terms_apart() -> None:
    by_hand = np.array([[1.0, 2.0], [1e-5, 1e-5], [4000.0, 5000.0]])
    run = xr.Dataset(
        {
            "by_hand": (("term", "image"), by_hand),
            "ours": (("term", "image"), by_hand * [[1, 1.01], [1, 0.98], [1, 1]]),
        },
        coords={"term": ["diffusion", "prior", "reconstruction"]},
    )
    assert measured("diffusion-term", run).value == pytest.approx(0.01)
    assert measured("prior-term", run).value == pytest.approx(0.02)
    assert measured("reconstruction-term", run).value == 0


def test_signals_outside_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"signals must be one or more numbers, each above 0 and at most 1.*; got \(1\.2,\)\."
    ):
        appendix_g.Params(signals=(1.2,))
