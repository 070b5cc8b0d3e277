"""Rank tracker: its records are those of the dense updates of the paper's products and of single matrices."""

import copy

import numpy as np
import pytest
import torch
from attention_standins import GPT2Attention, LlamaAttention, TimmAttention
from small_vit import SMALL, step_at_random
from torch import nn
from torch.nn import functional

import tolerances
from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.measure import arrays
from saddlescope.ranks import Angles, AtSteps, Every, Increments, Orders, RankTracker, Values, Vectors
from saddlescope.ranks.tracker import tracked_matrices
from saddlescope.training import ViT


def factors(model, product, layer, head):
    """Return the factors of a head of width 2, in double precision."""
    attention, rows = model.blocks[layer].attention, slice(2 * head, 2 * head + 2)
    left = (attention.key if product == "KQ" else attention.value).weight[rows].T
    right = attention.query.weight[rows].T if product == "KQ" else attention.output.weight[:, rows]
    return left.detach().double(), right.detach().double()


def dense(model, product, layer, head):
    left, right = factors(model, product, layer, head)
    return left @ right.T


def svdvals(matrix):
    return torch.linalg.svdvals(matrix).numpy()


def stable_rank(matrix):
    return (svdvals(matrix) ** 2).sum() / svdvals(matrix)[0] ** 2


@pytest.mark.parametrize(
    ("dtype", "size", "top", "near"),
    [
        (torch.float64, 0.1, None, 1e-9),
        (torch.float64, 0.1, 1, 1e-9),
        (torch.float64, 0.1, 3, 1e-9),
        (torch.float64, 1e-12, None, 1e-3),  # in single precision nothing of it would be left
        (torch.float32, 0.1, None, 1e-6),
        (torch.float32, 1e-5, None, 1e-6),  # the difference of two products in float32 would be mostly rounding
        (torch.bfloat16, 0.5, None, 1e-6),  # initial weights are exact whatever their type
    ],
)
def test_spectra_norms_and_ranks_are_those_of_the_dense_updates(dtype, size, top, near):
    """Norms and ranks are of the whole update however few values are kept; updates count from the tracker's start."""
    model = ViT(SMALL, seed=1).to(dtype)
    step_at_random(model, seed=5)  # as if trained before
    before = copy.deepcopy(model)
    tracker = RankTracker(model, recorders=[Values(top)], schedule=Every(2), matrices="blocks.1.*")
    for seed in (0, 1):
        step_at_random(model, seed=seed, size=size)
        tracker.step()
    assert tracker.records.layers == ("blocks.0.attention", "blocks.1.attention")
    dataset = tracker.to_xarray()
    assert dataset.step.values.tolist() == [2]
    kept = top or 7  # matrices have at most 7 values, updates of heads at most 4
    assert dataset.update_spectrum.dims == ("step", "layer", "head", "product", "index")
    assert dataset.sizes["index"] == kept
    for product, layer, head in ((p, at, h) for p in ("KQ", "VO") for at in range(2) for h in range(3)):
        here = dataset.isel(step=0, layer=layer, head=head).sel(product=product)
        initial = dense(before, product, layer, head)
        update = dense(model, product, layer, head) - initial
        s = svdvals(update)
        p = s[:4] / s[:4].sum()
        np.testing.assert_allclose(here.update_spectrum[:4], s[: min(4, kept)], atol=near * s[0], rtol=0)
        assert not here.update_spectrum[4:].any()
        assert here.update_norm == pytest.approx(np.linalg.norm(update), rel=near)
        assert here.stable_rank == pytest.approx(stable_rank(update), rel=near)
        assert here.effective_rank == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=max(10 * near, 1e-6))
        np.testing.assert_allclose(here.initial_spectrum[:2], svdvals(initial)[: min(2, kept)], rtol=1e-6)
        assert here.initial_norm == pytest.approx(np.linalg.norm(initial))
        assert here.update_spectrum[0] > 100 * here.noise_floor if dtype is not torch.bfloat16 else here.measurable
    for name in dataset.matrix.values:
        here = dataset.isel(step=0).sel(matrix=name)
        initial = before.get_parameter(str(name)).detach().double()
        update = model.get_parameter(str(name)).detach().double() - initial
        s = svdvals(update)
        np.testing.assert_allclose(here.matrix_update_spectrum[: len(s)], s[:kept], atol=near * s[0], rtol=0)
        assert not here.matrix_update_spectrum[len(s) :].any()
        assert here.matrix_update_norm == pytest.approx(np.linalg.norm(update), rel=near)
        assert here.matrix_stable_rank == pytest.approx(stable_rank(update), rel=near)
        assert here.matrix_initial_spectrum[0] == pytest.approx(svdvals(initial)[0], rel=1e-6)
        assert here.matrix_initial_norm == pytest.approx(np.linalg.norm(initial), rel=1e-6)
    floors = dataset.noise_floor.min() / dataset.initial_norm.max()
    assert (floors > 1e-4) == (dtype is torch.bfloat16)


