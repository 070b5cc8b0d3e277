"""Runs of the symmetric two-layer network: pushes, stage times, the authors' programs, against other computations."""

import numpy as np
import pytest

from saddlescope.flow import symmetric_flows
from saddlescope.papers.concept_learning.shared.authors_programs import PROGRAMS
from saddlescope.papers.concept_learning.shared.discrete_maps import gradient_runs, printed_runs
from saddlescope.papers.concept_learning.shared.two_layer_runs import entry_index, of_authors, push_share

A = np.array([0.3, 0.9, 1.6])
STARTS = 0.3 * np.random.default_rng(8).standard_normal((4, 3, 3))


@pytest.mark.parametrize("figure", ["8", "9"])
def test_the_pushes_add_up_to_the_change_of_the_loss(figure, quick_run):
    run = quick_run(f"concept-learning/figure-{figure}").run
    np.testing.assert_allclose(run.push.sum(("entry", "phase")), run.turning_loss.diff("turn"), atol=1e-9)
    minor, grows = run.entry_row != run.entry_column, run.phase == "grows"
    for rising in (True, False):
        shares = [push_share(run, kind & phase, rising=rising) for kind in (minor, ~minor) for phase in (grows, ~grows)]
        np.testing.assert_allclose(sum(shares), 1.0)


@pytest.mark.parametrize("figure", ["8", "9"])
def test_the_authors_run_is_the_flow_with_a_squared_from_their_start(figure, quick_run):
    one, program = of_authors(quick_run(f"concept-learning/figure-{figure}").run), PROGRAMS[f"Figure {figure}"]
    flow = symmetric_flows(
        program.strengths**2, program.start[None], test_point=program.test_point, until=50.0, tolerance=1e-10
    )
    np.testing.assert_allclose(one.turning_time[1:-1], flow.turning_times[0, 1 : flow.turns[0] + 1], atol=1e-6)
    np.testing.assert_allclose(one.loss[-1], flow.losses[0, -1], atol=1e-9)


def test_the_programs_start_is_that_of_pytorchs_generator():
    torch = pytest.importorskip("torch")
    for program, seed in zip(PROGRAMS.values(), (2333, 233333, 233333, 233333), strict=True):
        d = len(program.mu)
        drawn = torch.rand(d, d, generator=torch.Generator().manual_seed(seed)).numpy()
        np.testing.assert_allclose(program.start * program.divisor, drawn, atol=1e-8)


def test_rates_and_peaks_of_entries_are_those_of_the_initial_phase(quick_run):
    run = quick_run("concept-learning/figure-4").run
    a = np.sort(run.strength.values[run.strength.values > 0])[::-1]
    rates = run.rate.isel(scale=-1).values
    np.testing.assert_allclose(rates, np.broadcast_to(2 * (a[:, None] + a), rates.shape), rtol=0.05)
    assert np.all(run.peak_time.values > run.major_time.values[..., run.strong.values])  # half learned before
    assert np.all(run.suppressed.values > run.peak_time.values)


def test_entries_that_peak_together_or_are_never_suppressed_are_out_of_order(quick_run, inside):
    found = quick_run("concept-learning/figure-4")
    never, together = found.run.copy(deep=True), found.run.copy(deep=True)
    never.suppressed[0, 0, 0] = np.inf
    together.peak_time[:] = together.peak_time.values.max()
    for run in (never, together):
        assert "groups" not in inside(found.entry, run)


def test_the_errors_without_noise_are_what_the_schur_complements_say(quick_run):
    run = quick_run("concept-learning/equation-4-3").run
    late = (run.schur_time - run.bare_time).isel(scale=slice(1, None)).values
    np.testing.assert_allclose(late[0], late[1], atol=1e-3)  # whatever the scale
    assert np.all(late > -1e-12)
    np.testing.assert_allclose(late[..., int(np.argmax(run.strength.values))], 0, atol=1e-9)
    np.testing.assert_allclose(run.schur_time[-1], run.found_time[-1], atol=1e-3)


def test_the_plateau_shown_is_the_longest_of_the_batch(quick_run):
    run = quick_run("concept-learning/figure-10").run
    half = float(run.top[entry_index(run, 0, 0)])
    np.testing.assert_allclose(half, run.learned_at.max(), atol=1e-6)  # the batch is followed coarsely
    assert half > float(run.horizon)


def test_the_authors_run_of_figure_10_is_that_of_their_program(quick_run):
    """Forty steps of their formula, in the order and the precision of their program."""
    program, D = PROGRAMS["Figure 10"], np.diag(PROGRAMS["Figure 10"].strengths).astype(np.float32)
    D2, U = D @ D, program.start.astype(np.float32)
    W, lost = U @ U.T, 0
    for step in range(1, 41):
        W = W + np.float32(0.01) * (W @ D2 + D2 @ W - W @ D2 @ W - (D2 @ W @ W + W @ W @ D2) / 2)
        lost = lost or step * (np.linalg.eigvalsh(W.astype(float))[0] < -1e-12)
    one = quick_run("concept-learning/figure-10").run.sel(map="D.2", moment="A^2")
    assert lost == int(one.theirs_lost) == 32
    np.testing.assert_allclose(one.theirs.sel(theirs_step=40), W[0, 0], rtol=1e-4)


def test_one_printed_step_is_equation_d2():
    runs = printed_runs(A, STARTS, step=0.1, steps=1, keep=1)
    D = np.diag(A)
    for start, W in zip(STARTS, runs.W[:, 1], strict=True):
        W0 = start @ start.T
        expected = W0 @ D + D @ W0 - (D @ W0 @ W0 + W0 @ W0 @ D + 2 * W0 @ D @ W0) / 2
        np.testing.assert_allclose((W - W0) / 0.1, expected, atol=1e-12)
    np.testing.assert_allclose(runs.times, [0.0, 0.05])  # half the time of gradient flow


@pytest.mark.parametrize(("runs", "time"), [(gradient_runs, 1.0), (printed_runs, 2.0)])
def test_both_maps_go_to_the_flow_in_first_order(runs, time):
    flow = symmetric_flows(A, STARTS, test_point=np.ones(3), until=1.0, tolerance=1e-11).W[:, -1]
    errors = []
    for steps in (1000, 2000):
        found = runs(A, STARTS, step=time / steps, steps=steps, keep=2)
        assert found.times[-1] == pytest.approx(1.0)
        errors.append(np.abs(found.W[:, -1] - flow).max())
    assert errors[0] < 5e-3
    assert 1.8 < errors[0] / errors[1] < 2.2
