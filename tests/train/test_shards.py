"""Models distributed over processes: measured as in one process, or an error in one sentence."""

import subprocess
import sys
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch
from distributed_run import STEPS, fresh
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.train import Every, RankTracker
from saddlescope.train.shards import full_tensor, is_sharded, require_readable


@pytest.fixture(scope="module")
def distributed(tmp_path_factory) -> Path:
    """Return the folder with the results of two processes that shared a model, one subfolder per method."""
    folder = tmp_path_factory.mktemp("distributed")
    program = [sys.executable, str(Path(__file__).parents[0] / "distributed_run.py"), str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def one_process(weights):
    """Return a tracker in one process whose model takes these weights step after step."""
    model = fresh()
    tracker = RankTracker(model, schedule=Every(2), matrices="*.expand.weight")
    for after in weights:
        model.load_state_dict(after)
        tracker.step()
    return tracker


@pytest.mark.parametrize(("way", "measuring"), [("ddp", (0,)), ("fsdp2", (0, 1))])
def test_two_processes_measure_what_one_would(distributed, way, measuring):
    folder = distributed / way
    tracked, plain = ([torch.load(folder / f"{kind}-{k}.pt") for k in (0, 1)] for kind in ("tracked", "plain"))
    for k in (0, 1):
        assert len(tracked[k]["weights"]) == STEPS
        for ours, theirs, rank_0 in zip(tracked[k]["weights"], plain[k]["weights"], plain[0]["weights"], strict=True):
            assert all(torch.equal(ours[name], theirs[name]) for name in theirs)  # training did not notice
            assert all(torch.equal(theirs[name], rank_0[name]) for name in theirs)  # one model
        assert ("records" in tracked[k]) == (k in measuring)
    expected = one_process(plain[0]["weights"])
    assert expected.steps == (2, 4)
    for k in measuring:
        assert tracked[k]["names"] == [*expected.layers, *expected.matrices]
        for name, array in expected.to_xarray().data_vars.items():
            np.testing.assert_array_equal(tracked[k]["records"][name].numpy(), array.values, err_msg=str(name))
    assert expected.records.products.update.measurable.all()


def test_flat_parameters_of_fsdp1_are_refused(distributed):
    for k in (0, 1):
        message = (distributed / "fsdp1" / f"refused-{k}").read_text()
        assert message.startswith("weights must be full matrices or DTensors; got pieces of a flat parameter of FSDP1")
        assert "fully_shard" in message


class ZeroStatus(Enum):
    """DeepSpeed's ZeroParamStatus."""

    AVAILABLE = 1
    NOT_AVAILABLE = 2


def partitioned(model, status):
    """Partition parameters as ZeRO stage 3 does: empty, with their shapes and status as attributes."""
    for parameter in model.parameters():
        parameter.ds_shape, parameter.ds_status = parameter.shape, status
        if status is ZeroStatus.NOT_AVAILABLE:
            parameter.data = torch.empty(0)
    return model


def test_partitions_of_zero_stage_3_are_refused():
    with pytest.raises(InputError, match=r"ZeRO stage 3 has partitioned \(NOT_AVAILABLE\). Measure within deepspeed"):
        RankTracker(partitioned(fresh(), ZeroStatus.NOT_AVAILABLE))
    RankTracker(partitioned(fresh(), ZeroStatus.AVAILABLE)).measure()  # gathered by GatheredParameters


def test_weights_without_values_are_refused():
    with torch.device("meta"):
        model = nn.MultiheadAttention(4, 2)
    with pytest.raises(InputError, match=r"got a tensor of shape \(12, 4\) on the meta device"):
        require_readable(model)


def test_ordinary_weights_are_given_back_detached():
    weight = nn.Parameter(torch.ones(2, 3))
    assert full_tensor(weight).data_ptr() == weight.data_ptr()
    assert not full_tensor(weight).requires_grad
    assert not is_sharded(weight)
    assert not is_sharded(nn.Linear(2, 3))
