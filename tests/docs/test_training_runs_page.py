"""Examples of docs/training-runs.md run alone, and its promise about killed runs holds."""

import re
from pathlib import Path

import numpy as np

import snippets
from saddlescope.reproduction import entry_names, find_entry

PAGE = (Path(__file__).parents[2] / "docs" / "training-runs.md").read_text()
LANGUAGE, DIFFUSION = snippets.snippets("docs/training-runs.md")


def test_language_training_is_recorded():
    made = snippets.run(LANGUAGE)
    assert made["history"].test_loss[-1] < 0.9 * made["history"].test_loss[0]
    assert dict(made["spectra"].sizes) == {"step": 4, "layer": 2, "product": 2, "head": 2, "index": 32, "matrix": 8}


def test_a_diffusion_run_is_recorded_and_resumes(tmp_path):
    made = snippets.run(DIFFUSION, tmp_path)
    run = made["run"]
    assert (made["geometry"].mu > made["geometry"].sigma).all()
    assert run.sizes["step"] >= 3
    assert run.loss[-1] < run.loss[0]
    np.testing.assert_allclose(run.loss, run.diffusion + run.prior + run.reconstruction, rtol=1e-5)
    assert list(run["class"].values) == ["red, big", "red, small", "blue, big", "blue, small"]
    assert np.isfinite(made["accuracy"]).all()
    again = made["fit_diffusion"](
        made["process"],
        made["network"],
        made["config"],
        classifier=made["classifier"],
        checkpoint=tmp_path / "diffusion.pt",
    )
    np.testing.assert_array_equal(again.records.images, run.images)


def test_entries_and_settings_that_the_page_names_exist():
    names = set(re.findall(r"`((?:gradual-rank|concept-learning|deep-relu)/[\w-]+)`", PAGE))
    assert len(names) == 17
    assert names <= set(entry_names())
    for name, options in re.findall(r"saddlescope run (\S+) --size paper((?:.*--set \w+=\S+)+)", PAGE):
        params = find_entry(name).configure("paper")
        assert all(hasattr(params, setting) for setting in re.findall(r"--set (\w+)=", options))
    diffusion = find_entry("concept-learning/figure-6").configure("paper")
    assert (diffusion.pixels, diffusion.steps, diffusion.batch) == (32, 20_000, 128)
    assert (len(diffusion.seeds), len(diffusion.signals)) == (8, 3)
