"""Errors of a published attempt to reproduce the paper: here each is impossible or reported.

Each test repeats an error of the attempt, shows its effect, and checks that the tracker avoids it.
"""

import copy
import math

import jax
import numpy as np
import pytest
import torch
from attention_standins import GPT2Attention
from small_vit import SMALL, step_at_random

from saddlescope._shared.errors import InputError
from saddlescope.measure import effective_rank, product_update_spectrum, stable_rank
from saddlescope.models import attention_head, attention_teacher_task
from saddlescope.ranks import Angles, Every, RankTracker
from saddlescope.training import ViT, ViTConfig


def tracked(model, size=0.1):
    tracker = RankTracker(model, schedule=Every(1))
    step_at_random(model, size=size)
    tracker.step()
    return tracker


def test_initial_weights_taken_from_state_dict_follow_the_model():
    model = ViT(SMALL)
    alias = model.state_dict()
    tracker = tracked(model)
    weight = "blocks.0.attention.key.weight"
    assert torch.equal(alias[weight], model.get_parameter(weight))  # the trap: no update, whatever was learnt
    assert (tracker.stable_rank("KQ") >= 1).all()
    assert (tracker.stable_rank("VO") >= 1).all()


def test_slices_of_the_fused_weights_of_gpt2_follow_the_model():
    model = GPT2Attention(8, 2)
    query, key, _ = model.c_attn.weight.detach().split(8, dim=1)  # views
    tracker = tracked(model)
    later_query, later_key, _ = model.c_attn.weight.detach().split(8, dim=1)
    assert not (later_key @ later_query.T - key @ query.T).any()  # the trap
    assert (tracker.stable_rank("KQ") >= 1).all()


def test_the_product_is_that_of_the_transposed_weights():
    """nn.Linear stores (out, in): W_K W_Q^T is key.weight^T query.weight, and key.weight query.weight^T another one."""
    model = ViT(SMALL).double()
    before, tracker = copy.deepcopy(model), tracked(model)
    K, Q, K0, Q0 = (getattr(one.blocks[1].attention, name).weight.detach()[2:4] for one in (model, before)
                    for name in ("key", "query"))  # fmt: skip
    right, wrong = K.T @ Q - K0.T @ Q0, K @ Q.T - K0 @ Q0.T
    assert right.shape == (12, 12)
    assert wrong.shape == (2, 2)
    found = tracker.records.spectra("KQ")[0, 1, 1]
    np.testing.assert_allclose(found, torch.linalg.svdvals(right)[:4], rtol=1e-9)
    assert not np.allclose(found[:2], torch.linalg.svdvals(wrong), rtol=0.1)


def test_heads_are_not_mixed():
    """One product over all heads at once has the rank of all of them; a head has that of its own update."""
    model = ViT(SMALL).double()
    with torch.no_grad():
        tracker = RankTracker(model, schedule=Every(1))
        attention = model.blocks[0].attention
        for head in range(3):  # one direction a head
            attention.value.weight[2 * head] += 10 * torch.eye(12, dtype=torch.float64)[head]
    before = ViT(SMALL).double().blocks[0].attention
    tracker.step()
    mixed = attention.output.weight @ attention.value.weight - before.output.weight @ before.value.weight
    assert torch.linalg.matrix_rank(mixed) == 3  # the trap
    values = tracker.records.spectra("VO")[0, 0]
    assert (values[:, 1] < 1e-9 * values[:, 0]).all()


def test_queries_come_before_keys_in_the_fused_weights_of_gpt2():
    model = GPT2Attention(768, 12).double()
    assert model.c_attn.weight.shape == (768, 2304)
    tracker = RankTracker(model, schedule=Every(1))
    with torch.no_grad():
        model.c_attn.weight[:, 1536 + 64 : 1536 + 128] *= 2  # values of head 1
        model.c_attn.weight[:, 64] += 1  # a query of head 1
    tracker.step()
    KQ, VO = (tracker.records.spectra(product)[0, 0] for product in ("KQ", "VO"))
    assert np.flatnonzero(KQ[:, 0]).tolist() == np.flatnonzero(VO[:, 0]).tolist() == [1]
    assert tracker.stable_rank("KQ")[0, 0, 1] == pytest.approx(1)
    values, output = model.c_attn.weight[:, 1600:1664].detach(), model.c_proj.weight[64:128].detach()
    np.testing.assert_allclose(VO[1, :64], torch.linalg.svdvals(values @ output)[:64] / 2, rtol=1e-6)
    keys = model.c_attn.weight[:, 768 + 64 : 768 + 128].detach()
    assert KQ[1, 0] == pytest.approx(float(math.sqrt(768) * keys[:, 0].norm()))


def test_a_model_that_was_trained_before_is_not_taken_for_one_from_scratch():
    """An optimiser that has made steps shows it. A pretrained model does not: what it learnt before is not counted."""
    model = ViT(SMALL)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.zeros(2, 1, 8, 8)).sum().backward()
    optimizer.step()
    with pytest.raises(InputError, match="optimizer must not have made a step yet"):
        RankTracker(model).watch(optimizer)
    pretrained = ViT(SMALL)
    step_at_random(pretrained, size=10.0)
    tracker = RankTracker(pretrained)
    tracker.measure()
    assert not tracker.records.update.any()


