"""Rank tracker: its spectra are those of the paper's products, and tracking changes no run."""

# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false

import copy

import numpy as np
import pytest
import torch
from attention_standins import GPT2Attention, LlamaAttention, TimmAttention, all_kinds
from small_vit import SMALL, dense, step_at_random
from torch import nn
from torch.nn import functional

from saddlescope._shared.errors import InputError
from saddlescope.ranks import AtSteps, Every, RankTracker, Separate
from saddlescope.training import ViT


def test_spectra_are_those_of_the_dense_updates():
    model = ViT(SMALL, seed=1)
    before, tracker = copy.deepcopy(model), RankTracker(model, schedule=Every(2))
    for k in range(4):
        step_at_random(model, seed=k)
        tracker.step()
    records = tracker.records
    assert records.steps.tolist() == [2, 4]
    assert records.layers == ("blocks.0.attention", "blocks.1.attention")
    assert records.update.shape == (2, 2, 3, 2, 4)
    for layer in range(2):
        for head in range(3):
            KQ, VO = dense(before, model, layer, head, width=2)
            np.testing.assert_allclose(records.spectra("KQ")[-1, layer, head], KQ[:4], rtol=1e-6)
            np.testing.assert_allclose(records.spectra("VO")[-1, layer, head], VO[:4], rtol=1e-6)
            ranks = [float((values**2).sum() / values[0] ** 2) for values in (KQ, VO)]
            assert tracker.stable_rank("KQ")[-1, layer, head] == pytest.approx(ranks[0], rel=1e-6)
            assert tracker.stable_rank("VO")[-1, layer, head] == pytest.approx(ranks[1], rel=1e-6)


def test_initial_spectra_are_those_of_the_initial_products():
    model = ViT(SMALL, seed=1)
    tracker = RankTracker(model)
    zero = copy.deepcopy(model)
    for parameter in zero.parameters():
        nn.init.zeros_(parameter)
    step_at_random(model)
    KQ, VO = dense(zero, ViT(SMALL, seed=1), layer=1, head=2, width=2)
    np.testing.assert_allclose(tracker.records.initial[1, 2, 0, :2], KQ[:2], rtol=1e-6)
    np.testing.assert_allclose(tracker.records.initial[1, 2, 1, :2], VO[:2], rtol=1e-6)


@pytest.mark.parametrize("kind", ["torch", "gpt2", "timm", "bert", "llama", "t5", "vit-pytorch"])
def test_a_rank_one_change_of_one_head_is_found_in_that_head_alone(kind):
    """Move one head of W_K by a rank-one matrix, for every layout: detects mixed heads and transposed layouts."""
    model = all_kinds()[kind]
    tracker = RankTracker(model)
    factors = tracker._blocks[0].factors()  # views: writing to them writes to the model
    left = torch.arange(1.0, 13, dtype=torch.float64)
    right = torch.linspace(-1, 1, factors.value.shape[-1], dtype=torch.float64)
    factors.output[2] += torch.outer(left, right)
    tracker.step()
    tracker.measure()
    expected = left.norm() * (factors.expanded().value[2] @ right).norm()
    spectra = tracker.records.spectra("VO")[-1, 0]
    assert spectra[2, 0] == pytest.approx(float(expected))
    assert spectra[2, 1:].max() < 1e-6 * spectra[2, 0]
    assert not spectra[[0, 1, 3]].any()
    assert not tracker.records.spectra("KQ").any()


def test_initial_weights_are_copies():
    """Detect aliases: with them every update is zero."""
    for model in (ViT(SMALL), GPT2Attention(8, 2), nn.MultiheadAttention(8, 2)):
        tracker = RankTracker(model, schedule=AtSteps(1))
        step_at_random(model)
        tracker.step()
        assert (tracker.stable_rank("KQ") >= 1).all()
        assert (tracker.stable_rank("VO") >= 1).all()


def test_before_any_update_there_is_no_rank():
    tracker = RankTracker(ViT(SMALL))
    tracker.measure()
    assert tracker.records.steps.tolist() == [0]
    assert not tracker.records.update.any()
    assert np.isnan(tracker.stable_rank("KQ")).all()
    assert not tracker.records.products.update.measurable.any()


def test_updates_are_counted_from_where_the_tracker_was_made():
    """Track a model that was trained before: only later updates are measured."""
    model = ViT(SMALL)
    step_at_random(model, size=10.0)
    before, tracker = copy.deepcopy(model), RankTracker(model, schedule=AtSteps(1))
    step_at_random(model, seed=1, size=1e-3)
    tracker.step()
    KQ, _ = dense(before, model, 0, 0, width=2)
    np.testing.assert_allclose(tracker.records.spectra("KQ")[0, 0, 0], KQ[:4], rtol=1e-3)


def test_half_precision_models_are_measured_from_exact_initial_weights():
    model = ViT(SMALL).to(torch.bfloat16)
    before = copy.deepcopy(model)
    tracker = RankTracker(model)
    step_at_random(model, size=0.5)
    tracker.step()
    KQ, _ = dense(before, model, 1, 1, width=2)
    np.testing.assert_allclose(tracker.records.spectra("KQ")[0, 1, 1], KQ[:4], rtol=1e-6)
    single = RankTracker(model.float())
    step_at_random(model, size=1e-6)
    single.step()
    assert tracker.records.noise_floor.min() > 1000 * single.records.noise_floor.max()


def test_double_precision_models_keep_double_precision_initial_weights():
    model = ViT(SMALL).double()
    tracker = RankTracker(model)
    step_at_random(model, size=1e-12)
    tracker.step()
    records = tracker.records
    assert records.update.dtype == np.float64
    assert (records.update[..., 0] > 100 * records.noise_floor).all()


