"""Program that repeatedly trains a tiny diffusion model and kills it by SIGKILL; separate, since it forks.

usage: killed_diffusion_run.py FILE     writes its checkpoint to FILE; fails unless some of the runs made progress
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from resumable_run import die_at
from tiny_diffusion import CONFIG, NETWORK, PROCESS

from saddlescope.training.diffusion import training

_MOMENTS = [(os, "fsync", 3), (Path, "replace", 3), (training.ClassSampler, "draw", 4), (torch, "save", 2), None, None]


def kill_again_and_again(path: Path) -> int:
    """Kill runs while writing, before the rename, at a record, at random moments; return the number with progress."""
    progressed = 0
    for moment in _MOMENTS:
        before = path.read_bytes() if path.exists() else b""
        child = os.fork()
        if child == 0:
            if moment is not None:
                die_at(*moment)
            training.fit_diffusion(PROCESS, NETWORK, CONFIG, checkpoint=path, checkpoint_every=1)
            os._exit(0)
        if moment is None:
            time.sleep(np.random.default_rng(len(before)).uniform(0.02, 0.1))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or moment is None
        progressed += path.exists() and path.read_bytes() != before
    return progressed


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert kill_again_and_again(Path(sys.argv[1])) >= 3