def test_initial_weights_are_copies():
    """Detect aliases: with them every update is zero."""
    for model in (ViT(SMALL), GPT2Attention(8, 2), nn.MultiheadAttention(8, 2)):
        tracker = RankTracker(model, schedule=AtSteps(1))
        tracker.measure()
        assert tracker.records.steps.tolist() == [0]
        assert not tracker.records.products.update.values.any()
        assert np.isnan(tracker.stable_rank("KQ")).all()
        step_at_random(model)
        tracker.step()
        assert (tracker.stable_rank("KQ")[1] >= 1).all()
        assert (tracker.stable_rank("VO")[1] >= 1).all()


def test_increments_and_orders_are_those_of_the_dense_products():
    model = ViT(SMALL, seed=1)
    tracker = RankTracker(model, schedule=Every(1), recorders=[Increments(), Orders()], matrices="*.expand")
    models = [copy.deepcopy(model)]
    for seed in range(3):
        step_at_random(model, seed=seed)
        tracker.step()
        models.append(copy.deepcopy(model))
    tracker.step()  # nothing moved
    dataset = tracker.to_xarray()
    for record in range(3):
        for product in ("KQ", "VO"):
            here = dataset.isel(step=record, layer=1, head=2).sel(product=product)
            for prefix, size, before in (("", "update_", models[0]), ("increment_", "increment_", models[record])):
                (L, R), (L0, R0) = (factors(one, product, 1, 2) for one in (models[record + 1], before))
                update = L @ R.T - L0 @ R0.T
                values = svdvals(update)[:4]
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
    np.testing.assert_array_equal(dataset.increment_spectrum[0], dataset.update_spectrum[0])
    assert not dataset.increment_spectrum[3].any()
    assert dataset.increment_stable_rank[3].isnull().all()


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
    for options, name in (
        ({}, "blocks.1.attention"),
        ({"attention": False, "matrices": "*.value"}, ".*1.attention.va"),
    ):
        refused(rf"initial weights must be finite; got NaN or infinity in {name}", RankTracker, model, **options)


def test_products_beyond_float64_end_no_training():
    model = torch.nn.MultiheadAttention(8, 2, bias=False).double()
    tracker = RankTracker(model, schedule=Every(1), matrices=["out_proj.weight"])
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(1e160)
    with pytest.warns(UserWarning, match="must have differences and singular values below 1.8e"):
        tracker.step()
    dataset = tracker.to_xarray()
    assert dataset.update_norm.isnull().all()
    np.testing.assert_allclose(dataset.matrix_update_norm, 8e160)  # the norm's square is beyond float64, too


def test_weights_that_are_finite_again_are_measured_again():
    """There is no previous direction for angles, and no previous record for increments."""
    model = ViT(SMALL)
    tracker = RankTracker(model, schedule=Every(1), recorders=[Angles(1), Increments()])
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
    assert dataset.angles[1:].isnull().all()
    assert dataset.increment_norm.isnull().all("head").values.tolist() == [False, True, True]
    assert dataset.update_norm.isnull().all("head").values.tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
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


