"""Weights in memory as checkpoints: mappings and pytrees of NumPy, JAX, Equinox and PyTorch."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from stored_models import of_matrices

from refusals import refused
from saddlescope.ranks import checkpoint_spectra

W, U = (np.random.default_rng(seed).normal(size=(6, 5)).astype(np.float32) for seed in (0, 1))


class Pair(NamedTuple):
    first: object
    second: object


TREES = {
    "Flax": (lambda W: {"params": {"Dense": {"kernel": jnp.asarray(W), "bias": jnp.zeros(5)}}}, "params.Dense.kernel"),
    "state dict": (lambda W: {"layer.weight": torch.tensor(W)}, "layer.weight"),
    "NumPy, big-endian": (lambda W: {"W1": W.astype(">f4"), "name": "model", "no": None}, "W1"),
    "lists and named tuples": (lambda W: [Pair(W, ("text", 3)), {"b": W[0]}], "0.first"),
    "numbers as keys": (lambda W: {0: {"W": W}}, "0.W"),
}  # fmt: skip


@pytest.mark.parametrize("kind", TREES)
def test_paths_are_names(kind):
    make, name = TREES[kind]
    found = of_matrices(make(W), make(W + U), make(W + 2 * U))
    assert found.matrix.values.tolist() == [name]
    assert found.step.values.tolist() == [1, 2]
    np.testing.assert_allclose(found.matrix_update_norm[:, 0], np.linalg.norm(U) * np.array([1, 2]), rtol=1e-6)


def test_types_that_numpy_lacks_keep_their_rounding():
    before, after = (jnp.asarray(one, jnp.bfloat16) for one in (W, W + U))
    found = of_matrices({"W": before}, {"W": after})
    expected = np.linalg.norm(np.asarray(after, np.float64) - np.asarray(before, np.float64))
    np.testing.assert_allclose(found.matrix_update_norm.item(), expected, rtol=1e-6)
    assert found.matrix_noise_floor.item() > 2.0**-9


def test_heads_of_a_model_of_equinox():
    keys = jax.random.split(jax.random.PRNGKey(0), 2)
    before, after = (eqx.nn.MultiheadAttention(num_heads=2, query_size=8, key=key) for key in keys)
    found = checkpoint_spectra(before, after, heads=2)
    names = ("key_proj", "query_proj")
    products = [
        [np.asarray(getattr(model, name).weight, np.float64).reshape(2, 4, 8)[1] for name in names]
        for model in (before, after)
    ]
    (K0, Q0), (K, Q) = products
    values = np.linalg.svd(K.T @ Q - K0.T @ Q0, compute_uv=False)
    np.testing.assert_allclose(found.update_spectrum.sel(product="KQ")[0, 0, 1], values, rtol=1e-5, atol=1e-7)


def test_a_file_and_a_tree_are_compared(tmp_path):
    save_file({"layer.weight": torch.tensor(W)}, tmp_path / "base.safetensors")
    found = of_matrices(tmp_path / "base.safetensors", {"layer": {"weight": W + U}})
    assert found.matrix_update_norm.item() == pytest.approx(np.linalg.norm(U))


def test_what_is_no_tree_of_arrays_is_refused():
    for wrong in (torch.nn.Linear(2, 2), {}, {"a": "text"}):
        refused("weights 1 must be a file, a folder, or a tree of arrays", of_matrices, {"W": W}, wrong)
    refused("must hold each tensor of the model once", of_matrices, {"a.b": W, "a": {"b": W}}, {"a.b": W})
    for odd in (torch.eye(4).to_sparse(), torch.empty(4, 4, device="meta")):
        refused("W must be a dense tensor with numbers", of_matrices, {"W": odd}, {"W": odd})
    inside: dict = {}
    inside["inside"] = inside
    refused("must be a tree of at most 64 levels", of_matrices, inside, inside)
