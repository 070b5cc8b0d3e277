"""Training steps of several optimisers, wrapped ones and those of other libraries: one record per training step."""

import copy
import math

import numpy as np
import pytest
import torch
from small_vit import SMALL, assert_record
from torch import nn
from torch.nn import functional

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import Every, RankTracker
from saddlescope.training import ViT


def fresh():
    return ViT(SMALL, seed=1)


def backward(model, k=0):
    generator = torch.Generator().manual_seed(k)
    images, labels = torch.randn(4, 1, 8, 8, generator=generator), torch.randint(4, (4,), generator=generator)
    model.zero_grad()
    functional.cross_entropy(model(images), labels).backward()


def halves(model):
    """Return two optimisers: keys and queries, and all other weights."""
    first = [weight for name, weight in model.named_parameters() if ".key." in name or ".query." in name]
    rest = [weight for weight in model.parameters() if all(weight is not one for one in first)]
    return torch.optim.SGD(first, lr=0.1), torch.optim.Adam(rest, lr=1e-2)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0, 0, 1)], ids=["in order", "reversed", "one more often"])
def test_a_record_has_the_weights_after_the_last_of_two_optimizers(order):
    model = fresh()
    optimizers = halves(model)
    tracker = RankTracker(model, schedule=Every(1)).watch(*optimizers)
    after = []
    for k in range(2):
        for position in order:
            backward(model, k)
            optimizers[position].step()
        after.append(copy.deepcopy(model))
    assert tracker.steps == (1, 2)
    for record, weights in enumerate(after):
        assert_record(tracker, record, weights)


def test_a_step_that_overflow_skips_ends_with_the_next_one():
    model = fresh()
    first, second = halves(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    tracker = RankTracker(model, schedule=Every(1)).watch(first, second)
    for k in range(3):
        generator = torch.Generator().manual_seed(k)
        images = torch.randn(4, 1, 8, 8, generator=generator)
        scaler.scale(model(images).square().mean()).backward()
        if k == 1:
            second.param_groups[0]["params"][0].grad.fill_(math.inf)
        scaler.step(first)
        scaler.step(second)
        scaler.update()
        model.zero_grad()
    assert tracker.steps == (1, 2)  # the first optimiser made 3 steps, the second 2
    assert_record(tracker, 1, model)


def test_a_run_resumed_between_two_optimizers_completes_the_training_step():
    model = fresh()
    first, second = halves(model)
    tracker = RankTracker(model, schedule=Every(1)).watch(first, second)
    backward(model)
    first.step()
    state = copy.deepcopy(tracker.state_dict())
    resumed_model = copy.deepcopy(model)
    second.step()
    again, other = halves(resumed_model)
    again.load_state_dict(first.state_dict())
    resumed = RankTracker(resumed_model, schedule=Every(1))
    resumed.load_state_dict(state)
    resumed.watch(again, other)
    backward(resumed_model)
    other.step()
    assert resumed.steps == tracker.steps == (1,)


def test_watching_again_goes_on_with_the_training_step():
    model = fresh()
    first, second = halves(model)
    with RankTracker(model, schedule=Every(1)).watch(first, second) as tracker:
        backward(model)
        first.step()
    tracker.watch(first, second)
    assert tracker.steps == ()
    second.step()
    assert tracker.steps == (1,)


def test_an_optimizer_that_is_not_watched_is_warned_of():
    model = fresh()
    first, second = halves(model)
    with pytest.warns(UserWarning, match=r"hold no blocks\.0\.attention.*value.weight.* pass it to watch as well"):
        RankTracker(model).watch(first)
    for weight in second.param_groups[0]["params"]:
        weight.requires_grad = False
    RankTracker(model).watch(first)  # fixed weights need no optimiser


def test_an_optimizer_with_copies_of_the_weights_is_not_warned_of():
    model = fresh()
    RankTracker(model).watch(torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1))


class Decaying(torch.optim.SGD):
    """Optimizer whose step calls the step of its base class, which PyTorch hooks as well."""

    @torch.no_grad()
    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            for weight in group["params"]:
                weight.mul_(0.9)
        return loss


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_a_step_that_calls_the_step_of_its_base_class_is_one(compiled):
    torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)  # from now on the base class calls hooks as well
    model = fresh()
    optimizer = Decaying(model.parameters(), lr=0.1)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    tracker = RankTracker(model, schedule=Every(1)).watch(optimizer)
    step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
    for _ in range(2):
        backward(model)
        step()
    assert len(calls) == 4  # without this tracker's care
    assert tracker.steps == (1, 2)
    assert_record(tracker, 1, model)


