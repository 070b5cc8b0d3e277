"""Singular vectors on request, overlaps of leading subspaces, and the randomised method for single matrices."""

import copy

import numpy as np
import pytest
import torch
from attention_standins import Layers
from small_vit import SMALL, step_at_random

from refusals import refused
from saddlescope.ranks import Every, Increments, RankTracker, Values, Vectors
from saddlescope.training import ViT


def update_of(before, after, name):
    return (after.get_parameter(name) - before.get_parameter(name)).detach().double().numpy()


def rank_one_at_a_time(model, name, step):
    """Add directions that shrink geometrically; the leading one stays."""
    weight = model.get_parameter(name)
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((side, 3)))[0] for side in weight.shape)
    with torch.no_grad():
        weight += torch.from_numpy(left[:, :step] * [9.0, 3.0, 1.0][:step] @ right[:, :step].T)


@pytest.mark.parametrize("name", ["blocks.0.expand.weight", "blocks.1.contract.weight"])
def test_vectors_of_a_matrix_are_those_of_its_update(name):
    model = ViT(SMALL).double()
    before = copy.deepcopy(model)
    tracker = RankTracker(model, matrices=name, recorders=[Vectors(2)], schedule=Every(1))
    step_at_random(model)
    tracker.step()
    found = tracker.singular_vectors(name)
    left, _, right = np.linalg.svd(update_of(before, model, name))
    assert found.left.shape == (1, left.shape[0], 2)
    np.testing.assert_allclose(abs(found.left[0].T @ left[:, :2]), np.eye(2), atol=1e-6)
    np.testing.assert_allclose(abs(right[:2] @ found.right[0]), np.eye(2), atol=1e-6)
    values = np.diag(found.left[0].T @ update_of(before, model, name) @ found.right[0])  # signs agree
    np.testing.assert_allclose(values, tracker.records.matrices.update.values[0, 0, :2], rtol=1e-5)


def test_vectors_of_heads_are_those_of_the_products():
    model = ViT(SMALL).double()
    before = copy.deepcopy(model)
    tracker = RankTracker(model, recorders=[Vectors(3)], schedule=Every(1))
    step_at_random(model)
    tracker.step()
    found = tracker.singular_vectors(tracker.layers[1], "VO")
    assert found.left.shape == (1, 3, 12, 3)
    for head in range(3):
        rows = slice(2 * head, 2 * head + 2)
        now, then = (
            (
                one.get_parameter("blocks.1.attention.value.weight")[rows].T
                @ one.get_parameter("blocks.1.attention.output.weight")[:, rows].T
            ).detach()
            for one in (model, before)
        )
        seen = found.left[0, head].T @ (now - then).numpy() @ found.right[0, head]
        expected = np.diag(tracker.records.products.update.values[0, 1, head, 1, :3])
        np.testing.assert_allclose(seen, expected, atol=1e-6 * expected.max())


def test_the_overlap_shows_which_directions_stay():
    """The first record has one direction; later ones keep it and add others."""
    name = "blocks.0.expand.weight"
    model = ViT(SMALL).double()
    tracker = RankTracker(model, attention=False, matrices=name, recorders=[Vectors(2)], schedule=Every(1))
    for step in (1, 2, 3):
        rank_one_at_a_time(model, name, step)
        tracker.step()
    found = tracker.singular_vectors(name)
    assert np.isfinite(found.left[0]).all(axis=0).tolist() == [True, False]  # the second is below the noise floor
    for side in ("left", "right"):
        np.testing.assert_allclose(found.overlap(side), 1, atol=1e-6)
    with torch.no_grad():  # a new leading direction, orthogonal to the old ones
        update = update_of_tracker(model, tracker, name)
        left, _, right = np.linalg.svd(update)
        model.get_parameter(name).add_(torch.from_numpy(1e3 * np.outer(left[:, -1], right[-1])))
    tracker.step()
    overlap = tracker.singular_vectors(name).overlap(k=1)
    np.testing.assert_allclose(overlap[-1], [0, 0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(overlap, overlap.T)


def update_of_tracker(model, tracker, name):
    initial = tracker.state_dict()["weights"][name]
    return (model.get_parameter(name).detach() - initial).numpy()


class Wide(Layers, large=(700, 600, False), small=(20, 30, False)):
    """Matrices large enough for the randomised method, and one that is not."""


def decaying(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            m, n = weight.shape
            U, V = (torch.linalg.qr(torch.randn(side, 20, generator=generator))[0] for side in (m, n))
            weight += (U * 0.8 ** torch.arange(20)) @ V.T + 1e-3 * torch.randn(m, n, generator=generator)


def test_the_randomised_method_agrees_with_the_exact_one_within_its_bound():
    torch.manual_seed(0)
    model = Wide()
    options = {"attention": False, "matrices": "*", "schedule": Every(1)}
    exact, fast = (
        RankTracker(model, recorders=[Values(8, randomized), Increments()], **options) for randomized in (False, True)
    )
    for seed in range(2):
        decaying(model, seed)
        exact.step()
        fast.step()
    one, other = exact.to_xarray(), fast.to_xarray()
    assert "matrix_update_error" not in one
    for kind in ("update", "increment"):
        values, found, bound = one[f"matrix_{kind}_spectrum"], other[f"matrix_{kind}_spectrum"], other[
            f"matrix_{kind}_error"]  # fmt: skip
        rounding = 1e-5 * values.max()
        assert (found <= values + rounding).all()
        assert (values <= found + bound + rounding).all()
        assert (bound.sel(matrix="large.weight") > 0).any()
        assert (bound <= 0.1 * values.max()).all()
        assert (bound.sel(matrix="small.weight") == 0).all()  # computed exactly
    for name in ("matrix_update_norm", "matrix_stable_rank", "matrix_initial_norm"):
        np.testing.assert_allclose(other[name], one[name], rtol=1e-4)
    floors = other.matrix_noise_floor  # without the rounding of squares, through which all values go
    assert ((floors > 0) & (floors <= one.matrix_noise_floor)).all()
    ranks = other.matrix_effective_rank
    assert np.isnan(ranks.sel(matrix="large.weight")).all()
    assert np.isfinite(ranks.sel(matrix="small.weight")).all()


def test_the_randomised_method_draws_nothing_from_the_global_generator():
    model = Wide()
    tracker = RankTracker(
        model, attention=False, matrices="*", recorders=[Values(8, randomized=True), Vectors(2)], schedule=Every(1)
    )
    decaying(model)
    state = torch.get_rng_state()
    tracker.step()
    assert torch.equal(torch.get_rng_state(), state)
    assert tracker.singular_vectors("large.weight").left.shape == (1, 600, 2)


def test_nan_in_a_large_matrix_is_recorded_as_nan():
    model = Wide()
    tracker = RankTracker(
        model, attention=False, matrices="*", recorders=[Values(8, randomized=True), Vectors(1)], schedule=Every(1)
    )
    with torch.no_grad():
        model.large.weight[0, 0] = torch.nan
    with pytest.warns(UserWarning, match=r"Records of large\.weight are NaN"):
        tracker.step()
    assert np.isnan(tracker.to_xarray().matrix_update_norm.sel(matrix="large.weight")).all()
    refused("which has none yet", tracker.singular_vectors, "large.weight")
