"""Small runs of every kind of training that resumes, by name; each returns all that it found, but for times.

As a program, starts one again and again and kills it by SIGKILL; separate, since it forks.

usage: small_runs.py KIND FILE     writes the checkpoint to FILE; fails unless some of the runs made progress
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tiny_diffusion import CONFIG, NETWORK, PROCESS
from torch import Tensor, nn

from saddlescope._shared.progress import silent
from saddlescope.ranks import AtSteps, Every, RankTracker
from saddlescope.training import Adam, TrainConfig, ViT, ViTConfig, fit, load
from saddlescope.training.diffusion import training
from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.classifier import ClassifierConfig, ConceptClassifier, fit_classifier
from saddlescope.training.diffusion.unet import UNetConfig
from saddlescope.training.gradient_noise import accumulate_noise

SIZES = ViTConfig(image_size=8, channels=1, patch=4, embedding=16, depth=2, heads=2, head_width=4, mlp_width=16)
IMAGES = TrainConfig(optimizer=Adam(learning_rate=3e-3), epochs=4, warmup_epochs=1, batch=32)
NOISE = replace(IMAGES, optimizer=Adam(learning_rate=1e-2), batch=25, test_every=4)
CIRCLES = CircleProcess(pixels=8, diameter=0.6, size_signal=0.4, size_jitter=0.2, color_signal=0.7)
CONCEPTS = ClassifierConfig(channels=(8,), blocks=1, hidden=4, steps=9, batch=8, held_out=20, threads=1)
JUDGE = ConceptClassifier(UNetConfig(pixels=8, channels=(8,), blocks=1), hidden=4, seed=3).eval()


def image(
    checkpoint=None, every=None, report=silent, *, draw=0, weights=0, tracked=True, device="cpu", **changes
) -> list[Tensor]:
    """Train a ViT with a layer that draws random numbers, and track it."""
    model = nn.Sequential(ViT(SIZES, seed=weights), nn.Dropout(0.2)).to(device)
    tracker = RankTracker(model, schedule=Every(2)) if tracked else None
    data, config = load("digits").subset(100, 50, seed=draw), replace(IMAGES, **changes)
    how = {"checkpoint": checkpoint, "checkpoint_every": every, "report": report}
    history = fit(model, data, config, tracker=tracker, **how)
    found = [*model.state_dict().values(), *map(torch.as_tensor, vars(history).values())]
    if tracker is not None:
        records = tracker.records
        update, initial = records.products.update, records.products.initial
        found += map(torch.from_numpy, (records.steps, update.values, update.noise_floor, initial.values))
    return found


def language(checkpoint=None, every=None, report=silent, *, weights=0, tracked=True, start=0, **changes):
    """Train a GPT-2 with dropout and a layer that draws from Python and NumPy, and track it."""
    from tests.tiny_language import tiny_gpt2, tiny_tokens

    from saddlescope.training.language_training import LanguageConfig, fit_language

    model, data = tiny_gpt2(weights), tiny_tokens()
    model.transformer.drop.p = 0.2
    model.transformer.drop.register_forward_hook(
        lambda layer, _, output: output * (random.random() + np.random.rand()) if layer.training else output  # noqa: NPY002
    )
    tracker = RankTracker(model, schedule=Every(3)) if tracked else None
    config = replace(LanguageConfig(steps=11, batch=32, learning_rate=1e-2, test_every=2), **changes)
    how = {"checkpoint": checkpoint, "checkpoint_every": every, "report": report}
    history = fit_language(model, replace(data, train=data.train[start:]), config, tracker=tracker, **how)
    found = [*model.state_dict().values(), *map(torch.from_numpy, vars(history).values())]
    return found + ([] if tracker is None else [torch.from_numpy(tracker.records.products.update.values)])


def noise(checkpoint=None, every=None, report=silent, *, draws=3, **changes) -> list[Tensor]:
    """Accumulate gradient noise."""
    data, config = load("digits").subset(100), replace(NOISE, **changes)
    how = {"schedule": AtSteps(1, 3, 7), "checkpoint": checkpoint, "report": report}
    found = accumulate_noise(ViT(SIZES), data, config, draws=draws, seed=0, **how)
    return [torch.as_tensor(values.values) for values in found.data_vars.values()]


def classifier(checkpoint=None, every=None, report=silent, *, process=CIRCLES, device="cpu", **changes) -> list[Tensor]:
    """Train a classifier of concepts."""
    config = replace(CONCEPTS, **changes)
    fitted = fit_classifier(process, config, device=device, checkpoint=checkpoint, report=report)
    return [*fitted.classifier.state_dict().values(), torch.as_tensor(fitted.accuracy)]


def diffusion(
    checkpoint=None,
    every=None,
    report=silent,
    *,
    process=PROCESS,
    network=NETWORK,
    judge=JUDGE,
    device="cpu",
    **changes,
) -> list[Tensor]:
    """Train a diffusion model with dropout."""
    how = {"device": device, "checkpoint": checkpoint, "checkpoint_every": every, "report": report}
    fitted = training.fit_diffusion(process, network, replace(CONFIG, **changes), classifier=judge, **how)
    kept = fitted.records.drop_vars("unseen", errors="ignore")
    return [*fitted.model.state_dict().values(), *(torch.as_tensor(of.values) for of in kept.data_vars.values())]


RUNS: dict[str, Callable[..., list[Tensor]]] = {
    "image": image, "language": language, "noise": noise, "classifier": classifier, "diffusion": diffusion,
}  # fmt: skip


def die_at(owner: object, name: str, count: int) -> None:
    """Kill this process at the `count`-th call of a function."""
    original, calls = getattr(owner, name), 0

    def fatal(*arguments, **named):
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(owner, name, fatal)


def kill_again_and_again(run: Callable[..., list[Tensor]], path: Path) -> int:
    """Kill while writing, before the rename, at a record, at random moments; return how many runs made progress."""
    moments, progressed = random.Random(0), 0
    at_record = (training._DiffusionRun, "draw", 4) if run is diffusion else (RankTracker, "step", 3)
    worst = [(os, "fsync", 1), (os, "fsync", 3), (Path, "replace", 3), at_record, (torch, "save", 2), *[None] * 4]
    for moment in worst:
        before = path.read_bytes() if path.exists() else b""
        child = os.fork()
        if child == 0:
            if moment is not None:
                die_at(*moment)
            run(path, 1)
            os._exit(0)
        if moment is None:
            time.sleep(moments.uniform(0.02, 0.2))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or moment is None
        progressed += path.exists() and path.read_bytes() != before
    return progressed


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert kill_again_and_again(RUNS[sys.argv[1]], Path(sys.argv[2])) >= 3
