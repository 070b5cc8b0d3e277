"""Updates since the previous record, and the first and second order of each update, against dense matrices."""

# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportOperatorIssue=false

import copy
from functools import partial

import numpy as np
import pytest
import torch
from small_vit import SMALL, step_at_random

from saddlescope._shared.errors import InputError
from saddlescope.ranks import Every, Increments, Orders, RankTracker
from saddlescope.training import ViT


def factors(model, product, layer=1, head=2):
    """Return the factors of a head of width 2."""
    attention, rows = model.blocks[layer].attention, slice(2 * head, 2 * head + 2)
    left = (attention.key if product == "KQ" else attention.value).weight[rows].T
    right = attention.query.weight[rows].T if product == "KQ" else attention.output.weight[:, rows]
    return left.detach().double(), right.detach().double()


def stable_rank(matrix):
    s = torch.linalg.svdvals(matrix)
    return float((s**2).sum() / s[0] ** 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_increments_and_orders_are_those_of_the_dense_products(dtype):
    model = ViT(SMALL, seed=1).to(dtype)
    tracker = RankTracker(model, schedule=Every(1), recorders=[Increments(), Orders()], matrices="*.expand")
    models = [copy.deepcopy(model)]
    for seed in range(3):
        step_at_random(model, seed=seed)
        tracker.step()
        models.append(copy.deepcopy(model))
    dataset = tracker.to_xarray()
    for record in range(3):
        for product in ("KQ", "VO"):
            here = dataset.isel(step=record, layer=1, head=2).sel(product=product)
            for prefix, size, before in (("", "update_", models[0]), ("increment_", "increment_", models[record])):
                (L, R), (L0, R0) = factors(models[record + 1], product), factors(before, product)
                update = L @ R.T - L0 @ R0.T
                values = torch.linalg.svdvals(update)[:4].numpy()
                np.testing.assert_allclose(here[f"{size}spectrum"][:4], values, atol=1e-6 * values[0])
                assert here[f"{size}norm"] == pytest.approx(float(update.norm()))
                assert here[f"{prefix}stable_rank"] == pytest.approx(stable_rank(update))
                first, second = (L - L0) @ R0.T + L0 @ (R - R0).T, (L - L0) @ (R - R0).T
                for order, matrix in (("first", first), ("second", second)):
                    part = here.sel(order=order)
                    assert part[f"{prefix}order_norm"] == pytest.approx(float(matrix.norm()))
                    assert part[f"{prefix}order_stable_rank"] == pytest.approx(stable_rank(matrix))
        step = models[record + 1].blocks[0].expand.weight.double() - models[record].blocks[0].expand.weight.double()
        assert dataset.matrix_increment_norm[record, 0] == pytest.approx(float(step.detach().norm()))


def test_the_first_increment_is_the_update():
    model = ViT(SMALL)
    tracker = RankTracker(model, schedule=Every(1), recorders=[Increments()])
    step_at_random(model)
    tracker.step()
    dataset = tracker.to_xarray()
    np.testing.assert_array_equal(dataset.increment_spectrum, dataset.update_spectrum)
    tracker.step()
    assert not tracker.to_xarray().increment_spectrum[1].any()  # nothing moved
    assert tracker.to_xarray().increment_stable_rank[1].isnull().all()


def test_an_increment_from_weights_that_are_not_finite_is_nan():
    model = ViT(SMALL)
    tracker = RankTracker(model, schedule=Every(1), recorders=[Increments()])
    healthy = copy.deepcopy(model.state_dict())
    step_at_random(model)
    tracker.step()
    with torch.no_grad():
        model.blocks[1].attention.value.weight[0, 0] = torch.nan
    with pytest.warns(UserWarning, match="Records of blocks.1.attention are NaN"):
        tracker.step()
    model.load_state_dict(healthy)
    step_at_random(model, seed=1)
    tracker.step()
    norms = tracker.to_xarray().sel(layer="blocks.1.attention", product="VO")
    assert norms.increment_norm.isnull().all("head").values.tolist() == [False, True, True]
    assert norms.update_norm.isnull().all("head").values.tolist() == [False, True, False]


def test_increments_resume():
    model = ViT(SMALL)
    make = partial(RankTracker, model, schedule=Every(1), recorders=[Increments(), Orders()])
    whole = make()
    step_at_random(model)
    whole.step()
    resumed = make()
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    step_at_random(model, seed=1)
    whole.step()
    resumed.step()
    assert resumed.to_xarray().identical(whole.to_xarray())
    with pytest.raises(
        InputError, match="state must be of a tracker without Increments among its recorders; got one with"
    ):
        RankTracker(model, recorders=[Orders()]).load_state_dict(whole.state_dict())
    with pytest.raises(InputError, match="other numbers of heads, values, angles or orders of the attention heads"):
        RankTracker(model, recorders=[Increments()]).load_state_dict(whole.state_dict())
