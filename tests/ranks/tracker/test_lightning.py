"""Callback in real runs of Lightning: records are of its optimiser's steps, and tracking changes no run."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from small_vit import SMALL, assert_record
from torch.nn import functional
from torch.utils.data import DataLoader

from saddlescope._shared.errors import InputError
from saddlescope.ranks import AtSteps, Every, RankScalars, RankTracker
from saddlescope.training import ViT

with warnings.catch_warnings():  # deprecations of its own dependencies, as it is imported
    warnings.simplefilter("ignore")
    import lightning.pytorch as pl

    from saddlescope.ranks.tracker.lightning import RankTrackerCallback

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


class Alternating(Classifier):
    """Two optimisers, stepped by hand; the second in every second batch."""

    def __init__(self, every=1):
        super().__init__()
        self.automatic_optimization, self.every = False, every

    def training_step(self, batch, index):
        images, labels = batch
        for number, optimizer in enumerate(self.optimizers()):
            if number == 0 or index % self.every == self.every - 1:
                optimizer.zero_grad()
                self.manual_backward(functional.cross_entropy(self.network(images), labels))
                optimizer.step()

    def configure_optimizers(self):
        named = dict(self.named_parameters())
        first = [named[name] for name in named if ".key." in name or ".query." in name]
        rest = [weight for weight in named.values() if all(weight is not one for one in first)]
        return torch.optim.SGD(first, lr=0.1), torch.optim.Adam(rest, lr=1e-2)


class Stop(pl.Callback):
    def __init__(self, batches):
        self.batches = batches

    def on_train_batch_end(self, trainer, *ignored):
        if trainer.fit_loop.epoch_loop.total_batch_idx + 1 == self.batches:
            raise RuntimeError("killed")


def batches():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(24, 1, 8, 8, generator=generator)
    return DataLoader(list(zip(images, torch.arange(24) % 3, strict=True)), batch_size=4)


def saving(folder, every=3):
    return pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=every, save_last=True)


def fit(*callbacks, resume=None, module=None, **options):
    module = module or Classifier()
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
    assert callback.tracker.steps == (2, 5, 7)
    for record, step in enumerate(callback.tracker.steps):
        assert_record(callback.tracker, record, dict(module.after)[step])


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization:UserWarning")
@pytest.mark.parametrize(
    ("module", "options", "stop", "saved", "steps"),
    [
        (Classifier, {}, 10, 3, (2, 4, 6, 7)),
        (Alternating, {"accumulate_grad_batches": 1, "max_steps": 18}, 8, 12, (2, 4, 6, 8, 9)),
    ],
    ids=["one optimizer", "two optimizers"],
)
def test_a_killed_run_goes_on_to_the_same_result_which_is_that_without(module, options, stop, saved, steps, tmp_path):
    make = partial(RankTracker, schedule=Every(2), matrices="*.expand")
    through, resumed = RankTrackerCallback(make), RankTrackerCallback(make)

    def run(*callbacks, **more):
        return fit(*callbacks, module=module(), **options | more).network.state_dict()

    expected, plain = run(through), run()
    assert all(torch.equal(expected[name], plain[name]) for name in plain)
    with pytest.raises(RuntimeError, match="killed"):
        run(RankTrackerCallback(make), Stop(stop), saving(tmp_path, saved), enable_checkpointing=True)
    found = run(resumed, saving(tmp_path, saved), resume=tmp_path / "last.ckpt", enable_checkpointing=True)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert resumed.tracker.steps == through.tracker.steps == steps
    assert resumed.tracker.to_xarray().identical(through.tracker.to_xarray())


@pytest.mark.parametrize("every", [1, 2])
def test_a_batch_of_two_optimizers_is_one_step(every):
    callback = RankTrackerCallback(partial(RankTracker, schedule=Every(1)))
    by_hand = {"module": Alternating(every), "accumulate_grad_batches": 1, "max_steps": 6, "log_every_n_steps": 1}
    module = fit(callback, **by_hand)
    batches = {1: 3, 2: 4}[every]  # Lightning counts 6 steps of both optimisers, in this many batches
    assert callback.tracker.steps == tuple(range(1, batches + 1))
    assert len(module.after) == batches
    for record, (_, weights) in enumerate(module.after):
        assert_record(callback.tracker, record, weights)


def test_lightnings_own_optimizers_can_be_watched():
    class Watching(Alternating):
        def on_train_start(self):
            self.tracker = RankTracker(self.network, schedule=Every(1)).watch(*self.optimizers())

    module = fit(module=Watching(), accumulate_grad_batches=1, max_steps=4)
    assert module.tracker.steps == (1, 2)


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
