"""Small training run as a separate program, for tests that kill it: resumes from FOLDER and stores its result there.

usage: training_program.py KIND FOLDER     KIND is fit, diffusion or language; progress goes to standard error
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

_PAUSE = 0.01  # seconds per report, so that a kill can occur between two


def print_progress(fraction: float, note: str) -> None:
    sys.stderr.write(f"{fraction:.3f} {note}\n")
    sys.stderr.flush()
    time.sleep(_PAUSE)


def fit(folder: Path) -> dict[str, Any]:
    """Train a vision transformer on the embedded digits, and record the spectra of its updates."""
    from saddlescope.ranks import Every, RankTracker
    from saddlescope.training import Adam, TrainConfig, ViT, ViTConfig, load
    from saddlescope.training import fit as train

    sizes = ViTConfig(image_size=8, channels=1, patch=4, embedding=16, depth=1, heads=2, head_width=4, mlp_width=8)
    model = ViT(sizes)
    tracker = RankTracker(model, schedule=Every(3))
    config = TrainConfig(optimizer=Adam(learning_rate=3e-3), epochs=10, warmup_epochs=1, batch=32, test_every=5)
    data = load("digits").subset(100, 30)
    history = train(
        model,
        data,
        config,
        checkpoint=folder / "run.checkpoint",
        checkpoint_every=1,
        tracker=tracker,
        report=print_progress,
    )
    spectra = tracker.records.update
    return {"loss": history.train_loss, "steps": tracker.records.steps, "spectra": spectra} | _weights(model)


def diffusion(folder: Path) -> dict[str, Any]:
    """Train a diffusion model of coloured circles."""
    from saddlescope.training.diffusion import CircleProcess, DiffusionConfig, UNetConfig, fit_diffusion

    process = CircleProcess(pixels=8, color_signal=0.7, size_signal=0.35, diameter=0.625)
    config = DiffusionConfig(
        steps=20,
        batch=4,
        images=10,
        average=0.5,
        record_ratio=1.2,
        first_record=2,
        record_images=2,
        sampling_steps=2,
        threads=1,
    )
    history = fit_diffusion(
        process,
        UNetConfig(pixels=8, channels=(8,), blocks=1, dropout=0.1),
        config,
        checkpoint=folder / "run.checkpoint",
        checkpoint_every=1,
        report=print_progress,
    )
    return {"loss": history.loss, "images": history.images, "steps": history.steps} | _weights(history.model)


def language(folder: Path) -> dict[str, Any]:
    """Train a GPT-2 on the start of Python's help texts."""
    from saddlescope.training.architectures.gpt2 import GPT2Sizes, fresh_gpt2
    from saddlescope.training.data.text import TextData, learn_vocabulary, load_text, tokenize
    from saddlescope.training.language_training import LanguageConfig, fit_language

    corpus = load_text("python-topics")
    text = TextData(corpus.name, corpus.train[:2], ("".join(corpus.test),)).first(5000, 1500)
    data = tokenize(text, learn_vocabulary(text, 300), block=16)
    model = fresh_gpt2(GPT2Sizes(vocabulary=300, block=16, embedding=16, depth=1, heads=2), seed=0)
    config = LanguageConfig(steps=24, batch=4, test_every=2, tests_per_checkpoint=1)
    history = fit_language(model, data, config, checkpoint=folder / "kept", report=print_progress)
    return {"loss": history.train_loss, "test": history.test_loss} | _weights(model)


def _weights(model: torch.nn.Module) -> dict[str, Any]:
    return {f"weight {name}": tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()}


KINDS: dict[str, Callable[[Path], dict[str, Any]]] = {"fit": fit, "diffusion": diffusion, "language": language}

if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, where = sys.argv[1], Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    made = KINDS[kind](where)
    part = where / "part.npz"
    np.savez(part, **made)
    part.replace(where / "result.npz")
