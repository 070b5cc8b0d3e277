"""Statistics of the theory entries that detect an effect do not find it where there is none."""

import numpy as np
import pytest
import xarray as xr

from null_runs import assert_detects

SCALES = np.array([-32.0, -64.0, -1024.0, -4096.0])
UNIT = -SCALES * np.log(10)


def _heads(rng):
    """Return three heads of ten stages at T_k + C_k / log(1/α), up to half a per mille of C_k."""
    predicted = np.cumsum(rng.uniform(5, 15, (3, 10)), 1) + 50
    constants = rng.choice([-1, 1], (3, 10)) * rng.uniform(1, 5, (3, 10))
    found = predicted[:, None] + constants[:, None] / UNIT[:, None] * (1 + 5e-4 * rng.standard_normal((3, 4, 10)))
    distances = np.exp(-UNIT[:, None] / 60) * rng.uniform(0.5, 2, (3, 1, 10))
    axes = ("seed", "scale", "stage")
    return xr.Dataset(
        {
            "predicted_time": (("seed", "stage"), predicted),
            "separated": (("seed", "stage"), np.ones((3, 10))),
            "found_time": (axes, found),
            "coarse_time": (axes, found + 1e-9),
            "theta_distance": (axes, distances),
        },
        coords={"scale": SCALES, "stage": np.arange(1, 11), "seed": range(3)},
    )


def _permuted(name):
    """Return heads with a variable permuted over scales, in each head on its own and never as it was."""

    def draw(rng):
        run = _heads(rng)
        for head in run[name].values:
            head[:] = head[rng.choice([[1, 0, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]])]
        return run.assign(coarse_time=run.found_time + 1e-9)

    return draw


def _random_order(rng):
    run = _heads(rng)
    found = rng.permuted(run.found_time.values, axis=2)
    return run.assign(found_time=(run.found_time.dims, found), coarse_time=(run.found_time.dims, found))


def _figure_2(rng, order):
    """Return twelve stages and a loss at six scales, of which the later are nearer to the staircase."""
    time, predicted = np.linspace(0, 200, 401), np.sort(rng.uniform(50, 150, 12))
    staircase = 1 - (predicted[:, None] <= time).sum(0) / 13
    scales = np.array([-1.0, -2.0, -4.0, -8.0, -16.0, -32.0])
    width = (8 / -scales)[order]
    losses = [1 - (1 / (1 + np.exp(-(time - predicted[:, None]) / w))).sum(0) / 13 for w in width]
    found = predicted + width[:, None] * rng.standard_normal(12) * np.where(order.argmax() == 5, 0.01, 10)
    return xr.Dataset(
        {
            "loss": (("scale", "time"), np.array(losses)),
            "predicted_loss_curve": ("time", staircase),
            "found_time": (("scale", "stage"), found),
        },
        coords={"scale": scales, "time": time, "stage": np.arange(1, 13)},
    )


def _shuffled(rng):
    order = np.arange(6)
    while order.argmax() == 5:
        order = rng.permutation(6)
    return _figure_2(rng, order)


def _diagonals(shuffle):
    """Return entries of both products at four scales, each nearer to the staircase, or in another order."""

    def draw(rng):
        order = np.arange(4)
        while shuffle and (order == np.arange(4)).all():
            order = rng.permutation(4)
        time, predicted = np.linspace(0, 200, 201), np.sort(rng.uniform(50, 150, 6))
        width = np.array([8.0, 4.0, 2.0, 1.0])[order] * np.exp(0.05 * rng.standard_normal(4))
        beta = 1 / (1 + np.exp(-(time[:, None] - predicted) / width[:, None, None]))
        return xr.Dataset(
            {
                "beta": (("scale", "time", "coordinate"), beta),
                "predicted_beta": (("stage", "coordinate"), np.tril(np.ones((6, 6)))),
                "predicted_time": ("stage", predicted),
            },
            coords={"scale": [-2.0, -4.0, -8.0, -16.0], "time": time},
        )

    return draw


def _loss_at_one_percent(starts, speeds):
    time = np.linspace(0, 200, 701)
    loss = sum(1 / (1 + np.exp(speed * (time - start))) for start, speed in zip(starts, speeds, strict=True))
    return xr.Dataset({"loss": (("scale", "time"), loss[None])}, {"scale": [-2.0], "time": time})


def _networks(ratio):
    def draw(rng):
        predicted = np.cumsum(rng.uniform(1, 2, (4, 8)), -1)
        error = 0.003 * np.array([1.0, ratio])[:, None] * np.exp(0.3 * rng.standard_normal((4, 2, 8)))
        return xr.Dataset(
            {
                "predicted_time": (("network", "stage"), predicted),
                "found_time": (("network", "scale", "stage"), predicted[:, None] * (1 + error)),
                "held": (("network", "stage"), np.ones((4, 8), bool)),
            },
            coords={"scale": [-32.0, -128.0], "heads": ("network", np.ones(4, int))},
        )

    return draw