def test_the_initial_scale_is_a_factor():
    """Not a standard deviation, which would give layers of all widths the same."""
    for name, weight in ViT(SMALL).state_dict().items():
        scaled = ViT(ViTConfig(**{**vars(SMALL), "initial_scale": 0.125})).state_dict()[name]
        is_matrix = name.endswith("weight") and weight.ndim == 2 and "patch" not in name
        torch.testing.assert_close(scaled, 0.125 * weight if is_matrix else weight, rtol=0, atol=0)


def test_the_target_of_the_toy_task_is_a_teacher():
    """Pure noise has no stages to be learnt in: the targets are those of a head like the student's, to be reached."""
    task = attention_teacher_task(seed=1, samples=20)
    head = jax.vmap(attention_head, in_axes=(0, None))
    np.testing.assert_allclose(
        head(task.network.inputs, jax.numpy.asarray(task.teacher)), task.network.targets, atol=1e-12
    )
    assert np.std(task.network.targets) > 0.1


def test_the_band_is_over_heads():
    """Two heads that differ by a constant while both rise: over heads the spread stays, over time it would grow."""
    import xarray as xr

    from saddlescope.plot.rank_figures import stable_rank_figure

    rank = np.linspace(1, 9, 5)[:, None] + np.array([0.0, 2.0])
    shape = (5, 1, 2, 2)
    ranks = np.broadcast_to(rank[:, None, :, None], shape)
    dataset = xr.Dataset(
        {
            "stable_rank": (("step", "layer", "head", "product"), ranks),
            "update_spectrum": (("step", "layer", "head", "product", "index"), np.ones((*shape, 1))),
            "initial_spectrum": (("layer", "head", "product", "index"), np.ones((1, 2, 2, 1))),
            "initial_norm": (("layer", "head", "product"), np.ones((1, 2, 2))),
        },
        coords={"step": np.arange(1, 6), "layer": ["a"], "product": ["KQ", "VO"]},
    )
    (panel,) = stable_rank_figure(dataset).panels
    band = next(mark for mark in panel.marks if hasattr(mark, "low"))
    np.testing.assert_allclose(np.asarray(band.high) - np.asarray(band.low), 2.0)
    np.testing.assert_allclose((np.asarray(band.high) + np.asarray(band.low)) / 2, rank.mean(axis=1))


def test_single_precision_at_a_scale_where_its_gradients_vanish_is_refused():
    """At 1e-32 the gradients of keys and queries, with four factors of the scale, are exactly 0 in float32."""
    assert np.float32(1e-32) ** 3 == 0
    with pytest.raises(InputError, match="initial_scale must be a finite factor of at least 1e-6; got 1e-32"):
        ViTConfig(initial_scale=1e-32)


def test_products_subtracted_in_single_precision_drown():
    """The difference of two products in float32 is mostly rounding where the update is small: its rank is wrong."""
    generator = torch.Generator().manual_seed(0)
    K0, Q = (0.02 * torch.randn(256, 32, generator=generator) for _ in range(2))
    K = K0 + 5e-9 * torch.randn(256, 1, generator=generator) @ torch.randn(1, 32, generator=generator)
    right = torch.linalg.svdvals((K.double() - K0.double()) @ Q.double().T)
    wrong = torch.linalg.svdvals(K @ Q.T - K0 @ Q.T)
    assert effective_rank(wrong) > 10 * effective_rank(right)
    found = product_update_spectrum(K, Q, K0, Q).values
    assert stable_rank(found).item() == pytest.approx(stable_rank(right).item(), rel=1e-5)
    assert effective_rank(found).item() == pytest.approx(effective_rank(right).item(), rel=1e-3)


def test_half_precision_checkpoints_are_reported_from_what_was_learnt():
    """bfloat16 keeps three digits: an update of 1e-4 is lost, and the tracker says so instead of giving a rank."""
    model = ViT(SMALL).bfloat16()
    tracker = tracked(model, size=1e-4)
    changed = tracker.records.products.update.norm > 0
    assert changed.any()  # some entries have moved, each by a whole last digit
    assert np.isnan(tracker.stable_rank("KQ")).all()
    assert not tracker.records.products.update.measurable.any()


def test_a_measurement_is_no_step_of_the_model():
    """Measuring is reading: in training mode and with gradients around, nothing of the model changes."""
    model = ViT(SMALL)
    model(torch.zeros(2, 1, 8, 8)).sum().backward()
    state = copy.deepcopy(model.state_dict()), [copy.copy(p.grad) for p in model.parameters()], torch.get_rng_state()
    RankTracker(model, recorders=[Angles(2)], matrices="*").measure()
    torch.testing.assert_close(
        (model.state_dict(), [p.grad for p in model.parameters()], torch.get_rng_state()), state, rtol=0, atol=0
    )
