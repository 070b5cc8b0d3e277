"""Program of a small training run, for tests that kill it: resumes from FOLDER, and writes its results there.

usage: resumable_run.py FOLDER           run, or resume, to the end
       resumable_run.py FOLDER SEED      start it repeatedly and kill it by SIGKILL, finally at random moments
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from saddlescope.ranks import Every, RankTracker
from saddlescope.training import Adam, ImageData, TrainConfig, ViT, ViTConfig, fit, load


def run(folder: Path, data: ImageData) -> None:
    sizes = ViTConfig(image_size=8, channels=1, patch=4, embedding=24, depth=2, heads=2, head_width=4, mlp_width=16)
    model = ViT(sizes)
    tracker = RankTracker(model, schedule=Every(3))
    config = TrainConfig(optimizer=Adam(learning_rate=3e-3), epochs=16, warmup_epochs=1, batch=32, test_every=5)
    history = fit(model, data, config, checkpoint=folder / "run.checkpoint", checkpoint_every=1, tracker=tracker)
    records = tracker.records
    results = {
        "model": model.state_dict(),
        "history": [torch.as_tensor(value) for value in vars(history).values()],
        "records": [
            torch.from_numpy(part) for part in (records.steps, records.update, records.noise_floor, records.initial)
        ],
    }
    torch.save(results, folder / "results.pt")


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


def kill_again_and_again(folder: Path, data: ImageData, seed: int) -> int:
    """Kill runs during writing, just before the rename, and at random moments; return the number that made progress."""
    moments, progressed = random.Random(seed), 0
    worst = [(os, "fsync", 1), (os, "fsync", 7), (Path, "replace", 4), (torch, "save", 3)]
    for attempt in range(len(worst) + 8):
        before = (folder / "run.checkpoint").read_bytes() if (folder / "run.checkpoint").exists() else b""
        child = os.fork()
        if child == 0:
            if attempt < len(worst):
                die_at(*worst[attempt])
            run(folder, data)
            os._exit(0)
        if attempt >= len(worst):
            time.sleep(moments.uniform(0.02, 0.2))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or (folder / "results.pt").exists()
        if (folder / "results.pt").exists():
            break
        progressed += (folder / "run.checkpoint").exists() and (folder / "run.checkpoint").read_bytes() != before
    return progressed


if __name__ == "__main__":
    torch.set_num_threads(1)
    digits = load("digits").subset(160, 50)
    if len(sys.argv) == 2:
        run(Path(sys.argv[1]), digits)
    else:
        assert kill_again_and_again(Path(sys.argv[1]), digits, int(sys.argv[2])) >= 3
