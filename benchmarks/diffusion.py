"""A training step and sampling of the diffusion model, beside an eager PyTorch version, on one thread.

The peer has the same layers with the same weights, written down the plain way, as public code for such models has them:
PyTorch's default layout, attention from its products, queries, keys and values one by one, the derivative of the noise
schedule by automatic differentiation, noise drawn for the reconstruction term, AdamW as it comes. The terms of both
agree, which is checked first. A third has the peer's network by `torch.compile`. Steps of all alternate; CPU
milliseconds, the median of all. The floor of a step is its FLOP, PyTorch's own count, over the speed of a large product
in the same precision, measured beside.

    python benchmarks/diffusion.py [--quick] [small | paper [batch] [steps]]

small: 16 x 16 images, three levels, the default of the entries; paper: 32 x 32, the paper's widths, batch 128.
"""

import one_core

one_core.take()

import itertools
import math
import statistics
import time
from collections.abc import Callable

import torch
from board import Board, play
from peak import peak
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from saddlescope.training.diffusion.unet import ResidualBlock, SelfAttention, UNet, UNetConfig
from saddlescope.training.diffusion.variational_diffusion import VariationalDiffusion

SIZES = {
    "small": (UNetConfig(pixels=16, channels=(16, 32, 32), blocks=1), 32, 40),
    "paper": (UNetConfig(), 128, 2),
}
SAMPLED, SAMPLING_STEPS = 32, 20


