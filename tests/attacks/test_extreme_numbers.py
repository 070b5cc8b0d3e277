"""Numbers near the ends of float64 in measurements and flows: right, or one sentence, and no warning of a library."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from refusals import refused
from saddlescope import measure
from saddlescope._shared.errors import InputError
from saddlescope.flow import (
    BatchedFlowError,
    DiagonalInit,
    ResumeFrom,
    escape_flow,
    gradient_flow,
    gradient_flow_batched,
    unit_flow,
)
from saddlescope.flow.margin.margin_flow import _conservation_defects
from saddlescope.ranks import extract_lora
from saddlescope.theory import escape_directions, unit_learning

E = np.eye(3)
BEYOND = "differences and singular values below 1.8e\\+308; got larger ones"


@pytest.mark.parametrize(
    "act",
    [
        lambda: measure.spectrum(np.full((3, 3), 1.7e308)),
        lambda: measure.update_spectrum(1.7e308 * E, -1.7e308 * E),
        lambda: measure.update_spectrum(np.full((3, 3), 1.7e308), np.full((3, 3), -1.7e308)),
        lambda: measure.product_spectrum(1e200 * E, 1e200 * E),
        lambda: measure.product_update_spectrum(1e200 * E, 1e200 * E, E, E),
        lambda: measure.product_update_spectrum(1.7e308 * E, E, -1.7e308 * E, E),
        lambda: measure.product_update_orders(1e200 * E, 1e200 * E, E, E),
        lambda: measure.product_update_subspaces(1e200 * E, 1e200 * E, E, E, k=1),
        lambda: measure.product_update_subspaces(1.7e308 * E, E, -1.7e308 * E, E, k=1),
    ],
)
def test_spectra_beyond_float64_are_refused(act):
    refused(BEYOND, act)


def test_subspaces_of_products_near_the_end_of_float64():
    found = measure.product_update_subspaces(1e160 * E, 1e140 * E, 0 * E, 0 * E, k=1)
    assert found.values[0] == pytest.approx(1e300, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_ranks_and_stages_keep_the_unit(scale):
    assert measure.bulk_count(scale * np.array([1.6e8, 1.4e8]), scale * np.array([1e8, 1e8])) == 1
    assert measure.numerical_rank(scale * np.array([1.0, 2.0]), level=10**400) == 0
    t = np.linspace(0.0, 10.0, 201)
    s = 1e8 * scale / (1 + np.exp(-20 * (t[:, None] - [3.0, 6.0])))
    (stairs,) = measure.rank_staircases(t, s[:, None], np.zeros((201, 1)), time_unit="t")
    assert stairs.ranks == (0, 1, 2)
    assert [stage.loss for stage in stairs.stages] == pytest.approx([1.0, 0.5, 0.0], abs=1e-6)


def test_a_comparison_until_nan_is_refused():
    stairs = measure.Staircase((measure.Stage(0.0, 1.0, 1.0, 0), measure.Stage(1.0, 2.0, 0.5, 1)), "t")
    refused("until must be a time", measure.compare, stairs, stairs, until=np.nan)


def test_descents_beyond_float64_are_refused():
    refused("differ by at most", measure.find_descents, np.array([[1e308, -1e308, 1e308]]))
    assert measure.find_descents(np.array([[8e307, -8e307, 8e307]])).counts == 1


class Quadratic(eqx.Module):
    """Quadratic loss, compiled once for all scales."""

    scale: jax.Array

    def __call__(self, beta):
        return self.scale * jnp.sum((beta - 1) ** 2)


START = DiagonalInit(np.ones(2), np.full(2, 0.1), log_scale=-5.0)


def test_flows_too_fast_for_their_time_end_early_and_say_so(types_unchecked):
    """The speed overflowed, and a batch ended at time 0 as if it had reached the last time, with NaN."""

    def followed(scale, until):
        with jax.enable_x64(True), types_unchecked():
            return gradient_flow_batched(Quadratic(jnp.array(scale)), [START], until=until, tolerance=1e-3)

    with pytest.raises(BatchedFlowError, match="No step could be taken"):
        followed(1e200, 1.0)
    np.testing.assert_allclose(followed(1e200, 1e-200).losses / 1e200, followed(1.0, 1.0).losses, rtol=1e-6)


@pytest.mark.parametrize("state", [np.ones(3), np.ones((2, 2)), None])
def test_states_of_another_flow_are_refused(state, types_unchecked):
    with jax.enable_x64(True), types_unchecked(), pytest.raises(InputError, match="state must be an array of shape"):
        gradient_flow(Quadratic(jnp.array(1.0)), ResumeFrom(START, state), until=1.0, tolerance=1e-3)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_conservation_defects_at_any_scale(scale):
    rng = np.random.default_rng(0)
    K, Q = rng.standard_normal((2, 5, 3, 3))
    K0, Q0 = rng.standard_normal((2, 3, 3))
    found = _conservation_defects(*(scale * each for each in (K, Q, K0, Q0)))
    for k, q, one in zip(K, Q, found, strict=True):
        assert one == pytest.approx(np.linalg.norm(k.T @ k - q.T @ q - K0.T @ K0 + Q0.T @ Q0) / np.linalg.norm(k.T @ k))


@pytest.mark.parametrize(
    ("size", "dtype", "sentence"),
    [
        (1e300, "float32", "must have a change whose square float64 can hold; got one of size 1e\\+300"),
        (1e100, "float32", "must have a change whose factors float32 can hold"),
        (1e-200, "float32", "must have a change whose factors float32 can hold"),
        (1e12, "float16", "must have a change whose factors float16 can hold"),
    ],
)
def test_adapters_that_their_type_cannot_hold_are_refused(size, dtype, sentence, tmp_path):
    """Factors were stored as infinity or zero."""
    for name, number in (("base", 0.0), ("tuned", size)):
        torch.save({"layers.0.q_proj.weight": number * torch.eye(4, dtype=torch.float64)}, tmp_path / f"{name}.pt")
    files = [tmp_path / f"{name}.pt" for name in ("base", "tuned")]
    with pytest.raises(InputError, match=f"tuned.pt: layers.0.q_proj.weight {sentence}"):
        extract_lora(*files, tmp_path / "adapter", rank=1, dtype=dtype)
    assert not (tmp_path / "adapter").exists()


def linear(theta, x):
    return theta[0] * (theta[1:] @ x)


def test_numbers_beyond_their_meaning_are_refused():
    x = np.eye(3)[:, :2]
    with jax.enable_x64(True):
        with pytest.raises(InputError, match="depth must be at most 1000"):
            escape_directions(x, np.ones((3, 1)), depth=10**6, widths=4, num_starts=1)
        with pytest.raises(InputError, match="degree must be at least 2 and finite; got inf"):
            unit_flow(
                linear, (x, np.ones(3)), lambda f, y: (f - y) ** 2, np.ones((2, 3)),
                degree=np.inf, log_scale=-10.0, until=0.1, tolerance=1e-3,
            )  # fmt: skip
        with pytest.raises(InputError, match="stop must be a log norm, or infinite; got nan"):
            escape_flow(
                lambda W: W[1] @ (W[0] @ x.T), lambda Y: jnp.sum((Y - 1) ** 2), [np.ones((2, 2)), np.ones((1, 2))],
                degree=2, until=0.1, log_norm=-10.0, tolerance=1e-3, stop=np.nan,
            )  # fmt: skip
        with pytest.raises(InputError, match="Convert lists"):
            unit_learning(
                linear, (x.tolist(), [1.0] * 3), lambda f, y: (f - y) ** 2,
                parameters=np.zeros(3),
            )  # fmt: skip
