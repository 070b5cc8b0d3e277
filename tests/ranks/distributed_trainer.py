"""Program of two processes under one transformers.Trainer: each writes its weights, the first its records, to FOLDER.

usage: distributed_trainer.py FOLDER PORT
"""

import os
import sys
from functools import partial
from pathlib import Path

import torch
import torch.multiprocessing as processes
from transformers import TrainingArguments
from transformers.trainer import Trainer

from saddlescope.ranks import Every, RankScalars, RankTracker
from saddlescope.ranks.tracker.hugging_face import RankTrackerCallback
from saddlescope.training.architectures.gpt2 import GPT2Sizes, fresh_gpt2


def run(rank: int, folder: Path, port: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    model = fresh_gpt2(GPT2Sizes(vocabulary=17, block=6, embedding=8, depth=1, heads=2), seed=0)
    rows = torch.randint(0, 17, (16, 6), generator=torch.Generator().manual_seed(0))
    arguments = TrainingArguments(
        str(folder / "run"),
        max_steps=4,
        save_steps=4,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    logged: list[int] = []
    scalars = RankScalars(lambda _, step: logged.append(step))
    callback = RankTrackerCallback(partial(RankTracker, schedule=Every(2)), scalars=scalars)
    texts = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model, arguments, train_dataset=texts, callbacks=[callback])
    trainer.train()
    results = {"processes": trainer.args.world_size, "weights": model.state_dict(), "logged": logged}
    if rank == 0:
        results["update"] = torch.from_numpy(callback.tracker.records.products.update.values)
    torch.save(results, folder / f"rank-{rank}.pt")


if __name__ == "__main__":
    processes.start_processes(run, args=(Path(sys.argv[1]), sys.argv[2]), nprocs=2, start_method="fork")
