"""Tracked matrices: norms, ranks and angles of each update, and updates that cannot be measured."""

# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false

import copy

import numpy as np
import pytest
import torch
from small_vit import SMALL, step_at_random

import tolerances
from saddlescope._shared.errors import InputError
from saddlescope.measure import arrays
from saddlescope.ranks import Angles, Every, Orders, RankTracker, Values
from saddlescope.ranks.tracker import tracked_matrices
from saddlescope.training import ViT


def key_query(model, layer, head):
    """Return W_K W_Q^T of one head of width 2, dense."""
    attention = model.blocks[layer].attention
    rows = slice(2 * head, 2 * head + 2)
    return (attention.key.weight[rows].T @ attention.query.weight[rows]).detach().numpy()


def value_output(model, layer, head):
    """Return W_V W_O^T of one head of width 2, dense."""
    attention = model.blocks[layer].attention
    rows = slice(2 * head, 2 * head + 2)
    return (attention.value.weight[rows].T @ attention.output.weight[:, rows].T).detach().numpy()


@pytest.mark.parametrize("top", [None, 1, 3])
def test_norms_and_ranks_are_of_the_whole_update_however_few_values_are_kept(top):
    model = ViT(SMALL).double()
    before, tracker = (
        copy.deepcopy(model),
        RankTracker(model, recorders=[Values(top)], schedule=Every(1), matrices="blocks.1.*"),
    )
    step_at_random(model)
    tracker.step()
    dataset = tracker.to_xarray().isel(step=0)
    kept = top or 7  # matrices have at most 7 values, updates of heads at most 4
    assert dataset.sizes["index"] == kept
    for product, dense in (("KQ", key_query), ("VO", value_output)):
        for layer in range(2):
            for head in range(3):
                here = dataset.isel(layer=layer, head=head).sel(product=product)
                update = dense(model, layer, head) - dense(before, layer, head)
                s = np.linalg.svd(update, compute_uv=False)
                p = s[:4] / s[:4].sum()
                np.testing.assert_allclose(here.update_spectrum[:4], s[: min(4, kept)], rtol=1e-9)
                assert here.update_norm == pytest.approx(np.linalg.norm(update))
                assert here.stable_rank == pytest.approx(np.linalg.norm(update) ** 2 / s[0] ** 2)
                assert here.effective_rank == pytest.approx(np.exp(-(p * np.log(p)).sum()))
                assert here.initial_norm == pytest.approx(np.linalg.norm(dense(before, layer, head)))
                assert here.measurable
    for name in dataset.matrix.values:
        here = dataset.sel(matrix=name)
        initial = before.get_parameter(str(name)).detach().numpy()
        update = model.get_parameter(str(name)).detach().numpy() - initial
        s = np.linalg.svd(update, compute_uv=False)
        np.testing.assert_allclose(here.matrix_update_spectrum[: len(s)], s[:kept], rtol=1e-9)
        assert not here.matrix_update_spectrum[len(s) :].any()
        assert here.matrix_update_norm == pytest.approx(np.linalg.norm(update))
        assert here.matrix_stable_rank == pytest.approx(np.linalg.norm(update) ** 2 / s[0] ** 2)
        assert here.matrix_initial_spectrum[0] == pytest.approx(np.linalg.norm(initial, 2))
        assert here.matrix_initial_norm == pytest.approx(np.linalg.norm(initial))


def turned(model, angles):
    """Build an update of rank two for the values of head 1 in layer 0: one direction rotates, the other is fixed."""
    rows = slice(2, 4)
    attention = model.blocks[0].attention
    for angle in angles:
        with torch.no_grad():
            attention.output.weight[:, rows] = torch.eye(12, dtype=torch.float64)[:, :2]
            attention.value.weight[rows] = 0
            attention.value.weight[2, :2] = 5 * torch.tensor([np.cos(angle), np.sin(angle)])
            attention.value.weight[3, 4] = 1
        yield


