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


@pytest.mark.slow  # 200 draws of a long run
@pytest.mark.parametrize(
    ("claim", "null"),
    [
        ("order", _random_order),
        ("rate", _permuted("found_time")),
        ("constants", _permuted("found_time")),
        ("weights-converge", _permuted("theta_distance")),
    ],
)
def test_theorem_4_1(claim, null):
    assert_detects("gradual-rank/theorem-4-1", claim, null=null, effect=_heads)


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


@pytest.mark.parametrize("claim", ["order", "loss-converges"])
def test_figure_2(claim):
    ordered = lambda rng: _figure_2(rng, np.arange(6))  # noqa: E731
    assert_detects("gradual-rank/figure-2", claim, null=_shuffled, effect=ordered)


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


def test_figure_8():
    assert_detects("gradual-rank/figure-8", "limit", null=_diagonals(True), effect=_diagonals(False))


def _loss_at_one_percent(rates):
    def draw(rng):
        time, (starts, speeds) = np.linspace(0, 200, 701), rates(rng)
        loss = sum(1 / (1 + np.exp(speeds[k] * (time - starts[k]))) for k in range(len(starts)))
        return xr.Dataset({"loss": (("scale", "time"), loss[None])}, {"scale": [-2.0], "time": time})

    return draw


def test_plateau_of_the_loss():
    """One sigmoid, whatever its place and speed, has no plateau between two drops; two separate ones have."""
    one = _loss_at_one_percent(lambda rng: (rng.uniform(20, 180, 1), rng.uniform(0.05, 1, 1)))
    two = _loss_at_one_percent(lambda rng: (np.array([60, 140]) + rng.uniform(-9, 9, 2), rng.uniform(0.2, 1, 2)))
    assert_detects("gradual-rank/figure-2", "one-percent", null=one, effect=two)


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


def test_transformers():
    assert_detects("gradual-rank/example-3-2", "converges", null=_networks(1.3), effect=_networks(0.25))


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


@pytest.mark.slow  # 200 draws of a long run
def test_resolved_stages():
    null, effect = _stages(0.0), _stages(-1.0, 400)
    assert_detects("gradual-rank/resolved-stages", "one-over-log", null=null, effect=effect)


def _full_weights(ordered):
    """Return six stages at two scales whose times have a delay per stage, or at permuted times."""

    def draw(rng):
        predicted, log = np.cumsum(rng.uniform(0.3, 1, 6)), np.array([32.0, 128.0]) * np.log(10)
        found = predicted + rng.uniform(-1, 1, 6) / log[:, None]
        if not ordered:
            found = rng.permuted(found, axis=1)
        return xr.Dataset(
            {
                "predicted_time": ("stage", predicted),
                "found_time": (("scale", "stage"), found),
            },
            coords={"scale": [-32.0, -128.0], "stage": np.arange(1, 7)},
        )

    return draw


def test_full_weights():
    assert_detects("gradual-rank/figure-2-v1", "order", null=_full_weights(False), effect=_full_weights(True))


def _plateaus(name, falls):
    def draw(rng):
        values = (np.array([1.0, 0.5, 0.25]) if falls else np.ones(3)) * np.exp(0.1 * rng.standard_normal((8, 1, 2, 3)))
        return xr.Dataset(
            {name: (("seed", "none", "plateau", "scale"), values)}, coords={"scale": [-32.0, -64.0, -128.0]}
        )

    return draw


@pytest.mark.parametrize(("claim", "name"), [("c-6", "log_error"), ("c-7", "time_error")])
def test_lemmas(claim, name):
    assert_detects("gradual-rank/lemmas", claim, null=_plateaus(name, False), effect=_plateaus(name, True))


def _largest_weights(grows):
    def draw(rng):
        size = rng.uniform(1, 3, (8, 1, 3)) * (1 + 1e-4 * rng.standard_normal((8, 3, 3)))
        size *= np.array([1.0, 1.05, 1.1])[:, None] if grows else 1.0
        return xr.Dataset({"largest_weight": (("seed", "scale", "plateau"), size)})

    return draw


def test_existence():
    assert_detects("gradual-rank/lemmas", "existence", null=_largest_weights(True), effect=_largest_weights(False))


def _tail(converges):
    def draw(rng):
        moments = np.array([4.0, 16.0, 64.0, 256.0])
        norm = 3 - np.exp(-moments / 10) if converges else np.log(moments) * 2
        noise = 1e-3 * np.exp(0.02 * rng.standard_normal((8, 4)))
        return xr.Dataset({"tail_norm": (("seed", "moment"), norm + noise)}, coords={"moment": moments})

    return draw


def test_exponential_tails():
    assert_detects("gradual-rank/lemmas", "tails-grow", null=_tail(True), effect=_tail(False))
