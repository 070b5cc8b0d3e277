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
            "predicted_constant": (("seed", "stage"), constants),
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


def _other_constants(rng):
    return _heads(rng).assign(predicted_constant=(("seed", "stage"), 5 * rng.standard_normal((3, 10))))


@pytest.mark.slow  # 200 draws of a long run
@pytest.mark.parametrize(
    ("claim", "null"),
    [
        ("order", _random_order),
        ("rate", _permuted("found_time")),
        ("constants", _permuted("found_time")),
        ("extrapolation", _permuted("found_time")),
        ("correction", _other_constants),
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
    beta = np.cumsum(np.eye(12), 0)
    spread = 0.02 * width[:, None, None] * (1 + 0.1 * rng.standard_normal((6, 12, 12)))
    return xr.Dataset(
        {
            "loss": (("scale", "time"), np.array(losses)),
            "predicted_loss_curve": ("time", staircase),
            "found_time": (("scale", "stage"), found),
            "plateau_beta": (("scale", "stage", "coordinate"), beta + spread),
            "predicted_beta": (("stage", "coordinate"), beta),
        },
        coords={"scale": scales, "time": time, "stage": np.arange(1, 13)},
    )


def _shuffled(rng):
    order = np.arange(6)
    while order.argmax() == 5:
        order = rng.permutation(6)
    return _figure_2(rng, order)


@pytest.mark.parametrize("claim", ["order", "loss-converges", "weights-converge"])
def test_figure_2(claim):
    ordered = lambda rng: _figure_2(rng, np.arange(6))  # noqa: E731
    assert_detects("gradual-rank/figure-2", claim, null=_shuffled, effect=ordered)


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


def _descent(power):
    def draw(rng):
        rates, kappa = np.array([1.0, 0.5, 0.25, 0.125]), rng.uniform(0.1, 1, 100)
        fall = 0.05 * rates[:, None] ** power * rng.uniform(0.5, 2, 100) * np.exp(0.005 * rng.standard_normal((4, 100)))
        after = kappa * np.exp(-fall)
        u, v = np.sqrt(kappa), np.zeros(100)
        return xr.Dataset(
            {
                "descent_kappa": (("rate", "time", "coordinate"), np.stack([np.tile(kappa, (4, 1)), after], 1)),
                "u": (("time", "coordinate"), np.stack([u, u])),
                "v": (("time", "coordinate"), np.stack([v, v])),
            },
            coords={"rate": rates},
        )

    return draw


def test_descent_power():
    assert_detects("gradual-rank/lemma-4-2", "descent-power", null=_descent(0.0), effect=_descent(1.0))


def _networks(gain, limit):
    def draw(rng):
        predicted = np.cumsum(rng.uniform(1, 2, (4, 1, 2, 8)), -1) * np.ones((1, 2, 1, 1))
        size = np.array([1.0, limit(rng)])[None, :, None, None] * np.array([1.0, 1 / gain(rng)])[:, None]
        error = 0.003 * size * np.exp(0.3 * rng.standard_normal((4, 2, 2, 8)))
        axes = ("network", "scale", "order", "stage")
        return xr.Dataset(
            {
                "told_time": (axes, predicted),
                "found_time": (axes, predicted * (1 + error)),
                "held": (("network", "stage"), np.ones((4, 8), bool)),
            },
            coords={"scale": [-32.0, -128.0], "order": ["limit", "finite"], "heads": ("network", np.ones(4, int))},
        )

    return draw


def test_transformers():
    none = _networks(lambda rng: 1.0, lambda rng: 1.0)
    law = _networks(lambda rng: 30.0, lambda rng: 0.25)
    assert_detects("gradual-rank/example-3-2", "correction", null=none, effect=law)
    assert_detects(
        "gradual-rank/example-3-2", "converges", null=_networks(lambda rng: 1.0, lambda rng: 1.3), effect=law
    )


def _stages(power, drop, plateaus=40):
    def draw(rng):
        scales = np.array([-8.0, -16.0, -32.0, -64.0])
        share = 0.45 * (scales / -8.0) ** power
        hidden = np.array([0.0, drop])[:, None, None, None]
        there = rng.uniform(size=(2, 12, 1, plateaus)) > np.minimum(share[:, None] + hidden, 1)
        axes = ("dim", "seed", "scale", "plateau")
        return xr.Dataset(
            {"found": (axes, there.astype(float)), "plateaus": (("dim", "seed"), np.full((2, 12), plateaus))},
            coords={"dim": [4, 16], "seed": range(12), "scale": scales},
        )

    return draw


@pytest.mark.slow  # 200 draws of a long run
def test_resolved_stages():
    for claim, power in (("unresolved", -0.75), ("one-over-log", -1.0)):
        assert_detects("gradual-rank/resolved-stages", claim, null=_stages(0.0, 0.0), effect=_stages(power, 0.0, 400))
    assert_detects("gradual-rank/resolved-stages", "dimension", null=_stages(-0.7, 0.0), effect=_stages(-0.7, 0.3))


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
                "found_error": (("scale", "stage"), np.full((2, 6), 1e-6)),
                "efolds_per_log": ("stage", np.full(6, 1.0)),
            },
            coords={"scale": [-32.0, -128.0], "stage": np.arange(1, 7)},
            attrs={"level": 0.01},
        )

    return draw


@pytest.mark.parametrize("claim", ["order", "times", "law"])
def test_full_weights(claim):
    assert_detects("gradual-rank/figure-2-v1", claim, null=_full_weights(False), effect=_full_weights(True))


def _rises(centre):
    return lambda rng: xr.Dataset(
        {"blurred_in_transit": ("draw", np.maximum(1, centre + 0.1 * rng.standard_normal(6)))}
    )


def test_overlap():
    assert_detects("gradual-rank/figure-2-v1", "blurred", null=_rises(1.1), effect=_rises(2.0))


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


def _tail(converges):
    def draw(rng):
        moments = np.array([4.0, 16.0, 64.0, 256.0])
        spread = np.exp(0.02 * rng.standard_normal((8, 4)))
        norm = 3 - np.exp(-moments / 10) if converges else np.log(moments) * 2
        curvature = np.full(4, 0.2) if converges else 1 / moments
        return xr.Dataset(
            {"tail_norm": (("seed", "moment"), norm * np.ones((8, 1)) + 1e-3 * spread),
             "tail_curvature": (("seed", "moment"), curvature * spread)},
            coords={"moment": moments},
        )  # fmt: skip

    return draw


@pytest.mark.parametrize("claim", ["tails-grow", "tails-flat"])
def test_exponential_tails(claim):
    assert_detects("gradual-rank/lemmas", claim, null=_tail(True), effect=_tail(False))
