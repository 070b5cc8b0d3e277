"""Program of two processes that train one model, for tests: the results of each method go to a folder of its name.

usage: distributed_run.py FOLDER
"""

import copy
import sys
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.multiprocessing as processes
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn import functional

from saddlescope._shared.errors import InputError
from saddlescope.train import Every, RankTracker, ViT, ViTConfig
from saddlescope.train.shards import is_sharded

SIZES = ViTConfig(
    image_size=4, channels=1, patch=2, embedding=6, depth=2, heads=3, head_width=3, mlp_width=5, classes=3
)
STEPS = 4


def fresh() -> ViT:
    return ViT(SIZES, seed=1)


def shared(way: str) -> nn.Module:
    """Return a freshly built model, shared between the processes."""
    model = fresh()
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if way == "fsdp1":
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    mesh = init_device_mesh("cpu", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def full_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return all weights of a model, gathered by PyTorch."""
    state = copy.deepcopy(model.state_dict())
    whole = {name: getattr(tensor, "full_tensor", lambda tensor=tensor: tensor)() for name, tensor in state.items()}
    return {name.removeprefix("module."): tensor.detach() for name, tensor in whole.items()}


def train(way: str, rank: int, tracked: bool) -> dict:
    """Make a few steps, each process on its own images; return weights after each step, and the tracker's records."""
    model = shared(way)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    with ExitStack() as stack:
        measures = tracked and (rank == 0 or is_sharded(model))
        tracker = RankTracker(model, schedule=Every(2), matrices="*.expand.weight") if measures else None
        if tracker is not None:
            stack.enter_context(tracker.watch(optimizer))
        weights = []
        for _ in range(STEPS):
            images, labels = torch.randn(5, 1, 4, 4, generator=generator), torch.randint(3, (5,), generator=generator)
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            weights.append(full_weights(model))
    results = {"weights": weights}
    if tracker is not None:
        records = tracker.to_xarray()
        results["records"] = {name: torch.from_numpy(array.values.copy()) for name, array in records.data_vars.items()}
        results["names"] = [*tracker.layers, *tracker.matrices]
    return results


def run(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    for way in ("ddp", "fsdp2"):
        for kind, tracked in (("tracked", True), ("plain", False)):
            torch.save(train(way, rank, tracked), folder / way / f"{kind}-{rank}.pt")
    try:
        RankTracker(shared("fsdp1"))
    except InputError as error:
        (folder / "fsdp1" / f"refused-{rank}").write_text(str(error))
    distributed.destroy_process_group()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for name in ("ddp", "fsdp2", "fsdp1"):
        (place / name).mkdir()
    processes.start_processes(run, args=(place,), nprocs=2, start_method="fork")  # forked: PyTorch is imported once
