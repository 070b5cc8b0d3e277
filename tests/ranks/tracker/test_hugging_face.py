"""Callback in real runs of transformers.Trainer: records are of its steps, and tracking changes no run."""

# pyright: reportOptionalSubscript=false

import copy
import math
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer import Trainer

from saddlescope._shared.errors import InputError
from saddlescope.ranks import AtSteps, Every, RankScalars, RankTracker
from saddlescope.ranks.state_files import read_state
from saddlescope.ranks.tracker.hugging_face import TRACKER_FILE, RankTrackerCallback, last_checkpoint, to_trainer
from saddlescope.training.architectures.gpt2 import GPT2Sizes, fresh_gpt2

SIZES = GPT2Sizes(vocabulary=17, block=6, embedding=8, depth=2, heads=2)
TOKENS = torch.randint(0, 17, (24, 6), generator=torch.Generator().manual_seed(0))
TEXTS = [{"input_ids": row, "labels": row} for row in TOKENS]


class Weights(TrainerCallback):
    """Callback that copies all weights after each step of the optimiser; may stop the run like a kill."""

    def __init__(self, die_after=math.inf):
        self.after, self.die_after = [], die_after

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.after.append(copy.deepcopy(kwargs["model"].state_dict()))

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.die_after:
            raise KeyboardInterrupt


def make_trainer(folder, *callbacks, **options):
    usual = {
        "gradient_accumulation_steps": 2, "max_steps": 7, "save_strategy": "no", "learning_rate": 1e-2,
        "per_device_train_batch_size": 4, "report_to": [], "use_cpu": True, "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }  # fmt: skip
    args = TrainingArguments(str(folder), **usual | options)
    model = fresh_gpt2(SIZES, seed=0)
    return Trainer(model, args, train_dataset=TEXTS, eval_dataset=TEXTS, callbacks=list(callbacks))


def train(folder, *callbacks, resume=None, **options):
    trainer = make_trainer(folder, *callbacks, **options)
    trainer.train(resume_from_checkpoint=resume)
    assert trainer.model is not None
    return trainer.model


def dense_product(weights, layer, head, width=4):
    """Return W_K W_Q^T of one head from GPT-2's c_attn, which is (in, out) in the order Q, K, V."""
    fused = weights[f"transformer.h.{layer}.attn.c_attn.weight"].double()
    W_Q, W_K = (fused[:, start + width * head : start + width * (head + 1)] for start in (0, 8))
    return W_K @ W_Q.T


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_accumulation_steps": 1, "max_grad_norm": 0.0},
        {"bf16": True},
        {"torch_compile": True, "torch_compile_backend": "eager"},
    ],
    ids=["accumulated", "unclipped", "bf16", "compiled"],
)
def test_records_are_those_of_the_weights_after_each_step(tmp_path, options):
    callback, weights = RankTrackerCallback(partial(RankTracker, schedule=AtSteps(2, 5))), Weights()
    trained = train(tmp_path, weights, callback, **options)
    tracker = callback.tracker
    assert tracker.steps == (2, 5, 7)  # the last one at the end of training
    assert len(weights.after) == 7
    start = fresh_gpt2(SIZES, seed=0).state_dict()
    for record, step in enumerate(tracker.steps):
        for layer in range(2):
            for head in range(2):
                update = dense_product(weights.after[step - 1], layer, head) - dense_product(start, layer, head)
                found = tracker.to_xarray().update_spectrum.sel(product="KQ").values[record, layer, head]
                np.testing.assert_allclose(found, torch.linalg.svdvals(update), rtol=1e-4, atol=1e-8)
    assert all(parameter.dtype == torch.float32 for parameter in trained.parameters())


def test_a_killed_run_goes_on_to_the_same_result_which_is_that_without(tmp_path):
    make = partial(RankTracker, schedule=Every(2), matrices="*.mlp.*")
    options = {"save_strategy": "steps", "save_steps": 2}
    through = RankTrackerCallback(make)
    expected = train(tmp_path / "through", through, **options).state_dict()
    plain = train(tmp_path / "plain").state_dict()
    assert all(torch.equal(expected[name], plain[name]) for name in plain)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", RankTrackerCallback(make), Weights(die_after=5), **options)
    (tmp_path / "killed" / "checkpoint-6").mkdir()  # what a kill in the middle of saving leaves
    last = last_checkpoint(tmp_path / "killed")
    assert last == tmp_path / "killed" / "checkpoint-4"
    resumed = RankTrackerCallback(make)
    found = train(tmp_path / "killed", resumed, resume=str(last), **options).state_dict()

    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert resumed.tracker.steps == through.tracker.steps == (2, 4, 6, 7)
    one, other = (callback.tracker.to_xarray() for callback in (through, resumed))
    assert one.identical(other)


