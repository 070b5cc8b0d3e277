"""Figure 4's network at the paper's size, for as many epochs as a few minutes of a GPU carry; one seed.

    python scripts/gpu_figure_4.py train --data DIR --out OUT      on the machine with the GPU
    python scripts/gpu_figure_4.py join OUT figure-4.nc            anywhere, also after a run that was cut off

The speed is measured first, and the schedule of the learning rate is that of the epochs that fit; `plan.json` has both.
Each epoch stores the new records, `records-*.nc`, so that those of a run that is cut off are kept, and each minute a
checkpoint is written, from which the same command resumes. All files but the checkpoint are smaller than 16 MiB.

CIFAR-10 may be transferred as its official files compressed by xz, two at a time (45 MB); their MD5 is verified.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.shared.vit_training import (
    Training,
    even_records,
    network_config,
    read_training_images,
    training_config,
)
from saddlescope.ranks import RankTracker
from saddlescope.reproduction import RunContext, find_entry
from saddlescope.training import ImageData, ViT, fit
from saddlescope.training.image_training import ImageRun
from saddlescope.training.torch_settings import reproducible

SPARED = 0.9  # of the time left, for the epochs: records and checkpoints take the rest


def seconds_per_step(params: Training, data: ImageData, seconds: float) -> float:
    """Train a network that is thrown away for so many seconds, after compilation, and return the time of a step."""
    config = training_config(params, 0)
    model = ViT(network_config(params, data, 1.0)).to(params.device)
    with reproducible(0, config.threads, next(model.parameters()).device, config.precision):
        run = ImageRun(model, data, config, None, None)
        for _ in range(3):
            run.advance()
        run.check_losses()  # waits for the device
        began, steps = time.monotonic(), 0
        while time.monotonic() - began < seconds and not run.ended:
            run.advance()
            run.check_losses()
            steps += 1
    return (time.monotonic() - began) / steps


def train(given: argparse.Namespace) -> None:
    """Measure, plan and train."""
    began = time.monotonic()
    entry = find_entry("gradual-rank/figure-4")
    settings = {"seeds": str(given.seed), "precision": "tf32"} | dict(one.split("=", 1) for one in given.set)
    params = entry.configure(given.size, settings)
    given.out.mkdir(parents=True, exist_ok=True)
    data = read_training_images(params, RunContext(given.out, data=given.data))
    per_epoch = len(data.train_images) // params.batch
    planned = given.out / "plan.json"
    if planned.exists():
        plan = json.loads(planned.read_text())
    else:
        step = seconds_per_step(params, data, given.probe)
        left = 60 * given.minutes - (time.monotonic() - began)
        epochs = min(params.epochs, int(SPARED * left / (step * per_epoch)))
        if epochs < 2:
            raise InputError(f"minutes must carry at least 2 epochs; got {given.minutes}, at {step:.3g} s a step.")
        warmup = min(max(1, round(epochs * params.warmup_epochs / params.epochs)), epochs - 1)
        plan = {
            "epochs": epochs, "paper_epochs": params.epochs, "warmup_epochs": warmup, "steps_per_epoch": per_epoch,
            "seconds_per_step": step, "torch": torch.__version__, "device": _device(params.device),
        }  # fmt: skip
        store.write_bytes(json.dumps(plan, indent=1).encode(), planned)
    print(f"{plan['epochs']} of the paper's {plan['paper_epochs']} epochs, {plan['seconds_per_step']:.3g} s a step")
    settings |= {"epochs": str(plan["epochs"]), "warmup_epochs": str(plan["warmup_epochs"])}
    params = entry.configure(given.size, settings)
    model = ViT(network_config(params, data, 1.0), seed=given.seed).to(params.device)
    tracker = RankTracker(model, schedule=even_records(plan["epochs"] * per_epoch, given.records))

    def keep(fraction: float, note: str) -> None:
        keep_records(tracker.to_xarray(), given.out)
        print(f"{100 * fraction:.0f} % {note}, {time.monotonic() - began:.0f} s", flush=True)

    history = fit(
        model, data, training_config(params, given.seed),
        checkpoint=given.out / "checkpoint.pt", checkpoint_every=math.ceil(60 / plan["seconds_per_step"]),
        tracker=tracker, report=keep,
    )  # fmt: skip
    keep_records(tracker.to_xarray(), given.out)
    losses = history.train_loss.reshape(-1, per_epoch).mean(axis=1)
    accuracy = np.asarray(history.test_accuracy[1:])
    ends = xr.Dataset({"train_loss": ("epoch", losses), "test_accuracy": ("tested", accuracy)})
    store.write(ends.assign_coords(tested=history.test_steps[1:] / per_epoch), given.out / "training.nc")


def _device(name: str) -> str:
    return torch.cuda.get_device_name() if name == "cuda" else "processor"


def keep_records(records: xr.Dataset, out: Path) -> None:
    """Store the records that are not stored yet."""
    kept = max((int(file.stem.split("-")[1]) for file in out.glob("records-*.nc")), default=0)
    if records.sizes["step"] > kept:
        store.write(records.isel(step=slice(kept, None)), out / f"records-{records.sizes['step']:04}.nc")


def join(given: argparse.Namespace) -> None:
    """Join the records of a run, finished or not, into one stored file."""
    files = sorted(given.out.glob("records-*.nc"))
    if not files:
        raise InputError(f"OUT must have records-*.nc of a run; got {str(given.out)!r}.")
    parts = [store.read(file) for file in files]
    fixed = [name for name in parts[0].data_vars if "step" not in parts[0][name].dims]
    together = xr.concat([one.drop_vars(fixed) for one in parts], dim="step").merge(parts[0][fixed])
    if (ends := given.out / "training.nc").exists():
        together = together.merge(store.read(ends))
    plan = json.loads((given.out / "plan.json").read_text())
    store.write(together.assign_attrs(plan | {"finished": int(ends.exists())}), given.file)
    print(f"{together.sizes['step']} records to step {int(together.step[-1])} in {given.file}")


def main(arguments: list[str] | None = None) -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.set_defaults(command=train)
    training.add_argument("--data", type=Path, help="folder with cifar-10-batches-py")
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--minutes", type=float, default=8.0, help="time of the whole command")
    training.add_argument("--probe", type=float, default=20.0, help="seconds in which the speed is measured")
    training.add_argument("--records", type=int, default=100, help="evenly spaced records")
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--size", default="paper", help="another size of the entry, for a rehearsal")
    training.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    joining = commands.add_parser("join")
    joining.set_defaults(command=join)
    joining.add_argument("out", type=Path)
    joining.add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    try:
        given.command(given)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
