"""Tracker in common training loops: accumulated gradients, mixed precision, compiled models."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from saddlescope.ranks import Every, RankTracker

BATCHES = 6
WIDTH = 3  # of a head


def fresh():
    torch.manual_seed(1)
    attention = nn.TransformerEncoderLayer(6, 2, dim_feedforward=6, dropout=0.0, batch_first=True)
    return nn.Sequential(attention, nn.Flatten(), nn.Linear(24, 3))


def loss(model, k):
    generator = torch.Generator().manual_seed(k)
    tokens, labels = torch.randn(5, 4, 6, generator=generator), torch.randint(3, (5,), generator=generator)
    return functional.cross_entropy(model(tokens), labels)


def accumulated(model, optimizer):
    """Use two batches per step."""
    for k in range(BATCHES):
        (loss(model, k) / 2).backward()
        if k % 2:
            yield optimizer.step()
            optimizer.zero_grad()


def autocast(model, optimizer):
    """Run forward passes in bfloat16, with weights in float32."""
    for k in range(BATCHES):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(model, k)
        value.backward()
        yield optimizer.step()
        optimizer.zero_grad()


def scaled(model, optimizer):
    """Use a gradient scaler that skips the third and fourth step, whose gradients are not finite."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for k in range(BATCHES):
        bad = k in (2, 3)
        scaler.scale(loss(model, k) * (math.inf if bad else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if not bad:
            yield


def compiled(model, optimizer):
    """Compute the loss by a compiled model; the optimiser moves the weights of the inner one."""
    fast = torch.compile(model, backend="eager")
    for k in range(BATCHES):
        loss(fast, k).backward()
        yield optimizer.step()
        optimizer.zero_grad()


def train(loop, *, track):
    """Return the weights after each step of the optimiser, and the tracker."""
    model = fresh()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tracker = RankTracker(model, schedule=Every(1)).watch(optimizer) if track else None
    weights = [copy.deepcopy(model.state_dict()) for _ in loop(model, optimizer)]
    return weights, tracker


def dense_products(weights, head):
    """Return W_K W_Q^T and W_V W_O^T of a head of nn.MultiheadAttention, (out, in) in the order Q, K, V."""
    rows = slice(WIDTH * head, WIDTH * (head + 1))
    query, key, value = weights["0.self_attn.in_proj_weight"].double().chunk(3)
    output = weights["0.self_attn.out_proj.weight"].double()
    return key[rows].T @ query[rows], value[rows].T @ output[:, rows].T


@pytest.mark.parametrize(("loop", "steps"), [(accumulated, 3), (autocast, 6), (scaled, 4), (compiled, 6)])
def test_a_record_a_step_of_the_weights_as_they_are_then(loop, steps):
    weights, tracker = train(loop, track=True)
    assert len(weights) == steps
    assert tracker.steps == tuple(range(1, steps + 1))
    start = fresh().state_dict()
    for record, after in enumerate(weights):
        for head in range(2):
            pairs = zip(dense_products(after, head), dense_products(start, head), strict=True)
            for product, (now, before) in zip(("KQ", "VO"), pairs, strict=True):
                found = tracker.records.spectra(product)[record, 0, head]
                np.testing.assert_allclose(found, torch.linalg.svdvals(now - before)[:6], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("loop", [accumulated, autocast, scaled, compiled])
def test_training_is_the_same_to_the_bit_with_and_without(loop):
    (with_tracker, _), (without, _) = train(loop, track=True), train(loop, track=False)
    for ours, theirs in zip(with_tracker, without, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_compiled_model_has_the_names_of_the_one_below():
    model = fresh()
    plain, fast = (
        RankTracker(model, matrices="*.linear1"),
        RankTracker(torch.compile(model, backend="eager"), matrices="*.linear1"),
    )
    assert fast.layers == plain.layers == ("0.self_attn",)
    assert fast.matrices == plain.matrices
