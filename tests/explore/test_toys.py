"""The toys: what they show, by law and not by picture."""

import numpy as np
import pytest

from saddlescope.explore.toys.linear_staircase import crossing_times
from saddlescope.reproduction import Outcome, RunContext, entry_names, find_entry
from saddlescope.reproduction.catalogue import toy_names

TOYS = {f"toys/{name}" for name in ("scale", "leaving", "concepts", "escape", "attention")}


@pytest.fixture(scope="module")
def toy(tmp_path_factory, types_unchecked):
    """Return a function that runs a toy, as the live page does, and judges it."""

    def run(name, **settings):
        entry = find_entry(name)
        with types_unchecked():
            made = entry.run(entry.configure("default", settings), RunContext(tmp_path_factory.mktemp("scratch")))
        return made, {verdict.claim: verdict for verdict in entry.judge(made)}

    return run


def test_there_are_five_and_they_are_in_no_list():
    assert set(toy_names()) == TOYS
    assert not set(toy_names()) & set(entry_names())


@pytest.mark.parametrize("name", toy_names())
def test_the_quick_size_has_figures_and_verdicts(name, tmp_path, types_unchecked):
    entry = find_entry(name)
    with types_unchecked():
        run = entry.run(entry.configure("quick"), RunContext(tmp_path))
    assert list(entry.figures(run))
    assert len(entry.judge(run)) == len(entry.claims)


def test_a_small_scale_makes_the_steps_and_a_large_one_melts_them(toy):
    _, small = toy("toys/scale", log10_scale="-64")
    _, large = toy("toys/scale", log10_scale="-0.5")
    assert small["times"].outcome is small["order"].outcome is Outcome.SEEN
    assert large["times"].outcome is Outcome.NOT_SEEN
    assert toy("toys/scale", log10_scale="-256")[1]["times"].value < small["times"].value / 2


def test_the_proxy_enters_leaves_and_returns_with_its_true_sign(toy):
    run, verdicts = toy("toys/leaving")
    proxy = run.beta.values[:, 2]
    assert proxy.max() > 0.5
    assert proxy[-1] == pytest.approx(-0.15, abs=1e-3)
    least = abs(proxy[proxy.argmax() :]).min()
    assert least < 1e-3
    assert verdicts["fate"].outcome is verdicts["times"].outcome is Outcome.SEEN
    run, verdicts = toy("toys/leaving", correlation="0.3")
    assert run.beta.values[:, 2].max() < 0.01
    assert verdicts["fate"].outcome is Outcome.SEEN


def test_the_order_of_concepts_flips_where_the_second_moments_do(toy):
    for diversity, first in (("0.2", 2), ("1.4", 1)):
        run, verdicts = toy("toys/concepts", diversity=diversity)
        half = (run.learned.median("start").values > 0.5).argmax(axis=0)  # the first time, by concept
        assert 1 + int(np.argmin(half)) == first
        assert verdicts["order"].outcome is Outcome.SEEN
    equal = toy("toys/concepts", signal="1.5")[1]["order"]
    assert equal.outcome is not Outcome.SEEN


def test_wide_networks_escape_faster_than_rank_one_and_narrow_ones_do_not(toy):
    run, narrow = toy("toys/escape", width="2")
    assert narrow["faster"].outcome is Outcome.NOT_SEEN
    assert float(run.speed.max()) < 0.4152
    run, wide = toy("toys/escape", width="16", starts="64")
    assert wide["faster"].value > 0.5
    assert 0.45 < float(run.speed.max()) <= 0.5 + 1e-9
    assert float(toy("toys/escape", depth="2", width="16")[0].speed.max()) < 0.4152  # depth 2 has no faster ones


def test_padding_to_the_widest_network_changes_nothing(toy):
    from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
    from saddlescope.theory.escape.sphere_descent import sphere_descent

    run, _ = toy("toys/escape", width="3", starts="8")
    rng = np.random.default_rng(0)
    full = [rng.standard_normal((8, *shape)) for shape in ((16, 2), (16, 16), (1, 16))]
    own = (full[0][:, :3], full[1][:, :3, :3], full[2][:, :, :3])
    X, G = alternating_circle(8)
    _, speeds = sphere_descent(own, X, G, steps=1000, learning_rate=0.03, record=run.step.values)
    np.testing.assert_allclose(run.speed.values[:, :10], speeds[:, :10], rtol=1e-9)  # later, chaos amplifies rounding


def test_each_flow_of_attention_has_its_own_norm(toy):
    run, verdicts = toy("toys/attention")
    assert verdicts["nuclear"].outcome is verdicts["frobenius"].outcome is Outcome.SEEN
    assert float(run.excess.min()) > -1e-6  # no flow is below a certified bound


def test_crossings_are_found_up_and_down():
    times = np.array([0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(crossing_times(times, np.array([0.0, 1.0, 1.0, 0.0]), 0.25), [0.25, 2.75])