def test_angles_report_how_far_the_leading_directions_turn_from_record_to_record():
    model = ViT(SMALL).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    tracker = RankTracker(model, schedule=Every(1), recorders=[Angles(3)])
    for _ in turned(model, (0.2, 0.5, 1.3)):
        tracker.step()
    angles = tracker.to_xarray().angles.sel(product="VO", layer="blocks.0.attention")
    assert angles.isel(step=0).isnull().all()  # there was no record before
    of_head = angles.isel(head=1)
    np.testing.assert_allclose(of_head.sel(side="left")[1:, :2], [[0, 0.3], [0, 0.8]], atol=1e-12)
    np.testing.assert_allclose(of_head.sel(side="right")[1:, :2], 0, atol=1e-12)
    assert of_head[..., 2].isnull().all()  # the update has rank two: a third direction is rounding
    assert angles.isel(head=[0, 2]).isnull().all()  # nothing learnt, so no direction
    assert tracker.to_xarray().angles.sel(product="KQ").isnull().all()


def test_a_direction_has_an_angle_once_both_records_have_it():
    model = ViT(SMALL).double()
    tracker = RankTracker(model, schedule=Every(1), recorders=[Angles(2)])
    attention = model.blocks[1].attention
    for entry in ((0, 3), (1, 5)):  # of head 0: first one direction is learnt, then another beside it
        with torch.no_grad():
            attention.value.weight[entry] += 1
        tracker.step()
    tracker.step()
    angles = tracker.to_xarray().angles.sel(product="VO", layer="blocks.1.attention", side="left").isel(head=0)
    assert np.isfinite(angles[1, 0])
    assert np.isnan(angles[1, 1])
    np.testing.assert_allclose(angles[2], 0, atol=1e-7)


def test_a_resumed_tracker_knows_the_directions_of_the_last_record():
    model = ViT(SMALL)
    whole = RankTracker(model, schedule=Every(1), recorders=[Angles(2), Values(2)])
    step_at_random(model)
    whole.step()
    resumed = RankTracker(model, schedule=Every(1), recorders=[Angles(2), Values(2)])
    resumed.load_state_dict(whole.state_dict())
    step_at_random(model, seed=1)
    whole.step()
    resumed.step()
    assert resumed.to_xarray().identical(whole.to_xarray())
    assert (resumed.to_xarray().angles[1] > 0).all()
    with pytest.raises(InputError, match="got other numbers of heads, values, angles or orders of the attention heads"):
        RankTracker(model, recorders=[Values(3)]).load_state_dict(whole.state_dict())


def test_an_update_below_the_noise_floor_has_no_rank():
    model = ViT(SMALL)
    tracker = RankTracker(model, schedule=Every(1), matrices="*.value")
    with torch.no_grad():  # one entry, by its last bit
        weight = model.blocks[0].attention.value.weight
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(torch.inf))
        model.blocks[1].attention.value.weight[2, 0] += 0.1
    tracker.step()
    dataset = tracker.to_xarray().isel(step=0)
    first, second = (dataset.sel(layer=f"blocks.{k}.attention", product="VO") for k in range(2))
    assert 0 < first.update_spectrum[0, 0] < first.noise_floor[0]
    assert not first.measurable.any()
    assert first.stable_rank.isnull().all()
    assert first.effective_rank.isnull().all()
    assert second.measurable.values.tolist() == [False, True, False]
    assert second.stable_rank[1] == pytest.approx(1)
    assert dataset.matrix_measurable.values.tolist() == [False, True]
    assert np.isnan(dataset.matrix_stable_rank[0])
    assert dataset.matrix_stable_rank[1] == pytest.approx(1)
    assert dataset.matrix_effective_rank[1] == pytest.approx(1, abs=1e-4)


def test_weights_that_are_not_finite_cost_their_own_layer_alone():
    model = ViT(SMALL)
    tracker = RankTracker(model, schedule=Every(1), matrices=["*.value", "*.expand"])
    step_at_random(model)
    with torch.no_grad():
        model.blocks[1].attention.value.weight[0, 0] = torch.nan
    message = "got NaN or infinity.*of blocks.1.attention, blocks.1.attention.value.weight are NaN from step 1 on"
    with pytest.warns(UserWarning, match=message):
        tracker.step()
    tracker.step()  # warnings are errors here: it warns once
    with torch.no_grad():
        model.blocks[0].expand.weight[0, 0] = -torch.inf
    with pytest.warns(UserWarning, match=r"Records of blocks.0.expand.weight are NaN from step 3 on"):
        tracker.step()
    assert tracker.steps == (1, 2, 3)
    dataset = tracker.to_xarray().isel(step=0)
    lost = dataset.sel(layer="blocks.1.attention", product="VO")
    for name in ("update_spectrum", "noise_floor", "update_norm", "stable_rank", "effective_rank"):
        assert lost[name].isnull().all()
    assert not lost.measurable.any()
    assert (dataset.sel(product="KQ").stable_rank >= 1).all()  # keys and queries of that layer are as they were
    assert (dataset.sel(layer="blocks.0.attention").stable_rank >= 1).all()
    assert dataset.matrix_stable_rank.isnull().values.tolist() == [False, False, True, False]
    with pytest.raises(InputError, match=r"initial weights must be finite; got NaN or infinity in blocks.1.attention"):
        RankTracker(model)
    with pytest.raises(
        InputError, match=r"initial weights must be finite; got NaN or infinity in .*1.attention.value.w"
    ):
        RankTracker(model, attention=False, matrices="*.value")


