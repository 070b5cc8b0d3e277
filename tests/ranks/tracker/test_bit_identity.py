"""Training with and without a tracker that measures everything after every step: identical to the last bit."""

import copy
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from saddlescope.ranks import Angles, Every, RankTracker, Values

STEPS = 4
OPTIMIZERS = [
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
]


class Tokens(nn.Module):
    """Embedding, attention with dropout, and a head: dropout makes the run depend on the global random state."""

    def __init__(self, sparse=False):
        super().__init__()
        self.embed = nn.Embedding(7, 6, sparse=sparse)
        self.body = nn.TransformerEncoderLayer(6, 2, dim_feedforward=5, dropout=0.1, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)).mean(dim=1))


def loss(model, k):
    generator = torch.Generator().manual_seed(k)
    tokens, labels = (torch.randint(size, shape, generator=generator) for size, shape in ((7, (5, 4)), (3, (5,))))
    return functional.cross_entropy(model(tokens), labels)


def make_optimizers(name, model):
    """Return one optimiser of all weights, or two where one kind of weights needs its own."""
    kind = getattr(torch.optim, name)
    everything = list(model.parameters())
    if name == "SparseAdam":
        return kind([model.embed.weight], lr=1e-2), torch.optim.SGD(everything[1:], lr=0.1, momentum=0.9)
    if name == "Muon":
        matrices, others = ([weight for weight in everything if (weight.ndim == 2) is flat] for flat in (True, False))
        return kind(matrices, lr=1e-2), torch.optim.AdamW(others, lr=1e-2)
    return (kind(everything, lr=1e-2),)


def plainly(model, optimizers):
    for k in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        if isinstance(optimizers[0], torch.optim.LBFGS):

            def closure(k=k):
                optimizers[0].zero_grad()
                value = loss(model, k)
                value.backward()
                return value

            optimizers[0].step(closure)
        else:
            loss(model, k).backward()
            for optimizer in optimizers:
                optimizer.step()


def accumulating(model, optimizers):
    for k in range(2 * STEPS):
        (loss(model, k) / 2).backward()
        if k % 2:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()


def alternating(model, optimizers):
    """Step the first optimiser twice for each step of the second."""
    for k in range(2 * STEPS):
        model.zero_grad()
        loss(model, k).backward()
        optimizers[0].step()
        if k % 2:
            optimizers[1].step()


def autocasting(model, optimizers):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for k in range(STEPS):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(model, k)
        scaler.scale(value).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()


def compiled(backend):
    """Return a loop whose loss, gradients and steps are compiled."""

    def loop(model, optimizers):
        torch.compiler.reset()
        forward = torch.compile(lambda k: loss(model, k), backend=backend)
        steps = [torch.compile(optimizer.step, backend=backend) for optimizer in optimizers]
        for k in range(STEPS):
            model.zero_grad()
            forward(k).backward()
            for step in steps:
                step()

    return loop


def two(model):
    """Return two optimisers, both of which change attention weights."""
    fused, *others = [model.body.self_attn.in_proj_weight], *model.parameters()
    return torch.optim.AdamW(fused, lr=1e-2), torch.optim.SGD(
        [weight for weight in others if weight is not fused[0]], lr=0.1, momentum=0.9
    )


def train(loop, make, *, tracked, sparse=False, change=lambda model: None, steps=STEPS):
    """Return all that a run leaves: weights, buffers, gradients, states of optimisers, modes, random state."""
    torch.manual_seed(0)
    model = Tokens(sparse)
    change(model)
    optimizers = make(model)
    tracker = None
    if tracked:
        tracker = RankTracker(model, schedule=Every(1), matrices="*", recorders=[Angles(2), Values(3)]).watch(
            *optimizers
        )
    loop(model, optimizers)
    if tracker is not None:
        assert tracker.steps == tuple(range(1, steps + 1))
        assert tracker.layers == ("body.self_attn",)
        assert tracker.records.products.update.measurable[-1].any()
    return {
        "weights": model.state_dict(),
        "gradients": {name: weight.grad for name, weight in model.named_parameters()},
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "modes": [module.training for module in model.modules()],
        "random": torch.get_rng_state(),
    }


def assert_identical(loop, make, **options):
    start = copy.deepcopy(train(lambda *_: None, make, tracked=False, **options)["weights"])
    without = train(loop, make, tracked=False, **options)
    with_tracker = train(loop, make, tracked=True, **options)
    assert not all(torch.equal(start[name], weight) for name, weight in without["weights"].items())  # it trained
    torch.testing.assert_close(with_tracker, without, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_torch(name):
    assert_identical(plainly, partial(make_optimizers, name), sparse=name == "SparseAdam")


@pytest.mark.parametrize(
    "loop", [plainly, accumulating, alternating, autocasting], ids=lambda loop: getattr(loop, "__name__", "")
)
def test_two_optimizers(loop):
    assert_identical(loop, two)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "backend", ["eager", *(pytest.param(name, marks=pytest.mark.slow) for name in ("aot_eager", "inductor"))]
)
def test_a_compiled_step(backend):
    assert_identical(compiled(backend), two)


def test_schedule_free():
    schedulefree = pytest.importorskip("schedulefree")

    def make(model):
        optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=1e-2)
        optimizer.train()
        return (optimizer,)

    assert_identical(plainly, make)


def test_adamw_in_eight_bits():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bitsandbytes = pytest.importorskip("bitsandbytes")
    assert_identical(
        plainly, lambda model: (bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-2, min_8bit_size=8),)
    )


def normalised(kind):
    """Return a function that registers a parametrisation of the output projection, and of a single matrix."""

    def change(model):
        kind(model.body.self_attn.out_proj)
        kind(model.body.linear1)

    return change


@pytest.mark.parametrize(
    "kind",
    [
        torch.nn.utils.parametrizations.weight_norm,
        torch.nn.utils.parametrizations.orthogonal,
        torch.nn.utils.parametrizations.spectral_norm,
    ],
    ids=lambda kind: kind.__name__,
)
def test_parametrised_weights_are_read_without_a_trace(kind):
    assert_identical(plainly, partial(make_optimizers, "Adam"), change=normalised(kind))


def test_adamw_in_eight_bits_of_torchao():
    """Its states have eight bits from 4096 entries on."""
    torchao = pytest.importorskip("torchao.optim")

    def train(*, tracked):
        torch.manual_seed(0)
        model = nn.TransformerEncoderLayer(64, 4, dim_feedforward=64, dropout=0.1, batch_first=True)
        optimizer = torchao.AdamW8bit(model.parameters(), lr=1e-2)
        if tracked:
            RankTracker(model, schedule=Every(1), matrices="*").watch(optimizer)
        for k in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(k))).pow(2).mean().backward()
            optimizer.step()
        assert type(optimizer.state[model.linear1.weight]["exp_avg"]).__name__ == "OptimState8bit"
        return model.state_dict()

    torch.testing.assert_close(train(tracked=True), train(tracked=False), rtol=0, atol=0)