def test_small_updates_in_single_precision_do_not_drown():
    """Detect cancellation: at 1e-5 the difference of two products in float32 would be mostly rounding."""
    model = ViT(SMALL)
    before, tracker = copy.deepcopy(model), RankTracker(model)
    step_at_random(model, size=1e-5)
    tracker.step()
    for head in range(3):
        KQ, _ = dense(before, model, 0, head, width=2)
        np.testing.assert_allclose(tracker.records.spectra("KQ")[0, 0, head], KQ[:4], atol=1e-6 * KQ[0])


def batches(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield torch.randn(8, 1, 8, 8, generator=generator), torch.randint(0, 4, (8,), generator=generator)


def train(model, optimizer, count=6, after=lambda: None):
    for images, labels in batches(count):
        optimizer.zero_grad()
        functional.cross_entropy(model(functional.dropout(images, 0.1)), labels).backward()
        optimizer.step()
        after()


def test_a_run_does_not_notice_the_tracker():
    results = []
    for tracked in (False, True):
        torch.manual_seed(0)
        model = ViT(SMALL)
        model.blocks[1].eval()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        tracker = RankTracker(model, schedule=Every(1)) if tracked else None
        train(model, optimizer, after=tracker.step if tracker else lambda: None)
        modes = [module.training for module in model.modules()]
        gradients = [parameter.grad for parameter in model.parameters()]
        results.append((model.state_dict(), optimizer.state_dict()["state"], gradients, modes, torch.get_rng_state()))
    assert tracker is not None
    assert len(tracker.records.steps) == 6
    without, with_tracker = results
    torch.testing.assert_close(with_tracker, without, rtol=0, atol=0)


def test_the_tracker_in_three_lines():
    model = ViT(SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    tracker = RankTracker(model).watch(optimizer)
    train(model, optimizer)
    assert tracker.records.steps.tolist() == [1, 2, 3, 4, 6]
    assert tracker.stable_rank("KQ").shape == (5, 2, 3)


def test_watching_ends_with_its_block_and_is_refused_where_it_would_mislead():
    model = ViT(SMALL)
    optimizer = torch.optim.Adam(model.parameters())
    with RankTracker(model, schedule=Every(1)).watch(optimizer) as tracker:
        train(model, optimizer, count=2)
        with pytest.raises(InputError, match="the optimizers of one call at a time"):
            tracker.watch(optimizer)
    train(model, optimizer, count=2)
    assert tracker.records.steps.tolist() == [1, 2]
    with pytest.raises(InputError, match="optimizer must not have made a step yet; got state for"):
        RankTracker(model).watch(optimizer)
    tracker.watch(optimizer)  # it knows the initial weights: it may go on
    train(model, optimizer, count=1)
    assert tracker.records.steps.tolist() == [1, 2, 3]


def test_state_is_all_that_a_resumed_run_needs(tmp_path):
    model = ViT(SMALL)
    whole = RankTracker(model, schedule=Every(2))
    for k in range(3):
        step_at_random(model, seed=k)
        whole.step()
    torch.save(whole.state_dict(), tmp_path / "tracker.pt")
    resumed = RankTracker(model, schedule=Every(2))
    resumed.load_state_dict(torch.load(tmp_path / "tracker.pt", weights_only=True))
    for k in range(3):
        step_at_random(model, seed=10 + k)
        whole.step()
        resumed.step()
    for name in ("steps", "update", "noise_floor", "initial"):
        np.testing.assert_array_equal(getattr(resumed.records, name), getattr(whole.records, name))
    assert resumed.records.steps.tolist() == [2, 4, 6]


def test_layers_of_different_shapes_stand_side_by_side():
    model = nn.Sequential(TimmAttention(8, 2), LlamaAttention(6, 3, 1, 5))
    tracker = RankTracker(model)
    step_at_random(model)
    tracker.step()
    spectra, ranks = tracker.records.spectra("KQ")[0], tracker.stable_rank("KQ")[0]
    assert spectra.shape == (2, 3, 8)
    assert np.isnan(spectra[0, 2]).all()
    assert np.isnan(ranks[0, 2])
    assert (ranks[0, :2] >= 1).all()
    assert (ranks[1] >= 1).all()
    assert not spectra[1, :, 6:].any()


def test_labelled_records():
    model = ViT(SMALL)
    tracker = RankTracker(model, schedule=Every(1))
    step_at_random(model)
    tracker.step()
    labelled = tracker.to_xarray()
    assert labelled["update_spectrum"].dims == ("step", "layer", "head", "product", "index")
    assert labelled["initial_spectrum"].dims == ("layer", "head", "product", "index")
    picked = labelled["stable_rank"].sel(step=1, product="VO", layer="blocks.1.attention").values
    np.testing.assert_array_equal(picked, tracker.stable_rank("VO")[0, 1])


def test_bad_input():
    with pytest.raises(InputError, match="got Linear, which has none"):
        RankTracker(nn.Linear(2, 2))
    model = ViT(SMALL)
    tracker = RankTracker(model, schedule=Every(1))
    with pytest.raises(InputError, match="There is no product 'QK'; did you mean KQ"):
        tracker.stable_rank("QK")
    with torch.no_grad():
        model.blocks[1].attention.value.weight[0, 0] = torch.nan
    with pytest.warns(UserWarning, match=r"weights must be finite; got NaN or infinity.*of blocks.1.attention are NaN"):
        tracker.step()


def test_layouts_by_hand():
    model = nn.Module()
    model.a, model.b, model.c, model.d = (nn.Linear(6, 6) for _ in range(4))
    tracker = RankTracker(model, layouts=(Separate("a", "b", "c", "d", heads=3),))
    assert tracker.records.initial.shape == (1, 3, 2, 4)
