"""Examples of docs/diffusion.md run in their order, and its promise about killed runs holds."""

import re
from pathlib import Path

import numpy as np
import pytest

from saddlescope.plot import draw_plotly
from saddlescope.reproduction import entry_names, find_entry

PAGE = (Path(__file__).parents[2] / "docs" / "diffusion.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Run all blocks one after the other in an empty folder, and return their names."""
    names: dict = {"folder": tmp_path_factory.mktemp("page")}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(names["folder"])
        for block in BLOCKS:
            exec(block, names)
    return names


def test_positions_of_true_images_are_those_of_their_classes(made):
    assert (made["read"].position.round() == [[0, 0], [0, 1], [1, 0], [1, 1]]).mean() >= 7 / 8
    assert (made["geometry"].mu > made["geometry"].sigma).all()


def test_a_run_is_recorded_and_labelled(made):
    history, run = made["history"], made["run"]
    assert run.sizes["step"] == len(history.steps) >= 3
    assert history.steps[-1] == 60
    assert history.loss[-1] < history.loss[0]
    assert history.loss[0] == pytest.approx(4860, rel=0.01), "as the page says"
    np.testing.assert_allclose(history.loss, history.diffusion + history.prior + history.reconstruction, rtol=1e-5)
    assert list(run["class"].values) == ["red, big", "red, small", "blue, big", "blue, small"]
    assert np.isfinite(made["accuracy"]).all()


def test_the_same_call_goes_on(made):
    again = made["fit_diffusion"](
        made["process"],
        made["network"],
        made["config"],
        classifier=made["classifier"],
        checkpoint=made["folder"] / "diffusion.pt",
    )
    np.testing.assert_array_equal(again.images, made["history"].images)


def test_images_are_drawn_and_shown(made):
    assert made["images"].shape == (6, 3, 8, 8)
    assert len(made["found"].blank) == 6
    assert (made["folder"] / "path.png").stat().st_size > 10_000
    drawn = draw_plotly(made["figure"])
    assert len(drawn["film"]["steps"]) == len(made["history"].steps)
    assert drawn["panels"][0]["data"][0]["meta"]["at"] == made["history"].steps.tolist()


def test_every_entry_that_the_page_names_is_there():
    names = set(re.findall(r"`(concept-learning/[\w-]+)`", PAGE))
    assert len(names) == 3
    assert names <= set(entry_names())


def test_what_the_page_sets_can_be_set():
    params = find_entry("concept-learning/figure-6").configure("paper")
    for name in re.findall(r"--set (\w+)=", PAGE):
        assert hasattr(params, name)
    assert (params.pixels, params.steps, params.batch, len(params.seeds), len(params.signals)) == (32, 20000, 128, 8, 3)