def _stages(power, plateaus=40):
    def draw(rng):
        scales = np.array([-8.0, -16.0, -32.0, -64.0])
        share = 0.45 * (scales / -8.0) ** power
        there = rng.uniform(size=(2, 12, 1, plateaus)) > share[:, None]
        axes = ("dim", "seed", "scale", "plateau")
        return xr.Dataset(
            {"found": (axes, there.astype(float)), "plateaus": (("dim", "seed"), np.full((2, 12), plateaus))},
            coords={"dim": [4, 16], "seed": range(12), "scale": scales},
        )

    return draw


def _full_weights(ordered):
    """Return six stages at two scales whose times have a delay per stage, or at permuted times."""

    def draw(rng):
        predicted, log = np.cumsum(rng.uniform(0.3, 1, 6)), np.array([32.0, 128.0]) * np.log(10)
        found = predicted + rng.uniform(-1, 1, 6) / log[:, None]
        if not ordered:
            found = rng.permuted(found, axis=1)
        return xr.Dataset(
            {"predicted_time": ("stage", predicted), "found_time": (("scale", "stage"), found)},
            coords={"scale": [-32.0, -128.0], "stage": np.arange(1, 7)},
        )

    return draw


def _plateaus(name, falls):
    def draw(rng):
        values = (np.array([1.0, 0.5, 0.25]) if falls else np.ones(3)) * np.exp(0.1 * rng.standard_normal((8, 1, 2, 3)))
        return xr.Dataset(
            {name: (("seed", "none", "plateau", "scale"), values)}, coords={"scale": [-32.0, -64.0, -128.0]}
        )

    return draw


def _largest_weights(grows):
    def draw(rng):
        size = rng.uniform(1, 3, (8, 1, 3)) * (1 + 1e-4 * rng.standard_normal((8, 3, 3)))
        size *= np.array([1.0, 1.05, 1.1])[:, None] if grows else 1.0
        return xr.Dataset({"largest_weight": (("seed", "scale", "plateau"), size)})

    return draw


def _tail(converges):
    def draw(rng):
        moments = np.array([4.0, 16.0, 64.0, 256.0])
        norm = 3 - np.exp(-moments / 10) if converges else np.log(moments) * 2
        noise = 1e-3 * np.exp(0.02 * rng.standard_normal((8, 4)))
        return xr.Dataset({"tail_norm": (("seed", "moment"), norm + noise)}, coords={"moment": moments})

    return draw


def _one_drop(rng):
    return _loss_at_one_percent(rng.uniform(20, 180, 1), rng.uniform(0.05, 1, 1))


def _two_drops(rng):
    return _loss_at_one_percent(np.array([60, 140]) + rng.uniform(-9, 9, 2), rng.uniform(0.2, 1, 2))


def _ordered(rng):
    return _figure_2(rng, np.arange(6))


LONG = pytest.mark.slow  # 200 draws of a long run


@pytest.mark.parametrize(
    ("entry", "claim", "null", "effect"),
    [
        pytest.param("theorem-4-1", "order", _random_order, _heads, marks=LONG),
        pytest.param("theorem-4-1", "rate", _permuted("found_time"), _heads, marks=LONG),
        pytest.param("theorem-4-1", "weights-converge", _permuted("theta_distance"), _heads, marks=LONG),
        ("figure-2", "order", _shuffled, _ordered),
        ("figure-2", "loss-converges", _shuffled, _ordered),
        ("figure-2", "one-percent", _one_drop, _two_drops),
        ("figure-8", "limit", _diagonals(True), _diagonals(False)),
        ("example-3-2", "converges", _networks(1.3), _networks(0.25)),
        pytest.param("resolved-stages", "one-over-log", _stages(0.0), _stages(-1.0, 400), marks=LONG),
        ("figure-2-v1", "order", _full_weights(False), _full_weights(True)),
        ("lemmas", "c-6", _plateaus("log_error", False), _plateaus("log_error", True)),
        ("lemmas", "c-7", _plateaus("time_error", False), _plateaus("time_error", True)),
        ("lemmas", "existence", _largest_weights(True), _largest_weights(False)),
        ("lemmas", "tails-grow", _tail(True), _tail(False)),
    ],
)
def test_claims_are_not_found_where_there_is_no_effect(entry, claim, null, effect):
    assert_detects(f"gradual-rank/{entry}", claim, null=null, effect=effect)
