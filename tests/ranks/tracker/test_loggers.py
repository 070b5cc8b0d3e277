"""Scalars: few, equal to the records, and readable by the loggers' own readers."""

import json
import struct
import warnings

import pytest
from small_vit import step_at_random
from torch import nn

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import AtSteps, Every, RankScalars, RankTracker, to_tensorboard, to_wandb
from saddlescope.training import ViT, ViTConfig

SIZES = ViTConfig(
    image_size=4, channels=1, patch=2, embedding=8, depth=5, heads=3, head_width=2, mlp_width=6, classes=3
)


def written(tracker, **options):
    """Return (step, scalars) of each record of a tracker."""
    found = []
    RankScalars(lambda scalars, step: found.append((step, scalars)), **options)(tracker)
    return found


@pytest.fixture
def tracker():
    model = ViT(SIZES, seed=1)
    tracker = RankTracker(model, schedule=AtSteps(1, 3), matrices="*.expand")
    for k in range(3):
        step_at_random(model, seed=k)
        tracker.step()
    return tracker


def test_statistics_over_heads_of_groups_of_layers(tracker):
    ranks = tracker.stable_rank("VO")  # records, 5 layers, heads
    (first, one), (last, other) = written(tracker, groups=2)
    assert (first, last) == (1, 3)
    for record, scalars in enumerate((one, other)):
        assert scalars["stable_rank/VO/layers-0-2/mean"] == pytest.approx(ranks[record, :3].mean())
        assert scalars["stable_rank/VO/layers-0-2/min"] == pytest.approx(ranks[record, :3].min())
        assert scalars["stable_rank/VO/layers-3-4/max"] == pytest.approx(ranks[record, 3:].max())
        matrices = tracker.records.matrices.update.stable_rank[record]
        assert scalars["stable_rank/matrices/all/mean"] == pytest.approx(matrices.mean())
        assert len(scalars) == 2 * 2 * 3 + 3


def test_filters(tracker):
    ((_, scalars), _) = written(
        tracker,
        layers="blocks.[13].*",
        groups=5,
        metrics=("update_norm", "measurable"),
        statistics=("mean",),
        matrices=("*.0.*", "*.1.expand"),
    )
    assert set(scalars) == {
        f"{metric}/{group}/mean"
        for metric in ("update_norm", "measurable")
        for group in ("KQ/layer-1", "KQ/layer-3", "VO/layer-1", "VO/layer-3", "matrices/0", "matrices/1.expand")
    }
    norms = tracker.records.products.update.norm[0, 1, :, 0]
    assert scalars["update_norm/KQ/layer-1/mean"] == pytest.approx(norms.mean())
    assert scalars["measurable/VO/layer-3/mean"] == 1.0


def test_what_is_not_measurable_has_no_rank():
    model = ViT(SIZES, seed=1)
    tracker = RankTracker(model, schedule=Every(1))
    step_at_random(nn.ModuleList([model.blocks[1].attention.value, model.blocks[1].attention.output]))
    tracker.step()
    ((_, scalars),) = written(tracker, groups=5, metrics=("stable_rank", "measurable"), statistics=("min", "max"))
    assert not any(name.startswith("stable_rank/KQ/layer-0") for name in scalars)
    assert not any(name.startswith("stable_rank/KQ/layer-1") for name in scalars)
    assert scalars["stable_rank/VO/layer-1/min"] >= 1
    assert scalars["measurable/KQ/layer-1/max"] == 0.0
    assert scalars["measurable/VO/layer-1/min"] == 1.0


def test_each_record_is_written_once():
    model, steps = ViT(SIZES, seed=1), []
    tracker = RankTracker(model, schedule=Every(2))
    scalars = RankScalars(lambda scalars, step: steps.append(step))
    for k in range(5):
        step_at_random(model, seed=k)
        tracker.step()
        scalars(tracker)
    assert steps == [2, 4]
    scalars.skip(up_to=5)
    tracker.measure()
    scalars(tracker)
    assert steps == [2, 4]


def test_tensorboard(tracker, tmp_path):
    with warnings.catch_warnings():  # deprecations of its own dependencies
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import SummaryWriter
    with SummaryWriter(str(tmp_path)) as writer:
        RankScalars(to_tensorboard(writer))(tracker)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    expected = dict(written(tracker))
    names = events.Tags()["scalars"]
    assert set(names) == {f"saddlescope/{name}" for name in expected[1]}
    for name in names:
        found = {event.step: event.value for event in events.Scalars(name)}
        own = name.removeprefix("saddlescope/")
        assert found == pytest.approx({step: scalars[own] for step, scalars in expected.items()}, rel=1e-6)


def rows_on_disk(folder):
    """Return rows and axes of an offline run of Weights & Biases: protocol buffers in 32 KiB blocks (LevelDB)."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    content, at, rows, axes, parts = file.read_bytes(), 7, [], {}, b""
    while at + 7 <= len(content):
        if 2**15 - at % 2**15 < 7:  # the rest of a block is padding
            at += 2**15 - at % 2**15
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind not in (1, 4):  # the record goes on in the next block
            continue
        record, parts = Record.FromString(parts), b""
        if record.HasField("history"):
            rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item})
        elif record.HasField("metric"):
            axes[record.metric.name or record.metric.glob_name] = record.metric.step_metric
    return rows, axes


def test_wandb(tracker, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    import wandb

    write = to_wandb()
    with pytest.raises(InputError, match=r"got none. Call wandb.init first"):
        RankScalars(write)(tracker)
    with wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(x_disable_stats=True)) as run:
        run.log({"loss": 2.0})  # steps of its own count, which is ahead of the tracker's or behind
        RankScalars(write)(tracker)
        run.log({"loss": 1.0})
    wandb.teardown()  # its service writes the file when it likes, and all of it before it ends
    rows, axes = rows_on_disk(tmp_path)
    assert axes["saddlescope/*"] == "saddlescope/step"
    assert [row["loss"] for row in rows if "loss" in row] == [2.0, 1.0]
    ours = [row for row in rows if "saddlescope/step" in row]
    for row, (step, scalars) in zip(ours, written(tracker), strict=True):
        found = {name: value for name, value in row.items() if name.startswith("saddlescope/")}
        expected = {f"saddlescope/{name}": value for name, value in scalars.items()}
        assert found == pytest.approx(expected | {"saddlescope/step": step})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ("stable_ranks",)}, "There is no metric 'stable_ranks'; did you mean stable_rank?"),
        ({"metrics": "stable_rank"}, "metric names must be one or more of .* in a tuple; got 'stable_rank'"),
        ({"statistics": ()}, "statistic names must be one or more of mean, min, max in a tuple"),
        ({"statistics": ("median",)}, "There is no statistic 'median'"),
        ({"groups": 0}, "groups must be at least 1; got 0"),
        ({"groups": 12}, "scalars must be at most 60, each being a panel; got 75"),
        ({"matrices": "*.mlp.*"}, "matrices must be patterns in a tuple"),
        ({"matrices": ("*.mlp", "mlp.*")}, "matrices must give groups of different names"),
    ],
)
def test_bad_input(options, message):
    refused(message, RankScalars, lambda scalars, step: None, **options)


def test_a_filter_that_matches_no_layer_is_reported(tracker):
    with pytest.raises(InputError, match=r"layers must match attention modules; got 'decoder.\*'. Known: \['bl"):
        written(tracker, layers="decoder.*")
