"""The keeper of a run's checkpoint: silent without a file, jealous with one; and what it knows weights by."""

import pytest
import torch
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.train.run_checkpoint import Checkpointer, fingerprint


def test_without_a_path_nothing_is_kept_found_or_due():
    def never():
        raise AssertionError("the identity of a run that is not kept can be costly, and is not asked for")

    keeper = Checkpointer(None, never, cure="")
    assert keeper.read() is None
    keeper.write({"step": 1})
    assert not keeper.rested()


def test_only_the_run_itself_reads_what_it_kept(tmp_path):
    identity = {"data": "digits", "seed": "0"}
    keeper = Checkpointer(tmp_path / "run", lambda: identity, cure="Name another.")
    assert keeper.read() is None
    assert keeper.rested()
    keeper.write({"step": 1})
    assert Checkpointer(tmp_path / "run", lambda: dict(identity), cure="").read() == {"step": 1}
    for other, differs in (({"seed": "1"}, "seed"), ({"data": "", "seed": ""}, "data and seed"), ({"new": ""}, "new")):
        another = Checkpointer(tmp_path / "run", lambda other=other: {**identity, **other}, cure="Name another.")
        with pytest.raises(InputError, match=f"must belong to .*run', which differs in {differs}[.] Name another"):
            another.read()


def test_a_fingerprint_knows_every_weight_by_name_shape_type_and_value():
    def model(change=lambda linear: None):
        linear = nn.Linear(2, 2)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
            linear.bias.zero_()
        change(linear)
        return linear

    def flip(linear):
        linear.weight.data[1, 1] = 4.0000005

    def transpose(linear):
        linear.weight.data = linear.weight.data.T

    def buffer(linear):
        linear.register_buffer("extra", torch.zeros(1))

    others = [model(flip), model(transpose), model(buffer), model().double(), nn.Sequential(model())]
    found = [fingerprint(each) for each in (model(), *others)]
    assert fingerprint(model()) == found[0]
    assert len(set(found)) == len(found)
