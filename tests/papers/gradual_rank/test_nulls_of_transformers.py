"""Claims of trained networks hardly ever hold on random runs without the effect, and hold on runs with it."""

import numpy as np
import pytest
import xarray as xr

from null_runs import assert_detects
from saddlescope.measure import energy_rank, rank_staircases, stable_rank

PRODUCTS = ["KQ", "VO"]
HEADS = ("layer", "head")
STEP = np.unique(np.geomspace(1, 900, 40).astype(int))


def entry(name):
    return f"gradual-rank/{name}"


def detects(name, claim, *, null, effect):
    """As `assert_detects`, of networks that have learned."""

    def taught(made):
        losses = {"train_loss": ("epoch", [1.0, 0.1]), "test_loss": ("test_step", [5.0, 1.0])}
        return lambda rng: made(rng).assign(losses).assign_attrs(guess_loss=2.0, steps_per_epoch=11)

    assert_detects(entry(name), claim, null=taught(null), effect=taught(effect))


def walks(rng, *, seeds=6, heads=4, drift=(0.0, 0.0)):
    """Stable ranks as random walks in log step: a part that the heads of a network share, and one of each head."""
    shape = (seeds, len(STEP), 2, heads, 2)
    walk = rng.normal(0, 0.02, (seeds, len(STEP), 1, 1, 1)) + rng.normal(0, 0.04, shape)
    rank = 2.5 * np.exp(np.cumsum(walk, axis=1) + np.linspace(0, 1, len(STEP))[:, None, None, None] * drift)
    dims = ("seed", "step", *HEADS, "product")
    initial = ((*(dims[:1] + dims[2:]), "index"), np.ones((seeds, 2, heads, 2, 8)))
    made = {"stable_rank": (dims, 1 + rank), "initial_spectrum": initial}
    return xr.Dataset(made, {"step": STEP, "product": PRODUCTS})


@pytest.mark.parametrize("drift", [(0.0, 0.0), (0.0, 0.9)])
@pytest.mark.parametrize("name", ["figure-12", "figure-20"])
def test_ranks_that_wander_do_not_rise_nor_do_those_of_one_product(name, drift):
    effect = lambda rng: walks(rng, drift=(0.9, 0.9))  # noqa: E731
    detects(name, "rise", null=lambda rng: walks(rng, drift=drift), effect=effect)


def test_matrices_whose_ranks_wander_do_not_rise():
    def of_matrices(run):
        kinds = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
        rank = run.stable_rank.stack(kind=("head",)).isel(product=0, drop=True).drop_vars(["kind", "head"])
        return xr.Dataset({"matrix_stable_rank": rank.assign_coords(kind=kinds)})

    detects(
        "full-matrices",
        "rise",
        null=lambda rng: of_matrices(walks(rng, seeds=3)),
        effect=lambda rng: of_matrices(walks(rng, seeds=3, drift=(2.0, 2.0))),
    )


def products(rng, *, directions=None, width=24, inner=12):
    """Spectra of random products and of their updates, by factors that move at random or along a few directions.

    The update of W_K W_Qᵀ is dK Qᵀ + K dQᵀ. Learned steps are of low rank: the same few vectors move all columns.
    """
    shape = (4, 2, 3, 2)  # seeds, layers, heads, products
    key, query = rng.normal(size=(2, *shape, width, inner))
    if directions is None:
        moved = 0.1 * rng.normal(size=(2, *shape, width, inner))
    else:
        left, right = (rng.normal(size=(2, *shape, n, directions)) for n in (width, inner))
        moved = 0.1 * left @ np.swapaxes(right, -1, -2)
    update = moved[0] @ np.swapaxes(query, -1, -2) + key @ np.swapaxes(moved[1], -1, -2)
    before = np.linalg.svd(key @ np.swapaxes(query, -1, -2), compute_uv=False)
    after = np.linalg.svd(update, compute_uv=False)
    dims = ("seed", *HEADS, "product")
    steps = np.array([11, 900])
    return xr.Dataset(
        {
            "initial_spectrum": ((*dims, "index"), before),
            "initial_stable_rank": (dims, stable_rank(before)),
            "initial_energy_rank": (dims, energy_rank(before, fraction=0.9)),
            "energy_rank": (dims, energy_rank(after, fraction=0.9)),
            "stable_rank": (("step", *dims), np.stack([stable_rank(after)] * 2)),
            "update_spectrum": (("step", *dims, "index"), np.stack([after] * 2)),
        },
        {"step": steps, "product": PRODUCTS},
        attrs={"steps_per_epoch": 11},
    )


