"""Statistics of the entry on appendix G, on images and curves whose answer is known."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.papers.concept_learning.appendix_g import claims, interpolated_images
from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.positions import concept_positions


@pytest.mark.parametrize("position", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("concept", ["color", "size"])
def test_images_on_the_way_are_where_they_should_be(concept: str, position: float) -> None:
    process = CircleProcess(pixels=32, place=0.05)
    read = concept_positions(interpolated_images(process, concept, position, 64, seed=(0, 1, 2)), process).position
    along = ["color", "size"].index(concept)
    assert read[:, along].mean() == pytest.approx(position, abs=0.03)
    assert read[:32, 1 - along].std() > 0.4  # both values of the other concept


def test_rise_of_a_coordinate_and_of_a_step() -> None:
    way = np.linspace(0, 1, 41)
    step = 1 / (1 + np.exp(-200 * (way - 0.5)))
    (claim,) = (claim for claim in claims if claim.name == "coordinate")
    for values, wanted, outcome in ((way, 0.8, "seen"), (step, 0.022, "not seen")):
        run = xr.Dataset(
            {"between": (("signal", "concept", "way"), np.array([[way, values]]))},
            coords={"signal": [0.7], "concept": ["color", "size"], "way": way},
        )
        found = claim.judge(run)
        assert found.value == pytest.approx(wanted, abs=0.03)
        assert found.uncertainty == pytest.approx(0.025)
        assert str(found.outcome) == outcome
    assert str(claim.judge(run.assign(between=0 * run.between + 0.5)).outcome) == "not tested"
