"""Program of two processes that train one model under DeepSpeed's ZeRO stage 3: results go to FOLDER.

usage: deepspeed_run.py FOLDER
"""

import os
import socket
import sys
from pathlib import Path

import deepspeed
import torch
import torch.multiprocessing as processes
from distributed_run import STEPS, fresh
from torch.nn import functional

from saddlescope.ranks import Every, RankTracker

CONFIG = {
    "train_micro_batch_size_per_gpu": 5,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}


def train(rank: int, tracked: bool) -> dict:
    model = fresh()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    assert all(parameter.numel() == 0 for parameter in model.blocks.parameters())
    tracker = RankTracker(engine.module, schedule=Every(2), matrices="*.expand.weight") if tracked else None
    assert all(parameter.numel() == 0 for parameter in model.blocks.parameters())
    generator, weights = torch.Generator().manual_seed(rank), []
    for _ in range(STEPS):
        images, labels = torch.randn(5, 1, 4, 4, generator=generator), torch.randint(3, (5,), generator=generator)
        engine.backward(functional.cross_entropy(engine(images), labels))
        engine.step()
        if tracker is not None:
            tracker.step()
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            weights.append({name: tensor.detach().clone() for name, tensor in model.named_parameters()})
    results: dict = {"weights": weights}
    if tracker is not None:
        records = tracker.to_xarray()
        results["records"] = {name: torch.from_numpy(array.values.copy()) for name, array in records.data_vars.items()}
        results["kept"] = list(tracker._initial.names)
    return results


def run(rank: int, folder: Path, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    deepspeed.init_distributed(dist_backend="gloo")
    for kind, tracked in (("tracked", True), ("plain", False)):
        torch.save(train(rank, tracked), folder / f"{kind}-{rank}.pt")


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.start_processes(run, args=(Path(sys.argv[1]), port), nprocs=2, start_method="spawn")
