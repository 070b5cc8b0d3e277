"""The claims of Figure 20 and of the whole matrices can fail; the models of both start from nothing."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.shared.gpt2_training import frequency_loss
from saddlescope.plot.rank_figures import initial_stable_rank
from saddlescope.reproduction import RunContext, find_entry

HEADS = find_entry("gradual-rank/figure-20")
MATRICES = find_entry("gradual-rank/full-matrices")


def learned(run, ratio=0.7):
    """End at this share of the loss of a guess by frequencies, a little apart from seed to seed."""
    run.test_loss.values[:, -1] = ratio * run.attrs["guess_loss"] * (1 + 0.001 * np.arange(run.sizes["seed"]))
    return run


@pytest.fixture
def heads(quick_run):
    return learned(quick_run(HEADS.name).run.copy(deep=True))


@pytest.fixture
def matrices(quick_run):
    return learned(quick_run(MATRICES.name).run.copy(deep=True))


def tilted(run):
    return 1 + 0.001 * (run.seed - run.seed[0])


def path(run, early, late):
    """`early` up to a tenth of the training, then straight to `late`, in the shape (seed, step)."""
    end = float(run.step[-1])
    values = np.interp(run.step.values, [end / 10 + 1, end], [early, late])
    return values[None] * (1 + 0.001 * np.arange(run.sizes["seed"]))[:, None]


@pytest.mark.parametrize("product", ["KQ", "VO"])
@pytest.mark.parametrize(("late", "outcome"), [(1.4, "seen"), (1.1, "not seen")])
def test_a_rise_is_since_a_tenth_of_the_training(heads, outcomes, product, late, outcome):
    heads.stable_rank.loc[{"product": product}] = path(heads, 1.25, late)[..., None, None]
    found = outcomes(HEADS, heads)
    assert found[f"rise-{product}"] == found[f"heads-rise-{product}"] == outcome


def test_one_large_head_is_not_most_heads(heads, inside):
    rank = path(heads, 2.0, 1.9)[..., None, None] * np.ones((1, 1, heads.sizes["layer"], heads.sizes["head"]))
    rank[:, -1, 0, 0] = 20.0
    heads.stable_rank.loc[{"product": "VO"}] = rank
    found = inside(HEADS, heads)
    assert "rise-VO" in found
    assert "heads-rise-VO" not in found


@pytest.mark.parametrize("product", ["KQ", "VO"])
def test_what_is_wide_for_one_record_is_not_small_throughout(heads, outcomes, product):
    initial = initial_stable_rank(heads).sel(product=product)
    initial = initial * tilted(heads)
    heads.stable_rank.loc[{"product": product}] = 0.4 * initial
    assert {outcomes(HEADS, heads)[f"{name}-{product}"] for name in ("low", "throughout")} == {"seen"}
    heads.stable_rank.loc[{"product": product, "step": heads.step[0]}] = 0.9 * initial
    found = outcomes(HEADS, heads)
    assert (found[f"low-{product}"], found[f"throughout-{product}"]) == ("seen", "not seen")
    heads.stable_rank.loc[{"product": product, "step": heads.step[-1]}] = 0.9 * initial
    assert outcomes(HEADS, heads)[f"low-{product}"] == "not seen"


def test_a_pretrained_model_is_not_taken_for_one_from_scratch(heads, outcomes):
    assert outcomes(HEADS, heads)["from-scratch"] == "reproduced"
    heads.test_loss.values[:, 0] = 3.3 * tilted(heads)
    found = outcomes(HEADS, heads)
    assert found.pop("from-scratch") == "refuted"
    assert set(found.values()) == {"not tested"}


def test_a_model_that_knows_frequencies_alone_has_not_learnt(heads, outcomes):
    found = outcomes(HEADS, learned(heads, 1.0))
    assert found.pop("learned") == "refuted"
    assert found.pop("from-scratch") == "reproduced"
    assert set(found.values()) == {"not tested"}


def test_the_guess_by_frequency():
    train, test = np.array([[0, 0, 1]], np.int32), np.array([[0, 1, 2]], np.int32)
    assert frequency_loss(train, test, 3) == pytest.approx(-np.log([3 / 6, 2 / 6, 1 / 6]).mean())


def test_one_seed_decides_nothing(heads, outcomes):
    assert set(outcomes(HEADS, heads.isel(seed=[0])).values()) == {"undecided", "not tested"}


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
def test_matrices_are_judged_by_their_kind(matrices, outcomes, name, kinds):
    matrices.matrix_stable_rank.values[:] = 1e3
    matrices.matrix_stable_rank.values[kinds] = path(matrices, 1.25, 1.5)[None, ..., None]
    found = outcomes(MATRICES, matrices)
    assert (found[f"rise-{name}"], found[f"low-{name}"]) == ("reproduced", "reproduced")
    matrices.matrix_stable_rank.values[kinds] = path(matrices, 1.25, 1.1)[None, ..., None]
    assert outcomes(MATRICES, matrices)[f"rise-{name}"] == "refuted"
    matrices.matrix_stable_rank.values[kinds] = 100.0
    assert outcomes(MATRICES, matrices)[f"low-{name}"] == "refuted"


@pytest.mark.parametrize(("factor", "alike"), [(1.0, True), (3.0, False), (1 / 3, False)])
def test_alike_is_within_a_factor_of_two(matrices, inside, factor, alike):
    """Relative to their own initial matrices, whose stable ranks differ."""
    matrices.stable_rank.values[:] = 0.2 * float(initial_stable_rank(matrices).mean())
    mlp = matrices.matrix_initial_spectrum.sel(kind=["mlp.c_fc", "mlp.c_proj"])
    initial = ((mlp**2).sum("index") / mlp.isel(index=0) ** 2).mean()
    matrices.matrix_stable_rank.values[2:] = 0.2 * factor * float(initial)
    assert ("alike" in inside(MATRICES, matrices)) == alike


def test_each_matrix_is_where_its_name_says(matrices):
    """Shapes distinguish the kinds: sums of squares of an initial matrix are its entries times 0.02^2."""
    width = 32
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


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"heads": "3"}, "heads must divide embedding=32; got 3"),
        ({"seeds": "1,1"}, "seeds must be one or more integers, each at least 0, each once"),
        ({"vocabulary": "100"}, "vocabulary must be at least 256; got 100"),
        ({"block": "1"}, "block must be at least 2; got 1"),
        ({"learning_rate": "inf"}, "learning_rate must be a finite number"),
        ({"text": "wikitext2"}, "did you mean wikitext-2"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        HEADS.configure("quick", settings)


@pytest.mark.parametrize(("first", "other", "outcome"), [(1.4, 1.4, "reproduced"), (2.6, 1.2, "undecided")])
def test_a_rise_of_one_layer_is_not_one_of_the_network(heads, outcomes, first, other, outcome):
    rank = np.stack([path(heads, 1.25, late) for late in (first, other)], axis=-1)[..., None]
    heads.stable_rank.loc[{"product": "VO"}] = rank
    found = outcomes(HEADS, heads)
    assert (found["rise-VO"], found["layers-rise-VO"]) == ("seen", outcome)