def test_a_failed_step_does_not_end_the_counting():
    model = fresh()
    optimizer = Decaying(model.parameters(), lr=0.1)
    tracker = RankTracker(model, schedule=Every(1)).watch(optimizer)

    def out_of_memory():
        raise MemoryError

    with pytest.raises(MemoryError):
        optimizer.step(out_of_memory)
    backward(model)
    optimizer.step()
    assert tracker.steps == (1,)


def test_adagrad_has_state_before_its_first_step():
    model = fresh()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)
    tracker = RankTracker(model, schedule=Every(1)).watch(optimizer)
    backward(model)
    optimizer.step()
    assert_record(tracker, 0, model)
    refused("optimizer must not have made a step yet; got state for", RankTracker(model).watch, optimizer)


def test_bad_input(types_unchecked):
    model = fresh()
    first, second = halves(model)
    tracker = RankTracker(model)
    refused("optimizers must be one or more; got none", tracker.watch)
    refused("optimizers must differ; got the same one twice", tracker.watch, first, first)
    with types_unchecked():
        for other in ([first, second], model):
            refused(r"whose step can be watched; got (list|ViT)\. Call tracker\.step\(\)", tracker.watch, other)
    assert not first._optimizer_step_post_hooks  # a refusal leaves nothing behind


@pytest.fixture
def accelerator(request):
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    yield accelerate.Accelerator(cpu=True, **request.param)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


@pytest.mark.parametrize("accelerator", [{"gradient_accumulation_steps": 2}], indirect=True)
def test_accumulated_batches_under_accelerate_are_one_step(accelerator):
    bare = fresh()
    model, first, second = accelerator.prepare(bare, *halves(bare))
    tracker = RankTracker(model, schedule=Every(1)).watch(first, second)
    after = []
    for k in range(4):
        with accelerator.accumulate(model):
            generator = torch.Generator().manual_seed(k)
            accelerator.backward(model(torch.randn(4, 1, 8, 8, generator=generator)).square().mean())
            for optimizer in (first, second):
                optimizer.step()
                optimizer.zero_grad()
        after.append(copy.deepcopy(bare))
    assert tracker.steps == (1, 2)
    assert_record(tracker, 0, after[1])
    assert_record(tracker, 1, after[3])


@pytest.mark.parametrize("accelerator", [{}], indirect=True)
def test_steps_that_accelerates_scaler_skips_do_not_count(accelerator):
    """On the processor Accelerate makes no scaler; its wrapper takes one."""
    from accelerate.optimizer import AcceleratedOptimizer

    model = fresh()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    optimizer = AcceleratedOptimizer(torch.optim.Adagrad(model.parameters(), lr=1e-2), scaler=scaler)
    tracker = RankTracker(model, schedule=Every(1)).watch(optimizer)
    skipped = []
    for k in range(4):
        generator = torch.Generator().manual_seed(k)
        loss = model(torch.randn(4, 1, 8, 8, generator=generator)).square().mean()
        scaler.scale(loss * (math.inf if k == 1 else 1.0)).backward()
        optimizer.step()
        optimizer.zero_grad()
        skipped.append(optimizer.step_was_skipped)
    assert skipped == [False, True, False, False]
    assert tracker.steps == (1, 2, 3)
    assert_record(tracker, 2, model)


def test_schedule_free_is_measured_where_it_takes_gradients():
    schedulefree = pytest.importorskip("schedulefree")
    model = fresh()
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=1e-2)
    optimizer.train()
    tracker = RankTracker(model, schedule=Every(1)).watch(optimizer)
    for k in range(3):
        backward(model, k)
        optimizer.step()
    assert tracker.steps == (1, 2, 3)
    assert_record(tracker, 2, model)
    optimizer.eval()
    averaged = RankTracker(model, schedule=lambda step: False)
    averaged.load_state_dict(RankTracker(fresh(), schedule=lambda step: False).state_dict())
    averaged.measure()
    assert_record(averaged, 0, model)
    assert not np.allclose(averaged.stable_rank("KQ")[0], tracker.stable_rank("KQ")[2], rtol=1e-3)


def test_a_wrapper_without_hooks_is_refused_with_the_cure(types_unchecked):
    schedulefree = pytest.importorskip("schedulefree")
    model = fresh()
    optimizer = schedulefree.ScheduleFreeWrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    with types_unchecked(), pytest.raises(InputError, match=r"got ScheduleFreeWrapper\. Call tracker\.step\(\) after"):
        RankTracker(model).watch(optimizer)
