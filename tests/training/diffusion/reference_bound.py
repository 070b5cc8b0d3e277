"""Reference implementation of the U-Net and of the variational bound: NumPy, double precision, no PyTorch, no `train`.

The network is built from the names and values of its weights alone; a convolution is a sum of shifted images. Each
term of the bound is computed from its meaning, not from the formula used in training:

- diffusion: T times the divergence of p(z_s | z_t) from q(z_s | z_t, x), two normal laws of the Markov chain with T
  steps from time 1 to time 0, where s is one step before t; their means are those of Bayes' rule (Kingma et al., 2021,
  appendix A). It is above the continuous term, by gamma' / (2 T) of it;
- prior: the divergence of q(z_1 | x) from a standard normal law;
- reconstruction: -ln p(x | z_0), a normal density around z_0 / alpha_0.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erf, expit

Array = np.ndarray[Any, np.dtype[np.float64]]

Weights = Mapping[str, Array]


class Network(NamedTuple):
    """Weights of a U-Net, with the settings that are not in the weights."""

    weights: Weights
    normalization: str  # "layer", "pixel" or "group"
    groups: int  # of "group"
    heads: int


class Schedule(NamedTuple):
    """Noise schedule gamma_t = slope t + offset, range of the time that the network sees, and data noise."""

    slope: float
    offset: float
    gamma_min: float
    gamma_max: float
    data_noise: float


def bound(
    network: Network, schedule: Schedule, images: Array, condition: Array,
    *, times: Array, noise: Array, first_noise: Array, steps: float = 1e7,
) -> Array:  # fmt: skip
    """Return diffusion, prior and reconstruction terms of each image in bits per dimension, shape (3, batch).

    Images are (batch, 3, N, N), conditions (batch, k) and times (batch,), in (0, 1]. `noise` is that in z_t and
    `first_noise` that in z_0, of the images' shape; the Markov chain has `steps` steps, T.
    """
    t = times[:, None, None, None]
    gamma_t, gamma_s = (schedule.slope * at + schedule.offset for at in (t, t - 1 / steps))
    (alpha_t, var_t), (alpha_s, var_s) = _signal(gamma_t), _signal(gamma_s)
    z = alpha_t * images + np.sqrt(var_t) * noise
    seen = (gamma_t.ravel() - schedule.gamma_min) / (schedule.gamma_max - schedule.gamma_min)
    guess = (z - np.sqrt(var_t) * predict(network, z, seen, condition)) / alpha_t  # x that the prediction implies
    carried = alpha_t / alpha_s  # z_t = carried z_s + noise of variance `added`
    added = var_t - carried**2 * var_s
    means = [(carried * var_s * z + alpha_s * added * x) / var_t for x in (images, guess)]
    diffusion = steps * (means[0] - means[1]) ** 2 / (2 * var_s * added / var_t)

    alpha_1, var_1 = _signal(np.array([schedule.slope + schedule.offset]))
    prior = ((alpha_1 * images) ** 2 + var_1 - 1 - np.log(var_1)) / 2

    alpha_0, var_0 = _signal(np.array([schedule.offset]))
    seen_through = (alpha_0 * images + np.sqrt(var_0) * first_noise) / alpha_0
    d = schedule.data_noise
    reconstruction = (images - seen_through) ** 2 / (2 * d**2) + np.log(d * np.sqrt(2 * np.pi))
    return np.stack([term.mean(axis=(1, 2, 3)) / np.log(2) for term in (diffusion, prior, reconstruction)])


def _signal(gamma: Array) -> tuple[Array, Array]:
    """Return alpha and sigma^2."""
    return np.sqrt(expit(-gamma)), expit(gamma)


def predict(network: Network, z: Array, time: Array, condition: Array) -> Array:
    """Return the U-Net's prediction of the noise in z, of its shape."""
    w = network.weights
    waves = w["time.0.weight"].shape[1] // 2
    angles = time[:, None] * 1000 * 10.0 ** (-4 * np.arange(waves) / (waves - 1))
    embedded = _mlp(w, "time", np.concatenate([np.sin(angles), np.cos(angles)], axis=1))
    vectors = [embedded, condition]
    levels = 1 + max(int(name.split(".")[2]) for name in w if name.startswith("backbone.down."))
    blocks = 1 + max(int(name.split(".")[3]) for name in w if name.startswith("backbone.down."))

    x = _convolve(w, "backbone.enter", z)
    skips = []
    for level in range(levels):
        for block in range(blocks):
            x = _block(network, f"backbone.down.{level}.{block}", x, vectors)
        if level < levels - 1:
            skips.append(x)
            x = _halve(w, f"backbone.halvings.{level}", x)
    x = _block(network, "backbone.before", x, vectors)
    x = _attention(network, "backbone.attention", x)
    x = _block(network, "backbone.after", x, vectors)
    for level in range(levels):
        if level:
            x = np.concatenate([_double(w, f"backbone.doublings.{level - 1}", x), skips.pop()], axis=1)
        for block in range(blocks):
            x = _block(network, f"backbone.up.{level}.{block}", x, vectors)
    return z + _convolve(w, "leave", _gelu(_normalize(network, "backbone.norm", x)))


