"""Figure 20 and the whole matrices: models that start from nothing, and what decides the claims."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.shared.gpt2_training import frequency_loss
from saddlescope.plot.rank_figures import initial_stable_rank
from saddlescope.reproduction import RunContext, find_entry

HEADS = find_entry("gradual-rank/figure-20")
MATRICES = find_entry("gradual-rank/full-matrices")


def learned(run, ratio=0.7):
    """End at this share of the loss of a guess by frequencies."""
    run.test_loss.values[:, -1] = ratio * run.attrs["guess_loss"]
    return run


@pytest.fixture
def heads(quick_run):
    return learned(quick_run(HEADS.name).run.copy(deep=True))


def tilted(run):
    """A factor for each seed: seeds that agree to the last bit show no spread, and decide nothing."""
    return 1 + 0.001 * (run.seed - run.seed[0])


def path(run, early, late):
    """`early` up to a tenth of the training, then straight to `late`, over (seed, step)."""
    end = float(run.step[-1])
    return xr.DataArray(np.interp(run.step, [end / 10 + 1, end], [early, late]), {"step": run.step}, ["step"]) * tilted(
        run
    )


@pytest.mark.parametrize(("late", "outcome"), [(1.4, "seen"), (1.1, "not seen")])
def test_a_rise_is_since_a_tenth_of_the_training_and_of_both_products(heads, outcomes, late, outcome):
    heads["stable_rank"] = path(heads, 1.25, 1.5).broadcast_like(heads.stable_rank).transpose(*heads.stable_rank.dims)
    heads.stable_rank.loc[{"product": "KQ"}] = path(heads, 1.25, late).values[..., None, None]
    assert outcomes(HEADS, heads)["rise"] == outcome


def test_what_is_wide_for_one_record_is_not_small_throughout(heads, outcomes):
    initial = initial_stable_rank(heads) * tilted(heads)
    heads["stable_rank"] = (0.4 * initial).broadcast_like(heads.stable_rank)
    assert {outcomes(HEADS, heads)[name] for name in ("low", "throughout")} == {"seen"}
    heads.stable_rank.loc[{"product": "VO", "step": heads.step[0]}] = 0.9 * initial.sel(product="VO")
    found = outcomes(HEADS, heads)
    assert (found["low"], found["throughout"]) == ("seen", "not seen")


@pytest.mark.parametrize("entry", [HEADS, MATRICES])
def test_a_model_that_knows_frequencies_alone_has_not_learned(quick_run, outcomes, entry):
    run = learned(quick_run(entry.name).run.copy(deep=True), 1.0)
    assert set(outcomes(entry, run).values()) == {"not tested"}


def test_models_start_from_scratch(quick_run):
    run = quick_run(HEADS.name).run
    np.testing.assert_allclose(run.test_loss.isel(test_step=0), np.log(run.attrs["vocabulary"]), rtol=0.05)


def test_the_guess_by_frequency():
    train, test = np.array([[0, 0, 1]], np.int32), np.array([[0, 1, 2]], np.int32)
    assert frequency_loss(train, test, 3) == pytest.approx(-np.log([3 / 6, 2 / 6, 1 / 6]).mean())


def test_a_killed_run_goes_on_after_the_seeds_that_are_done(quick_run, tmp_path, types_unchecked):
    """A finished seed is read from the disk, and is the same to the last bit."""

    def kill(fraction, note):
        if fraction > 0.8:
            raise KeyboardInterrupt

    with types_unchecked():
        with pytest.raises(KeyboardInterrupt):
            HEADS.run(HEADS.configure("quick"), RunContext(scratch=tmp_path, report=kill))
        reports = []
        again = HEADS.run(
            HEADS.configure("quick"), RunContext(scratch=tmp_path, report=lambda *each: reports.append(each))
        )
    assert all(note.startswith("seed 1") for _, note in reports)
    assert again.identical(quick_run(HEADS.name).run)


@pytest.mark.parametrize(("name", "kinds"), [("attention", [0, 1]), ("MLP", [2, 3])])
def test_matrices_of_either_kind_decide(quick_run, outcomes, name, kinds):
    run = learned(quick_run(MATRICES.name).run.copy(deep=True))
    run.matrix_stable_rank.values[:] = path(run, 1.25, 1.5).values[None, ..., None]
    assert set(outcomes(MATRICES, run).values()) == {"seen"}
    run.matrix_stable_rank.values[kinds] = path(run, 125.0, 110.0).values[None, ..., None]
    assert set(outcomes(MATRICES, run).values()) == {"not seen"}
    verdict = next(one for one in MATRICES.judge(run) if one.claim == "rise")
    assert f"{name}: −15" in verdict.remark


def test_each_matrix_is_where_its_name_says(quick_run):
    """Shapes distinguish the kinds: sums of squares of an initial matrix are its entries times 0.02^2."""
    matrices, width = quick_run(MATRICES.name).run, 32
    entries = {
        "attn.c_attn": 3 * width**2,
        "attn.c_proj": width**2 / 4,
        "mlp.c_fc": 4 * width**2,
        "mlp.c_proj": width**2,
    }
    squares = (matrices.matrix_initial_norm**2).mean(("seed", "layer"))
    for kind, count in entries.items():  # the matrices that write are initialized at 0.02 / sqrt(2 depth) = 0.01
        assert float(squares.sel(kind=kind)) == pytest.approx(count * 0.02**2, rel=0.1)


def test_official_texts_without_a_folder_are_one_sentence(tmp_path):
    with pytest.raises(InputError, match="SADDLESCOPE_DATA"):
        HEADS.run(HEADS.configure("quick", {"text": "wikitext-2"}), RunContext(scratch=tmp_path))


@pytest.mark.data
def test_official_texts_are_used(data_folder, tmp_path, types_unchecked):
    params = HEADS.configure("quick", {"text": "wikitext-2", "seeds": "0", "epochs": "1", "characters": "2500"})
    with types_unchecked():
        run = HEADS.run(params, RunContext(scratch=tmp_path, data=data_folder))
    assert run.attrs["text"] == "wikitext-2"
    assert np.isfinite(run.stable_rank.values).all()


def test_heads_that_do_not_divide_the_embedding_are_refused():
    with pytest.raises(InputError, match="heads must divide embedding=32; got 3"):
        HEADS.configure("quick", {"heads": "3"})