def test_the_best_model_is_not_taken_for_the_last(tmp_path):
    """Check the order: the Trainer loads the best weights before the end of training is signalled."""
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
    often = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    callback, weights = RankTrackerCallback(partial(RankTracker, schedule=AtSteps(1))), Weights()
    trained = train(tmp_path, weights, callback, **best, **often).state_dict()
    name = "transformer.h.0.attn.c_attn.weight"
    assert torch.equal(trained[name], weights.after[1][name])  # of step 2, with the greatest loss
    assert callback.tracker.steps == (1, 7)
    update = dense_product(weights.after[6], 0, 0) - dense_product(fresh_gpt2(SIZES, seed=0).state_dict(), 0, 0)
    found = callback.tracker.to_xarray().update_spectrum.sel(product="KQ").values[1, 0, 0]
    np.testing.assert_allclose(found, torch.linalg.svdvals(update), rtol=1e-4, atol=1e-8)


def test_a_checkpoint_without_the_trackers_file_is_refused(tmp_path):
    train(tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    assert last_checkpoint(tmp_path) is None
    with pytest.raises(InputError, match=f"The checkpoint of step 2 must hold the tracker's file {TRACKER_FILE}"):
        train(tmp_path, RankTrackerCallback(), resume=str(tmp_path / "checkpoint-2"))


def test_checkpoints_share_one_file_of_initial_weights(tmp_path):
    train(tmp_path, RankTrackerCallback(), max_steps=4, save_strategy="steps", save_steps=1)
    (file,) = tmp_path.glob("saddlescope-initial-*.safetensors")
    states = [read_state(folder / TRACKER_FILE) for folder in tmp_path.glob("checkpoint-*")]
    assert len(states) == 4
    assert all(state["weights"] == {} and state["digest"][:16] in file.name for state in states)
    file.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=rf"must be in {file.name}; got no such file in {tmp_path}. Copy it there"):
        train(tmp_path, RankTrackerCallback(), resume=str(last_checkpoint(tmp_path)), max_steps=5)
    content = bytearray((tmp_path / "elsewhere").read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="must hold the initial weights that its name promises; got others"):
        train(tmp_path, RankTrackerCallback(), resume=str(last_checkpoint(tmp_path)), max_steps=5)


@pytest.mark.slow
def test_two_processes(tmp_path):
    """Check that under DDP the first process measures, logs and writes the tracker's file."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program = [sys.executable, str(Path(__file__).parents[1] / "distributed_trainer.py"), str(tmp_path), port]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"rank-{k}.pt") for k in (0, 1))
    assert first["processes"] == 2
    assert all(torch.equal(first["weights"][name], second["weights"][name]) for name in first["weights"])
    assert (first["logged"], second["logged"]) == ([2, 4], [])
    assert last_checkpoint(tmp_path / "run") == tmp_path / "run" / "checkpoint-4"
    model = fresh_gpt2(GPT2Sizes(vocabulary=17, block=6, embedding=8, depth=1, heads=2), seed=0)
    tracker = RankTracker(model)
    model.load_state_dict(first["weights"])
    tracker.measure()
    np.testing.assert_array_equal(first["update"][-1].numpy(), tracker.records.products.update.values[0])


def test_scalars_go_where_the_trainer_reports_to(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))

    def run(folder, *, track):
        trainer = make_trainer(tmp_path / folder, max_steps=6, logging_steps=2, report_to=["tensorboard"])
        callback = RankTrackerCallback(
            partial(RankTracker, schedule=AtSteps(2, 3)),
            scalars=RankScalars(to_trainer(trainer), groups=1, statistics=("mean",)),
        )
        if track:
            trainer.add_callback(callback)
        trainer.train()
        return trainer, callback

    trainer, callback = run("tracked", track=True)
    events = EventAccumulator(str(tmp_path / "logs")).Reload()
    name = "train/saddlescope/stable_rank/KQ/layers-0-1/mean"
    found = [(event.step, event.value) for event in events.Scalars(name)]
    assert [step for step, _ in found] == [2, 3, 6]
    expected = callback.tracker.stable_rank("KQ").mean(axis=(1, 2))
    np.testing.assert_allclose([value for _, value in found], expected, rtol=1e-6)  # float32
    assert [event.step for event in events.Scalars("train/loss")] == [2, 4, 6]  # also where both are due
    plain, _ = run("plain", track=False)
    losses = [[entry["loss"] for entry in one.state.log_history if "loss" in entry] for one in (trainer, plain)]
    assert losses[0] == losses[1]