def test_weights_that_are_finite_again_are_measured_again():
    model = ViT(SMALL)
    tracker = RankTracker(model, schedule=Every(1), recorders=[Angles(1)])
    weight = model.blocks[1].attention.value.weight
    step_at_random(model)
    tracker.step()
    healthy = weight.detach().clone()
    with torch.no_grad():
        weight[0, 0] = torch.nan
    with pytest.warns(UserWarning, match="Records of blocks.1.attention are NaN"):
        tracker.step()
    with torch.no_grad():
        weight.copy_(healthy)
    tracker.step()
    dataset = tracker.to_xarray().sel(layer="blocks.1.attention", product="VO")
    np.testing.assert_array_equal(dataset.update_spectrum[2], dataset.update_spectrum[0])
    assert dataset.angles[1:].isnull().all()  # there is no previous direction


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_accelerator_path_records_the_same(dtype, monkeypatch):
    """Arithmetic by PyTorch, as on a GPU, against that by NumPy, as on the host."""
    model = ViT(SMALL).to(dtype)
    options = {"schedule": Every(1), "matrices": "blocks.1.*", "recorders": [Angles(1)]}
    here, there = RankTracker(model, **options), RankTracker(model, **options)
    used = []
    for size in (0.1, 0.2):
        step_at_random(model, size=size)
        here.step()
        with monkeypatch.context() as on_accelerator:
            on_accelerator.setattr(arrays, "is_cpu", lambda device: used.append(device) or False)
            there.step()
    assert used
    values, expected = there.to_xarray(), here.to_xarray()
    floor = expected.update_spectrum.isel(index=0) * tolerances.SPECTRUM_FROM_SINGLE
    assert (abs(values.update_spectrum - expected.update_spectrum) <= floor).all()
    for name in ("noise_floor", "update_norm", "stable_rank", "matrix_update_norm", "matrix_stable_rank", "angles"):
        np.testing.assert_allclose(values[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_heads_are_measured_some_at_a_time(monkeypatch):
    model = ViT(SMALL)
    whole, cut = (RankTracker(model, schedule=Every(1), recorders=[Angles(1)]) for _ in range(2))
    for size in (0.1, 0.2):
        step_at_random(model, size=size)
        whole.step()
        with monkeypatch.context() as smaller:
            smaller.setattr(tracked_matrices, "_ENTRIES", 1)  # one head
            cut.step()
    assert cut.to_xarray().identical(whole.to_xarray())


def test_bad_input():
    model = ViT(SMALL)
    with pytest.raises(InputError, match="top must be at least 1, or None for all singular values; got 0"):
        Values(0)
    with pytest.raises(InputError, match="k must be at least 1; got -1"):
        Angles(-1)
    with pytest.raises(InputError, match="attention must be True if no matrices are selected; got False"):
        RankTracker(model, attention=False)
    for one in (Angles(2), Orders()):
        with pytest.raises(InputError, match=r"is of the products of heads; got attention=False"):
            RankTracker(model, attention=False, matrices="*", recorders=[one])


def test_arguments_of_another_kind_are_refused_at_once(types_unchecked):
    with types_unchecked():
        with pytest.raises(InputError, match=r"schedule must be a function .* got 100. Pass Geometric\(1.5\), Every"):
            RankTracker(ViT(SMALL), schedule=100)
        with pytest.raises(InputError, match=r"matrices must be a pattern, several, or a function .* got 7"):
            RankTracker(ViT(SMALL), matrices=7)