def train(model, optimizer, count=6):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        images, labels = torch.randn(8, 1, 8, 8, generator=generator), torch.randint(0, 4, (8,), generator=generator)
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def test_watching_ends_with_its_block_and_is_refused_where_it_would_mislead():
    model = ViT(SMALL)
    optimizer = torch.optim.Adam(model.parameters())
    with RankTracker(model).watch(optimizer) as tracker:
        train(model, optimizer)
        refused("the optimizers of one call at a time", tracker.watch, optimizer)
    train(model, optimizer, count=2)
    assert tracker.records.steps.tolist() == [1, 2, 3, 4, 6]
    refused("optimizer must not have made a step yet; got state for", RankTracker(model).watch, optimizer)
    tracker.watch(optimizer)  # it knows the initial weights: it may go on
    train(model, optimizer, count=3)
    assert tracker.records.steps.tolist() == [1, 2, 3, 4, 6, 9]


def test_layers_of_different_shapes_stand_side_by_side():
    model = nn.Sequential(TimmAttention(8, 2), LlamaAttention(6, 3, 1, 5))
    tracker = RankTracker(model)
    step_at_random(model)
    tracker.step()
    spectra, ranks = tracker.to_xarray().update_spectrum.sel(product="KQ").values[0], tracker.stable_rank("KQ")[0]
    assert spectra.shape == (2, 3, 8)
    assert np.isnan(spectra[0, 2]).all()
    assert np.isnan(ranks[0, 2])
    assert (ranks[0, :2] >= 1).all()
    assert (ranks[1] >= 1).all()
    assert not spectra[1, :, 6:].any()


def recorded(model):
    tracker = RankTracker(model, recorders=[Vectors(1)], schedule=Every(1))
    step_at_random(model)
    tracker.step()
    return tracker


@pytest.mark.parametrize(
    ("call", "reported"),
    [
        (lambda model: RankTracker(nn.Linear(2, 2)), "got Linear, which has none"),
        (lambda model: RankTracker(model).stable_rank("QK"), "There is no product 'QK'; did you mean KQ"),
        (lambda model: Values(0), "top must be at least 1, or None for all singular values; got 0"),
        (lambda model: RankTracker(model, device="cuda:99"), "device must be one of this machine; got 'cuda:99'"),
        (lambda model: RankTracker(model).load_state_dict(None), "state must be that of RankTracker.state_dict"),
        (lambda model: Angles(-1), "k must be at least 1; got -1"),
        (lambda model: RankTracker(model, attention=False), "attention must be True if no matrices are selected"),
        (
            lambda model: RankTracker(model, attention=False, matrices="*", recorders=[Angles(2)]),
            "of the products of h",
        ),
        (lambda model: RankTracker(model, attention=False, matrices="*", recorders=[Orders()]), "of the products of h"),
        (
            lambda model: RankTracker(model, schedule=100),
            r"schedule must be a function .* got 100. Pass Geometric\(1.5",
        ),
        (lambda model: RankTracker(model, matrices=7), r"matrices must be a pattern, several, or a function .* got 7"),
        (lambda model: RankTracker(model, recorders=[Values(4, randomized=True)]), "must come with matrices; got none"),
        (lambda model: Values(randomized=True), "top must be the number of values to find"),
        (lambda model: Vectors(0), "k must be at least 1; got 0"),
        *(
            (lambda model, wrong=wrong: RankTracker(model, recorders=wrong), r"several in a list, such as \[Vectors")
            for wrong in (Vectors(2), [Vectors], [3])
        ),
        *(
            (lambda model, two=two: RankTracker(model, matrices="*", recorders=two), "must be of different kinds")
            for two in ([Vectors(2), Vectors(3)], [Values(3), Values(3, randomized=True)])
        ),
        (lambda model: RankTracker(model).singular_vectors("blocks.0.attention", "KQ"), r"recorders=\[Vectors\(4\)\]"),
        (lambda model: recorded(model).singular_vectors("blocks.7", "KQ"), r"There is no name 'blocks\.7'"),
        (lambda model: recorded(model).singular_vectors("blocks.0.attention", "QK"), "There is no product 'QK'"),
        (lambda model: recorded(model).singular_vectors("blocks.0.attention", "KQ").overlap("top"), "no side 'top'"),
        (
            lambda model: recorded(model).singular_vectors("blocks.0.attention", "KQ").overlap(k=2),
            "k must be from 1 to 1",
        ),
    ],
)
def test_bad_input(call, reported, types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match=reported):
        call(ViT(SMALL))
