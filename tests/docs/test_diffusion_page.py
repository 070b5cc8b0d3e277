"""Examples of docs/diffusion.md run alone, and its promise about killed runs holds."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import snippets
from saddlescope.plot import draw_plotly
from saddlescope.reproduction import entry_names, find_entry

PAGE = (Path(__file__).parents[2] / "docs" / "diffusion.md").read_text()


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Run the block that contains these words once, in a folder of its own, and return its names and the folder."""

    @cache
    def run(words):
        folder = tmp_path_factory.mktemp("page")
        return snippets.run(snippets.snippet("docs/diffusion.md", words), folder) | {"folder": folder}

    return run


def test_positions_of_true_images_are_those_of_their_classes(example):
    made = example("concept_geometry(process")
    assert (made["read"].position.round() == [[0, 0], [0, 1], [1, 0], [1, 1]]).mean() >= 7 / 8
    assert (made["geometry"].mu > made["geometry"].sigma).all()


def test_a_run_is_recorded_and_labelled(example):
    made = example("fit_diffusion(process")
    history, run = made["history"], made["run"]
    assert run.sizes["step"] == len(history.steps) >= 3
    assert history.steps[-1] == 60
    assert history.loss[-1] < history.loss[0]
    assert history.loss[0] == pytest.approx(4860, rel=0.01), "as the page says"
    np.testing.assert_allclose(history.loss, history.diffusion + history.prior + history.reconstruction, rtol=1e-5)
    assert list(run["class"].values) == ["red, big", "red, small", "blue, big", "blue, small"]
    assert np.isfinite(made["accuracy"]).all()


def test_the_same_call_goes_on(example):
    made = example("fit_diffusion(process")
    again = made["fit_diffusion"](
        made["process"],
        made["network"],
        made["config"],
        classifier=made["classifier"],
        checkpoint=made["folder"] / "diffusion.pt",
    )
    np.testing.assert_array_equal(again.images, made["history"].images)


def test_images_are_drawn_and_shown(example):
    assert example("fit_diffusion(process")["images"].shape == (6, 3, 8, 8)
    made = example("Film(steps=")
    assert (made["folder"] / "path.png").stat().st_size > 10_000
    drawn = draw_plotly(made["figure"])
    assert len(drawn["film"]["steps"]) == 3
    assert drawn["panels"][0]["data"][0]["meta"]["at"] == [0, 100, 1000]


def test_every_example_is_tested():
    assert len(snippets.snippets("docs/diffusion.md")) == 3


def test_every_entry_that_the_page_names_is_there():
    names = set(re.findall(r"`(concept-learning/[\w-]+)`", PAGE))
    assert len(names) == 3
    assert names <= set(entry_names())


def test_what_the_page_sets_can_be_set():
    params = find_entry("concept-learning/figure-6").configure("paper")
    for name in re.findall(r"--set (\w+)=", PAGE):
        assert hasattr(params, name)
    assert (params.pixels, params.steps, params.batch, len(params.seeds), len(params.signals)) == (32, 20000, 128, 8, 3)