@pytest.mark.slow  # 200 draws of a long run
@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("figure-12", "low"),
        ("figure-4", "spectrum-KQ"),
        ("figure-1", "narrow"),
        ("figure-20", "low"),
        ("figure-20", "throughout"),
    ],
)
def test_updates_of_random_directions_are_not_of_low_rank(name, claim):
    detects(name, claim, null=products, effect=lambda rng: products(rng, directions=1))


def test_spectra_that_fluctuate_do_not_widen():
    def made(rng, growth=0.0):
        shape = (6, len(STEP), 2, 4, 2)
        length = 3 * np.exp(rng.normal(0, 0.2, shape) + rng.normal(0, 0.1, (6, len(STEP), 1, 1, 1)))
        length *= np.exp(growth * np.linspace(0, 1, len(STEP)))[:, None, None, None]
        spectrum = np.exp(-np.arange(24) / length[..., None])
        dims = ("seed", "step", *HEADS, "product", "index")
        return xr.Dataset({"update_spectrum": (dims, spectrum)}, {"step": STEP, "product": PRODUCTS})

    detects("figure-1", "widens", null=made, effect=lambda rng: made(rng, 0.9))


def test_ranks_of_any_scale_do_not_fall_with_it():
    def made(rng, power=0.0):
        scales, shape = np.array([1.0, 0.3, 0.1]), (3, 6, 1, 3, 4, 2)
        rank = 3 * scales[:, None, None, None, None, None] ** power
        rank = rank * np.exp(rng.normal(0, 0.2, shape) + rng.normal(0, 0.1, (3, 6, 1, 1, 1, 1)))
        dims = ("scale", "seed", "step", *HEADS, "product")
        return xr.Dataset({"stable_rank": (dims, 1 + rank)}, {"scale": scales, "product": PRODUCTS})

    detects("figure-6", "falls", null=made, effect=lambda rng: made(rng, 0.4))


def stepwise(rng, shares):
    """A share of updates with a step at each of three scales; the heads of a network are alike in part."""
    share = np.clip(np.array(shares)[:, None] + rng.normal(0, 0.08, (3, 4)), 0, 1)
    steps = rng.random((2, 3, 4, 3, 4, 2)) < share[None, :, :, None, None, None]
    dims = ("clock", "scale", "seed", *HEADS, "product")
    coords = {"clock": ["steps", "rates"], "scale": [1.0, 0.1, 0.03], "product": PRODUCTS}
    return xr.Dataset({"rank_steps": (dims, steps.astype(int))}, coords)


@pytest.mark.parametrize(("claim", "share"), [("stairs", 0.4), ("falls", 0.5)])
def test_steps_that_do_not_depend_on_the_scale_are_none_of_small_scales(claim, share):
    detects(
        "rank-steps",
        claim,
        null=lambda rng: stepwise(rng, [share] * 3),
        effect=lambda rng: stepwise(rng, [0.05, 0.75, 0.95]),
    )


