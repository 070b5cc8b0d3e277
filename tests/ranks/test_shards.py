"""Models distributed over processes: measured as in one process, or an error in one sentence."""

import importlib.util
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch
from distributed_run import STEPS, fresh
from torch import nn

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import Every, RankTracker
from saddlescope.ranks.shards import full_tensor, is_sharded, require_readable

KINDS = ("key", "query", "value", "output")


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


def require_one_run(tracked, plain, measuring=(0, 1)):
    """Compare two processes with and without trackers, and with a tracker in one process, which is returned."""
    for k in (0, 1):
        assert len(tracked[k]["weights"]) == STEPS
        for ours, theirs, rank_0 in zip(tracked[k]["weights"], plain[k]["weights"], plain[0]["weights"], strict=True):
            assert all(torch.equal(ours[name], theirs[name]) for name in theirs)  # training did not notice
            assert all(torch.equal(theirs[name], rank_0[name]) for name in theirs)  # one model
        assert ("records" in tracked[k]) == (k in measuring)
    expected = one_process(plain[0]["weights"])
    assert expected.steps == (2, 4)
    for k in measuring:
        for name, array in expected.to_xarray().data_vars.items():
            np.testing.assert_array_equal(tracked[k]["records"][name].numpy(), array.values, err_msg=str(name))
    assert expected.records.products.update.measurable.all()
    return expected


@pytest.mark.parametrize(("way", "measuring"), [("ddp", (0,)), ("fsdp2", (0, 1)), ("tp", (0, 1))])
def test_two_processes_measure_what_one_would(distributed, way, measuring):
    folder = distributed / way
    tracked, plain = ([torch.load(folder / f"{kind}-{k}.pt") for k in (0, 1)] for kind in ("tracked", "plain"))
    expected = require_one_run(tracked, plain, measuring)
    for k in measuring:
        assert tracked[k]["names"] == [*expected.layers, *expected.matrices]


@pytest.mark.parametrize("way", ["fsdp2", "tp"])
def test_each_layer_is_gathered_once_a_record_and_kept_by_one_process(distributed, way):
    first, second = (torch.load(distributed / way / f"tracked-{k}.pt") for k in (0, 1))
    records, matrices = 2, 2 * 4 + 2  # of two layers, and two of their MLPs
    for result in (first, second):
        assert result["gathers"] == [records * matrices, 0]
    assert first["kept"] == [*(f"blocks.0.attention.{name}.weight" for name in KINDS), "blocks.0.expand.weight"]
    assert second["kept"] == [*(f"blocks.1.attention.{name}.weight" for name in KINDS), "blocks.1.expand.weight"]
    assert set(second["state"]["weights"]) == set(second["kept"])
    complete = first["state"]["weights"]
    start = fresh().state_dict()
    assert set(complete) == {*first["kept"], *second["kept"]}
    assert all(torch.equal(tensor, start[name]) for name, tensor in complete.items())


def test_the_state_of_the_first_process_resumes_all(distributed):
    complete = torch.load(distributed / "fsdp2" / "tracked-0.pt")
    one = RankTracker(fresh(), schedule=Every(2), matrices="*.expand.weight")
    one.load_state_dict(complete["state"])  # also a model in one process
    one.step()
    one.measure()
    for k in (0, 1):
        update, steps = torch.load(distributed / "fsdp2" / f"resumed-{k}.pt")
        assert steps.tolist() == [2, 4, 5]
        np.testing.assert_array_equal(update, one.records.products.update.values)
        np.testing.assert_array_equal(update[:2], complete["records"]["update_spectrum"][..., : update.shape[-1]])


def test_what_one_process_finds_reaches_all(distributed):
    for k in (0, 1):
        found = torch.load(distributed / "fsdp2" / f"nan-{k}.pt")
        assert len(found["warnings"]) == 1
        assert "Records of blocks.0.attention are NaN" in found["warnings"][0]
        assert found["update"][0, 0, :, 1].isnan().all()  # VO of the first layer
        assert (found["update"][0, 1, :, :, 0] > 0).all()
        expected = ("RuntimeError: Process 1 of the model's 2 failed in a measurement: ", "")[k]
        assert found["error"] == f"{expected}ZeroDivisionError: division by zero"


def test_flat_parameters_of_fsdp1_are_refused(distributed):
    for k in (0, 1):
        message = (distributed / "fsdp1" / f"refused-{k}").read_text()
        assert message.startswith("weights must be full matrices or DTensors; got pieces of a flat parameter of FSDP1")
        assert "fully_shard" in message


@pytest.mark.slow
def test_partitions_of_zero_stage_3_are_gathered_by_deepspeed(tmp_path):
    """DeepSpeed compiles its communication by ninja; this takes a minute the first time."""
    if importlib.util.find_spec("deepspeed") is None:  # its import prints and warns
        pytest.skip("deepspeed absent")
    path = f"{pytest.importorskip('ninja').BIN_DIR}{os.pathsep}{os.environ['PATH']}"
    program = [sys.executable, str(Path(__file__).parent / "deepspeed_run.py"), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, env=os.environ | {"PATH": path})
    assert done.returncode == 0, done.stderr
    tracked, plain = ([torch.load(tmp_path / f"{kind}-{k}.pt") for k in (0, 1)] for kind in ("tracked", "plain"))
    require_one_run(tracked, plain)
    assert tracked[0]["kept"] != tracked[1]["kept"]


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
    with pytest.raises(InputError, match=r"ZeRO stage 3 has partitioned \(NOT_AVAILABLE\) and that DeepSpeed cannot"):
        RankTracker(partitioned(fresh(), ZeroStatus.NOT_AVAILABLE))
    RankTracker(partitioned(fresh(), ZeroStatus.AVAILABLE)).measure()  # gathered by GatheredParameters


def test_weights_without_values_are_refused():
    with torch.device("meta"):
        model = nn.MultiheadAttention(4, 2)
    refused(r"got a tensor of shape \(12, 4\) on the meta device", require_readable, model)


def test_ordinary_weights_are_given_back_detached():
    weight = nn.Parameter(torch.ones(2, 3))
    assert full_tensor(weight).data_ptr() == weight.data_ptr()
    assert not full_tensor(weight).requires_grad
    assert not is_sharded(weight)
    assert not is_sharded(nn.Linear(2, 3))