class PlainAttention(nn.Module):
    """Self-attention with a 1 x 1 convolution each for queries, keys, values and outputs."""

    def __init__(self, ours: SelfAttention) -> None:
        super().__init__()
        width = ours.output.in_features
        self.heads, self.norm = ours.heads, ours.norm
        self.query, self.key, self.value, self.output = (nn.Conv2d(width, width, 1) for _ in range(4))
        layers = (self.query, self.key, self.value)
        with torch.no_grad():
            for k, layer in enumerate(layers):
                layer.weight.copy_(ours.mixed.weight[k * width : (k + 1) * width, :, None, None])
                layer.bias.copy_(ours.mixed.bias[k * width : (k + 1) * width])  # type: ignore[union-attr]
            self.output.weight.copy_(ours.output.weight[:, :, None, None])
            self.output.bias.copy_(ours.output.bias)  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        """Mixes the pixels."""
        h = self.norm(x)
        b, c, side, _ = h.shape
        query, key, value = (
            layer(h).reshape(b, self.heads, c // self.heads, side**2) for layer in (self.query, self.key, self.value)
        )
        scores = torch.einsum("bhcq,bhck->bhqk", query, key) * (c // self.heads) ** -0.5
        mixed = torch.einsum("bhqk,bhck->bhcq", torch.softmax(scores, dim=-1), value)
        return x + self.output(mixed.reshape(b, c, side, side))


class PlainBlock(nn.Module):
    """A residual block in PyTorch's default layout, with the layers of ours."""

    def __init__(self, ours: ResidualBlock) -> None:
        super().__init__()
        self.first = nn.Sequential(ours.first_norm, nn.GELU(), ours.first)
        self.projections = ours.projections
        self.second = nn.Sequential(ours.second_norm, nn.GELU(), ours.second)
        self.shortcut = ours.shortcut

    def forward(self, x: Tensor, vectors: list[Tensor]) -> Tensor:
        """One block."""
        h = self.first(x)
        for projection, vector in zip(self.projections, vectors, strict=True):
            h = h + projection(vector)[:, :, None, None]
        return self.shortcut(x) + self.second(h)


def plain_blocks(level: nn.Module) -> nn.ModuleList:
    """The residual blocks of a level."""
    return nn.ModuleList(PlainBlock(block) for block in level.children() if isinstance(block, ResidualBlock))


class PlainUNet(nn.Module):
    """The same network, the plain way."""

    def __init__(self, ours: UNet) -> None:
        super().__init__()
        trunk = ours.backbone
        self.time, self.enter, self.leave, self.norm = ours.time, trunk.enter, ours.leave, trunk.norm
        self.halvings, self.doublings = trunk.halvings, trunk.doublings
        self.down, self.up = (
            nn.ModuleList(plain_blocks(level) for level in levels) for levels in (trunk.down, trunk.up)
        )
        self.before, self.after = PlainBlock(trunk.before), PlainBlock(trunk.after)
        self.attention = PlainAttention(trunk.attention)
        self.to(memory_format=torch.contiguous_format)  # pyright: ignore[reportCallIssue]

    def forward(self, x: Tensor, time: Tensor, condition: Tensor) -> Tensor:
        """The noise predicted."""
        frequencies = torch.logspace(3, -1, 32)
        angles = time[:, None] * frequencies[None]
        vectors = [self.time(torch.cat([angles.sin(), angles.cos()], dim=1)), condition]
        h, skips = self.enter(x), []
        for depth, level in enumerate(self.down):
            for block in level.children():
                h = block(h, vectors)
            if depth < len(self.halvings):
                skips.append(h)
                h = self.halvings[depth](h)
        h = self.after(self.attention(self.before(h, vectors)), vectors)
        for height, level in enumerate(self.up):
            if height:
                h = torch.cat([self.doublings[height - 1](h), skips.pop()], dim=1)
            for block in level.children():
                h = block(h, vectors)
        return x + self.leave(functional.gelu(self.norm(h)))


class PlainDiffusion(nn.Module):
    """The same bound and sampler, the plain way."""

    def __init__(self, ours: VariationalDiffusion) -> None:
        super().__init__()
        assert isinstance(ours.network, UNet)
        self.network, self.d = PlainUNet(ours.network), ours.data_noise
        self.w, self.b = nn.Parameter(ours.slope.detach().clone()), nn.Parameter(ours.offset.detach().clone())

    def gamma(self, t: Tensor) -> Tensor:
        """Minus the logarithm of the signal-to-noise ratio."""
        return self.b + self.w.abs() * t

    def terms(self, x: Tensor, condition: Tensor, t: Tensor | None = None, noise: Tensor | None = None) -> list[Tensor]:
        """Diffusion, prior and reconstruction in bits a dimension, each the mean over the batch."""
        if t is None:
            t = (torch.rand(1) + torch.arange(len(x))) / len(x)
        t = t.view(-1, 1, 1, 1).clone().requires_grad_()
        noise = torch.randn_like(x) if noise is None else noise
        gamma = self.gamma(t)
        z = torch.sqrt(torch.sigmoid(-gamma)) * x + torch.sqrt(torch.sigmoid(gamma)) * noise
        slope = torch.autograd.grad(gamma, t, torch.ones_like(gamma), create_graph=True, retain_graph=True)[0]
        error = (self.network(z, (gamma.view(-1) + 5) / 15, condition) - noise) ** 2
        diffusion = 0.5 * slope.view(-1) * error.flatten(1).sum(dim=1)
        last = torch.sigmoid(self.gamma(torch.ones(1)))
        prior = 0.5 * ((1 - last) * x**2 + last - torch.log(last) - 1).flatten(1).sum(dim=1)
        first = self.gamma(torch.zeros(1))
        z_0 = torch.sqrt(torch.sigmoid(-first)) * x + torch.sqrt(torch.sigmoid(first)) * torch.randn_like(x)
        seen = torch.distributions.Normal(z_0 / torch.sqrt(torch.sigmoid(-first)), self.d)
        reconstruction = -seen.log_prob(x).flatten(1).sum(dim=1)
        bits = x[0].numel() * math.log(2)
        return [term.mean() / bits for term in (diffusion, prior, reconstruction)]

    @torch.no_grad()
    def sample(self, condition: Tensor, side: int, steps: int) -> Tensor:
        """Ancestral sampling."""
        z, times = torch.randn(len(condition), 3, side, side), torch.linspace(1, 0, steps + 1)
        for t, s in itertools.pairwise(times):
            gamma_t, gamma_s = self.gamma(t), self.gamma(s)
            c = -torch.expm1(gamma_s - gamma_t)
            guess = self.network(z, ((gamma_t + 5) / 15).expand(len(z)), condition)
            alpha_t, alpha_s = torch.sqrt(torch.sigmoid(-gamma_t)), torch.sqrt(torch.sigmoid(-gamma_s))
            mean = alpha_s / alpha_t * (z - c * torch.sqrt(torch.sigmoid(gamma_t)) * guess)
            z = mean + torch.sqrt(torch.sigmoid(gamma_s) * c) * torch.randn_like(z)
        return z


def stepping(model: nn.Module, loss: Callable[[], Tensor], fused: bool) -> Callable[[], None]:
    """A training step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=fused or None)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def timed(calls: dict[str, Callable[[], object]], times: int) -> dict[str, list[float]]:
    """The CPU milliseconds of each call, taken in turn."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(times + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn:  # the first one warms up
                found[name].append(1e3 * (time.process_time() - start))
    return found


def main(board: Board) -> None:
    """Prints milliseconds and ratios."""
    torch.set_num_threads(1)
    size, *given = board.words or ("small",)
    config, batch, steps = SIZES[size]
    batch, steps = (int(one) for one in (*given, *(batch, steps)[len(given) :]))
    steps = 2 if board.quick else steps
    model, *twins = (VariationalDiffusion(UNet(config)) for _ in range(3))
    for network in (one.network for one in (model, *twins)):  # no weight is zero, so that all layers count
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.empty_like(parameter).uniform_(-0.01, 0.01, generator=generator))
    peer, compiled = map(PlainDiffusion, twins)
    compiled.network = torch.compile(compiled.network, dynamic=False)  # type: ignore[assignment]
    side = config.pixels
    images, condition = torch.rand(batch, 3, side, side), torch.rand(batch, 4)
    times, noise = torch.rand(batch), torch.randn(batch, 3, side, side)
    bound = model.bound(images, condition, times=times, noise=noise)
    for other in (peer, compiled):
        theirs = other.terms(images, condition, times, noise)
        torch.testing.assert_close(bound.diffusion.mean(), theirs[0], rtol=1e-4, atol=0.0)
        torch.testing.assert_close(bound.prior.mean(), theirs[1], rtol=1e-2, atol=0.0)  # theirs rounds where it cancels
        torch.testing.assert_close(bound.reconstruction.mean(), theirs[2], rtol=0.05, atol=0.0)  # of random noise
    with FlopCounterMode(display=False) as counter:
        model.bound(images, condition).total.mean().backward()
    flop = counter.get_total_flops() / 1e9
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{size}: {parameters:,} parameters, batch {batch}, {flop:.2f} GFLOP a step; {steps} steps, one thread")
    asked = condition[:1].expand(SAMPLED, -1)
    names = ("VariationalDiffusion", "the same in eager PyTorch", "the same by torch.compile")
    terms = [lambda other=other: torch.stack(other.terms(images, condition)).sum() for other in (peer, compiled)]
    training = (
        stepping(model, lambda: model.bound(images, condition).total.mean(), fused=True),
        *(stepping(other, loss, fused=True) for other, loss in zip((peer, compiled), terms, strict=True)),
    )
    sampling = (
        lambda: model.sample(asked, steps=SAMPLING_STEPS),
        *((lambda other=other: other.sample(asked, side, SAMPLING_STEPS)) for other in (peer, compiled)),
    )
    speed = peak()
    rows = {
        f"training step, batch {batch}": timed(dict(zip(names, training, strict=True)), steps),
        f"{SAMPLED} images, {SAMPLING_STEPS} sampling steps": timed(
            dict(zip(names, sampling, strict=True)), max(steps // 8, 1)
        ),
    }
    speed = max(speed, peak())
    print(f"{'CPU ms':<32}{'ours':>10}{'eager':>10}{'compiled':>10}{'ratio':>8}{'compiled':>10}")
    for name, found in rows.items():
        board.compare(f"{size}, {name}", "CPU time", "ms", found)
        mine, eager, fused = (statistics.median(found[one]) for one in names)
        print(f"{name:<32}{mine:>10.1f}{eager:>10.1f}{fused:>10.1f}{eager / mine:>8.2f}{fused / mine:>10.2f}")
    problem = f"{size}, training step, batch {batch}"
    floor = 1e3 * flop / speed
    board.report(problem, "floor", "FLOP of a step over the peak", floor, "ms", f"{flop:.2f} GFLOP at {speed:.0f}/s")
    for name in names:
        over = statistics.median(rows[f"training step, batch {batch}"][name]) / floor
        board.report(problem, name, "CPU time over the floor", over)
        print(f"{name}: {over:.2f} times the floor of {floor:.1f} ms")


if __name__ == "__main__":
    play(main)