def test_smooth_growth_is_no_staircase():
    """The detector on singular values that grow one after the other as powers of time, with noise of 3 %."""
    time = np.unique(np.geomspace(1, 900, 60).astype(int)).astype(float)

    def made(rng, *, abrupt):
        shape = (4, 3)  # seeds, heads
        begins = rng.uniform(0.2, 0.4, shape)[..., None] * np.array([1.0, 2.0])
        if abrupt:
            values = 1e-3 + 1 / (1 + np.exp(-(time[:, None, None, None] / 900 - begins) / 0.01))
        else:
            values = (time[:, None, None, None] / 900) ** rng.uniform(0.7, 1.5, shape)[..., None] * [1.0, 0.6]
        values = np.sort(values * np.exp(rng.normal(0, 0.03, values.shape)), axis=-1)[..., ::-1]
        found = rank_staircases(time, values, np.full((len(time), *shape), 1e-6), time_unit="")
        counts = np.array([len(one.times) for one in found.flat]).reshape(1, 1, *shape, 1, 1)
        dims = ("clock", "scale", "seed", "head", "layer", "product")
        return xr.Dataset({"rank_steps": (dims, counts)}, {"clock": ["steps"], "scale": [0.03]})

    rng = np.random.default_rng(0)
    smooth, stairs = (
        float((xr.concat([made(rng, abrupt=abrupt) for _ in range(n)], "draw").rank_steps > 0).mean())
        for abrupt, n in ((False, 20), (True, 5))
    )
    assert smooth <= 0.05
    assert stairs >= 0.9


def descents(rng, ordered=True):
    """Stage times of SGD."""
    times = np.array([50.0, 60.0, 75.0, 90.0])
    sgd = times + 0.1 * rng.normal(0, 1, (160, 4))
    if not ordered:
        sgd = rng.permuted(sgd, axis=-1)
    return xr.Dataset({"flow_time": ("stage", times), "sgd_time": (("run", "stage"), sgd)})


def loras(rng, gain):
    fall = 0.27 + rng.normal(0, 0.02, (4, 2, 1)) + rng.normal(0, 0.012, (4, 2, 2))
    fall[..., 1] += gain
    return xr.Dataset(
        {
            "test_loss": (("seed", "budget", "arm", "test"), np.stack([np.full_like(fall, 5.0), 5 - fall], axis=-1)),
            "rank": (("seed", "budget", "table", "matrix"), np.full((4, 2, 2, 8), 2)),
            "parameters_a_rank": ("matrix", [1] * 8),
        },
        {"table": ["constant", "schedule"], "arm": ["constant", "schedule"]},
    )


def noisy(rng, decay=0.0):
    kept = np.exp(np.cumsum(rng.normal(-decay, 0.1, (5, 40, 1, 1)), axis=1))
    kept[:, 0] = 1.0
    noise, without = kept * rng.normal(0, 0.05, (5, 1, 2, 8)), np.ones((5, 40, 2, 8))
    dims = ("moment", "step", "factor", "coordinate")
    both = np.stack([without + noise, without], axis=1)[:, None]  # one order of minibatches
    return xr.Dataset(
        {
            "weights": (dims, without),
            "noisy": (dims, without + noise),
            "sgd": (("moment", "order", "noise", "sgd_step", "factor", "coordinate"), both),
        },
        {"factor": ["u", "v"], "noise": ["with", "without"]},
    )


def shares(rng, own=False):
    predicted = rng.lognormal(0, 1, (5, 2))
    found = predicted if own else rng.lognormal(0, 1, (5, 2))
    found = np.stack([found * np.exp(rng.normal(0, 1e-6, (5, 2)))] * 2, axis=1)
    made = {"predicted_share": (("seed", "head"), predicted), "found_pair": (("seed", "scale", "head"), found)}
    return xr.Dataset(made, {"head": [1, 2]})


def with_values(made, *values):
    return lambda rng: made(rng, *values)


@pytest.mark.parametrize(
    ("name", "claim", "null", "effect"),
    [
        ("gradient-descent", "sgd-order", with_values(descents, False), descents),
        ("lora-schedule", "better", with_values(loras, (0.0, 0.0)), with_values(loras, (0.1, 0.1))),
        ("lora-schedule", "better", with_values(loras, (0.1, 0.0)), with_values(loras, (0.1, 0.1))),
        ("figure-10", "beta-returns", noisy, with_values(noisy, 0.3)),
        ("tied-heads", "ratio", shares, with_values(shares, True)),
    ],
)
def test_claims_are_not_found_where_there_is_no_effect(name, claim, null, effect):
    assert_detects(entry(name), claim, null=null, effect=effect)
