"""Pictures of spectra: planted ranks are drawn as they are, over heads and seeds, and noise is not drawn at all."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.figures.spectra_panel import layer_axis
from saddlescope.plot import Band, Line, draw_matplotlib
from saddlescope.plot.rank_figures import (
    MOST_LAYERS,
    evolution_figure,
    initial_stable_rank,
    layer_rank_figure,
    normalized,
    scale_rank_figure,
    spectrum_figure,
    spectrum_stages_figure,
    stable_rank_figure,
)

HEADS, VALUES = 3, 6


def spectra(steps=(1, 2, 4, 8, 16, 32), layers=("blocks.0", "blocks.1"), seeds=None):
    """Head h of layer l has an update of h + 1 equal singular values of size step; the initial products are flat."""
    labels = ("step", "layer", "head", "product")
    update = np.zeros((len(steps), len(layers), HEADS, 2, VALUES))
    for head in range(HEADS):
        update[:, :, head, :, : head + 1] = np.array(steps, float)[:, None, None, None]
    ds = xr.Dataset(
        {
            "update_spectrum": ((*labels, "index"), update),
            "noise_floor": (labels, np.full(update.shape[:-1], 1e-6)),
            "stable_rank": (labels, np.broadcast_to(np.arange(1.0, HEADS + 1)[:, None], update.shape[:-1])),
            "initial_spectrum": ((*labels[1:], "index"), np.full(update.shape[1:], 2.0)),
        },
        coords={"step": list(steps), "layer": list(layers), "product": ["KQ", "VO"]},
    )
    return ds if seeds is None else xr.concat([ds] * seeds, dim="seed").assign_coords(seed=range(seeds))


def lines(panel):
    return {mark.group: mark for mark in panel.marks if isinstance(mark, Line)}


@pytest.mark.parametrize("seeds", [None, 2])
def test_stable_ranks_are_averaged_over_heads_and_seeds_not_over_time(seeds):
    ds = spectra(seeds=seeds)
    ds["stable_rank"] = ds.stable_rank * ds.step  # grows in time: a deviation over time would be larger
    figure = stable_rank_figure(ds)
    assert [panel.title for panel in figure.panels] == ["blocks.0", "blocks.1"]
    line = lines(figure.panels[1])["update of W_V W_Oᵀ"]
    np.testing.assert_allclose(line.y, 2.0 * ds.step.values)
    band = next(mark for mark in figure.panels[1].marks if isinstance(mark, Band) and mark.group == line.group)
    np.testing.assert_allclose(band.high - line.y, np.std([1, 2, 3]) * ds.step.values)
    assert "6.0" in figure.caption
    assert figure.panels[0].x.scale == "log"


def test_layers_are_named_and_thinned_evenly():
    ds = spectra(layers=tuple(range(1, 33)))
    panels = stable_rank_figure(ds).panels
    assert len(panels) == MOST_LAYERS
    assert (panels[0].title, panels[-1].title) == ("layer 1", "layer 32")
    assert "12 of the 32 layers" in stable_rank_figure(ds).caption


def test_ranks_over_depth_at_the_last_step():
    figure = layer_rank_figure(spectra())
    assert [panel.title for panel in figure.panels] == ["W_K W_Qᵀ", "W_V W_Oᵀ"]
    np.testing.assert_allclose(lines(figure.panels[0])["update of W_K W_Qᵀ"].y, [2.0, 2.0])
    np.testing.assert_allclose(lines(figure.panels[0])["initial product"].y, [6.0, 6.0])
    assert "after 32 steps" in figure.caption


@pytest.mark.parametrize(
    ("layers", "label", "names"),
    [
        ((1, 2, 8), "layer", ()),
        (("h.0.attn", "h.1.attn", "h.10.attn"), "h.N.attn", ("0", "1", "10")),
        (("first", "second"), "layer", ("first", "second")),
        (("blocks.0",), "layer", ("blocks.0",)),
    ],
)
def test_layers_have_their_own_names_along_an_axis(layers, label, names):
    axis, places = layer_axis(xr.Dataset(coords={"layer": list(layers)}))
    assert (axis.label, axis.names) == (label, names)
    assert places.tolist() == list(range(len(layers)) if names else layers)


def test_the_last_spectrum_is_normalized_against_the_initial_one():
    panel = spectrum_figure(spectra()).panels[0]
    drawn = lines(panel)
    np.testing.assert_allclose(drawn["at initialization"].y, 1.0)
    np.testing.assert_allclose(drawn["learned update"].y, [1, 2 / 3, 1 / 3, 0, 0, 0])
    np.testing.assert_array_equal(drawn["learned update"].x, np.arange(1, VALUES + 1))


def test_stages_are_evenly_spaced_in_log_time_and_means_over_heads():
    drawn = lines(spectrum_stages_figure(spectra(seeds=2)).panels[0])
    steps = ["update after 1 step", *(f"update after {step} steps" for step in (4, 8, 32))]
    assert list(drawn) == ["at initialization", *steps]
    np.testing.assert_allclose(drawn["update after 32 steps"].y, [1, 2 / 3, 1 / 3, 0, 0, 0])


def test_checkpoints_whose_steps_are_not_known_are_reported_by_name():
    ds = spectra()
    names = [f"runs/model-{k}" for k in "abcdefgh"[: ds.sizes["step"]]]
    ds = ds.assign_coords(step=ds.step.assign_attrs(long_name="checkpoint"), checkpoint=("step", names))
    drawn = list(lines(spectrum_stages_figure(ds).panels[0]))
    assert (drawn[1], drawn[-1]) == ("update in model-a", f"update in {names[-1].removeprefix('runs/')}")
    assert stable_rank_figure(ds).panels[0].x.label == "checkpoint"
    assert stable_rank_figure(spectra()).panels[0].x.label == "optimiser steps"


def test_an_evolution_has_the_values_as_they_are():
    panel = evolution_figure(spectra(seeds=2), layer="blocks.1").panels[0]
    first, *_, last = (mark for mark in panel.marks if isinstance(mark, Line))
    np.testing.assert_allclose(first.y, first.x)
    assert np.isnan(last.y).all()  # all but the first value of an update of rank 1 are below the noise floor


def test_noise_zero_products_and_missing_heads_are_not_drawn_as_numbers():
    ds = spectra()
    below = normalized(ds.update_spectrum, ds.noise_floor * 0 + 4.0)
    assert np.isnan(below.sel(step=4)).all()
    assert not np.isnan(below.sel(step=8).isel(index=0)).any()
    ds["initial_spectrum"] = ds.initial_spectrum * 0
    assert np.isnan(initial_stable_rank(ds)).all()
    ds["stable_rank"] = ds.stable_rank.where(ds.layer == "blocks.0")  # the other layer was not measurable
    for figure in (stable_rank_figure(ds), layer_rank_figure(ds), spectrum_figure(ds), spectrum_stages_figure(ds)):
        draw_matplotlib(figure)


def test_a_cut_spectrum_takes_the_stable_rank_from_the_norm():
    ds = spectra().assign(initial_norm=(("layer", "head", "product"), np.full((2, HEADS, 2), 6.0)))
    np.testing.assert_allclose(initial_stable_rank(ds.isel(index=slice(2))), 9.0)


def test_ranks_over_the_initial_scale():
    ds = spectra()
    scales = xr.concat([ds, ds.assign(stable_rank=ds.stable_rank / 2)], dim="scale").assign_coords(scale=[1.0, 0.1])
    panel = scale_rank_figure(scales).panels[1]
    drawn = lines(panel)
    np.testing.assert_allclose(drawn["update of W_K W_Qᵀ"].y, [2.0, 1.0])
    np.testing.assert_allclose(drawn["initial W_V W_Oᵀ"].y, [6.0, 6.0])
    band = next(mark for mark in panel.marks if isinstance(mark, Band))
    np.testing.assert_allclose(band.high - band.low, 2 * np.std([1, 2, 3]) * np.array([1.0, 0.5]))
