"""Program of two processes that train one model, for tests: the results of each method go to a folder of its name.

usage: distributed_run.py FOLDER
"""

import copy
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.multiprocessing as processes
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn import functional

from saddlescope._shared.errors import InputError
from saddlescope.ranks import Every, RankTracker
from saddlescope.ranks.shards import is_sharded
from saddlescope.training import ViT, ViTConfig

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
    if way == "tp":
        names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and "blocks" in name]
        return parallelize_module(model, mesh, {name: ColwiseParallel(output_layouts=Replicate()) for name in names})
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def full_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return all weights of a model, gathered by PyTorch."""
    state = copy.deepcopy(model.state_dict())
    whole = {name: getattr(tensor, "full_tensor", lambda tensor=tensor: tensor)() for name, tensor in state.items()}
    return {name.removeprefix("module."): tensor.detach() for name, tensor in whole.items()}


class Counts:
    """Number of tensors gathered to one process, and to all, within this context."""

    def __init__(self):
        self.gathers = self.full = 0

    def __enter__(self):
        self.originals = distributed.gather, DTensor.full_tensor

        def gather(*arguments, **named):
            self.gathers += 1
            return self.originals[0](*arguments, **named)

        def full_tensor(*arguments, **named):
            self.full += 1
            return self.originals[1](*arguments, **named)

        distributed.gather, DTensor.full_tensor = gather, full_tensor

    def __exit__(self, *_):
        distributed.gather, DTensor.full_tensor = self.originals


def after_state(rank: int, folder: Path) -> list[torch.Tensor]:
    """Load the state of the first process in both, and return the spectra of the next record."""
    model = shared("fsdp2")
    tracker = RankTracker(model, schedule=Every(2), matrices="*.expand.weight")
    tracker.load_state_dict(torch.load(folder / "fsdp2" / "tracked-0.pt", weights_only=True)["state"])
    tracker.measure()
    tracker.step()
    tracker.measure()
    return [torch.from_numpy(tracker.records.products.update.values), torch.from_numpy(tracker.records.steps)]


def with_nan(rank: int) -> dict:
    """Put NaN into the shard of the second process, then let a measurement fail there."""
    model = shared("fsdp2")
    tracker = RankTracker(model, schedule=Every(1), matrices="*.expand.weight")
    with torch.no_grad():
        for parameter in model.blocks[1].parameters():
            parameter.mul_(1.5)
    if rank == 1:
        model.blocks[0].attention.value.weight.detach().to_local().fill_(torch.nan)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tracker.step()
    found = {
        "warnings": [str(one.message) for one in caught],
        "update": torch.from_numpy(tracker.records.products.update.values),
    }
    if rank == 1:
        tracker._single._measured = lambda *_: 1 / 0
    try:
        tracker.step()
    except (ZeroDivisionError, RuntimeError) as error:
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def train(way: str, rank: int, tracked: bool) -> dict:
    """Make a few steps, each process on its own images; return weights after each step, and the tracker's records."""
    model = shared(way)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=False)  # foreach refuses DTensors beside tensors
    generator = torch.Generator().manual_seed(0 if way == "tp" else rank)
    with ExitStack() as stack:
        measures = tracked and (rank == 0 or is_sharded(model))
        tracker = RankTracker(model, schedule=Every(2), matrices="*.expand.weight") if measures else None
        if tracker is not None:
            stack.enter_context(tracker.watch(optimizer))
        weights = []
        counts = Counts() if tracker is not None else None
        for _ in range(STEPS):
            images, labels = torch.randn(5, 1, 4, 4, generator=generator), torch.randint(3, (5,), generator=generator)
            functional.cross_entropy(model(images), labels).backward()
            with counts or ExitStack():
                optimizer.step()
            optimizer.zero_grad()
            weights.append(full_weights(model))
    results = {"weights": weights}
    if tracker is not None:
        records = tracker.to_xarray()
        results["records"] = {name: torch.from_numpy(array.values.copy()) for name, array in records.data_vars.items()}
        results["names"] = [*tracker.layers, *tracker.matrices]
        results["kept"] = list(tracker._initial.names)
        results["state"] = tracker.state_dict()
        results["gathers"] = [counts.gathers, counts.full]
    return results


def run(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    for way in ("ddp", "fsdp2", "tp"):
        for kind, tracked in (("tracked", True), ("plain", False)):
            torch.save(train(way, rank, tracked), folder / way / f"{kind}-{rank}.pt")
    distributed.barrier()
    torch.save(after_state(rank, folder), folder / "fsdp2" / f"resumed-{rank}.pt")
    torch.save(with_nan(rank), folder / "fsdp2" / f"nan-{rank}.pt")
    try:
        RankTracker(shared("fsdp1"))
    except InputError as error:
        (folder / "fsdp1" / f"refused-{rank}").write_text(str(error))
    distributed.destroy_process_group()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for name in ("ddp", "fsdp2", "tp", "fsdp1"):
        (place / name).mkdir()
    processes.start_processes(run, args=(place,), nprocs=2, start_method="fork")  # forked: PyTorch is imported once
