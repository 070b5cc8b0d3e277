"""Outcomes of quick runs, and what leaves them open."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction import RunContext, entry_names, find_entry

OPEN = {
    "beyond/escape-time": {"logarithm": "undecided"},  # of two scales
    "deep-relu/conjecture-4": {"digits": "undecided"},
    "deep-relu/figure-2": dict.fromkeys(("rises", "conjecture-1", "conjecture-1-harder"), "undecided"),
    "deep-relu/proposition-2-2": {"growth-printed": "fails"},
    "gradual-rank/assumptions": {"leaving": "undecided"},  # nothing leaves on these two seeds
    "gradual-rank/gradient-descent": {"sgd-order": "undecided"},  # four of four
    "gradual-rank/theorem-4-1": {"weights-converge": "undecided"},  # all weights are as near as the flow resolves
    "gradual-rank/tied-heads": {"at-most-one": "fails"},
    "softmax-attention/assumption-3": {"not-necessary": "undecided"},  # of two draws
    "softmax-attention/digits": {"ranks": "undecided"},  # of one pair
    "softmax-attention/initial-scale": {"smaller-is-not-better": "undecided"},
    "softmax-attention/lemma-4-2": {"as-printed": "fails"},
    "softmax-attention/narrow-heads": {"rank-is-enough": "undecided", "one-column": "not seen"},  # of two draws
    "softmax-attention/section-4-2": {"nuclear-rate": "undecided", "low-rank": "undecided"},  # of four draws
    "softmax-attention/separability": {"diagonal-w-above-n-and-l": "undecided"},  # of twenty draws
    "softmax-attention/theorem-4-1": {"raw-rate": "undecided", "raw-is-far": "undecided"},
}
"""Outcomes other than holds, agrees and seen at the quick size."""
LONGER = {"beyond/modular-addition", *(f"deep-relu/{name}" for name in ("figure-1", "figure-4", "escape-width"))}
"""Entries whose quick runs are too short for their claims."""
PAPERS = ("beyond/", "deep-relu/", "softmax-attention/")
THEORY = (
    *("assumptions", "diagonal-linear", "example-3-2", "figure-10", "figure-11", "figure-2", "figure-8", "figure-2-v1"),
    *("gradient-descent", "lemma-4-2", "theorem-4-1", "tied-heads"),
)
"""Entries of gradual-rank that train no network."""
WHOLE = {name for name in entry_names() if name.startswith(PAPERS)} - LONGER | {f"gradual-rank/{n}" for n in THEORY}
SHORT = {
    "assumptions": {"in-practice": "differs", "largest-omega": "seen"},
    "early-alignment": {"aligned": "seen", "linear-outside": "seen", "every-neuron": "seen", "too-large": "seen"},
    "equation-4-3": {"noise-omitted": "agrees"},
    "figure-4": {"initial-growth": "agrees", "irrelevant-later": "seen"},
    "figure-5": {"two-descents": "agrees", "rise": "agrees", "reversal-often": "agrees"},
    "figure-7": {"strictly": "not seen", "order": "agrees"},
    "figure-8": dict.fromkeys(("authors-descents", "descents", "stages", "learned-after-suppression"), "agrees"),
    "figure-9": dict.fromkeys(("authors-descents", "descents", "stages", "order"), "agrees"),
    "figure-10": {"never": "differs", "suppressed-first": "agrees", "authors-negative": "seen"},
    "figure-13": {"sooner": "seen", "easier": "undecided"},  # no networks at d = 64
    "lemmas": dict.fromkeys(("corollary-d1", "d3", "d5"), "fails"),
    "theorem-4-1": {"at-the-test-point": "holds", "monotone-default": "agrees"},
}
"""Claims of concept-learning that few trials decide."""


@pytest.mark.parametrize(
    "name",
    sorted(
        {name for name in entry_names() if name.startswith(PAPERS)} - LONGER | {f"gradual-rank/{n}" for n in THEORY}
    ),
)
def test_quick_runs(quick_run, outcomes, name):
    found = outcomes(find_entry(name), quick_run(name).run)
    assert {k: v for k, v in found.items() if v not in ("holds", "agrees", "seen")} == OPEN.get(name, {})


@pytest.mark.parametrize("name", SHORT)
def test_quick_runs_of_few_trials(quick_run, outcomes, name):
    found = quick_run(f"concept-learning/{name}")
    assert outcomes(found.entry, found.run).items() >= SHORT[name].items()


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("atlas", {"conjecture", "wide"}),
        ("figure-2", {"shift", "one-descent"}),
        ("figure-11", {"shift"}),
        ("figure-12", {"shift"}),
        ("figure-4", {"faster-most", "groups", "suppression"}),
        ("generalisation-map", {"border", "diversity-hides"}),
        ("order-flip", {"two-layers"}),
    ],
)
def test_values_within_bounds_that_few_trials_cannot_decide(name, claims, quick_run, inside):
    found = quick_run(f"concept-learning/{name}")
    assert claims <= inside(found.entry, found.run)


def filled(**values):
    """Return a function that fills variables or attributes of a run."""

    def change(run):
        variables = {name: (run[name].dims, np.full(run[name].shape, value))
                     for name, value in values.items() if name not in run.attrs}  # fmt: skip
        return run.assign(variables).assign_attrs({name: v for name, v in values.items() if name in run.attrs})

    return change


def one_descent(run):
    run.authors_turning_loss[1:-1] = np.linspace(1.0, 0.0, run.sizes["authors_turn"])[1:-1]
    return run


def no_flips(run):
    run.half.values[:, :5, :, 1] = 100.0
    return run


def unlearned(run):
    run.train_loss.values[..., -1] = run.train_loss.values[..., 0]
    return run


def knows_frequencies_alone(run):
    run.test_loss.values[:, -1] = run.attrs["guess_loss"]
    return run


def at_the_origin(run):
    """Stages that are found in the noise of a loss that does not fall are no saddles."""
    return run.assign(loss=2.3 + 1e-6 * run.loss)


def unfinished(run):
    run.converged.values[0] = False
    return run


ALL = frozenset({"all"})
CHANGES = [
    ("concept-learning/figure-5", one_descent, {"rise"}, "not tested"),
    ("concept-learning/figure-8", one_descent, {"stages"}, "not tested"),
    ("concept-learning/order-flip", no_flips, {"two-layers"}, "undecided"),
    ("deep-relu/conjecture-2", filled(best=0.49), {"none-faster", "rank-one"}, "not tested"),
    *((f"deep-relu/conjecture-{k}", at_the_origin, ALL, "undecided") for k in (3, 4)),
    ("deep-relu/example-1", filled(upper=0.6), {"optimum"}, "undecided"),  # bounds too far apart
    ("deep-relu/figure-5", filled(speed=0.4), {"where"}, "undecided"),  # angles that miss the maxima
    ("deep-relu/proposition-2-2", filled(definition_error=1e-3), {"direction", "growth-printed"}, "not tested"),
    ("deep-relu/proposition-3-3", filled(share=0.5), {"holds"}, "undecided"),
    *((f"gradual-rank/{name}", unfinished, ALL, "not tested") for name in ("assumptions", "diagonal-linear")),
    ("gradual-rank/example-3-2", filled(resolved=False), {"support"}, "undecided"),
    ("gradual-rank/example-3-2", lambda run: run.isel(scale=[-1]), {"converges"}, "undecided"),
    ("gradual-rank/example-3-2", filled(found_time=np.nan), {"converges"}, "undecided"),
    ("gradual-rank/figure-2", filled(found_time=np.nan), {"times", "order"}, "undecided"),
    ("gradual-rank/figure-2", filled(resolved=False), {"support"}, "undecided"),
    ("gradual-rank/figure-2", lambda run: run.isel(scale=[0]), {"loss-converges"}, "undecided"),
    ("gradual-rank/figure-2-v1", filled(found_time=np.nan), {"order"}, "undecided"),
    ("gradual-rank/figure-10", lambda run: run.assign(noisy=run.weights), {"beta-returns"}, "undecided"),
    ("gradual-rank/figure-10", filled(theory_status="no_minimum", theory_message="None."), {"strict-minima"},
     "undecided"),
    *((f"gradual-rank/figure-{k}", unlearned, ALL, "not tested") for k in (1, 4, 6, 18)),
    *((f"gradual-rank/{name}", knows_frequencies_alone, ALL, "not tested") for name in ("figure-20", "full-matrices")),
    ("gradual-rank/lemmas", filled(distance=np.nan, log_error=np.nan, transition=np.nan), {"c-5", "c-6", "c-10"},
     "undecided"),
    ("gradual-rank/lemmas", filled(d1=np.nan, d3=np.nan, largest_weight=np.nan), {"d-1", "d-3", "existence"},
     "undecided"),
    ("gradual-rank/lemmas", filled(made_peak=0.0), {"d-4"}, "undecided"),
    ("gradual-rank/theorem-4-1", filled(resolved=0.0), {"plateaus"}, "undecided"),
    ("gradual-rank/theorem-4-1", filled(coarse_time=0.0), {"rate"}, "undecided"),  # far from the finer run
    ("gradual-rank/theorem-4-1", lambda run: run.assign_coords(scale=run.scale / 2), {"order", "rate"}, "undecided"),
    ("gradual-rank/tied-heads", filled(found_time=np.nan, found_pair=np.nan), {"at-most-one", "ratio"}, "undecided"),
    ("softmax-attention/assumption-3", filled(log_lost=np.nan), {"sufficient", "not-necessary"}, "undecided"),
    ("softmax-attention/initial-scale", filled(spread=0.0), {"least-entropy"}, "not tested"),
    ("softmax-attention/kkt-residuals", filled(tolerance=1e-8), {"conditions", "incremental-rate"}, "not tested"),
    ("softmax-attention/lemma-4-2", filled(size=np.nan), {"gradient-vanishes"}, "not tested"),
    ("softmax-attention/narrow-heads", filled(rank=8), {"rank-is-enough"}, "undecided"),
    ("softmax-attention/separability", filled(worst_proof=1e-9), {"diagonal-w-above-n-and-l"}, "not tested"),
    ("softmax-attention/theorem-4-1", filled(assumptions_hold=False), {"theorem-4-1"}, "not tested"),
    ("softmax-attention/theorem-5-1", filled(assumptions=False), {"theorem-5-1", "quadrature"}, "not tested"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "claims", "word"), CHANGES)
def test_what_leaves_claims_open(quick_run, outcomes, name, change, claims, word):
    found = outcomes(find_entry(name), change(quick_run(name).run.copy(deep=True)))
    assert {claim for claim, outcome in found.items() if outcome == word} >= (found.keys() if claims is ALL else claims)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stop", "kept"),
    [
        ("assumptions", "seed 1", {"seed=0"}),
        ("figure-2", "scale -16", {"theory", "scale=-2.0"}),
        ("figure-10", "moment 3", {"theory", "undisturbed", "moment=1", "moment=2"}),
    ],
)
def test_a_killed_run_resumes_to_the_same_result(quick_run, tmp_path, name, stop, kept):
    class KilledError(Exception):
        pass

    def kill(fraction: float, note: str) -> None:
        if note.startswith(stop):
            raise KilledError

    entry = find_entry(f"gradual-rank/{name}")
    params = entry.configure("quick")
    with pytest.raises(KilledError):
        entry.run(params, RunContext(scratch=tmp_path, report=kill))
    times = {file.stem: file.stat().st_mtime_ns for file in tmp_path.glob("*.nc")}
    assert set(times) == kept
    again = entry.run(params, RunContext(scratch=tmp_path))
    assert {part: (tmp_path / f"{part}.nc").stat().st_mtime_ns for part in kept} == times
    xr.testing.assert_identical(again.drop_attrs(), quick_run(entry.name).run.drop_attrs())
