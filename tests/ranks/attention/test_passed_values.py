"""Values that a model mixes with those of another layer: no product of one layer's weights is what a head reads."""

import copy

import pytest
import torch
from attention_standins import Layers, attend
from kinds import Llama
from torch import nn

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import RankTracker
from saddlescope.ranks.attention.attention_blocks import find_attention


class _Former(Llama):
    """Attention with the values of a former layer as an argument; its model decides whether to pass them."""

    def forward(self, x, former=None):
        q, k, v = self.parts(x)
        return self.joined(attend(q, k, v if former is None else self.mix(v, former))), v

    def mix(self, v, former):
        raise NotImplementedError


class Averaged(_Former):
    """x-transformers with add_value_residual."""

    def mix(self, v, former):
        return 0.5 * (v + former)


class Summed(_Former):
    """The difference of two samples' values is still that of W_V."""

    def mix(self, v, former):
        return v + former


class Grouped(Summed, k_proj=(12, 6), v_proj=(12, 6)):
    """Values are passed before they are repeated for the query heads."""

    def forward(self, x, former=None):
        q, k, v = (part(x).unflatten(-1, (-1, 3)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        mixed = v if former is None else self.mix(v, former)
        return self.joined(attend(q, *(part.repeat_interleave(2, dim=1) for part in (k, mixed)))), v


class Flat(Summed):
    """modded-nanogpt: values, of the width of the inputs, before they are cut into heads; a required argument."""

    def forward(self, x, former):  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v = self.parts(x)
        flat = v.transpose(1, 2)
        mixed = flat if former is None else self.mix(flat, former.view_as(flat))
        return self.joined(attend(q, k, mixed.transpose(1, 2))), flat.flatten(2)


class Model(nn.Module):
    def __init__(self, kind, *, passes):
        super().__init__()
        self.layers = nn.ModuleList(kind() for _ in range(3))
        self.passes = passes

    def forward(self, x):
        first = None
        for layer in self.layers:
            read, values = layer(x, first if self.passes else None)
            x, first = x + read, values if first is None else first
        return x


class OfTwoInputs(Model):
    """A model that no check can call by itself."""

    def forward(self, x, scale):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x * scale["size"])


KINDS = (Averaged, Summed, Grouped, Flat)
PASSED = "its values are mixed with others, which its model passes as former"


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_get_the_values_of_another_one_are_refused(kind):
    model = Model(kind, passes=True)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with pytest.warns(UserWarning, match="passes as former"):
        tracker = RankTracker(model)
    rows = [(row.outcome, row.reason) for row in tracker.coverage]
    assert rows == [("verified", ""), *[("refused", PASSED)] * 2]
    assert tracker.layers == ("layers.0",)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())
    assert not any(layer._forward_pre_hooks for layer in model.layers)


@pytest.mark.parametrize("kind", KINDS)
def test_an_argument_that_the_model_does_not_pass_changes_nothing(kind):
    assert find_attention(Model(kind, passes=False)).coverage.count("verified") == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_cannot_be_called_is_not_said_to_be_verified(kind):
    inputs = (torch.randn(2, 5, 12), {"size": 1.0})
    for passes in (False, True):
        model = OfTwoInputs(kind, passes=passes)
        tracker = RankTracker(model)
        for row in tracker.coverage:
            assert row.outcome == "unchecked"
            assert row.reason == (
                "the model may mix its values with others, passed as former: call tracker.check(model, inputs)"
            )
        if passes:
            refused(r"others in layers.1: its values are (mixed|not those of W_V)", tracker.check, model, inputs)
        else:
            assert tracker.check(model, inputs).count("verified") == 3


def test_what_is_added_to_the_inputs_is_not_mixed_with_the_values():
    """Inputs and positions go through the same W_V."""

    class Optional(Llama):
        def forward(self, x, offset=None):
            q, k, v = self.parts(x if offset is None else x + offset)
            return self.joined(attend(q, k, v))

    model = nn.ModuleDict({"attn": Optional()})
    (row,) = find_attention(model).coverage
    assert (row.outcome, row.reason) == ("verified", "")

    class Whole(Layers, attn=Optional):
        def forward(self, x, y):
            return self.attn(x, offset=y["offset"])

    whole = Whole()
    tracker = RankTracker(whole)
    assert tracker.check(whole, (torch.randn(2, 5, 12), {"offset": torch.randn(2, 5, 12)})).count("verified") == 1


def test_what_cannot_be_replaced_leaves_a_layer_unchecked():
    class Twice(Llama):
        def forward(self, x, former, options):
            q, k, v = self.parts(x)
            read = attend(q, k, v) * options["scale"]
            return self.joined(read + attend(q, k, former) if former.abs().max() > 0 else read)

    class Whole(Layers, attn=Twice):
        def forward(self, x):
            return self.attn(x, torch.zeros(len(x), 4, x.shape[1], 3), {"scale": 1.0})

    whole = Whole()
    (row,) = RankTracker(whole).check(whole, torch.randn(2, 5, 12))
    assert (row.outcome, row.reason) == ("unchecked", "its values have other shapes with another former")


def test_values_of_one_head_have_the_width_of_the_inputs():
    class OneHead(Averaged, num_heads=1):
        def parts(self, x):
            return (part(x)[:, None] for part in (self.q_proj, self.k_proj, self.v_proj))

    with pytest.warns(UserWarning, match="passes as former"):
        assert RankTracker(Model(OneHead, passes=True)).layers == ("layers.0",)
    model = OfTwoInputs(OneHead, passes=True)
    with pytest.raises(InputError, match="its values are not those of W_V as read"):
        RankTracker(model).check(model, (torch.randn(2, 5, 12), {"size": 1.0}))


def test_transformers():
    """NeoMME's first layer adds embeddings to its values."""
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(transformers.NeoMMEConfig(num_hidden_layers=3, vocab_size=16))
    reasons = [row.reason for row in find_attention(model).coverage]
    assert sum("passes as value_embeds" in reason for reason in reasons) == 1
