"""Callback in real runs of Lightning: records are of its optimiser's steps, and tracking changes no run."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from small_vit import SMALL, dense
from torch.nn import functional
from torch.utils.data import DataLoader

from saddlescope._shared.errors import InputError
from saddlescope.train import AtSteps, Every, RankScalars, RankTracker, ViT

with warnings.catch_warnings():  # deprecations of its own dependencies, as it is imported
    warnings.simplefilter("ignore")
    import lightning.pytorch as pl

    from saddlescope.train.tracker.lightning import RankTrackerCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning"),
]


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = ViT(SMALL, seed=1)
        self.after = []

    def training_step(self, batch, index):
        images, labels = batch
        return functional.cross_entropy(self.network(images), labels)

    def on_train_batch_end(self, *ignored):
        self.after.append((self.trainer.global_step, copy.deepcopy(self.network)))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Stop(pl.Callback):
    def on_train_batch_end(self, trainer, *ignored):
        if trainer.global_step == 5:
            raise RuntimeError("killed")


def batches():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(24, 1, 8, 8, generator=generator)
    return DataLoader(list(zip(images, torch.arange(24) % 3, strict=True)), batch_size=4)


def saving(folder):
    return pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=3, save_last=True)


def fit(*callbacks, resume=None, **options):
    module = Classifier()
    usual = {
        "accumulate_grad_batches": 2,
        "max_steps": 7,
        "log_every_n_steps": 1,
        "logger": False,
        "enable_checkpointing": False,
    }
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **quiet, **usual | options)
    trainer.fit(module, batches(), ckpt_path=resume, weights_only=True)
    return module


@pytest.mark.parametrize("options", [{}, {"precision": "bf16-mixed"}], ids=["float32", "bf16"])
def test_records_are_those_of_the_weights_after_each_step(options):
    callback = RankTrackerCallback(partial(RankTracker, schedule=AtSteps(2, 5)))
    module = fit(callback, **options)
    assert len(module.after) == 14  # two batches a step
    after, start, tracker = dict(module.after), ViT(SMALL, seed=1), callback.tracker
    assert tracker.steps == (2, 5, 7)
    for record, step in enumerate(tracker.steps):
        for layer in range(2):
            for head in range(3):
                updates = dense(start, after[step], layer, head, width=2)
                for product, expected in zip(("KQ", "VO"), updates, strict=True):
                    found = tracker.records.spectra(product)[record, layer, head]
                    np.testing.assert_allclose(found, expected[:4], rtol=1e-4, atol=1e-7)


def test_training_is_the_same_to_the_bit_with_and_without():
    tracked = fit(RankTrackerCallback(partial(RankTracker, schedule=Every(1)))).network.state_dict()
    plain = fit().network.state_dict()
    assert all(torch.equal(tracked[name], plain[name]) for name in plain)


def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    make = partial(RankTracker, schedule=Every(2), matrices="*.expand")
    through = RankTrackerCallback(make)
    expected = fit(through).network.state_dict()

    with pytest.raises(RuntimeError, match="killed"):
        fit(RankTrackerCallback(make), Stop(), saving(tmp_path), enable_checkpointing=True)
    resumed = RankTrackerCallback(make)
    again = {"resume": tmp_path / "last.ckpt", "enable_checkpointing": True}
    found = fit(resumed, saving(tmp_path), **again).network.state_dict()

    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert resumed.tracker.steps == through.tracker.steps == (2, 4, 6, 7)
    assert resumed.tracker.to_xarray().identical(through.tracker.to_xarray())


def test_a_checkpoint_without_the_trackers_state_is_refused(tmp_path):
    fit(saving(tmp_path), enable_checkpointing=True, max_steps=3)
    again = {"resume": tmp_path / "last.ckpt", "enable_checkpointing": True}
    with pytest.raises(InputError, match="The checkpoint of step 3 must hold the tracker's state"):
        fit(RankTrackerCallback(), saving(tmp_path), **again)


def test_scalars_go_to_lightnings_loggers(tmp_path):
    logger = pl.loggers.CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    scalars = RankScalars(logger.log_metrics, groups=1, statistics=("mean",))
    callback = RankTrackerCallback(partial(RankTracker, schedule=AtSteps(2)), scalars=scalars)
    fit(callback, logger=logger)
    table = np.genfromtxt(next(tmp_path.rglob("metrics.csv")), delimiter=",", names=True, deletechars="")
    assert table["step"].tolist() == [2, 7]
    expected = callback.tracker.stable_rank("VO").mean(axis=(1, 2))
    np.testing.assert_allclose(table["stable_rank/VO/layers-0-1/mean"], expected)