def _block(network: Network, name: str, x: Array, vectors: list[Array]) -> Array:
    w = network.weights
    hidden = _convolve(w, f"{name}.first", _gelu(_normalize(network, f"{name}.first_norm", x)))
    for k, vector in enumerate(vectors):
        hidden = hidden + _mlp(w, f"{name}.projections.{k}", vector)[:, :, None, None]
    hidden = _convolve(w, f"{name}.second", _gelu(_normalize(network, f"{name}.second_norm", hidden)))
    return hidden + (_convolve(w, f"{name}.shortcut", x) if f"{name}.shortcut.weight" in w else x)


def _attention(network: Network, name: str, x: Array) -> Array:
    w, heads = network.weights, network.heads
    images, width, side, _ = x.shape
    pixels = _normalize(network, f"{name}.norm", x).reshape(images, width, side**2).transpose(0, 2, 1)
    three = pixels @ w[f"{name}.mixed.weight"].T + w[f"{name}.mixed.bias"]
    mixed = np.zeros_like(pixels)
    for head in range(heads):
        part = slice(head * width // heads, (head + 1) * width // heads)
        query, key, value = (three[:, :, k * width : (k + 1) * width][:, :, part] for k in range(3))
        scores = np.exp(query @ key.transpose(0, 2, 1) / np.sqrt(width / heads))
        mixed[:, :, part] = scores / scores.sum(axis=2, keepdims=True) @ value
    out = mixed @ w[f"{name}.output.weight"].T + w[f"{name}.output.bias"]
    return x + out.transpose(0, 2, 1).reshape(x.shape)


def _normalize(network: Network, name: str, x: Array) -> Array:
    images, channels, side, _ = x.shape
    if network.normalization == "pixel":
        mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
        out = (x - mean) / np.sqrt(variance + 1e-5)
    else:
        grouped = x.reshape(images, network.groups if network.normalization == "group" else 1, -1)
        mean, variance = grouped.mean(axis=2, keepdims=True), grouped.var(axis=2, keepdims=True)
        out = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(images, channels, side, side)
    gain, bias = (network.weights[f"{name}.{kind}"][:, None, None] for kind in ("weight", "bias"))
    return out * gain + bias


def _gelu(x: Array) -> Array:
    return x * (1 + erf(x / np.sqrt(2))) / 2


def _mlp(w: Weights, name: str, x: Array) -> Array:
    for layer in (0, 2):
        x = _gelu(x @ w[f"{name}.{layer}.weight"].T + w[f"{name}.{layer}.bias"])
    return x


def _convolve(w: Weights, name: str, x: Array) -> Array:
    """Convolve with a kernel of odd size, with zeros beyond the edge, so that the image keeps its size."""
    kernel = w[f"{name}.weight"]
    size, side = kernel.shape[2], x.shape[2]
    edge = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    out = np.zeros((len(x), len(kernel), side, side)) + w[f"{name}.bias"][:, None, None]
    for i in range(size):
        for j in range(size):
            out += _mix_channels(kernel[:, :, i, j], padded[:, :, i : i + side, j : j + side])
    return out


def _halve(w: Weights, name: str, x: Array) -> Array:
    kernel = w[f"{name}.weight"]
    parts = [_mix_channels(kernel[:, :, i, j], x[:, :, i::2, j::2]) for i in range(2) for j in range(2)]
    return sum(parts, w[f"{name}.bias"][:, None, None])


def _double(w: Weights, name: str, x: Array) -> Array:
    kernel = w[f"{name}.weight"]  # (in, out, 2, 2)
    out = np.zeros((len(x), kernel.shape[1], 2 * x.shape[2], 2 * x.shape[3]))
    for i in range(2):
        for j in range(2):
            out[:, :, i::2, j::2] = _mix_channels(kernel[:, :, i, j].T, x)
    return out + w[f"{name}.bias"][:, None, None]


def _mix_channels(matrix: Array, x: Array) -> Array:
    """Multiply the channels of x at each pixel by a matrix (out, in)."""
    images, _, height, width = x.shape
    return (matrix @ x.reshape(images, x.shape[1], -1)).reshape(images, len(matrix), height, width)
